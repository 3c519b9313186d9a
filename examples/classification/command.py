"""The part of the command line that every example has."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from classification.comparison import LIBRARIES

POLICIES = ("float32", "mixed_bfloat16", "mixed_float16", "float64")


def positive(text: str) -> int:
    """An argparse type: an integer of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text}")
    return value


def rate(text: str) -> float:
    """An argparse type: what a dropout rate may be."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"must be at least 0 and below 1, not {text}")
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


def add_training(
    parser: argparse.ArgumentParser,
    *,
    layer: str,
    epochs: int,
    units_help: str = "default: 64",
) -> None:
    """Adds what to train with and how; `layer` and `epochs` are an example's own."""
    add = parser.add_argument
    add(
        "--layer",
        choices=(*LIBRARIES, "both"),
        default="both",
        help=f"which {layer} to train with (default: both, one after the other)",
    )
    add("--units", type=positive, default=64, help=units_help)
    add("--epochs", type=positive, default=epochs, help=f"default: {epochs}")
    add("--batch-size", type=positive, default=32, help="default: 32")
    add(
        "--policy",
        choices=POLICIES,
        default="float32",
        help="Keras dtype policy (default: float32)",
    )
    add("--seed", type=seed, default=0, help="weights and batches (default: 0)")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Adds where results go."""
    add = parser.add_argument
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


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Reads the command line; a bad one ends the program with status 2."""
    args = parser.parse_args(arguments)
    if args.plot and args.plot.suffix.lower() != ".png":
        parser.error(f"argument --plot: {args.plot} does not end in .png")
    return args
