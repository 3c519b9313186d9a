"""The plot: learning curves over epochs and over time, and the times."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display needed

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from classification.timing import Run

# Blue and orange of the Okabe-Ito palette, told apart by every kind of eye.
# The second curve is dashed, so that an equal one below it still shows.
STYLES = (
    {"color": "#0072B2", "linewidth": 3.0, "linestyle": "-"},
    {"color": "#E69F00", "linewidth": 1.8, "linestyle": (0, (4, 3))},
)
POINT_LIMIT = 10  # up to here a curve shows its points


def draw(path: Path, title: str, runs: list[Run]) -> None:
    """Writes the PNG file."""
    with plt.rc_context(
        {
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.alpha": 0.25,
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.titleweight": "bold",
        }
    ):
        figure, axes = plt.subplots(
            1, 4, figsize=(15, 4.2), width_ratios=(4, 4, 2.2, 2.2), layout="constrained"
        )
        figure.suptitle(title)
        _curves(axes[:2], runs)
        _bars(axes[2], "Total elapsed time", "seconds", [r.times.elapsed for r in runs])
        if all(run.times.step for run in runs):
            name, steps = "Median step", [run.times.step for run in runs]
        else:
            name, steps = "The only step", [run.times.first_step for run in runs]
        _bars(axes[3], name, "milliseconds", [1e3 * step for step in steps])
        figure.legend(
            handles=axes[0].get_lines(), loc="outside lower center", ncols=len(runs)
        )
        figure.savefig(path, dpi=150)
        plt.close(figure)


def _curves(axes: list[Axes], runs: list[Run]) -> None:
    """Loss over epochs and accuracy over time; over steps if there is one epoch."""
    single = len(runs[0].times.epochs) == 1
    so_far = ", mean so far" if single else ""
    for run, style in zip(runs, STYLES, strict=False):
        curve = run.times.first_epoch if single else run.times.curve
        counts = list(range(1, len(curve.losses) + 1))
        marks = {} if len(counts) > POINT_LIMIT else {"marker": "o", "markersize": 5}
        axes[0].plot(counts, curve.losses, label=run.layer, **style, **marks)
        axes[1].plot(curve.seconds, curve.accuracies, **style, **marks)
        # Where the run ended: the dot furthest left was first to finish.
        end = curve.seconds[-1], curve.accuracies[-1]
        axes[1].plot(*end, "o", color=style["color"], markersize=8)
    axes[0].set_title("Learning curve")
    axes[0].set_xlabel("step of the only epoch" if single else "epoch")
    axes[0].set_ylabel(f"training loss{so_far}")
    axes[0].xaxis.get_major_locator().set_params(integer=True)
    axes[1].set_title("Accuracy against time")
    axes[1].set_xlabel("seconds since the start of training")
    axes[1].set_ylabel(f"training accuracy{so_far}")
    last = max(run.times.curve.seconds[-1] for run in runs)
    axes[1].set_xlim(0, 1.05 * last)


def _bars(axes: Axes, title: str, unit: str, values: list[float]) -> None:
    colors = [style["color"] for style in STYLES[: len(values)]]
    bars = axes.bar(range(len(values)), values, color=colors, width=0.6)
    labels = [f"{value:#.3g}".rstrip(".") for value in values]
    if len(values) == 2:
        labels[1] += f"\n{values[0] / values[1]:.2f}× as fast"
    axes.bar_label(bars, labels, padding=3)
    axes.margins(x=0.2, y=0.2)
    axes.set_title(title)
    axes.set_ylabel(unit)
    axes.set_xticks([])
    axes.grid(False)
