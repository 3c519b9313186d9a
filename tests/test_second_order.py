"""Gradients of gradients, against stock Keras and a plain unrolled statement."""

import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
import unrolled
from layer_pairs import (
    KINDS,
    draw_inputs,
    draw_layer_mask,
    draw_states,
    make_pair,
    tensors_of,
)
from problems import CELLS, draw_problem, draw_tame
from second_derivatives import assert_all_equal, second

LAYERS = {
    "plain": {},
    "sequences": {"return_sequences": True, "return_state": True, "states": True},
    "backwards": {"return_sequences": True, "go_backwards": True},
    "no bias": {"use_bias": False},
    "wide": {"features": 70},
    "silu": {"activation": "silu", "recurrent_activation": "hard_sigmoid"},
    "masked": {"return_sequences": True, "mask": "random", "return_state": True},
    "zero outputs": {
        "return_sequences": True,
        "mask": "holes",
        "zero_output_for_mask": True,
    },
    "dropout": {"dropout": 0.3, "recurrent_dropout": 0.4, "seed": 5, "training": True},
    "all off": {"mask": "all_off", "states": True, "return_state": True},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_equal_stock(kind, name):
    options = dict(LAYERS[name])
    features = options.pop("features", 3)
    training = options.pop("training", False)
    mask = draw_layer_mask(options.pop("mask", "none"))
    states = draw_states(kind=kind) if options.pop("states", False) else []
    x = draw_inputs(features=features)

    def results(layer, traced=False):
        def step():
            call = {"initial_state": states} if states else {}
            return second(
                lambda: tf.nest.flatten(layer(x, mask=mask, training=training, **call)),
                [x, *states, *tensors_of(layer)],
            )

        return (tf.function(step) if traced else step)()

    def pair():
        return make_pair(kind=kind, features=features, unroll=True, **options)

    stock, ours = pair()
    assert ours.fused
    expected = results(stock)
    assert_all_equal(results(ours), expected)
    if name in ("plain", "masked"):
        assert_all_equal(results(pair()[1], traced=True), expected)


def both_second(problem):
    """Second derivatives by the ops, eager, and by the unrolled statement."""
    found = []
    for function in (unrolled.ours, unrolled.run):
        given = unrolled.tensors(problem)
        sources = list(given.values())

        def call(function=function, given=given):
            return function(problem, given)

        found.append(second(call, sources))
    return found


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", tf_ecornn.ACTIVATIONS)
def test_activations(cell, name):
    """In both places, off their kinks."""
    runs_away = name == "exponential"
    problem = draw_tame(
        cell,
        seed=1,
        margin=1e-3,
        batch=2,
        steps=2 if runs_away else 3,
        units=4,
        features=2,
        activation=name,
        recurrent_activation=name,
        scale=0.3 if runs_away else 0.7,
    )
    actual, expected = both_second(problem)
    assert_all_equal(actual, expected)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("seed", range(3))
def test_reset_masks_and_dropout(cell, seed):
    problem = draw_problem(
        cell,
        seed,
        features=3,
        mask=("none", "random", "left")[seed],
        reset=True,
        dropout=seed > 0,
        reverse=seed == 1,
        zero_output_for_mask=seed == 2,
        bias=seed < 2,
    )
    actual, expected = both_second(problem)
    assert_all_equal(actual, expected)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
def test_narrow_dtypes(cell, dtype):
    problem = draw_problem(cell, 4, features=3, scale=0.5)
    given = unrolled.tensors(problem)
    expected = second(lambda: unrolled.run(problem, given), list(given.values()))
    narrow = unrolled.tensors(problem, tf.as_dtype(dtype))
    actual = second(lambda: unrolled.ours(problem, narrow), list(narrow.values()))
    bound = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1}[dtype]
    for (name, a), e in zip(zip(narrow, actual, strict=True), expected, strict=True):
        assert a.dtype == dtype
        error = np.abs(tf.cast(a, tf.float64) - e).max() / np.abs(e).max()
        assert error < bound, f"{name}: off by {error:.1e}, relative to the largest"


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("batch, steps", ((0, 3), (2, 0)))
@pytest.mark.parametrize("traced", (False, True), ids=("eager", "graph"))
def test_empty_batches_and_sequences(cell, batch, steps, traced):
    problem = draw_problem(cell, 1, batch=batch, steps=steps, features=3)
    given = list(unrolled.tensors(problem).values())
    names = list(unrolled.tensors(problem))

    def step(*sources):
        def call():
            return unrolled.ours(problem, dict(zip(names, sources, strict=True)))

        return second(call, list(sources))

    if traced:
        signature = [
            tf.TensorSpec((None,) * len(g.shape), g.dtype)
            if name in ("x", "initial_h", "initial_c")
            else tf.TensorSpec(g.shape, g.dtype)
            for name, g in zip(names, given, strict=True)
        ]
        step = tf.function(step, input_signature=signature)
    found = step(*given)
    for name, slope, source in zip(names, found, given, strict=True):
        assert slope.shape == source.shape
        assert np.isfinite(slope).all(), name
        if "initial" not in name:
            # Of no steps or no rows.
            assert not np.any(slope), name
