"""The Keras LSTM classification benchmark, with either LSTM layer.

One LSTM layer and a sigmoid unit learn to tell two classes of time series apart.
The same Keras code runs with `keras.layers.LSTM` and with `tf_ecornn.LSTM`, from
the same weights and over the same batches, so both must follow the same learning
curve; how long each takes is what is compared.

    python examples/keras_lstm_classification.py
    python examples/keras_lstm_classification.py --data gunpoint --plot curves.png

The published run of this benchmark:

    python examples/keras_lstm_classification.py --data synthetic --samples 937 \\
        --timesteps 100 --features 1 --units 1000 --batch-size 100 --epochs 100
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from rich.console import Console

from classification import data, report, timing

LAYERS = ("keras", "ecornn")
POLICIES = ("float32", "mixed_bfloat16", "mixed_float16", "float64")
SYNTHETIC_SIZES = {"samples": 937, "timesteps": 100, "features": 1}


def layer_class(name: str) -> type[keras.layers.LSTM]:
    """The only place where the two runs differ."""
    if name == "keras":
        from keras.layers import LSTM
    else:
        from tf_ecornn import LSTM
    return LSTM


def build_model(
    lstm: type[keras.layers.LSTM], units: int, timesteps: int, features: int
) -> keras.Model:
    """The benchmark's model, compiled: (B, timesteps, features) to (B, 1)."""
    model = keras.Sequential(
        [
            keras.Input((timesteps, features)),
            lstm(units),
            # The policy may be a half precision; a probability is better in float32.
            keras.layers.Dense(1, activation="sigmoid", dtype=output_dtype()),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.001),
        loss="binary_crossentropy",
        metrics=["accuracy"],
    )
    return model


def output_dtype() -> str:
    """float64 under that policy, float32 under all others."""
    return "float64" if keras.config.dtype_policy().name == "float64" else "float32"


def train(
    name: str,
    data_set: data.DataSet,
    args: argparse.Namespace,
    weights: list[np.ndarray] | None,
    show: timing.Show | None,
) -> tuple[timing.Run, list[np.ndarray]]:
    """Trains with the layer of this name and measures it.

    Args:
        name: one of LAYERS.
        data_set: what to learn.
        args: the command line.
        weights: initial weights to start from; None draws them from the seed.
        show: moves a progress bar.

    Returns:
        The measured run and the initial weights that it started from.
    """
    lstm = layer_class(name)
    timesteps, features = data_set.x_train.shape[1:]
    warm_up(lstm, timesteps, features)

    keras.utils.set_random_seed(args.seed)
    model = build_model(lstm, args.units, timesteps, features)
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

    run = timing.Run(
        layer=f"{'keras.layers' if name == 'keras' else 'tf_ecornn'}.LSTM",
        # Ours says whether the fused op or Keras's own loop did the work.
        fused=getattr(model.layers[0], "fused", None),
        parameters=model.count_params(),
        times=stopwatch.times(),
        train=evaluate(data_set.x_train, data_set.y_train),
        test=evaluate(data_set.x_test, data_set.y_test),
    )
    return run, weights


def warm_up(lstm: type[keras.layers.LSTM], timesteps: int, features: int) -> None:
    """Trains a tiny model for a step.

    What a process pays once (thread pools, lazy imports) would otherwise be
    charged to the layer that runs first.
    """
    model = build_model(lstm, 4, timesteps, features)
    model.fit(np.zeros((2, timesteps, features)), np.zeros((2, 1)), verbose=0)


def positive(text: str) -> int:
    """An argparse type: an integer of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text}")
    return value


def seed(text: str) -> int:
    """An argparse type: what NumPy and TensorFlow both take as a seed."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 0 to 2**32 - 1, not {text}"
        )
    return value


def output_path(text: str) -> Path:
    """An argparse type: a file that can be written, found out before training."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a directory")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {path.parent}")
    return path


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line; a bad one ends the program with status 2."""
    parser = argparse.ArgumentParser(
        description="Train the same Keras LSTM classifier with keras.layers.LSTM and "
        "with tf_ecornn.LSTM and compare curves and times.",
    )
    add = parser.add_argument
    add(
        "--layer",
        choices=(*LAYERS, "both"),
        default="both",
        help="which LSTM to train with (default: both, one after the other)",
    )
    add("--units", type=positive, default=64, help="default: 64")
    add("--epochs", type=positive, default=50, help="default: 50")
    add("--batch-size", type=positive, default=32, help="default: 32")
    add(
        "--policy",
        choices=POLICIES,
        default="float32",
        help="Keras dtype policy (default: float32)",
    )
    add("--seed", type=seed, default=0, help="weights and batches (default: 0)")
    add(
        "--data",
        choices=data.DATA_SETS,
        default="italy_power_demand",
        help="two real data sets from sktime, or generated waves in noise "
        "(default: italy_power_demand)",
    )
    for size, default in SYNTHETIC_SIZES.items():
        add(
            f"--{size}",
            type=positive,
            help=f"with --data synthetic only (default: {default})",
        )
    add(
        "--plot",
        type=output_path,
        metavar="PATH",
        help="write learning curves and times to this PNG file",
    )
    add(
        "--json",
        type=output_path,
        metavar="PATH",
        help="write every figure, the machine and the versions to this file",
    )
    add("--quiet", action="store_true", help="no progress bars, no table")
    args = parser.parse_args(arguments)
    if args.plot and args.plot.suffix.lower() != ".png":
        parser.error(f"argument --plot: {args.plot} does not end in .png")
    for size, default in SYNTHETIC_SIZES.items():
        if getattr(args, size) is None:
            setattr(args, size, default)
        elif args.data != "synthetic":
            parser.error(f"argument --{size}: only with --data synthetic")
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    args = parse(arguments)
    console = Console(quiet=args.quiet)
    # Several models in one process are several functions to trace; TensorFlow takes
    # that for a mistake and warns.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    keras.config.set_dtype_policy(args.policy)
    names = LAYERS if args.layer == "both" else (args.layer,)
    try:
        for name in names:
            layer_class(name)
        data_set = data.load(args.data, args.samples, args.timesteps, args.features)
    except ImportError as error:
        print(f"{Path(__file__).name}: {explain_import(error)}", file=sys.stderr)
        return 1

    runs, weights = [], None
    with report.progress(console) as bars:
        steps = args.epochs * -(-len(data_set.x_train) // args.batch_size)
        shows = [report.bar(bars, name, steps) for name in names]
        for name, show in zip(names, shows, strict=True):
            run, weights = train(name, data_set, args, weights, show)
            runs.append(run)

    result = report.collect(vars(args), data_set, runs)
    report.print_tables(console, result, runs)
    if args.json:
        report.write_json(args.json, result)
        console.print(f"Figures: {args.json}")
    if args.plot:
        report.plot(args.plot, result, runs)
        console.print(f"Plot: {args.plot}")
    return 0


def explain_import(error: ImportError) -> str:
    """What to do about a package that is missing or does not load."""
    if error.name == "tf_ecornn" and isinstance(error, ModuleNotFoundError):
        return (
            "tf_ecornn is not installed; `pip install --no-build-isolation .` in the "
            "project's root installs it, --layer keras runs without it"
        )
    if error.name in ("sktime", "sklearn"):
        return (
            f"{error.name} is not installed; `pip install sktime scikit-learn` "
            "installs it, --data synthetic runs without it"
        )
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
