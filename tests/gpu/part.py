"""One part of check_and_time.py, in a process of its own.

    python tests/gpu/part.py checks --library LIBRARY --file RESULTS.json

A kernel that never ends cannot be stopped from within, so the parts are processes
that check_and_time.py can end.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpu import cases, checks
from gpu import memory as memories
from gpu.engine import Engine
from gpu.results import Results

CASES = {
    "all": cases.all_cases,
    "small": cases.small,
    "quick": cases.quick_cases,
    "sanitizer": cases.sanitizer_cases,
}


def say(text: str) -> None:
    print(text, flush=True)


def run_checks(options: argparse.Namespace) -> None:
    on_gpu = options.device == "cuda"
    memory = memories.DeviceMemory() if on_gpu else memories.HostMemory()
    index, count = map(int, options.share.split("/"))
    chosen = cases.share(CASES[options.cases](), index, count)
    checks.run(Engine(options.library), memory, chosen, Results(options.file), say)


def run_timing(options: argparse.Namespace) -> None:
    # Needs PyTorch, unlike the checks of the emulated engine.
    from gpu.timing import Timing

    engine, paths = Engine(options.library), tuple(options.paths)
    timing = Timing(engine, options.device, paths, options.seconds)
    timing.run(Results(options.file), say)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("checks", "timing"))
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--cases", choices=CASES, default="all")
    parser.add_argument("--share", default="0/1", help="of the cases: 0/2 and 1/2")
    parser.add_argument("--paths", nargs="+", default=cases.PATHS)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args(arguments)
    {"checks": run_checks, "timing": run_timing}[options.part](options)


if __name__ == "__main__":
    main(sys.argv[1:])
