"""The registered gradient of the raw LSTM op, eager and in graphs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import reference
from helpers import DTYPES, FORWARD, forward_arguments
from problems import (
    assert_close,
    assert_same_bits,
    draw_problem,
    reference_forward,
    tolerance_of,
)

LOSSES = ("outputs", "last", "h", "c", "outputs+h+c", "last+h+c", "everything")
INPUTS = ("gates_x", "recurrent_kernel", "initial_h", "initial_c")


def loss_parts(loss):
    everything = ("outputs", "last", "h", "c")
    return everything if loss == "everything" else tuple(loss.split("+"))


def weighted(problem, parts, dtype):
    """(result name, weight) of each part of the loss."""
    weights = {
        "outputs": problem.grad_outputs,
        "last": problem.grad_last_output,
        "h": problem.grad_final_h,
        "c": problem.grad_final_c,
    }
    return {p: tf.constant(weights[p], dtype) for p in parts}


def make_step(problem, loss, dtype, save, outputs, in_function, persistent=False):
    """A function () -> gradients of INPUTS and the bias, from the raw op."""
    weights = weighted(problem, loss_parts(loss), dtype)
    arguments = forward_arguments(problem, dtype, outputs=outputs, save=save)
    sources = [arguments[n] for n in INPUTS] + arguments["bias"]

    def step():
        with tf.GradientTape(persistent=persistent) as tape:
            tape.watch(sources)
            found = FORWARD(**arguments)
            results = {
                "last": found.last_output,
                "h": found.final_h,
                "c": found.final_c,
            }
            if outputs:
                results["outputs"] = found.outputs[0]
            total = tf.add_n(
                [tf.reduce_sum(results[p] * w) for p, w in weights.items()]
            )
        first = tape.gradient(total, sources)
        if persistent:
            return first, tape.gradient(total, sources)
        return first

    return tf.function(step) if in_function else step


def expected_gradients(problem, loss):
    parts = loss_parts(loss)
    grads = reference.run_gradient(
        reference_forward(problem),
        problem.grad_outputs if "outputs" in parts else None,
        problem.grad_last_output if "last" in parts else None,
        (
            problem.grad_final_h if "h" in parts else None,
            problem.grad_final_c if "c" in parts else None,
        ),
    )
    found = {
        "gates_x": grads.gates_x,
        "recurrent_kernel": grads.recurrent_kernel,
        "initial_h": grads.states[0],
        "initial_c": grads.states[1],
    }
    if problem.bias is not None:
        found["bias"] = grads.bias
    return found


def check(problem, loss, dtype, save, outputs=None, in_function=False):
    if outputs is None:
        outputs = "outputs" in loss_parts(loss)
    actual = make_step(problem, loss, dtype, save, outputs, in_function)()
    tolerance = tolerance_of(problem, dtype)
    expected = expected_gradients(problem, loss)
    assert len(actual) == len(expected)
    for value, (name, wanted) in zip(actual, expected.items(), strict=True):
        assert value is not None, f"{name}: no gradient for a loss on {loss}"
        summed = name in ("recurrent_kernel", "bias")
        assert_close(value, wanted, tolerance, f"{name}, loss on {loss}", summed)


@pytest.mark.parametrize("in_function", (False, True))
@pytest.mark.parametrize("save", (True, False))
@pytest.mark.parametrize("loss", LOSSES)
def test_losses(loss, save, in_function):
    for mask, outputs in itertools.product(("none", "random"), (None, True)):
        problem = draw_problem(1, batch=7, steps=5, units=9, mask=mask, reset=True)
        check(problem, loss, np.float64, save, outputs, in_function)


@pytest.mark.parametrize("in_function", (False, True))
@pytest.mark.parametrize("save", (True, False))
def test_options(save, in_function):
    for dtype, mask, bias, reverse, zero in itertools.product(
        DTYPES, ("none", "left"), *((False, True),) * 3
    ):
        problem = draw_problem(
            2,
            mask=mask,
            bias=bias,
            reset=bias,
            dropout=zero,
            reverse=reverse,
            zero_output_for_mask=zero,
        )
        check(problem, "everything", dtype, save, in_function=in_function)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_row_small_sizes_all_weights_move(dtype):
    """B = 1, T = 5: no gradient of a weight may be zero."""
    problem = draw_problem(3, batch=1, steps=5, units=256)
    check(problem, "outputs", dtype, save=True)
    gradient = make_step(problem, "outputs", dtype, True, True, True)()
    assert all(np.count_nonzero(g) > 0.99 * np.size(g) for g in gradient)


@pytest.mark.parametrize("save", (True, False))
@pytest.mark.parametrize("in_function", (False, True))
@pytest.mark.parametrize(("batch", "steps"), [(0, 3), (3, 0), (0, 0)])
def test_empty(batch, steps, in_function, save):
    problem = draw_problem(4, batch=batch, steps=steps, mask="random")
    check(problem, "everything", np.float32, save, in_function=in_function)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("save", (True, False))
@pytest.mark.parametrize("in_function", (False, True))
def test_asking_twice_gives_equal_bits(dtype, save, in_function):
    problem = draw_problem(5, batch=9, steps=6, units=20, mask="random")
    step = make_step(problem, "everything", dtype, save, True, in_function, True)
    for _ in range(2):
        for a, b in zip(*step(), strict=True):
            assert_same_bits(a, b, "second gradient")
    one = make_step(problem, "everything", dtype, save, True, in_function)()
    for a, b in zip(step()[0], one, strict=True):
        assert_same_bits(a, b, "persistent and plain tape")


def test_saving_and_recomputing_give_equal_bits():
    for dtype, in_function in itertools.product(DTYPES, (False, True)):
        problem = draw_problem(6, batch=8, steps=7, units=33, mask="left")
        kept, again = (
            make_step(problem, "everything", dtype, save, True, in_function)()
            for save in (True, False)
        )
        for a, b in zip(kept, again, strict=True):
            assert_same_bits(a, b, "recomputed")


def test_tape_outside_a_function():
    """The tape is eager, the forward pass is in a graph."""
    problem = draw_problem(7, batch=4, steps=3, units=10, mask="random")
    arguments = forward_arguments(problem, np.float64)
    sources = {n: arguments.pop(n) for n in INPUTS}
    forward = tf.function(lambda **s: FORWARD(**s, **arguments).outputs[0])
    for _ in range(2):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(list(sources.values()))
            total = tf.reduce_sum(forward(**sources) * problem.grad_outputs)
        first = tape.gradient(total, list(sources.values()))
        second = tape.gradient(total, list(sources.values()))
        expected = expected_gradients(problem, "outputs")
        for a, b, name in zip(first, second, INPUTS, strict=True):
            assert_same_bits(a, b, name)
            assert_close(a, expected[name], tolerance_of(problem, np.float64), name)


def test_saved_values_survive_the_gradient():
    """In a graph the gradient may not write over what the user still reads."""
    problem = draw_problem(8, batch=6, steps=5, units=12)
    arguments = forward_arguments(problem, np.float64)
    sources = [arguments[n] for n in INPUTS]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            tape.watch(sources)
            found = FORWARD(**arguments)
            total = tf.reduce_sum(found.outputs[0] * problem.grad_outputs)
        gradients = tape.gradient(total, sources)
        with tf.control_dependencies(gradients):
            return [tf.identity(v) for v in (*found.gates, *found.outputs)], gradients

    kept, _ = step()
    alone = FORWARD(**arguments)
    assert_same_bits(kept[0], alone.gates[0], "gates")
    assert_same_bits(kept[1], alone.outputs[0], "outputs")


def test_masked_infinities_reach_no_gradient():
    clean = draw_problem(9, batch=8, steps=5, units=11, mask="random")
    for bad, save, in_function in itertools.product(
        (np.nan, np.inf), (True, False), (False, True)
    ):
        gates = np.where(clean.mask[..., None], clean.gates_x, bad)
        poisoned = make_step(
            replace(clean, gates_x=gates),
            "everything",
            np.float64,
            save,
            True,
            in_function,
        )()
        expected = expected_gradients(clean, "everything").items()
        for value, (name, wanted) in zip(poisoned, expected, strict=True):
            assert_close(value, wanted, tolerance_of(clean, np.float64), name, True)
