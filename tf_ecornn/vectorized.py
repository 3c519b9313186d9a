"""The fused ops under `tf.vectorized_map`: the mapped axis joins the batch.

Without this, TensorFlow runs an op that it knows nothing of once for each element,
in a loop. It still does where the elements have different weights.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_ecornn import recurrence
from tf_ecornn.products import valid_alone

try:
    # Has no public name. The loop serves where it has moved.
    from tensorflow.python.ops.parallel_for import pfor
except ImportError:
    pfor = None

# The inputs that all rows of a batch share.
_WEIGHTS = ("kernel", "recurrent_kernel", "bias", "recurrent_bias")

_FUNCTIONS = {
    "EcoRNN>Lstm": recurrence.LSTM.forward,
    "EcoRNN>LstmGrad": recurrence.LSTM.backward,
    "EcoRNN>Gru": recurrence.GRU.forward,
    "EcoRNN>GruGrad": recurrence.GRU.backward,
}


def _grad_bias(gradient) -> tf.Tensor:
    return gradient.grad_gates


def _grad_recurrent_bias(gradient) -> tf.Tensor:
    z_and_r = tf.split(gradient.grad_gates, 3, axis=-1)[:2]
    return tf.concat([*z_and_r, gradient.grad_candidate], axis=-1)


# The outputs that are sums over the batch, and of what, (B, T, GU): the op's own
# sums would run over all elements of the map.
_SUMS = {
    "grad_bias": ("num_biases", _grad_bias),
    "grad_recurrent_bias": ("num_recurrent_biases", _grad_recurrent_bias),
}


def _convert(function: Callable[..., Any], pfor_input: Any) -> list[Any]:
    """Builds the op for all elements of a map, from their inputs stacked.

    Args:
        function: the raw op.
        pfor_input: TensorFlow's description of the op inside the map. A stacked
            input has the elements as its first axis, (L, B, ...); the others are
            the same for all.

    Returns:
        The op's outputs, stacked, in TensorFlow's wrapping.

    Raises:
        ConversionNotImplementedError: TensorFlow's, for stacked weights; it then
            makes a loop over the elements.
    """
    op = pfor_input.op
    names = _names(op)
    kernel = names.index("kernel") if "kernel" in names else None
    if kernel is not None and not pfor_input.input(kernel).is_stacked:
        kernel = None
    weights = {
        i: pfor_input.unstacked_input(i)
        for i, name in enumerate(names)
        if name in _WEIGHTS and i != kernel
    }
    sequences = [i for i, name in enumerate(names) if name not in _WEIGHTS]
    pfor_input.stack_inputs(sequences)
    rows = {i: pfor_input.stacked_input(i) for i in sequences}
    if kernel is not None:
        # The op takes the product x W in x's place.
        rows[0] = tf.matmul(rows[0], pfor_input.stacked_input(kernel)[:, tf.newaxis])
    # The first input, x or gates, has the batch.
    elements = pfor_input.pfor.loop_len_vector[0]
    batch = tf.shape(rows[0])[1]
    folded = {i: _fold(tensor) for i, tensor in rows.items()}

    attributes = _attributes(op)
    sums = {name: attributes.get(count) for name, (count, _) in _SUMS.items()}
    attributes |= {count: 0 for count, _ in _SUMS.values() if count in attributes}
    result = function(**_arguments(op, names, weights | folded), **attributes)

    outputs = []
    for arg in op.op_def.output_arg:
        value = getattr(result, arg.name)
        if sums.get(arg.name):
            summed = _unfold(_SUMS[arg.name][1](result), elements, batch)
            outputs.append(pfor.wrap(_sum_by_element(summed), True))
        elif arg.name == "grad_candidate" and not attributes["reset_after"]:
            # Empty, whatever the batch.
            outputs.append(pfor.wrap(value, False))
        else:
            values = value if arg.number_attr else [value]
            outputs += [pfor.wrap(_unfold(v, elements, batch), True) for v in values]
    return outputs


def _convert_products(pfor_input: Any) -> list[Any]:
    """`_convert` for the op that sums products over rows and steps."""
    op = pfor_input.op
    names = _names(op)
    pfor_input.stack_inputs()
    stacked = {i: pfor_input.stacked_input(i) for i in range(len(names))}
    arguments = _arguments(op, names, stacked)
    attributes = _attributes(op)
    parts = tf.split(arguments["right"], attributes["parts"], axis=-1)
    parts = parts[attributes["first_part"] :][: attributes["part_count"]]
    lefts = arguments["lefts"]
    for mask in arguments["mask"]:
        parts = [valid_alone(part, mask) for part in parts]
        lefts = [valid_alone(left, mask) for left in lefts]
    outputs = []
    for i, left in enumerate(lefts):
        by_part = [left] * len(parts)
        if i == 0 and arguments["factors"]:
            keeps = tf.unstack(arguments["factors"][0], len(parts), axis=2)
            by_part = [left * keep[:, :, tf.newaxis] for keep in keeps]
        products = [
            _sum_of_products(left, part)
            for left, part in zip(by_part, parts, strict=True)
        ]
        outputs.append(pfor.wrap(tf.concat(products, axis=-1), True))
    return outputs


def _sum_of_products(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """(L, B, T, M) and (L, B, T, N) give (L, M, N); narrow types sum in float32."""
    return tf.cast(tf.einsum("lbtm,lbtn->lmn", _wide(a), _wide(b)), a.dtype)


def _wide(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float64 if x.dtype == tf.float64 else tf.float32)


def _names(op: tf.Operation) -> list[str]:
    """The argument of each of the op's inputs, a list's once for each tensor."""
    return [
        arg.name
        for arg in op.op_def.input_arg
        for _ in range(op.get_attr(arg.number_attr) if arg.number_attr else 1)
    ]


def _arguments(op, names, tensors) -> dict[str, Any]:
    """The raw op's keyword arguments from its inputs by position."""
    arguments: dict[str, Any] = {}
    for arg in op.op_def.input_arg:
        found = [tensor for i, tensor in tensors.items() if names[i] == arg.name]
        arguments[arg.name] = found if arg.number_attr else found[0]
    return arguments


def _attributes(op: tf.Operation) -> dict[str, Any]:
    """The attributes that the op's inputs do not tell."""
    told = {arg.number_attr for arg in op.op_def.input_arg}
    told |= {arg.type_attr for arg in op.op_def.input_arg}
    values = {a.name: op.get_attr(a.name) for a in op.op_def.attr if a.name not in told}
    return {
        name: tf.compat.as_str(value) if isinstance(value, bytes) else value
        for name, value in values.items()
    }


def _fold(x: tf.Tensor) -> tf.Tensor:
    """(L, B, ...) as (L B, ...). Sizes are named: -1 fails where another is 0."""
    shape = tf.shape(x)
    folded = tf.reshape(x, tf.concat([[shape[0] * shape[1]], shape[2:]], axis=0))
    known = None not in tuple(x.shape[:2])
    rows = x.shape[0] * x.shape[1] if known else None
    return tf.ensure_shape(folded, [rows, *x.shape[2:]])


def _unfold(x: tf.Tensor, elements: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    """(L B, ...) as (L, B, ...)."""
    return tf.reshape(x, tf.concat([[elements, batch], tf.shape(x)[1:]], axis=0))


def _sum_by_element(x: tf.Tensor) -> tf.Tensor:
    """(L, B, T, N) summed to (L, N), in float32 at least, as the op does."""
    return tf.cast(tf.reduce_sum(_wide(x), axis=(1, 2)), x.dtype)


def _register(op_type: str, converter: Callable[[Any], list[Any]]) -> None:
    # An AssertionError is the answer to a second one, of a module loaded again.
    with contextlib.suppress(AssertionError):
        pfor.RegisterPFor(op_type)(converter)


if pfor is not None:
    for _op_type, _function in _FUNCTIONS.items():
        _register(_op_type, functools.partial(_convert, _function))
    _register("EcoRNN>SummedProducts", _convert_products)
