"""`mirrored.py KIND`: training on two logical CPUs equals that of one stock model."""

import sys

import keras
import numpy as np
import tensorflow as tf

from layer_pairs import KINDS, copy_weights

SAMPLES, BATCH, STEPS, FEATURES = 5, 4, 6, 3


def make_model(make):
    model = keras.Sequential(
        [
            keras.Input((None, FEATURES)),
            keras.layers.Masking(),
            make(4, return_sequences=True),
            make(3),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def fit(model, x, y):
    return model.fit(
        x, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0
    ).history["loss"]


if __name__ == "__main__":
    kind = KINDS[sys.argv[1]]
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(SAMPLES, STEPS, FEATURES)), rng.normal(size=(SAMPLES, 1))
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    with strategy.scope():
        ours = make_model(kind.make_ours)
    stock = make_model(kind.make_stock)
    copy_weights(ours, stock)
    found = fit(ours, x, y)
    assert np.isfinite(found).all(), found
    predicted = ours.predict(x, batch_size=BATCH, verbose=0)
    assert predicted.shape == (SAMPLES, 1)
    stock.set_weights(ours.get_weights())
    expected = stock.predict(x, batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(predicted, expected, atol=1e-12)
    print("done")
