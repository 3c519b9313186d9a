"""tf_ecornn.LSTM and GRU inside models, traces and states, against the stock layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from layer_pairs import (
    BATCH,
    FEATURES,
    KINDS,
    STEPS,
    UNITS,
    assert_equal,
    assert_same_results,
    copy_weights,
    draw_inputs,
    draw_layer_mask,
    draw_states,
    make_pair,
    random_weights,
    results_of,
    tensors_of,
)

pytestmark = [
    pytest.mark.usefixtures("float64_everywhere"),
    pytest.mark.parametrize("kind", KINDS),
]


def sequential(lstm):
    return keras.Sequential(
        [
            keras.Input((None, FEATURES)),
            keras.layers.Masking(0.0),
            lstm(UNITS, return_sequences=True),
            lstm(UNITS + 2, go_backwards=True),
            keras.layers.Dense(2),
        ]
    )


def functional(lstm, count):
    x = keras.Input((None, FEATURES))
    states = [keras.Input((UNITS,)) for _ in range(count)]
    outputs, *ends = lstm(UNITS, return_sequences=True, return_state=True)(
        x, initial_state=states
    )
    last = lstm(UNITS)(outputs, initial_state=ends)
    return keras.Model([x, *states], [outputs, last, ends[-1]])


class Subclassed(keras.Model):
    def __init__(self, lstm):
        super().__init__()
        self.supports_masking = True
        self.recurrent = lstm(UNITS, return_sequences=True)
        self.head = keras.layers.Dense(1)

    def call(self, x, mask=None, training=False):
        return self.head(self.recurrent(x, mask=mask, training=training))


def same_weights(stock, ours, *inputs):
    for model in (stock, ours):
        model(*inputs)
    random_weights(stock)
    copy_weights(stock, ours)


def padded_inputs(seed=0):
    """Rows padded in front with zeros, for the Masking layer."""
    mask = draw_layer_mask("left", seed)
    return tf.where(mask[..., None], draw_inputs(seed), 0.0)


@pytest.mark.parametrize("traced", (False, True))
def test_sequential_with_padding_in_front(kind, traced, fused_calls):
    stock, ours = (sequential(c) for c in KINDS[kind].makers)
    same_weights(stock, ours, padded_inputs())
    assert_same_results(stock, ours, padded_inputs(1), traced=traced)
    assert fused_calls() > 0
    assert_equal(
        ours.predict(padded_inputs(), verbose=0),
        stock.predict(padded_inputs(), verbose=0),
        "predict",
    )


@pytest.mark.parametrize("traced", (False, True))
def test_functional_model_with_states(kind, traced):
    stock, ours = (functional(c, KINDS[kind].states) for c in KINDS[kind].makers)
    inputs = [draw_inputs(), *draw_states(kind=kind)]
    same_weights(stock, ours, inputs)

    def gradients(model):
        def step():
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                found = model(inputs)
                total = tf.add_n([tf.reduce_sum(v**2) for v in found])
            return found, tape.gradient(total, [*inputs, *tensors_of(model)])

        return (tf.function(step) if traced else step)()

    for a_list, e_list in zip(gradients(ours), gradients(stock), strict=True):
        for a, e in zip(a_list, e_list, strict=True):
            assert_equal(a, e, "functional model")


@pytest.mark.parametrize("traced", (False, True))
def test_subclassed_model(kind, traced):
    stock, ours = (Subclassed(c) for c in KINDS[kind].makers)
    same_weights(stock, ours, draw_inputs())
    for mask in ("none", "random"):
        assert_same_results(
            stock, ours, draw_inputs(), mask=draw_layer_mask(mask), traced=traced
        )


def test_embedding_that_masks(kind):
    """Integer sequences padded at either end, mask_zero=True."""
    rng = np.random.default_rng(1)
    tokens = rng.integers(1, 9, (BATCH, STEPS))
    models = []
    for lstm in KINDS[kind].makers:
        models.append(
            keras.Sequential(
                [keras.layers.Embedding(9, FEATURES, mask_zero=True), lstm(UNITS)]
            )
        )
    same_weights(*models, tokens)
    for kind in ("right", "left", "random", "some_rows_off"):
        padded = np.where(draw_layer_mask(kind), tokens, 0)
        assert_equal(models[1](padded), models[0](padded), kind)


@pytest.mark.parametrize("masked", (False, True))
def test_one_trace_for_all_sizes(kind, masked):
    stock, ours = make_pair(kind=kind, return_sequences=True, return_state=True)

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None, FEATURES), tf.float64),
            tf.TensorSpec((None, None), tf.bool),
        ]
    )
    def traced(x, mask):
        with tf.GradientTape() as tape:
            found = ours(x, mask=mask if masked else None)
            total = tf.reduce_sum(found[0])
        assert found[0].shape.as_list() == [None, None, UNITS]
        assert all(s.shape.as_list() == [None, UNITS] for s in found[1:])
        return found, tape.gradient(total, tensors_of(ours))

    for batch, steps in ((1, 1), (BATCH, STEPS), (9, 2), (2, 17)):
        x = draw_inputs(batch, batch, steps)
        mask = draw_layer_mask("random", batch, batch, steps)
        found, _ = traced(x, mask)
        expected = stock(x, mask=mask if masked else None)
        for a, e in zip(found, expected, strict=True):
            assert_equal(a, e, f"B={batch} T={steps}")
    assert traced.experimental_get_tracing_count() == 1


def test_static_shapes_are_kept(kind):
    for options, shape in (
        ({"return_sequences": True}, (BATCH, STEPS, UNITS)),
        ({}, (BATCH, UNITS)),
    ):
        _, ours = make_pair(kind=kind, **options)
        traced = tf.function(ours).get_concrete_function(draw_inputs())
        assert tuple(traced.outputs[0].shape) == shape
        assert ours.compute_output_shape((BATCH, STEPS, FEATURES)) == shape
    for lstm in KINDS[kind].makers:
        x = keras.Input((None, FEATURES))
        found = lstm(UNITS, return_sequences=True, return_state=True)(x)
        states = [(None, UNITS)] * KINDS[kind].states
        assert [v.shape for v in found] == [(None, None, UNITS), *states]


def test_return_state_gives_whole_states(kind):
    _, ours = make_pair(kind=kind, return_state=True)
    found = ours(draw_inputs())
    assert len(found) == 1 + KINDS[kind].states
    assert all(tuple(v.shape) == (BATCH, UNITS) for v in found)
    assert_equal(found[0], found[1], "the last output is h")


@pytest.mark.parametrize("loss_on", (0, 1, 2))
def test_loss_on_one_result_only(kind, loss_on):
    """o, h, c = layer(x), and the loss on one of the three."""
    if loss_on > KINDS[kind].states:
        pytest.skip("a GRU has no c")
    stock, ours = make_pair(kind=kind, return_sequences=True, return_state=True)
    for traced in (False, True):
        found = []
        for layer in (stock, ours):

            def step(layer=layer):
                x = draw_inputs()
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    total = tf.reduce_sum(layer(x)[loss_on])
                return tape.gradient(total, [x, *tensors_of(layer)])

            found.append((tf.function(step) if traced else step)())
        for e, a in zip(*found, strict=True):
            assert np.any(a)
            assert_equal(a, e, f"loss on result {loss_on}")


@pytest.mark.parametrize("length", (STEPS, None))
def test_stateful(kind, length):
    layers = []
    for lstm in KINDS[kind].makers:
        layer = lstm(UNITS, stateful=True, return_sequences=True)
        model = keras.Sequential(
            [keras.Input(batch_shape=(BATCH, length, FEATURES)), layer]
        )
        layers.append((layer, model))
    (stock, stock_model), (ours, ours_model) = layers
    random_weights(stock)
    copy_weights(stock, ours)
    for reset in ("reset_state", "reset_states"):
        for seed in range(3):
            x = draw_inputs(seed)
            mask = draw_layer_mask("random", seed)
            assert_equal(ours_model(x), stock_model(x), f"call {seed}")
            assert_equal(ours(x, mask=mask), stock(x, mask=mask), f"masked {seed}")
            for a, e in zip(ours.states, stock.states, strict=True):
                assert_equal(a, e, f"states after call {seed}")
        for layer in (stock, ours):
            getattr(layer, reset)()
        assert not any(np.any(s) for s in ours.states)


def test_stateful_with_states_given(kind):
    layers = [c(UNITS, stateful=True, return_state=True) for c in KINDS[kind].makers]
    for layer in layers:
        layer.build((BATCH, STEPS, FEATURES))
    random_weights(layers[0])
    copy_weights(*layers)
    for _ in range(2):
        expected, actual = (
            layer(draw_inputs(), initial_state=draw_states(kind=kind))
            for layer in layers
        )
        for a, e in zip(actual, expected, strict=True):
            assert_equal(a, e, "stateful with states given")


@pytest.mark.parametrize("mode", ("concat", "sum", "mul", "ave", None))
@pytest.mark.parametrize("mask", ("none", "right", "random"))
@pytest.mark.parametrize("sequences", (False, True))
def test_bidirectional(kind, mode, mask, sequences, fused_calls):
    wrapped = [
        keras.layers.Bidirectional(c(UNITS, return_sequences=sequences), mode)
        for c in KINDS[kind].makers
    ]
    same_weights(*wrapped, draw_inputs())
    for layer in (wrapped[1].forward_layer, wrapped[1].backward_layer):
        assert type(layer) is KINDS[kind].ours
    before = fused_calls()
    assert_same_results(
        *wrapped, draw_inputs(), mask=draw_layer_mask(mask), training=True
    )
    assert fused_calls() == before + 4


def test_bidirectional_with_states(kind):
    """A state list for both halves in and out; gradients reach the states."""
    wrapped = [
        keras.layers.Bidirectional(c(UNITS, return_state=True))
        for c in KINDS[kind].makers
    ]
    same_weights(*wrapped, draw_inputs())
    states = [*draw_states(1, kind=kind), *draw_states(2, kind=kind)]
    for traced in (False, True):
        found, gradients = assert_same_results(
            *wrapped, draw_inputs(), states=states, traced=traced
        )
        assert len(found) == 1 + 2 * KINDS[kind].states
        assert all(np.any(g) for g in gradients)


def test_bidirectional_padding_stays_zero(kind):
    """Lengths 2 and 1 of 3: both halves in input order, zeros at the padding."""
    wrapped = [
        keras.layers.Bidirectional(c(UNITS, return_sequences=True))
        for c in KINDS[kind].makers
    ]
    x = draw_inputs(batch=2, steps=3)
    same_weights(*wrapped, x)
    mask = tf.constant([[True, True, False], [True, False, False]])
    whole = wrapped[1](x, mask=mask).numpy()
    for row, length in enumerate((2, 1)):
        alone = wrapped[0](x[row : row + 1, :length])
        assert_equal(whole[row : row + 1, :length], alone, f"row {row}")
        assert not whole[row, length:].any()


def test_time_distributed(kind):
    layers = [keras.layers.TimeDistributed(c(UNITS)) for c in KINDS[kind].makers]
    x = tf.constant(np.random.default_rng(4).normal(size=(2, 3, STEPS, FEATURES)))
    same_weights(*layers, x)
    for traced in (False, True):
        assert_same_results(*layers, x, traced=traced)


def test_time_distributed_with_unknown_outer_time(kind):
    models = []
    for lstm in KINDS[kind].makers:
        x = keras.Input((None, STEPS, FEATURES))
        models.append(keras.Model(x, keras.layers.TimeDistributed(lstm(UNITS))(x)))
    x = np.random.default_rng(5).normal(size=(2, 3, STEPS, FEATURES))
    same_weights(*models, x)
    assert_equal(
        models[1].predict(x, verbose=0), models[0].predict(x, verbose=0), "predict"
    )


@pytest.mark.parametrize("traced", (False, True))
def test_encoder_and_decoder(kind, traced):
    """Gradients reach the encoder through the states alone."""
    pairs = []
    for lstm in KINDS[kind].makers:
        encoder = lstm(UNITS, return_state=True)
        decoder = lstm(UNITS, return_sequences=True)
        for number, layer in enumerate((encoder, decoder)):
            layer.build((None, None, FEATURES))
            random_weights(layer, number)
        pairs.append((encoder, decoder))
    found = []
    for encoder, decoder in pairs:

        def step(encoder=encoder, decoder=decoder):
            x = draw_inputs(1)
            variables = tensors_of(encoder, decoder)
            with tf.GradientTape() as tape:
                tape.watch(x)
                _, *states = encoder(x, mask=draw_layer_mask("right"))
                total = tf.reduce_sum(
                    decoder(draw_inputs(2), initial_state=states) ** 2
                )
            return tape.gradient(total, [x, *variables])

        found.append((tf.function(step) if traced else step)())
    for e, a in zip(*found, strict=True):
        assert np.any(a)
        assert_equal(a, e, "encoder and decoder")


def test_shared_layer_in_several_functions(kind):
    stock, ours = make_pair(kind=kind, dropout=0.3, seed=1)
    functions = [
        [tf.function(lambda x, t=t, k=k: k(x, training=t)) for t in (True, False)]
        for k in (stock, ours)
    ]
    for seed in range(2):
        for e, a in zip(*functions, strict=True):
            assert_equal(a(draw_inputs(seed)), e(draw_inputs(seed)), "two functions")
    assert_equal(ours(draw_inputs()), stock(draw_inputs()), "eager after traces")


def test_persistent_tape_gives_equal_bits(kind):
    stock, ours = make_pair(kind=kind, return_sequences=True)
    for traced in (False, True):

        def step():
            x = draw_inputs()
            with tf.GradientTape(persistent=True) as tape:
                total = tf.reduce_sum(ours(x) ** 2)
            weights = tensors_of(ours)
            return tape.gradient(total, weights), tape.gradient(total, weights)

        first, second = (tf.function(step) if traced else step)()
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)
    _, expected = results_of(stock, draw_inputs())
    _, actual = results_of(ours, draw_inputs())
    for a, e in zip(actual, expected, strict=True):
        assert_equal(a, e, "after a persistent tape")
