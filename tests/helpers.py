"""The raw LSTM ops on a `Problem`, and their comparison with the reference."""

import numpy as np
import tensorflow as tf

import reference
from problems import (
    Problem,
    assert_close,
    reference_forward,
    tolerance_of,
)
from tf_ecornn import _library

DTYPES = (np.float32, np.float64)
OPTIONAL = ("mask", "reset", "bias", "recurrent_dropout")
FORWARD = _library.ops.eco_rnn_lstm
GRADIENT = _library.ops.eco_rnn_lstm_grad


def listed(value, dtype):
    """An optional input of the op: [] or [tensor]."""
    return [] if value is None else [tf.constant(value, dtype)]


def op_attributes(problem: Problem):
    return {
        "activation": problem.activation,
        "recurrent_activation": problem.recurrent_activation,
        "reverse": problem.reverse,
        "zero_output_for_mask": problem.zero_output_for_mask,
    }


def forward_arguments(problem: Problem, dtype=np.float64, outputs=True, save=True):
    """Keyword arguments of the raw forward op."""
    return {
        "gates_x": tf.constant(problem.gates_x, dtype),
        "recurrent_kernel": tf.constant(problem.recurrent_kernel, dtype),
        "initial_h": tf.constant(problem.initial_h, dtype),
        "initial_c": tf.constant(problem.initial_c, dtype),
        "bias": listed(problem.bias, dtype),
        "mask": listed(problem.mask, bool),
        "reset": listed(problem.reset, bool),
        "recurrent_dropout": listed(problem.recurrent_dropout, dtype),
        "num_outputs": int(outputs),
        "num_saved": int(save),
        "state_type": tf.as_dtype(dtype),
        **op_attributes(problem),
    }


def gradient_arguments(problem: Problem, saved, dtype=np.float64, outputs=True):
    """Keyword arguments of the raw gradient op; `saved` is a forward result."""
    return {
        "gates": saved.gates[0],
        "previous_c": saved.previous_c[0],
        "recurrent_kernel": tf.constant(problem.recurrent_kernel, dtype),
        "grad_last_output": tf.constant(problem.grad_last_output, dtype),
        "grad_final_h": tf.constant(problem.grad_final_h, dtype),
        "grad_final_c": tf.constant(problem.grad_final_c, dtype),
        "grad_outputs": listed(problem.grad_outputs if outputs else None, dtype),
        "mask": listed(problem.mask, bool),
        "reset": listed(problem.reset, bool),
        "recurrent_dropout": listed(problem.recurrent_dropout, dtype),
        "num_biases": int(problem.bias is not None),
        **op_attributes(problem),
    }


def run_op(problem: Problem, dtype=np.float64, outputs=True, save=True):
    """Forward, and with `save` the gradient op: a dict of NumPy arrays."""
    result = FORWARD(**forward_arguments(problem, dtype, outputs, save))
    values = {
        "last_output": result.last_output,
        "final_h": result.final_h,
        "final_c": result.final_c,
    }
    if outputs:
        values["outputs"] = result.outputs[0]
    if save:
        grad = GRADIENT(**gradient_arguments(problem, result, dtype, outputs))
        values["previous_h"] = result.previous_h[0]
        values["grad_gates"] = grad.grad_gates
        values["grad_initial_h"] = grad.grad_initial_h
        values["grad_initial_c"] = grad.grad_initial_c
        if problem.bias is not None:
            values["grad_bias"] = grad.grad_bias[0]
    return {name: value.numpy() for name, value in values.items()}


def check_op(problem: Problem, dtype=np.float64, outputs=True, save=True):
    """Every result of the raw ops against the reference."""
    actual = run_op(problem, dtype, outputs, save)
    expected = reference_forward(problem)
    tolerance = tolerance_of(problem, dtype)
    about = describe(problem, dtype)

    def compare(name, value, summed=False):
        assert_close(actual[name], value, tolerance, f"{name} of {about}", summed)

    compare("last_output", expected.last_output)
    compare("final_h", expected.states[0])
    compare("final_c", expected.states[1])
    if outputs:
        compare("outputs", expected.outputs)
    if not save:
        return
    grads = reference.run_gradient(
        expected,
        problem.grad_outputs if outputs else None,
        problem.grad_last_output,
        (problem.grad_final_h, problem.grad_final_c),
    )
    compare("grad_gates", grads.gates_x)
    compare("grad_initial_h", grads.states[0])
    compare("grad_initial_c", grads.states[1])
    if problem.bias is not None:
        compare("grad_bias", grads.bias, summed=True)
    actual["recurrent_kernel"] = recurrent_kernel_gradient(
        problem, actual["previous_h"], actual["grad_gates"]
    )
    compare("recurrent_kernel", grads.recurrent_kernel, summed=True)


def recurrent_kernel_gradient(problem: Problem, previous_h, grad_gates):
    """(U, 4U), summed in float64 from what the ops return."""
    h = previous_h.astype(np.float64)[:, :, None, :]
    if problem.recurrent_dropout is not None:
        h = h * problem.recurrent_dropout[:, None]
    batch, steps, units = problem.batch, problem.steps, problem.units
    gates = grad_gates.astype(np.float64).reshape(batch, steps, 4, units)
    h = np.broadcast_to(h, gates.shape)
    return np.einsum("btku,btkg->ukg", h, gates).reshape(units, 4 * units)


def describe(problem: Problem, dtype):
    given = [n for n in OPTIONAL if getattr(problem, n) is not None]
    return (
        f"B={problem.batch} T={problem.steps} U={problem.units} "
        f"{np.dtype(dtype).name} {op_attributes(problem)} with {given}"
    )
