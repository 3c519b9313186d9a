"""Gradients of gradients, against stock Keras and a plain unrolled statement."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
import unrolled
from layer_pairs import (
    KINDS,
    assert_equal,
    copy_weights,
    draw_inputs,
    draw_layer_mask,
    draw_states,
    make_pair,
    random_weights,
    tensors_of,
    weigh,
)
from problems import CELLS, draw_problem, draw_tame
from tf_ecornn import _library

# The bar: what stock gives in float64.
TOLERANCE = 1e-8


def total(found):
    """A number in which every result counts, not linearly."""
    return tf.add_n([tf.reduce_sum(tf.sin(weigh(i, v))) for i, v in enumerate(found)])


def squares(gradients):
    """A number in which every gradient counts with its square."""
    products = [tf.reduce_sum(weigh(i, g * g)) for i, g in enumerate(gradients)]
    return tf.add_n(products)


def second(call, sources):
    """Gradients of a sum over all gradients of a sum over all results."""
    with tf.GradientTape() as outer:
        outer.watch(sources)
        with tf.GradientTape() as inner:
            inner.watch(sources)
            value = total(call())
        first = inner.gradient(value, sources, unconnected_gradients="zero")
        loss = squares(first)
    return outer.gradient(loss, sources, unconnected_gradients="zero")


def assert_all_equal(actual, expected, tolerance=TOLERANCE):
    assert len(actual) == len(expected)
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert_equal(a, e, f"second derivative {number}", tolerance)
    assert any(np.abs(e).max(initial=0.0) > 0.0 for e in expected), "all zero"


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
    problem = draw_tame(
        cell,
        seed=1,
        margin=1e-3,
        batch=2,
        steps=3,
        units=4,
        features=2,
        activation=name,
        recurrent_activation=name,
        scale=0.7,
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


@pytest.fixture(scope="module", params=CELLS)
def problem(request):
    return draw_problem(request.param, 7, batch=3, steps=4, units=5, features=3)


def around_a_function(call, sources, persistent=False):
    """Eager tapes around a traced forward pass."""
    traced = tf.function(lambda: total(call()))
    with tf.GradientTape(persistent=persistent) as outer:
        outer.watch(sources)
        with tf.GradientTape() as inner:
            inner.watch(sources)
            value = traced()
        loss = squares(inner.gradient(value, sources))
    return outer.gradient(loss, sources, unconnected_gradients="zero")


def by_tf_gradients(call, sources):
    @tf.function
    def traced():
        first = tf.gradients(total(call()), sources)
        return tf.gradients(squares(first), sources, unconnected_gradients="zero")

    return traced()


def in_nested_functions(call, sources):
    traced = tf.function(lambda: total(call()))

    @tf.function
    def outer():
        return second(lambda: [traced()], sources)

    return outer()


def in_a_loop(call, sources):
    """The forward pass in a `tf.while_loop`, both gradients around it."""

    @tf.function
    def traced():
        def looped():
            value = tf.zeros((), tf.float64)
            for _ in tf.range(2):
                value += total(call())
            return [value]

        return second(looped, sources)

    return traced()


ROUTES = {
    "eager": second,
    "graph": lambda call, sources: tf.function(lambda: second(call, sources))(),
    "around a function": around_a_function,
    "persistent tape": lambda call, sources: around_a_function(call, sources, True),
    "nested functions": in_nested_functions,
    "tf.gradients": by_tf_gradients,
    "loop": in_a_loop,
}


@pytest.mark.parametrize("route", ROUTES)
def test_routes(problem, route):
    def found(function):
        given = unrolled.tensors(problem)
        return ROUTES[route](lambda: function(problem, given), list(given.values()))

    assert_all_equal(found(unrolled.ours), found(unrolled.run))
