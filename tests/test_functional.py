"""tf_ecornn.lstm: values and gradients against the reference."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
from functional_calls import (
    call,
    check,
    draw,
    expected_gradients,
    results,
    tensors,
    total_of,
)
from helpers import DTYPES
from problems import (
    MASK_KINDS,
    assert_close,
    assert_same_bits,
    reference_forward,
    tolerance_of,
)

LOSSES = ("output", "h", "c", "output+h+c")


@pytest.mark.parametrize("traced", (False, True))
@pytest.mark.parametrize("sequences", (False, True))
@pytest.mark.parametrize("loss", LOSSES)
def test_losses(loss, sequences, traced):
    for mask, save in itertools.product(("none", "random"), (True, False)):
        problem = draw(1, batch=7, steps=6, units=9, mask=mask)
        check(
            problem,
            np.float64,
            loss,
            sequences,
            traced,
            save_for_backward=save,
        )


@pytest.mark.parametrize("mask", MASK_KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_options_in_combination(dtype, mask):
    for reset, bias, reverse, zero, sequences in itertools.product(
        *((False, True),) * 5
    ):
        problem = draw(
            2,
            batch=6,
            steps=5,
            units=7,
            mask=mask,
            reset=reset,
            bias=bias,
            dropout=bias,
            reverse=reverse,
            zero_output_for_mask=zero,
        )
        check(problem, dtype, sequences=sequences)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("traced", (False, True))
@pytest.mark.parametrize(
    ("batch", "steps", "features", "units"),
    [(1, 1, 1, 1), (1, 5, 128, 256), (13, 7, 1, 31), (33, 3, 70, 65), (2, 60, 5, 12)],
)
def test_sizes(batch, steps, features, units, traced, dtype):
    problem = draw(3, features=features, batch=batch, steps=steps, units=units)
    check(problem, dtype, "output", traced=traced)
    check(problem, dtype, "output", sequences=False, traced=traced)


@pytest.mark.parametrize("traced", (False, True))
@pytest.mark.parametrize("save", (True, False))
@pytest.mark.parametrize(("batch", "steps"), [(0, 3), (3, 0), (0, 0)])
def test_empty_sizes(batch, steps, save, traced):
    for mask, sequences in itertools.product(("none", "random"), (False, True)):
        problem = draw(4, batch=batch, steps=steps, mask=mask, reset=True)
        check(
            problem,
            np.float32,
            sequences=sequences,
            traced=traced,
            save_for_backward=save,
        )


def test_what_is_left_out():
    """Only the three arguments that are needed: zero states, no bias."""
    problem = replace(
        draw(5, bias=False), initial_h=np.zeros((5, 6)), initial_c=np.zeros((5, 6))
    )
    given = tensors(problem, np.float64)
    found = tf_ecornn.lstm(given["x"], given["kernel"], given["recurrent_kernel"])
    expected = reference_forward(problem)
    tolerance = tolerance_of(problem, np.float64)
    assert type(found).__name__ == "LSTMOutput"
    assert found._fields == ("output", "h", "c")
    assert_close(found.output, expected.last_output, tolerance, "output")
    assert_close(found.h, expected.states[0], tolerance, "h")
    assert_close(found.c, expected.states[1], tolerance, "c")


def test_numpy_arrays_and_variables():
    problem = draw(6, mask="random")
    expected = reference_forward(problem).outputs
    given = {n: v.numpy() for n, v in tensors(problem, np.float32).items()}
    found = tf_ecornn.lstm(
        given["x"],
        tf.Variable(given["kernel"]),
        tf.Variable(given["recurrent_kernel"]),
        tf.Variable(given["bias"]),
        initial_state=[given["initial_h"], given["initial_c"]],
        mask=problem.mask,
        return_sequences=True,
    )
    assert_close(found.output, expected, tolerance_of(problem, np.float32), "output")


@pytest.mark.parametrize("traced", (False, True))
@pytest.mark.parametrize("bad", (np.nan, np.inf, -np.inf))
def test_masked_x_reaches_nothing(bad, traced):
    for mask, save, sequences in itertools.product(
        ("random", "right", "some_rows_off", "all_off"), (True, False), (True, False)
    ):
        clean = draw(7, batch=8, steps=5, units=11, mask=mask)
        x = np.where(clean.mask[..., None], clean.x, bad)
        found, gradients = results(replace(clean, x=x), sequences, save, traced)
        forward = reference_forward(clean)
        tolerance = tolerance_of(clean, np.float64)
        output = forward.outputs if sequences else forward.last_output
        assert_close(found.output, output, tolerance, "output")
        expected = expected_gradients(clean, forward, ("output", "h", "c"), sequences)
        for name, value in expected.items():
            assert_close(gradients[name], value, tolerance, f"d {name}", summed=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("traced", (False, True))
@pytest.mark.parametrize("save", (True, False))
def test_asking_twice_gives_equal_bits(save, traced, dtype):
    problem = draw(8, batch=9, steps=6, units=20, mask="random")
    given = tensors(problem, dtype)

    def step():
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(given)
            found = call(problem, given, True, save_for_backward=save)
            total = total_of(problem, found, ("output", "h", "c"), True, dtype)
        return tape.gradient(total, given), tape.gradient(total, given)

    first, second = (tf.function(step) if traced else step)()
    expected = expected_gradients(
        problem, reference_forward(problem), ("output", "h", "c"), True
    )
    for name, value in expected.items():
        assert_same_bits(first[name], second[name], name)
        assert_close(
            first[name], value, tolerance_of(problem, dtype), name, summed=True
        )
