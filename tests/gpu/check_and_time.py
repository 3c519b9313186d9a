"""Checks the GPU engine on an NVIDIA GPU, and times it beside cuDNN.

    python tests/gpu/check_and_time.py --json result.json     all, in four minutes
    python tests/gpu/check_and_time.py --quick                a few checks
    python tests/gpu/check_and_time.py --emulated --quick     the same without a GPU

Needs nvcc, a C++ compiler, NumPy and PyTorch; emulated, no nvcc and no PyTorch. The
README beside this says what is checked, what is timed, and how to read the output.
Ends with 0 if all that was checked is right, whatever the times are.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cc"))

from buildtools import compiler, cuda_on_cpu
from gpu import build, processes, report, sanitizer
from gpu.checks import count_failed

# Seconds for the checks: a few times what they take, so that only a kernel that
# hangs meets the limit.
CHECKS_S = 90.0
EMULATED_S = 3600.0
# Kept for the report.
END_S = 5.0


def say(text: str) -> None:
    print(text, flush=True)


def gpu() -> dict[str, str]:
    """The first GPU's name, driver and compute capability, as nvidia-smi has them."""
    if shutil.which("nvidia-smi") is None:
        compiler.refuse(
            "no NVIDIA GPU here: nvidia-smi is not on the path "
            "(--emulated runs the checks without a GPU)."
        )
    fields = ("name", "driver_version", "compute_cap", "memory.total")
    words = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(fields)}"]
    result = subprocess.run(
        [*words, "--format=csv,noheader"], capture_output=True, text=True
    )
    if result.returncode != 0:
        said = (result.stdout + result.stderr).strip() or "no message"
        compiler.refuse(f"nvidia-smi finds no GPU: {said}")
    return dict(zip(fields, result.stdout.strip().split(", "), strict=True))


def run_checks(library: Path, folder: Path, options, end: float) -> dict:
    """All shares of the cases at once, until `end` of time.monotonic at most."""
    if options.quick:
        cases = "quick"
    else:
        cases = "small" if options.emulated else "all"
    device = "cpu" if options.emulated else "cuda"
    count = max(1, min(4, (os.cpu_count() or 1) // 2))
    parts = [
        processes.Part(
            "checks",
            folder / f"checks{index}.json",
            [
                *("--library", str(library), "--device", device),
                *("--cases", cases, "--share", f"{index}/{count}"),
            ],
            # NumPy's products would each take all processors.
            environment={"OPENBLAS_NUM_THREADS": "4"},
        )
        for index in range(count)
    ]
    found = [part.wait(end - time.monotonic()) for part in parts]
    return {
        "rows": [row for data in found for row in data.get("rows", ())],
        "seconds": max(data["wall_seconds"] for data in found),
        "unfinished": [
            {"exit": data["exit"], "running": data["running"]}
            for data in found
            if not data["finished"]
        ],
    }


def run_timing(
    library: Path, folder: Path, device: str, seconds: float, hung: bool
) -> dict:
    """With `hung`, without the persistent kernels: some such one never ended."""
    arguments = ["--library", str(library), "--device", device]
    arguments += ["--paths", "steps"] if hung else []
    arguments += ["--seconds", str(seconds - END_S)]
    return processes.Part("timing", folder / "timing.json", arguments).wait(seconds)


def check_and_time(options, folder: Path, write: Callable[[dict], None]) -> dict:
    """All parts, one after another; the sanitizers beside the checks."""
    began = time.monotonic()
    end = began + (EMULATED_S if options.emulated else options.seconds)
    whole = not (options.emulated or options.quick)
    result: dict = {}
    if options.emulated:
        library = cuda_on_cpu.build()
    else:
        result["gpu"] = gpu()
        say(", ".join(result["gpu"].values()))
        target = options.arch or result["gpu"]["compute_cap"].replace(".", "")
        library = build.build(target)
        result["kernels"] = build.resources(library)
        result["build_seconds"] = time.monotonic() - began
        say(report.build_line(result["kernels"], result["build_seconds"]))
    sanitizers = sanitizer.start(library, folder) if whole else {}
    checks_end = end if options.emulated else min(end, time.monotonic() + CHECKS_S)
    result["checks"] = run_checks(library, folder, options, checks_end)
    write(result)
    if whole:
        result["sanitizers"] = sanitizer.collect(sanitizers, checks_end)
        write(result)
    if whole or options.trial:
        device = "cpu" if options.emulated else "cuda"
        left = end - time.monotonic()
        hung = any(part["exit"] is None for part in result["checks"]["unfinished"])
        result["timing"] = run_timing(library, folder, device, left, hung)
        result["aims"] = report.aims(result["timing"].get("rows", []))
    result["wrong"] = wrong(result)
    result["seconds"] = time.monotonic() - began
    write(result)
    return result


def wrong(result: dict) -> list[str]:
    """What makes the whole a failure, in words."""
    checks, timing = result["checks"], result.get("timing", {})
    count = count_failed(checks["rows"])
    found = [f"{count} cases failed"] if count else []
    if not checks["rows"]:
        found.append("nothing was checked")
    found += [f"checks {report.unfinished(part)}" for part in checks["unfinished"]]
    found += [
        f"{kernel['kernel']} spills registers"
        for kernel in result.get("kernels", ())
        if kernel["persistent"] and kernel["spills"]
    ]
    found += [
        f"{tool}: {run['verdict']}"
        for tool, run in result.get("sanitizers", {}).items()
        if run["verdict"].startswith("faults")
    ]
    if timing and not timing["finished"]:
        found.append(f"timing {report.unfinished(timing)}")
    if any(row["disagreements"] for row in timing.get("rows", ())):
        found.append("results differ from PyTorch's")
    return found + [f"not timed: {text[:200]}" for text in timing.get("errors", ())]


def show(result: dict) -> None:
    lines = [*report.check_lines(result["checks"])]
    if "sanitizers" in result:
        lines += report.sanitizer_lines(result["sanitizers"])
    if "rows" in result.get("timing", {}):
        lines += report.timing_lines(result["timing"])
        lines += report.kernel_lines(result["timing"].get("kernels", {}))
        lines += report.aim_lines(result["aims"])
    lines += [f"WRONG: {text}" for text in result["wrong"]]
    verdict = "failed" if result["wrong"] else "all right"
    say("\n".join([*lines, f"{verdict}, {result['seconds']:.0f} s"]))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where to write all results")
    parser.add_argument("--quick", action="store_true", help="a few checks alone")
    parser.add_argument("--emulated", action="store_true", help="checks without a GPU")
    parser.add_argument(
        "--trial",
        action="store_true",
        help="with --emulated: the timing, too, on PyTorch's CPU in tiny sizes; its "
        "figures mean nothing",
    )
    parser.add_argument("--arch", help="build for this GPU: 90 for sm_90")
    parser.add_argument(
        "--seconds", type=float, default=225.0, help="for all of it (%(default)s)"
    )
    options = parser.parse_args(arguments)
    if options.trial and not options.emulated:
        parser.error("--trial goes with --emulated.")
    if options.trial or not options.emulated:
        if importlib.util.find_spec("torch") is None:
            compiler.refuse(f"PyTorch is not installed for {sys.executable}.")

    def write(result: dict) -> None:
        if options.json:
            options.json.write_text(json.dumps(result, indent=1))

    with tempfile.TemporaryDirectory() as folder:
        try:
            result = check_and_time(options, Path(folder), write)
        finally:
            processes.end_all()
    show(result)
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
