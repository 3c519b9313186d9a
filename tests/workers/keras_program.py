"""A Keras program that names LSTM and GRU in every way, and knows nothing of tf_ecornn.

`keras_program.py ways FOLDER` prints the layers' outputs, `keras_program.py store
FOLDER` those too, and stores a model in every form; `keras_program.py load FOLDER`
prints what the stored forms predict.
"""

import json
import pathlib
import pickle
import sys

import keras
import keras.layers as L
import keras.src.layers.rnn.gru as rnn_gru
import numpy as np
import tensorflow as tf
from keras.layers import LSTM
from tensorflow.keras.layers import GRU as TensorFlowGRU

SHAPE = (5, 3)
X = np.random.default_rng(4).normal(size=(4, *SHAPE))


class Doubled(keras.layers.LSTM):
    """A user's own layer: an option, and more done in `call`."""

    def __init__(self, units, times=2.0, **options):
        super().__init__(units, **options)
        self.times = times

    def call(self, sequences, initial_state=None, mask=None, training=False):
        return self.times * super().call(sequences, initial_state, mask, training)

    def get_config(self):
        return {**super().get_config(), "times": self.times}


class DoubledCell(keras.layers.GRUCell):
    def call(self, inputs, states, training=False):
        output, states = super().call(inputs, states, training=training)
        return 2.0 * output, states


def of_layer(layer):
    return keras.Sequential([keras.Input(SHAPE), layer])


def by_hand(cell):
    states = cell.get_initial_state(batch_size=len(X))
    for step in range(SHAPE[0]):
        output, states = cell(X[:, step], states)
    return output


def loaded(model, path):
    model.save(path)
    return keras.saving.load_model(path, custom_objects={"Doubled": Doubled})


def ways(folder):
    """What there is to call, by name: a layer, a model, or a cell for `by_hand`."""
    keras.utils.set_random_seed(40)
    plain = of_layer(L.LSTM(4))
    return {
        "keras.layers": lambda: keras.layers.LSTM(4),
        "tf.keras.layers": lambda: tf.keras.layers.GRU(4),
        "from keras.layers": lambda: LSTM(4, go_backwards=True),
        "from tensorflow.keras.layers": lambda: TensorFlowGRU(4, reset_after=False),
        "alias": lambda: L.GRU(4, return_sequences=True),
        "keras.src": lambda: rnn_gru.GRU(4),
        "subclass": lambda: Doubled(4, times=3.0),
        "from_config": lambda: LSTM.from_config(LSTM(4, name="one").get_config()),
        "deserialize": lambda: L.deserialize(L.serialize(L.GRU(4))),
        "json": lambda: keras.models.model_from_json(plain.to_json()),
        "clone": lambda: keras.models.clone_model(plain),
        "pickle": lambda: pickle.loads(pickle.dumps(plain)),
        "load_model": lambda: loaded(plain, folder / "plain.keras"),
        "load_model of a subclass": lambda: loaded(
            of_layer(Doubled(4)), folder / "own.keras"
        ),
        "Bidirectional": lambda: L.Bidirectional(L.LSTM(4)),
        "TimeDistributed": lambda: keras.Sequential(
            [keras.Input(SHAPE), L.Reshape((1, *SHAPE)), L.TimeDistributed(LSTM(4))]
        ),
        "RNN of a cell": lambda: L.RNN(L.LSTMCell(4)),
        "RNN of cells": lambda: L.RNN([L.GRUCell(4), L.LSTMCell(2)]),
        "RNN of a user's cell": lambda: L.RNN(DoubledCell(4)),
        "stateful": lambda: keras.Sequential(
            [keras.Input(batch_shape=X.shape), L.GRU(4, stateful=True)]
        ),
        "cell": lambda: L.LSTMCell(4),
        "GRU cell": lambda: L.GRUCell(4),
    }


def fused_calls():
    library = sys.modules.get("tf_ecornn._library")
    return library.calls() if library else 0


def outputs_of(folder):
    found = {}
    for number, (name, make) in enumerate(ways(folder).items()):
        keras.utils.set_random_seed(number)
        called = make()
        before = fused_calls()
        is_cell = isinstance(called, (L.LSTMCell, L.GRUCell))
        output = by_hand(called) if is_cell else called(X)
        found[name] = {
            "output": np.asarray(output).tolist(),
            "fused_calls": fused_calls() - before,
            "class": f"{type(called).__module__}.{type(called).__name__}",
        }
    return found


def masked_model():
    return keras.Sequential(
        [
            keras.Input((None, SHAPE[1])),
            L.Masking(),
            L.Bidirectional(LSTM(4, return_sequences=True)),
            L.GRU(3, name="second"),
            L.Dense(1),
        ]
    )


class Server(tf.Module):
    """What a program may save besides models: a function that has been called."""

    def __init__(self, model):
        self.model = model

    @tf.function
    def __call__(self, x):
        return self.model(x)


def trained(folder=None):
    """What a trained model predicts, and what is traced; stores it in every form."""
    keras.utils.set_random_seed(50)
    model = masked_model()
    model.compile("adam", "mse")
    model.fit(X, X[:, 0, :1], verbose=0)
    server = Server(model)
    server(tf.constant(X))
    before = fused_calls()
    concrete = server.__call__.get_concrete_function(tf.constant(X))
    if folder is not None:
        store(model, server, folder)
    server(tf.constant(X))
    return {
        "predictions": model.predict(X, verbose=0).tolist(),
        "operations": sorted({op.type for op in concrete.graph.get_operations()}),
        "fused_calls_after": fused_calls() - before,
    }


def store(model, server, folder):
    model.save(folder / "model.keras")
    model.save_weights(folder / "model.weights.h5")
    (folder / "model.json").write_text(model.to_json())
    model.export(str(folder / "exported"), verbose=False)
    tf.saved_model.save(model, str(folder / "saved"))
    tf.saved_model.save(server, str(folder / "server"))


def load(folder):
    """What each stored form predicts."""
    by_weights = masked_model()
    by_weights.load_weights(folder / "model.weights.h5")
    by_json = keras.models.model_from_json((folder / "model.json").read_text())
    by_json.set_weights(by_weights.get_weights())
    exported = tf.saved_model.load(str(folder / "exported"))
    saved = tf.saved_model.load(str(folder / "saved"))
    x = tf.constant(X)
    return {
        "keras": keras.saving.load_model(folder / "model.keras")(X),
        "weights": by_weights(X),
        "json": by_json(X),
        "exported": exported.serve(x),
        "saved": next(iter(saved.signatures["serving_default"](x).values())),
        "server": tf.saved_model.load(str(folder / "server"))(x),
    }


if __name__ == "__main__":
    command, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    if command == "load":
        result = {name: np.asarray(v).tolist() for name, v in load(folder).items()}
        assert not any(name.startswith("tf_ecornn") for name in sys.modules)
    else:
        kept = trained(folder if command == "store" else None)
        result = {"ways": outputs_of(folder), "trained": kept}
    print(json.dumps(result))
