"""Measures tf_ecornn against other ways to do the same work.

    python examples/benchmarks/run.py                 all works, in about an hour
    python examples/benchmarks/run.py --quick         a handful, in under 3 minutes
    python examples/benchmarks/run.py --set bars --json bars.json --plots plots
    python examples/benchmarks/run.py --works gru-u128-b64-t100-f32 --measure training

Training steps, inference, decoding and peak training memory. See README.md for works
and contenders, method.py for how time is compared and memory.py for what the memory
figure is.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from rich.console import Console

import machine
from benchmarks import bars, memory, method, options, plots, results, tables
from benchmarks.contenders import CONTENDERS, Contender
from benchmarks.stage import Stage
from benchmarks.works import Case, Work

# A turn this long hides the clock's and the scheduler's grain.
TURN_S, QUICK_TURN_S = 0.15, 0.05
PEAK_SIZE, QUICK_PEAK_SIZE = 3072, 2048  # rows and columns of a product
MEMORY_PROCESSES = 3
SETS_WITH_BARS = ("bars", "all")
# Copies of a language model's logits that a training step holds, and the processes
# that may hold them at once.
LOGITS_COPIES, PROCESSES = 4, 2

Tick = Callable[[str], None]  # moves the progress bar by one, and says what is next


def measure_times(
    stage: Stage,
    case: Case,
    contenders: Sequence[Contender],
    rounds: int,
    turn_s: float,
    tick: Tick,
) -> results.Timing:
    """One row of a table: all contenders at one case."""
    clocks: dict[str, method.Clock] = {}
    first_results: dict[str, float] = {}
    cannot: dict[str, str] = {}
    failures: dict[str, str] = {}
    for contender in contenders:
        name = contender.name
        tick(f"{case.label}: warm-up of {contender.label}")
        reason = contender.cannot(case)
        if reason:
            cannot[name] = reason
            continue
        try:
            first_results[name], clocks[name] = stage.start(contender, case)
        except Exception as error:  # goes into the table; the run ends with status 1
            failures[name] = f"{type(error).__name__}: {error}"
    what = f"{case.label}: rounds"
    times: dict[str, list[float]] = {}
    try:
        times = method.interleave(clocks, rounds, turn_s, lambda: tick(what))
    except Exception as error:  # as above
        failures["rounds"] = f"{type(error).__name__}: {error}"
    stage.stop()
    return results.Timing.of(case, times, first_results, cannot, failures)


def measure_memory(
    stage: Stage,
    work: Work,
    contenders: Sequence[Contender],
    allocators: Sequence[str],
    processes: int,
    tick: Tick,
    result: results.Result,
) -> None:
    """Peak training memory of each contender, into the result."""
    for contender in contenders:
        peaks: dict[str, list[memory.Peak]] = {}
        try:
            for allocator in allocators:
                peaks[allocator] = []
                for _ in range(processes):
                    tick(f"memory, {work.label}: {contender.label}, {allocator}")
                    peaks[allocator].append(stage.peak(contender, work, allocator))
        except RuntimeError as error:  # told at the end, which has status 1
            what = f"memory, {work.label}, {contender.label}"
            result.failures[what] = str(error)
            continue
        result.memory.append(results.Memory.of(work, contender.name, peaks))


def asked(args: argparse.Namespace, special: set[str]) -> list[Contender]:
    """Contenders by the command line, and of the special ones those given."""
    return [
        one
        for one in CONTENDERS
        if (
            one.name in args.contenders
            if args.contenders
            else not one.special or one.name in special
        )
        and not (one.is_torch and args.without_torch)
    ]


def too_large(work: Work) -> str | None:
    """Why this machine's memory is too small for a work; None if it is not."""
    needed = LOGITS_COPIES * PROCESSES * work.logits_bytes / 2**30
    there = machine.describe_machine()["memory_gib"]
    if there is not None and needed > 0.8 * there:
        return f"needs about {needed:.0f} GiB of memory, and there are {there:.0f}"
    return None


def measure_all(
    args: argparse.Namespace, stage: Stage, result: results.Result, console: Console
) -> None:
    """Fills in the result; its JSON file is there from the first row on."""
    takers: dict[Case, list[Contender]] = {}
    for case in args.cases:
        reason = too_large(case.work)
        if reason:
            result.skipped[case.label] = reason
            continue
        special = bars.specials(case) if args.set in SETS_WITH_BARS else set()
        contenders = asked(args, special)
        takers[case] = [one for one in contenders if one.name not in result.missing]
    everyone = [one for one in asked(args, set()) if one.name not in result.missing]
    memory_works = args.memory_works
    allocators = ["exact"] if args.quick else list(memory.ALLOCATORS)
    processes = 1 if args.quick else MEMORY_PROCESSES
    turn_s = QUICK_TURN_S if args.quick else TURN_S
    peak_size = QUICK_PEAK_SIZE if args.quick else PEAK_SIZE

    ticks = sum(len(each) + args.rounds for each in takers.values())
    ticks += processes * len(allocators) * len(everyone) * len(memory_works)
    with tables.progress(console, ticks) as tick:
        for case, contenders in takers.items():
            # Again and again, as a moment's disturbance would make it too low.
            for dtype in method.PEAK_DTYPES[case.work.policy]:
                best = result.peak_flops.get(dtype, 0.0)
                result.peak_flops[dtype] = max(
                    best, method.matmul_peak(dtype, peak_size)
                )
            row = measure_times(stage, case, contenders, args.rounds, turn_s, tick)
            result.times.append(row)
            if args.json:
                results.write_json(args.json, result)
        for work in memory_works:
            case = Case(work, "training")
            able = [one for one in everyone if not one.cannot(case)]
            measure_memory(stage, work, able, allocators, processes, tick, result)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmarks; returns the exit status."""
    args = options.parse(__doc__, arguments)
    console = Console(width=None if sys.stdout.isatty() else 140)
    # Many models in one process are many functions to trace; TensorFlow takes that
    # for a mistake and warns.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)

    with Stage(args.threads, args.torch_python) as stage:
        reasons = {one: stage.missing(one) for one in asked(args, set())}
        missing = {one: reason for one, reason in reasons.items() if reason}
        for one, reason in missing.items():
            console.print(f"[yellow]Without {one.label}:[/yellow] {reason}")
        if any(one.is_torch for one in missing):
            console.print(
                "PyTorch is a peer of every full run: `make bench` makes its "
                "environment, --torch-python names another, --without-torch does "
                "without."
            )
            return 2
        result = results.Result(
            # Figures must not tell where things are on somebody's machine.
            {k: v for k, v in vars(args).items() if not isinstance(v, Path)},
            {one.name: reason for one, reason in missing.items()},
            stage.versions(),
        )
        measure_all(args, stage, result, console)

    tables.print_tables(console, result, bars=args.set in SETS_WITH_BARS)
    if args.json:
        results.write_json(args.json, result)
        console.print(f"Figures: {args.json}")
    if args.plots:
        for path in plots.draw(result, args.plots):
            console.print(f"Plot: {path}")
    return 1 if result.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
