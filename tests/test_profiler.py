"""The ops in TensorFlow's profiler, under the names of their layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import tf_ecornn

STEPS = 3
# Layers by name, and the ops that a step of training runs for each.
EXPECTED = {
    "reader": ("EcoRNN>Lstm", "EcoRNN>LstmGrad"),
    "both_ways/forward_listener": ("EcoRNN>Gru", "EcoRNN>GruGrad"),
    "both_ways/backward_listener": ("EcoRNN>Gru", "EcoRNN>GruGrad"),
    "stack": ("EcoRNN>Lstm", "EcoRNN>Gru", "EcoRNN>LstmGrad", "EcoRNN>GruGrad"),
}


def make_model():
    listener = tf_ecornn.GRU(6, return_sequences=True, name="listener")
    cells = [tf_ecornn.LSTMCell(5), tf_ecornn.GRUCell(4)]
    model = keras.Sequential(
        [
            keras.Input((9, 3)),
            tf_ecornn.LSTM(8, return_sequences=True, name="reader"),
            keras.layers.Bidirectional(listener, name="both_ways"),
            tf_ecornn.RNN(cells, name="stack"),
            keras.layers.Dense(1),
        ],
        name="model",
    )
    model.compile("sgd", "mse")
    return model


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """Events on the host: {name: how often}, of a few steps of training."""
    model = make_model()
    x = np.random.default_rng(1).normal(size=(4, 9, 3)).astype("float32")
    y = x[:, 0, :1]
    model.train_on_batch(x, y)  # traces
    folder = tmp_path_factory.mktemp("profile")
    tf.profiler.experimental.start(str(folder))
    for _ in range(STEPS):
        model.train_on_batch(x, y)
    tf.profiler.experimental.stop()
    (file,) = folder.rglob("*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    counts = {}
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                counts[name] = counts.get(name, 0) + 1
    return counts


@pytest.mark.parametrize("layer", EXPECTED)
def test_a_layers_ops_bear_its_name(layer, profiled):
    # "scopes/of/the/layer/node:op type"; a graph may number a scope, as "reader_1".
    parts = layer.split("/")
    found = {}
    for name, count in profiled.items():
        node, _, op = name.rpartition(":")
        scopes = [scope.rstrip("0123456789").rstrip("_") for scope in node.split("/")]
        if op.startswith("EcoRNN>") and parts == scopes[-1 - len(parts) : -1]:
            found[op] = found.get(op, 0) + count
    names = sorted(name for name in profiled if "EcoRNN" in name)
    # A GRU has several of them for its gates.
    assert found.pop("EcoRNN>SummedProducts", 0) >= STEPS, names
    assert found == dict.fromkeys(EXPECTED[layer], STEPS), names


def test_a_functions_op_bears_the_name_it_is_given(tmp_path):
    x = tf.ones((2, 3, 4))
    kernel, recurrent_kernel = tf.ones((4, 15)), tf.ones((5, 15))

    @tf.function
    def call():
        return tf_ecornn.gru(x, kernel, recurrent_kernel, name="my_part").output

    call()
    tf.profiler.experimental.start(str(tmp_path))
    call()
    tf.profiler.experimental.stop()
    (file,) = tmp_path.rglob("*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    names = {m.name for p in space.planes for m in p.event_metadata.values()}
    assert any("my_part/" in n and n.endswith(":EcoRNN>Gru") for n in names), names
