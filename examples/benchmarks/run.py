"""Measures tf_ecornn against stock Keras, with and without XLA.

    python examples/benchmarks/run.py                        everything
    python examples/benchmarks/run.py --quick                smaller, in a minute or two
    python examples/benchmarks/run.py --shapes u128-b64-t100-f32 --measure training

Training step and inference on several shapes, and peak training memory on one. See
method.py for how time is compared and memory.py for what the memory figure is.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from rich.console import Console

from benchmarks import memory, method, report
from benchmarks.contenders import CONTENDERS, Data, KerasContender
from benchmarks.works import KINDS, MEMORY_WORK, QUICK_WORKS, WORKS, Work

ROUNDS, QUICK_ROUNDS = 7, 3
# A turn this long hides the clock's and the scheduler's grain.
TURN_S, QUICK_TURN_S = 0.15, 0.05
MEMORY_PROCESSES, QUICK_MEMORY_PROCESSES = 3, 1

Tick = Callable[[str], None]  # moves the progress bar by one, and says what is next


def measure_times(
    work: Work,
    kind: str,
    contenders: Sequence[KerasContender],
    rounds: int,
    turn_s: float,
    tick: Tick,
) -> report.Timing:
    """One row of the table: all contenders at one work."""
    import keras

    data = Data.random(work)
    steps, first_results = {}, {}
    for contender in contenders:
        tick(f"{kind}, {work.label}: warm-up of {contender.label}")
        step = contender.step(kind, work, data)
        first_results[contender.name] = step()
        step()
        steps[contender.name] = step
    what = f"{kind}, {work.label}: rounds"
    times = method.interleave(steps, rounds, turn_s, lambda: tick(what))
    del steps
    keras.backend.clear_session()
    gc.collect()
    return report.Timing.of(work, kind, times, first_results)


def measure_memory(
    work: Work,
    contenders: Sequence[KerasContender],
    processes: int,
    threads: int,
    tick: Tick,
) -> list[report.Memory]:
    """Peak training memory of each contender."""
    rows = []
    for contender in contenders:
        peaks: dict[str, list[memory.Peak]] = {}
        for allocator in memory.ALLOCATORS:
            peaks[allocator] = []
            for _ in range(processes):
                tick(f"memory, {work.label}: {contender.label}, {allocator}")
                peak = memory.measure(contender.name, work, allocator, threads)
                peaks[allocator].append(peak)
        rows.append(report.Memory.of(work, contender.name, peaks))
    return rows


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line and fills in what depends on --quick."""
    parser = argparse.ArgumentParser(
        description="Measure tf_ecornn against stock Keras, with and without XLA.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="no U=1000, fewer and shorter rounds")
    add(
        "--shapes",
        nargs="+",
        type=shape,
        metavar="uU-bB-tT-fF[-lL]",
        help="units, batch, time steps, features and layers; default: "
        + ", ".join(work.name for work in WORKS),
    )
    add(
        "--measure",
        nargs="+",
        choices=(*KINDS, "memory"),
        default=[*KINDS, "memory"],
        help="default: all",
    )
    add(
        "--contenders",
        nargs="+",
        choices=[one.name for one in CONTENDERS],
        help="default: all",
    )
    add("--rounds", type=at_least(1), help=f"default: {ROUNDS}, quick {QUICK_ROUNDS}")
    add(
        "--threads",
        type=at_least(0),
        default=0,
        help="intra-op threads; 0, the default, leaves it to TensorFlow",
    )
    add("--json", type=Path, metavar="PATH", help="write every figure to this file")
    args = parser.parse_args(arguments)
    if args.json and not args.json.resolve().parent.is_dir():
        parser.error(f"argument --json: there is no directory {args.json.parent}")
    if args.shapes is None:
        args.shapes = list(QUICK_WORKS if args.quick else WORKS)
    if args.rounds is None:
        args.rounds = QUICK_ROUNDS if args.quick else ROUNDS
    return args


def shape(text: str) -> Work:
    """An argparse type."""
    try:
        return Work.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def at_least(smallest: int) -> Callable[[str], int]:
    """An argparse type: a whole number with a lower limit."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = smallest - 1
        if value < smallest:
            raise argparse.ArgumentTypeError(
                f"must be a whole number of at least {smallest}, not {text}"
            )
        return value

    return convert


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmarks; returns the exit status."""
    args = parse(arguments)
    console = Console()

    # Many models in one process are many functions to trace; TensorFlow takes that
    # for a mistake and warns.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    asked = [one for one in CONTENDERS if one.name in (args.contenders or one.name)]
    reasons = {one.name: one.unavailable() for one in asked}
    present = [one for one in asked if reasons[one.name] is None]
    missing = {name: reason for name, reason in reasons.items() if reason is not None}
    for name, reason in missing.items():
        console.print(f"[yellow]Without {name}:[/yellow] {reason}", highlight=False)

    kinds = [kind for kind in KINDS if kind in args.measure]
    turn_s = QUICK_TURN_S if args.quick else TURN_S
    processes = 0
    if "memory" in args.measure:
        processes = QUICK_MEMORY_PROCESSES if args.quick else MEMORY_PROCESSES
    ticks = len(kinds) * len(args.shapes) * (len(present) + args.rounds)
    ticks += processes * len(memory.ALLOCATORS) * len(present)

    result = report.Result(vars(args), missing)
    with report.progress(console, ticks) as tick:
        for kind in kinds:
            for work in args.shapes:
                # Again and again, as a moment's disturbance would make it too low.
                result.peak_flops = max(result.peak_flops, method.matmul_peak())
                row = measure_times(work, kind, present, args.rounds, turn_s, tick)
                result.times.append(row)
        if processes:
            result.memory = measure_memory(
                MEMORY_WORK, present, processes, args.threads, tick
            )

    report.print_tables(console, result, present)
    if args.json:
        report.write_json(args.json, result)
        console.print(f"Figures: {args.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
