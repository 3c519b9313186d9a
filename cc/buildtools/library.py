"""Builds tf_ecornn/_ecornn.so against the installed TensorFlow."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from buildtools import compiler, cuda, installed_tensorflow, xla

NAME = "_ecornn.so"
INFO = "_build_info.py"

# TensorFlow's libraries are in the process before ours is loaded, so no search
# path is recorded; what stays undefined is refused here rather than at load.
LINK_FLAGS = (
    "-shared",
    "-pthread",
    "-Wl,--no-undefined",
    "-Wl,--as-needed",
    "-Wl,--exclude-libs,ALL",
    "-Wl,--version-script=cc/exports.map",
    "-Wl,-z,relro,-z,now",
)


def compile_flags(tensorflow: installed_tensorflow.TensorFlow) -> list[str]:
    """Base flags, then TensorFlow's own, its headers as system headers."""
    flags = list(compiler.BASE_FLAGS)
    for flag in tensorflow.compile_flags:
        flags += ["-isystem", flag[2:]] if flag.startswith("-I") else [flag]
    # Headers' __FILE__ must not carry a path of this environment.
    flags.append(f"-ffile-prefix-map={tensorflow.include}=include")
    flags += xla.compile_flags(tensorflow)
    return flags + compiler.extra_flags()


def sources(root: Path) -> list[Path]:
    found = sorted(p.relative_to(root) for p in (root / "cc").rglob("*.cc"))
    if not found:
        compiler.refuse(f"{root / 'cc'} holds no sources; the copy is incomplete.")
    return compiler.buildable(found)


def _info(
    tensorflow: str,
    compiler_version: str,
    sets: list[str],
    has_xla: bool,
    with_cuda: cuda.Engine,
) -> str:
    return (
        '"""What the library beside this file was built for. Written by the build."""\n'
        f"\nTENSORFLOW_VERSION = {tensorflow!r}\n"
        f"COMPILER = {compiler_version!r}\n"
        f"INSTRUCTION_SETS = {tuple(sets)!r}\n"
        f"XLA = {has_xla!r}\n"
        f"CUDA = {with_cuda.toolkit!r}\n"
        f"CUDA_TARGETS = {with_cuda.targets!r}\n"
    )


@contextlib.contextmanager
def _one_build_at_a_time(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _replace(target: Path, content: bytes) -> None:
    """Writes a new file in the place of the old one, if they differ.

    A process that has the old library mapped keeps it whole.
    """
    if target.exists() and target.read_bytes() == content:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(target.name + ".new")
    fresh.write_bytes(content)
    os.replace(fresh, target)


def build(root: Path, package: Path) -> None:
    """Brings `package`/_ecornn.so and its _build_info.py up to date.

    Objects stay in `root`/build/cc, one folder for each TensorFlow, compiler and
    set of flags. Raises SystemExit with one sentence when it cannot be done.
    """
    if sys.platform != "linux":
        compiler.refuse(
            f"builds on Linux only and this is {sys.platform}; use WSL 2 on "
            "Windows, or a Linux container."
        )
    command = compiler.find_compiler()
    version = compiler.compiler_version(command)
    tensorflow = installed_tensorflow.find(root / "build" / "cc" / "tensorflow.json")
    flags = compile_flags(tensorflow)
    found = xla.buildable(sources(root), tensorflow)
    has_xla = xla.is_part_of(found)

    key = hashlib.sha256(repr([command, version, flags]).encode()).hexdigest()[:8]
    folder = root / "build" / "cc" / f"tensorflow-{tensorflow.version}-{key}"
    with _one_build_at_a_time(root / "build"):
        with_cuda = cuda.engine(root, command, flags, folder)
        kept = cuda.without_replaced(found, with_cuda)
        units = [*with_cuda.units, *compiler.units(command, kept, flags, folder)]
        compiler.compile_units(units, root)
        cuda.check(with_cuda, root)
        objects = [unit.object for unit in units]
        output = folder / (with_cuda.toolkit or "cpu") / NAME
        output.parent.mkdir(exist_ok=True)
        names = [str(o) for o in objects]
        words = [*command, *names, *LINK_FLAGS, *tensorflow.link_flags]
        words += [*(xla.LINK_FLAGS if has_xla else ()), *with_cuda.link]
        compiler.link([*words, "-o", str(output)], output, objects, root)

        sets = compiler.compiled_sets(kept)
        info = _info(tensorflow.version, version, sets, has_xla, with_cuda).encode()
        library = output.read_bytes()
        target = package / INFO
        if target.exists() and target.read_bytes() != info:
            target.unlink()
        _replace(package / NAME, library)
        _replace(target, info)
