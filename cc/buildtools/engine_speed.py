"""Builds the program that times the CPU engine alone, and runs it.

    python cc/buildtools/engine_speed.py lstm float 128,32,100 1000,50,20

The words go to the program; see cc/speed/engine_speed.cc. Neither TensorFlow nor
any other package is needed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from buildtools import compiler  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "speed"


def build() -> Path:
    """Returns the program, with the flags of the package's own build."""
    folders = (ROOT / "cc" / "recurrence", ROOT / "cc" / "speed")
    found = [p.relative_to(ROOT) for f in folders for p in f.rglob("*.cc")]
    sources = compiler.buildable(sorted(found))
    return compiler.program("engine_speed", sources, compiler.BASE_FLAGS, FOLDER, ROOT)


if __name__ == "__main__":
    sys.exit(subprocess.run([build(), *sys.argv[1:]]).returncode)
