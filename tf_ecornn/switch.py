"""Puts the fused ops under Keras's own recurrent classes.

`python -m tf_ecornn` calls `switch_on` as soon as Keras is there. No class changes
its identity: what the loop over the steps does is replaced on `keras.layers.RNN`,
`LSTM` and `GRU`, and a step on `LSTMCell` and `GRUCell`. So every name of these
classes, every subclass, `isinstance`, configurations and files mean what they meant.

What is traced to be stored runs Keras's own loop: it must run without tf_ecornn.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from tf_ecornn import explanation, fused_cell, gpu
from tf_ecornn.fused_cell import FusedCell
from tf_ecornn.layers import FusedRNN
from tf_ecornn.rnn import RNN
from tf_ecornn.stored_traces import traces_are_stored, watch_stored_traces

# Why a layer is not fused in a trace that will run elsewhere.
STORED = "traced to be stored (SavedModel, get_concrete_function)"

# Reasons that have been given: each is said once.
_said: set[str] = set()


class _Switched(FusedRNN):
    """A stock layer as the methods of the fused layers see it."""

    _stacked = RNN._stacked

    def __init__(self, layer: keras.layers.RNN):
        self.layer = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)

    def unfused_reason(self) -> str | None:
        if getattr(self.layer, "use_cudnn", "auto") is True and gpu.visible():
            return "use_cudnn=True asks for cuDNN"
        return super().unfused_reason()


def switch_on() -> None:
    """Runs Keras's recurrent layers on the fused ops from here on, old ones too."""
    if explanation.stock_reason is unfused_reason:
        return  # It is on.
    explanation.stock_reason = unfused_reason
    for kind in (keras.layers.RNN, keras.layers.LSTM, keras.layers.GRU):
        kind.inner_loop = _switched_inner_loop(kind.inner_loop)
    for kind in (keras.layers.LSTMCell, keras.layers.GRUCell):
        kind.call = _switched_step(kind.call)
    watch_stored_traces()


def unfused_reason(layer: keras.layers.Layer) -> str | None:
    """Why a layer or cell of Keras is not fused under the switch, None if it is."""
    if traces_are_stored():
        return STORED
    in_xla = GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
    if in_xla and not fused_cell.ops_support_jit():
        return "compiled by XLA, for which this build has no kernels here"
    if isinstance(layer, keras.layers.RNN):
        return _Switched(layer).unfused_reason()
    return fused_cell.unfused_step_reason(layer)


def _switched_inner_loop(stock: Callable) -> Callable:
    @functools.wraps(stock)
    def inner_loop(self, sequences, initial_state, mask, training=False):
        # Our own layers come here for Keras's loop.
        if not isinstance(self, FusedRNN):
            reason = unfused_reason(self)
            if reason is None:
                fused = _Switched(self).inner_loop
                return fused(sequences, initial_state, mask, training)
            _tell(self, reason)
        return stock(self, sequences, initial_state, mask, training=training)

    return inner_loop


def _switched_step(stock: Callable) -> Callable:
    @functools.wraps(stock)
    def call(self, inputs, states, training=False):
        if not isinstance(self, FusedCell):
            reason = unfused_reason(self)
            if reason is None:
                fused_cell.notify(self, None)
                return fused_cell.step(self, inputs, states, training)
            _tell(self, reason)
        return stock(self, inputs, states, training=training)

    return call


def _tell(layer: keras.layers.Layer, reason: str) -> None:
    """Tells the observers, and warns once where a user might expect the fused op."""
    fused_cell.notify(layer, reason)
    cell = getattr(layer, "cell", layer)
    expected = any(map(fused_cell.kind_of, getattr(cell, "cells", [cell])))
    if expected and reason not in _said | {STORED}:
        _said.add(reason)
        warnings.warn(
            f"tf_ecornn: {type(layer).__name__} '{layer.name}' runs Keras's own code: "
            f"{reason}.",
            stacklevel=3,
        )
