"""Builds the GPU engine with nvcc for one GPU, as a library for Python.

    python tests/gpu/build.py 90

builds for sm_90; no GPU is needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cc"))

from buildtools import compiler, cuda, cuda_resources  # noqa: E402

ENTRY = Path("tests", "cuda_on_cpu", "entry.cc")
FOLDER = ROOT / "build" / "gpu"


def build(target: str) -> Path:
    """The library for a GPU of compute capability `target`, as "90" is 9.0.

    Ends the program with one sentence where that cannot be.
    """
    try:
        toolkit = cuda.find_toolkit()
    except cuda.Unusable as why:
        compiler.refuse(f"no CUDA engine can be built: {why}.")
    if target not in toolkit.architectures:
        known = " ".join(sorted(toolkit.architectures, key=int))
        compiler.refuse(
            f"{toolkit.nvcc} ({toolkit.version}) does not compile for sm_{target}, "
            f"only for {known}."
        )
    folder = FOLDER / f"sm_{target}"
    folder.mkdir(parents=True, exist_ok=True)
    nvcc = [str(toolkit.nvcc), "-std=c++17", "-O3", "-Xcompiler", "-fPIC"]
    nvcc += [f"-gencode=arch=compute_{target},code=sm_{target}"]
    # Registers and spills; lines of the source for compute-sanitizer.
    nvcc += ["-Xptxas", "-v", "-lineinfo"]
    sources = sorted(p.relative_to(ROOT) for p in (ROOT / "cuda").rglob("*.cu"))
    entry = compiler.units(
        compiler.find_compiler(), [ENTRY], compiler.BASE_FLAGS, folder
    )
    units = [*(_unit(nvcc, source, folder) for source in sources), *entry]
    compiler.compile_units(units, ROOT)
    library = folder / "libecornn_cuda.so"
    objects = [unit.object for unit in units]
    words = [*nvcc[:1], "-shared", "-cudart=static", "-Xlinker", "--no-undefined"]
    words += [*map(str, objects), "-o", str(library)]
    compiler.link(words, library, objects, ROOT)
    return library


def _unit(nvcc: list[str], source: Path, folder: Path) -> compiler.Unit:
    target = folder / source.with_suffix(".o")
    command = [*nvcc, "-I.", "-c", str(source), "-o", str(target)]
    command += ["-MMD", "-MT", "unit", "-MF", str(target.with_suffix(".d"))]
    return compiler.Unit(source, target, tuple(command), target.with_suffix(".notes"))


def resources(library: Path) -> list[dict]:
    """Registers and spills of the kernels of a library that `build` returned."""
    notes = sorted(library.parent.rglob("*.notes"))
    found = [r for n in notes for r in cuda_resources.parse(n.read_text()) if r.kernel]
    names = cuda_resources.demangled([r.name for r in found])
    return [
        {
            "kernel": name,
            "persistent": cuda_resources.PERSISTENT in r.name,
            "registers": r.registers,
            "stack": r.stack,
            "spills": r.spill_stores + r.spill_loads,
        }
        for r, name in zip(found, names, strict=True)
    ]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        compiler.refuse("the one argument is the GPU's number: 90 for sm_90.")
    built = build(sys.argv[1])
    kernels = resources(built)
    spilling = sum(kernel["spills"] > 0 for kernel in kernels)
    print(f"{built}: {len(kernels)} kernels, {spilling} with spills")
