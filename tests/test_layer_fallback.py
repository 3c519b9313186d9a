"""What the op does not do: the stock loop, said once; and what `explain` tells."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
from layer_pairs import (
    UNITS,
    assert_same_results,
    draw_inputs,
    draw_layer_mask,
    make_pair,
)
from tf_ecornn import fused_cell


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch):
    """Each test starts like a new process: every reason is still unsaid."""
    monkeypatch.setattr(fused_cell, "_said", set())


def mish_of_our_own(x):
    return x * tf.tanh(tf.math.softplus(x))


def said(call):
    """Texts of tf_ecornn's warnings during a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in caught if "tf_ecornn" in str(w.message)]


def calls_twice(layer, dtype="float64"):
    x = tf.cast(draw_inputs(), dtype)

    def call():
        layer(x)
        layer(x)
        tf.function(layer)(x)

    return call


@pytest.mark.parametrize("place", ("activation", "recurrent_activation"))
def test_unknown_callable(place, fused_calls):
    stock, ours = make_pair(**{place: mish_of_our_own}, return_sequences=True)
    messages = said(calls_twice(ours))
    assert len(messages) == 1, messages
    assert place in messages[0] and "mish_of_our_own" in messages[0]
    assert not ours.fused
    for mask in ("none", "random"):
        assert_same_results(stock, ours, draw_inputs(), mask=draw_layer_mask(mask))
    assert fused_calls() == 0


def test_keras_function_that_is_not_on_the_list(fused_calls):
    stock, ours = make_pair(activation="mish")
    messages = said(calls_twice(ours))
    assert len(messages) == 1 and "activation" in messages[0]
    assert_same_results(stock, ours, draw_inputs())
    assert fused_calls() == 0 and not ours.fused


@pytest.mark.parametrize("policy", ("mixed_float16", "mixed_bfloat16", "float16"))
def test_half_precision(policy, fused_calls):
    """Fused, or the stock loop and said; near the float64 layer either way."""
    ours = tf_ecornn.LSTM(UNITS, dtype=policy)
    dtype = tf.as_dtype(ours.compute_dtype)
    messages = said(calls_twice(ours, dtype))
    if ours.fused:
        assert messages == [] and fused_calls() == 3
    else:
        assert len(messages) == 1 and dtype.name in messages[0]
        assert fused_calls() == 0
    exact, _ = make_pair()
    exact.set_weights([w.astype("float64") for w in ours.get_weights()])
    x = tf.cast(draw_inputs(), dtype)
    output = ours(x)
    assert output.dtype == dtype
    np.testing.assert_allclose(
        tf.cast(output, tf.float64),
        exact(tf.cast(x, tf.float64)),
        atol=8.0 * (2.0**-10 if dtype == tf.float16 else 2.0**-7),
    )


def test_fused_layers_say_nothing(fused_calls):
    for options in (
        {},
        {"dropout": 0.2, "recurrent_dropout": 0.2},
        {"go_backwards": True, "unroll": True},
        {"use_bias": False, "activation": None},
    ):
        _, ours = make_pair(**options)
        assert said(calls_twice(ours)) == []
        assert ours.fused
    assert fused_calls() == 12


def test_several_layers_say_one_reason_once_and_each_reason(fused_calls):
    first = make_pair(activation=mish_of_our_own)[1]
    second = make_pair(activation=mish_of_our_own)[1]
    other = make_pair(activation="mish")[1]

    def call():
        for layer in (first, second, other):
            layer(draw_inputs())

    messages = said(call)
    assert len(messages) == 2, messages
    assert fused_calls() == 0


def test_gpu_without_kernels_takes_the_stock_path(monkeypatch, fused_calls):
    """TensorFlow sees a GPU (faked), the library has no CUDA kernels."""
    stock, ours = make_pair(return_sequences=True)
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")

    def faked(real):
        def listed(device_type=None):
            found = list(real(device_type))
            return found + [gpu] if device_type in (None, "GPU") else found

        return listed

    for name in ("list_physical_devices", "get_visible_devices"):
        monkeypatch.setattr(tf.config, name, faked(getattr(tf.config, name)))
    monkeypatch.setattr(fused_cell._library, "has_cuda", lambda: False)
    messages = said(calls_twice(ours))
    assert len(messages) == 1, messages
    assert "GPU" in messages[0] and "CUDA" in messages[0]
    assert not ours.fused and fused_calls() == 0
    assert "GPU" in tf_ecornn.explain(ours)[0].reason
    assert_same_results(stock, ours, draw_inputs())
    monkeypatch.undo()
    assert ours.fused
    assert_same_results(stock, ours, draw_inputs())
    assert fused_calls() > 0


def test_jit_compile_of_a_model():
    """ "auto" just works; an explicit True works or says one clear thing."""
    x, y = draw_inputs().numpy(), np.ones((4, 1))
    for jit in ("auto", False, True):
        model = keras.Sequential([tf_ecornn.LSTM(UNITS), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=jit)
        try:
            assert np.isfinite(model.fit(x, y, verbose=0).history["loss"][0])
        except Exception as error:
            assert jit is True and "jit" in str(error).lower(), error


# explain ----------------------------------------------------------------------


def test_explain_lists_every_recurrent_layer():
    x = keras.Input((None, 3))
    inner = keras.Sequential(
        [tf_ecornn.LSTM(2, return_sequences=True, name="nested")], name="inner"
    )
    y = tf_ecornn.LSTM(4, return_sequences=True, name="first")(x)
    y = inner(y)
    y = keras.layers.Bidirectional(
        tf_ecornn.LSTM(3, return_sequences=True, name="both"), name="wrapped"
    )(y)
    y = tf_ecornn.LSTM(
        3, activation=mish_of_our_own, return_sequences=True, name="unfused"
    )(y)
    y = keras.layers.LSTM(3, return_sequences=True, name="stock")(y)
    y = keras.layers.GRU(3, name="gated")(y)
    model = keras.Model(x, keras.layers.Dense(1)(y))

    rows = tf_ecornn.explain(model)
    assert isinstance(rows, list) and len(rows) == 7
    named = {row.name: row for row in rows}
    found = {
        key: next(row for name, row in named.items() if key in name)
        for key in ("first", "nested", "forward", "backward", "unfused", "stock")
    }
    for key in ("first", "nested", "forward", "backward"):
        assert found[key].fused and not found[key].reason
        assert found[key].kind == "tf_ecornn.LSTM"
    assert "wrapped" in found["forward"].name
    assert not found["unfused"].fused
    assert "mish_of_our_own" in found["unfused"].reason
    assert not found["stock"].fused and "keras" in found["stock"].kind
    table = str(rows)
    for row in rows:
        line = next(t for t in table.splitlines() if t.startswith(row.name + " "))
        assert row.kind in line and row.reason in line
    assert repr(rows) == table


def test_explain_of_one_layer_and_of_none():
    (row,) = tf_ecornn.explain(tf_ecornn.LSTM(3))
    assert row.fused
    assert len(tf_ecornn.explain(keras.layers.Dense(1))) == 0
    assert str(tf_ecornn.explain(keras.Sequential([keras.layers.Dense(1)])))
    for value in (None, 3, "model"):
        with pytest.raises(TypeError, match="model"):
            tf_ecornn.explain(value)


def test_explain_lists_a_shared_layer_once():
    x = keras.Input((None, 3))
    layer = tf_ecornn.LSTM(3, return_sequences=True)
    model = keras.Model(x, layer(layer(x)))
    assert len(tf_ecornn.explain(model)) == 1
