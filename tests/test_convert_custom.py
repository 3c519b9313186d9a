"""from_keras and to_keras of models with classes and functions of the users' own."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
from model_shapes import (
    BATCH,
    FEATURES,
    OURS,
    STEPS,
    STOCK,
    assert_same,
    inputs_of,
    made_of_stock,
    results,
    sequential,
    weights_of_useful_size,
)

pytestmark = [
    pytest.mark.usefixtures("float64_everywhere"),
    pytest.mark.filterwarnings("ignore:tf_ecornn.*own (loop|step)"),
]


class Tagger(keras.Model):
    """A model whose code alone says what it is made of."""

    def __init__(self, rnn, units):
        super().__init__()
        self.rnn = rnn
        self.below = [rnn.LSTM(units, return_sequences=True), rnn.GRU(units)]
        self.head = keras.layers.Dense(2)

    def call(self, x, training=False):
        for layer in self.below:
            x = layer(x, training=training)
        return self.head(x)


class StockTagger(Tagger):
    """One that Keras can make again."""

    def __init__(self, units=4, **kwargs):
        super().__init__(STOCK, units, **kwargs)
        self.units = units

    def get_config(self):
        return {"units": self.units}


class Reader(keras.layers.Layer):
    """A layer with recurrent layers inside that its configuration does not name."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.ahead = keras.layers.LSTM(units, return_sequences=True)
        self.both = keras.layers.Bidirectional(keras.layers.GRU(units))

    def build(self, shape):
        self.ahead.build(shape)
        self.both.build((*shape[:-1], self.units))

    def call(self, x):
        return self.both(self.ahead(x))

    def get_config(self):
        return {**super().get_config(), "units": self.units}


class Wrapped(keras.layers.Wrapper):
    """A user's own wrapper, and one that adds a loss."""

    def call(self, x):
        y = self.layer(x)
        self.add_loss(keras.ops.mean(y**2))
        return y


@pytest.mark.parametrize("way", ("from_keras", "to_keras"))
def test_subclassed_model_in_place(way):
    model = Tagger(STOCK if way == "from_keras" else OURS, 4)
    x = tf.constant(np.random.default_rng(2).normal(size=(BATCH, STEPS, FEATURES)))
    convert = getattr(tf_ecornn, way)
    with pytest.raises(ValueError, match="unbuilt layers"):
        convert(model, in_place=True)
    model.compile(keras.optimizers.Adam(0.05), "mse", run_eagerly=True)
    y = np.ones((BATCH, 2))
    model.train_on_batch(x, y)
    with pytest.raises(ValueError, match="in_place=True"):
        convert(model)
    oracle = Tagger(STOCK, 4)
    oracle.compile(keras.optimizers.Adam(0.05), "mse", run_eagerly=True)
    oracle(x)
    oracle.set_weights(model.get_weights())
    oracle.optimizer.build(oracle.trainable_variables)
    for mine, theirs in zip(oracle.optimizer.variables, model.optimizer.variables):
        mine.assign(theirs)

    assert convert(model, in_place=True) is model
    assert made_of_stock(model) == (way == "to_keras")
    assert all(r.fused for r in tf_ecornn.explain(model)) == (way == "from_keras")
    assert_same(results(model, x), results(oracle, x), 1e-12, "in place")
    for _ in range(3):
        found, expected = (m.train_on_batch(x, y) for m in (model, oracle))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert_same(results(model, x), results(oracle, x), 1e-9, "trained in place")


def test_classes_of_the_users():
    """Subclassed model, layer and wrapper, none of them registered."""
    x = keras.Input((STEPS, FEATURES))
    y = Wrapped(keras.layers.LSTM(4, return_sequences=True))(x)
    y = keras.layers.TimeDistributed(keras.layers.Dense(3))(y)
    stock = keras.Model(x, [Reader(3)(y), StockTagger(4)(y)])
    weights_of_useful_size(stock)
    inputs = inputs_of(stock)
    ours = tf_ecornn.from_keras(stock)
    back = tf_ecornn.to_keras(ours)
    found = [results(m, inputs) for m in (stock, ours, back)]
    assert_same(found[1], found[0], 1e-12, "own classes")
    assert_same(found[2], found[0], 0.0, "own classes")
    assert len(ours.losses) == 1
    np.testing.assert_allclose(ours.losses[0], stock.losses[0], rtol=1e-12)
    report = tf_ecornn.explain(ours)
    assert len(report) == 6 and all(r.fused for r in report), str(report)
    assert made_of_stock(back)
    assert made_of_stock(stock)


class WithOwnStep(keras.Model):
    """A functional model with its own training step."""

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True)) * 3.0
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss}


class Named(keras.Sequential):
    pass


def test_class_of_the_model_is_kept():
    base = sequential(STOCK)
    model = WithOwnStep(base.inputs, base.outputs, name="own")
    model.compile("sgd", "mse")
    model.reader = base
    ours = tf_ecornn.from_keras(model)
    assert type(ours) is WithOwnStep and ours.name == "own"
    x, y = inputs_of(base), np.ones((BATCH, 2))
    for _ in range(2):
        losses = [m.train_on_batch(x, y) for m in (model, ours)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-12)
    assert ours.reader.layers[1] is ours.layers[2]
    named = tf_ecornn.from_keras(Named([keras.Input((STEPS, 2)), keras.layers.GRU(3)]))
    assert type(named) is Named


class OwnCell(keras.layers.Layer):
    """The simplest cell there is."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.state_size = units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.state_size), name="kernel")

    def call(self, x, states):
        h = states[0] + x @ self.kernel
        return h, [h]

    def get_config(self):
        return {**super().get_config(), "units": self.state_size}


class OwnRNN(keras.layers.RNN):
    pass


def test_cells_of_the_users():
    """The layer stays what it is where a cell of it does; the cells are ours."""
    x = keras.Input((STEPS, FEATURES))
    mixed = [keras.layers.LSTMCell(3), OwnCell(2), keras.layers.GRUCell(3)]
    y = keras.layers.RNN(mixed, return_sequences=True)(x)
    stock = keras.Model(x, OwnRNN(keras.layers.LSTMCell(3))(y))
    weights_of_useful_size(stock)
    ours = tf_ecornn.from_keras(stock)
    assert [type(x) for x in ours.layers[1:]] == [keras.layers.RNN, OwnRNN]
    first, own, last = ours.layers[1].cell.cells
    assert type(first) is tf_ecornn.LSTMCell and type(last) is tf_ecornn.GRUCell
    assert type(own) is OwnCell and own is not mixed[1]
    inputs = inputs_of(stock)
    assert_same(results(ours, inputs), results(stock, inputs), 1e-12, "own cells")
    assert made_of_stock(tf_ecornn.to_keras(ours))


class OwnLSTM(tf_ecornn.LSTM):
    pass


class OwnStockLSTM(keras.layers.LSTM):
    pass


class Calling(keras.layers.Layer):
    def call(self, x):
        weights = tf.ones((FEATURES, 8), x.dtype), tf.ones((2, 8), x.dtype)
        return tf_ecornn.lstm(x, *weights).output


def test_refusals():
    for wrong in ("model", None, 3, keras.layers.LSTM):
        for convert in (tf_ecornn.from_keras, tf_ecornn.to_keras):
            with pytest.raises(TypeError, match="Received: model="):
                convert(wrong)
    source = keras.Input((STEPS, FEATURES))
    hidden = tf_ecornn.GRU(3)
    hidden.build((None, STEPS, FEATURES))
    for layer, match in (
        (OwnLSTM(3, name="mine"), "'mine' is a OwnLSTM"),
        (Calling(name="calls"), "'calls'.*uses `tf_ecornn`"),
        (keras.layers.Lambda(lambda x: hidden(x)), "uses `hidden`"),
    ):
        model = keras.Model(source, layer(source))
        with pytest.raises(ValueError, match=match):
            tf_ecornn.to_keras(model)
        with pytest.raises(ValueError, match=match):
            tf_ecornn.to_keras(model, in_place=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tf_ecornn.from_keras(model)


def test_subclass_of_the_stock_layer_stays():
    model = keras.Sequential([keras.Input((STEPS, FEATURES)), OwnStockLSTM(3)])
    ours = tf_ecornn.from_keras(model)
    assert type(ours.layers[0]) is OwnStockLSTM
    assert not tf_ecornn.explain(ours)[0].fused


class Forgetful(keras.layers.Layer):
    """Its configuration does not say that it got another layer."""

    def __init__(self, layers=1, **kwargs):
        super().__init__(**kwargs)
        self.inner = [keras.layers.Dense(2) for _ in range(layers)]

    def call(self, x):
        for layer in self.inner:
            x = layer(x)
        return x

    def get_config(self):
        return keras.layers.Layer.get_config(self)


class Unsaved(keras.layers.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)


def test_what_can_not_be_copied_is_named():
    """And is converted in place."""
    x = keras.Input((STEPS, FEATURES))
    tied, square = keras.layers.Dense(4), keras.layers.Dense(4)
    y = tied(square(x))
    tied._trainable_variables[0] = square.kernel
    for layer, match in (
        (Unsaved(tf.tanh), r"'unsaved' \(Unsaved\) can not be made again"),
        (Forgetful(2), r"'forgetful' .* holds \[Dense, Dense\], and made again .*"),
        (keras.Model(x, y, name="both"), "has 7 variables, and .* configuration 8"),
    ):
        model = keras.Sequential([keras.Input((STEPS, FEATURES)), layer])
        model.add(keras.layers.GRU(2))
        with pytest.raises(ValueError, match=match) as raised:
            tf_ecornn.from_keras(model)
        assert "in_place=True" in str(raised.value)
        assert tf_ecornn.from_keras(model, in_place=True) is model
        assert tf_ecornn.explain(model)[0].fused
    unbuilt = keras.Sequential([Reader(3)])
    with pytest.raises(ValueError, match="no weights yet(.|\n)*Call the model"):
        tf_ecornn.from_keras(unbuilt)
