"""Checks and conversions of the functional layers' arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

ACTIVATIONS = (
    "tanh",
    "sigmoid",
    "hard_sigmoid",
    "hard_tanh",
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "selu",
    "softsign",
    "softplus",
    "exponential",
    "linear",
    "silu",
    "gelu",
)

DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16)


def to_tensor(name: str, value: Any, dtype: tf.DType | None = None) -> tf.Tensor:
    """`value` as a tensor, cast to `dtype`; without one it must have one of ours."""
    tensor = _converted(name, value)
    if dtype is None:
        if tensor.dtype not in DTYPES:
            expected = ", ".join(d.name for d in DTYPES)
            raise TypeError(
                f"`{name}` must have one of the dtypes {expected}. "
                f"Received dtype {tensor.dtype.name}"
            )
    elif tensor.dtype != dtype:
        if not (tensor.dtype.is_floating or tensor.dtype.is_integer):
            raise TypeError(
                f"`{name}` must be a tensor of numbers. "
                f"Received dtype {tensor.dtype.name}"
            )
        tensor = tf.cast(tensor, dtype)
    return tensor


def _converted(name: str, value: Any) -> tf.Tensor:
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"`{name}` must be convertible to a tensor. Received: {name}={value!r} "
            f"({error})"
        ) from error


def to_flags(name: str, value: Any, x: tf.Tensor) -> tf.Tensor | None:
    """A boolean tensor (B, T), or None."""
    if value is None:
        return None
    tensor = _converted(name, value)
    if not (
        tensor.dtype.is_bool or tensor.dtype.is_integer or tensor.dtype.is_floating
    ):
        raise TypeError(
            f"`{name}` must be a tensor of booleans. Received dtype {tensor.dtype.name}"
        )
    return with_shape(name, tf.cast(tensor, tf.bool), x.shape[:2])


def to_bool(name: str, value: Any) -> bool:
    """A Python boolean where `value` is one, or is 0 or 1, of any kind."""
    try:
        found = bool(value)
        # What is neither a boolean nor a number equals neither.
        if value == found:
            return found
    except (TypeError, ValueError):
        pass
    raise TypeError(f"`{name}` must be True or False. Received: {name}={value!r}")


def to_states(
    initial_state: Any, names: Sequence[str], x: tf.Tensor, units: int | None
) -> list[tf.Tensor] | None:
    """The initial states, each (B, U) and of x's dtype, or None."""
    if initial_state is None:
        return None
    if not isinstance(initial_state, (list, tuple)):
        initial_state = [initial_state]
    if len(initial_state) != len(names):
        raise ValueError(
            f"`initial_state` must be {len(names)} tensor(s) (batch, units): "
            f"{', '.join(names)}. Received {len(initial_state)}"
        )
    states = []
    for i, state in enumerate(initial_state):
        label = f"initial_state[{i}]"
        tensor = to_tensor(label, state, x.dtype)
        states.append(with_shape(label, tensor, (x.shape[0], units)))
    return states


def to_dropout(
    value: Any, gates: int, x: tf.Tensor, units: int | None
) -> tf.Tensor | None:
    """A recurrent dropout mask (B, G, U) of x's dtype, or None."""
    if value is None:
        return None
    name = "recurrent_dropout_mask"
    return with_shape(name, to_tensor(name, value, x.dtype), (x.shape[0], gates, units))


def with_shape(name: str, tensor: tf.Tensor, shape: Any) -> tf.Tensor:
    """Refuses a static shape that cannot be `shape`; the op checks the rest."""
    expected = tf.TensorShape(shape)
    if not tensor.shape.is_compatible_with(expected):
        raise ValueError(
            f"`{name}` must have shape {_format(expected)}. "
            f"Received shape {_format(tensor.shape)}"
        )
    return tensor


def with_shape_at_run_time(
    name: str, tensor: tf.Tensor, shape: Callable[[], tf.Tensor]
) -> tf.Tensor:
    """The tensor, refused when it runs with another shape than `shape()`.

    For what ordinary ops use before the fused op can check it, where Python does not
    know all the sizes.
    """
    check = tf.debugging.assert_equal(
        tf.shape(tensor), shape(), f"`{name}` has shape x and must have shape y"
    )
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(tensor)


def check_weights(
    x: tf.Tensor, kernel: tf.Tensor, recurrent_kernel: tf.Tensor, gates: int
) -> tf.Tensor:
    """Checks (B, T, F), (F, GU) and (U, GU) against each other; returns the kernel."""
    with_shape("x", x, (None, None, None))
    with_shape("recurrent_kernel", recurrent_kernel, (None, None))
    features = None if x.shape.rank is None else x.shape[2]
    units, width = (
        (None, None)
        if recurrent_kernel.shape.rank is None
        else tuple(recurrent_kernel.shape)
    )
    if units is not None and (
        units < 1 or (width is not None and width != gates * units)
    ):
        raise ValueError(
            f"`recurrent_kernel` must have shape (units, {gates} * units) with units "
            f"at least 1. Received shape {_format(recurrent_kernel.shape)}"
        )
    with_shape("kernel", kernel, (features, width if units is None else gates * units))
    if features is not None and units is not None and kernel.shape.is_fully_defined():
        return kernel
    return with_shape_at_run_time(
        "kernel",
        kernel,
        lambda: tf.stack([tf.shape(x)[2], gates * tf.shape(recurrent_kernel)[0]]),
    )


def check_activation(name: str, value: Any) -> None:
    if value not in ACTIVATIONS:
        raise ValueError(
            f"`{name}` must be one of {', '.join(ACTIVATIONS)}. "
            f"Received: {name}={value!r}"
        )


def _format(shape: tf.TensorShape) -> str:
    return "of unknown rank" if shape.rank is None else str(tuple(shape))
