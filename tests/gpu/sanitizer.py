"""The kernels under NVIDIA's compute-sanitizer, where it is installed and works.

Its tools see what tests of results cannot: accesses beyond an array, races in shared
memory, barriers that not all threads reach.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

from gpu.processes import Part

# PyTorch asks CUDA for what is not there, and goes on without: no fault of kernels.
TOOLS = {
    "memcheck": ("--report-api-errors", "no"),
    "racecheck": (),
    "synccheck": (),
}
_FOUND_FAULTS = 9
# With every array an allocation of its own, its bounds are known.
_ENVIRONMENT = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def find() -> Path | None:
    """compute-sanitizer on the path, or where the toolkit has it."""
    on_path = shutil.which("compute-sanitizer")
    if on_path:
        return Path(on_path)
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    nvcc = shutil.which("nvcc")
    if nvcc:
        homes.append(str(Path(nvcc).resolve().parents[1]))
    places = ("bin", "compute-sanitizer")
    found = [Path(h, p, "compute-sanitizer") for h in homes if h for p in places]
    return next((path for path in found if path.exists()), None)


def start(library: Path, folder: Path) -> dict[str, Part]:
    """Starts every tool on the small cases; {} where there is none."""
    program = find()
    if program is None:
        return {}
    arguments = ["--library", str(library), "--cases", "sanitizer"]
    return {
        tool: Part(
            "checks",
            folder / f"{tool}.json",
            arguments,
            before=(
                *(str(program), "--tool", tool, *words),
                *("--error-exitcode", str(_FOUND_FAULTS), "--print-limit", "20"),
            ),
            log=folder / f"{tool}.log",
            environment=_ENVIRONMENT,
        )
        for tool, words in TOOLS.items()
    }


def collect(parts: dict[str, Part], end: float) -> dict[str, dict]:
    """What each tool found by `end`, of time.monotonic.

    Its `verdict` begins with clean, faults or not checked.
    """
    found = {}
    for tool, part in parts.items():
        data = part.wait(end - time.monotonic())
        log = part.log.read_text(errors="replace")
        found[tool] = {
            "verdict": verdict(data, log),
            "seconds": data["wall_seconds"],
            "cases": len(data.get("rows", ())),
            "log": log[-4000:],
        }
    return found


def verdict(data: dict, log: str) -> str:
    """Of a tool's run: the results of what ran under it, and what the tool said.

    Faults are what the tool reports, or wrong results under it. A tool that does not
    work on this machine, or was too slow, has checked nothing.
    """
    summaries = re.findall(r"^=+ ((?:ERROR|RACECHECK) SUMMARY: .*)$", log, re.MULTILINE)
    failed = [row for row in data.get("rows", ()) if row["failures"]]
    if data["exit"] == _FOUND_FAULTS or failed:
        said = summaries[-1] if summaries else "wrong results"
        return f"faults: {said}"
    if data["exit"] == 0 and data["finished"] and summaries:
        return f"clean: {summaries[-1]}"
    if data["exit"] is None:
        return f"not checked: too slow, it was at {data.get('running', 'the end')}"
    lines = [line for line in log.splitlines() if line.strip()] or ["no word"]
    return f"not checked: exit {data['exit']}, {lines[-1].strip()}"
