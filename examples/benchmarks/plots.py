"""Plots of a result, as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.contenders import CONTENDERS, Contender
from benchmarks.results import Result, Timing
from benchmarks.sets import HASTE, HASTE_BATCHES, HASTE_SIZES

MARKERS = "osD^vPX*<"


def draw(result: Result, folder: Path) -> list[Path]:
    """Draws what the result has figures for; gives the files."""
    folder.mkdir(exist_ok=True)
    figures = {"ratio_heatmap": ratio_heatmap(result)}
    for kind in dict.fromkeys(timing.kind for timing in result.times):
        rows = [timing for timing in result.times if timing.kind == kind]
        figures[f"time_against_size_{kind}"] = time_against_size(result, rows)
        figures[f"percent_of_peak_{kind}"] = percent_of_peak(result, rows)
    paths = []
    for name, figure in figures.items():
        if figure is None:
            continue
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=120)
        plt.close(figure)
    return paths


def time_against_size(result: Result, rows: Sequence[Timing]) -> Figure:
    """Time of a step against the multiply-adds of a work, and the floor."""
    rows = sorted(rows, key=lambda row: row.flops)
    figure, axes = plt.subplots(figsize=(9, 6), layout="constrained")
    for index, contender in _taking_part(rows):
        present = [row for row in rows if contender.name in row.spread]
        axes.plot(
            [row.flops / 2 for row in present],
            [1e3 * row.spread[contender.name].median for row in present],
            **_style(contender, index),
        )
    axes.plot(
        [row.flops / 2 for row in rows],
        [1e3 * result.floor_s(row) for row in rows],
        "_",
        color="black",
        label="floor",
    )
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="multiply-adds of a step", ylabel="time of a step, ms")
    _finish(axes, f"{rows[0].kind.capitalize()}: time against size")
    return figure


def percent_of_peak(result: Result, rows: Sequence[Timing]) -> Figure:
    """What share of the measured peak each contender reaches, work by work."""
    height = 1.5 + 0.28 * len(rows)
    figure, axes = plt.subplots(figsize=(10, height), layout="constrained")
    shares = [result.shares(row) for row in rows]
    for index, contender in _taking_part(rows):
        places = [at for at, each in enumerate(shares) if contender.name in each]
        axes.plot(
            [100 * shares[at][contender.name] for at in places],
            places,
            **_style(contender, index),
        )
    axes.set_yticks(range(len(rows)), [row.work.name for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="% of the measured multiply-add peak", xlim=(0, None))
    _finish(axes, f"{rows[0].kind.capitalize()}: share of the peak")
    return figure


def ratio_heatmap(result: Result) -> Figure | None:
    """Ratios over haste's grid; None if no work of it was measured."""
    ratios = np.full((len(HASTE_BATCHES), len(HASTE_SIZES)), np.nan)
    for timing in result.times:
        if timing.case in HASTE and timing.ratio:
            row = HASTE_BATCHES.index(timing.work.batch)
            column = HASTE_SIZES.index(timing.work.units)
            ratios[row, column] = timing.ratio.median
    if np.isnan(ratios).all():
        return None
    figure, axes = plt.subplots(figsize=(7, 6), layout="constrained")
    # White where neither is faster; equal factors are equally strong.
    limit = max(1.0, float(np.nanmax(np.abs(np.log2(ratios)))))
    image = axes.imshow(np.log2(ratios), cmap="RdBu", vmin=-limit, vmax=limit)
    for (row, column), ratio in np.ndenumerate(ratios):
        if not np.isnan(ratio):
            color = "white" if abs(np.log2(ratio)) > 0.6 * limit else "black"
            text = f"{ratio:.2f}×"
            axes.text(column, row, text, ha="center", va="center", color=color)
    axes.set_xticks(range(len(HASTE_SIZES)), HASTE_SIZES)
    axes.set_yticks(range(len(HASTE_BATCHES)), HASTE_BATCHES)
    axes.set(xlabel="units = features", ylabel="batch")
    axes.set_title("LSTM training, T=50: fastest peer over tf_ecornn")
    figure.colorbar(image, label="log2 of the ratio")
    return figure


def _taking_part(rows: Sequence[Timing]) -> list[tuple[int, Contender]]:
    return [
        (index, one)
        for index, one in enumerate(CONTENDERS)
        if any(one.name in row.spread for row in rows)
    ]


def _style(contender: Contender, index: int) -> dict[str, object]:
    """The same for a contender in all plots."""
    return {
        "linestyle": "none",
        "marker": MARKERS[index],
        "color": f"C{index}",
        "markersize": 7 if contender.ours else 5,
        "label": contender.label,
    }


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
