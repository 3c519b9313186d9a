"""The fused ops: what tells one cell's from another's, and a call by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_ecornn import _library, plain_adjoint, plain_backward
from tf_ecornn.products import summed_product, summed_product_by_gate

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
        kernel_gradient: gives dU from `saved_for_products` by name; the gradients of
            the gates; that of the candidate's recurrent sum, None but with
            reset_after; and the list of the recurrent dropout.
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
    kernel_gradient: Callable[..., tf.Tensor]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs that are always there."""
        return ("last_output", *(s.replace("initial", "final") for s in self.states))


def _lstm_types(dtype: tf.DType) -> dict[str, tf.DType]:
    # The cell state is kept in float32 for everything narrower.
    return {"state_type": tf.float64 if dtype == tf.float64 else tf.float32}


def _lstm_kernel_gradient(saved, grad_gates, grad_candidate, dropout):
    return summed_product_by_gate(saved["previous_h"], grad_gates, dropout)


def _gru_kernel_gradient(saved, grad_gates, grad_candidate, dropout):
    h = saved["previous_h"]
    units = h.shape[2] or tf.shape(h)[2]
    gates = summed_product_by_gate(
        h, grad_gates[..., : 2 * units], [keep[:, :2] for keep in dropout]
    )
    if grad_candidate is None:
        rest = summed_product(saved["candidate"], grad_gates[..., 2 * units :])
    else:
        rest = summed_product_by_gate(
            h, grad_candidate, [keep[:, 2:] for keep in dropout]
        )
    return tf.concat([gates, rest], axis=-1)


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
    kernel_gradient=_lstm_kernel_gradient,
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
    kernel_gradient=_gru_kernel_gradient,
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
