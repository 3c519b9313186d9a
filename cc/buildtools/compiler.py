"""Compiles C++ units in parallel, and only those that are not current.

A unit's instruction set is the suffix of its file name. Nothing else is compiled
with wide-vector flags, so the machine's set can be chosen at run time.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

BASE_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    # Results must not depend on what the compiler chooses to fuse.
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
)

_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", *_AVX2)

# In the order of the link, base units first. Where two objects define the same
# inline function the linker keeps the first, hence the one that runs on the
# oldest processor.
INSTRUCTION_SETS = {
    "generic": (),
    "avx2": _AVX2,
    "avx512": _AVX512,
    "avx512bf16": ("-mavx512bf16", *_AVX512),
    "amxbf16": ("-mamx-tile", "-mamx-bf16", "-mavx512bf16", *_AVX512),
}


def refuse(sentence: str) -> NoReturn:
    """Ends the build with one sentence and no traceback."""
    raise SystemExit(f"tf_ecornn: {sentence}")


@dataclasses.dataclass(frozen=True)
class Unit:
    source: Path
    object: Path
    command: tuple[str, ...]
    # Where the compiler's report of a success is kept, in place of being shown.
    notes: Path | None = None

    @property
    def dependencies(self) -> Path:
        """The source and headers it includes, as the compiler wrote them down."""
        return self.object.with_suffix(".d")

    @property
    def record(self) -> Path:
        """The command that made the object; written last, so it vouches for it."""
        return self.object.with_suffix(".cmd")


def find_compiler() -> list[str]:
    """The words of $CXX, or the first of g++, c++ and clang++ on the path."""
    named = shlex.split(os.environ.get("CXX", ""))
    for words in [named] if named else (["g++"], ["c++"], ["clang++"]):
        if shutil.which(words[0]):
            return words
    if named:
        refuse(f"CXX names {named[0]!r}, which is not there; name a C++17 compiler.")
    refuse(
        "no C++ compiler found; install one (Debian, Ubuntu: `apt-get install g++`) "
        "or name it with CXX."
    )


def compiler_version(compiler: Sequence[str]) -> str:
    result = subprocess.run([*compiler, "--version"], capture_output=True, text=True)
    if result.returncode != 0 or not result.stdout.strip():
        refuse(f"`{shlex.join(compiler)} --version` fails; name a compiler with CXX.")
    return result.stdout.splitlines()[0].strip()


def jobs() -> int:
    """Compilers to run at once: TF_ECORNN_JOBS, or the processors we may use."""
    wanted = os.environ.get("TF_ECORNN_JOBS", "")
    if wanted:
        if not wanted.isdigit() or int(wanted) == 0:
            refuse(f"TF_ECORNN_JOBS must be a positive number, not {wanted!r}.")
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_strict() -> bool:
    """Whether warnings are errors: unless TF_ECORNN_WERROR=0."""
    return os.environ.get("TF_ECORNN_WERROR", "1") != "0"


def extra_flags() -> list[str]:
    """What makes warnings errors, then TF_ECORNN_CXXFLAGS.

    CXXFLAGS is left alone on purpose: a -march there would reach every unit.
    """
    # What TensorFlow deprecates from one version to the next is only worth a note.
    errors = ["-Werror", "-Wno-error=deprecated-declarations"] if is_strict() else []
    return errors + shlex.split(os.environ.get("TF_ECORNN_CXXFLAGS", ""))


def is_x86_64() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def instruction_set(source: Path) -> str | None:
    """The set that a file's name ends in, or None for a base unit."""
    suffix = source.stem.rpartition("_")[2]
    return suffix if suffix in INSTRUCTION_SETS else None


def buildable(sources: Sequence[Path]) -> list[Path]:
    """The sources this machine's compiler can build, in the order of the link."""
    order = [None, *INSTRUCTION_SETS]
    usable = order if is_x86_64() else [None, "generic"]
    kept = [s for s in sources if instruction_set(s) in usable]
    return sorted(kept, key=lambda s: (order.index(instruction_set(s)), s))


def compiled_sets(sources: Sequence[Path]) -> list[str]:
    found = {instruction_set(source) for source in sources}
    return [name for name in INSTRUCTION_SETS if name in found]


def units(
    compiler: Sequence[str],
    sources: Sequence[Path],
    flags: Sequence[str],
    objects: Path,
) -> list[Unit]:
    """One unit a source (paths relative to the project), objects below `objects`.

    ECORNN_HAVE_AVX2 and the like tell the base units which sets exist.
    """
    defines = [f"-DECORNN_HAVE_{s.upper()}" for s in compiled_sets(sources)]
    made = []
    for source in sources:
        target = objects / source.with_suffix(".o")
        own = INSTRUCTION_SETS.get(instruction_set(source) or "", ())
        command = [*compiler, *flags, *own, *defines, "-I.", "-c", str(source)]
        command += ["-o", str(target), "-MMD", "-MT", "unit"]
        command += ["-MF", str(target.with_suffix(".d"))]
        made.append(Unit(source, target, tuple(command)))
    return made


def _dependencies(unit: Unit) -> list[str]:
    rule = unit.dependencies.read_text().replace("\\\n", " ")
    words = re.split(r"(?<!\\)\s+", rule.partition(":")[2].strip())
    return [word.replace("\\ ", " ").replace("$$", "$") for word in words]


def is_current(unit: Unit, root: Path) -> bool:
    """Whether the object was made by this command from what is there now."""
    try:
        if unit.record.read_text() != shlex.join(unit.command):
            return False
        made = unit.object.stat().st_mtime_ns
        files = [root / name for name in _dependencies(unit)]
        return all(file.stat().st_mtime_ns < made for file in files)
    except FileNotFoundError:
        return False


def _compile(unit: Unit, root: Path) -> tuple[Unit, float, str, bool]:
    unit.object.parent.mkdir(parents=True, exist_ok=True)
    unit.record.unlink(missing_ok=True)
    began = time.time_ns()
    result = subprocess.run(unit.command, cwd=root, capture_output=True, text=True)
    good = result.returncode == 0
    messages = result.stderr
    if good and unit.notes is not None:
        unit.notes.write_text(messages)
        warnings = [line for line in messages.splitlines() if "warning" in line]
        messages = "\n".join(warnings)
    if good:
        # A file saved while the compiler ran must count as newer.
        os.utime(unit.object, ns=(began, began))
        unit.record.write_text(shlex.join(unit.command))
    return unit, (time.time_ns() - began) / 1e9, messages, good


def _haste(source: Path) -> int:
    """What takes longest first: nvcc, XLA's headers, TensorFlow's."""
    if source.suffix == ".cu":
        return 0
    folders = ("xla", "kernels", "ops")
    name = source.parent.name
    return 1 + folders.index(name) if name in folders else 1 + len(folders)


def compile_units(all_units: Sequence[Unit], root: Path) -> int:
    """Compiles what is not current; returns how many units that was."""
    stale = [unit for unit in all_units if not is_current(unit, root)]
    stale.sort(key=lambda unit: (_haste(unit.source), unit.source))
    workers = jobs()
    failed = None
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(_compile, unit, root) for unit in stale]
        for done, future in enumerate(concurrent.futures.as_completed(running), 1):
            if future.cancelled():
                continue
            unit, seconds, messages, good = future.result()
            print(
                f"[{done:2}/{len(stale)}] {unit.source} {seconds:.1f} s"
                f"{'' if good else ' FAILED'}",
                flush=True,
            )
            if messages:
                print(messages, file=sys.stderr, flush=True)
            if not good and failed is None:
                failed = unit
                for waiting in running:
                    waiting.cancel()
    if failed is not None:
        refuse(
            f"compiling {failed.source} failed, the compiler's messages are above "
            "(TF_ECORNN_WERROR=0 lets mere warnings pass)."
        )
    return len(stale)


def link(command: Sequence[str], output: Path, objects: Sequence[Path], root: Path):
    """Runs the link when its command or an object changed since the last one.

    `output` and `objects` are absolute, as every path below the build folder.
    """
    record = output.with_suffix(output.suffix + ".cmd")
    wanted = shlex.join(command)
    try:
        made = output.stat().st_mtime_ns
        newest = max(object.stat().st_mtime_ns for object in objects)
        if newest < made and record.read_text() == wanted:
            return
    except FileNotFoundError:
        pass
    record.unlink(missing_ok=True)
    began = time.monotonic()
    result = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if result.stderr:
        print(result.stderr, file=sys.stderr, flush=True)
    if result.returncode != 0:
        refuse(f"linking {output.name} failed, the linker's messages are above.")
    record.write_text(wanted)
    print(f"[link] {output.name} {time.monotonic() - began:.1f} s", flush=True)


def program(
    name: str, sources: Sequence[Path], flags: Sequence[str], folder: Path, root: Path
) -> Path:
    """Builds a program of sources (paths relative to `root`) in `folder`."""
    command = find_compiler()
    all_units = units(command, sources, flags, folder)
    compile_units(all_units, root)
    objects = [unit.object for unit in all_units]
    output = folder / name
    link(
        [*command, *flags, *map(str, objects), "-o", str(output)], output, objects, root
    )
    return output
