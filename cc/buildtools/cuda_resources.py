"""Registers, shared memory and spills of the CUDA kernels, as ptxas reports them.

    python cc/buildtools/cuda_resources.py      prints the last build's as a table

A persistent kernel that spills registers to memory pays for it at every step, so
that is an error of the build.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from buildtools import compiler  # noqa: E402

# Kernels that run a whole sequence, by what their names contain.
PERSISTENT = "Sequence"


@dataclasses.dataclass(frozen=True)
class Resources:
    """Of one function for one target. Sizes in bytes.

    `kernel` is False for a device function that kernels call; ptxas counts no
    registers of its own for it.
    """

    name: str  # mangled
    target: str  # as "sm_90"
    kernel: bool
    stack: int
    spill_stores: int
    spill_loads: int
    registers: int = 0
    shared: int = 0


_ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_SPILLS = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse(notes: str) -> list[Resources]:
    """What `ptxas -v` says, function by function."""
    found = []
    entry = target = function = ""
    for line in notes.splitlines():
        if match := _ENTRY.search(line):
            entry, target = match.groups()
        elif match := _FUNCTION.search(line):
            function = match.group(1)
        elif match := _SPILLS.search(line):
            sizes = map(int, match.groups())
            found.append(Resources(function, target, function == entry, *sizes))
        elif match := _USED.search(line):
            shared = _SHARED.search(line)
            # The entry's own line may come after those of functions it calls.
            at = max(
                i for i, r in enumerate(found) if (r.name, r.target) == (entry, target)
            )
            found[at] = dataclasses.replace(
                found[at],
                registers=int(match.group(1)),
                shared=int(shared.group(1)) if shared else 0,
            )
    return found


def demangled(names: Sequence[str]) -> list[str]:
    """Names as in the source, without arguments and namespaces, if it can be told."""
    if not names or shutil.which("c++filt") is None:
        return list(names)
    result = subprocess.run(
        ["c++filt", "--no-params"],
        input="\n".join(names),
        capture_output=True,
        text=True,
        check=True,
    )
    return [re.sub(r"\becornn::(cuda::)?", "", n) for n in result.stdout.splitlines()]


def check(units: Iterable[compiler.Unit], report: Path) -> None:
    """Writes the units' resources to `report`; refuses what must not spill."""
    found = [r for unit in units for r in parse(unit.notes.read_text())]
    if not any(r.kernel for r in found):
        compiler.refuse(
            "nvcc reported no kernel's registers, so spills cannot be ruled out."
        )
    text = json.dumps([dataclasses.asdict(r) for r in found], indent=1)
    if not report.exists() or report.read_text() != text:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(text)
    spilling = [
        r for r in found if PERSISTENT in r.name and r.spill_stores + r.spill_loads
    ]
    for r, name in zip(spilling, demangled([r.name for r in spilling]), strict=True):
        print(f"{name} on {r.target}: {_told(r)}", file=sys.stderr)
    if spilling and compiler.is_strict():
        compiler.refuse(
            f"{len(spilling)} persistent kernels spill registers, listed above "
            "(TF_ECORNN_WERROR=0 takes them as they are)."
        )


def _told(r: Resources) -> str:
    spills = r.spill_stores + r.spill_loads
    words = [f"{r.registers} registers"] if r.kernel else ["function"]
    words += [f"{r.shared} shared"] if r.shared else []
    words += [f"{r.stack} stack"] if r.stack else []
    words += [f"{spills} SPILLED"] if spills else []
    return ", ".join(words)


def table(found: Sequence[Resources]) -> str:
    """One line a function, with a column for each target."""
    targets = sorted({r.target for r in found})
    names = sorted({r.name for r in found})
    cells = {(r.name, r.target): _told(r) for r in found}
    rows = [["", *targets]]
    for name, shown in zip(names, demangled(names), strict=True):
        rows.append([shown, *(cells.get((name, target), "") for target in targets)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True))
        for row in rows
    )


def main(root: Path) -> None:
    report = root / "build" / "cuda" / "resources.json"
    if not report.exists():
        compiler.refuse(f"{report} is not there; build with CUDA first.")
    found = [Resources(**fields) for fields in json.loads(report.read_text())]
    print(table(found))
    spilling = sum(r.spill_stores + r.spill_loads > 0 for r in found)
    print(f"{len(found)} functions, {spilling} with spills")


if __name__ == "__main__":
    main(Path(__file__).resolve().parents[2])
