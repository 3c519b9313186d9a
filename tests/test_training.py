"""Training: per-step losses of 50 steps equal to the stock layer's, in float64."""

import keras
import numpy as np
import pytest

import tf_ecornn
from layer_pairs import copy_weights

STEPS, BATCH, LENGTH, FEATURES = 50, 16, 10, 3


pytestmark = pytest.mark.usefixtures("float64_everywhere")


def classifier(lstm):
    """The model of the classification example."""
    return [lstm(12), keras.layers.Dense(1, activation="sigmoid")]


def masked_classifier(lstm):
    return [keras.layers.Masking(0.0), *classifier(lstm)]


def stacked(lstm):
    return [
        keras.layers.Masking(0.0),
        keras.layers.Bidirectional(lstm(5, return_sequences=True)),
        lstm(6, go_backwards=True, recurrent_activation="hard_sigmoid"),
        keras.layers.Dense(1, activation="sigmoid"),
    ]


def regularised(lstm):
    return [
        lstm(
            8,
            dropout=0.2,
            recurrent_dropout=0.1,
            seed=3,
            kernel_regularizer="l2",
            recurrent_constraint="max_norm",
        ),
        keras.layers.Dense(1, activation="sigmoid"),
    ]


def sequence_to_sequence(lstm):
    return [
        lstm(7, return_sequences=True, unroll=True, use_bias=False),
        keras.layers.TimeDistributed(keras.layers.Dense(1, activation="sigmoid")),
        keras.layers.Flatten(),
        keras.layers.Dense(1, activation="sigmoid"),
    ]


def compiled(layers, lstm):
    model = keras.Sequential([keras.Input((LENGTH, FEATURES)), *layers(lstm)])
    model.compile(keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy())
    return model


def draw_batches(seed=0):
    """50 batches; the label asks for the sum over the valid steps."""
    rng = np.random.default_rng(seed)
    for _ in range(STEPS):
        x = rng.normal(size=(BATCH, LENGTH, FEATURES))
        lengths = rng.integers(1, LENGTH + 1, (BATCH, 1))
        valid = np.arange(LENGTH) >= LENGTH - lengths
        x = np.where(valid[..., None], x, 0.0)
        yield x, (x.sum(axis=(1, 2)) > 0.0)[:, None].astype(np.float64)


def losses(model):
    found = []
    for x, y in draw_batches():
        model.reset_metrics()
        found.append(float(model.train_on_batch(x, y)))
    return np.array(found)


@pytest.mark.parametrize(
    "layers",
    (classifier, masked_classifier, stacked, regularised, sequence_to_sequence),
    ids=lambda layers: layers.__name__,
)
def test_losses_equal_stock(layers, fused_calls):
    stock = compiled(layers, keras.layers.LSTM)
    ours = compiled(layers, tf_ecornn.LSTM)
    copy_weights(stock, ours)
    found = losses(ours)
    assert fused_calls() >= 2 * STEPS
    expected = losses(stock)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert expected[-5:].mean() < expected[:5].mean(), "nothing was learnt"
    for a, e in zip(ours.get_weights(), stock.get_weights(), strict=True):
        np.testing.assert_allclose(a, e, rtol=0, atol=1e-8)


def test_fit_evaluate_and_predict():
    """The ordinary Keras calls, a last batch that is short, one trace each."""
    batches = list(draw_batches())
    x = np.concatenate([b[0] for b in batches])[:163]
    y = np.concatenate([b[1] for b in batches])[:163]
    stock = compiled(masked_classifier, keras.layers.LSTM)
    ours = compiled(masked_classifier, tf_ecornn.LSTM)
    copy_weights(stock, ours)
    histories = [
        model.fit(
            x,
            y,
            batch_size=16,
            epochs=3,
            shuffle=False,
            validation_split=0.2,
            verbose=0,
        ).history
        for model in (stock, ours)
    ]
    for name in ("loss", "val_loss"):
        np.testing.assert_allclose(histories[1][name], histories[0][name], atol=1e-9)
    np.testing.assert_allclose(
        ours.evaluate(x, y, verbose=0), stock.evaluate(x, y, verbose=0), atol=1e-9
    )
    np.testing.assert_allclose(
        ours.predict(x, verbose=0), stock.predict(x, verbose=0), atol=1e-8
    )
    assert ours.train_function is not None


def test_training_twice_gives_equal_bits():
    """Same seed, same data: equal losses and weights, dropout included."""
    runs = []
    for _ in range(2):
        keras.utils.set_random_seed(8)
        model = compiled(regularised, tf_ecornn.LSTM)
        runs.append((losses(model), model.get_weights()))
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    for a, b in zip(runs[0][1], runs[1][1], strict=True):
        np.testing.assert_array_equal(a, b)
