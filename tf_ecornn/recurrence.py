"""The fused ops over a batch, one path for graphs and one for eager mode.

    forward    h, saved = EcoRNN>Cell(x, U, states, biases, W, ...)
    backward   `op_gradient`

W is left out where the product x W is worth one of TensorFlow's over all steps: the
op then takes that, (B, T, GU), in x's place. Of few features, it is not: inside the
op it needs no memory and no pass of its own.

In graphs the op has a registered gradient. That receives zeros, filled in, for every
output that the loss does not use; in eager mode that would be done for the saved
tensors as well, so there the op hides behind `tf.custom_gradient`. Both call one
function.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_ecornn import gpu, op_gradient
from tf_ecornn.cell_op import GRU, LSTM, OPTIONAL, Cell, Tensors, forward, split
from tf_ecornn.products import project
from tf_ecornn.ragged import ValidSteps
from tf_ecornn.second_order import may_record

# The product of so many features, or of half as many as there are units, joins the
# recurrent one inside the op. On AVX-512, two cores, U=128 F=32 B=64 T=100, the op took
# 0.7 ms longer for it; by itself, as one `tf.matmul`, it took 2 ms.
_JOINED_FEATURES = 64
# On a GPU the op does it in a launch of its own, which is simple: for one chunk of a
# tile's depth.
_JOINED_FEATURES_GPU = 16

__all__ = ["GRU", "LSTM", "Cell", "Tensors", "run"]


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
    gather_valid: bool = False,
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
        gather_valid: whether the products with the kernel, x W and dx, take the steps
            alone that the mask leaves. Gathering them is worth it where many are
            masked.

    Returns:
        The output and the list of final states, each (B, U).
    """
    if kernel is not None and not _joins(kernel, recurrent_kernel):
        if gather_valid:
            valid = ValidSteps.of(optional["mask"][0])
            x = valid.put(project(valid.take(x), kernel))
        else:
            x = project(x, kernel)
        kernel = None
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
    last, *rest = run_here(cell, inputs, lists, attributes, counts, gather_valid)
    final, sequence = rest[: len(cell.states)], rest[len(cell.states) :]
    return (sequence[0] if return_sequences else last), final


def _joins(kernel: tf.Tensor, recurrent_kernel: tf.Tensor) -> bool:
    """Whether x W is better off inside the op."""
    features, units = kernel.shape[0], recurrent_kernel.shape[0] or 0
    if features is None:
        return False
    if gpu.visible():
        return features <= _JOINED_FEATURES_GPU
    return features <= max(_JOINED_FEATURES, units // 2)


def _run_in_graph(cell, inputs, lists, attributes, counts, gather_valid):
    result = forward(cell, inputs, lists, attributes, counts)
    if gather_valid:
        op_gradient.mark_gather_valid(result.last_output)
    return [*(getattr(result, name) for name in cell.outputs), *result.outputs]


def _run_eagerly(cell, inputs, lists, attributes, counts, gather_valid):
    constant = {name: lists[name] for name in OPTIONAL}
    variable = {name: lists[name] for name in lists if name not in OPTIONAL}
    lengths = {name: len(tensors) for name, tensors in variable.items()}

    def arguments(tensors):
        inputs, variable = split(tensors, len(cell.states) + 2, lengths)
        return inputs, constant | variable

    def gradients(tensors, saved, grads):
        first, by_list = op_gradient.gradient(
            cell,
            *arguments(tensors),
            attributes,
            saved,
            grads,
            saved_grads={},
            gather_valid=gather_valid,
        )
        return [*first, *(g for name in variable for g in by_list[name])]

    @tf.custom_gradient
    def call(*tensors):
        result = forward(cell, *arguments(tensors), attributes, counts)
        saved = {name: getattr(result, name) for name in cell.saved}

        def gradient(*grads):
            @tf.custom_gradient
            def once(*both):
                def again(*second):
                    # What was saved hangs on no tape, so it is made once more.
                    nothing = dict.fromkeys(cell.saved, [])
                    count = len(tensors)
                    with tf.GradientTape() as tape:
                        tape.watch(both)
                        found = gradients(both[:count], nothing, both[count:])
                    return tape.gradient(found, both, second, "zero")

                return gradients(tensors, saved, grads), again

            if may_record():
                return once(*tensors, *grads)
            return gradients(tensors, saved, grads)

        outputs = [getattr(result, name) for name in cell.outputs]
        return [*outputs, *result.outputs], gradient

    flat = [tensor for tensors in variable.values() for tensor in tensors]
    return call(*inputs, *flat)


def _zero_state(x: tf.Tensor, recurrent_kernel: tf.Tensor) -> tf.Tensor:
    batch, units = x.shape[0], recurrent_kernel.shape[0]
    return tf.zeros(
        (
            tf.shape(x)[0] if batch is None else batch,
            tf.shape(recurrent_kernel)[0] if units is None else units,
        ),
        x.dtype,
    )
