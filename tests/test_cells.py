"""tf_ecornn.LSTMCell and GRUCell against Keras's cells in float64."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
from layer_pairs import (
    BATCH,
    FEATURES,
    UNITS,
    assert_equal,
    copy_weights,
    random_weights,
    tensors_of,
    weigh,
)
from tf_ecornn import fused_cell

CLASSES = {
    "lstm": (keras.layers.LSTMCell, tf_ecornn.LSTMCell, {}),
    "gru": (keras.layers.GRUCell, tf_ecornn.GRUCell, {}),
    "gru_before": (
        keras.layers.GRUCell,
        tf_ecornn.GRUCell,
        {"reset_after": False},
    ),
}
KINDS = tuple(CLASSES)
OURS = (tf_ecornn.LSTMCell, tf_ecornn.GRUCell)


def make_cells(kind, units=UNITS, features=FEATURES, **options):
    """(stock, ours), built, with equal weights, both float64 unless told."""
    stock_class, our_class, form = CLASSES[kind]
    options = {"dtype": "float64", **form, **options}
    cells = [c(units, **options) for c in (stock_class, our_class)]
    for cell in cells:
        cell.build((None, features))
    random_weights(cells[0])
    copy_weights(*cells)
    return cells


def draw(seed, *shape):
    return tf.constant(np.random.default_rng(seed).normal(size=shape))


def draw_cell_states(kind, seed=0, batch=BATCH, units=UNITS):
    return [draw([seed, i], batch, units) for i in range(2 if kind == "lstm" else 1)]


def decode(cell, x, states, training=False, extra=()):
    """Outputs, last states and all gradients of a user's loop over x (B, T, F)."""
    sources = [x, *states, *extra, *tensors_of(cell)]
    with tf.GradientTape() as tape:
        tape.watch([x, *states, *extra])
        now, outputs = list(states), []
        for t in range(x.shape[1]):
            output, now = cell(x[:, t], now, training=training)
            outputs.append(output)
        found = [*outputs, *now]
        total = tf.add_n([tf.reduce_sum(weigh(i, v)) for i, v in enumerate(found)])
    return [*found, *tape.gradient(total, sources)]


def assert_all_equal(actual, expected, tolerance=1e-11):
    assert len(actual) == len(expected)
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert_equal(a, e, f"value {i}", tolerance)


def assert_same_decoding(cells, kind, steps=3, **call):
    stock, ours = cells
    x, states = draw(9, BATCH, steps, FEATURES), draw_cell_states(kind)
    expected = decode(stock, x, states, **call)
    assert_all_equal(decode(ours, x, states, **call), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_options(kind, fused_calls):
    """Results, states and every gradient of a loop, for each option."""
    options = [
        {},
        {"use_bias": False},
        {"implementation": 1},
        {"activation": "relu", "recurrent_activation": "hard_sigmoid"},
        {"activation": None, "recurrent_activation": keras.activations.softsign},
    ]
    for given in options:
        assert_same_decoding(make_cells(kind, **given), kind)
    assert fused_calls() == len(options) * 2 * 3


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_with_the_same_seed(kind, fused_calls):
    """Keras's own masks: held from step to step, drawn anew after a reset."""
    for given in (
        {"dropout": 0.4},
        {"dropout": 0.4, "implementation": 1},
        {"recurrent_dropout": 0.4},
        {"dropout": 0.3, "recurrent_dropout": 0.3},
        {"dropout": 1.0, "recurrent_dropout": 1.0},
    ):
        cells = make_cells(kind, seed=5, **given)
        for training in (True, False, True):
            assert_same_decoding(cells, kind, training=training)
        held = cells[1].get_dropout_mask(draw(9, BATCH, FEATURES))
        for cell in cells:
            cell.reset_dropout_mask()
            cell.reset_recurrent_dropout_mask()
        assert_same_decoding(cells, kind, training=True)
        drawn = cells[1].get_dropout_mask(draw(9, BATCH, FEATURES))
        if 0 < cells[1].dropout < 1:
            assert np.any(np.not_equal(held, drawn))
    assert fused_calls() == 5 * 4 * 2 * 3


@pytest.mark.parametrize("kind", KINDS)
def test_forms_of_the_states(kind):
    """Lists and tuples; the GRU's state also alone, and back in the same form."""
    stock, ours = make_cells(kind)
    x, states = draw(1, BATCH, FEATURES), draw_cell_states(kind)
    forms = [states, tuple(states)]
    if kind != "lstm":
        forms.append(states[0])
    for form in forms:
        output, new = ours(x, form)
        expected, expected_new = stock(x, form)
        assert type(new) is type(expected_new) or tf.is_tensor(new)
        assert_all_equal(
            [output, *tf.nest.flatten(new)], [expected, *tf.nest.flatten(expected_new)]
        )


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_graph_with_unknown_sizes(kind, fused_calls):
    """One trace: a `tf.while_loop` of the user's over any B and T."""
    stock, ours = make_cells(kind)
    count = len(draw_cell_states(kind))

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None, FEATURES), tf.float64),
            [tf.TensorSpec((None, UNITS), tf.float64)] * count,
        ]
    )
    def run(x, states):
        sources = [x, *states, *tensors_of(ours)]
        with tf.GradientTape() as tape:
            tape.watch([x, *states])
            now, outputs = states, tf.TensorArray(tf.float64, tf.shape(x)[1])
            for t in tf.range(tf.shape(x)[1]):
                output, now = ours(x[:, t], now)
                outputs = outputs.write(t, output)
            found = [tf.transpose(outputs.stack(), [1, 0, 2]), *now]
            total = tf.add_n([tf.reduce_sum(tf.sin(v)) for v in found])
        return [*found, *tape.gradient(total, sources)]

    for batch, steps in ((BATCH, 3), (1, 5)):
        x = draw(batch, batch, steps, FEATURES)
        states = draw_cell_states(kind, batch=batch)
        sources = [x, *states, *tensors_of(stock)]
        with tf.GradientTape() as tape:
            tape.watch([x, *states])
            now, outputs = states, []
            for t in range(steps):
                output, now = stock(x[:, t], now)
                outputs.append(output)
            found = [tf.stack(outputs, 1), *now]
            total = tf.add_n([tf.reduce_sum(tf.sin(v)) for v in found])
        expected = [*found, *tape.gradient(total, sources)]
        before = fused_calls()
        assert_all_equal(run(x, states), expected)
        assert fused_calls() - before == 2 * steps
    assert run.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_attention_decoder(kind, fused_calls):
    """The state asks, the memory answers, the answer is part of the next input."""
    width = 3
    memory = draw(4, BATCH, 6, width)
    ask = draw(5, UNITS, width)

    class Attention(keras.layers.Layer):
        def __init__(self, cell):
            super().__init__(dtype="float64")
            self.cell = cell

        def call(self, x, states, training=False):
            score = tf.einsum("bu,uw,bmw->bm", states[0], ask, memory)
            answer = tf.einsum("bm,bmw->bw", tf.nn.softmax(score), memory)
            return self.cell(tf.concat([x, answer], 1), states, training=training)

    stock, ours = make_cells(kind, features=FEATURES + width)
    x, states = draw(9, BATCH, 4, FEATURES), draw_cell_states(kind)
    expected = decode(Attention(stock), x, states)
    assert_all_equal(decode(Attention(ours), x, states), expected)
    assert fused_calls() == 2 * 4


@pytest.mark.parametrize("kind", KINDS)
def test_in_keras_rnn(kind, fused_calls):
    """Stock RNN and StackedRNNCells call our cell step by step."""
    layers = []
    for cell in make_cells(kind, recurrent_dropout=0.2, seed=3):
        second = keras.layers.LSTMCell(2, dtype="float64", seed=1)
        stack = keras.layers.StackedRNNCells([cell, second], dtype="float64")
        layers.append(keras.layers.RNN(stack, return_sequences=True, dtype="float64"))
        layers[-1].build((BATCH, 5, FEATURES))
        random_weights(second, seed=8)
    x, mask = draw(2, BATCH, 5, FEATURES), draw(3, BATCH, 5) > 0
    found = []
    for layer in layers:
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = layer(x, mask=mask, training=True)
            total = tf.reduce_sum(weigh(0, output))
        found.append([output, *tape.gradient(total, [x, *tensors_of(layer)])])
    assert_all_equal(found[1], found[0])
    assert fused_calls() >= 2 * 5
    (row,) = tf_ecornn.explain(layers[1])
    assert not row.fused


def test_functional_model_and_file(tmp_path, fused_calls):
    """Symbolic calls; a saved model has our cells; stock cells take its weights."""

    def model_with(lstm, gru):
        x, h, c, g = (keras.Input((n,)) for n in (FEATURES, UNITS, UNITS, 4))
        y, [new_h, new_c] = lstm(x, [h, c])
        z, new_g = gru(y, g)
        return keras.Model([x, h, c, g], [z, new_h, new_c, new_g])

    ours = model_with(
        tf_ecornn.LSTMCell(UNITS, unit_forget_bias=False), tf_ecornn.GRUCell(4)
    )
    random_weights(ours)
    ours.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert [type(layer) for layer in loaded.layers if layer.weights] == list(OURS)
    ours.save_weights(tmp_path / "model.weights.h5")
    stock = model_with(keras.layers.LSTMCell(UNITS), keras.layers.GRUCell(4))
    stock.load_weights(tmp_path / "model.weights.h5")
    values = [draw(i, BATCH, n) for i, n in enumerate((FEATURES, UNITS, UNITS, 4))]
    expected = stock(values)
    for model in (ours, loaded):
        before = fused_calls()
        for a, e in zip(model(values), expected, strict=True):
            np.testing.assert_allclose(a, e, atol=1e-6)
        assert fused_calls() - before == 2
    assert [r.fused for r in tf_ecornn.explain(loaded)] == [True, True]


@pytest.mark.parametrize("cell_class", OURS)
def test_config(cell_class):
    for given in (
        {},
        {"implementation": 1, "use_bias": False, "seed": 3},
        {"dropout": 0.2, "recurrent_dropout": 0.1, "dtype": "mixed_float16"},
        {"activation": "relu", "kernel_regularizer": "l2", "name": "unusual"},
    ):
        cell = cell_class(UNITS, **given)
        clone = keras.saving.deserialize_keras_object(
            keras.saving.serialize_keras_object(cell)
        )
        assert type(clone) is cell_class
        assert clone.get_config() == cell.get_config()
        assert clone.implementation == cell.implementation
        stock = cell_class._stock.from_config(cell.get_config())
        assert stock.implementation == cell.implementation


@pytest.mark.parametrize("policy", ("mixed_float16", "mixed_bfloat16", "bfloat16"))
@pytest.mark.parametrize("kind", KINDS)
def test_precision(kind, policy, fused_calls):
    """Near the float64 cell that has the same rounded weights and inputs."""
    exact, ours = make_cells(kind)[0], CLASSES[kind][1]
    cell = ours(UNITS, dtype=policy, **CLASSES[kind][2])
    cell.build((None, FEATURES))
    dtype = tf.as_dtype(cell.compute_dtype)
    for mine, theirs in zip(cell.trainable_weights, exact.trainable_weights):
        mine.assign(theirs)
        theirs.assign(tf.cast(tf.cast(theirs.value, dtype), tf.float64))
    x = tf.cast(draw(1, BATCH, FEATURES), dtype)
    states = [tf.cast(s, dtype) for s in draw_cell_states(kind)]
    output, new = cell(x, states)
    wide = [tf.cast(v, tf.float64) for v in (x, *states)]
    expected, expected_new = exact(wide[0], wide[1:])
    epsilon = 2.0**-10 if dtype == tf.float16 else 2.0**-7
    for a, e in zip([output, *new], [expected, *expected_new], strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(tf.cast(a, tf.float64), e, atol=4 * epsilon)
    assert fused_calls() == 1


@pytest.mark.parametrize("cell_class", OURS)
@pytest.mark.parametrize("units", (0, -1, 2.5, "8", None, True))
def test_units_that_are_none(cell_class, units):
    with pytest.raises(ValueError, match="units") as error:
        cell_class(units)
    assert repr(units) in str(error.value)


@pytest.mark.parametrize("cell_class", OURS)
def test_numpy_units(cell_class):
    cell = cell_class(np.int64(4))
    assert type(cell.units) is int
    assert cell(tf.zeros((2, 3)), cell.get_initial_state(2))[0].shape == (2, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_that_do_not_fit(kind):
    cell = make_cells(kind)[1]
    x, states = draw(1, BATCH, FEATURES), draw_cell_states(kind)
    errors = (ValueError, tf.errors.InvalidArgumentError)
    for inputs, given in (
        (x[:, None], states),
        (x[:, 1:], states),
        (x, [s[:1] for s in states]),
        (x, [s[:, 1:] for s in states]),
        (x, [*states, states[0]]),
    ):
        with pytest.raises(errors):
            cell(inputs, given)


def our_own_activation(x):
    return x * tf.tanh(tf.math.softplus(x))


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_activation_runs_the_stock_step(kind, fused_calls, monkeypatch):
    monkeypatch.setattr(fused_cell, "_said", set())
    cells = make_cells(kind, activation=our_own_activation)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert_same_decoding(cells, kind)
    said = [str(w.message) for w in caught if "tf_ecornn" in str(w.message)]
    assert len(said) == 1 and "our_own_activation" in said[0]
    assert not cells[1].fused and fused_calls() == 0
    (row,) = tf_ecornn.explain(cells[1])
    assert not row.fused and "our_own_activation" in row.reason


def test_subclasses(fused_calls):
    """A changed step is the user's; around an own `call`, ours stays fused."""

    class Peephole(tf_ecornn.LSTMCell):
        def _compute_carry_and_output_fused(self, z, c_tm1):
            z = [z[0] + c_tm1, *z[1:]]
            return super()._compute_carry_and_output_fused(z, c_tm1)

    class Residual(tf_ecornn.GRUCell):
        def call(self, inputs, states, training=False):
            output, states = super().call(inputs, states, training=training)
            return output + inputs[:, :1], states

    x = draw(1, BATCH, FEATURES)
    for cell_class, kind in ((Peephole, "lstm"), (Residual, "gru")):
        stock, ours = make_cells(kind)
        cell = cell_class(UNITS, dtype="float64")
        cell.build((None, FEATURES))
        copy_weights(stock, cell)
        states = draw_cell_states(kind)
        before = fused_calls()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            output, _ = cell(x, states)
        if kind == "gru":
            assert cell.fused and fused_calls() - before == 1
            assert_equal(output, stock(x, states)[0] + x[:, :1], "output")
        else:
            assert not cell.fused and fused_calls() == before
            assert np.abs(output - stock(x, states)[0]).max() > 1e-3
