"""tf_ecornn.gru: values and gradients against the reference."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import reference
import tf_ecornn
from helpers import DTYPES
from problems import MASK_KINDS, Tolerance, assert_close, draw_mask
from reference_activations import ACTIVATIONS

FLAGS = (False, True)
WEIGHTS = ("kernel", "recurrent_kernel", "bias")


def draw(seed, batch, steps, units, features=3, reset_after=True, scale=1.0):
    """Float64 arrays that float32 holds, by the names of the arguments."""
    rng = np.random.default_rng([seed, batch, steps, units])

    def normal(*shape, scale=1.0):
        return (scale * rng.normal(size=shape)).astype(np.float32).astype(np.float64)

    given = {
        "x": normal(batch, steps, features),
        "kernel": normal(features, 3 * units, scale=scale),
        "recurrent_kernel": normal(units, 3 * units, scale=0.8 * scale / units**0.5),
        "bias": normal(*((2,) if reset_after else ()), 3 * units, scale=0.5 * scale),
        "initial_state": normal(batch, units, scale=0.5),
    }
    loss = {
        "outputs": normal(batch, steps, units),
        "last": normal(batch, units),
        "h": normal(batch, units),
    }
    return given, loss, rng


def expected_results(given, loss, sequences, dropout, reset_after, names, options):
    cell = reference.GRUCell(
        given["recurrent_kernel"],
        given.get("bias"),
        *names,
        recurrent_dropout=dropout,
        reset_after=reset_after,
    )
    mask = options["mask"]
    forward = reference.run(
        cell,
        reference.project(given["x"], given["kernel"], mask),
        (given["initial_state"],),
        mask=mask,
        reset=options["reset"],
        reverse=options["go_backwards"],
        zero_output_for_mask=options["zero_output_for_mask"],
    )
    grads = reference.run_gradient(
        forward,
        loss["outputs"] if sequences else None,
        None if sequences else loss["last"],
        (loss["h"],),
    )
    d_x, d_kernel = reference.project_gradient(
        given["x"], given["kernel"], grads.gates_x, mask
    )
    gradients = {
        "x": d_x,
        "kernel": d_kernel,
        "recurrent_kernel": grads.recurrent_kernel,
        "initial_state": grads.states[0],
    }
    if "bias" in given:
        gradients["bias"] = grads.bias
    return forward, gradients


def check(
    seed,
    dtype,
    batch=5,
    steps=4,
    units=6,
    mask="none",
    reset=False,
    bias=True,
    dropout=False,
    reset_after=True,
    sequences=True,
    reverse=False,
    zero=False,
    traced=False,
    save=True,
    scale=1.0,
    names=("tanh", "sigmoid"),
):
    """Every result and every gradient, for a loss on output and state."""
    given, loss, rng = draw(seed, batch, steps, units, 3, reset_after, scale)
    if not bias:
        del given["bias"]
    keep = 2.0 * rng.integers(0, 2, (batch, 3, units)) if dropout else None
    options = {
        "mask": draw_mask(rng, mask, batch, steps),
        "reset": rng.random((batch, steps)) < 0.25 if reset else None,
        "go_backwards": reverse,
        "zero_output_for_mask": zero,
    }
    forward, expected = expected_results(
        given, loss, sequences, keep, reset_after, names, options
    )
    tensors = {n: tf.constant(v, dtype) for n, v in given.items()}
    weight = loss["outputs"] if sequences else loss["last"]

    def step():
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            found = tf_ecornn.gru(
                **tensors,
                **options,
                recurrent_dropout_mask=keep,
                activation=names[0],
                recurrent_activation=names[1],
                reset_after=reset_after,
                return_sequences=sequences,
                save_for_backward=save,
            )
            total = tf.reduce_sum(found.output * tf.cast(weight, dtype))
            total += tf.reduce_sum(found.h * tf.cast(loss["h"], dtype))
        return found, tape.gradient(total, tensors)

    found, gradients = (tf.function(step) if traced else step)()
    tolerance = Tolerance(np.dtype(dtype), units, steps, batch)
    output = forward.outputs if sequences else forward.last_output
    assert_close(found.output, output, tolerance, "output")
    assert_close(found.h, forward.states[0], tolerance, "h")
    assert gradients.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(gradients[name], value, tolerance, f"d {name}", name in WEIGHTS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reset_after", FLAGS)
@pytest.mark.parametrize("units", (1, 3, 4, 5, 8, 9, 15, 16, 17, 33, 64, 65, 130))
def test_sizes(units, reset_after, dtype):
    for batch, steps in ((1, 3), (2, 1), (6, 2), (7, 3), (13, 2), (37, 1)):
        check(1, dtype, batch, steps, units, reset_after=reset_after)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reset_after", FLAGS)
@pytest.mark.parametrize("mask", MASK_KINDS)
def test_options_in_combination(mask, reset_after, dtype):
    for reset, bias, dropout, reverse, zero in itertools.product(*(FLAGS,) * 5):
        check(
            2,
            dtype,
            units=17 if bias else 5,
            mask=mask,
            reset=reset,
            bias=bias,
            dropout=dropout,
            reset_after=reset_after,
            sequences=reverse != dropout,
            reverse=reverse,
            zero=zero,
        )


@pytest.mark.parametrize("reset_after", FLAGS)
@pytest.mark.parametrize("save", FLAGS)
def test_in_a_trace(save, reset_after):
    for mask, sequences in itertools.product(("none", "random"), FLAGS):
        check(
            3,
            np.float64,
            mask=mask,
            reset_after=reset_after,
            sequences=sequences,
            save=save,
            traced=True,
        )


@pytest.mark.parametrize("reset_after", FLAGS)
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations(name, reset_after):
    scale = 0.2 if name == "exponential" else 0.5
    for names in ((name, "sigmoid"), ("softsign", name)):
        check(4, np.float64, steps=2, reset_after=reset_after, scale=scale, names=names)


@pytest.mark.parametrize("reset_after", FLAGS)
@pytest.mark.parametrize(("batch", "steps"), [(0, 3), (3, 0), (0, 0)])
def test_empty_sizes(batch, steps, reset_after):
    for mask, traced in itertools.product(("none", "random"), FLAGS):
        check(
            5,
            np.float32,
            batch,
            steps,
            mask=mask,
            reset_after=reset_after,
            traced=traced,
        )
