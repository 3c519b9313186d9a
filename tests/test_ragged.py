"""Ragged batches: every row as if it ran alone, unpadded."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
from layer_pairs import KINDS, assert_equal, random_weights, tensors_of, weigh
from problems import CELLS
from second_derivatives import assert_all_equal, second
from tf_ecornn import cell_op, op_gradient, recurrence

LENGTHS = (3, 0, 5, 1, 5)
UNITS = 4
# Of few features the product x W is joined to the op, of many it is not.
FEATURES = (3, 70)
FUNCTIONS = {
    "lstm": tf_ecornn.lstm,
    "gru": tf_ecornn.gru,
    "gru_before": lambda *args, **more: tf_ecornn.gru(*args, **more, reset_after=False),
}


def draw(cell, features=3, lengths=LENGTHS, seed=0):
    """The rows' steps (N, F), and what else has a gradient, by argument."""
    rng = np.random.default_rng([seed, features, *lengths])
    gates, states, form = CELLS[cell]

    def normal(*shape):
        return tf.constant(0.5 * rng.normal(size=shape))

    bias = (2, gates * UNITS) if form.get("reset_after") else (gates * UNITS,)
    return {
        "values": normal(sum(lengths), features),
        "kernel": normal(features, gates * UNITS),
        "recurrent_kernel": normal(UNITS, gates * UNITS),
        "bias": normal(*bias),
        "initial_state": [normal(len(lengths), UNITS) for _ in states],
    }


def ragged(values, lengths=LENGTHS, dtype=tf.int64):
    splits = tf.constant([0, *np.cumsum(lengths)], dtype)
    return tf.RaggedTensor.from_row_splits(values, splits)


def run_ragged(cell, given, sequences, lengths=LENGTHS, splits=tf.int64, **options):
    found = FUNCTIONS[cell](
        ragged(given["values"], lengths, splits),
        given["kernel"],
        given["recurrent_kernel"],
        given["bias"],
        initial_state=given["initial_state"],
        return_sequences=sequences,
        **options,
    )
    output, *states = found
    if sequences:
        assert isinstance(output, tf.RaggedTensor)
        assert output.row_splits.dtype == splits
        if tf.executing_eagerly():
            np.testing.assert_array_equal(output.row_lengths(), lengths)
        output = output.values
    return [output, *states]


def run_rows(cell, given, sequences, lengths=LENGTHS, by_row=None, **options):
    """The same, one row after the other; `by_row`: options with a row each."""
    found = []
    ends = np.cumsum(lengths)
    for row, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        start = end - length
        one = {n: value(row, start, end) for n, value in (by_row or {}).items()}
        output, *states = FUNCTIONS[cell](
            given["values"][tf.newaxis, start:end],
            given["kernel"],
            given["recurrent_kernel"],
            given["bias"],
            initial_state=[s[row : row + 1] for s in given["initial_state"]],
            return_sequences=sequences,
            **one,
            **options,
        )
        found.append([output[0] if sequences else output, *states])
    return [tf.concat(parts, axis=0) for parts in zip(*found, strict=True)]


def with_gradients(call, given):
    """The results, and gradients of a sum over all of them, flat."""
    with tf.GradientTape() as tape:
        tape.watch(given)
        found = call()
        total = tf.add_n([tf.reduce_sum(weigh(i, v)) for i, v in enumerate(found)])
    return [*found, *tf.nest.flatten(tape.gradient(total, given))]


def assert_same(actual, expected):
    assert len(actual) == len(expected)
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert_equal(a, e, f"result or gradient {number}")


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("sequences", (True, False))
@pytest.mark.parametrize("backwards", (True, False))
@pytest.mark.parametrize("traced", (True, False), ids=("graph", "eager"))
def test_rows_alone(cell, features, sequences, backwards, traced):
    given = draw(cell, features)
    options = {"sequences": sequences, "go_backwards": backwards}

    def step():
        return with_gradients(lambda: run_ragged(cell, given, **options), given)

    actual = (tf.function(step) if traced else step)()
    expected = with_gradients(lambda: run_rows(cell, given, **options), given)
    assert_same(actual, expected)


@pytest.mark.parametrize("cell", CELLS)
def test_dropout_reset_and_options(cell):
    """What goes with rows, and what goes with steps."""
    given = draw(cell, seed=1)
    rng = np.random.default_rng(2)
    keep = 2.0 * rng.integers(0, 2, (len(LENGTHS), CELLS[cell][0], UNITS))
    reset = rng.random(sum(LENGTHS)) < 0.4
    options = {
        "activation": "softsign",
        "recurrent_activation": "hard_sigmoid",
        "sequences": True,
    }
    actual = with_gradients(
        lambda: run_ragged(
            cell,
            given,
            reset=ragged(tf.constant(reset), dtype=tf.int32),
            recurrent_dropout_mask=keep,
            **options,
        ),
        given,
    )
    by_row = {
        "reset": lambda row, start, end: reset[None, start:end],
        "recurrent_dropout_mask": lambda row, start, end: keep[row : row + 1],
    }
    expected = with_gradients(
        lambda: run_rows(cell, given, by_row=by_row, **options), given
    )
    assert_same(actual, expected)


@pytest.mark.parametrize("cell", CELLS)
def test_second_derivatives(cell):
    given = draw(cell)
    sources = tf.nest.flatten(given)

    def of(function):
        return second(lambda: function(cell, given, True), sources)

    assert_all_equal(of(run_ragged), of(run_rows))


@pytest.mark.parametrize("cell", ("lstm", "gru"))
@pytest.mark.parametrize("lengths", ((0, 0), (), (4, 4, 4), (1,)), ids=str)
@pytest.mark.parametrize("splits", (tf.int32, tf.int64))
def test_row_lengths(cell, lengths, splits):
    given = draw(cell, lengths=lengths)
    actual = with_gradients(
        lambda: run_ragged(cell, given, True, lengths, splits), given
    )
    if lengths:
        expected = with_gradients(lambda: run_rows(cell, given, True, lengths), given)
        assert_same(actual, expected)
    for a, of in zip(
        actual[-len(tf.nest.flatten(given)) :], tf.nest.flatten(given), strict=True
    ):
        assert a.shape == of.shape


def test_uniform_rows_stay_uniform():
    given = draw("lstm", lengths=(4, 4))
    x = tf.RaggedTensor.from_uniform_row_length(given["values"], 4)
    weights = [given[n] for n in ("kernel", "recurrent_kernel", "bias")]
    found = tf_ecornn.lstm(x, *weights, return_sequences=True)
    assert found.output.shape == (2, 4, UNITS)
    dense = tf_ecornn.lstm(x.to_tensor(), *weights, return_sequences=True)
    assert_equal(found.output.to_tensor(), dense.output, "output")


def test_one_trace_for_all_batches():
    spec = tf.RaggedTensorSpec((None, None, 3), tf.float64, ragged_rank=1)
    given = draw("gru")

    @tf.function(input_signature=[spec])
    def traced(x):
        weights = (given[n] for n in ("kernel", "recurrent_kernel", "bias"))
        return tf_ecornn.gru(x, *weights, return_sequences=True)

    for lengths in (LENGTHS, (2, 2), (0,), (7, 1, 0)):
        new = draw("gru", lengths=lengths, seed=5)
        output, h = traced(ragged(new["values"], lengths))
        same = given | {
            "values": new["values"],
            "initial_state": [tf.zeros((len(lengths), UNITS), tf.float64)],
        }
        assert_same([output.values, h], run_rows("gru", same, True, lengths))
    assert traced.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("traced", (True, False), ids=("graph", "eager"))
def test_products_take_the_rows_steps_alone(features, traced, monkeypatch):
    """x W and dx: (N, 1, ...), never (B, T, ...); dU and dW: under the mask."""
    given = draw("lstm", features)
    shapes, masks = [], []

    def watched(function):
        def call(*tensors):
            shapes.append(tuple(tensors[0].shape[:2]))
            return function(*tensors)

        return call

    for module, name in ((recurrence, "project"), (op_gradient, "project_back")):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    summed_products = cell_op.summed_products

    def products(*tensors, mask, **options):
        masks.append(mask)
        return summed_products(*tensors, mask=mask, **options)

    monkeypatch.setattr(cell_op, "summed_products", products)

    def step():
        return with_gradients(lambda: run_ragged("lstm", given, True), given)

    (tf.function(step) if traced else step)()
    # Joined: dx. Else x W; dW and dx are TensorFlow's own.
    assert shapes == [(None if traced else sum(LENGTHS), 1)]
    ((mask,),) = masks
    assert mask.shape[0] == len(LENGTHS)


def test_nan_and_other_rows_stay_apart():
    given = draw("lstm")
    row = slice(3, 8)
    values = given["values"].numpy()
    values[:3] = np.nan
    found = run_ragged("lstm", given | {"values": tf.constant(values)}, True)
    assert np.isnan(found[0][:3]).all()
    expected = run_ragged("lstm", given, True)
    np.testing.assert_array_equal(found[0][row], expected[0][row])


X = ragged(np.zeros((sum(LENGTHS), 3)))


@pytest.mark.parametrize(
    "change, message",
    (
        ({"mask": np.ones((5, 5), bool)}, "`mask` must be None with a ragged `x`"),
        ({"reset": np.ones((5, 5), bool)}, "`reset` must be a tf.RaggedTensor"),
        ({"x": X.to_tensor(), "mask": X[..., 0] > 0}, "`mask` must be dense"),
        ({"x": X.to_tensor(), "reset": X[..., 0] > 0}, "`reset` must be dense"),
        ({"x": tf.ragged.constant([[[1.0, 2.0], [3.0]]])}, "must have shape"),
        ({"x": tf.ragged.constant([[1.0, 2.0], [3.0]])}, "must have shape"),
        ({"initial_state": np.zeros((4, UNITS))}, "`initial_state"),
        ({"kernel": np.zeros((2, 3 * UNITS))}, "`kernel`"),
    ),
    ids=str,
)
def test_errors(change, message):
    arguments = {
        "x": X,
        "kernel": np.zeros((3, 3 * UNITS)),
        "recurrent_kernel": np.zeros((UNITS, 3 * UNITS)),
    }
    with pytest.raises(ValueError, match=message):
        tf_ecornn.gru(**(arguments | change))


def test_reset_with_other_rows_is_refused():
    flags = tf.RaggedTensor.from_row_lengths(tf.zeros(14, tf.bool), (0, 3, 5, 1, 5))
    weights = np.zeros((3, 3 * UNITS)), np.zeros((UNITS, 3 * UNITS))
    with pytest.raises(tf.errors.InvalidArgumentError, match="rows of `reset`"):
        tf_ecornn.gru(X, *weights, reset=flags)
    with pytest.raises(TypeError, match="dtypes"):
        tf_ecornn.gru(tf.ragged.constant([[[1, 2, 3]]], ragged_rank=1), *weights)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fused", (True, False), ids=("fused", "stock loop"))
@pytest.mark.parametrize("backwards", (True, False))
@pytest.mark.filterwarnings("ignore:tf_ecornn")
def test_layers(kind, fused, backwards):
    """Each row as the layer gives it alone; stock has no ragged path to compare."""
    options = {} if fused else {"activation": lambda x: tf.tanh(x)}
    layer = KINDS[kind].make_ours(
        UNITS,
        return_sequences=True,
        return_state=True,
        go_backwards=backwards,
        dtype="float64",
        **options,
    )
    layer.build((None, None, 3))
    random_weights(layer)
    assert layer.fused == fused
    values = draw("lstm")["values"]
    sources = [values, *tensors_of(layer)]

    def batch():
        output, *states = layer(ragged(values))
        np.testing.assert_array_equal(output.row_lengths(), LENGTHS)
        return [output.values, *states]

    def rows():
        ends = np.cumsum(LENGTHS)
        empty = [tf.zeros((0, UNITS), tf.float64)]
        empty += [tf.zeros((1, UNITS), tf.float64)] * KINDS[kind].states
        found = []
        for end, n in zip(ends, LENGTHS, strict=True):
            output, *states = layer(values[None, end - n : end]) if n else empty
            found.append([output[0] if n else output, *states])
        return [tf.concat(parts, axis=0) for parts in zip(*found, strict=True)]

    assert_same(with_gradients(batch, sources), with_gradients(rows, sources))


def test_model_fits_and_predicts():
    """A stack, dropout and a batch that is cut: the ordinary Keras calls."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None, 3), ragged=True),
            tf_ecornn.LSTM(8, return_sequences=True, dropout=0.1),
            keras.layers.Bidirectional(tf_ecornn.GRU(6, recurrent_dropout=0.1)),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy")
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, 50)
    values = rng.normal(size=(lengths.sum(), 3)).astype("float32")
    x = tf.RaggedTensor.from_row_lengths(values, lengths)
    y = (tf.reduce_sum(x, axis=(1, 2)) > 0.0).numpy().astype("float32")[:, None]
    history = model.fit(x, y, batch_size=16, epochs=12, verbose=0).history["loss"]
    assert history[-1] < 0.7 * history[0]
    together = model.predict(x, batch_size=50, verbose=0)
    alone = np.concatenate([model(x[i : i + 1]) for i in range(5)])
    np.testing.assert_allclose(together[:5], alone, atol=1e-6)


def test_layer_refuses_a_mask_with_ragged_inputs():
    layer = tf_ecornn.LSTM(UNITS)
    with pytest.raises(ValueError, match="`mask` must be None with ragged inputs"):
        layer(ragged(np.zeros((14, 3))), mask=np.ones((5, 5), bool))
