"""The fused ops with their gradients, one path for graphs and one for eager mode.

    forward    h, saved = EcoRNN>Cell(x, U, states, biases, W, ...)
    backward   d_gates, d_states, d_biases = EcoRNN>CellGrad(saved, ...)
               dU = h_prevᵀ d_gates, dW = xᵀ d_gates, dx = d_gates Wᵀ over all
               steps, by TensorFlow

W is left out where the product x W is worth one of TensorFlow's over all steps: the
op then takes that, (B, T, GU), in x's place. Of few features, it is not: inside the
op it needs no memory and no pass of its own.

In graphs the op's registered gradient does this, so that reloaded graphs have it
too. It receives zeros, filled in, for every output that the loss does not use; in
eager mode that would be done for the saved tensors as well, so there the op hides
behind `tf.custom_gradient`. Both call one function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_ecornn import _library
from tf_ecornn.products import (
    project,
    project_back,
    summed_product,
    summed_product_by_gate,
)

# List inputs without a gradient, in the ops' order, and what counts them.
_OPTIONAL = {
    "mask": "num_masks",
    "reset": "num_resets",
    "recurrent_dropout": "num_recurrent_dropouts",
}
# A list input with a gradient, after those.
_KERNEL = {"kernel": "num_kernels"}

# The product of so many features, or of half as many as there are units, joins the
# recurrent one inside the op. On AVX-512, two cores, U=128 F=32 B=64 T=100, the op took
# 0.7 ms longer for it; by itself, as one `tf.matmul`, it took 2 ms.
_JOINED_FEATURES = 64

_ATTRIBUTES = ("activation", "recurrent_activation", "reverse", "zero_output_for_mask")

Tensors = dict[str, list[tf.Tensor]]


@dataclass(frozen=True)
class Cell:
    """What tells one recurrent op from another.

    Attributes:
        forward, backward: the raw ops.
        states: names of the initial states, inputs 2, 3, ... of the op.
        biases: the list inputs of biases, and what counts them.
        saved: names of the saved outputs.
        saved_for_backward: those of them that the gradient op takes.
        attributes: names of the attributes that both ops have.
        type_attributes: the forward op's type attributes that no input decides.
        kernel_gradient: gives dU from the saved tensors by name, the gradient op's
            result, the list of the recurrent dropout, and the attributes.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    states: tuple[str, ...]
    biases: dict[str, str]
    saved: tuple[str, ...]
    saved_for_backward: tuple[str, ...]
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


def _lstm_kernel_gradient(saved, grad, dropout, attributes):
    return summed_product_by_gate(saved["previous_h"], grad.grad_gates, dropout)


def _gru_kernel_gradient(saved, grad, dropout, attributes):
    z, r, candidate = tf.split(grad.grad_gates, 3, axis=-1)
    h = saved["previous_h"]
    gates = summed_product_by_gate(
        h, tf.concat([z, r], axis=-1), [keep[:, :2] for keep in dropout]
    )
    if attributes["reset_after"]:
        rest = summed_product_by_gate(
            h, grad.grad_candidate, [keep[:, 2:] for keep in dropout]
        )
    else:
        rest = summed_product(saved["candidate"], candidate)
    return tf.concat([gates, rest], axis=-1)


LSTM = Cell(
    forward=_library.ops.eco_rnn_lstm,
    backward=_library.ops.eco_rnn_lstm_grad,
    states=("initial_h", "initial_c"),
    biases={"bias": "num_biases"},
    saved=("gates", "previous_h", "previous_c"),
    saved_for_backward=("gates", "previous_c"),
    attributes=_ATTRIBUTES,
    type_attributes=_lstm_types,
    kernel_gradient=_lstm_kernel_gradient,
)

GRU = Cell(
    forward=_library.ops.eco_rnn_gru,
    backward=_library.ops.eco_rnn_gru_grad,
    states=("initial_h",),
    biases={"bias": "num_biases", "recurrent_bias": "num_recurrent_biases"},
    saved=("gates", "previous_h", "candidate"),
    saved_for_backward=("gates", "previous_h", "candidate"),
    attributes=(*_ATTRIBUTES, "reset_after"),
    type_attributes=lambda dtype: {},
    kernel_gradient=_gru_kernel_gradient,
)


def run(
    cell: Cell,
    x: tf.Tensor,
    kernel: tf.Tensor | None,
    recurrent_kernel: tf.Tensor,
    states: list[tf.Tensor] | None,
    biases: Tensors,
    optional: Tensors,
    attributes: dict[str, Any],
    *,
    return_sequences: bool,
    save_for_backward: bool,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Runs a cell over a batch of sequences.

    Args:
        cell: which op.
        x: (B, T, F), or, projected already, (B, T, GU) without bias.
        kernel: (F, GU), or None with a projected x.
        recurrent_kernel: (U, GU).
        states: the initial states, each (B, U); None means zeros.
        biases, optional: the list inputs by name, each of no or one tensor.
        attributes: the cell's attributes by name.
        return_sequences: whether the output is (B, T, U) or the last one, (B, U).
        save_for_backward: False keeps nothing per step.

    Returns:
        The output and the list of final states, each (B, U).
    """
    if kernel is not None and not _joins(kernel, recurrent_kernel):
        x, kernel = project(x, kernel), None
    if states is None:
        states = [_zero_state(x, recurrent_kernel)] * len(cell.states)
    inputs = [x, recurrent_kernel, *states]
    # In the op's order.
    lists = biases | optional | {"kernel": [] if kernel is None else [kernel]}
    counts = {
        "num_outputs": int(return_sequences),
        "num_saved": int(save_for_backward),
    }
    run_here = _run_eagerly if tf.executing_eagerly() else _run_in_graph
    last, *rest = run_here(cell, inputs, lists, attributes, counts)
    final, sequence = rest[: len(cell.states)], rest[len(cell.states) :]
    return (sequence[0] if return_sequences else last), final


def _joins(kernel: tf.Tensor, recurrent_kernel: tf.Tensor) -> bool:
    """Whether x W is better off inside the op."""
    features, units = kernel.shape[0], recurrent_kernel.shape[0] or 0
    return features is not None and features <= max(_JOINED_FEATURES, units // 2)


def _run_in_graph(cell, inputs, lists, attributes, counts):
    result = _forward(cell, inputs, lists, attributes, counts)
    return [*(getattr(result, name) for name in cell.outputs), *result.outputs]


def _run_eagerly(cell, inputs, lists, attributes, counts):
    constant = {name: lists[name] for name in _OPTIONAL}
    variable = {name: lists[name] for name in lists if name not in _OPTIONAL}
    lengths = {name: len(tensors) for name, tensors in variable.items()}

    @tf.custom_gradient
    def call(*tensors):
        inputs, variable = _split(tensors, len(cell.states) + 2, lengths)
        lists = constant | variable
        result = _forward(cell, inputs, lists, attributes, counts)
        saved = {name: getattr(result, name) for name in cell.saved}
        always = [getattr(result, name) for name in cell.outputs]

        def gradient(*grads):
            first, by_list = _gradient(
                cell,
                inputs,
                lists,
                attributes,
                saved,
                grads[: len(always)],
                list(grads[len(always) :]),
            )
            return [*first, *(g for name in variable for g in by_list[name])]

        return [*always, *result.outputs], gradient

    flat = [tensor for tensors in variable.values() for tensor in tensors]
    return call(*inputs, *flat)


def _forward(cell, inputs, lists, attributes, counts):
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


def _gradient(cell, inputs, lists, attributes, saved, grad_always, grad_outputs):
    """Gradients of the op's float inputs from those of its outputs.

    Args:
        cell: which op.
        inputs: x, recurrent_kernel and the initial states.
        lists: the list inputs by name.
        attributes: the cell's attributes by name.
        saved: the saved tensors by name, empty lists if nothing was saved.
        grad_always: gradients of the outputs that are always there.
        grad_outputs: the gradient of the sequence in a list, or an empty one.

    Returns:
        Those of `inputs`, and those of the lists' tensors by name.
    """
    if not saved["gates"]:
        counts = {"num_outputs": 0, "num_saved": 1}
        again = _forward(cell, inputs, lists, attributes, counts)
        saved = {name: getattr(again, name) for name in cell.saved}
    saved = {name: tensors[0] for name, tensors in saved.items()}
    optional = {name: lists[name] for name in _OPTIONAL}
    names = ["grad_" + name for name in cell.outputs]
    grad = cell.backward(
        recurrent_kernel=inputs[1],
        grad_outputs=grad_outputs,
        **{name: saved[name] for name in cell.saved_for_backward},
        **dict(zip(names, grad_always, strict=True)),
        **{count: len(lists[name]) for name, count in cell.biases.items()},
        **optional,
        **attributes,
    )
    by_list = {name: getattr(grad, "grad_" + name) for name in cell.biases}
    by_list["kernel"] = [
        summed_product(inputs[0], grad.grad_gates) for _ in lists["kernel"]
    ]
    first = [
        project_back(grad.grad_gates, lists["kernel"][0])
        if lists["kernel"]
        else grad.grad_gates,
        cell.kernel_gradient(saved, grad, lists["recurrent_dropout"], attributes),
        *(getattr(grad, "grad_" + name) for name in cell.states),
    ]
    return first, by_list


def _register_gradient(name: str, cell: Cell) -> None:
    @_library.register_gradient(name)
    def gradient(op, *grads):
        # Positions follow from the lists' lengths.
        counts = cell.biases | _OPTIONAL | _KERNEL
        lengths = {argument: op.get_attr(count) for argument, count in counts.items()}
        inputs, lists = _split(list(op.inputs), 2 + len(cell.states), lengths)
        always = len(cell.outputs)
        sequences, num_saved = op.get_attr("num_outputs"), op.get_attr("num_saved")
        _, saved = _split(
            list(op.outputs), always + sequences, dict.fromkeys(cell.saved, num_saved)
        )
        attributes = {name: op.get_attr(name) for name in cell.attributes}
        first, by_list = _gradient(
            cell,
            inputs,
            lists,
            {
                name: tf.compat.as_str(value) if isinstance(value, bytes) else value
                for name, value in attributes.items()
            },
            saved,
            grads[:always],
            list(grads[always : always + sequences]),
        )
        nothing = {name: [None] * len(lists[name]) for name in _OPTIONAL}
        by_list |= nothing
        return [*first, *(g for name in lists for g in by_list[name])]

    @_library.register_gradient(name + "Grad")
    def second_gradient(op, *grads):
        raise NotImplementedError(
            "tf_ecornn has no second derivatives: a gradient of a gradient was asked "
            f"for through {name}. Use the stock Keras layer where you need one."
        )


_register_gradient("EcoRNN>Lstm", LSTM)
_register_gradient("EcoRNN>Gru", GRU)


def _split(tensors, count, lengths):
    """The first `count` tensors, and the rest as lists of the given lengths."""
    rest = iter(tensors[count:])
    lists = {name: [next(rest) for _ in range(n)] for name, n in lengths.items()}
    return list(tensors[:count]), lists


def _zero_state(x: tf.Tensor, recurrent_kernel: tf.Tensor) -> tf.Tensor:
    batch, units = x.shape[0], recurrent_kernel.shape[0]
    return tf.zeros(
        (
            tf.shape(x)[0] if batch is None else batch,
            tf.shape(recurrent_kernel)[0] if units is None else units,
        ),
        x.dtype,
    )
