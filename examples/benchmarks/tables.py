"""Progress and tables on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

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
from benchmarks import contenders
from benchmarks.contenders import CONTENDERS, OURS
from benchmarks.method import Ratio, Spread
from benchmarks.results import Memory, Result, Timing, Verdict


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


def print_tables(console: Console, result: Result, bars: bool) -> None:
    """Prints a table for each kind of time, the bars if asked for, and memory."""
    for kind in dict.fromkeys(timing.kind for timing in result.times):
        rows = [timing for timing in result.times if timing.kind == kind]
        console.print(_time_table(kind, result, rows))
    if result.times:
        peaks = ", ".join(
            f"{flops / 1e9:.0f} GF/s {dtype}"
            for dtype, flops in result.peak_flops.items()
        )
        console.print(
            f"Medians of {result.arguments['rounds']} interleaved rounds, quartiles "
            "below them; in brackets the share of the measured peak (a large "
            f"tf.matmul): {peaks}. Floor: the multiply-adds alone at that peak. Ratio: "
            "the fastest peer over ours, median of the rounds, with its 95 % "
            "confidence interval.",
            highlight=False,
        )
        _print_troubles(console, result)
    if bars:
        console.print(_bars_table(result.verdicts()))
    for work in dict.fromkeys(row.work for row in result.memory):
        rows = [row for row in result.memory if row.work == work]
        console.print(_memory_table(rows))
    for what, error in result.failures.items():
        console.print(f"[red]Failed:[/red] {what}:")
        console.print(error[:500], markup=False, highlight=False)
    if result.memory:
        console.print(
            "Highest resident memory in training, above the process with the model "
            "built; median of the processes, all of them below. Default: TensorFlow's "
            "allocator keeps what it once had; exact: nothing is kept."
        )
    console.print(machine.one_line() + ".", highlight=False)


def _print_troubles(console: Console, result: Result) -> None:
    for case, why in result.skipped.items():
        console.print(f"[yellow]Left out:[/yellow] {case}: {why}", highlight=False)
    for timing in result.times:
        for name, error in timing.failures.items():
            console.print(f"[red]{name} failed[/red] at {timing.case.label}:")
            console.print(error[:500], markup=False, highlight=False)
        if not timing.results_agree:
            console.print(
                f"[red]Results differ[/red] at {timing.case.label}: "
                f"{timing.first_results}"
            )
    slower = result.slower_than_keras()
    for case, ratio in slower.items():
        console.print(
            f"[red]Slower than stock Keras[/red] at {case.label}: {ratio.median:.2f}× "
            f"({ratio.low:.2f}–{ratio.high:.2f})",
            highlight=False,
        )
    if not slower and any({OURS, "keras"} <= set(each.rounds) for each in result.times):
        console.print("Nowhere slower than stock Keras.")


def _time_table(kind: str, result: Result, rows: Sequence[Timing]) -> Table:
    table = Table(title=f"{kind.capitalize()}, ms a step", title_justify="left")
    table.add_column("work")
    table.add_column("floor", justify="right")
    taking_part = [
        one for one in CONTENDERS if any(one.name in row.spread for row in rows)
    ]
    for contender in taking_part:
        table.add_column(contender.label, justify="right")
    table.add_column("ratio", justify="right")
    for timing in rows:
        floor = result.floor_s(timing)
        table.add_row(
            timing.work.label.replace(" B=", "\nB=", 1),
            f"{1e3 * floor:.{_decimals(floor)}f}",
            *(_time_cell(timing, one.name, floor) for one in taking_part),
            f"[bold]{timing.ratio.median:.2f}×[/bold]\n{_interval(timing.ratio)}"
            if timing.ratio
            else "",
        )
    return table


def _time_cell(timing: Timing, name: str, floor: float) -> str:
    if name in timing.failures:
        return "[red]failed[/red]"
    if name not in timing.spread:
        return f"[dim]{timing.cannot.get(name, '')}[/dim]"
    spread: Spread = timing.spread[name]
    median, low, high = (
        f"{1e3 * value:.{_decimals(spread.median)}f}"
        for value in (spread.median, spread.low, spread.high)
    )
    return f"{median} ({floor / spread.median:.0%})\n[dim]{low}–{high}[/dim]"


def _decimals(seconds: float) -> int:
    """Three digits for times of a step from 0.1 ms to 1 s."""
    return 0 if seconds >= 0.1 else 1 if seconds >= 0.01 else 2


def _interval(ratio: Ratio) -> str:
    return f"[dim]{ratio.low:.2f}–{ratio.high:.2f}[/dim]"


def _bars_table(verdicts: Sequence[Verdict]) -> Table:
    table = Table(title="Bars", title_justify="left")
    table.add_column("kind")
    table.add_column("work")
    table.add_column("ours : best of")
    for column in ("bar", "figure", "95 %"):
        table.add_column(column, justify="right")
    table.add_column("")
    words = {
        True: "[green]met[/green]",
        False: "[red]missed[/red]",
        None: "[yellow]not measured[/yellow]",
    }
    for verdict in verdicts:
        bar, ratio = verdict.bar, verdict.ratio
        against = [contenders.find(name) for name in bar.against]
        table.add_row(
            bar.case.kind,
            bar.case.work.label,
            f"{contenders.find(bar.ours).label} : "
            + (against[0].label if len(against) == 1 else "peers"),
            f"{bar.least:.2f}×",
            f"[bold]{ratio.median:.2f}×[/bold]" if ratio else "",
            _interval(ratio) if ratio else "",
            words[verdict.met],
        )
    return table


def _memory_table(rows: Sequence[Memory]) -> Table:
    work = rows[0].work
    unit = f"{work.memory_unit / 1e6:.1f} MB"
    table = Table(
        title=f"Peak training memory, {work.label},\nin units of B·T·U floats ({unit})",
        title_justify="left",
        min_width=60,
    )
    table.add_column("")
    for allocator in rows[0].units:
        table.add_column(allocator, justify="right")
    for row in rows:
        cells = []
        for allocator, units in row.units.items():
            each = ", ".join(f"{peak.units:.1f}" for peak in row.processes[allocator])
            cells.append(f"[bold]{units:.1f}[/bold]\n[dim]{each}[/dim]")
        table.add_row(contenders.find(row.contender).label, *cells)
    return table
