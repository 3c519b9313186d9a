"""The registered gradients of the raw forward ops, eager and in graphs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import reference
from helpers import DTYPES, FORWARD, forward_arguments
from problems import (
    CELLS,
    assert_close,
    assert_same_bits,
    draw_problem,
    reference_forward,
    tolerance_of,
)

LOSSES = ("outputs", "last", "h", "c", "outputs+h+c", "last+h+c", "everything")
LISTS = ("bias", "recurrent_bias", "kernel")
pytestmark = pytest.mark.parametrize("cell", CELLS)


def loss_parts(problem, loss):
    """Which results a loss sums; a GRU has no c."""
    everything = ("outputs", "last", "h", "c")
    parts = everything if loss == "everything" else tuple(loss.split("+"))
    return tuple(p for p in parts if p != "c" or "c" in problem.states)


def sources_of(problem, arguments):
    """{name: tensor} of all that has a gradient."""
    names = ["x", "recurrent_kernel", *(f"initial_{s}" for s in problem.states)]
    found = {n: arguments[n] for n in names}
    return found | {n: arguments[n][0] for n in LISTS if arguments.get(n)}


def weighted(problem, parts, dtype):
    """(result name, weight) of each part of the loss."""
    weights = {
        "outputs": problem.grad_outputs,
        "last": problem.grad_last_output,
        "h": problem.grad_final_h,
        "c": problem.grad_final_c,
    }
    return {p: tf.constant(weights[p], dtype) for p in parts}


def make_step(
    problem, loss, dtype, save, outputs, in_function, persistent=False, joined=False
):
    """A function () -> gradients by name, from the raw op."""
    weights = weighted(problem, loss_parts(problem, loss), dtype)
    arguments = forward_arguments(problem, dtype, outputs, save, joined)
    sources = sources_of(problem, arguments)

    def step():
        with tf.GradientTape(persistent=persistent) as tape:
            tape.watch(sources)
            found = FORWARD[problem.cell](**arguments)
            results = {"last": found.last_output}
            for state in problem.states:
                results[state] = getattr(found, f"final_{state}")
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


def expected_gradients(problem, loss, joined=False):
    parts = loss_parts(problem, loss)
    grads = reference.run_gradient(
        reference_forward(problem),
        problem.grad_outputs if "outputs" in parts else None,
        problem.grad_last_output if "last" in parts else None,
        tuple(
            g if s in parts else None
            for s, g in zip(problem.states, problem.grad_final_states, strict=True)
        ),
    )
    found = {"x": grads.gates_x, "recurrent_kernel": grads.recurrent_kernel}
    for state, value in zip(problem.states, grads.states, strict=True):
        found[f"initial_{state}"] = value
    if problem.recurrent_bias is not None:
        found["bias"], found["recurrent_bias"] = grads.bias
    elif problem.bias is not None:
        found["bias"] = grads.bias
    if joined:
        found["x"], found["kernel"] = reference.project_gradient(
            problem.x, problem.kernel, grads.gates_x, problem.mask
        )
    return found


def check(problem, loss, dtype, save, outputs=None, in_function=False, joined=False):
    if outputs is None:
        outputs = "outputs" in loss_parts(problem, loss)
    actual = make_step(
        problem, loss, dtype, save, outputs, in_function, joined=joined
    )()
    tolerance = tolerance_of(problem, dtype)
    expected = expected_gradients(problem, loss, joined)
    assert actual.keys() == expected.keys()
    for name, wanted in expected.items():
        value = actual[name]
        assert value is not None, f"{name}: no gradient for a loss on {loss}"
        summed = name in ("recurrent_kernel", *LISTS)
        assert_close(value, wanted, tolerance, f"{name}, loss on {loss}", summed)


@pytest.mark.parametrize("in_function", (False, True))
@pytest.mark.parametrize("save", (True, False))
@pytest.mark.parametrize("loss", LOSSES)
def test_losses(cell, loss, save, in_function):
    if loss == "c" and cell != "lstm":
        pytest.skip("a GRU has no c")
    for mask, outputs in itertools.product(("none", "random"), (None, True)):
        problem = draw_problem(
            cell, 1, batch=7, steps=5, units=9, mask=mask, reset=True
        )
        check(problem, loss, np.float64, save, outputs, in_function)


@pytest.mark.parametrize("in_function", (False, True))
@pytest.mark.parametrize("save", (True, False))
def test_options(cell, save, in_function):
    for dtype, mask, bias, reverse, zero in itertools.product(
        DTYPES, ("none", "left"), *((False, True),) * 3
    ):
        problem = draw_problem(
            cell,
            2,
            mask=mask,
            bias=bias,
            reset=bias,
            dropout=zero,
            reverse=reverse,
            zero_output_for_mask=zero,
        )
        check(problem, "everything", dtype, save, in_function=in_function)


@pytest.mark.parametrize("in_function", (False, True))
@pytest.mark.parametrize("save", (True, False))
def test_kernel_inside_the_op(cell, save, in_function):
    """x unprojected: gradients of x and of both kernels."""
    for dtype, mask, features in itertools.product(
        DTYPES, ("none", "random"), (1, 4, 21)
    ):
        problem = draw_problem(
            cell, 10, 7, 4, 9, features, mask=mask, dropout=features == 4
        )
        problem = replace(problem, x=reference.clear_masked(problem.x, problem.mask))
        check(problem, "everything", dtype, save, in_function=in_function, joined=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_row_small_sizes_all_weights_move(cell, dtype):
    """B = 1, T = 5: no gradient of a weight may be zero."""
    problem = draw_problem(cell, 3, batch=1, steps=5, units=256)
    check(problem, "outputs", dtype, save=True)
    gradient = make_step(problem, "outputs", dtype, True, True, True)()
    for value in gradient.values():
        assert np.count_nonzero(value) > 0.99 * np.size(value)


@pytest.mark.parametrize("save", (True, False))
@pytest.mark.parametrize("in_function", (False, True))
@pytest.mark.parametrize(("batch", "steps"), [(0, 3), (3, 0), (0, 0)])
def test_empty(cell, batch, steps, in_function, save):
    problem = draw_problem(cell, 4, batch=batch, steps=steps, mask="random")
    check(problem, "everything", np.float32, save, in_function=in_function)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("save", (True, False))
@pytest.mark.parametrize("in_function", (False, True))
def test_asking_twice_gives_equal_bits(cell, dtype, save, in_function):
    problem = draw_problem(cell, 5, batch=9, steps=6, units=20, mask="random")
    step = make_step(problem, "everything", dtype, save, True, in_function, True)
    for _ in range(2):
        first, second = step()
        for name in first:
            assert_same_bits(first[name], second[name], f"second gradient, {name}")
    one = make_step(problem, "everything", dtype, save, True, in_function)()
    for name, value in step()[0].items():
        assert_same_bits(value, one[name], f"persistent and plain tape, {name}")


def test_saving_and_recomputing_give_equal_bits(cell):
    for dtype, in_function in itertools.product(DTYPES, (False, True)):
        problem = draw_problem(cell, 6, batch=8, steps=7, units=33, mask="left")
        kept, again = (
            make_step(problem, "everything", dtype, save, True, in_function)()
            for save in (True, False)
        )
        for name in kept:
            assert_same_bits(kept[name], again[name], f"recomputed, {name}")


def test_tape_outside_a_function(cell):
    """The tape is eager, the forward pass is in a graph."""
    problem = draw_problem(cell, 7, batch=4, steps=3, units=10, mask="random")
    arguments = forward_arguments(problem, np.float64)
    names = ["x", "recurrent_kernel", *(f"initial_{s}" for s in problem.states)]
    sources = {n: arguments.pop(n) for n in names}
    forward = tf.function(lambda **s: FORWARD[cell](**s, **arguments).outputs[0])
    for _ in range(2):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(list(sources.values()))
            total = tf.reduce_sum(forward(**sources) * problem.grad_outputs)
        first = tape.gradient(total, list(sources.values()))
        second = tape.gradient(total, list(sources.values()))
        expected = expected_gradients(problem, "outputs")
        for a, b, name in zip(first, second, names, strict=True):
            assert_same_bits(a, b, name)
            assert_close(a, expected[name], tolerance_of(problem, np.float64), name)


def test_saved_values_survive_the_gradient(cell):
    """In a graph the gradient may not write over what the user still reads."""
    problem = draw_problem(cell, 8, batch=6, steps=5, units=12)
    arguments = forward_arguments(problem, np.float64)
    sources = sources_of(problem, arguments)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            tape.watch(sources)
            found = FORWARD[cell](**arguments)
            total = tf.reduce_sum(found.outputs[0] * problem.grad_outputs)
        gradients = tape.gradient(total, sources)
        with tf.control_dependencies(list(gradients.values())):
            return [tf.identity(v) for v in (*found.gates, *found.outputs)], gradients

    kept, _ = step()
    alone = FORWARD[cell](**arguments)
    assert_same_bits(kept[0], alone.gates[0], "gates")
    assert_same_bits(kept[1], alone.outputs[0], "outputs")


def test_masked_infinities_reach_no_gradient(cell):
    clean = draw_problem(cell, 9, batch=8, steps=5, units=11, mask="random")
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
        for name, wanted in expected_gradients(clean, "everything").items():
            assert_close(
                poisoned[name], wanted, tolerance_of(clean, np.float64), name, True
            )
