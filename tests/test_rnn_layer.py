"""tf_ecornn.RNN, around one cell and around stacks, against Keras's in float64."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
from layer_pairs import (
    BATCH,
    FEATURES,
    STEPS,
    assert_equal,
    copy_weights,
    draw_inputs,
    draw_layer_mask,
    random_weights,
    tensors_of,
    weigh,
)
from tf_ecornn import fused_cell

STACK = (("LSTM", 5), ("GRU", 4), ("LSTM", 3))


@pytest.fixture(autouse=True)
def prepared(monkeypatch, float64_everywhere):
    """Every reason still unsaid; the stacks that RNN makes of lists in float64."""
    monkeypatch.setattr(fused_cell, "_said", set())


def make_cells(cells, module, **options):
    """Cells of keras.layers or tf_ecornn, each with its own seed, in float64."""
    options = {"dtype": "float64", **options}
    return [
        getattr(module, f"{kind}Cell")(units, seed=i, **options)
        for i, (kind, units) in enumerate(cells)
    ]


def make_layers(cells=STACK, module=tf_ecornn, cell_options=None, **options):
    """(stock, ours), built, with equal weights; ours has `module`'s cells."""
    pair = []
    for rnn, cell_module in ((keras.layers.RNN, keras.layers), (tf_ecornn.RNN, module)):
        made = make_cells(cells, cell_module, **(cell_options or {}))
        cell = made if len(made) > 1 else made[0]
        pair.append(rnn(cell, **{"dtype": "float64", **options}))
        pair[-1].build((BATCH, STEPS, FEATURES))
    random_weights(pair[0])
    copy_weights(*pair)
    return pair


def draw_stack_states(cells=STACK, batch=BATCH, seed=0):
    """Nested as the layer has them: one cell's flat, a stack's by cell."""
    rng = np.random.default_rng(seed)
    states = [
        [tf.constant(rng.normal(size=(batch, units))) for _ in range(1 + (k == "LSTM"))]
        for k, units in cells
    ]
    return states if len(states) > 1 else states[0]


def results(layer, x, states=None, **call):
    """All results and the gradients of x, the states and the weights."""
    given = {} if states is None else {"initial_state": states}
    sources = [x, *tf.nest.flatten(states or []), *tensors_of(layer)]
    with tf.GradientTape() as tape:
        tape.watch([s for s in sources if tf.is_tensor(s)])
        found = tf.nest.flatten(layer(x, **given, **call))
        total = tf.add_n([tf.reduce_sum(weigh(i, v)) for i, v in enumerate(found)])
    return [*found, *tape.gradient(total, sources)]


def assert_same(layers, x=None, **call):
    x = draw_inputs() if x is None else x
    stock, ours = (results(layer, x, **call) for layer in layers)
    assert len(stock) == len(ours)
    for i, (a, e) in enumerate(zip(ours, stock, strict=True)):
        assert_equal(a, e, f"value {i}")


@pytest.mark.parametrize("module", (tf_ecornn, keras.layers))
@pytest.mark.parametrize(
    "cells", (STACK, STACK[:1], STACK[1:2]), ids=("stack", "lstm", "gru")
)
def test_masks_and_directions(cells, module, fused_calls):
    """Our cells and stock ones; two calls for each cell, forward and gradient."""
    masks = ("none", "random", "some_rows_off")
    for number, mask in enumerate(masks if module is tf_ecornn else masks[:1]):
        for options in (
            {"return_state": True},
            {"return_sequences": True, "go_backwards": True, "return_state": True},
            {"zero_output_for_mask": True, "go_backwards": True},
            {"zero_output_for_mask": True, "return_sequences": True},
        ):
            layers = make_layers(cells, module, **options)
            states = draw_stack_states(cells) if number else None
            before = fused_calls()
            assert_same(
                layers, states=states, mask=draw_layer_mask(mask), training=True
            )
            assert fused_calls() - before == 2 * len(cells)


@pytest.mark.parametrize(
    "rates",
    (
        {"dropout": 0.3},
        {"dropout": 0.3, "implementation": 1},
        {"recurrent_dropout": 0.3},
        {"dropout": 0.3, "recurrent_dropout": 0.3},
    ),
)
def test_dropout_draws_what_keras_draws(rates, fused_calls):
    """Several calls, one in inference, which draws as well; in a graph, too."""
    layers = make_layers(cell_options=rates, return_sequences=True)
    mask = draw_layer_mask("random")
    for training in (True, False, True):
        assert_same(layers, mask=mask, training=training)
    # A gradient in inference runs the forward pass again.
    assert fused_calls() == (2 + 3 + 2) * len(STACK)
    stock, ours = (
        tf.function(lambda x, layer=layer: layer(x, training=True))(draw_inputs())
        for layer in layers
    )
    assert_equal(ours, stock, "output of a graph")


def test_cell_options(fused_calls):
    for options in (
        {"use_bias": False, "activation": "relu"},
        {"recurrent_activation": "hard_sigmoid"},
    ):
        layers = make_layers(cell_options=options, unroll=True)
        assert_same(layers, mask=draw_layer_mask("random"), training=True)
    stock, ours = make_layers((("GRU", 4),), cell_options={"reset_after": False})
    assert_same((stock, ours), training=True)
    assert fused_calls() == 2 * (3 + 3 + 1)


def test_unknown_sizes_in_one_trace(fused_calls):
    stock, ours = make_layers(return_sequences=True, go_backwards=True)
    traced = tf.function(
        lambda x, mask: ours(x, mask=mask),
        input_signature=[
            tf.TensorSpec((None, None, FEATURES), tf.float64),
            tf.TensorSpec((None, None), tf.bool),
        ],
    )
    for batch, steps in ((3, 5), (1, 1), (2, 7)):
        x = draw_inputs(batch=batch, steps=steps)
        mask = draw_layer_mask("random", batch=batch, steps=steps)
        assert_equal(traced(x, mask), stock(x, mask=mask), (batch, steps))
    assert traced.experimental_get_tracing_count() == 1
    assert fused_calls() == 3 * len(STACK)


def test_stateful(fused_calls):
    """Three batches in a row, each from the states before; then from zero."""
    layers = make_layers(stateful=True, return_state=True)
    for number in range(3):
        assert_same(layers, x=draw_inputs(number), training=True)
    first = [v.numpy() for v in tf.nest.flatten(layers[1](draw_inputs()))]
    layers[1].reset_state()
    for variable in tf.nest.flatten(layers[1].states):
        assert not np.any(variable)
    anew = [v.numpy() for v in tf.nest.flatten(layers[1](draw_inputs()))]
    assert np.abs(first[0] - anew[0]).max() > 1e-3
    fresh = keras.layers.RNN(layers[0].cell, return_state=True)
    for a, e in zip(anew, tf.nest.flatten(fresh(draw_inputs())), strict=True):
        assert_equal(a, e, "after the reset")
    with pytest.raises(ValueError, match="batch size"):
        layers[1](draw_inputs(batch=BATCH + 1))


def test_nan_at_masked_steps_reaches_nothing():
    layers = make_layers(return_sequences=True, return_state=True)
    mask = draw_layer_mask("random")
    x = draw_inputs()
    poisoned = tf.where(mask[:, :, None], x, np.nan)
    expected = results(layers[0], x, mask=mask)
    actual = results(layers[1], poisoned, mask=mask)
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert_equal(a, e, f"value {i}")


def test_bidirectional(fused_calls):
    stock, ours = (
        keras.layers.Bidirectional(layer)
        for layer in make_layers(STACK[:2], return_sequences=True)
    )
    for wrapped in (stock, ours):
        wrapped.build((BATCH, STEPS, FEATURES))
    copy_weights(stock, ours)
    assert type(ours.backward_layer) is tf_ecornn.RNN
    assert_same((stock, ours), mask=draw_layer_mask("right"), training=True)
    assert fused_calls() == 2 * 2 * 2


@pytest.mark.parametrize("policy", ("mixed_float16", "mixed_bfloat16", "bfloat16"))
def test_precision(policy, fused_calls):
    """The layer in a narrow dtype, near the float64 layer."""
    keras.config.set_dtype_policy(policy)
    options = {"dtype": policy}
    layer = tf_ecornn.RNN(make_cells(STACK, tf_ecornn, **options), return_state=True)
    layer.build((BATCH, STEPS, FEATURES))
    keras.config.set_dtype_policy("float64")
    exact = make_layers(return_state=True)[0]
    # copied, then copied back: both have the rounded weights
    copy_weights(exact, layer)
    copy_weights(layer, exact)
    x = tf.cast(draw_inputs(), layer.compute_dtype)
    found = tf.nest.flatten(layer(x))
    expected = tf.nest.flatten(exact(tf.cast(x, tf.float64)))
    epsilon = 2.0**-10 if layer.compute_dtype == "float16" else 2.0**-7
    for a, e in zip(found, expected, strict=True):
        assert a.dtype == layer.compute_dtype
        np.testing.assert_allclose(tf.cast(a, tf.float64), e, atol=8 * epsilon)
    assert fused_calls() == len(STACK)


def test_each_cell_computes_in_its_own_dtype():
    """A float64 cell in a float16 layer: only what passes the layer is rounded."""
    stock, ours = make_layers(STACK[:1], dtype="float16")
    x = tf.cast(draw_inputs(), tf.float16)
    found = ours.inner_loop(x, ours.get_initial_state(BATCH), None)[0]
    assert found.dtype == tf.float64
    exact = keras.layers.RNN(stock.cell, dtype="float64")
    assert_equal(found, exact(tf.cast(x, tf.float64)), "before the layer rounds")
    # Not a bit more: the kernels are not rounded to the layer's dtype.
    np.testing.assert_array_equal(ours(x), tf.cast(found, tf.float16))


# Config, files, explain -------------------------------------------------------


def test_config_and_file(tmp_path, fused_calls):
    x = keras.Input((None, FEATURES))
    cells = make_cells(STACK, tf_ecornn)
    layer = tf_ecornn.RNN(cells, return_sequences=True, zero_output_for_mask=True)
    y = keras.layers.Masking()(x)
    model = keras.Model(x, tf_ecornn.RNN(tf_ecornn.GRUCell(2))(layer(y)))
    random_weights(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for a, e in zip(loaded.layers, model.layers, strict=True):
        assert type(a) is type(e)
        configs = [{**layer.get_config(), "cell": None} for layer in (a, e)]
        assert configs[0] == configs[1]
    found = [layer for layer in loaded.layers if isinstance(layer, tf_ecornn.RNN)]
    for a, e in zip(found[0].cell.cells, cells, strict=True):
        assert type(a) is type(e) and a.get_config() == e.get_config()
    before = fused_calls()
    values = draw_inputs()
    assert_equal(loaded(values), model(values), "loaded")
    assert fused_calls() - before == 2 * 4

    stock = keras.layers.RNN(
        make_cells(STACK, keras.layers), return_sequences=True, name=layer.name
    )
    z = keras.layers.RNN(keras.layers.GRUCell(2))(stock(keras.layers.Masking()(x)))
    stock_model = keras.Model(x, z)
    model.save_weights(tmp_path / "model.weights.h5")
    stock_model.load_weights(tmp_path / "model.weights.h5")
    stock.zero_output_for_mask = True
    assert_equal(model(values), stock_model(values), "weights in the stock layers")


def test_positional_arguments_and_errors():
    layer = tf_ecornn.RNN(tf_ecornn.LSTMCell(3), True, True)
    assert layer.return_sequences and layer.return_state
    for value in (3, None, keras.layers.Dense(2)):
        with pytest.raises(ValueError):
            tf_ecornn.RNN(value)
    layer = make_layers()[1]
    flat = tf.nest.flatten(draw_stack_states())
    for given in (flat, draw_stack_states()[:2], draw_stack_states(batch=1)):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
            layer(draw_inputs(), initial_state=given)
    for shape in ((BATCH, STEPS + 1), (BATCH + 1, STEPS)):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
            layer(draw_inputs(), mask=tf.ones(shape, tf.bool))
    with pytest.raises(ValueError, match="batch, timesteps, features"):
        layer(draw_inputs()[..., None, :])


class DoubledCell(tf_ecornn.LSTMCell):
    def call(self, inputs, states, training=False):
        output, states = super().call(inputs, states, training=training)
        return 2 * output, states


class ResidualStack(keras.layers.StackedRNNCells):
    def call(self, inputs, states, **kwargs):
        output, states = super().call(inputs, states, **kwargs)
        return output + inputs[:, :1], states


def our_own_activation(x):
    return x * tf.tanh(tf.math.softplus(x))


def test_what_is_not_fused_runs_the_stock_loop(fused_calls):
    """Same results as the stock layer around the same cell, said once, explained."""
    cells = {
        "SimpleRNNCell": keras.layers.SimpleRNNCell(4),
        "`call`": DoubledCell(4),
        "ResidualStack": ResidualStack(make_cells(STACK, keras.layers)),
        "our_own_activation": keras.layers.StackedRNNCells(
            [keras.layers.GRUCell(3), keras.layers.GRUCell(3, our_own_activation)]
        ),
    }
    mask = draw_layer_mask("random")
    for reason, cell in cells.items():
        ours = tf_ecornn.RNN(cell, return_sequences=True, name=f"with_{len(reason)}")
        stock = keras.layers.RNN(cell, return_sequences=True)
        for layer in (stock, ours):
            layer.build((BATCH, STEPS, FEATURES))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                assert_same((stock, ours), mask=mask)
        said = [str(w.message) for w in caught if "tf_ecornn" in str(w.message)]
        assert len(said) == 1 and reason in said[0] and ours.name in said[0]
        assert not ours.fused and ours.supports_jit
        (row,) = tf_ecornn.explain(keras.Sequential([ours]))
        assert (row.kind, row.fused) == ("tf_ecornn.RNN", False)
        assert reason in row.reason
    assert make_layers()[1].supports_jit == fused_cell.ops_support_jit()


def test_explain_of_stock_rnn_around_our_cell():
    (row,) = tf_ecornn.explain(keras.layers.RNN(tf_ecornn.LSTMCell(3)))
    assert not row.fused and "step" in row.reason
    (row,) = tf_ecornn.explain(tf_ecornn.RNN(keras.layers.LSTMCell(3)))
    assert row.fused
