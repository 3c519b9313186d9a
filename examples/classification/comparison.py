"""Trains one model with the stock layer, with ours or with both, and reports.

Two runs start from the same weights and see the same batches and dropout masks.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
from rich.console import Console

from classification import report, timing
from classification.data import DataSet

LIBRARIES = {"keras": "keras.layers", "ecornn": "tf_ecornn"}

LayerClass = type[keras.layers.RNN]


@dataclass(frozen=True)
class Problem:
    """What an example has of its own."""

    name: str  # the example's file, without .py
    cell: str  # the layer's name in both libraries
    model: str  # the model in a few words, for titles
    load: Callable[[], DataSet]
    # The compiled model from the layer's class, its units and the data.
    build: Callable[[LayerClass, int, DataSet], keras.Model]
    # Goes on after how to install a missing sktime.
    without_sktime: str = ""


def layer_class(library: str, cell: str) -> LayerClass:
    """The only place where the two runs differ."""
    return getattr(importlib.import_module(LIBRARIES[library]), cell)


def output_dtype() -> str:
    """Of the layer that gives probabilities, which are better not in half precision.

    float64 under that policy, float32 under all others.
    """
    return "float64" if keras.config.dtype_policy().name == "float64" else "float32"


def run(problem: Problem, args: argparse.Namespace) -> int:
    """Does what the command line asks for; returns the exit status."""
    console = Console(quiet=args.quiet)
    # Several models in one process are several functions to trace; TensorFlow takes
    # that for a mistake and warns.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    keras.config.set_dtype_policy(args.policy)
    libraries = list(LIBRARIES) if args.layer == "both" else [args.layer]
    try:
        layers = {
            f"{LIBRARIES[library]}.{problem.cell}": layer_class(library, problem.cell)
            for library in libraries
        }
        data_set = problem.load()
    except ImportError as error:
        reason = explain_import(error, problem.without_sktime)
        print(f"{problem.name}.py: {reason}", file=sys.stderr)
        return 1

    runs, weights = [], None
    with report.progress(console) as bars:
        steps = args.epochs * -(-len(data_set.x_train) // args.batch_size)
        shows = {name: report.bar(bars, name, steps) for name in layers}
        for name, layer in layers.items():
            warm_up(problem, layer, data_set)
            one, weights = train(
                name, problem, layer, data_set, args, weights, shows[name]
            )
            runs.append(one)

    title = (
        f"{data_set.title()}, {problem.model}, batch {args.batch_size}, "
        f"epochs {args.epochs}, {args.policy}"
    )
    result = report.collect(problem.name, vars(args), data_set, runs)
    report.print_tables(console, title, result["comparison"], runs)
    if args.json:
        report.write_json(args.json, result)
        console.print(f"Figures: {args.json}")
    if args.plot:
        report.plot(args.plot, title, runs)
        console.print(f"Plot: {args.plot}")
    return 0


def warm_up(problem: Problem, layer: LayerClass, data_set: DataSet) -> None:
    """Trains a tiny model for a step.

    What a process pays once (thread pools, lazy imports) would otherwise be
    charged to the layer that runs first.
    """
    model = problem.build(layer, 4, data_set)
    model.fit(data_set.x_train[:2], data_set.y_train[:2], verbose=0)


def train(
    name: str,
    problem: Problem,
    layer: LayerClass,
    data_set: DataSet,
    args: argparse.Namespace,
    weights: list[np.ndarray] | None,
    show: timing.Show | None,
) -> tuple[timing.Run, list[np.ndarray]]:
    """Trains with a layer and measures it.

    Args:
        name: of the layer, with its library.
        problem: whose model to train.
        layer: the class to build it with.
        data_set: what to learn.
        args: the command line.
        weights: initial weights to start from; None draws them from the seed.
        show: moves a progress bar.

    Returns:
        The measured run and the initial weights that it started from.
    """
    keras.utils.set_random_seed(args.seed)  # initial weights, seeds of dropout
    model = problem.build(layer, args.units, data_set)
    if weights is None:
        weights = model.get_weights()
    model.set_weights(weights)

    keras.utils.set_random_seed(args.seed)  # the order in which batches are drawn
    stopwatch = timing.Stopwatch(len(data_set.x_train), args.batch_size, show)
    with stopwatch:
        model.fit(
            data_set.x_train,
            data_set.y_train,
            batch_size=args.batch_size,
            epochs=args.epochs,
            callbacks=[stopwatch],
            verbose=0,
        )

    def evaluate(x: np.ndarray, y: np.ndarray) -> timing.Score:
        loss, accuracy = model.evaluate(x, y, batch_size=args.batch_size, verbose=0)
        return timing.Score(loss, accuracy)

    measured = timing.Run(
        layer=name,
        fused=fused(model),
        parameters=model.count_params(),
        times=stopwatch.times(),
        train=evaluate(data_set.x_train, data_set.y_train),
        test=evaluate(data_set.x_test, data_set.y_test),
    )
    return measured, weights


def fused(model: keras.Model) -> bool | None:
    """Whether the fused op, not Keras's own loop, does the work of every layer.

    None if the model has no layer of ours, on its own or in a Bidirectional.
    """
    inner = ("forward_layer", "backward_layer")
    layers = [
        part
        for layer in model.layers
        for part in (layer, *(getattr(layer, name, None) for name in inner))
    ]
    said = [part.fused for part in layers if hasattr(part, "fused")]
    return all(said) if said else None


def explain_import(error: ImportError, without_sktime: str = "") -> str:
    """What to do about a package that is missing or does not load."""
    if error.name == "tf_ecornn" and isinstance(error, ModuleNotFoundError):
        return (
            "tf_ecornn is not installed; `pip install --no-build-isolation .` in the "
            "project's root installs it, --layer keras runs without it"
        )
    if error.name in ("sktime", "sklearn"):
        what = f"`pip install sktime scikit-learn` installs it{without_sktime}"
        return f"{error.name} is not installed; {what}"
    return str(error)
