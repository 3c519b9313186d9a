"""tf_ecornn.from_keras and to_keras: 14 model shapes, states, in place, TFLite."""

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
    SHAPES,
    STEPS,
    STOCK,
    UNFUSED,
    all_layers,
    assert_same,
    config_of,
    inputs_of,
    made_of_stock,
    masked_words,
    nested,
    policies,
    results,
    sequential,
    stateful,
    weights_of_useful_size,
)

pytestmark = [
    pytest.mark.usefixtures("float64_everywhere"),
    pytest.mark.filterwarnings("ignore:tf_ecornn.*own (loop|step)"),
    pytest.mark.filterwarnings("ignore:The object being serialized includes a"),
]
# Two ways to sum the same numbers; the policies' narrow types are rounded.
TOLERANCE = {policies: 2e-2}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda f: f.__name__)
def test_round_trip(shape, fused_calls):
    stock = shape(STOCK)
    weights_of_useful_size(stock)
    inputs = inputs_of(stock)
    before = config_of(stock)

    ours = tf_ecornn.from_keras(stock)
    back = tf_ecornn.to_keras(ours)

    assert config_of(stock) == before, "the model itself was changed"
    expected, found, again = (results(m, inputs) for m in (stock, ours, back))
    worst = assert_same(found, expected, TOLERANCE.get(shape, 1e-12), "from_keras")
    print(f"{shape.__name__}: off by {worst:.1e}")
    report = tf_ecornn.explain(ours)
    assert report and {r.kind.split(".")[0] for r in report} == {"tf_ecornn"}
    if shape not in UNFUSED:
        assert all(r.fused for r in report), str(report)
        assert fused_calls() >= len(report)

    assert made_of_stock(back) and not made_of_stock(ours)
    for e, a in zip(expected, again, strict=True):
        np.testing.assert_array_equal(a, e, "to_keras")
    after = config_of(back)
    assert "tf_ecornn" not in after
    if shape is not nested:  # The calls of its shared layer come in another order.
        assert after == before
    for other in (ours, back):
        assert not {id(v) for v in other.variables} & {id(v) for v in stock.variables}
        for mine, theirs in zip(other.variables, stock.variables, strict=True):
            if "seed_generator" not in theirs.path:  # Keras counts these.
                assert theirs.path.endswith(mine.path)
            assert mine.dtype == theirs.dtype, mine.path
            assert mine.trainable == theirs.trainable, mine.path
            np.testing.assert_array_equal(mine, theirs, mine.path)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda f: f.__name__)
def test_model_made_of_ours(shape):
    ours = shape(OURS)
    weights_of_useful_size(ours)
    inputs = inputs_of(ours)
    stock = tf_ecornn.to_keras(ours)
    assert made_of_stock(stock)
    assert_same(
        results(ours, inputs),
        results(stock, inputs),
        TOLERANCE.get(shape, 1e-12),
        "to_keras",
    )
    assert [x.name for x in all_layers(ours)] == [x.name for x in all_layers(stock)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda f: f.__name__)
def test_in_place(shape):
    model = shape(STOCK)
    weights_of_useful_size(model)
    inputs = inputs_of(model)
    before = [*map(id, all_layers(model)), *map(id, model.variables)]
    expected = results(model, inputs)
    for layer in all_layers(model):
        if getattr(layer, "states", None):
            layer.reset_state()

    assert tf_ecornn.from_keras(model, in_place=True) is model
    assert not made_of_stock(model)
    found = results(model, inputs)
    assert_same(found, expected, TOLERANCE.get(shape, 1e-12), "from_keras in place")
    assert [*map(id, all_layers(model)), *map(id, model.variables)] == before

    tf_ecornn.to_keras(model, in_place=True)
    assert made_of_stock(model) and "tf_ecornn" not in config_of(model)


@pytest.mark.parametrize("way", ("from_keras", "to_keras"))
def test_options_that_no_configuration_has(way):
    """They decide which dropout masks are drawn, and how the stock layer runs."""
    rnn = STOCK if way == "from_keras" else OURS
    options = {"dropout": 0.4, "seed": 1, "use_cudnn": False, "implementation": 1}
    model = keras.Sequential(
        [
            keras.Input((STEPS, FEATURES)),
            rnn.GRU(3, return_sequences=True, **options),
            keras.layers.Bidirectional(rnn.LSTM(3, return_sequences=True, **options)),
            rnn.RNN(rnn.LSTMCell(3, dropout=0.4, implementation=1, seed=2)),
        ]
    )
    weights_of_useful_size(model)
    copied = getattr(tf_ecornn, way)(model)
    gru, both, _ = copied.layers
    assert gru.cell.implementation == 1
    assert gru.use_cudnn is both.forward_layer.use_cudnn is False
    x = inputs_of(model)
    for _ in range(2):
        found, expected = (results(m, x, training=True) for m in (copied, model))
        assert_same(found, expected, 1e-12, "dropped alike")


def test_flags_set_after_construction():
    """On a layer, on its cell alone, on one variable, on a nested model."""
    stock = nested(STOCK)
    stock.get_layer("middle").get_layer("inner").trainable = False
    lstm = next(x for x in stock.layers if isinstance(x, keras.layers.LSTM))
    lstm.cell.bias.trainable = False
    for other in (tf_ecornn.from_keras(stock), tf_ecornn.to_keras(stock)):
        names = [v.path for v in other.trainable_variables]
        assert names == [v.path for v in stock.trainable_variables]
        assert 0 < len(names) < len(stock.variables)
    model = sequential(STOCK)
    model.layers[1].cell.trainable = False
    model.trainable = model.trainable
    model.layers[2].trainable = False
    ours = tf_ecornn.from_keras(model)
    assert [x.trainable for x in all_layers(ours)] == [
        x.trainable for x in all_layers(model)
    ]


def test_states_of_a_stateful_model_go_on():
    stock = stateful(STOCK)
    weights_of_useful_size(stock)
    results(stock, inputs_of(stock))
    ours = tf_ecornn.from_keras(stock)
    for seed in range(2):
        x = inputs_of(stock, seed)
        assert_same(results(ours, x), results(stock, x), 1e-12, "stateful")
    ours.layers[0].reset_state()
    assert np.any(stock.layers[0].states[0])


def test_unbuilt_models():
    keras.utils.set_random_seed(3)
    stock = keras.Sequential(
        [
            keras.layers.Bidirectional(keras.layers.LSTM(4, return_sequences=True)),
            keras.layers.RNN([keras.layers.LSTMCell(3), keras.layers.GRUCell(2)]),
        ]
    )
    stock.compile("adam", "mse", run_eagerly=True)
    ours = tf_ecornn.from_keras(stock)
    back = tf_ecornn.to_keras(ours)
    assert not ours.built and made_of_stock(back)
    assert all(r.fused for r in tf_ecornn.explain(ours))
    x = np.random.default_rng(1).normal(size=(BATCH, STEPS, FEATURES))
    for model in (ours, back):
        model.fit(x, np.ones((BATCH, 2)), verbose=0)
        stock(x)
        model.set_weights(stock.get_weights())
        assert_same(results(model, x), results(stock, x), 1e-12, "unbuilt")


@pytest.mark.parametrize("built", (False, True))
def test_single_layers(built):
    sequence = (BATCH, STEPS, FEATURES)
    for stock, shape in (
        (keras.layers.GRU(4), sequence),
        (keras.layers.Bidirectional(keras.layers.LSTM(3), "mul"), sequence),
        (keras.layers.TimeDistributed(keras.layers.LSTM(3)), (2, *sequence)),
        (keras.layers.LSTMCell(3), (BATCH, FEATURES)),
    ):
        if built:
            stock.build(shape)
        ours = tf_ecornn.from_keras(stock)
        assert ours.built == built
        assert made_of_stock(tf_ecornn.to_keras(ours)) and not made_of_stock(ours)
        for mine, theirs in zip(ours.weights, stock.weights, strict=True):
            np.testing.assert_array_equal(mine, theirs, mine.path)


def test_in_place_runs_fused_after_predict(fused_calls):
    """What was traced before is traced again."""
    model = sequential(STOCK)
    x = inputs_of(model)
    expected = model.predict(x, verbose=0)
    assert fused_calls() == 0
    tf_ecornn.from_keras(model, in_place=True)
    assert_same([model.predict(x, verbose=0)], [expected], 1e-12, "predict")
    assert fused_calls() == 2


@pytest.mark.parametrize("name", ("LSTM", "GRU", "LSTMCell", "GRUCell", "RNN"))
def test_attributes_of_both_classes_are_the_same(name):
    """What changing the class of a layer in place relies on."""
    argument = (lambda rnn: rnn.GRUCell(4)) if name == "RNN" else (lambda rnn: 4)
    stock, ours = (getattr(n, name)(argument(n), name="x") for n in (STOCK, OURS))
    shape = (None, FEATURES) if "Cell" in name else (None, STEPS, FEATURES)
    for layer in (stock, ours):
        layer.build(shape)
    assert vars(stock).keys() == vars(ours).keys()
    supports = [stock.supports_jit, ours.supports_jit]
    tf_ecornn.from_keras(stock, in_place=True)
    tf_ecornn.to_keras(ours, in_place=True)
    assert [ours.supports_jit, stock.supports_jit] == supports
    assert vars(stock).keys() == vars(ours).keys()


def test_parts_of_models_and_odd_inputs():
    """From an inner tensor; an optional input; a policy that is no longer global."""
    x = keras.Input((STEPS, FEATURES))
    sequence = keras.layers.LSTM(6, return_sequences=True)(x)
    part = keras.Model(sequence, keras.layers.GRU(3)(sequence))

    class Optional(keras.layers.Layer):
        def call(self, a, b=None):
            return a if b is None else a + b

        def compute_output_spec(self, a, b=None):
            return keras.KerasTensor(a.shape, a.dtype)

    left_out = keras.Input((STEPS, FEATURES), optional=True)
    optional = keras.Model([x, left_out], keras.layers.LSTM(3)(Optional()(x, left_out)))
    keras.config.set_dtype_policy("mixed_float16")
    narrow = sequential(STOCK)
    keras.config.set_dtype_policy("float64")
    given = tf.constant(np.random.default_rng(3).normal(size=(BATCH, STEPS, 6)))
    for model, inputs, tolerance in (
        (part, given, 1e-12),
        (optional, [given[..., :FEATURES], None], 1e-12),
        (narrow, given[..., :FEATURES], 1e-2),
    ):
        ours = tf_ecornn.from_keras(model)
        assert_same(
            results(ours, inputs), results(model, inputs), tolerance, model.name
        )
        assert ours.dtype_policy == model.dtype_policy


def test_layers_with_a_state_beside_their_weights():
    """Normalization makes numbers of its weights; a lookup keeps a table."""
    text = keras.layers.TextVectorization(output_sequence_length=STEPS)
    text.adapt(["a b c", "b d"])
    norm = keras.layers.Normalization()
    norm.adapt(np.random.default_rng(5).normal(3.0, 2.0, size=(50, 6)))
    x = keras.Input((), dtype="string")
    y = norm(keras.layers.Embedding(10, 6)(text(x)))
    stock = keras.Model(x, keras.layers.LSTM(4)(y))
    ours = tf_ecornn.from_keras(stock)
    words = tf.constant(["b a d", "c", "unknown b"])
    assert_same(results(ours, words), results(stock, words), 1e-12, "adapted")


def test_without_our_layers_an_equal_model():
    x = keras.Input((STEPS, FEATURES))
    own = keras.layers.RNN(keras.layers.SimpleRNNCell(3))
    model = keras.Model(x, [own(x), keras.layers.SimpleRNN(2)(x)])
    for convert in (tf_ecornn.to_keras, tf_ecornn.from_keras):
        copied = convert(model)
        assert copied is not model and config_of(copied) == config_of(model)
        inputs = inputs_of(model)
        assert_same(results(copied, inputs), results(model, inputs), 0.0, "equal")


def test_conversions_repeat():
    """Ours stay ours, stock stays stock."""
    ours = masked_words(OURS)
    inputs = inputs_of(ours)
    again = tf_ecornn.from_keras(ours)
    assert config_of(again) == config_of(ours)
    assert_same(results(again, inputs), results(ours, inputs), 0.0, "again")


def lite_results(model, inputs):
    """The model converted for TensorFlow Lite, run by its interpreter."""
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interpreter = tf.lite.Interpreter(model_content=converter.convert())
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    for detail, value in zip(details, inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [
        interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()
    ]


def test_tensorflow_lite():
    """Built-in operations only, once the batch is fixed."""
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    x = keras.Input((STEPS, FEATURES))
    y = keras.layers.Bidirectional(tf_ecornn.LSTM(6, return_sequences=True))(x)
    y = tf_ecornn.GRU(5, return_sequences=True)(y)
    y = tf_ecornn.RNN([tf_ecornn.LSTMCell(4), tf_ecornn.GRUCell(3)])(y)
    model = keras.Model(x, keras.layers.Dense(2)(y))
    weights_of_useful_size(model)
    one = keras.Input(batch_shape=(1, STEPS, FEATURES))
    fixed = keras.Model(one, tf_ecornn.to_keras(model)(one))
    inputs = np.random.default_rng(6).normal(size=one.shape).astype(np.float32)
    found = lite_results(fixed, [inputs])
    assert_same(found, results(model, inputs), 1e-6, "TensorFlow Lite")
