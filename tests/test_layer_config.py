"""Constructor, config and files of tf_ecornn.LSTM and GRU."""

import inspect

import keras
import numpy as np
import pytest

from layer_pairs import (
    BATCH,
    FEATURES,
    KINDS,
    STEPS,
    UNITS,
    assert_equal,
    draw_inputs,
    make_pair,
    random_weights,
)

pytestmark = pytest.mark.parametrize("kind", KINDS)
EVERY_OPTION = {
    "activation": "relu",
    "recurrent_activation": "hard_sigmoid",
    "use_bias": False,
    "kernel_initializer": "he_normal",
    "recurrent_initializer": "glorot_uniform",
    "bias_initializer": "ones",
    "unit_forget_bias": False,
    "reset_after": False,
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


# Options that only one of the layers has.
OWN_OPTIONS = {"unit_forget_bias": ("lstm",), "reset_after": ("gru", "gru_before")}


def options_of(kind, options=EVERY_OPTION):
    """Those that the kind of layer has."""
    return {k: v for k, v in options.items() if kind in OWN_OPTIONS.get(k, KINDS)}


def test_class(kind):
    ours, stock = KINDS[kind].ours, KINDS[kind].stock
    assert issubclass(ours, stock)
    assert ours.__name__ == stock.__name__
    layer = ours(3)
    assert keras.saving.get_registered_name(ours) != stock.__name__
    assert isinstance(layer, keras.layers.RNN)


def test_constructor_has_keras_arguments_in_keras_order(kind):
    """Ours come after them, by keyword only."""
    stock = list(inspect.signature(KINDS[kind].stock.__init__).parameters.values())
    ours = list(inspect.signature(KINDS[kind].ours.__init__).parameters.values())
    positional = [p for p in stock if p.kind is p.POSITIONAL_OR_KEYWORD]
    accepts_all = any(p.kind is p.VAR_POSITIONAL for p in ours)
    if not accepts_all:
        found = [p for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert [(p.name, p.default) for p in found] == [
            (p.name, p.default) for p in positional
        ]
    by_position = KINDS[kind].ours(4, "relu", "tanh", False)
    assert by_position.activation is keras.activations.relu
    assert by_position.recurrent_activation is keras.activations.tanh
    assert not by_position.use_bias


@pytest.mark.parametrize("name", EVERY_OPTION)
def test_config_round_trip_of_each_option(kind, name):
    check_round_trip(kind, options_of(kind, {name: EVERY_OPTION[name]}))


def test_config_round_trip_of_all_options(kind):
    check_round_trip(kind, options_of(kind))
    check_round_trip(kind, {})


def check_round_trip(kind, options):
    layer = KINDS[kind].make_ours(UNITS, **options)
    config = layer.get_config()
    clone = KINDS[kind].ours.from_config(config)
    assert clone.get_config() == layer.get_config()
    for name in ("use_cudnn", "zero_output_for_mask", "go_backwards", "unroll"):
        assert getattr(clone, name) == getattr(layer, name), name
    assert clone.cell.implementation == layer.cell.implementation
    assert clone.dtype_policy.name == layer.dtype_policy.name
    through_json = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert type(through_json) is KINDS[kind].ours
    assert through_json.get_config() == layer.get_config()


def test_from_config_leaves_its_argument_alone(kind):
    config = KINDS[kind].make_ours(UNITS, implementation=1).get_config()
    before = dict(config)
    KINDS[kind].ours.from_config(config)
    assert config == before


def test_stock_layer_reads_our_config_and_the_reverse(kind):
    options = {k: v for k, v in options_of(kind).items() if k != "dtype"}
    for given in ({}, options):
        ours = KINDS[kind].make_ours(UNITS, **given)
        stock = KINDS[kind].stock.from_config(ours.get_config())
        assert type(stock) is KINDS[kind].stock
        back = KINDS[kind].ours.from_config(stock.get_config())
        for name in ("dropout", "recurrent_dropout", "go_backwards", "stateful"):
            assert getattr(back, name) == getattr(ours, name)


@pytest.mark.parametrize("units", (np.int32(4), np.int64(4), np.uint8(4)))
def test_numpy_integers_as_units(kind, units):
    layer = KINDS[kind].make_ours(units)
    assert layer.units == 4
    x = keras.Input((None, FEATURES))
    assert layer(x).shape == (None, 4)
    assert layer.get_config()["units"] == 4


def test_weights_have_stock_names_shapes_and_values(kind):
    """Equal seeds give equal weights, in Keras's order."""
    found = []
    for make in KINDS[kind].makers:
        keras.utils.set_random_seed(5)
        layer = make(UNITS)
        layer.build((None, None, FEATURES))
        found.append(layer)
    stock, ours = found
    for a, e in zip(ours.weights, stock.weights, strict=True):
        assert a.name == e.name and a.path.split("/")[1:] == e.path.split("/")[1:]
        assert_equal(a, e, a.name)
    assert ours.count_params() == stock.count_params()


def model_of(make, wrap=False, dropout=0.1):
    layer = make(UNITS, return_sequences=True, use_bias=wrap)
    return keras.Sequential(
        [
            keras.Input((None, FEATURES)),
            keras.layers.Bidirectional(layer) if wrap else layer,
            make(3, dropout=dropout, seed=4),
            keras.layers.Dense(1),
        ]
    )


@pytest.mark.parametrize("wrap", (False, True))
@pytest.mark.parametrize("suffix", (".weights.h5", ".keras"))
def test_weight_files_interchange_with_stock(kind, suffix, wrap, tmp_path):
    x = draw_inputs()
    stock, ours = KINDS[kind].makers
    for number, makers in enumerate(((stock, ours), (ours, stock))):
        source, target = (model_of(make, wrap) for make in makers)
        random_weights(source, seed=1)
        path = tmp_path / f"{number}{suffix}"
        if suffix == ".keras":
            source.save(path)
        else:
            source.save_weights(path)
        target.load_weights(path)
        for a, e in zip(target.weights, source.weights, strict=True):
            assert_equal(a, e, a.path)
        np.testing.assert_allclose(target(x), source(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrap", (False, True))
def test_keras_file_loads_as_ours_without_custom_objects(kind, wrap, tmp_path):
    model = model_of(KINDS[kind].make_ours, wrap)
    random_weights(model, seed=2)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    layers = [getattr(layer, "forward_layer", layer) for layer in loaded.layers[:2]]
    assert all(type(layer) is KINDS[kind].ours for layer in layers)
    np.testing.assert_array_equal(loaded(draw_inputs()), model(draw_inputs()))
    cloned = keras.models.clone_model(model)
    assert type(cloned.layers[1]) is KINDS[kind].ours


def test_stateful_model_file(kind, tmp_path):
    layer = KINDS[kind].make_ours(UNITS, stateful=True)
    model = keras.Sequential([keras.Input(batch_shape=(BATCH, STEPS, FEATURES)), layer])
    model(draw_inputs())
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    layer.reset_state()
    for seed in range(2):
        x = draw_inputs(seed)
        np.testing.assert_array_equal(loaded(x), model(x))


def test_training_goes_on_after_loading(kind, tmp_path):
    """The compiled state survives: same next loss, saved or not."""
    model = model_of(KINDS[kind].make_ours, dropout=0.0)
    model.compile("adam", "mse")
    x, y = draw_inputs().numpy(), np.ones((BATCH, 1))
    model.fit(x, y, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    model.reset_metrics()
    np.testing.assert_allclose(
        loaded.train_on_batch(x, y), model.train_on_batch(x, y), rtol=1e-6
    )


def test_layers_pickle_and_copy(kind):
    import copy

    _, ours = make_pair(kind=kind)
    clone = copy.deepcopy(ours)
    assert_equal(clone(draw_inputs()), ours(draw_inputs()), "deepcopy")
