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
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras

from classification import command, comparison, data

SYNTHETIC_SIZES = {"samples": 937, "timesteps": 100, "features": 1}


def build_model(
    lstm: comparison.LayerClass, units: int, data_set: data.DataSet
) -> keras.Model:
    """The benchmark's model, compiled: (B, timesteps, features) to (B, 1)."""
    model = keras.Sequential(
        [
            keras.Input(data_set.x_train.shape[1:]),
            lstm(units),
            keras.layers.Dense(
                1, activation="sigmoid", dtype=comparison.output_dtype()
            ),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.001),
        loss="binary_crossentropy",
        metrics=["accuracy"],
    )
    return model


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line; a bad one ends the program with status 2."""
    parser = argparse.ArgumentParser(
        description="Train the same Keras LSTM classifier with keras.layers.LSTM and "
        "with tf_ecornn.LSTM and compare curves and times.",
    )
    command.add_training(parser, layer="LSTM", epochs=50)
    parser.add_argument(
        "--data",
        choices=data.DATA_SETS,
        default="italy_power_demand",
        help="two real data sets from sktime, or generated waves in noise "
        "(default: italy_power_demand)",
    )
    for size, default in SYNTHETIC_SIZES.items():
        parser.add_argument(
            f"--{size}",
            type=command.positive,
            help=f"with --data synthetic only (default: {default})",
        )
    command.add_output(parser)
    args = command.parse(parser, arguments)
    for size, default in SYNTHETIC_SIZES.items():
        if getattr(args, size) is None:
            setattr(args, size, default)
        elif args.data != "synthetic":
            parser.error(f"argument --{size}: only with --data synthetic")
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    args = parse(arguments)
    problem = comparison.Problem(
        name=Path(__file__).stem,
        cell="LSTM",
        model=f"{args.units} units",
        load=lambda: data.load(args.data, args.samples, args.timesteps, args.features),
        build=build_model,
        without_sktime=", --data synthetic runs without it",
    )
    return comparison.run(problem, args)


if __name__ == "__main__":
    sys.exit(main())
