"""Runs Keras cells on the fused ops: one step, or a whole sequence.

A class derived from `FusedCell` names an op and the stock cell it takes the place
of, and tells what the op needs of such a cell. That serves three users: the class's
own `call`, and, over whole sequences, the layers and `tf_ecornn.RNN`, stock cells
included.
"""

from __future__ import annotations

import contextlib
import numbers
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common.variables import AutocastScope

from tf_ecornn import _library, gpu, recurrence
from tf_ecornn.activations import fused_name
from tf_ecornn.arguments import DTYPES
from tf_ecornn.products import project

# A cell's methods that the op takes the place of. The last two are what the stock
# LSTM cell's `call` is made of, and where users change it.
_INNER_METHODS = ("_compute_carry_and_output", "_compute_carry_and_output_fused")
_STEP_METHODS = ("__call__", "call")

# Reasons already given: each is said once in a process.
_said: set[str] = set()

# Called at each trace and each eager call with the layer or cell, and why it is not
# fused, None if it is.
observers: list[Callable[[Any, str | None], None]] = []


class FusedCell:
    """Base of the cells whose step is one fused op.

    Attributes:
        _stock: the Keras cell that the class derives from and takes the place of.
        _op: the op.
    """

    _stock: type[keras.layers.Layer]
    _op: recurrence.Cell

    def __init__(self, units, *args, **kwargs):
        super().__init__(checked_units(units), *args, **kwargs)
        if self.fused:
            self.supports_jit = ops_support_jit()

    @staticmethod
    def _op_biases(cell: keras.layers.Layer) -> recurrence.Tensors:
        """The op's bias inputs by name, of a cell of the stock class."""
        raise NotImplementedError

    @staticmethod
    def _op_attributes(cell: keras.layers.Layer) -> dict[str, Any]:
        """The attributes that this op has beyond those of all, of such a cell."""
        return {}

    @property
    def fused(self) -> bool:
        """Whether this cell runs on the fused op."""
        return self.unfused_reason() is None

    def unfused_reason(self) -> str | None:
        """Why this cell runs the stock step, None if it runs fused."""
        return unfused_step_reason(self)

    def build(self, input_shape):
        with recurrent_initializer_in_float32(self):
            super().build(input_shape)

    def call(self, inputs, states, training=False):
        reason = self.unfused_reason()
        notify(self, reason)
        if reason is not None:
            say_once(self, f"runs Keras's own step: {reason}")
            return super().call(inputs, states, training=training)
        return step(self, inputs, states, training)

    def get_config(self):
        # Decides how many dropout masks are drawn; the stock cells leave it out.
        return {**super().get_config(), "implementation": self.implementation}


def checked_units(units: Any) -> int:
    """A Python integer where `units` is one of any kind; refuses what is none."""
    valid = isinstance(units, numbers.Integral) and not isinstance(units, bool)
    if not valid or units < 1:
        raise ValueError(
            "Received an invalid value for argument `units`, expected a positive "
            f"integer, got {units!r}"
        )
    return int(units)


def ops_support_jit() -> bool:
    """Whether XLA can compile the fused ops, here."""
    # It has no kernels of theirs for a GPU.
    return _library.has_xla() and not gpu.visible()


def kind_of(cell: Any) -> type[FusedCell] | None:
    """Which of this package's cells a cell is, or takes the place of it."""
    for kind in FusedCell.__subclasses__():
        if isinstance(cell, kind._stock):
            return kind
    return None


def unfused_reason(cell: Any) -> str | None:
    """Why a cell's whole sequences can not run on an op, None if they can."""
    kind = kind_of(cell)
    if kind is None:
        return f"{type(cell).__name__} is no cell of a fused op"
    return _own_method_reason(cell, kind, _STEP_METHODS) or unfused_step_reason(cell)


def unfused_step_reason(cell: keras.layers.Layer) -> str | None:
    """Why a step of a cell that has a kind can not run on its op, None if it can."""
    kind = kind_of(cell)
    reason = gpu.stock_reason() or _own_method_reason(cell, kind, _INNER_METHODS)
    if reason is not None:
        return reason
    for argument in ("activation", "recurrent_activation"):
        function = getattr(cell, argument)
        if fused_name(function) is None:
            called = getattr(function, "__name__", repr(function))
            return f"{argument}={called} is not one of the fused functions"
    if tf.as_dtype(cell.compute_dtype) not in DTYPES:
        return f"compute dtype {cell.compute_dtype} is not fused"
    return None


def _own_method_reason(cell, kind, names) -> str | None:
    """Finds methods that a user put in the place of Keras's or ours."""
    for name in names:
        known = [getattr(c, name, None) for c in (kind, kind._stock)]
        if name in vars(cell) or getattr(type(cell), name, None) not in known:
            return f"{type(cell).__name__} has its own `{name}`"
    return None


def say_once(layer: keras.layers.Layer, what: str) -> None:
    """Warns that a layer runs Keras's own code, once in a process for each text."""
    if what not in _said:
        _said.add(what)
        warnings.warn(
            f"tf_ecornn.{type(layer).__name__} (layer '{layer.name}') {what}.",
            stacklevel=3,
        )


def notify(layer: Any, reason: str | None) -> None:
    """Tells the observers whether a layer or cell runs fused."""
    for observer in observers:
        observer(layer, reason)


def step(cell: keras.layers.Layer, inputs: Any, states: Any, training: Any) -> Any:
    """One step of a built cell as a fused op: what the cell's `call` returns.

    Args:
        cell: one without an `unfused_step_reason`.
        inputs: (B, F).
        states: the cell's states, each (B, U), in a list, or the only one alone.
        training: whether dropout applies.

    Raises:
        ValueError: `inputs`, or the number of states, does not fit.
    """
    inputs = tf.convert_to_tensor(inputs)
    if inputs.shape.rank != 2:
        raise ValueError(
            "A cell's `inputs` must have shape (batch, features). "
            f"Received shape {inputs.shape}"
        )
    nested = isinstance(states, (list, tuple))
    # What is saved for a gradient is freed at once where no tape wants it;
    # user-written loops seldom say whether they train.
    output, new = run(
        cell,
        inputs[:, tf.newaxis, :],
        states if nested else [states],
        training=training,
        save_for_backward=True,
    )
    return output, (new if nested else new[0])


def run(
    cell: keras.layers.Layer,
    sequences: tf.Tensor,
    states: list[tf.Tensor],
    *,
    mask: tf.Tensor | None = None,
    training: bool = False,
    return_sequences: bool = False,
    reverse: bool = False,
    zero_output_for_mask: bool = False,
    save_for_backward: bool,
    gather_valid: bool = False,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Runs a built cell over (B, T, F) as one fused op, in the cell's own dtype.

    Args:
        cell: one without an `unfused_reason`.
        sequences: (B, T, F). What a masked step holds must be finite.
        states: the cell's initial states, each (B, U).
        mask: (B, T) boolean or None.
        training: whether dropout applies, with the masks that the cell holds or
            draws.
        return_sequences: whether the output is (B, T, U) or the last one, (B, U).
        reverse: from the last step to the first; the output in processing order.
        zero_output_for_mask: skipped steps put out zeros.
        save_for_backward: False keeps nothing per step.
        gather_valid: as for `recurrence.run`.

    Returns:
        The output and the list of final states, each (B, U).

    Raises:
        ValueError: the number of states, or a shape, does not fit.
    """
    kind = kind_of(cell)
    if len(states) != len(kind._op.states):
        raise ValueError(
            f"The states of {type(cell).__name__} are {len(kind._op.states)} "
            f"tensor(s) (batch, units). Received {len(states)}"
        )
    if sequences.shape.rank != 3:
        raise ValueError(
            "Sequences must have shape (batch, timesteps, features). "
            f"Received shape {sequences.shape}"
        )
    features = cell.kernel.shape[0]
    if sequences.shape[2] not in (None, features):
        raise ValueError(
            f"{type(cell).__name__} was built for inputs of {features} features. "
            f"Received inputs of shape {tuple(sequences.shape)}"
        )
    if sequences.dtype.is_complex:
        raise TypeError(
            f"Sequences must be real numbers. Received dtype {sequences.dtype.name}"
        )
    # Wrappers under another dtype policy hand over other dtypes.
    dtype = cell.compute_dtype
    sequences = tf.cast(sequences, dtype)
    states = [tf.cast(state, dtype) for state in states]
    # The scope around may be that of a layer with another dtype.
    with AutocastScope(None):
        kernel = tf.cast(cell.kernel, dtype)
        recurrent_kernel = tf.cast(cell.recurrent_kernel, dtype)
        biases = {
            name: [tf.cast(tensor, dtype) for tensor in tensors]
            for name, tensors in kind._op_biases(cell).items()
        }
    sequences, kernel = _dropped_inputs(cell, sequences, kernel, training)
    return recurrence.run(
        kind._op,
        sequences,
        kernel,
        recurrent_kernel,
        states,
        biases,
        {
            "mask": [] if mask is None else [mask],
            "reset": [],
            "recurrent_dropout": _recurrent_dropout(cell, states[0], training),
        },
        {
            "activation": fused_name(cell.activation),
            "recurrent_activation": fused_name(cell.recurrent_activation),
            "reverse": reverse,
            "zero_output_for_mask": zero_output_for_mask,
            **kind._op_attributes(cell),
        },
        return_sequences=return_sequences,
        save_for_backward=save_for_backward,
        gather_valid=gather_valid,
    )


def _dropped_inputs(cell, sequences, kernel, training):
    """The inputs and their kernel, with the input dropout of the stock cell.

    With a mask for each gate that is the product, (B, T, GU), and None.
    """
    if not (training and 0.0 < cell.dropout < 1.0):
        return sequences, kernel
    keep = cell.get_dropout_mask(sequences[:, 0, :])
    if not isinstance(keep, (list, tuple)):
        return _dropped(sequences, keep), kernel
    parts = tf.split(kernel, len(keep), axis=1)
    products = [
        project(_dropped(sequences, k), part)
        for k, part in zip(keep, parts, strict=True)
    ]
    return tf.concat(products, axis=-1), None


def _dropped(sequences: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    return sequences * tf.cast(keep, sequences.dtype)[:, tf.newaxis, :]


def _recurrent_dropout(cell, h: tf.Tensor, training) -> list[tf.Tensor]:
    """The cell's masks, one for each gate, as [(B, G, U)]; or nothing."""
    if not (training and 0.0 < cell.recurrent_dropout < 1.0):
        return []
    return [tf.cast(tf.stack(cell.get_recurrent_dropout_mask(h), axis=1), h.dtype)]


@contextlib.contextmanager
def recurrent_initializer_in_float32(cell: keras.layers.Layer) -> Iterator[None]:
    """While a bfloat16 cell is built: the orthogonal matrices have no such form."""
    if kind_of(cell) is None or cell.variable_dtype != "bfloat16":
        yield
        return
    original = cell.recurrent_initializer

    def drawn_in_float32(shape, dtype=None):
        return keras.ops.cast(original(shape, dtype="float32"), dtype)

    cell.recurrent_initializer = drawn_in_float32
    try:
        yield
    finally:
        cell.recurrent_initializer = original
