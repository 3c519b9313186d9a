"""What is timed, and the least time that it can take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu.dtypes import DTYPES

ALL_DTYPES = ("float16", "bfloat16", "tf32", "float32")
CELLS = ("lstm", "gru")
DIRECTIONS = ("forward", "training")


@dataclass(frozen=True)
class Work:
    """One layer, or several one after another.

    Attributes:
        lengths: rows have from a tenth of the steps to all of them, against packed
            sequences. Else all rows have all steps.
        dropout: recurrent dropout, against loops of cells.
        short: so short that the host's part may be what is seen: all ways are timed
            as CUDA graphs, too.
        aim: how many times as fast as PyTorch an LSTM in half precision is meant to
            be, forward or both ways.
    """

    name: str
    units: int
    batch: int
    steps: int
    features: int
    layers: int = 1
    lengths: bool = False
    dropout: bool = False
    short: bool = False
    aim: float | None = None
    aimed: tuple[str, ...] = DIRECTIONS

    def layer_features(self) -> list[int]:
        """What each layer takes."""
        return [self.features] + [self.units] * (self.layers - 1)

    def row_lengths(self) -> list[int]:
        """Each row's steps, falling."""
        if not self.lengths:
            return [self.steps] * self.batch
        shortest = max(1, self.steps // 10)
        spread = (self.steps - shortest) / max(1, self.batch - 1)
        return [round(self.steps - row * spread) for row in range(self.batch)]


def _work(units, batch, steps, features, note="", **more) -> Work:
    name = f"U={units} B={batch} T={steps} F={features}{note}"
    return Work(name, units, batch, steps, features, **more)


# In the order of their weight, should the time not suffice.
WORKS = (
    _work(768, 16, 1024, 768, aim=0.5, aimed=("forward",)),
    _work(1000, 100, 100, 1, aim=1.5),
    _work(1000, 100, 100, 128, aim=1.5),
    _work(512, 64, 100, 512, " lengths", lengths=True, aim=3.0),
    _work(512, 64, 100, 512, " dropout", dropout=True, aim=3.0),
    _work(512, 64, 100, 512),
    _work(512, 64, 100, 512, " 4 layers", layers=4),
    _work(256, 128, 32, 256, short=True),
    _work(128, 64, 100, 128, short=True),
    _work(1536, 32, 100, 1536),
)
# For a trial of the script without a GPU: nothing to be learnt from the figures.
TRIAL_WORKS = (
    _work(9, 2, 3, 5),
    _work(9, 2, 3, 1),
    _work(9, 2, 3, 9, " lengths", lengths=True),
    _work(9, 2, 3, 5, " dropout", dropout=True),
    _work(9, 2, 3, 9, " 4 layers", layers=4),
)


@dataclass(frozen=True)
class Ceilings:
    """What the device does at most, as measured.

    Attributes:
        rates: floating-point operations a second of a large product, by number type.
        bandwidth: bytes a second of a large copy, read and written ones.
    """

    rates: dict[str, float]
    bandwidth: float


def floor_ms(
    work: Work, gates: int, dtype: str, direction: str, ceilings: Ceilings
) -> float:
    """No version is faster: the operations at the rate, or the bytes that must move.

    Those are inputs, weights and the last outputs, and in training their gradients.
    """
    item = np.dtype(DTYPES[dtype].storage).itemsize
    steps = sum(work.row_lengths())
    rows = [features + work.units for features in work.layer_features()]
    weights = sum(rows) * gates * work.units
    operations = 2 * steps * weights
    numbers = weights + steps * (work.features + work.units)
    if direction == "training":
        # Gradients of the operands, and of the weights, each take such a product.
        operations *= 3
        numbers *= 2
    seconds = max(
        operations / ceilings.rates[dtype], numbers * item / ceilings.bandwidth
    )
    return 1e3 * seconds
