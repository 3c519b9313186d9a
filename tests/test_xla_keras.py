"""Keras models under `jit_compile=True`."""

from functools import partial

import keras
import numpy as np
import pytest

import tf_ecornn
from helpers import needs_xla
from tf_ecornn import _library, gpu

pytestmark = needs_xla

T, F = 9, 5


def test_supports_jit(monkeypatch):
    layers = (
        tf_ecornn.LSTM(2),
        tf_ecornn.GRU(2),
        tf_ecornn.LSTMCell(2),
        tf_ecornn.GRUCell(2),
        tf_ecornn.RNN([tf_ecornn.LSTMCell(2), keras.layers.GRUCell(2)]),
    )
    assert all(layer.supports_jit for layer in layers)
    model = keras.Sequential([keras.Input((T, F)), *layers[:1]])
    for given, expected in (("auto", False), (True, True), (False, False)):
        model.compile("sgd", "mse", jit_compile=given)
        assert model.jit_compile == expected
    # Where a GPU runs the ops, no XLA kernels of theirs exist.
    monkeypatch.setattr(gpu, "visible", lambda: True)
    monkeypatch.setattr(gpu, "stock_reason", lambda: None)
    assert tf_ecornn.LSTM(2).fused and not tf_ecornn.LSTM(2).supports_jit
    assert not tf_ecornn.GRUCell(2).supports_jit
    monkeypatch.undo()
    monkeypatch.setattr(_library, "has_xla", lambda: False)
    assert not tf_ecornn.GRUCell(2).supports_jit
    model = keras.Sequential([keras.Input((T, F)), tf_ecornn.LSTM(2)])
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        model.compile("sgd", "mse", jit_compile=True)
    assert not model.jit_compile


def small_model():
    """Several layers and wrappers, masks, both forms of the GRU, a shared state."""
    inputs = keras.Input((None, F))
    x = keras.layers.Masking()(inputs)
    x = keras.layers.Bidirectional(tf_ecornn.LSTM(6, return_sequences=True))(x)
    x, state = tf_ecornn.GRU(4, return_sequences=True, return_state=True)(x)
    x = tf_ecornn.GRU(4, reset_after=False, go_backwards=True)(x, initial_state=state)
    return keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(x))


def stateful_model():
    return keras.Sequential(
        [
            keras.Input(batch_shape=(8, T, F)),
            tf_ecornn.LSTM(6, stateful=True, return_sequences=True),
            tf_ecornn.GRU(4, stateful=True),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )


def fit(make, jit, x, y, policy="float32"):
    """Losses, weights and predictions after some steps."""
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(policy)
    try:
        model = make()
    finally:
        keras.config.set_dtype_policy("float32")
    model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=jit)
    assert model.jit_compile == jit
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    predictions = model.predict(x, batch_size=8, verbose=0)
    return history.history["loss"], model.get_weights(), predictions


def draw_data():
    """Inputs, the last steps of which are masked here and there, and targets."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(24, T, F)).astype("float32")
    x[:, 6:] *= rng.integers(0, 2, (24, T - 6, 1))
    return x, rng.normal(size=(24, 1)).astype("float32")


def assert_fits_equal(actual, expected, tolerance):
    compare = partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance)
    keras.tree.map_structure(compare, actual, expected)


@pytest.mark.parametrize(
    ("make", "policy", "tolerance"),
    [
        (small_model, "float32", 1e-5),
        (small_model, "mixed_float16", 1e-2),
        (stateful_model, "float32", 1e-5),
    ],
)
def test_fit_with_and_without(make, policy, tolerance, fused_calls):
    x, y = draw_data()
    expected = fit(make, False, x, y, policy)
    calls = fused_calls()
    actual = fit(make, True, x, y, policy)
    assert calls > 0 and fused_calls() == 2 * calls
    assert_fits_equal(actual, expected, tolerance)


def test_dropout_masks_are_the_stock_layers(fused_calls):
    """XLA draws other numbers than TensorFlow, the same ones for both."""
    x, y = draw_data()
    losses = []
    for make in (keras.layers.LSTM, tf_ecornn.LSTM):
        keras.utils.set_random_seed(5)
        layer = make(4, dropout=0.3, recurrent_dropout=0.4, seed=1)
        model = keras.Sequential([keras.Input((T, F)), layer, keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=True)
        before = fused_calls()
        losses.append([model.train_on_batch(x, y) for _ in range(3)])
        assert (fused_calls() - before == 6) == (make is tf_ecornn.LSTM)
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert len(set(losses[0])) == 3
