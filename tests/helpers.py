"""The raw ops on a `Problem`, and their comparison with the reference."""

import numpy as np
import pytest
import tensorflow as tf

import reference
from problems import (
    CELLS,
    Problem,
    assert_close,
    reference_forward,
    tolerance_of,
)
from tf_ecornn import _library

needs_xla = pytest.mark.skipif(
    not _library.has_xla(), reason="this build of TensorFlow has no XLA part"
)
DTYPES = (np.float32, np.float64)
OPTIONAL = ("mask", "reset", "bias", "recurrent_bias", "recurrent_dropout")

_LSTM = (_library.ops.eco_rnn_lstm, _library.ops.eco_rnn_lstm_grad)
_GRU = (_library.ops.eco_rnn_gru, _library.ops.eco_rnn_gru_grad)
FORWARD = {"lstm": _LSTM[0], "gru": _GRU[0], "gru_before": _GRU[0]}
GRADIENT = {"lstm": _LSTM[1], "gru": _GRU[1], "gru_before": _GRU[1]}


def listed(value, dtype):
    """An optional input of the op: [] or [tensor]."""
    return [] if value is None else [tf.constant(value, dtype)]


def op_attributes(problem: Problem):
    return {
        "activation": problem.activation,
        "recurrent_activation": problem.recurrent_activation,
        "reverse": problem.reverse,
        "zero_output_for_mask": problem.zero_output_for_mask,
        **CELLS[problem.cell][2],
    }


def state_type(dtype):
    """The dtype in which the LSTM's op keeps c."""
    return tf.float64 if tf.as_dtype(dtype) == tf.float64 else tf.float32


def forward_arguments(
    problem: Problem, dtype=np.float64, outputs=True, save=True, joined=False
):
    """Keyword arguments of the raw forward op; `joined`: it projects x itself."""
    lstm = problem.cell == "lstm"
    arguments = {
        "x": tf.constant(problem.x if joined else problem.gates_x, dtype),
        "recurrent_kernel": tf.constant(problem.recurrent_kernel, dtype),
        "initial_h": tf.constant(problem.initial_h, dtype),
        "bias": listed(problem.bias, dtype),
        "mask": listed(problem.mask, bool),
        "reset": listed(problem.reset, bool),
        "recurrent_dropout": listed(problem.recurrent_dropout, dtype),
        "kernel": listed(problem.kernel if joined else None, dtype),
        "num_outputs": int(outputs),
        "num_saved": int(save),
        **op_attributes(problem),
    }
    if lstm:
        arguments["initial_c"] = tf.constant(problem.initial_c, dtype)
        arguments["state_type"] = state_type(dtype)
    else:
        arguments["recurrent_bias"] = listed(problem.recurrent_bias, dtype)
    return arguments


def gradient_arguments(problem: Problem, saved, dtype=np.float64, outputs=True):
    """Keyword arguments of the raw gradient op; `saved` is a forward result."""
    lstm = problem.cell == "lstm"
    kept = ("gates", "previous_c") if lstm else ("gates", "previous_h", "candidate")
    arguments = {
        **{name: getattr(saved, name)[0] for name in kept},
        "recurrent_kernel": tf.constant(problem.recurrent_kernel, dtype),
        "grad_last_output": tf.constant(problem.grad_last_output, dtype),
        "grad_final_h": tf.constant(problem.grad_final_h, dtype),
        "grad_outputs": listed(problem.grad_outputs if outputs else None, dtype),
        "mask": listed(problem.mask, bool),
        "reset": listed(problem.reset, bool),
        "recurrent_dropout": listed(problem.recurrent_dropout, dtype),
        "num_biases": int(problem.bias is not None),
        **op_attributes(problem),
    }
    if lstm:
        arguments["grad_final_c"] = tf.constant(problem.grad_final_c, dtype)
    else:
        arguments["num_recurrent_biases"] = int(problem.recurrent_bias is not None)
    return arguments


def run_op(problem: Problem, dtype=np.float64, outputs=True, save=True, joined=False):
    """Forward, and with `save` the gradient op: a dict of NumPy arrays."""
    arguments = forward_arguments(problem, dtype, outputs, save, joined)
    result = FORWARD[problem.cell](**arguments)
    names = ["last_output", *(f"final_{s}" for s in problem.states)]
    values = {name: getattr(result, name) for name in names}
    if outputs:
        values["outputs"] = result.outputs[0]
    if save:
        grad = GRADIENT[problem.cell](
            **gradient_arguments(problem, result, dtype, outputs)
        )
        values["previous_h"] = result.previous_h[0]
        values["grad_gates"] = grad.grad_gates
        for state in problem.states:
            values[f"grad_initial_{state}"] = getattr(grad, f"grad_initial_{state}")
        for bias in ("bias", "recurrent_bias"):
            if getattr(problem, bias) is not None:
                values[f"grad_{bias}"] = getattr(grad, f"grad_{bias}")[0]
        if problem.cell != "lstm":
            values["candidate"] = result.candidate[0]
            values["grad_candidate"] = grad.grad_candidate
    return {name: value.numpy() for name, value in values.items()}


def check_op(problem: Problem, dtype=np.float64, outputs=True, save=True, joined=False):
    """Every result of the raw ops against the reference."""
    actual = run_op(problem, dtype, outputs, save, joined)
    expected = reference_forward(problem)
    tolerance = tolerance_of(problem, dtype)
    about = describe(problem, dtype)

    def compare(name, value, summed=False):
        assert_close(actual[name], value, tolerance, f"{name} of {about}", summed)

    compare("last_output", expected.last_output)
    for state, value in zip(problem.states, expected.states, strict=True):
        compare(f"final_{state}", value)
    if outputs:
        compare("outputs", expected.outputs)
    if not save:
        return
    grads = reference.run_gradient(
        expected,
        problem.grad_outputs if outputs else None,
        problem.grad_last_output,
        problem.grad_final_states,
    )
    compare("grad_gates", grads.gates_x)
    for state, value in zip(problem.states, grads.states, strict=True):
        compare(f"grad_initial_{state}", value)
    if problem.recurrent_bias is not None:
        compare("grad_bias", grads.bias[0], summed=True)
        compare("grad_recurrent_bias", grads.bias[1], summed=True)
    elif problem.bias is not None:
        compare("grad_bias", grads.bias, summed=True)
    actual["recurrent_kernel"] = recurrent_kernel_gradient(problem, actual)
    compare("recurrent_kernel", grads.recurrent_kernel, summed=True)


def recurrent_kernel_gradient(problem: Problem, actual):
    """(U, GU), summed in float64 from what the ops return.

    Gate by gate: the operand that met the kernel times the gradient of the sum it
    went into. For a GRU's candidate one of the two is a tensor of its own.
    """
    batch, steps, units = problem.batch, problem.steps, problem.units
    shape = (batch, steps, problem.gates, units)
    left = actual["previous_h"].astype(np.float64)[:, :, None, :]
    if problem.recurrent_dropout is not None:
        left = left * problem.recurrent_dropout[:, None]
    left = np.broadcast_to(left, shape).copy()
    right = actual["grad_gates"].astype(np.float64).reshape(shape)
    if problem.cell == "gru":
        right = right.copy()
        right[:, :, 2] = actual["grad_candidate"]
    elif problem.cell == "gru_before":
        left[:, :, 2] = actual["candidate"]
    return np.einsum("btku,btkg->ukg", left, right).reshape(units, -1)


def describe(problem: Problem, dtype):
    given = [n for n in OPTIONAL if getattr(problem, n) is not None]
    return (
        f"{problem.cell} B={problem.batch} T={problem.steps} U={problem.units} "
        f"{np.dtype(dtype).name} {op_attributes(problem)} with {given}"
    )
