"""Constructor, config and files of tf_ecornn.LSTM."""

import inspect

import keras
import numpy as np
import pytest

import tf_ecornn
from layer_pairs import (
    BATCH,
    FEATURES,
    STEPS,
    UNITS,
    assert_equal,
    draw_inputs,
    make_pair,
    random_weights,
)

EVERY_OPTION = {
    "activation": "relu",
    "recurrent_activation": "hard_sigmoid",
    "use_bias": False,
    "kernel_initializer": "he_normal",
    "recurrent_initializer": "glorot_uniform",
    "bias_initializer": "ones",
    "unit_forget_bias": False,
    "kernel_regularizer": "l1",
    "recurrent_regularizer": "l2",
    "bias_regularizer": "l1",
    "activity_regularizer": "l2",
    "kernel_constraint": "non_neg",
    "recurrent_constraint": "max_norm",
    "bias_constraint": "unit_norm",
    "dropout": 0.25,
    "recurrent_dropout": 0.5,
    "seed": 17,
    "return_sequences": True,
    "return_state": True,
    "go_backwards": True,
    "stateful": True,
    "unroll": True,
    "use_cudnn": False,
    "implementation": 1,
    "zero_output_for_mask": True,
    "name": "unusual",
    "dtype": "float64",
    "trainable": False,
}


def test_class():
    assert issubclass(tf_ecornn.LSTM, keras.layers.LSTM)
    assert tf_ecornn.LSTM.__name__ == "LSTM"
    layer = tf_ecornn.LSTM(3)
    assert keras.saving.get_registered_name(tf_ecornn.LSTM) != "LSTM"
    assert isinstance(layer, keras.layers.RNN)


def test_constructor_has_keras_arguments_in_keras_order():
    """Ours come after them, by keyword only."""
    stock = list(inspect.signature(keras.layers.LSTM.__init__).parameters.values())
    ours = list(inspect.signature(tf_ecornn.LSTM.__init__).parameters.values())
    positional = [p for p in stock if p.kind is p.POSITIONAL_OR_KEYWORD]
    accepts_all = any(p.kind is p.VAR_POSITIONAL for p in ours)
    if not accepts_all:
        found = [p for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert [(p.name, p.default) for p in found] == [
            (p.name, p.default) for p in positional
        ]
    by_position = tf_ecornn.LSTM(4, "relu", "tanh", False)
    assert by_position.activation is keras.activations.relu
    assert by_position.recurrent_activation is keras.activations.tanh
    assert not by_position.use_bias


@pytest.mark.parametrize("name", EVERY_OPTION)
def test_config_round_trip_of_each_option(name):
    check_round_trip({name: EVERY_OPTION[name]})


def test_config_round_trip_of_all_options():
    check_round_trip(EVERY_OPTION)
    check_round_trip({})


def check_round_trip(options):
    layer = tf_ecornn.LSTM(UNITS, **options)
    config = layer.get_config()
    clone = tf_ecornn.LSTM.from_config(config)
    assert clone.get_config() == layer.get_config()
    for name in ("use_cudnn", "zero_output_for_mask", "go_backwards", "unroll"):
        assert getattr(clone, name) == getattr(layer, name), name
    assert clone.cell.implementation == layer.cell.implementation
    assert clone.dtype_policy.name == layer.dtype_policy.name
    through_json = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert type(through_json) is tf_ecornn.LSTM
    assert through_json.get_config() == layer.get_config()


def test_from_config_leaves_its_argument_alone():
    config = tf_ecornn.LSTM(UNITS, implementation=1).get_config()
    before = dict(config)
    tf_ecornn.LSTM.from_config(config)
    assert config == before


def test_stock_layer_reads_our_config_and_the_reverse():
    options = {k: v for k, v in EVERY_OPTION.items() if k not in ("dtype",)}
    for given in ({}, options):
        ours = tf_ecornn.LSTM(UNITS, **given)
        stock = keras.layers.LSTM.from_config(ours.get_config())
        assert type(stock) is keras.layers.LSTM
        back = tf_ecornn.LSTM.from_config(stock.get_config())
        for name in ("dropout", "recurrent_dropout", "go_backwards", "stateful"):
            assert getattr(back, name) == getattr(ours, name)


@pytest.mark.parametrize("units", (np.int32(4), np.int64(4), np.uint8(4)))
def test_numpy_integers_as_units(units):
    layer = tf_ecornn.LSTM(units)
    assert layer.units == 4
    x = keras.Input((None, FEATURES))
    assert layer(x).shape == (None, 4)
    assert layer.get_config()["units"] == 4


def test_weights_have_stock_names_shapes_and_values():
    """Equal seeds give equal weights, in Keras's order."""
    found = []
    for lstm in (keras.layers.LSTM, tf_ecornn.LSTM):
        keras.utils.set_random_seed(5)
        layer = lstm(UNITS)
        layer.build((None, None, FEATURES))
        found.append(layer)
    stock, ours = found
    for a, e in zip(ours.weights, stock.weights, strict=True):
        assert a.name == e.name and a.path.split("/")[1:] == e.path.split("/")[1:]
        assert_equal(a, e, a.name)
    assert ours.count_params() == stock.count_params()


def model_of(lstm, wrap=False, dropout=0.1):
    layer = lstm(UNITS, return_sequences=True, use_bias=wrap)
    return keras.Sequential(
        [
            keras.Input((None, FEATURES)),
            keras.layers.Bidirectional(layer) if wrap else layer,
            lstm(3, dropout=dropout, seed=4),
            keras.layers.Dense(1),
        ]
    )


@pytest.mark.parametrize("wrap", (False, True))
@pytest.mark.parametrize("suffix", (".weights.h5", ".keras"))
def test_weight_files_interchange_with_stock(suffix, wrap, tmp_path):
    x = draw_inputs()
    for source_class, target_class in (
        (keras.layers.LSTM, tf_ecornn.LSTM),
        (tf_ecornn.LSTM, keras.layers.LSTM),
    ):
        source, target = model_of(source_class, wrap), model_of(target_class, wrap)
        random_weights(source, seed=1)
        path = tmp_path / f"{source_class.__module__}{suffix}"
        if suffix == ".keras":
            source.save(path)
        else:
            source.save_weights(path)
        target.load_weights(path)
        for a, e in zip(target.weights, source.weights, strict=True):
            assert_equal(a, e, a.path)
        np.testing.assert_allclose(target(x), source(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrap", (False, True))
def test_keras_file_loads_as_ours_without_custom_objects(wrap, tmp_path):
    model = model_of(tf_ecornn.LSTM, wrap)
    random_weights(model, seed=2)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    layers = [getattr(layer, "forward_layer", layer) for layer in loaded.layers[:2]]
    assert all(type(layer) is tf_ecornn.LSTM for layer in layers)
    np.testing.assert_array_equal(loaded(draw_inputs()), model(draw_inputs()))
    cloned = keras.models.clone_model(model)
    assert type(cloned.layers[1]) is tf_ecornn.LSTM


def test_stateful_model_file(tmp_path):
    layer = tf_ecornn.LSTM(UNITS, stateful=True)
    model = keras.Sequential([keras.Input(batch_shape=(BATCH, STEPS, FEATURES)), layer])
    model(draw_inputs())
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    layer.reset_state()
    for seed in range(2):
        x = draw_inputs(seed)
        np.testing.assert_array_equal(loaded(x), model(x))


def test_training_goes_on_after_loading(tmp_path):
    """The compiled state survives: same next loss, saved or not."""
    model = model_of(tf_ecornn.LSTM, dropout=0.0)
    model.compile("adam", "mse")
    x, y = draw_inputs().numpy(), np.ones((BATCH, 1))
    model.fit(x, y, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    model.reset_metrics()
    np.testing.assert_allclose(
        loaded.train_on_batch(x, y), model.train_on_batch(x, y), rtol=1e-6
    )


def test_layers_pickle_and_copy():
    import copy

    _, ours = make_pair()
    clone = copy.deepcopy(ours)
    assert_equal(clone(draw_inputs()), ours(draw_inputs()), "deepcopy")
