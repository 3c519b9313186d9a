"""The fused ops: what tells one cell's from another's, and a call by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_ecornn import _library, plain_adjoint, plain_backward
from tf_ecornn.products import summed_products

# List inputs without a gradient, in the ops' order, and what counts them.
OPTIONAL = {
    "mask": "num_masks",
    "reset": "num_resets",
    "recurrent_dropout": "num_recurrent_dropouts",
}
# A list input with a gradient, after those.
KERNEL = {"kernel": "num_kernels"}

_ATTRIBUTES = ("activation", "recurrent_activation", "reverse", "zero_output_for_mask")

Tensors = dict[str, list[tf.Tensor]]


@dataclass(frozen=True)
class Cell:
    """What tells one recurrent op from another.

    Attributes:
        forward, backward: the raw ops.
        plain_backward: the backward one of ordinary ops, for second derivatives.
        plain_adjoint: the gradient of the backward one.
        states: names of the initial states, inputs 2, 3, ... of the op.
        biases: the list inputs of biases, and what counts them.
        gradients: names of the gradient op's outputs that are always there.
        saved: names of the saved outputs.
        saved_for_backward: those of them that the gradient op takes.
        saved_for_products: those of them that the products over all steps take.
        attributes: names of the attributes that both ops have.
        type_attributes: the forward op's type attributes that no input decides.
        weight_gradients: gives dU, and dW with x, from `saved_for_products` by name;
            a list of no or one x; the gradients of the gates; that of the candidate's
            recurrent sum, None but with reset_after; and the lists of the mask and the
            recurrent dropout.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    plain_backward: Callable[..., Any]
    plain_adjoint: Callable[..., Any]
    states: tuple[str, ...]
    biases: dict[str, str]
    gradients: tuple[str, ...]
    saved: tuple[str, ...]
    saved_for_backward: tuple[str, ...]
    saved_for_products: tuple[str, ...]
    attributes: tuple[str, ...]
    type_attributes: Callable[[tf.DType], dict[str, tf.DType]]
    weight_gradients: Callable[..., list[tf.Tensor]]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs that are always there."""
        return ("last_output", *(s.replace("initial", "final") for s in self.states))


def _lstm_types(dtype: tf.DType) -> dict[str, tf.DType]:
    # The cell state is kept in float32 for everything narrower.
    return {"state_type": tf.float64 if dtype == tf.float64 else tf.float32}


def _lstm_weight_gradients(saved, x, grad_gates, grad_candidate, mask, dropout):
    lefts = [saved["previous_h"], *x]
    return summed_products(
        lefts, grad_gates, parts=4, part_count=4, mask=mask, factors=dropout
    )


def _gru_weight_gradients(saved, x, grad_gates, grad_candidate, mask, dropout):
    def of_gates(left, first, count, factors=()):
        return summed_products(
            [*left, *x],
            grad_gates,
            parts=3,
            first_part=first,
            part_count=count,
            mask=mask,
            factors=factors,
        )

    h = saved["previous_h"]
    gates = of_gates([h], 0, 2, [keep[:, :2] for keep in dropout])
    if grad_candidate is None:
        rest = of_gates([saved["candidate"]], 2, 1)
    else:
        keep = [keep[:, 2:] for keep in dropout]
        rest = summed_products([h], grad_candidate, mask=mask, factors=keep)
        rest += of_gates([], 2, 1) if x else []
    return [tf.concat(both, axis=-1) for both in zip(gates, rest, strict=True)]


LSTM = Cell(
    forward=_library.ops.eco_rnn_lstm,
    backward=_library.ops.eco_rnn_lstm_grad,
    plain_backward=plain_backward.lstm_gradient,
    plain_adjoint=plain_adjoint.lstm_adjoint,
    states=("initial_h", "initial_c"),
    biases={"bias": "num_biases"},
    gradients=("grad_gates", "grad_initial_h", "grad_initial_c"),
    saved=("gates", "previous_h", "previous_c"),
    saved_for_backward=("gates", "previous_c"),
    saved_for_products=("previous_h",),
    attributes=_ATTRIBUTES,
    type_attributes=_lstm_types,
    weight_gradients=_lstm_weight_gradients,
)

GRU = Cell(
    forward=_library.ops.eco_rnn_gru,
    backward=_library.ops.eco_rnn_gru_grad,
    plain_backward=plain_backward.gru_gradient,
    plain_adjoint=plain_adjoint.gru_adjoint,
    states=("initial_h",),
    biases={"bias": "num_biases", "recurrent_bias": "num_recurrent_biases"},
    gradients=("grad_gates", "grad_candidate", "grad_initial_h"),
    saved=("gates", "previous_h", "candidate"),
    saved_for_backward=("gates", "previous_h", "candidate"),
    saved_for_products=("previous_h", "candidate"),
    attributes=(*_ATTRIBUTES, "reset_after"),
    type_attributes=lambda dtype: {},
    weight_gradients=_gru_weight_gradients,
)


def forward(
    cell: Cell,
    inputs: list[tf.Tensor],
    lists: Tensors,
    attributes: dict[str, Any],
    counts: dict[str, int],
) -> Any:
    """Calls the forward op.

    Args:
        cell: which one.
        inputs: x, recurrent_kernel and the initial states.
        lists: the list inputs by name.
        attributes: the cell's attributes by name.
        counts: num_outputs and num_saved.
    """
    x, recurrent_kernel, *states = inputs
    return cell.forward(
        x=x,
        recurrent_kernel=recurrent_kernel,
        **cell.type_attributes(x.dtype),
        **dict(zip(cell.states, states, strict=True)),
        **lists,
        **attributes,
        **counts,
    )


def split(
    tensors: Sequence[tf.Tensor], count: int, lengths: dict[str, int]
) -> tuple[list[tf.Tensor], Tensors]:
    """The first `count` tensors, and the rest as lists of the given lengths."""
    rest = iter(tensors[count:])
    lists = {name: [next(rest) for _ in range(n)] for name, n in lengths.items()}
    return list(tensors[:count]), lists
