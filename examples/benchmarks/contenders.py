"""Who competes: ways to train and run the same network.

A contender makes functions without arguments that do one whole step and return
when it is done; nothing else in the benchmark knows what is behind them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.works import Work

if TYPE_CHECKING:
    import keras

Step = Callable[[], float]  # returns a number to compare contenders by


@dataclass(frozen=True)
class Data:
    """Inputs (B, T, F) and targets (B, 1), float32, equal for all contenders."""

    x: np.ndarray
    y: np.ndarray

    @classmethod
    def random(cls, work: Work) -> Data:
        rng = np.random.default_rng(0)
        shape = (work.batch, work.timesteps, work.features)
        x = rng.standard_normal(shape, "float32")
        y = rng.standard_normal((work.batch, 1), "float32")
        return cls(x, y)


@dataclass(frozen=True)
class KerasContender:
    """An LSTM layer class under Keras, compiled by XLA or not."""

    name: str
    label: str
    module: str  # where the class LSTM comes from
    xla: bool = False
    ours: bool = False

    def unavailable(self) -> str | None:
        """Why this contender can't take part here; None if it can."""
        try:
            importlib.import_module(self.module)
        except ImportError as error:
            return str(error)
        return None

    def build(self, work: Work) -> keras.Model:
        """The network, compiled, with the same weights for every contender."""
        import keras

        layer = importlib.import_module(self.module).LSTM
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((work.timesteps, work.features))])
        for index in range(work.layers):
            last = index == work.layers - 1
            model.add(layer(work.units, return_sequences=not last))
        model.add(keras.layers.Dense(1))
        model.compile(keras.optimizers.Adam(), "mse", jit_compile=self.xla)
        return model

    def step(self, kind: str, work: Work, data: Data) -> Step:
        """A function that does one step of `kind`, "training" or "inference"."""
        model = self.build(work)
        if kind == "training":
            return self.training_step(model, data)
        return self.inference_step(model, data)

    def training_step(self, model: keras.Model, data: Data) -> Step:
        """One `train_on_batch`; gives the loss before the update."""
        import tensorflow as tf

        x, y = tf.constant(data.x), tf.constant(data.y)
        return lambda: float(model.train_on_batch(x, y))

    def inference_step(self, model: keras.Model, data: Data) -> Step:
        """One traced call; gives the mean of the squared predictions."""
        import tensorflow as tf

        x = tf.constant(data.x)
        # Reading the result waits for it.
        call = tf.function(
            lambda x: model(x, training=False),
            jit_compile=self.xla,
            autograph=False,
        )
        return lambda: float(np.mean(np.square(call(x).numpy())))


CONTENDERS = (
    KerasContender("keras", "Keras", "keras.layers"),
    KerasContender("keras_xla", "Keras, XLA", "keras.layers", xla=True),
    KerasContender("ecornn", "tf_ecornn", "tf_ecornn", ours=True),
)


def find(name: str) -> KerasContender:
    """The contender of this name."""
    return next(one for one in CONTENDERS if one.name == name)
