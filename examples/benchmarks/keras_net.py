"""The network of a work in Keras, and functions that do one step of it."""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

from benchmarks import data as inputs
from benchmarks.data import Data
from benchmarks.works import RECURRENT_DROPOUT, Work

Step = Callable[[], float]  # returns a number to compare contenders by
# Where a variant's layer classes are, and whether XLA compiles the model.
VARIANTS = {
    "keras": ("keras.layers", False),
    "keras_xla": ("keras.layers", True),
    "block": ("benchmarks.block_lstm", False),
    "ecornn": ("tf_ecornn", False),
}


def prepare(threads: int) -> None:
    """Before the first network; 0 threads leaves it to TensorFlow."""
    # Once TensorFlow has started, even setting the same number is an error.
    if threads != tf.config.threading.get_intra_op_parallelism_threads():
        tf.config.threading.set_intra_op_parallelism_threads(threads)


def clean_up() -> None:
    """After the networks of a case."""
    keras.backend.clear_session()
    gc.collect()


def versions() -> dict[str, str]:
    return {"tensorflow": tf.__version__, "keras": keras.__version__}


@contextlib.contextmanager
def _policy(name: str) -> Iterator[None]:
    """Keras's global policy: the model's own decides about the loss scale."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


class Net:
    """A variant's network; all variants start from the same weights."""

    def __init__(self, variant: str, work: Work) -> None:
        module, self.xla = VARIANTS[variant]
        self.layer_class = getattr(importlib.import_module(module), work.cell.upper())
        self.work = work
        self.model: keras.Model | None = None

    def step(self, kind: str, data: Data) -> Step:
        """A function that does one step of this kind and returns when it is done."""
        if kind == "decode":
            return self._decode_step(data)
        if self.model is None:
            self.model = self._build()
        if kind == "training":
            return self._training_step(self.model, data)
        return self._inference_step(self.model, data)

    def _layer(self, **arguments) -> keras.Layer:
        work = self.work
        if work.cell == "gru":
            arguments["reset_after"] = not work.reset_before
        if work.dropped:
            arguments["recurrent_dropout"] = RECURRENT_DROPOUT
        return self.layer_class(work.units, **arguments)

    def _build(self) -> keras.Model:
        work = self.work
        keras.utils.set_random_seed(0)
        with _policy(work.policy):
            model = keras.Sequential()
            if work.vocabulary:
                model.add(keras.Input((work.timesteps,), dtype="int32"))
                model.add(keras.layers.Embedding(work.vocabulary, work.features))
            else:
                model.add(keras.Input((work.timesteps, work.features)))
            if work.masked:
                model.add(keras.layers.Masking())
            for index in range(work.layers):
                whole = index < work.layers - 1 or work.vocabulary > 0
                layer = self._layer(return_sequences=whole)
                if work.bidirectional:
                    layer = keras.layers.Bidirectional(layer)
                model.add(layer)
            model.add(keras.layers.Dense(work.vocabulary or 1))
            if work.vocabulary:
                # One norm over all gradients, as PyTorch's clip_grad_norm_ takes it.
                optimizer = keras.optimizers.SGD(global_clipnorm=5.0)
                loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            else:
                optimizer, loss = keras.optimizers.Adam(), "mse"
            model.compile(optimizer, loss, jit_compile=self.xla)
        return model

    def _training_step(self, model: keras.Model, data: Data) -> Step:
        """One `train_on_batch`; gives the loss before the update."""
        x, y = tf.constant(data.x), tf.constant(data.y)
        return lambda: float(model.train_on_batch(x, y))

    def _inference_step(self, model: keras.Model, data: Data) -> Step:
        """One traced call; gives the mean of the squared predictions."""
        x = tf.constant(data.x)
        call = tf.function(
            lambda x: model(x, training=False),
            jit_compile=self.xla,
            autograph=False,
        )
        return lambda: _mean_square(call(x))

    def _decode_step(self, data: Data) -> Step:
        """One traced call of one time step; the states go into the next one."""
        model = self._build_decoder()
        call = tf.function(
            lambda x, states: model([x, *states], training=False),
            jit_compile=self.xla,
            autograph=False,
        )
        x = tf.constant(data.x)
        each = [array for layer in inputs.states(self.work) for array in layer]
        states = [
            tf.cast(array, tensor.dtype)
            for array, tensor in zip(each, model.outputs[1:])
        ]

        def step() -> float:
            nonlocal states
            y, *states = call(x, states)
            return _mean_square(y)

        return step

    def _build_decoder(self) -> keras.Model:
        """From x (B, 1, F) and states to predictions (B, 1) and new states."""
        work = self.work
        keras.utils.set_random_seed(0)
        per_layer = 2 if work.cell == "lstm" else 1
        with _policy(work.policy):
            x = hidden = keras.Input((1, work.features))
            before: list[keras.KerasTensor] = []
            after: list[keras.KerasTensor] = []
            for index in range(work.layers):
                given = [keras.Input((work.units,)) for _ in range(per_layer)]
                last = index == work.layers - 1
                layer = self._layer(return_sequences=not last, return_state=True)
                hidden, *states = layer(hidden, initial_state=given)
                before += given
                after += states
            y = keras.layers.Dense(1)(hidden)
            return keras.Model([x, *before], [y, *after])


def _mean_square(y: tf.Tensor) -> float:
    """Reading the result waits for it."""
    return float(np.mean(np.square(y.numpy().astype("float32"))))
