"""Results of a benchmark run: progress bar, tables, JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

import machine
from benchmarks import method
from benchmarks.contenders import CONTENDERS, KerasContender
from benchmarks.memory import Peak
from benchmarks.method import Spread
from benchmarks.works import Work

OURS = [one.name for one in CONTENDERS if one.ours]
# Contenders do the same float32 work, so their first results must agree this well.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Timing:
    """All contenders at one work; times in seconds a step."""

    work: Work
    kind: str
    flops: float
    rounds: dict[str, list[float]]
    spread: dict[str, Spread]
    # Loss of the first training step, or mean square of the first predictions.
    first_results: dict[str, float]
    results_agree: bool
    # Ours against the fastest of the others; None if one of the two is missing.
    best_other: str | None
    ratio: Spread | None

    @classmethod
    def of(
        cls,
        work: Work,
        kind: str,
        times: dict[str, list[float]],
        first_results: dict[str, float],
    ) -> Timing:
        """Puts the figures together from what was measured."""
        values = list(first_results.values())
        others = {name: times[name] for name in times if name not in OURS}
        ours = [times[name] for name in times if name in OURS]
        best = method.fastest(others) if others and ours else None
        return cls(
            work=work,
            kind=kind,
            flops=work.flops(kind),
            rounds=times,
            spread={name: Spread.of(seconds) for name, seconds in times.items()},
            first_results=first_results,
            results_agree=bool(np.allclose(values, values[0], rtol=TOLERANCE)),
            best_other=best,
            ratio=method.ratio(others[best], ours[0]) if best else None,
        )


@dataclass(frozen=True)
class Memory:
    """Peak training memory of one contender, in units of B·T·U floats."""

    work: Work
    contender: str
    units: dict[str, float]  # by allocator, the median of the processes
    processes: dict[str, list[Peak]]

    @classmethod
    def of(cls, work: Work, contender: str, processes: dict[str, list[Peak]]) -> Memory:
        """Puts the figures together from what was measured."""
        units = {
            allocator: float(np.median([peak.units for peak in peaks]))
            for allocator, peaks in processes.items()
        }
        return cls(work, contender, units, processes)


@dataclass
class Result:
    """A run of the benchmarks."""

    arguments: dict[str, Any]
    missing: dict[str, str]
    peak_flops: float = 0.0  # a second
    times: list[Timing] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)

    def floor_s(self, timing: Timing) -> float:
        """Seconds that the multiply-adds alone take at the measured peak."""
        return timing.flops / self.peak_flops


@contextmanager
def progress(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    """A bar; gives the function that completes a part and names the next."""
    bars = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        refresh_per_second=2,
    )
    with bars:
        task = bars.add_task("", total=total)
        started = 0

        def tick(what: str) -> None:
            nonlocal started
            bars.update(task, completed=started, description=what)
            started += 1

        yield tick
        bars.update(task, completed=total, description="done")


def print_tables(
    console: Console, result: Result, contenders: Sequence[KerasContender]
) -> None:
    """Prints a table for each kind of time, and one for memory."""
    for kind in dict.fromkeys(timing.kind for timing in result.times):
        rows = [timing for timing in result.times if timing.kind == kind]
        console.print(_time_table(kind, result, rows, contenders))
    if result.times:
        console.print(
            f"Medians of {result.arguments['rounds']} interleaved rounds, quartiles "
            "below them; in brackets the share of the measured peak of "
            f"{result.peak_flops / 1e9:.0f} GF/s (a large tf.matmul). Floor: the "
            "multiply-adds alone at that peak. Ratio: the faster of the others over "
            "ours, round by round.",
            highlight=False,
        )
    for timing in result.times:
        if not timing.results_agree:
            console.print(
                f"[red]Results differ[/red] at {timing.kind}, {timing.work.label}: "
                f"{timing.first_results}"
            )
    if result.memory:
        console.print(_memory_table(result.memory, contenders))
        console.print(
            "Highest resident memory in training, above the process with the model "
            "built; median of the processes, all of them below. TensorFlow's default "
            "allocator keeps what it once had; exact: nothing is kept."
        )
    console.print(machine.one_line() + ".", highlight=False)


def _time_table(
    kind: str,
    result: Result,
    rows: Sequence[Timing],
    contenders: Sequence[KerasContender],
) -> Table:
    table = Table(title=f"{kind.capitalize()}, ms a step", title_justify="left")
    table.add_column("shape")
    table.add_column("floor", justify="right")
    for contender in contenders:
        table.add_column(contender.label, justify="right")
    table.add_column("ratio", justify="right")
    for timing in rows:
        floor = result.floor_s(timing)
        cells = [
            _time_cell(timing.spread[contender.name], floor) for contender in contenders
        ]
        table.add_row(
            timing.work.label.replace(" B=", "\nB=", 1),
            f"{1e3 * floor:.{_decimals(floor)}f}",
            *cells,
            _ratio_cell(timing.ratio),
        )
    return table


def _time_cell(spread: Spread, floor: float) -> str:
    median, low, high = (
        f"{1e3 * value:.{_decimals(spread.median)}f}"
        for value in (spread.median, spread.low, spread.high)
    )
    return f"{median} ({floor / spread.median:.0%})\n[dim]{low}–{high}[/dim]"


def _decimals(seconds: float) -> int:
    """Three digits for times of a step from 0.1 ms to 1 s."""
    return 0 if seconds >= 0.1 else 1 if seconds >= 0.01 else 2


def _ratio_cell(ratio: Spread | None) -> str:
    if ratio is None:
        return ""
    return f"[bold]{ratio.median:.2f}×[/bold]\n[dim]{ratio.low:.2f}–{ratio.high:.2f}"


def _memory_table(
    rows: Sequence[Memory], contenders: Sequence[KerasContender]
) -> Table:
    labels = {contender.name: contender.label for contender in contenders}
    work = rows[0].work
    unit = f"{work.memory_unit / 1e6:.1f} MB"
    table = Table(
        title=f"Peak training memory, {work.label}, in units of B·T·U floats ({unit})",
        title_justify="left",
    )
    table.add_column("")
    for allocator in rows[0].units:
        table.add_column(allocator, justify="right")
    for row in rows:
        cells = []
        for allocator, units in row.units.items():
            each = ", ".join(f"{peak.units:.1f}" for peak in row.processes[allocator])
            cells.append(f"[bold]{units:.1f}[/bold]\n[dim]{each}[/dim]")
        table.add_row(labels[row.contender], *cells)
    return table


def collect(result: Result) -> dict[str, Any]:
    """Everything there is to tell, ready for JSON."""
    return {
        "benchmark": "tf_ecornn benchmarks",
        "arguments": _plain(result.arguments),
        "machine": machine.describe_machine() | machine.describe_devices(),
        "versions": machine.versions(),
        "missing": result.missing,
        "peak_flops": result.peak_flops,
        "times": [
            _plain(timing)
            | {
                "floor_s": result.floor_s(timing),
                "share_of_peak": {
                    name: result.floor_s(timing) / spread.median
                    for name, spread in timing.spread.items()
                },
            }
            for timing in result.times
        ],
        "memory": _plain(result.memory),
    }


def _plain(value: Any) -> Any:
    """Dataclasses to dictionaries, works to their names, paths to strings."""
    if isinstance(value, Work):
        return value.name
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def write_json(path: Path, result: Result) -> None:
    """Writes the result; floats keep all their digits."""
    path.write_text(json.dumps(collect(result), indent=2) + "\n")
