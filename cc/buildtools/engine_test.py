"""Builds the engine with its own test program under sanitizers, and runs it.

    python cc/buildtools/engine_test.py address,undefined thread

Each argument is one build and one run. Neither TensorFlow nor any other package
is needed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from buildtools import compiler  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

# Sanitized code is instrumented before it is optimised, which the optimiser's
# guesses about uninitialised values do not survive: no -Werror here.
FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")


def sources() -> list[Path]:
    folders = (ROOT / "cc" / "recurrence", ROOT / "tests" / "engine")
    missing = [folder for folder in folders if not any(folder.rglob("*.cc"))]
    if missing:
        compiler.refuse(f"{missing[0]} holds no sources; the copy is incomplete.")
    found = [p.relative_to(ROOT) for f in folders for p in f.rglob("*.cc")]
    return compiler.buildable(sorted(found))


def build(sanitizers: str) -> Path:
    """Returns the program, built below build/sanitize."""
    flags = [f for f in compiler.BASE_FLAGS if f != "-O3"]
    flags += [*FLAGS, f"-fsanitize={sanitizers}"]
    folder = ROOT / "build" / "sanitize" / sanitizers.replace(",", "-")
    return compiler.program("engine_test", sources(), flags, folder, ROOT)


def _without_address_randomisation() -> list[str]:
    """A prefix for ThreadSanitizer, whose fixed memory map newer kernels cross."""
    prefix = ["setarch", platform.machine(), "--addr-no-randomize"]
    if shutil.which("setarch") is None:
        return []
    works = subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    return prefix if works else []


def run(program: Path, sanitizers: str) -> int:
    options = {
        "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": "second_deadlock_stack=1",
    }
    prefix = _without_address_randomisation() if sanitizers == "thread" else []
    began = time.monotonic()
    environment = {**options, **os.environ}
    status = subprocess.run([*prefix, str(program)], env=environment).returncode
    result = "clean" if status == 0 else f"FAILED (status {status})"
    print(f"{sanitizers}: {result}, {time.monotonic() - began:.1f} s", flush=True)
    return status


def main(arguments: list[str]) -> int:
    programs = [(build(sanitizers), sanitizers) for sanitizers in arguments]
    statuses = [run(program, sanitizers) for program, sanitizers in programs]
    return 1 if any(statuses) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
