"""The command line of run.py."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.contenders import CONTENDERS
from benchmarks.sets import MEMORY_WORKS, QUICK_MEMORY_WORKS, SETS
from benchmarks.works import KINDS, Case, Work

ROUNDS, QUICK_ROUNDS = 7, 3
TORCH_PYTHON = Path(__file__).parents[2] / "build/torch-env/bin/python"


def parse(description: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line; `cases` is what to time, `rounds` is never None."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a handful of works in short rounds")
    add(
        "--set",
        choices=SETS,
        help="which works: "
        + ", ".join(f"{name} ({len(cases)})" for name, cases in SETS.items())
        + "; default: all, or quick with --quick",
    )
    add(
        "--works",
        nargs="+",
        type=work,
        metavar="NAME",
        help="instead of a set: names like gru-u128-b64-t100-f32-l2-bf16-masked, see "
        "README.md",
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
        metavar="NAME",
        help=f"of {', '.join(one.name for one in CONTENDERS)}; default: all but those "
        "that only some bars need",
    )
    add("--rounds", type=at_least(1), help=f"default: {ROUNDS}, quick {QUICK_ROUNDS}")
    add(
        "--threads",
        type=at_least(0),
        default=0,
        help="threads of each contender; 0, the default: one for each CPU",
    )
    add(
        "--torch-python",
        type=Path,
        default=TORCH_PYTHON,
        metavar="PATH",
        help="the Python of an environment with PyTorch; default: %(default)s",
    )
    add("--without-torch", action="store_true", help="leave PyTorch out")
    add("--json", type=Path, metavar="PATH", help="write every figure to this file")
    add("--plots", type=Path, metavar="DIR", help="write PNG plots into this folder")
    args = parser.parse_args(arguments)
    if args.works and args.set:
        parser.error("argument --works: not allowed with argument --set")
    if args.json and not args.json.resolve().parent.is_dir():
        parser.error(f"argument --json: there is no directory {args.json.parent}")
    if args.plots and not args.plots.resolve().parent.is_dir():
        parser.error(f"argument --plots: there is no directory {args.plots.parent}")
    if not args.works and not args.set:
        args.set = "quick" if args.quick else "all"
    args.cases = _cases(args)
    args.memory_works = _memory_works(args)
    if not args.cases and not args.memory_works:
        parser.error("argument --measure: nothing is left to measure")
    if args.rounds is None:
        args.rounds = QUICK_ROUNDS if args.quick else ROUNDS
    return args


def _cases(args: argparse.Namespace) -> list[Case]:
    if args.works:
        cases = [Case(one, kind) for kind in KINDS for one in args.works]
        cases = [case for case in cases if not case.work.excludes(case.kind)]
    else:
        cases = sorted(SETS[args.set], key=lambda case: KINDS.index(case.kind))
    return [case for case in cases if case.kind in args.measure]


def _memory_works(args: argparse.Namespace) -> tuple[Work, ...]:
    if "memory" not in args.measure:
        return ()
    if args.works:
        return tuple(args.works)
    return QUICK_MEMORY_WORKS if args.quick else MEMORY_WORKS


def work(text: str) -> Work:
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
