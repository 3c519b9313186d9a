"""Every dtype policy: dtypes, errors against float64, extremes, loss scaling."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels

import reference
import tf_ecornn
from layer_pairs import KINDS
from problems import CELLS, draw_problem
from tf_ecornn import _library, products

POLICIES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "mixed_float16",
    "mixed_bfloat16",
)
LOW = ("float16", "bfloat16", "mixed_float16", "mixed_bfloat16")
FUNCTIONS = {"lstm": tf_ecornn.lstm, "gru": tf_ecornn.gru, "gru_before": tf_ecornn.gru}
# Half the distance from 1 to the next number: the error of one rounding.
ROUNDING = {
    tf.float16: 2.0**-11,
    tf.bfloat16: 2.0**-8,
    tf.float32: 2.0**-24,
    tf.float64: 2.0**-53,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize("op", ("Lstm", "LstmGrad", "Gru", "GruGrad"))
def test_registered_kernels(op):
    """All four ops on the CPU, each for the same four dtypes."""
    found = kernels.get_registered_kernels_for_op(f"EcoRNN>{op}").kernel
    types = [
        tf.as_dtype(t).name
        for kernel in found
        if kernel.device_type == "CPU"
        for constraint in kernel.constraint
        if constraint.name == "T"
        for t in constraint.allowed_values.list.type
    ]
    assert sorted(types) == ["bfloat16", "float16", "float32", "float64"]


# Dtypes and training -----------------------------------------------------------


@every_kind
@pytest.mark.parametrize("policy", POLICIES)
def test_dtypes_of_results_and_gradients(kind, policy, fused_calls):
    """Results in the compute dtype, each gradient in its own tensor's."""
    layer = KINDS[kind].make_ours(
        8, return_sequences=True, return_state=True, dtype=policy
    )
    x = tf.random.stateless_normal((3, 5, 4), (1, 2))
    states = [tf.zeros((3, 8), tf.float64)] * KINDS[kind].states
    layer.build(x.shape)
    weights = [v.value for v in layer.trainable_variables]
    for traced in (False, True):

        def step():
            with tf.GradientTape() as tape:
                tape.watch([x, *states])
                found = layer(x, initial_state=states, training=True)
                total = tf.add_n([tf.cast(tf.reduce_sum(v), tf.float64) for v in found])
            sources = [x, *states, *weights]
            return found, tape.gradient(total, sources), sources

        found, gradients, sources = (tf.function(step) if traced else step)()
        assert all(v.dtype == layer.compute_dtype for v in found)
        for gradient, source in zip(gradients, sources, strict=True):
            assert gradient.dtype == source.dtype
            assert gradient.shape == source.shape and np.any(gradient)
        assert {w.dtype for w in weights} == {tf.as_dtype(layer.variable_dtype)}
    assert layer.fused and fused_calls() == 4


@every_kind
@pytest.mark.parametrize("policy", LOW)
def test_builds_and_learns(kind, policy, fused_calls):
    """Also bfloat16, for which Keras cannot draw an orthogonal matrix."""
    keras.utils.set_random_seed(4)
    x = np.random.default_rng(1).normal(size=(64, 6, 2)).astype("float32")
    y = (x.sum(axis=(1, 2)) > 0).astype("float32")
    model = keras.Sequential(
        [
            KINDS[kind].make_ours(8, dtype=policy),
            keras.layers.Dense(1, activation="sigmoid", dtype="float32"),
        ]
    )
    optimizer = keras.optimizers.Adam(0.03)
    if policy == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"])
    losses = model.fit(x, y, batch_size=16, epochs=12, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < 0.8 * losses[0], losses
    assert fused_calls() >= 2 * 48


# Errors -------------------------------------------------------------------------


def rounded(problem_array, dtype):
    return None if problem_array is None else tf.cast(problem_array, dtype)


def functional_errors(cell, dtype, batch, steps, units, features=8, seed=1):
    """Relative errors {name: value} of the functional form against the reference.

    Both are given the numbers as `dtype` holds them. Errors are relative to the
    largest value of each result and gradient.
    """
    problem = draw_problem(cell, seed, batch, steps, units, features)
    names = ["x", "kernel", "recurrent_kernel"]
    given = {n: rounded(getattr(problem, n), dtype) for n in names}
    given["bias"] = rounded(problem.both_biases, dtype)
    states = [rounded(s, dtype) for s in problem.initial_states]
    weight = rounded(problem.grad_outputs, dtype)
    form = CELLS[cell][2]
    with tf.GradientTape() as tape:
        tape.watch([given, states])
        found = FUNCTIONS[cell](
            **given, **form, initial_state=states, return_sequences=True
        )
        total = tf.reduce_sum(tf.cast(found.output * weight, tf.float64))
    gradients, state_gradients = tape.gradient(total, [given, states])

    exact = {n: tf.cast(v, tf.float64).numpy() for n, v in given.items()}
    make = reference.LSTMCell if cell == "lstm" else reference.GRUCell
    forward = reference.run(
        make(exact["recurrent_kernel"], exact["bias"], **form),
        reference.project(exact["x"], exact["kernel"]),
        tuple(tf.cast(s, tf.float64).numpy() for s in states),
    )
    back = reference.run_gradient(forward, tf.cast(weight, tf.float64).numpy())
    d_x, d_kernel = reference.project_gradient(
        exact["x"], exact["kernel"], back.gates_x
    )
    pairs = {
        "output": (found.output, forward.outputs),
        "h": (found.h, forward.states[0]),
        "d x": (gradients["x"], d_x),
        "d kernel": (gradients["kernel"], d_kernel),
        "d recurrent_kernel": (gradients["recurrent_kernel"], back.recurrent_kernel),
        "d bias": (gradients["bias"], back.bias),
        "d h": (state_gradients[0], back.states[0]),
    }
    if cell == "lstm":
        pairs["c"] = (found.c, forward.states[1])
        pairs["d c"] = (state_gradients[1], back.states[1])
    return {
        name: np.abs(tf.cast(a, tf.float64).numpy() - e).max() / np.abs(e).max()
        for name, (a, e) in pairs.items()
    }


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", ROUNDING, ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("batch", "steps", "units"), [(5, 7, 19), (2, 60, 64), (2, 300, 600)]
)
def test_error_against_float64(cell, dtype, batch, steps, units):
    """Bounds per dtype, in roundings of the largest value.

    Half and bfloat16 round what is stored, once; sums are float32 inside. In
    float32 and float64 the roundings of sums and steps add up.
    """
    found = functional_errors(cell, dtype, batch, steps, units)
    factor = {tf.float16: 4, tf.bfloat16: 4, tf.float32: 64, tf.float64: 64}[dtype]
    print({n: round(v / ROUNDING[dtype], 1) for n, v in found.items()})
    for name, error in found.items():
        assert error <= factor * ROUNDING[dtype], (name, error / ROUNDING[dtype])


# Extremes -----------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("policy", LOW)
def test_large_inputs_saturate(kind, policy):
    """Inputs near 1e3 over 500 steps: every result is a number."""
    layer = KINDS[kind].make_ours(
        64, return_sequences=True, return_state=True, dtype=policy
    )
    rng = np.random.default_rng(3)
    x = tf.constant(1e3 * rng.choice((-1.0, 1.0), size=(2, 500, 16)), tf.float32)
    for value in layer(x):
        assert np.isfinite(tf.cast(value, tf.float32)).all()
    largest = tf.cast(tf.as_dtype(layer.compute_dtype).max, tf.float32)
    huge = tf.sign(x[:, :3, :1]) * largest
    one = KINDS[kind].make_ours(
        4, dtype=policy, kernel_initializer="ones", return_sequences=True
    )
    assert np.isfinite(tf.cast(one(huge), tf.float32)).all()


@every_kind
def test_overflow_in_the_backward_pass_shows(kind):
    """Incoming gradients too large for half: inf or NaN, never a wrong number."""
    layer = KINDS[kind].make_ours(8, dtype="mixed_float16", return_sequences=True)
    x = tf.random.stateless_normal((4, 20, 3), (1, 2))
    layer.build(x.shape)
    weights = [v.value for v in layer.trainable_variables]
    for scale, finite in ((1.0, True), (6e4, False)):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(layer(x) * tf.cast(scale, tf.float16))
        gradients = tape.gradient(total, weights)
        all_finite = all(np.isfinite(g).all() for g in gradients)
        assert all_finite == finite, scale


@every_kind
def test_loss_scaling_skips_the_step_and_goes_on(kind):
    """A scale that overflows: weights stay, the scale shrinks, then it learns."""
    keras.utils.set_random_seed(2)
    model = keras.Sequential(
        [
            KINDS[kind].make_ours(8, dtype="mixed_float16"),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1), initial_scale=2.0**24
    )
    model.compile(optimizer, "mse")
    x = np.random.default_rng(1).normal(size=(8, 5, 3)).astype("float32")
    y = np.ones((8, 1), "float32")
    model.build(x.shape)
    before = model.get_weights()
    first = model.train_on_batch(x, y)
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert float(optimizer.dynamic_scale) < 2.0**24
    for _ in range(60):
        model.reset_metrics()
        last = model.train_on_batch(x, y)
    assert np.isfinite(last) and last < 0.5 * first
    assert all(np.isfinite(w).all() for w in model.get_weights())


# States -------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("policy", LOW)
def test_stateful(kind, policy):
    """States in variable dtype; calls in a row equal one over the whole."""
    options = {"return_sequences": True, "dtype": policy}
    layer = KINDS[kind].make_ours(6, stateful=True, **options)
    x = tf.random.stateless_normal((3, 8, 4), (5, 6))
    layer.build((3, None, 4))
    whole = KINDS[kind].make_ours(6, **options)
    whole.build((3, None, 4))
    whole.set_weights(layer.get_weights())
    for traced in (False, True):
        call = tf.function(layer) if traced else layer
        parts = tf.concat([call(x[:, :3]), call(x[:, 3:])], axis=1)
        rounding = ROUNDING[tf.as_dtype(layer.compute_dtype)]
        np.testing.assert_allclose(
            tf.cast(parts, tf.float32), tf.cast(whole(x), tf.float32), atol=8 * rounding
        )
        for state in layer.states:
            assert state.dtype == layer.variable_dtype and np.any(state)
        layer.reset_state()
        assert not any(np.any(s) for s in layer.states)


@every_kind
@pytest.mark.parametrize("policy", ("mixed_float16", "mixed_bfloat16"))
def test_decoder(kind, policy):
    """Encoder states feed a decoder; gradients reach the encoder's weights."""
    encoder = KINDS[kind].make_ours(6, return_state=True, dtype=policy)
    decoder = KINDS[kind].make_ours(6, return_sequences=True, dtype=policy)
    x = tf.random.stateless_normal((3, 8, 4), (7, 8))
    for layer in (encoder, decoder):
        layer.build(x.shape)
    weights = [v.value for v in encoder.trainable_variables]

    def step():
        with tf.GradientTape() as tape:
            _, *states = encoder(x)
            total = tf.reduce_sum(decoder(x, initial_state=states))
        return tape.gradient(total, weights)

    for found in (step(), tf.function(step)()):
        for gradient in found:
            assert gradient.dtype == tf.float32
            assert np.isfinite(gradient).all() and np.any(gradient)


@pytest.mark.parametrize("arithmetic", (False, True))
@pytest.mark.parametrize("sizes", ((3, 50, 40, 96), (3, 50, 1, 96), (0, 50, 40, 96)))
def test_bfloat16_products_round_once(sizes, arithmetic, monkeypatch):
    """With the processor's bfloat16 arithmetic and without: sums are float32's."""
    monkeypatch.setattr(_library, "multiplies_bfloat16", lambda: arithmetic)
    batch, steps, features, width = sizes
    shapes = ((batch, steps, features), (features, width), (batch, steps, width))
    x, kernel, grad = (
        tf.cast(tf.random.stateless_normal(shape, (9, i)), tf.bfloat16)
        for i, shape in enumerate(shapes)
    )
    exact = [tf.cast(t, tf.float64).numpy() for t in (x, kernel, grad)]
    for found, wanted in (
        (products.project(x, kernel), exact[0] @ exact[1]),
        (products.project_back(grad, kernel), exact[2] @ exact[1].T),
        (
            products.summed_product(x, grad),
            np.einsum("btm,btn->mn", exact[0], exact[2]),
        ),
    ):
        assert found.dtype == tf.bfloat16
        scale = np.abs(wanted).max(initial=0.0)
        np.testing.assert_allclose(
            tf.cast(found, tf.float64),
            wanted,
            rtol=1.01 * ROUNDING[tf.bfloat16],
            atol=1e-5 * scale,
        )
