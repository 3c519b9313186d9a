"""Models of many shapes, with stock or with fused recurrent layers.

Each function takes a namespace with LSTM, GRU, LSTMCell, GRUCell and RNN and returns
a built model; `inputs_of` draws what to call it on.
"""

import json
from types import SimpleNamespace

import keras
import numpy as np
import tensorflow as tf

import tf_ecornn

NAMES = ("LSTM", "GRU", "LSTMCell", "GRUCell", "RNN")
STOCK = SimpleNamespace(**{name: getattr(keras.layers, name) for name in NAMES})
OURS = SimpleNamespace(**{name: getattr(tf_ecornn, name) for name in NAMES})
BATCH, STEPS, FEATURES, WORDS = 3, 5, 4, 11

_layers = keras.layers


def sequential(rnn):
    return keras.Sequential(
        [
            keras.Input((None, FEATURES)),
            _layers.Masking(0.0),
            rnn.LSTM(6, return_sequences=True),
            rnn.GRU(5, go_backwards=True),
            _layers.Dense(2),
        ],
        name="chain",
    )


def sequential_built_by_a_call(rnn):
    model = keras.Sequential([_layers.Bidirectional(rnn.LSTM(4)), _layers.Dense(2)])
    model(np.zeros((BATCH, STEPS, FEATURES)))
    return model


def bidirectional(rnn):
    x = keras.Input((STEPS, FEATURES))
    y = _layers.Bidirectional(rnn.LSTM(4, return_sequences=True), merge_mode="ave")(x)
    y = _layers.Bidirectional(
        rnn.LSTM(3, return_sequences=True, name="ahead"),
        backward_layer=rnn.GRU(
            3, reset_after=False, return_sequences=True, go_backwards=True, name="back"
        ),
    )(y)
    states = _layers.Bidirectional(rnn.GRU(3, return_state=True))(y)
    return keras.Model(x, states)


def time_distributed(rnn):
    x = keras.Input((None, STEPS, FEATURES))
    y = _layers.TimeDistributed(rnn.LSTM(4))(x)
    inner = keras.Sequential([_layers.Dense(5), rnn.GRU(3)], name="each")
    return keras.Model(x, [rnn.GRU(3)(y), _layers.TimeDistributed(inner)(x)])


def masked_words(rnn):
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            _layers.Embedding(WORDS, 6, mask_zero=True),
            _layers.Bidirectional(rnn.LSTM(4, return_sequences=True)),
            rnn.GRU(5, return_sequences=True, zero_output_for_mask=True),
            rnn.LSTM(3),
        ]
    )


def cells(rnn):
    x = keras.Input((STEPS, FEATURES))
    y = rnn.RNN([rnn.LSTMCell(4), rnn.GRUCell(3)], return_sequences=True)(x)
    stack = _layers.StackedRNNCells([rnn.GRUCell(3, reset_after=False)], name="stack")
    y = _layers.Bidirectional(rnn.RNN(stack, return_sequences=True))(y)
    return keras.Model(x, rnn.RNN(rnn.LSTMCell(4, name="one"), name="last")(y))


def encoder_and_decoder(rnn):
    source, target = keras.Input((None, FEATURES)), keras.Input((None, FEATURES))
    _, *states = rnn.LSTM(4, return_state=True, name="encoder")(source)
    decoded = rnn.LSTM(4, return_sequences=True, name="decoder")(
        target, initial_state=states
    )
    _, state = rnn.GRU(4, return_state=True)(source, initial_state=states[0])
    return keras.Model([source, target], [_layers.Dense(2)(decoded), state])


def shared_twice(rnn):
    first, second = keras.Input((None, FEATURES)), keras.Input((None, FEATURES))
    shared = rnn.LSTM(4, name="shared")
    both = _layers.Bidirectional(rnn.GRU(3), name="both")
    merged = [shared(first), shared(second), both(first), both(second)]
    return keras.Model([first, second], _layers.Concatenate()(merged))


def nested(rnn):
    inner = keras.Sequential(
        [keras.Input((STEPS, FEATURES)), rnn.LSTM(4, return_sequences=True)],
        name="inner",
    )
    x = keras.Input((STEPS, FEATURES))
    middle = keras.Model(x, [inner(x), rnn.GRU(4)(inner(x))], name="middle")
    y = keras.Input((STEPS, FEATURES))
    whole, last = middle(y)
    return keras.Model(y, [rnn.LSTM(3)(whole), last, inner(y)], name="outer")


def named_inputs_and_outputs(rnn):
    series = keras.Input((None, FEATURES), name="series")
    words = keras.Input((STEPS,), name="words", dtype="int32")
    read = rnn.GRU(4)(_layers.Embedding(WORDS, 3)(words))
    seen = rnn.LSTM(4, name="seen")(series)
    outputs = {"sum": read + seen, "tanh": keras.ops.tanh(seen)[:, ::-1]}
    return keras.Model({"series": series, "words": words}, outputs)


def stateful(rnn):
    return keras.Sequential(
        [
            keras.Input(batch_shape=(BATCH, STEPS, FEATURES)),
            rnn.LSTM(4, stateful=True, return_sequences=True),
            _layers.Bidirectional(rnn.GRU(3, stateful=True)),
        ]
    )


def every_option(rnn):
    common = {
        "kernel_initializer": keras.initializers.HeNormal(seed=3),
        "recurrent_initializer": "glorot_uniform",
        "kernel_regularizer": keras.regularizers.L2(0.1),
        "recurrent_regularizer": "l1",
        "activity_regularizer": "l2",
        "recurrent_constraint": keras.constraints.MaxNorm(1.5),
        "dropout": 0.3,
        "seed": 5,
        "return_sequences": True,
    }
    return keras.Sequential(
        [
            keras.Input((STEPS, FEATURES)),
            rnn.LSTM(
                4,
                activation="softsign",
                recurrent_activation="hard_sigmoid",
                unit_forget_bias=False,
                bias_initializer="ones",
                implementation=1,
                use_cudnn=False,
                name="first",
                **common,
            ),
            rnn.GRU(3, use_bias=False, recurrent_dropout=0.4, unroll=True, **common),
            rnn.GRU(3, reset_after=False, trainable=False, name="frozen"),
            _layers.Dense(2),
        ],
        name="options",
    )


def policies(rnn):
    return keras.Sequential(
        [
            keras.Input((STEPS, FEATURES)),
            rnn.LSTM(8, return_sequences=True, dtype="mixed_bfloat16"),
            rnn.GRU(6, return_sequences=True, dtype="float32"),
            _layers.Bidirectional(rnn.LSTM(4, dtype="mixed_float16"), dtype="float64"),
            _layers.Dense(2),
        ]
    )


def functions_of_the_users(rnn):
    """Nothing of these is registered with Keras."""
    scale = tf.constant(1.5, keras.config.floatx())

    def doubled_tanh(x):
        return 2.0 * keras.ops.tanh(x)

    x = keras.Input((STEPS, FEATURES))
    y = _layers.Lambda(lambda t: t * scale, name="scaled")(x)
    y = rnn.LSTM(4, recurrent_activation=doubled_tanh, return_sequences=True)(y)
    y = rnn.GRU(4, activation=lambda t: scale * tf.tanh(t), return_sequences=True)(y)
    y = rnn.RNN([rnn.LSTMCell(3, activation=doubled_tanh), rnn.GRUCell(3)])(y)
    return keras.Model(x, _layers.Dense(2, activation=doubled_tanh)(y))


SHAPES = (
    sequential,
    sequential_built_by_a_call,
    bidirectional,
    time_distributed,
    masked_words,
    cells,
    encoder_and_decoder,
    shared_twice,
    nested,
    named_inputs_and_outputs,
    stateful,
    every_option,
    policies,
    functions_of_the_users,
)
# These keep the stock loop, with a word of warning.
UNFUSED = (functions_of_the_users,)


def inputs_of(model, seed=0):
    """What to call the model on, in its own structure; left-over steps are zero."""
    rng = np.random.default_rng([seed, 9])

    def draw(tensor):
        unknown = (BATCH, STEPS)
        shape = [size or unknown[i] for i, size in enumerate(tensor.shape)]
        if tensor.dtype == "int32":
            drawn = rng.integers(1, WORDS, shape)
        else:
            drawn = rng.normal(size=shape)
        drawn[0, STEPS - 2 :] = 0
        return tf.constant(drawn, tensor.dtype)

    given = getattr(model, "input", None)
    if given is None:
        given = model.inputs[0]
    return keras.tree.map_structure(draw, given)


def weights_of_useful_size(model, seed=0):
    """Random weights for the float ones, in their dtypes."""
    rng = np.random.default_rng([seed, 10])
    for variable in model.weights:
        variable.assign(0.4 * rng.normal(size=variable.shape))


def all_layers(model):
    return model._flatten_layers()


def made_of_stock(model):
    """Whether nothing of the package is in the model or its configuration."""
    modules = {c.__module__ for x in all_layers(model) for c in type(x).__mro__}
    return not any(name.startswith("tf_ecornn") for name in modules)


def config_of(model):
    return json.dumps(keras.saving.serialize_keras_object(model))


def results(model, inputs, **call):
    found = keras.tree.flatten(model(inputs, **call))
    return [keras.ops.convert_to_numpy(value) for value in found]


def assert_same(actual, expected, tolerance, what):
    """Equal up to the tolerance, relative to the largest value; returns the worst."""
    errors = [0.0]
    for a, e in zip(actual, expected, strict=True):
        assert a.shape == e.shape and a.dtype == e.dtype, what
        errors.append(np.abs(a - e).max() / max(np.abs(e).max(), 1e-3))
        assert errors[-1] <= tolerance, f"{what}: off by {errors[-1]} of the largest"
    assert any(np.any(e) for e in expected), what
    return max(errors)
