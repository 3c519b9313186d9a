"""Series of different lengths with a Bidirectional layer, either library's.

Nine speakers say two Japanese vowels; a Bidirectional LSTM or GRU and a softmax
tell who spoke. Utterances have 7 to 29 steps: they are padded to one length, and
`keras.layers.Masking` makes the layer skip the padding. As in
`keras_lstm_classification.py`, the same Keras code runs with `keras.layers` and with
`tf_ecornn`, from the same weights, over the same batches and dropout masks.

    python examples/japanese_vowels.py
    python examples/japanese_vowels.py --cell gru --padding pre --plot curves.png
    python examples/japanese_vowels.py --recurrent-dropout 0.2
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras

from classification import command, comparison, vowels
from classification.data import DataSet


def build_model(
    layer: comparison.LayerClass,
    units: int,
    data_set: DataSet,
    recurrent_dropout: float,
) -> keras.Model:
    """The compiled model: (B, timesteps, features) to (B, vowels.CLASSES)."""
    model = keras.Sequential(
        [
            keras.Input(data_set.x_train.shape[1:]),
            keras.layers.Masking(vowels.PADDING),
            keras.layers.Bidirectional(
                layer(units, recurrent_dropout=recurrent_dropout)
            ),
            keras.layers.Dense(
                vowels.CLASSES,
                activation="softmax",
                dtype=comparison.output_dtype(),
            ),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.001),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line; a bad one ends the program with status 2."""
    parser = argparse.ArgumentParser(
        description="Train the same bidirectional Keras classifier on series of "
        "different lengths with a layer of keras.layers and with that of tf_ecornn "
        "and compare curves and times.",
    )
    command.add_training(
        parser, layer="layer", epochs=20, units_help="in each direction (default: 64)"
    )
    add = parser.add_argument
    add("--cell", choices=("lstm", "gru"), default="lstm", help="default: lstm")
    add(
        "--recurrent-dropout",
        type=command.rate,
        default=0.0,
        metavar="RATE",
        help="default: 0",
    )
    add(
        "--padding",
        choices=("post", "pre"),
        default="post",
        help="where short series are padded: after their end or before their "
        "start (default: post)",
    )
    command.add_output(parser)
    return command.parse(parser, arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; returns the exit status."""
    args = parse(arguments)
    cell, dropout = args.cell.upper(), args.recurrent_dropout
    words = [f"bidirectional {cell} of 2 × {args.units} units"]
    if dropout:
        words.append(f"recurrent dropout {dropout:g}")
    problem = comparison.Problem(
        name=Path(__file__).stem,
        cell=cell,
        model=", ".join(words),
        load=functools.partial(vowels.load, args.padding),
        build=functools.partial(build_model, recurrent_dropout=dropout),
    )
    return comparison.run(problem, args)


if __name__ == "__main__":
    sys.exit(main())
