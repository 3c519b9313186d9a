"""from_keras and to_keras of compiled models: training goes on as it would have."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
from model_shapes import (
    BATCH,
    OURS,
    STOCK,
    encoder_and_decoder,
    every_option,
    inputs_of,
    sequential,
    weights_of_useful_size,
)

pytestmark = [
    pytest.mark.usefixtures("float64_everywhere"),
    pytest.mark.filterwarnings("ignore:tf_ecornn.*own (loop|step)"),
]


def compiled(model, optimizer):
    outputs = len(model.outputs)
    model.compile(
        optimizer,
        loss=["mse"] * outputs if outputs > 1 else keras.losses.Huber(0.3),
        metrics=[["mae"]] * outputs if outputs > 1 else [keras.metrics.R2Score()],
        run_eagerly=True,
    )
    return model


def train(model, steps, seed=0):
    losses = []
    for step in range(steps):
        inputs = inputs_of(model, seed + step)
        targets = [np.ones(t.shape) for t in keras.tree.flatten(model(inputs))]
        model.reset_metrics()
        losses.append(
            model.train_on_batch(inputs, targets if len(targets) > 1 else targets[0])
        )
    return losses


@pytest.mark.parametrize("shape", (every_option, encoder_and_decoder))
@pytest.mark.parametrize("way", ("from_keras", "to_keras"))
def test_training_goes_on(shape, way):
    """Moments, iterations, seeds: the weights become those of the model itself."""
    model = compiled(
        shape(STOCK if way == "from_keras" else OURS),
        keras.optimizers.AdamW(
            keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.5), use_ema=True
        ),
    )
    weights_of_useful_size(model)
    train(model, 3)
    copied = getattr(tf_ecornn, way)(model)
    assert int(copied.optimizer.iterations) == 3
    assert copied.optimizer is not model.optimizer
    expected, found = (train(m, 3, seed=3) for m in (model, copied))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    for mine, theirs in zip(
        [*copied.variables, *copied.optimizer.variables],
        [*model.variables, *model.optimizer.variables],
        strict=True,
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-9)


def own_loss(y, predicted):
    return tf.reduce_mean(tf.abs(y - predicted) ** 3, axis=-1)


def own_rate():
    return 0.1


class OwnSchedule(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.1 / (1.0 + tf.cast(step, tf.float64))

    def get_config(self):
        return {}


class OwnMetric(keras.metrics.Metric):
    def __init__(self, name="calls", **kwargs):
        super().__init__(name=name, **kwargs)
        self.calls = self.add_weight(name="calls", initializer="zeros")

    def update_state(self, y, predicted, sample_weight=None):
        self.calls.assign_add(1.0)

    def result(self):
        return self.calls.value


@pytest.mark.parametrize("rate", (own_rate, OwnSchedule()), ids=("function", "class"))
def test_metrics_and_losses_are_those_of_compile(rate):
    """None of these is registered with Keras."""
    stock = sequential(STOCK)
    stock.compile(
        keras.optimizers.SGD(rate),
        loss=own_loss,
        loss_weights=[2.0],
        metrics=[
            own_loss,
            keras.metrics.MeanMetricWrapper(own_loss, "off"),
            OwnMetric(),
        ],
        weighted_metrics=["mse"],
        run_eagerly=True,
    )
    ours = tf_ecornn.from_keras(stock)
    x, y = inputs_of(stock), np.ones((BATCH, 2))
    arguments = {"sample_weight": np.arange(BATCH), "return_dict": True}
    for _ in range(2):
        expected, found = (m.train_on_batch(x, y, **arguments) for m in (stock, ours))
    assert set(found) == {"loss", "own_loss", "off", "mse", "calls"} == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=name)
    assert found["calls"] == 1.0 and ours.run_eagerly
    assert not {id(m) for m in ours.metrics} & {id(m) for m in stock.metrics}


@pytest.mark.filterwarnings("ignore:The object being serialized includes a")
def test_what_can_not_be_made_again_is_named():
    model = sequential(STOCK)
    model.compile(keras.optimizers.Adam(lambda: 0.1), "mse")
    with pytest.raises(
        ValueError, match="optimizer Adam can not be made(.|\n)*in_place"
    ):
        tf_ecornn.from_keras(model)
    ours = tf_ecornn.from_keras(model, in_place=True)
    assert ours.optimizer is model.optimizer


@pytest.mark.parametrize("scaled", (True, False))
def test_loss_scale_survives(scaled):
    keras.config.set_dtype_policy("mixed_float16")
    stock = sequential(STOCK)
    stock.compile(keras.optimizers.SGD(0.1), "mse", auto_scale_loss=scaled)
    train(stock, 2)
    ours = tf_ecornn.from_keras(stock)
    assert type(ours.optimizer) is type(stock.optimizer)
    assert isinstance(ours.optimizer, keras.optimizers.LossScaleOptimizer) == scaled
    for a, e in zip(ours.optimizer.variables, stock.optimizer.variables, strict=True):
        np.testing.assert_array_equal(a, e, a.path)


def test_compile_of_the_users_own_is_left_to_them():
    class OwnCompile(keras.Model):
        def compile(self, scale):
            super().compile("sgd", "mse")
            self.scale = scale

    base = sequential(STOCK)
    model = OwnCompile(base.inputs, base.outputs)
    model.compile(scale=2.0)
    with pytest.warns(UserWarning, match=r"`compile\(\)` of its own"):
        ours = tf_ecornn.from_keras(model)
    assert not ours.compiled
