"""The gradients of the fused ops, and theirs.

    d_gates, d_states, d_biases = EcoRNN>CellGrad(saved, ...)
    dU, dW = EcoRNN>SummedProducts: h_prevᵀ d_gates and xᵀ d_gates over all steps
    dx = d_gates Wᵀ, by TensorFlow

In a graph the registered gradients do this, so that reloaded graphs have it too.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_ecornn import _library, second_order
from tf_ecornn.cell_op import GRU, KERNEL, LSTM, OPTIONAL, Cell, Tensors, forward, split
from tf_ecornn.products import project_back
from tf_ecornn.ragged import ValidSteps

# An attribute of the forward op in a graph, for its gradient; no kernel reads it.
_GATHER_VALID = "_ecornn_gather_valid"


def gradient(
    cell: Cell,
    inputs: list[tf.Tensor],
    lists: Tensors,
    attributes: dict[str, Any],
    saved: Tensors,
    grads: Sequence[tf.Tensor],
    *,
    saved_grads: dict[str, tf.Tensor],
    gather_valid: bool,
) -> tuple[list[tf.Tensor], Tensors]:
    """Gradients of the op's float inputs from those of its outputs.

    Args:
        cell: which op.
        inputs: x, recurrent_kernel and the initial states.
        lists: the list inputs by name.
        attributes: the cell's attributes by name.
        saved: the saved tensors by name, empty lists if nothing was saved.
        grads: those of the outputs that are always there, and of the sequence if it
            is there.
        saved_grads: those of the saved tensors by name; what is left out is zero.
        gather_valid: as for `recurrence.run`.

    Returns:
        Those of `inputs`, and those of the lists' tensors by name.
    """
    if not saved["gates"]:
        counts = {"num_outputs": 0, "num_saved": 1}
        again = forward(cell, inputs, lists, attributes, counts)
        saved = {name: getattr(again, name) for name in cell.saved}
    saved = {name: tensors[0] for name, tensors in saved.items()}
    names = ["grad_" + name for name in cell.outputs]
    grad = _backward(
        cell,
        saved_grads,
        recurrent_kernel=inputs[1],
        grad_outputs=list(grads[len(names) :]),
        **{name: saved[name] for name in cell.saved_for_backward},
        **dict(zip(names, grads, strict=False)),
        **{count: len(lists[name]) for name, count in cell.biases.items()},
        **{name: lists[name] for name in OPTIONAL},
        **attributes,
    )
    by_list = {name: getattr(grad, "grad_" + name) for name in cell.biases}
    states = [getattr(grad, "grad_" + name) for name in cell.states]
    x, recurrent_kernel, by_list["kernel"] = _products(
        cell, inputs[0], lists, attributes, saved, grad, gather_valid
    )
    return [x, recurrent_kernel, *states], by_list


def mark_gather_valid(output: tf.Tensor) -> None:
    """Has the gradient of the op that gave `output`, in a graph, gather valid steps."""
    # Has no public name.
    output.op._set_attr(_GATHER_VALID, tf.compat.v1.AttrValue(b=True))


def _backward(cell, saved_grads, **arguments):
    """The gradient op, or ordinary ops where saved tensors have gradients."""
    if second_order.known_zero(saved_grads.values()):
        return cell.backward(**arguments)
    return cell.plain_backward(saved_grads=saved_grads, **arguments)


def _products(cell, x, lists, attributes, saved, grad, gather_valid):
    """The gradients of x, of the recurrent kernel, and of the kernel in a list."""
    gates = grad.grad_gates
    recurrent_kernel, *kernel = cell.weight_gradients(
        {name: saved[name] for name in cell.saved_for_products},
        [x] * len(lists["kernel"]),
        gates,
        grad.grad_candidate if attributes.get("reset_after") else None,
        lists["mask"],
        lists["recurrent_dropout"],
    )
    if not kernel:
        return gates, recurrent_kernel, kernel
    if not gather_valid:
        return project_back(gates, lists["kernel"][0]), recurrent_kernel, kernel
    valid = ValidSteps.of(lists["mask"][0])
    grad_x = valid.put(project_back(valid.take(gates), lists["kernel"][0]))
    return grad_x, recurrent_kernel, kernel


def _of_forward(cell: Cell, op: tf.Operation, *grads: tf.Tensor):
    """The registered gradient of a forward op."""
    # Positions follow from the lists' lengths.
    inputs, lists = _inputs_of(
        op, 2 + len(cell.states), cell.biases | OPTIONAL | KERNEL
    )
    count = len(cell.outputs) + op.get_attr("num_outputs")
    saved = dict.fromkeys(cell.saved, op.get_attr("num_saved"))
    first, by_list = gradient(
        cell,
        inputs,
        lists,
        _attributes_of(op, cell.attributes),
        split(list(op.outputs), count, saved)[1],
        grads[:count],
        saved_grads=dict(zip(cell.saved, grads[count:], strict=False)),
        gather_valid=_gathers_valid(op),
    )
    by_list |= {name: [None] * len(lists[name]) for name in OPTIONAL}
    return [*first, *(g for name in lists for g in by_list[name])]


def _of_backward(cell: Cell, op: tf.Operation, *grads: tf.Tensor):
    """The registered gradient of a gradient op."""
    names = [*cell.saved_for_backward, "recurrent_kernel"]
    names += ["grad_" + name for name in cell.outputs]
    counts = {"grad_outputs": "num_outputs"} | OPTIONAL
    inputs, lists = _inputs_of(op, len(names), counts)

    def by_name(outputs):
        biases = {f"grad_{n}": op.get_attr(c) for n, c in cell.biases.items()}
        first, of_biases = split(list(outputs), len(cell.gradients), biases)
        return dict(zip(cell.gradients, first, strict=True)) | of_biases

    found = cell.plain_adjoint(
        result=by_name(op.outputs),
        grads=by_name(grads),
        **dict(zip(names, inputs, strict=True)),
        **lists,
        **_attributes_of(op, cell.attributes),
    )
    of_outputs = found["grad_outputs"] if lists["grad_outputs"] else []
    nothing = [None for name in OPTIONAL for _ in lists[name]]
    return [*(found[name] for name in names), *of_outputs, *nothing]


def _inputs_of(op, count, counts):
    """The first `count` inputs of an op, and its list inputs by name."""
    lengths = {name: op.get_attr(attribute) for name, attribute in counts.items()}
    return split(list(op.inputs), count, lengths)


def _attributes_of(op, names):
    values = {name: op.get_attr(name) for name in names}
    return {
        name: tf.compat.as_str(value) if isinstance(value, bytes) else value
        for name, value in values.items()
    }


def _gathers_valid(op) -> bool:
    """Whether the op was marked; `op` may be a tape's description of it."""
    output = op.outputs[0]
    if not tf.is_symbolic_tensor(output):
        return False
    try:
        return output.op.get_attr(_GATHER_VALID)
    except ValueError:
        return False


def _register(op_type: str, cell: Cell) -> None:
    _library.register_gradient(op_type)(functools.partial(_of_forward, cell))
    _library.register_gradient(op_type + "Grad")(functools.partial(_of_backward, cell))


_register("EcoRNN>Lstm", LSTM)
_register("EcoRNN>Gru", GRU)
