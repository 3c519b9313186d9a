"""tf_ecornn.lstm on a `Problem`, and its comparison with the reference."""

import numpy as np
import tensorflow as tf

import reference
import tf_ecornn
from problems import (
    assert_close,
    draw_problem,
    reference_forward,
    tolerance_of,
)


def draw(seed, features=3, **arguments):
    return draw_problem("lstm", seed, features=features, **arguments)


def tensors(problem, dtype):
    """Everything that has a gradient, by the name of the argument."""
    names = ["x", "kernel", "recurrent_kernel", "bias", "initial_h", "initial_c"]
    values = {n: getattr(problem, n) for n in names}
    return {n: tf.constant(v, dtype) for n, v in values.items() if v is not None}


def call(problem, given, sequences, **options):
    """The public function on a problem, with tensors from `tensors`."""
    return tf_ecornn.lstm(
        given["x"],
        given["kernel"],
        given["recurrent_kernel"],
        given.get("bias"),
        initial_state=(given["initial_h"], given["initial_c"]),
        mask=None if problem.mask is None else tf.constant(problem.mask),
        reset=None if problem.reset is None else tf.constant(problem.reset),
        activation=problem.activation,
        recurrent_activation=problem.recurrent_activation,
        return_sequences=sequences,
        recurrent_dropout_mask=problem.recurrent_dropout,
        go_backwards=problem.reverse,
        zero_output_for_mask=problem.zero_output_for_mask,
        **options,
    )


def total_of(problem, found, parts, sequences, dtype):
    output_weight = problem.grad_outputs if sequences else problem.grad_last_output
    weights = {
        "output": output_weight,
        "h": problem.grad_final_h,
        "c": problem.grad_final_c,
    }
    return tf.add_n(
        [tf.reduce_sum(getattr(found, p) * tf.cast(weights[p], dtype)) for p in parts]
    )


def check(problem, dtype, loss="output+h+c", sequences=True, traced=False, **options):
    """All results and all gradients against the reference."""
    parts = loss.split("+")
    given = tensors(problem, dtype)

    def step():
        with tf.GradientTape() as tape:
            tape.watch(given)
            found = call(problem, given, sequences, **options)
            total = total_of(problem, found, parts, sequences, dtype)
        return found, tape.gradient(total, given)

    found, gradients = (tf.function(step) if traced else step)()
    forward = reference_forward(problem)
    output = forward.outputs if sequences else forward.last_output
    tolerance = tolerance_of(problem, dtype)
    assert_close(found.output, output, tolerance, "output")
    assert_close(found.h, forward.states[0], tolerance, "h")
    assert_close(found.c, forward.states[1], tolerance, "c")
    assert found.output.dtype == found.h.dtype == found.c.dtype == dtype

    expected = expected_gradients(problem, forward, parts, sequences)
    assert gradients.keys() == expected.keys()
    for name, value in expected.items():
        summed = name in ("kernel", "recurrent_kernel", "bias")
        assert gradients[name] is not None, f"no gradient for {name}"
        assert gradients[name].dtype == dtype
        assert_close(gradients[name], value, tolerance, f"d {name}", summed)


def expected_gradients(problem, forward, parts, sequences):
    in_loss = {p: p in parts for p in ("output", "h", "c")}
    grads = reference.run_gradient(
        forward,
        problem.grad_outputs if in_loss["output"] and sequences else None,
        problem.grad_last_output if in_loss["output"] and not sequences else None,
        (
            problem.grad_final_h if in_loss["h"] else None,
            problem.grad_final_c if in_loss["c"] else None,
        ),
    )
    d_x, d_kernel = reference.project_gradient(
        problem.x, problem.kernel, grads.gates_x, problem.mask
    )
    expected = {
        "x": d_x,
        "kernel": d_kernel,
        "recurrent_kernel": grads.recurrent_kernel,
        "initial_h": grads.states[0],
        "initial_c": grads.states[1],
    }
    if problem.bias is not None:
        expected["bias"] = grads.bias
    return expected


def results(problem, sequences, save, traced):
    """Results, and gradients of a loss on all of them."""
    given = tensors(problem, np.float64)
    parts = ("output", "h", "c")

    def step():
        with tf.GradientTape() as tape:
            tape.watch(given)
            found = call(problem, given, sequences, save_for_backward=save)
            total = total_of(problem, found, parts, sequences, np.float64)
        return found, tape.gradient(total, given)

    return (tf.function(step) if traced else step)()
