"""tf_ecornn.LSTM and GRU against Keras's in float64, option by option."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from layer_pairs import (
    BATCH,
    FEATURES,
    FLOAT32_CONSTANTS,
    KINDS,
    STEPS,
    UNITS,
    assert_equal,
    assert_same_results,
    draw_inputs,
    draw_layer_mask,
    draw_states,
    make_pair,
    results_of,
)
from problems import MASK_KINDS
from reference_activations import ACTIVATIONS

pytestmark = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize("mask", MASK_KINDS)
@pytest.mark.parametrize("zero", (False, True))
@pytest.mark.parametrize("backwards", (False, True))
def test_masks_and_directions(kind, mask, zero, backwards, fused_calls):
    for sequences, states in ((False, True), (True, False)):
        stock, ours = make_pair(
            kind=kind,
            return_sequences=sequences,
            return_state=True,
            go_backwards=backwards,
            zero_output_for_mask=zero,
        )
        before = fused_calls()
        assert_same_results(
            stock,
            ours,
            draw_inputs(),
            mask=draw_layer_mask(mask),
            states=draw_states(kind=kind) if states else None,
            training=True,
        )
        assert fused_calls() == before + 2
        assert ours.fused


@pytest.mark.parametrize("traced", (False, True))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_sequences": True},
        {"return_state": True},
        {"use_bias": False},
        {"unit_forget_bias": False},
        {"implementation": 1},
        {"implementation": 2},
        {"unroll": True},
        {"unroll": True, "go_backwards": True, "return_sequences": True},
        {"use_cudnn": False},
        {"activity_regularizer": "l2"},
        {"kernel_regularizer": "l2", "recurrent_constraint": "max_norm"},
        {"trainable": False},
    ],
    ids=str,
)
def test_options(kind, options, traced, fused_calls):
    if "unit_forget_bias" in options and kind != "lstm":
        pytest.skip("an option of the LSTM alone")
    stock, ours = make_pair(kind=kind, **options)
    assert_same_results(stock, ours, draw_inputs(), traced=traced)
    assert fused_calls() > 0 and ours.fused
    mask = draw_layer_mask("random")
    assert_same_results(stock, ours, draw_inputs(1), mask=mask, traced=traced)
    assert len(ours.losses) == len(stock.losses)
    if not traced:
        for a, b in zip(ours.losses, stock.losses, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_by_name(kind, name, fused_calls):
    tolerance = 2e-6 if name in FLOAT32_CONSTANTS else 1e-11
    for place in ("activation", "recurrent_activation"):
        other = {"activation": "softsign"} if place != "activation" else {}
        stock, ours = make_pair(kind=kind, scale=0.3, **{place: name}, **other)
        x = activation_inputs(name)
        assert_same_results(stock, ours, x, tolerance, training=True)
        assert ours.fused
    assert fused_calls() == 4


def activation_inputs(name):
    """Exponentials of exponentials overflow after a few steps."""
    return 0.3 * draw_inputs(steps=2) if name.startswith("exp") else draw_inputs()


ALIASES = {"exponential": ("exp",), "silu": ("swish",)}


def activation_functions():
    """The same functions from Keras, keras.ops and TensorFlow."""
    for name in sorted(ACTIVATIONS):
        for module in (keras.activations, keras.ops, tf.nn, tf.math, tf):
            for alias in (name, *ALIASES.get(name, ())):
                if callable(function := getattr(module, alias, None)):
                    yield pytest.param(function, id=f"{module.__name__}.{alias}")


@pytest.mark.parametrize("function", list(activation_functions()))
def test_activations_as_functions(kind, function):
    """Whatever path is taken, the result is the stock one."""
    x = activation_inputs(getattr(function, "__name__", ""))
    stock, ours = make_pair(kind=kind, scale=0.3, activation=function)
    assert_same_results(stock, ours, x, tolerance=2e-6)
    stock, ours = make_pair(
        kind=kind, scale=0.3, recurrent_activation=function, activation="softsign"
    )
    assert_same_results(stock, ours, x, tolerance=2e-6)


def test_common_functions_are_fused(kind, fused_calls):
    for function in (
        keras.activations.tanh,
        keras.ops.tanh,
        tf.tanh,
        tf.nn.tanh,
        keras.activations.sigmoid,
        keras.ops.sigmoid,
        tf.sigmoid,
        tf.nn.relu,
        keras.activations.relu,
        keras.activations.gelu,
    ):
        _, ours = make_pair(kind=kind, activation=function)
        ours(draw_inputs())
        assert ours.fused, function
    assert fused_calls() == 10


def test_no_activation_is_linear(kind, fused_calls):
    for place in ("activation", "recurrent_activation"):
        stock, ours = make_pair(kind=kind, return_state=True, **{place: None})
        assert_same_results(stock, ours, draw_inputs(), training=True)
    assert fused_calls() == 4


@pytest.mark.parametrize("implementation", (1, 2))
@pytest.mark.parametrize("traced", (False, True))
def test_dropout_with_the_same_seed(kind, implementation, traced, fused_calls):
    """Two calls in a row: the generator advances alike."""
    stock, ours = make_pair(
        kind=kind, dropout=0.4, seed=7, implementation=implementation
    )
    for mask in ("none", "random"):
        found, _ = assert_same_results(
            stock,
            ours,
            draw_inputs(),
            mask=draw_layer_mask(mask),
            training=True,
            traced=traced,
        )
    again, _ = results_of(ours, draw_inputs(), training=True)
    assert not np.array_equal(again[0], found[0])
    assert fused_calls() > 0 and ours.fused
    assert_same_results(stock, ours, draw_inputs(), training=False, traced=traced)


def test_dropout_masks_advance_between_calls_of_one_trace(kind):
    stock, ours = make_pair(kind=kind, dropout=0.5, seed=11)
    x = draw_inputs()
    found = []
    for layer in (stock, ours):
        traced = tf.function(lambda layer=layer: layer(x, training=True))
        found.append([traced().numpy() for _ in range(3)])
    for expected, actual in zip(*found, strict=True):
        assert_equal(actual, expected, "dropout in one trace")
    assert not np.array_equal(found[1][0], found[1][1])


@pytest.mark.parametrize("rate", (0.0, 1.0, 1.7, -0.3))
def test_dropout_rates_are_clipped_as_in_keras(kind, rate):
    stock, ours = make_pair(kind=kind, dropout=rate, seed=3)
    assert ours.dropout == stock.dropout
    assert_same_results(stock, ours, draw_inputs(), training=True)


@pytest.mark.parametrize("dropout", (0.0, 0.3))
@pytest.mark.parametrize("backwards", (False, True))
def test_recurrent_dropout_with_the_same_seed(kind, dropout, backwards):
    for mask in ("none", "left"):
        stock, ours = make_pair(
            kind=kind,
            dropout=dropout,
            recurrent_dropout=0.4,
            seed=5,
            return_sequences=True,
            return_state=True,
            go_backwards=backwards,
        )
        mask = draw_layer_mask(mask)
        for seed, training in ((0, True), (1, True), (0, False)):
            assert_same_results(
                stock, ours, draw_inputs(seed), mask=mask, training=training
            )


def test_recurrent_dropout_in_a_trace(kind):
    stock, ours = make_pair(kind=kind, recurrent_dropout=0.4, dropout=0.2, seed=5)
    mask = draw_layer_mask("random")
    assert_same_results(
        stock, ours, draw_inputs(), mask=mask, training=True, traced=True
    )


@pytest.mark.parametrize("form", ("int", "float", "list", "third_axis"))
def test_mask_in_other_forms(kind, form):
    mask = draw_layer_mask("random")
    given = {
        "int": tf.cast(mask, tf.int32),
        "float": tf.cast(mask, tf.float64),
        "list": [mask],
        "third_axis": mask[..., None],
    }[form]
    stock, ours = make_pair(kind=kind, return_sequences=True)
    expected = results_of(stock, draw_inputs(), mask=mask)
    actual = results_of(ours, draw_inputs(), mask=given)
    for a_list, e_list in zip(actual, expected, strict=True):
        for a, e in zip(a_list, e_list, strict=True):
            assert_equal(a, e, form)


@pytest.mark.parametrize("traced", (False, True))
def test_masked_nan_reaches_nothing(kind, traced):
    """Stock Keras on cleaned inputs is the oracle: it lets NaN into the weights."""
    for pattern, dropout in (("random", 0.4), ("all_off", 0.0)):
        stock, ours = make_pair(
            kind=kind, return_sequences=True, dropout=dropout, seed=2
        )
        mask = draw_layer_mask(pattern)
        x = draw_inputs()
        clean = tf.where(mask[..., None], x, 0.0)
        dirty = tf.where(mask[..., None], x, np.nan)
        call = {"mask": mask, "traced": traced, "training": True}
        expected = results_of(stock, clean, **call)
        actual = results_of(ours, dirty, **call)
        for a_list, e_list in zip(actual, expected, strict=True):
            for a, e in zip(a_list, e_list, strict=True):
                assert_equal(a, e, f"NaN under a {pattern} mask")


def test_zero_output_for_mask_set_after_construction(kind):
    for unroll in (False, True):
        stock, ours = make_pair(kind=kind, return_sequences=True, unroll=unroll)
        for value in (True, False):
            stock.zero_output_for_mask = ours.zero_output_for_mask = value
            mask = draw_layer_mask("random")
            assert_same_results(stock, ours, draw_inputs(), mask=mask)


def test_states_of_other_dtypes_are_cast(kind):
    stock, ours = make_pair(kind=kind, return_state=True)
    states = [tf.cast(s, tf.float32) for s in draw_states(kind=kind)]
    expected = stock(draw_inputs(), initial_state=states)
    for a, e in zip(ours(draw_inputs(), initial_state=states), expected, strict=True):
        assert_equal(a, e, "float32 states in a float64 layer")


def test_float32_layer_is_as_near_to_float64_as_stock(kind):
    """Ours in float32 against stock in float64, bounded by stock's own error."""
    rng = np.random.default_rng(1)
    weights = None
    for units, steps in ((16, 10), (40, 60)):
        x = rng.normal(size=(8, steps, 4)).astype(np.float32)
        outputs = {}
        for name, make, dtype in (
            ("exact", KINDS[kind].make_stock, "float64"),
            ("stock", KINDS[kind].make_stock, "float32"),
            ("ours", KINDS[kind].make_ours, "float32"),
        ):
            layer = make(units, return_sequences=True, dtype=dtype)
            layer.build((None, None, 4))
            if name == "exact":
                shapes = [w.shape for w in layer.get_weights()]
                weights = [(0.3 * rng.normal(size=s)).astype("f4") for s in shapes]
            layer.set_weights(weights)
            outputs[name] = layer(tf.cast(x, dtype)).numpy()
        errors = {
            n: np.abs(outputs[n] - outputs["exact"]).max() for n in ("stock", "ours")
        }
        assert errors["ours"] <= 3 * errors["stock"], errors


# The values that Keras's own tests pin.
GOLDEN = {
    "lstm": [
        ({}, [0.6288687, 0.86899155, 0.9460773]),
        ({"go_backwards": True}, [0.35622165, 0.74789524, 0.8872726]),
        ({"unit_forget_bias": False}, [0.57019705, 0.8661914, 0.9459622]),
        ({"use_bias": False}, [0.54986924, 0.86226785, 0.9443936]),
    ],
    "gru": [
        ({}, [0.5217289, 0.6371659, 0.39384964]),
    ],
    "gru_before": [],
}


@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("unroll", (False, True))
def test_golden_values(kind, dtype, unroll, fused_calls):
    for options, golden in GOLDEN[kind]:
        layer = KINDS[kind].make_ours(
            3,
            kernel_initializer=keras.initializers.Constant(0.01),
            recurrent_initializer=keras.initializers.Constant(0.02),
            bias_initializer=keras.initializers.Constant(0.03),
            dtype=dtype,
            unroll=unroll,
            **options,
        )
        output = layer(np.arange(72).reshape((3, 6, 4)).astype(dtype))
        np.testing.assert_allclose(output, np.tile(golden, (3, 1)).T, atol=1e-5)
    assert fused_calls() == len(GOLDEN[kind])


@pytest.mark.parametrize("sequences", (False, True))
def test_empty_batch(kind, sequences):
    """No rows: empty results, zero weight gradients. Stock fails here."""
    _, ours = make_pair(kind=kind, return_sequences=sequences, return_state=True)
    for traced in (False, True):
        found, gradients = results_of(ours, draw_inputs(batch=0), traced=traced)
        shape = (0, STEPS, UNITS) if sequences else (0, UNITS)
        assert [tuple(v.shape) for v in found] == [
            shape,
            *[(0, UNITS)] * KINDS[kind].states,
        ]
        assert gradients[0].shape == (0, STEPS, FEATURES)
        assert all(not np.any(g) for g in gradients[1:])


def test_row_alone_equals_row_in_the_batch(kind):
    stock, ours = make_pair(kind=kind, return_sequences=True)
    mask = draw_layer_mask("right")
    whole = ours(draw_inputs(), mask=mask).numpy()
    for row in range(BATCH):
        length = int(tf.reduce_sum(tf.cast(mask[row], tf.int32)))
        alone = stock(draw_inputs()[row : row + 1, :length])
        assert_equal(whole[row : row + 1, :length], alone, f"row {row}")
