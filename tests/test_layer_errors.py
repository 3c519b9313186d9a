"""Bad arguments and inputs of tf_ecornn.LSTM: an error each, never a result."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
from layer_pairs import (
    BATCH,
    FEATURES,
    STEPS,
    UNITS,
    assert_equal,
    draw_inputs,
    draw_layer_mask,
    draw_states,
    make_pair,
)

ERRORS = (ValueError, tf.errors.InvalidArgumentError)


@pytest.mark.parametrize("units", (0, -1, 2.5, "8", None, [3], np.float32(4)))
def test_units(units):
    with pytest.raises((ValueError, TypeError), match=re.escape(repr(units))):
        tf_ecornn.LSTM(units)


@pytest.mark.parametrize("options", ({"activation": "no such"}, {"use_cudnn": 3}))
def test_other_arguments_are_keras_errors(options):
    with pytest.raises(ValueError):
        tf_ecornn.LSTM(UNITS, **options)
    with pytest.raises((ValueError, TypeError)):
        tf_ecornn.LSTM(UNITS, no_such_argument=1)


def stock_error(call):
    """The stock layer's error of the same call."""
    with pytest.raises(Exception) as caught:
        call(keras.layers.LSTM(UNITS, dtype="float64"))
    return caught


@pytest.mark.parametrize("shape", ((3,), (BATCH, STEPS), (2, BATCH, STEPS, FEATURES)))
def test_rank_of_the_input(shape):
    for call in (
        lambda layer: layer(tf.zeros(shape, tf.float64)),
        lambda layer: layer(keras.Input(batch_shape=shape)),
    ):
        with pytest.raises(ValueError) as caught:
            call(tf_ecornn.LSTM(UNITS, dtype="float64"))
        wanted = str(stock_error(call).value)
        number = re.compile(r"_\d+")
        assert number.sub("", str(caught.value)) == number.sub("", wanted)
        assert "ndim=3" in str(caught.value)


def test_features_other_than_built():
    _, ours = make_pair(features=13)
    for wrong in (2, 12, 14, 26):
        for call in (ours, tf.function(ours)):
            with pytest.raises(ERRORS):
                call(draw_inputs(features=wrong))


MASKS = [
    (BATCH, STEPS - 1),
    (BATCH, STEPS + 1),
    (BATCH + 1, STEPS),
    (BATCH - 1, STEPS),
    (STEPS, BATCH),
    (1, STEPS),
    (BATCH, 1),
    (STEPS,),
    (BATCH,),
    (BATCH, STEPS, UNITS),
    (BATCH, STEPS, FEATURES),
    (BATCH, STEPS, 1, 1),
]


@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_mask_shape_known(shape):
    for sequences in (False, True):
        _, ours = make_pair(return_sequences=sequences)
        for call in (ours, tf.function(ours)):
            with pytest.raises(ERRORS, match="mask"):
                call(draw_inputs(), mask=tf.ones(shape, tf.bool))


@pytest.mark.parametrize("shape", [m for m in MASKS if len(m) == 2], ids=str)
def test_mask_shape_known_only_at_run_time(shape):
    _, ours = make_pair(return_sequences=True)

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None, FEATURES), tf.float64),
            tf.TensorSpec((None, None), tf.bool),
        ]
    )
    def traced(x, mask):
        return ours(x, mask=mask)

    traced(draw_inputs(), draw_layer_mask("random"))
    with pytest.raises(tf.errors.InvalidArgumentError):
        traced(draw_inputs(), tf.ones(shape, tf.bool))


@pytest.mark.parametrize(("batch", "steps"), [(1, STEPS), (BATCH, 1), (1, 1)])
def test_input_of_size_one_is_not_stretched_to_the_mask(batch, steps):
    """B = 1 or T = 1 must not broadcast, known or not while tracing."""
    _, ours = make_pair(return_sequences=True)
    mask = draw_layer_mask("random")

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None, FEATURES), tf.float64),
            tf.TensorSpec((None, None), tf.bool),
        ]
    )
    def traced(x, mask):
        return ours(x, mask=mask)

    for call in (lambda x, mask: ours(x, mask=mask), traced):
        with pytest.raises(ERRORS):
            call(draw_inputs(batch=batch, steps=steps), mask)


STATES = [
    [(BATCH + 1, UNITS), (BATCH + 1, UNITS)],
    [(1, UNITS), (1, UNITS)],
    [(BATCH, UNITS + 1), (BATCH, UNITS)],
    [(BATCH, UNITS), (BATCH, UNITS - 1)],
    [(4, BATCH, UNITS), (4, BATCH, UNITS)],
    [(UNITS,), (UNITS,)],
    [(BATCH, UNITS)],
]


@pytest.mark.parametrize("shapes", STATES, ids=str)
def test_initial_state_shape(shapes):
    _, ours = make_pair()
    states = [tf.zeros(shape, tf.float64) for shape in shapes]
    for call in (ours, tf.function(ours)):
        with pytest.raises(ERRORS):
            call(draw_inputs(), initial_state=states)


def test_stateful_with_another_batch():
    """One ValueError with both numbers; the layer still works after it."""
    layer = tf_ecornn.LSTM(UNITS, stateful=True, dtype="float64")
    layer.build((BATCH, None, FEATURES))
    expected = layer(draw_inputs())
    for batch in (1, BATCH - 1, 32):
        for call in (layer, tf.function(layer)):
            with pytest.raises(ValueError) as caught:
                call(draw_inputs(batch=batch))
            assert str(BATCH) in str(caught.value) and str(batch) in str(caught.value)
    layer.reset_state()
    assert_equal(layer(draw_inputs()), expected, "after refused batches")


def test_stateful_with_another_batch_known_only_at_run_time():
    layer = tf_ecornn.LSTM(UNITS, stateful=True, dtype="float64")
    layer.build((BATCH, None, FEATURES))

    @tf.function(input_signature=[tf.TensorSpec((None, None, FEATURES), tf.float64)])
    def traced(x):
        return layer(x)

    traced(draw_inputs())
    with pytest.raises(tf.errors.InvalidArgumentError):
        traced(draw_inputs(batch=BATCH + 1))


def test_stateful_needs_a_known_batch():
    with pytest.raises(ValueError, match="batch size"):
        tf_ecornn.LSTM(UNITS, stateful=True)(keras.Input((STEPS, FEATURES)))


def test_states_of_any_batch_on_a_layer_that_is_not_stateful():
    stock, ours = make_pair(return_state=True)
    for batch in (1, 3, 9):
        x, states = draw_inputs(batch=batch), draw_states(batch=batch)
        for a, e in zip(
            ours(x, initial_state=states), stock(x, initial_state=states), strict=True
        ):
            assert_equal(a, e, f"batch {batch}")


def test_unroll_needs_a_known_length():
    layer = tf_ecornn.LSTM(UNITS, unroll=True, dtype="float64")
    signature = [tf.TensorSpec((None, None, FEATURES), tf.float64)]
    with pytest.raises(ValueError, match="unroll"):
        tf.function(lambda x: layer(x), input_signature=signature)(draw_inputs())
