"""Turns training runs into progress bars, tables, JSON and a plot."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
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
    TimeRemainingColumn,
)
from rich.table import Table

import machine
from classification.data import DataSet
from classification.timing import Run, Show


def progress(console: Console) -> Progress:
    """Bars that cost the training next to nothing: drawn four times a second."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TextColumn("{task.fields[loss]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        refresh_per_second=4,
    )


def bar(bars: Progress, name: str, steps: int) -> Show:
    """Adds a bar; returns the function that moves it."""
    task = bars.add_task(name, total=steps, start=False, loss="")

    def show(done: int, loss: float | None) -> None:
        if loss is None:
            bars.start_task(task)
        else:
            bars.update(task, completed=done, loss=f"loss {loss:.4f}")

    return show


def collect(
    example: str, arguments: dict[str, Any], data_set: DataSet, runs: list[Run]
) -> dict[str, Any]:
    """Everything there is to tell, ready for JSON."""
    return {
        "benchmark": example,
        "arguments": {
            key: str(value) if isinstance(value, Path) else value
            for key, value in arguments.items()
        },
        "data": data_set.describe(),
        "machine": machine.describe_machine() | machine.describe_devices(),
        "versions": machine.versions(),
        "runs": [asdict(run) | {"epoch": run.times.epoch} for run in runs],
        "comparison": compare(*runs) if len(runs) == 2 else None,
    }


def compare(first: Run, second: Run) -> dict[str, Any]:
    """How much faster the second run is, and how far apart the curves are."""
    a, b = first.times, second.times
    differences = np.abs(np.subtract(a.curve.losses, b.curve.losses))
    return {
        "speed_up": {
            "elapsed": a.elapsed / b.elapsed,
            "epoch": a.epoch / b.epoch,
            "step": a.step / b.step if a.step and b.step else None,
            "samples_per_s": b.samples_per_s / a.samples_per_s
            if a.samples_per_s and b.samples_per_s
            else None,
        },
        "largest_loss_difference": float(differences.max()),
        "largest_loss_difference_epoch": int(differences.argmax()) + 1,
    }


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Writes the result; floats keep all their digits."""
    path.write_text(json.dumps(result, indent=2) + "\n")


def _figures() -> list[tuple[str, str | None, Callable[[Run], str]]]:
    """Rows of the table: label, its key among the speed-ups, and the text."""

    def optional(form: str, value: float | None) -> str:
        return "–" if value is None else form.format(value)

    def milliseconds(value: float | None) -> str:
        return "–" if value is None else f"{1e3 * value:.4g} ms"

    return [
        ("Total elapsed time", "elapsed", lambda r: f"{r.times.elapsed:.2f} s"),
        ("Time per epoch", "epoch", lambda r: f"{r.times.epoch:.3f} s"),
        ("First step", None, lambda r: f"{r.times.first_step:.2f} s"),
        ("Median step", "step", lambda r: milliseconds(r.times.step)),
        (
            "Samples/s",
            "samples_per_s",
            lambda r: optional("{:,.0f}", r.times.samples_per_s),
        ),
        ("Final loss, train", None, lambda r: f"{r.train.loss:.6f}"),
        ("Final loss, test", None, lambda r: f"{r.test.loss:.6f}"),
        ("Final accuracy, train", None, lambda r: f"{r.train.accuracy:.4f}"),
        ("Final accuracy, test", None, lambda r: f"{r.test.accuracy:.4f}"),
    ]


def print_tables(
    console: Console,
    title: str,
    comparison: dict[str, Any] | None,
    runs: list[Run],
) -> None:
    """Prints the figures and what is needed to read them."""
    table = Table()
    table.add_column("")
    for run in runs:
        table.add_column(run.layer, justify="right")
    if comparison:
        table.add_column("speed-up", justify="right", style="bold")
    for label, key, text in _figures():
        row = [label, *(text(run) for run in runs)]
        if comparison:
            ratio = comparison["speed_up"].get(key)
            row.append("" if ratio is None else f"{ratio:.2f}×")
        if label == "Final loss, train":
            table.add_section()
        table.add_row(*row)
    console.print()
    console.print(title, style="bold", highlight=False)
    console.print(table)
    console.print(
        "Total time and time per epoch include the first step, which traces the "
        "model; median step and samples/s leave it out. Final figures are of the "
        "trained model, evaluated after the clock has stopped."
    )
    if comparison:
        console.print(
            "Largest difference between the two loss curves: "
            f"[bold]{comparison['largest_loss_difference']:.2e}[/bold] "
            f"(epoch {comparison['largest_loss_difference_epoch']})."
        )
    for run in runs:
        if run.fused is False:
            console.print(f"{run.layer} ran Keras's own loop here, not the fused op.")
    console.print(machine.one_line() + ".", highlight=False)


def plot(path: Path, title: str, runs: list[Run]) -> None:
    """Draws the learning curves, over epochs and over time, and the times."""
    from classification import figure

    figure.draw(path, title, runs)
