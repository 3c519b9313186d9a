"""Weight files, models, exports and checkpoints, stock layers on the other side."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import tf_ecornn
from model_shapes import (
    BATCH,
    FEATURES,
    OURS,
    STEPS,
    STOCK,
    assert_same,
    encoder_and_decoder,
    inputs_of,
    results,
    sequential,
    stateful,
    weights_of_useful_size,
)

pytestmark = pytest.mark.usefixtures("float64_everywhere")
KINDS = {"lstm": "LSTM", "gru": "GRU"}


def everywhere(rnn, kind):
    """The layer bare, wrapped, nested, in a stack of cells; with a bias and without."""
    layer, cell = (getattr(rnn, KINDS[kind] + suffix) for suffix in ("", "Cell"))
    inner = keras.Sequential(
        [keras.Input((STEPS, 4)), layer(4, return_sequences=True)], name="inner"
    )
    x = keras.Input((STEPS, FEATURES))
    y = layer(4, return_sequences=True, use_bias=False, dropout=0.1)(x)
    y = keras.layers.Bidirectional(
        layer(3, return_sequences=True, use_bias=False), merge_mode="sum"
    )(keras.Model(y, inner(y), name="nested")(y))
    y = rnn.RNN([cell(4), cell(3, use_bias=False)], return_sequences=True)(y)
    slices = keras.layers.Reshape((STEPS, 1, 3))(y)
    y = keras.layers.TimeDistributed(layer(3))(slices)
    return keras.Model(x, keras.layers.Dense(2)(y))


@pytest.mark.parametrize("suffix", (".weights.h5", ".keras"))
@pytest.mark.parametrize("way", ("stock to ours", "ours to stock"))
@pytest.mark.parametrize("kind", KINDS)
def test_weight_files(kind, way, suffix, tmp_path):
    """The 8 combinations, each with layers that have a bias and some that do not."""
    sides = [everywhere(rnn, kind) for rnn in (STOCK, OURS)]
    source, target = sides if way == "stock to ours" else sides[::-1]
    weights_of_useful_size(source)
    path = tmp_path / f"model{suffix}"
    (source.save if suffix == ".keras" else source.save_weights)(path)
    target.load_weights(path)
    for mine, theirs in zip(target.weights, source.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs, mine.path)
    x = inputs_of(source)
    about = f"{kind} {way} {suffix}"
    worst = assert_same(results(target, x), results(source, x), 1e-12, about)
    print(f"{about}: off by {worst:.1e}")


class Renamed(tf_ecornn.LSTM):
    """A user's subclass, not registered."""


def test_weights_of_a_subclass(tmp_path):
    """Keras names a layer in a file after its class, the same inside a wrapper."""
    for suffix in (".weights.h5", ".keras"):
        models = []
        for layer in (keras.layers.LSTM, Renamed):
            x = keras.Input((STEPS, FEATURES))
            with keras.saving.custom_object_scope({"Renamed": Renamed}):
                y = keras.layers.Bidirectional(layer(3, return_sequences=True))(x)
                y = keras.layers.Bidirectional(layer(2))(y)
            models.append(keras.Model(x, y))
        for source, target in (models, models[::-1]):
            weights_of_useful_size(source)
            path = tmp_path / f"subclass{suffix}"
            (source.save if suffix == ".keras" else source.save_weights)(path)
            target.load_weights(path)
            inputs = inputs_of(source)
            assert_same(results(target, inputs), results(source, inputs), 1e-12, suffix)
    with keras.saving.custom_object_scope({"Renamed": Renamed}):
        loaded = keras.saving.load_model(tmp_path / "subclass.keras")
    assert type(loaded.layers[1].forward_layer) is Renamed
    assert_same(results(loaded, inputs), results(source, inputs), 0.0, "loaded")


def test_wrong_files_are_refused(tmp_path):
    """Weights of other sizes, of the other layer, of the other GRU."""
    pairs = (
        (keras.layers.LSTM(4), tf_ecornn.LSTM(5)),
        (keras.layers.GRU(4), tf_ecornn.GRU(4, reset_after=False)),
        (keras.layers.GRU(4, use_bias=False), tf_ecornn.GRU(4)),
    )
    for layers in pairs:
        source, target = (
            keras.Sequential([keras.Input((STEPS, FEATURES)), layer])
            for layer in layers
        )
        source.save_weights(tmp_path / "wrong.weights.h5")
        with pytest.raises(ValueError):
            target.load_weights(tmp_path / "wrong.weights.h5")


def served(rnn, dropout=0.0):
    """Masking, a wrapper, both layers and a stack of cells."""
    return keras.Sequential(
        [
            keras.Input((None, FEATURES)),
            keras.layers.Masking(0.0),
            keras.layers.Bidirectional(rnn.LSTM(4, return_sequences=True)),
            rnn.GRU(4, return_sequences=True, dropout=dropout),
            rnn.RNN([rnn.LSTMCell(3), rnn.GRUCell(3)]),
            keras.layers.Dense(1),
        ]
    )


def gradient_descent(model, x, target, steps, rate):
    """The weights after some steps of the plain rule."""
    variables = [v.value for v in model.trainable_variables]
    for _ in range(steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - target) ** 2)
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(rate * gradient)
    return [v.numpy() for v in variables]


def test_fresh_processes(tmp_path, run_worker):
    """A `.keras` file and two kinds of SavedModel load, run and train elsewhere.

    With `import tf_ecornn` as they are; without it what `to_keras` made of them.
    """
    ours = served(OURS)
    weights_of_useful_size(ours)
    x = inputs_of(ours).numpy()
    target, steps, rate = np.ones((BATCH, 1)), 3, 0.2
    np.savez(tmp_path / "inputs.npz", x=x, target=target, steps=steps, rate=rate)
    ours.save(tmp_path / "ours.keras")
    ours.export(tmp_path / "exported", verbose=False)
    tf.saved_model.save(ours, str(tmp_path / "saved"))
    stock = tf_ecornn.to_keras(ours)
    stock.save(tmp_path / "stock.keras")
    stock.export(tmp_path / "exported_stock", verbose=False)

    for mode in ("with", "without"):
        done = run_worker("saved_files.py", tmp_path, mode, KERAS_HOME=str(tmp_path))
        assert done.returncode == 0, done.stderr

    oracle = served(STOCK)
    oracle.set_weights(ours.get_weights())
    expected = results(oracle, x)
    found = np.load(tmp_path / "with.npz")
    assert {"tf_ecornn.layers", "tf_ecornn.rnn"} <= set(found["kinds"])
    for name in ("keras", "exported", "saved"):
        assert_same([found[name]], expected, 1e-12, name)
    trained = gradient_descent(oracle, x, target, steps, rate)
    assert len(trained) == len(oracle.weights)
    for way in ("exported", "saved"):
        for number, value in enumerate(trained):
            np.testing.assert_allclose(
                found[f"{way} {number}"], value, rtol=0, atol=1e-12, err_msg=way
            )
    found = np.load(tmp_path / "without.npz")
    for name in ("keras", "exported"):
        assert_same([found[name]], expected, 1e-12, f"{name} without the package")
    # TensorFlow's and Keras's own words; the README says what to do.
    assert "Op type not registered 'EcoRNN>" in str(found["exported refusal"])
    assert "Could not locate class 'LSTM'" in str(found["keras refusal"])


def test_exported_graphs_name_ops_and_no_device(tmp_path):
    """One op name for all devices: what a GPU exported, a CPU serves."""
    model = served(OURS, dropout=0.2)
    model.export(tmp_path, verbose=False)
    x = inputs_of(model)
    loaded = tf.saved_model.load(str(tmp_path))
    assert_same([loaded.serve(x).numpy()], results(model, x), 0.0, "with dropout")
    graph = saved_model_pb2.SavedModel()
    graph.ParseFromString((tmp_path / "saved_model.pb").read_bytes())
    functions = graph.meta_graphs[0].graph_def.library.function
    nodes = [node for f in functions for node in f.node_def if "EcoRNN" in node.op]
    assert {n.op for n in nodes} == {"EcoRNN>Lstm", "EcoRNN>Gru"}
    assert {n.device for n in nodes} == {""}


class TrainingModule(tf.Module):
    """A step that is saved with its gradients and its optimizer."""

    def __init__(self, model):
        self.model = model
        self.optimizer = keras.optimizers.Adam(0.05)
        self.optimizer.build(model.trainable_variables)

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None, FEATURES), tf.float64),
            tf.TensorSpec((None, 2), tf.float64),
        ]
    )
    def step(self, x, target):
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            predicted = self.model(x, training=False)
            loss = tf.reduce_mean((predicted - target) ** 2)
        self.optimizer.apply(tape.gradient(loss, variables))
        return loss


def test_saved_training_step(tmp_path):
    """The gradient ops of a saved graph, against the stock layers' step."""
    ours, stock = sequential(OURS), sequential(STOCK)
    weights_of_useful_size(stock)
    ours.set_weights(stock.get_weights())
    tf.saved_model.save(TrainingModule(ours), str(tmp_path))
    loaded, oracle = tf.saved_model.load(str(tmp_path)), TrainingModule(stock)
    target = tf.ones((BATCH, 2), tf.float64)
    losses = [
        [m.step(inputs_of(ours, seed), target) for seed in range(4)]
        for m in (loaded, oracle)
    ]
    np.testing.assert_allclose(*losses, rtol=1e-10)
    assert losses[1][-1] < losses[1][0]


def test_stateful_model_goes_on_after_loading(tmp_path):
    """A decoder's state is its own: zeros after loading, then the same as before."""
    ours = stateful(OURS)
    weights_of_useful_size(ours)
    x = inputs_of(ours)
    first = results(ours, x)
    ours.save(tmp_path / "stateful.keras")
    loaded = keras.saving.load_model(tmp_path / "stateful.keras")
    assert_same(results(loaded, x), first, 0.0, "first call")
    assert_same(results(loaded, x), results(ours, x), 0.0, "second call")


def test_checkpoints_interchange(tmp_path):
    """tf.train.Checkpoint with an optimizer, into a model of the other layers."""
    for rnn, other in ((STOCK, OURS), (OURS, STOCK)):
        model = served(rnn)
        optimizer = keras.optimizers.Adam(0.1)
        optimizer.build(model.trainable_variables)
        weights_of_useful_size(model)
        for variable in optimizer.variables[2:]:
            variable.assign(tf.ones_like(variable) * 0.25)
        path = tf.train.Checkpoint(model=model, optimizer=optimizer).save(
            str(tmp_path / "ckpt")
        )
        restored = served(other)
        again = keras.optimizers.Adam(0.5)
        again.build(restored.trainable_variables)
        status = tf.train.Checkpoint(model=restored, optimizer=again).restore(path)
        status.assert_existing_objects_matched()
        for mine, theirs in zip(
            [*restored.weights, *again.variables],
            [*model.weights, *optimizer.variables],
            strict=True,
        ):
            np.testing.assert_array_equal(mine, theirs, mine.path)


class Stop(keras.callbacks.Callback):
    """The machine is lost after the second epoch."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise InterruptedError


def test_backup_and_checkpoint_callbacks(tmp_path):
    """An interrupted run goes on as if nothing had been; the best weights are kept."""
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(32, STEPS, FEATURES)), rng.normal(size=(32, 1))

    def made():
        model = served(OURS)
        weights_of_useful_size(model)
        model.compile(keras.optimizers.Adam(0.02), "mse", run_eagerly=True)
        return model

    def fit(model, *callbacks):
        return model.fit(
            x, y, epochs=3, verbose=0, shuffle=False, callbacks=list(callbacks)
        ).history

    whole = made()
    best = keras.callbacks.ModelCheckpoint(
        tmp_path / "best.keras", monitor="loss", save_best_only=True
    )
    history = fit(whole, best)

    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    with pytest.raises(InterruptedError):
        fit(made(), backup, Stop())
    resumed = made()
    after = fit(resumed, keras.callbacks.BackupAndRestore(tmp_path / "backup"))
    np.testing.assert_allclose(after["loss"], history["loss"][2:], rtol=1e-9)
    for mine, theirs in zip(resumed.weights, whole.weights, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)

    loaded = keras.saving.load_model(tmp_path / "best.keras")
    assert int(loaded.optimizer.iterations) == 1 + int(np.argmin(history["loss"]))
    assert all(r.fused for r in tf_ecornn.explain(loaded))


def test_encoder_and_decoder_file(tmp_path):
    """Initial states in a functional model's file."""
    ours = encoder_and_decoder(OURS)
    weights_of_useful_size(ours)
    ours.save(tmp_path / "seq2seq.keras")
    loaded = keras.saving.load_model(tmp_path / "seq2seq.keras")
    oracle = encoder_and_decoder(STOCK)
    oracle.load_weights(tmp_path / "seq2seq.keras")
    inputs = inputs_of(ours)
    assert_same(results(loaded, inputs), results(ours, inputs), 0.0, "loaded")
    assert_same(results(loaded, inputs), results(oracle, inputs), 1e-12, "stock")
