"""Builds the CUDA engine, cuda/, with nvcc into the library; or its emulation.

The engine is a part of the library where an nvcc is found that works. The
environment decides otherwise:

    TF_ECORNN_CUDA=0          no CUDA, nvcc is not looked for
    TF_ECORNN_CUDA=1          a build without CUDA is an error
    TF_ECORNN_CUDA=emulated   for tests: the engine runs on the CPU, and takes the
                              CPU engine's place in the ops
    TF_ECORNN_CUDA_TARGETS    machine code for these GPUs, `80` for sm_80, and with
                              `80+ptx` also PTX of its generation, which the drivers
                              of newer GPUs compile
    TF_ECORNN_NVCCFLAGS       more words for nvcc
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from buildtools import compiler, cuda_on_cpu, cuda_resources

FOLDER = Path("cuda")
OBJECTS = Path("build", "cuda")

# The ops' kernels, of the CPU engine and of the CUDA engine.
CPU_KERNELS = Path("cc", "kernels", "cpu.cc")
GPU_KERNELS = Path("cc", "kernels", "gpu.cc")

# T4; A100, RTX 30, RTX 40; H100. The PTX is for what comes after.
DEFAULT_TARGETS = "75+ptx 80 86 89 90+ptx"

STATIC_RUNTIME = "libcudart_static.a"
# What that needs of the system.
SYSTEM_LIBRARIES = ("-ldl", "-lrt", "-lpthread")


class Unusable(Exception):
    """Why there can be no CUDA: one clause, to stand in a sentence."""


@dataclasses.dataclass(frozen=True)
class Toolkit:
    nvcc: Path
    version: str  # as "13.0"
    architectures: frozenset[str]  # that it compiles for, as "90"
    library_folders: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Engine:
    """What the CUDA engine adds to the library.

    Attributes:
        units: what is compiled for it.
        link: words for the link.
        toolkit: the version of CUDA, or "emulated".
        targets: what nvcc compiles for, as DEFAULT_TARGETS has them.
    """

    units: tuple[compiler.Unit, ...] = ()
    link: tuple[str, ...] = ()
    toolkit: str = ""
    targets: tuple[str, ...] = ()


def engine(
    root: Path, cpp: Sequence[str], flags: Sequence[str], objects: Path
) -> Engine:
    """The engine that the environment asks for; an empty one where it has none.

    Args:
        root: the project's folder.
        cpp, flags: how the library's other sources are compiled.
        objects: the folder of the library's other objects.
    """
    wanted = os.environ.get("TF_ECORNN_CUDA", "")
    if wanted not in ("", "0", "1", "emulated"):
        compiler.refuse(f"TF_ECORNN_CUDA must be 0, 1 or emulated, not {wanted!r}.")
    if wanted == "0":
        return Engine()
    if wanted == "emulated":
        return _emulated(cpp, flags, objects)
    try:
        return _with_nvcc(root, cpp, flags, objects)
    except Unusable as why:
        if wanted == "1":
            compiler.refuse(f"TF_ECORNN_CUDA=1, but {why}.")
        print(f"tf_ecornn: no CUDA kernels, CPU only: {why}.", flush=True)
        return Engine()


def without_replaced(sources: Sequence[Path], cuda: Engine) -> list[Path]:
    """The library's C++ sources without those that belong to `cuda`.

    And, where it is emulated, without the kernels that it takes the place of.
    """
    left_out = {GPU_KERNELS}
    if cuda.toolkit == "emulated":
        left_out.add(CPU_KERNELS)
    return [source for source in sources if source not in left_out]


def check(cuda: Engine, root: Path) -> None:
    """After compilation: writes the report of resources, and refuses spills."""
    if cuda.targets:
        cuda_resources.check(
            [unit for unit in cuda.units if unit.notes is not None],
            root / OBJECTS / "resources.json",
        )


def _emulated(cpp, flags, objects) -> Engine:
    # Makes the objects, which serve the tests without TensorFlow as well.
    cuda_on_cpu.build()
    own = [*cuda_on_cpu.FLAGS, *compiler.extra_flags()]
    sources = [*cuda_on_cpu.emulation_sources(), *cuda_on_cpu.kernel_sources()]
    sources = [source for source in sources if source.name != "entry.cc"]
    units = compiler.units(cpp, sources, own, cuda_on_cpu.FOLDER)
    define = [*flags, "-DECORNN_CUDA_ON_CPU"]
    kernels = compiler.units(cpp, [GPU_KERNELS], define, objects / "emulated")
    return Engine((*units, *kernels), link=("-ldl",), toolkit="emulated")


def _with_nvcc(root, cpp, flags, objects) -> Engine:
    sources = sorted(p.relative_to(root) for p in (root / FOLDER).rglob("*.cu"))
    if not sources:
        raise Unusable("there are no sources in cuda")
    toolkit = find_toolkit()
    targets = read_targets(toolkit)
    words = _nvcc_command(toolkit, cpp, targets)
    key = hashlib.sha256(repr([words, toolkit.version]).encode()).hexdigest()[:8]
    folder = root / OBJECTS / f"nvcc-{toolkit.version}-{key}"
    _check_that_it_works(toolkit, words, folder)
    kernels = compiler.units(cpp, [GPU_KERNELS], flags, objects)
    link = [f"-L{f}" for f in toolkit.library_folders]
    return Engine(
        units=(*(_unit(source, words, folder) for source in sources), *kernels),
        link=(*link, f"-l:{STATIC_RUNTIME}", *SYSTEM_LIBRARIES),
        toolkit=toolkit.version,
        targets=targets,
    )


# --- nvcc ------------------------------------------------------------------


def find_toolkit() -> Toolkit:
    """nvcc of $CUDA_HOME, or else on the path, or else of the pip packages."""
    home = os.environ.get("CUDA_HOME", "")
    if home:
        nvcc = Path(home, "bin", "nvcc")
        if not nvcc.exists():
            raise Unusable(f"CUDA_HOME is {home!r} and has no bin/nvcc")
    else:
        on_path = shutil.which("nvcc")
        nvcc = Path(on_path) if on_path else _from_packages()
    text = _answer(nvcc, "--version")
    release = re.search(r"release (\d+\.\d+)", text)
    if release is None:
        raise Unusable(f"`{nvcc} --version` does not tell its release")
    return Toolkit(
        nvcc=nvcc,
        version=release.group(1),
        architectures=frozenset(
            re.findall(r"^sm_(\d+)$", _answer(nvcc, "--list-gpu-code"), re.MULTILINE)
        ),
        library_folders=_library_folders(nvcc),
    )


def _library_folders(nvcc: Path) -> tuple[str, ...]:
    """Where nvcc, or its pip package, has the static runtime.

    None where that is in the linker's own folders.
    """
    plan = _answer(nvcc, "--dryrun", "-x", "cu", os.devnull)
    libraries = re.search(r"^#\$ LIBRARIES=(.*)$", plan, re.MULTILINE)
    folders = re.findall(r'-L([^"\s]+)', libraries.group(1)) if libraries else []
    folders.append(str(nvcc.parents[1] / "lib"))
    found = [f for f in folders if Path(f, STATIC_RUNTIME).exists()]
    return tuple(dict.fromkeys(map(os.path.normpath, found)))


def _from_packages() -> Path:
    """nvcc of the pip package nvidia-cuda-nvcc; that for CUDA 12 holds no nvcc."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [nvcc for folder in folders for nvcc in Path(folder).glob("*/bin/nvcc")]
    if not found:
        raise Unusable("no nvcc is in $CUDA_HOME, on the path or among pip's packages")
    return max(found)


def _answer(nvcc: Path, *arguments: str) -> str:
    """What nvcc says: all of it, since a dry run speaks to stderr."""
    try:
        result = subprocess.run(
            [str(nvcc), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except OSError as error:
        raise Unusable(f"{nvcc} cannot be run ({error.strerror})") from None
    if result.returncode != 0:
        raise Unusable(f"`{shlex.join([str(nvcc), *arguments])}` fails")
    return result.stdout


def read_targets(toolkit: Toolkit) -> tuple[str, ...]:
    """The targets of the environment, or those of the default that nvcc knows."""
    named = os.environ.get("TF_ECORNN_CUDA_TARGETS", "").split()
    known = toolkit.architectures
    for target in named:
        if not re.fullmatch(r"\d+(\+ptx)?", target):
            compiler.refuse(
                "TF_ECORNN_CUDA_TARGETS takes words such as 80 and 80+ptx, "
                f"not {target!r}."
            )
        if str(_number(target)) not in known:
            compiler.refuse(
                f"TF_ECORNN_CUDA_TARGETS names {target!r}, and nvcc "
                f"{toolkit.version} compiles for {' '.join(sorted(known, key=int))}."
            )
    default = [t for t in DEFAULT_TARGETS.split() if str(_number(t)) in known]
    return tuple(dict.fromkeys(named or default))


def _nvcc_command(toolkit, cpp: Sequence[str], targets: Sequence[str]) -> list[str]:
    strict = os.environ.get("TF_ECORNN_WERROR", "1") != "0"
    host = ["-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden"]
    host += ["-fvisibility-inlines-hidden", *(["-Werror"] if strict else [])]
    words = [str(toolkit.nvcc), "-std=c++17", "-O3", "-Xptxas", "-v"]
    words += ["-Xcompiler", ",".join(host)]
    words += ["-Werror", "all-warnings"] if strict else []
    # nvcc takes one word for the C++ compiler.
    words += ["-ccbin", cpp[0]] if len(cpp) == 1 else []
    words += generation_flags(targets)
    return words + shlex.split(os.environ.get("TF_ECORNN_NVCCFLAGS", ""))


def generation_flags(targets: Sequence[str]) -> list[str]:
    """nvcc's words for targets, one of them for each generation, as 80, 86 and 89.

    Code is generated once for the oldest listed GPU of a generation, which is most
    of the work, and then assembled for each.
    """
    generations: dict[str, list[str]] = {}
    for target in sorted(targets, key=_number):
        generations.setdefault(str(_number(target))[:-1], []).append(target)
    words = []
    for members in generations.values():
        numbers = [_number(target) for target in members]
        code = [f"sm_{number}" for number in numbers]
        if any(target.endswith("+ptx") for target in members):
            code.append(f"compute_{numbers[0]}")
        words.append(f"-gencode=arch=compute_{numbers[0]},code=[{','.join(code)}]")
    return words


def _number(target: str) -> int:
    return int(target.partition("+")[0])


def _unit(source: Path, words: Sequence[str], folder: Path) -> compiler.Unit:
    target = folder / source.with_suffix(".o")
    command = [*words, "-I.", "-c", str(source), "-o", str(target)]
    command += ["-MMD", "-MT", "unit", "-MF", str(target.with_suffix(".d"))]
    notes = target.with_suffix(".notes")
    return compiler.Unit(source, target, tuple(command), notes)


_PROBE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
__global__ void Kernel() {}
int Run() { return cudaLaunchKernel((const void*)Kernel, 1, 1, nullptr, 0, nullptr); }
"""


def _check_that_it_works(toolkit: Toolkit, words: Sequence[str], folder: Path) -> None:
    """Compiles and links a few lines, once: headers, C++ compiler, static runtime.

    nvcc alone, without the rest of a toolkit, is what some packages hold.
    """
    passed = folder / "works"
    if passed.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / "probe.cu"
    probe.write_text(_PROBE)
    output = str(probe.with_suffix(".so"))
    folders = [f"-L{folder}" for folder in toolkit.library_folders]
    command = [*words, "-shared", "-cudart=static", *folders, str(probe), "-o", output]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        lines = (result.stderr + result.stdout).strip().splitlines()
        errors = [line for line in lines if "error" in line] or lines or ["no message"]
        said = errors[0].strip().rstrip(".")
        raise Unusable(f"{toolkit.nvcc} does not compile a kernel here ({said})")
    passed.touch()
