"""Builds the GPU kernels for their emulation on the CPU, a library for tests.

    python cc/buildtools/cuda_on_cpu.py [self_test]

The very files that nvcc compiles (cuda/) and the emulation (tests/cuda_on_cpu/);
with `self_test`, the emulation with its own little kernels instead. Neither CUDA nor
TensorFlow is needed. The library's C functions are in tests/cuda_on_cpu/entry.h and
emulation_api.h.
"""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from buildtools import compiler  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "cuda_on_cpu"
EMULATION = Path("tests/cuda_on_cpu")

# The optimiser's higher level only makes the many instances take longer.
FLAGS = (
    *(flag for flag in compiler.BASE_FLAGS if flag != "-O3"),
    "-O2",
    # Visible, so that the text of a fault can name a kernel, but nobody else's.
    "-fvisibility=default",
    "-fno-gnu-unique",
    # Lines of the source, for the same.
    "-g1",
    # Emulated fragments and elements hide from the compiler what belongs together.
    "-Wno-error=maybe-uninitialized",
    "-DECORNN_CUDA_ON_CPU",
    f"-I{EMULATION}",
    "-x",
    "c++",
)


def _sources(folder: Path, pattern: str) -> list[Path]:
    found = sorted(p.relative_to(ROOT) for p in (ROOT / folder).glob(pattern))
    if not found:
        compiler.refuse(f"{ROOT / folder} holds no {pattern}; the copy is incomplete.")
    return found


def emulation_sources() -> list[Path]:
    """What runs kernels, without any."""
    entry = EMULATION / "entry.cc"
    return [s for s in _sources(EMULATION, "*.cc") if s != entry]


def kernel_sources() -> list[Path]:
    """The engine's kernels and the C functions that call it."""
    return [*_sources(Path("cuda"), "**/*.cu"), EMULATION / "entry.cc"]


def self_test_sources() -> list[Path]:
    """Kernels that show what the emulation finds."""
    return _sources(EMULATION / "self_test", "*.cu")


def _build(name: str, sources: list[Path]) -> Path:
    command = compiler.find_compiler()
    flags = [*FLAGS, *compiler.extra_flags()]
    library = FOLDER / f"lib{name}.so"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        units = compiler.units(command, sources, flags, FOLDER)
        compiler.compile_units(units, ROOT)
        objects = [unit.object for unit in units]
        words = [*command, *map(str, objects), "-shared", "-pthread"]
        words += ["-Wl,--no-undefined", "-Wl,-Bsymbolic", "-ldl", "-o", str(library)]
        compiler.link(words, library, objects, ROOT)
    return library


def build() -> Path:
    """Brings the library of the engine's kernels up to date and returns its path."""
    return _build("ecornn_cuda_on_cpu", [*emulation_sources(), *kernel_sources()])


def build_self_test() -> Path:
    """The same for the emulation's own kernels."""
    return _build("emulation_self_test", [*emulation_sources(), *self_test_sources()])


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["self_test"]):
        compiler.refuse(f"the one argument may be self_test, not {sys.argv[1:]}.")
    print(build_self_test() if sys.argv[1:] else build())
