"""Wrappers, nested models, training loops and strategies, against stock Keras."""

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
    random_weights,
    results_of,
    tensors_of,
)

MERGE_MODES = ("concat", "sum", "mul", "ave", None)
pytestmark = [
    pytest.mark.usefixtures("float64_everywhere"),
    pytest.mark.parametrize("kind", KINDS),
]


def same_weights(stock, ours, *inputs):
    for model in (stock, ours):
        model(*inputs)
    random_weights(stock)
    copy_weights(stock, ours)


def bidirectional_pair(kind, mode="concat", shape=None, **options):
    """(stock, ours), built, with equal weights."""
    wrapped = [
        keras.layers.Bidirectional(make(UNITS, **options), mode)
        for make in KINDS[kind].makers
    ]
    same_weights(*wrapped, draw_inputs())
    return wrapped


# Bidirectional ------------------------------------------------------------------


@pytest.mark.parametrize("mode", MERGE_MODES)
def test_bidirectional_with_states_as_a_list(kind, mode):
    states = [*draw_states(1, kind=kind), *draw_states(2, kind=kind)]
    for sequences in (False, True):
        pair = bidirectional_pair(
            kind, mode, return_sequences=sequences, return_state=True
        )
        for pattern in ("none", "left"):
            assert_same_results(
                *pair, draw_inputs(), states=states, mask=draw_layer_mask(pattern)
            )


@pytest.mark.parametrize("mode", MERGE_MODES)
def test_bidirectional_padding_in_every_merge_mode(kind, mode):
    """Lengths 2 and 1 of 3: each row as if alone, zeros at the padding."""
    stock, ours = bidirectional_pair(kind, mode, return_sequences=True)
    x = draw_inputs(batch=2, steps=3)
    mask = tf.constant([[True, True, False], [True, False, False]])
    whole = tf.nest.flatten(ours(x, mask=mask))
    for row, length in enumerate((2, 1)):
        alone = tf.nest.flatten(stock(x[row : row + 1, :length]))
        for a, e in zip(whole, alone, strict=True):
            assert_equal(a[row : row + 1, :length], e, f"row {row}")
            assert not np.any(a[row, length:])


def test_bidirectional_stateful(kind):
    pair = bidirectional_pair(kind, stateful=True, return_sequences=True)
    for layer in pair:
        layer.reset_state()
    for seed in range(3):
        stock, ours = (
            layer(draw_inputs(seed), mask=draw_layer_mask("random", seed))
            for layer in pair
        )
        assert_equal(ours, stock, f"call {seed}")
    for layer in pair:
        layer.reset_state()
    for half in (pair[1].forward_layer, pair[1].backward_layer):
        assert not any(np.any(s) for s in half.states)
    assert_equal(pair[1](draw_inputs()), pair[0](draw_inputs()), "after a reset")


def test_bidirectional_keeps_every_option_of_the_layer(kind):
    """It clones the layer through its config, once for each half."""
    options = {
        "activation": "relu",
        "recurrent_activation": "hard_sigmoid",
        "dropout": 0.25,
        "recurrent_dropout": 0.5,
        "seed": 3,
        "implementation": 1,
        "use_cudnn": False,
        "use_bias": False,
        "return_sequences": True,
    }
    wrapped = keras.layers.Bidirectional(KINDS[kind].make_ours(UNITS, **options))
    wanted = KINDS[kind].make_ours(UNITS, **options).get_config()
    for half in (wrapped.forward_layer, wrapped.backward_layer):
        found = half.get_config()
        differ = {k for k in wanted if found[k] != wanted[k]}
        assert differ <= {"name", "go_backwards", "zero_output_for_mask"}, found
        assert half.cell.implementation == 1
    clone = keras.layers.Bidirectional.from_config(wrapped.get_config())
    assert type(clone.forward_layer) is KINDS[kind].ours


def test_bidirectional_with_dropout(kind):
    pair = bidirectional_pair(kind, dropout=0.3, recurrent_dropout=0.3, seed=7)
    for seed in range(2):
        assert_same_results(
            *pair, draw_inputs(seed), training=True, mask=draw_layer_mask("right")
        )


# TimeDistributed ----------------------------------------------------------------


@pytest.mark.parametrize("sequences", (False, True))
def test_time_distributed(kind, sequences):
    layers = [
        keras.layers.TimeDistributed(make(UNITS, return_sequences=sequences))
        for make in KINDS[kind].makers
    ]
    x = tf.constant(np.random.default_rng(4).normal(size=(2, 3, STEPS, FEATURES)))
    same_weights(*layers, x)
    for traced in (False, True):
        assert_same_results(*layers, x, traced=traced)


def test_time_distributed_trains_with_unknown_outer_time(kind, fused_calls):
    """One call of the op for all outer steps, also in the gradient.

    The stock layer has no such gradient: it is given the outer time. As many rows
    as outer steps: for an unknown number of both, Keras counts the one for the other.
    """
    stock, ours = (
        keras.layers.TimeDistributed(make(UNITS)) for make in KINDS[kind].makers
    )
    x = tf.constant(np.random.default_rng(5).normal(size=(3, 3, STEPS, FEATURES)))
    same_weights(stock, ours, x)
    symbolic = keras.Input((None, STEPS, FEATURES))
    model = keras.Model(symbolic, ours(symbolic))

    @tf.function(
        input_signature=[tf.TensorSpec((None, None, STEPS, FEATURES), x.dtype)]
    )
    def step(x):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(model(x, training=True) ** 2)
        return tape.gradient(total, tensors_of(model))

    before = fused_calls()
    actual = step(x)
    assert fused_calls() == before + 2
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(stock(x, training=True) ** 2)
    for e, a in zip(tape.gradient(total, tensors_of(stock)), actual, strict=True):
        assert_equal(a, e, "time distributed")


def test_time_distributed_under_another_policy(kind):
    """The outer layer hands over half, the inner one computes in float32."""
    outer = keras.layers.TimeDistributed(
        KINDS[kind].make_ours(UNITS, dtype="float32"), dtype="mixed_float16"
    )
    output = outer(tf.ones((2, 3, STEPS, FEATURES), tf.float16))
    assert output.shape == (2, 3, UNITS) and np.isfinite(output).all()


# Models -------------------------------------------------------------------------


def nested_model(make):
    """A shared layer, called twice, and a model in a model."""
    shared = make(FEATURES, return_sequences=True)
    inner_x = keras.Input((None, FEATURES))
    inner = keras.Model(inner_x, shared(shared(inner_x)))
    x = keras.Input((None, FEATURES))
    y = keras.layers.Bidirectional(make(3, return_sequences=True))(inner(x))
    z = make(4)(keras.layers.concatenate([y, shared(x)]))
    return keras.Model(x, z)


@pytest.mark.parametrize("traced", (False, True))
def test_nested_and_shared(kind, traced):
    pair = [nested_model(make) for make in KINDS[kind].makers]
    same_weights(*pair, draw_inputs())
    assert_same_results(*pair, draw_inputs(1), traced=traced)


def test_activity_regularizer(kind):
    pair = []
    for make in KINDS[kind].makers:
        layer = make(UNITS, activity_regularizer="l2", return_sequences=True)
        model = keras.Sequential([keras.Input((STEPS, FEATURES)), layer])
        model.compile("sgd", "mse")
        pair.append(model)
    same_weights(*pair, draw_inputs())
    x, y = draw_inputs().numpy(), np.ones((BATCH, STEPS, UNITS))
    losses = [[m.train_on_batch(x, y) for _ in range(3)] for m in pair]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-11)


def test_remat(kind, fused_calls):
    """The forward pass runs again in the backward pass: equal gradients."""
    pair = []
    for make in KINDS[kind].makers:
        layer = make(UNITS, return_sequences=True)
        layer.build((BATCH, STEPS, FEATURES))
        pair.append(layer)
    random_weights(pair[0])
    copy_weights(*pair)
    found = []
    for layer in pair:

        @tf.function
        def step(x, layer=layer):
            run = keras.remat(layer) if layer is pair[1] else layer
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(run(x) ** 2)
            return tape.gradient(total, [x, *tensors_of(layer)])

        found.append(step(draw_inputs()))
    for e, a in zip(*found, strict=True):
        assert_equal(a, e, "remat")
    assert fused_calls() >= 2


def test_remat_scope(kind):
    with keras.RematScope(mode="full"):
        ours = KINDS[kind].make_ours(UNITS)
    stock = KINDS[kind].make_stock(UNITS)
    same_weights(stock, ours, draw_inputs())
    # Keras gives TensorFlow keywords, which it takes in eager mode alone.
    assert_same_results(stock, ours, draw_inputs(), training=True)


def test_custom_training_loop(kind):
    """The user's own tape, optimizer and `tf.function`, dropout on."""
    runs = []
    for make in KINDS[kind].makers:
        keras.utils.set_random_seed(3)
        model = keras.Sequential(
            [
                keras.Input((None, FEATURES)),
                keras.layers.Masking(),
                make(UNITS, dropout=0.2, recurrent_dropout=0.2, seed=1),
                keras.layers.Dense(1),
            ]
        )
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)

        @tf.function(
            input_signature=[tf.TensorSpec((None, None, FEATURES), tf.float64)]
        )
        def step(x, model=model, optimizer=optimizer):
            with tf.GradientTape() as tape:
                total = tf.reduce_mean((model(x, training=True) - 1.0) ** 2)
            weights = model.trainable_variables
            gradients = tape.gradient(total, [w.value for w in weights])
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return total

        sizes = ((4, 6), (2, 9), (5, 1), (4, 6))
        runs.append(
            [float(step(draw_inputs(i, *size))) for i, size in enumerate(sizes * 3)]
        )
        assert step.experimental_get_tracing_count() == 1
    np.testing.assert_allclose(runs[1], runs[0], rtol=0, atol=1e-10)


def test_one_layer_in_several_functions_and_two_policies(kind):
    """Nothing of one trace may stay on the layer and reach another."""
    stock, ours = (
        make(UNITS, dropout=0.2, recurrent_dropout=0.2, seed=2)
        for make in KINDS[kind].makers
    )
    same_weights(stock, ours, draw_inputs())
    first, second = (
        tf.function(lambda x, k=k: k(x, training=True)) for k in (ours, ours)
    )
    wanted = [stock(draw_inputs(i), training=True) for i in range(3)]
    assert_equal(first(draw_inputs(0)), wanted[0], "first function")
    assert_equal(second(draw_inputs(1)), wanted[1], "second function")
    assert_equal(ours(draw_inputs(2), training=True), wanted[2], "eager after traces")


def test_persistent_tape_over_two_losses(kind):
    pair = [make(UNITS, return_state=True) for make in KINDS[kind].makers]
    same_weights(*pair, draw_inputs())
    found = []
    for layer in pair:
        with tf.GradientTape(persistent=True) as tape:
            output, *states = layer(draw_inputs())
            totals = tf.reduce_sum(output**2), tf.reduce_sum(states[-1])
        weights = tensors_of(layer)
        found.append([g for t in totals for g in tape.gradient(t, weights)])
    for e, a in zip(*found, strict=True):
        assert_equal(a, e, "persistent tape")
    _, expected = results_of(pair[0], draw_inputs())
    _, actual = results_of(pair[1], draw_inputs())
    for a, e in zip(actual, expected, strict=True):
        assert_equal(a, e, "after a persistent tape")


# Strategies ---------------------------------------------------------------------


def test_mirrored_strategy_with_uneven_batches(kind, run_worker):
    """2 replicas, 5 samples, global batch 4: in the end one replica has no row."""
    done = run_worker("mirrored.py", kind, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[-1] == "done"
