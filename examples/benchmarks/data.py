"""What goes into a network, equal for all contenders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.works import Work


@dataclass(frozen=True)
class Data:
    """Inputs and targets of a step.

    x (B, T, F) and y (B, 1), float32, with zeros at padded steps; words of a
    language model and the words that follow them, both (B, T), int32. Lengths (B,),
    or None if all rows are whole.
    """

    x: np.ndarray
    y: np.ndarray
    lengths: np.ndarray | None = None

    @classmethod
    def random(cls, work: Work) -> Data:
        rng = np.random.default_rng(0)
        steps = (work.batch, work.timesteps)
        if work.vocabulary:
            words = rng.integers(0, work.vocabulary, (*steps, 2)).astype("int32")
            return cls(words[..., 0].copy(), words[..., 1].copy())
        x = rng.standard_normal((*steps, work.features), "float32")
        y = rng.standard_normal((work.batch, 1), "float32")
        if not work.masked:
            return cls(x, y)
        x[np.arange(work.timesteps) >= work.lengths[:, None]] = 0.0
        return cls(x, y, work.lengths)

    def first_row(self) -> Data:
        """The same of the first row alone."""
        lengths = None if self.lengths is None else self.lengths[:1]
        return Data(self.x[:1], self.y[:1], lengths)


def states(work: Work) -> list[list[np.ndarray]]:
    """States to decode from, (B, U) float32: for each layer h and, of an LSTM, c."""
    rng = np.random.default_rng(2)
    count = 2 if work.cell == "lstm" else 1
    shape = (work.batch, work.units)
    return [
        [0.5 * rng.standard_normal(shape, "float32") for _ in range(count)]
        for _ in range(work.layers)
    ]
