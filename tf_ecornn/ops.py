"""Functional recurrent layers for `tf.function` graphs and eager code.

Only the recurrence is sequential. The product of the inputs with the kernel is one
over all time steps, and so are the products of the gradient; the fused op does the
rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_ecornn import recurrence
from tf_ecornn.arguments import (
    check_activation,
    check_weights,
    to_bool,
    to_dropout,
    to_flags,
    to_states,
    to_tensor,
    with_shape,
    with_shape_at_run_time,
)
from tf_ecornn.products import valid_alone
from tf_ecornn.ragged import Rows


class LSTMOutput(NamedTuple):
    """What `tf_ecornn.lstm` returns.

    Attributes:
        output: (B, T, U) with `return_sequences`, else the last output (B, U).
        h: (B, U), the hidden state after the last step.
        c: (B, U), the cell state after the last step.
    """

    output: tf.Tensor
    h: tf.Tensor
    c: tf.Tensor


class GRUOutput(NamedTuple):
    """What `tf_ecornn.gru` returns.

    Attributes:
        output: (B, T, U) with `return_sequences`, else the last output (B, U).
        h: (B, U), the hidden state after the last step.
    """

    output: tf.Tensor
    h: tf.Tensor


def lstm(
    x: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any = None,
    *,
    initial_state: Sequence[Any] | None = None,
    mask: Any = None,
    reset: Any = None,
    recurrent_dropout_mask: Any = None,
    activation: str = "tanh",
    recurrent_activation: str = "sigmoid",
    return_sequences: bool = False,
    go_backwards: bool = False,
    zero_output_for_mask: bool = False,
    save_for_backward: bool = True,
    name: str | None = None,
) -> LSTMOutput:
    """Runs an LSTM over a batch of sequences.

    The cell is that of `keras.layers.LSTM` (Hochreiter and Schmidhuber, 1997, with
    the forget gate of Gers et al., 2000), gates in the order i, f, c, o:

        i, f, o = recurrent_activation(x W + h U + b)
        c' = f * c + i * activation(x W_c + h U_c + b_c)
        h' = o * activation(c')

    B is the batch, T the steps, F the features, U the units. B and T may be unknown
    when a `tf.function` is traced, and may be 0.

    Args:
        x: (B, T, F), float32, float64, float16 or bfloat16. All other float
            arguments are converted to its dtype. The two narrow types store;
            sums, gates and the cell state are float32 inside. Or a tf.RaggedTensor
            (B, (T), F) with ragged rank 1: rows of different lengths.
        kernel: (F, 4U).
        recurrent_kernel: (U, 4U).
        bias: (4U) or None.
        initial_state: a pair (h, c), each (B, U); None means zeros.
        mask: (B, T) boolean, any pattern, or None. Where it is False the step is
            skipped: the state is carried over and the output repeats the one
            before (zeros before the first valid step). What `x` holds there, NaN
            included, reaches no result and no gradient. None with a ragged `x`.
        reset: (B, T) boolean or None. Where it is True the state is set to zero
            before the step, masked or not, and no gradient crosses: several short
            series packed into one row, or episodes in reinforcement learning. Ragged
            (B, (T)) with a ragged `x`.
        recurrent_dropout_mask: (B, 4, U) or None; multiplies h, gate by gate,
            where it meets the recurrent kernel, the same at every step (Gal and
            Ghahramani, "A Theoretically Grounded Application of Dropout in
            Recurrent Neural Networks", 2016). Draw it yourself, scaled by
            1 / (1 - rate). It gets no gradient.
        activation: for the candidate and the output, by its Keras name: one of
            `tf_ecornn.ACTIVATIONS`.
        recurrent_activation: for the gates, likewise.
        return_sequences: whether `output` is the whole sequence, ragged as `x` is.
        go_backwards: processes the steps from the last to the first; `output` stays
            in processing order, as in Keras.
        zero_output_for_mask: skipped steps put out zeros in place of a repetition.
        save_for_backward: False keeps nothing for a gradient, for inference. A
            gradient asked for all the same runs the forward pass once more.
        name: name of the scope in a graph.

    Returns:
        An `LSTMOutput` (output, h, c), in x's dtype.

    Raises:
        TypeError: a dtype or an argument's type is not supported.
        ValueError: shapes known in Python do not fit, or an activation is unknown.
        tf.errors.InvalidArgumentError: shapes known only at run time do not fit.

    Example:

    >>> x = tf.random.normal((8, 20, 3))
    >>> w, u = tf.random.normal((3, 4 * 5)), tf.random.normal((5, 4 * 5))
    >>> output, h, c = tf_ecornn.lstm(x, w, u, return_sequences=True)
    >>> output.shape, h.shape
    (TensorShape([8, 20, 5]), TensorShape([8, 5]))
    """
    with tf.name_scope(name or "lstm"):
        rows, x, mask, reset = _padded(x, mask, reset)
        x, kernel, recurrent_kernel = _weights(x, kernel, recurrent_kernel, 4)
        units = recurrent_kernel.shape[0]
        output, (h, c) = _run(
            recurrence.LSTM,
            x,
            kernel,
            recurrent_kernel,
            to_states(initial_state, ("h", "c"), x, units),
            {"bias": _bias("bias", bias, x, _times(4, units))},
            rows=rows,
            mask=mask,
            reset=reset,
            recurrent_dropout=to_dropout(recurrent_dropout_mask, 4, x, units),
            attributes={
                "activation": activation,
                "recurrent_activation": recurrent_activation,
                "reverse": to_bool("go_backwards", go_backwards),
                "zero_output_for_mask": to_bool(
                    "zero_output_for_mask", zero_output_for_mask
                ),
            },
            return_sequences=to_bool("return_sequences", return_sequences),
            save_for_backward=to_bool("save_for_backward", save_for_backward),
        )
        return LSTMOutput(output, h, c)


def gru(
    x: Any,
    kernel: Any,
    recurrent_kernel: Any,
    bias: Any = None,
    *,
    initial_state: Any = None,
    mask: Any = None,
    reset: Any = None,
    recurrent_dropout_mask: Any = None,
    activation: str = "tanh",
    recurrent_activation: str = "sigmoid",
    reset_after: bool = True,
    return_sequences: bool = False,
    go_backwards: bool = False,
    zero_output_for_mask: bool = False,
    save_for_backward: bool = True,
    name: str | None = None,
) -> GRUOutput:
    """Runs a GRU over a batch of sequences.

    The cell is that of `keras.layers.GRU` (Cho et al., "Learning Phrase
    Representations using RNN Encoder-Decoder for Statistical Machine Translation",
    2014), gates in the order z, r, h:

        z, r = recurrent_activation(x W + b + h U + b')
        reset_after:  n = activation(x W_h + b_h + r * (h U_h + b'_h))
        else:         n = activation(x W_h + b_h + (r * h) U_h)
        h' = z * h + (1 - z) * n

    B is the batch, T the steps, F the features, U the units. B and T may be unknown
    when a `tf.function` is traced, and may be 0.

    Args:
        x: (B, T, F), float32, float64, float16 or bfloat16. All other float
            arguments are converted to its dtype. The two narrow types store; sums
            and gates are float32 inside. Or a tf.RaggedTensor (B, (T), F).
        kernel: (F, 3U).
        recurrent_kernel: (U, 3U).
        bias: None; or (2, 3U) with `reset_after`, row 0 for the input side and row
            1 for the recurrent side; or else (3U).
        initial_state: h, (B, U), alone or in a list; None means zeros.
        mask, reset: (B, T) boolean or None; as for `tf_ecornn.lstm`.
        recurrent_dropout_mask: (B, 3, U) or None; as for `tf_ecornn.lstm`. Without
            `reset_after` it multiplies h before r does.
        activation: for the candidate, by its Keras name: one of
            `tf_ecornn.ACTIVATIONS`.
        recurrent_activation: for the gates, likewise.
        reset_after: which of the two forms above.
        return_sequences, go_backwards, zero_output_for_mask, save_for_backward,
            name: as for `tf_ecornn.lstm`.

    Returns:
        A `GRUOutput` (output, h), in x's dtype.

    Raises:
        TypeError: a dtype or an argument's type is not supported.
        ValueError: shapes known in Python do not fit, or an activation is unknown.
        tf.errors.InvalidArgumentError: shapes known only at run time do not fit.

    Example:

    >>> x = tf.random.normal((8, 20, 3))
    >>> w, u = tf.random.normal((3, 3 * 5)), tf.random.normal((5, 3 * 5))
    >>> output, h = tf_ecornn.gru(x, w, u, return_sequences=True)
    >>> output.shape, h.shape
    (TensorShape([8, 20, 5]), TensorShape([8, 5]))
    """
    with tf.name_scope(name or "gru"):
        reset_after = to_bool("reset_after", reset_after)
        rows, x, mask, reset = _padded(x, mask, reset)
        x, kernel, recurrent_kernel = _weights(x, kernel, recurrent_kernel, 3)
        units = recurrent_kernel.shape[0]
        biases = {"bias": [], "recurrent_bias": []}
        if bias is not None and reset_after:
            (both,) = _bias("bias", bias, x, 2, _times(3, units))
            biases = {"bias": [both[0]], "recurrent_bias": [both[1]]}
        elif bias is not None:
            biases["bias"] = _bias("bias", bias, x, _times(3, units))
        output, (h,) = _run(
            recurrence.GRU,
            x,
            kernel,
            recurrent_kernel,
            to_states(initial_state, ("h",), x, units),
            biases,
            rows=rows,
            mask=mask,
            reset=reset,
            recurrent_dropout=to_dropout(recurrent_dropout_mask, 3, x, units),
            attributes={
                "activation": activation,
                "recurrent_activation": recurrent_activation,
                "reset_after": reset_after,
                "reverse": to_bool("go_backwards", go_backwards),
                "zero_output_for_mask": to_bool(
                    "zero_output_for_mask", zero_output_for_mask
                ),
            },
            return_sequences=to_bool("return_sequences", return_sequences),
            save_for_backward=to_bool("save_for_backward", save_for_backward),
        )
        return GRUOutput(output, h)


def clear_masked(x: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """x with zeros at masked steps: 0 * NaN would reach the weights' gradients."""
    if mask is None:
        return x
    # Neither may be stretched to fit the other.
    if not (x.shape[:2].is_fully_defined() and mask.shape == x.shape[:2]):
        mask = with_shape_at_run_time("mask", mask, lambda: tf.shape(x)[:2])
    return valid_alone(x, mask)


def _padded(x, mask, reset):
    """A ragged batch's `Rows`, and these arguments for it as dense tensors.

    Without one, None and the arguments as they are.
    """
    if isinstance(x, tf.RaggedTensor):
        if mask is not None:
            raise ValueError(
                "`mask` must be None with a ragged `x`, which holds nothing but valid "
                f"steps. Received: mask={mask}"
            )
        rows = Rows.of(x)
        if reset is not None:
            reset = rows.pad_flags("reset", reset)
        return rows, rows.pad(x.values), rows.mask, reset
    for name, value in {"mask": mask, "reset": reset}.items():
        if isinstance(value, tf.RaggedTensor):
            raise ValueError(
                f"`{name}` must be dense as `x` is. Received: {name}={value}"
            )
    return None, x, mask, reset


def _weights(x, kernel, recurrent_kernel, gates):
    x = to_tensor("x", x)
    kernel = to_tensor("kernel", kernel, x.dtype)
    recurrent_kernel = to_tensor("recurrent_kernel", recurrent_kernel, x.dtype)
    kernel = check_weights(x, kernel, recurrent_kernel, gates)
    return x, kernel, recurrent_kernel


def _bias(name, bias, x, *shape):
    if bias is None:
        return []
    return [with_shape(name, to_tensor(name, bias, x.dtype), shape)]


def _times(gates: int, units: int | None) -> int | None:
    return None if units is None else gates * units


def _run(
    cell,
    x,
    kernel,
    recurrent_kernel,
    states,
    biases,
    *,
    rows,
    mask,
    reset,
    recurrent_dropout,
    attributes,
    return_sequences,
    save_for_backward,
):
    for name in ("activation", "recurrent_activation"):
        check_activation(name, attributes[name])
    mask = to_flags("mask", mask, x)
    reset = to_flags("reset", reset, x)
    output, states = recurrence.run(
        cell,
        # A ragged batch is padded with zeros.
        clear_masked(x, mask) if rows is None else x,
        kernel,
        recurrent_kernel,
        states,
        biases,
        {
            "mask": [] if mask is None else [mask],
            "reset": [] if reset is None else [reset],
            "recurrent_dropout": []
            if recurrent_dropout is None
            else [recurrent_dropout],
        },
        attributes,
        return_sequences=return_sequences,
        save_for_backward=save_for_backward,
        gather_valid=rows is not None,
    )
    if rows is not None and return_sequences:
        output = rows.unpad(output, attributes["reverse"])
    return output, states
