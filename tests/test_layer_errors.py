"""Bad arguments and inputs of tf_ecornn.LSTM and GRU: an error each, never a result."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from layer_pairs import (
    BATCH,
    FEATURES,
    KINDS,
    STEPS,
    UNITS,
    assert_equal,
    draw_inputs,
    draw_layer_mask,
    draw_states,
    make_pair,
)

ERRORS = (ValueError, tf.errors.InvalidArgumentError)
pytestmark = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize("units", (0, -1, 2.5, "8", None, [3], np.float32(4)))
def test_units(kind, units):
    with pytest.raises((ValueError, TypeError), match=re.escape(repr(units))):
        KINDS[kind].make_ours(units)


@pytest.mark.parametrize("options", ({"activation": "no such"}, {"use_cudnn": 3}))
def test_other_arguments_are_keras_errors(kind, options):
    with pytest.raises(ValueError):
        KINDS[kind].make_ours(UNITS, **options)
    with pytest.raises((ValueError, TypeError)):
        KINDS[kind].make_ours(UNITS, no_such_argument=1)


def stock_error(kind, call):
    """The stock layer's error of the same call."""
    with pytest.raises(Exception) as caught:
        call(KINDS[kind].make_stock(UNITS, dtype="float64"))
    return caught


@pytest.mark.parametrize("shape", ((3,), (BATCH, STEPS), (2, BATCH, STEPS, FEATURES)))
def test_rank_of_the_input(kind, shape):
    for call in (
        lambda layer: layer(tf.zeros(shape, tf.float64)),
        lambda layer: layer(keras.Input(batch_shape=shape)),
    ):
        with pytest.raises(ValueError) as caught:
            call(KINDS[kind].make_ours(UNITS, dtype="float64"))
        wanted = str(stock_error(kind, call).value)
        number = re.compile(r"_\d+")
        assert number.sub("", str(caught.value)) == number.sub("", wanted)
        assert "ndim=3" in str(caught.value)


def test_complex_inputs(kind):
    layer = KINDS[kind].make_ours(UNITS)
    with pytest.raises(TypeError, match="complex64"):
        layer(tf.zeros((BATCH, STEPS, FEATURES), tf.complex64))


def test_features_other_than_built(kind):
    _, ours = make_pair(kind=kind, features=13)
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
def test_mask_shape_known(kind, shape):
    for sequences in (False, True):
        _, ours = make_pair(kind=kind, return_sequences=sequences)
        for call in (ours, tf.function(ours)):
            with pytest.raises(ERRORS, match="mask"):
                call(draw_inputs(), mask=tf.ones(shape, tf.bool))


@pytest.mark.parametrize("shape", [m for m in MASKS if len(m) == 2], ids=str)
def test_mask_shape_known_only_at_run_time(kind, shape):
    _, ours = make_pair(kind=kind, return_sequences=True)

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


@pytest.mark.parametrize("shape", [(STEPS, BATCH), (BATCH, STEPS + 1), (BATCH, 1)])
def test_mask_is_named_at_run_time(kind, shape):
    _, ours = make_pair(kind=kind)
    traced = tf.function(
        lambda x, mask: ours(x, mask=mask),
        input_signature=[
            tf.TensorSpec((None, None, FEATURES), tf.float64),
            tf.TensorSpec((None, None), tf.bool),
        ],
        autograph=False,
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="`?mask`? "):
        traced(draw_inputs(), tf.ones(shape, tf.bool))


@pytest.mark.parametrize(("batch", "steps"), [(1, STEPS), (BATCH, 1), (1, 1)])
def test_input_of_size_one_is_not_stretched_to_the_mask(kind, batch, steps):
    """B = 1 or T = 1 must not broadcast, known or not while tracing."""
    _, ours = make_pair(kind=kind, return_sequences=True)
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


# For a GRU, the first of each.
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
def test_initial_state_shape(kind, shapes):
    _, ours = make_pair(kind=kind)
    states = [tf.zeros(shape, tf.float64) for shape in shapes]
    if kind != "lstm":
        # Neither one good state nor none of them wrong.
        states = [s for s in states if s.shape != (BATCH, UNITS)][:1] or states * 2
    for call in (ours, tf.function(ours)):
        with pytest.raises(ERRORS):
            call(draw_inputs(), initial_state=states)


def test_stateful_with_another_batch(kind):
    """One ValueError with both numbers; the layer still works after it."""
    layer = KINDS[kind].make_ours(UNITS, stateful=True, dtype="float64")
    layer.build((BATCH, None, FEATURES))
    expected = layer(draw_inputs())
    for batch in (1, BATCH - 1, 32):
        for call in (layer, tf.function(layer)):
            with pytest.raises(ValueError) as caught:
                call(draw_inputs(batch=batch))
            assert str(BATCH) in str(caught.value) and str(batch) in str(caught.value)
    layer.reset_state()
    assert_equal(layer(draw_inputs()), expected, "after refused batches")


def test_stateful_with_another_batch_known_only_at_run_time(kind):
    layer = KINDS[kind].make_ours(UNITS, stateful=True, dtype="float64")
    layer.build((BATCH, None, FEATURES))

    @tf.function(input_signature=[tf.TensorSpec((None, None, FEATURES), tf.float64)])
    def traced(x):
        return layer(x)

    traced(draw_inputs())
    with pytest.raises(tf.errors.InvalidArgumentError):
        traced(draw_inputs(batch=BATCH + 1))


def test_stateful_needs_a_known_batch(kind):
    with pytest.raises(ValueError, match="batch size"):
        KINDS[kind].make_ours(UNITS, stateful=True)(keras.Input((STEPS, FEATURES)))


def test_states_of_any_batch_on_a_layer_that_is_not_stateful(kind):
    stock, ours = make_pair(kind=kind, return_state=True)
    for batch in (1, 3, 9):
        x, states = draw_inputs(batch=batch), draw_states(kind=kind, batch=batch)
        for a, e in zip(
            ours(x, initial_state=states), stock(x, initial_state=states), strict=True
        ):
            assert_equal(a, e, f"batch {batch}")


def test_unroll_needs_a_known_length(kind):
    layer = KINDS[kind].make_ours(UNITS, unroll=True, dtype="float64")
    signature = [tf.TensorSpec((None, None, FEATURES), tf.float64)]
    with pytest.raises(ValueError, match="unroll"):
        tf.function(lambda x: layer(x), input_signature=signature)(draw_inputs())
