"""Gradients of gradients, against stock Keras and a plain unrolled statement."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
import unrolled
from layer_pairs import (
    KINDS,
    assert_equal,
    draw_inputs,
    draw_layer_mask,
    draw_states,
    make_pair,
    tensors_of,
    weigh,
)
from problems import CELLS, draw_problem, draw_tame
from tf_ecornn import _library

# The bar: what stock gives in float64.
TOLERANCE = 1e-8


def total(found):
    """A number in which every result counts, not linearly."""
    return tf.add_n([tf.reduce_sum(tf.sin(weigh(i, v))) for i, v in enumerate(found)])


def squares(gradients):
    """A number in which every gradient counts with its square."""
    products = [tf.reduce_sum(weigh(i, g * g)) for i, g in enumerate(gradients)]
    return tf.add_n(products)


def second(call, sources):
    """Gradients of a sum over all gradients of a sum over all results."""
    with tf.GradientTape() as outer:
        outer.watch(sources)
        with tf.GradientTape() as inner:
            inner.watch(sources)
            value = total(call())
        first = inner.gradient(value, sources, unconnected_gradients="zero")
        loss = squares(first)
    return outer.gradient(loss, sources, unconnected_gradients="zero")


def assert_all_equal(actual, expected, tolerance=TOLERANCE):
    assert len(actual) == len(expected)
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert_equal(a, e, f"second derivative {number}", tolerance)
    assert any(np.abs(e).max(initial=0.0) > 0.0 for e in expected), "all zero"


LAYERS = {
    "plain": {},
    "sequences": {"return_sequences": True, "return_state": True, "states": True},
    "backwards": {"return_sequences": True, "go_backwards": True},
    "no bias": {"use_bias": False},
    "wide": {"features": 70},
    "silu": {"activation": "silu", "recurrent_activation": "hard_sigmoid"},
    "masked": {"return_sequences": True, "mask": "random", "return_state": True},
    "zero outputs": {
        "return_sequences": True,
        "mask": "holes",
        "zero_output_for_mask": True,
    },
    "dropout": {"dropout": 0.3, "recurrent_dropout": 0.4, "seed": 5, "training": True},
    "all off": {"mask": "all_off", "states": True, "return_state": True},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_equal_stock(kind, name):
    options = dict(LAYERS[name])
    features = options.pop("features", 3)
    training = options.pop("training", False)
    mask = draw_layer_mask(options.pop("mask", "none"))
    states = draw_states(kind=kind) if options.pop("states", False) else []
    x = draw_inputs(features=features)

    def results(layer, traced=False):
        def step():
            call = {"initial_state": states} if states else {}
            return second(
                lambda: tf.nest.flatten(layer(x, mask=mask, training=training, **call)),
                [x, *states, *tensors_of(layer)],
            )

        return (tf.function(step) if traced else step)()

    def pair():
        return make_pair(kind=kind, features=features, unroll=True, **options)

    stock, ours = pair()
    assert ours.fused
    expected = results(stock)
    assert_all_equal(results(ours), expected)
    if name in ("plain", "masked"):
        assert_all_equal(results(pair()[1], traced=True), expected)


def both_second(problem):
    """Second derivatives by the ops, eager, and by the unrolled statement."""
    found = []
    for function in (unrolled.ours, unrolled.run):
        given = unrolled.tensors(problem)
        sources = list(given.values())

        def call(function=function, given=given):
            return function(problem, given)

        found.append(second(call, sources))
    return found


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", tf_ecornn.ACTIVATIONS)
def test_activations(cell, name):
    """In both places, off their kinks."""
    problem = draw_tame(
        cell,
        seed=1,
        margin=1e-3,
        batch=2,
        steps=3,
        units=4,
        features=2,
        activation=name,
        recurrent_activation=name,
        scale=0.7,
    )
    actual, expected = both_second(problem)
    assert_all_equal(actual, expected)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("seed", range(3))
def test_reset_masks_and_dropout(cell, seed):
    problem = draw_problem(
        cell,
        seed,
        features=3,
        mask=("none", "random", "left")[seed],
        reset=True,
        dropout=seed > 0,
        reverse=seed == 1,
        zero_output_for_mask=seed == 2,
        bias=seed < 2,
    )
    actual, expected = both_second(problem)
    assert_all_equal(actual, expected)


@pytest.fixture(scope="module", params=CELLS)
def problem(request):
    return draw_problem(request.param, 7, batch=3, steps=4, units=5, features=3)


def around_a_function(call, sources, persistent=False):
    """Eager tapes around a traced forward pass."""
    traced = tf.function(lambda: total(call()))
    with tf.GradientTape(persistent=persistent) as outer:
        outer.watch(sources)
        with tf.GradientTape() as inner:
            inner.watch(sources)
            value = traced()
        loss = squares(inner.gradient(value, sources))
    return outer.gradient(loss, sources, unconnected_gradients="zero")


def by_tf_gradients(call, sources):
    @tf.function
    def traced():
        first = tf.gradients(total(call()), sources)
        return tf.gradients(squares(first), sources, unconnected_gradients="zero")

    return traced()


def in_nested_functions(call, sources):
    traced = tf.function(lambda: total(call()))

    @tf.function
    def outer():
        return second(lambda: [traced()], sources)

    return outer()


def in_a_loop(call, sources):
    """The forward pass in a `tf.while_loop`, both gradients around it."""

    @tf.function
    def traced():
        def looped():
            value = tf.zeros((), tf.float64)
            for _ in tf.range(2):
                value += total(call())
            return [value]

        return second(looped, sources)

    return traced()


ROUTES = {
    "eager": second,
    "graph": lambda call, sources: tf.function(lambda: second(call, sources))(),
    "around a function": around_a_function,
    "persistent tape": lambda call, sources: around_a_function(call, sources, True),
    "nested functions": in_nested_functions,
    "tf.gradients": by_tf_gradients,
    "loop": in_a_loop,
}


@pytest.mark.parametrize("route", ROUTES)
def test_routes(problem, route):
    def found(function):
        given = unrolled.tensors(problem)
        return ROUTES[route](lambda: function(problem, given), list(given.values()))

    assert_all_equal(found(unrolled.ours), found(unrolled.run))


def meta_step(call_with, sources):
    """MAML: gradients through two steps of gradient descent on all sources."""
    with tf.GradientTape() as outer:
        outer.watch(sources)
        fast = sources
        for _ in range(2):
            with tf.GradientTape() as inner:
                inner.watch(fast)
                value = total(call_with(fast))
            slopes = inner.gradient(value, fast)
            fast = [s - 0.1 * g for s, g in zip(fast, slopes, strict=True)]
        value = total(call_with(fast))
    return outer.gradient(value, sources)


def forward_over_reverse(call_with, sources):
    """The product of the Hessian with a vector."""
    vector = [tf.sin(1.0 + s) for s in sources]
    with tf.autodiff.ForwardAccumulator(sources, vector) as accumulator:
        with tf.GradientTape() as tape:
            tape.watch(sources)
            value = total(call_with(sources))
        slopes = tape.gradient(value, sources)
    return [accumulator.jvp(slope) for slope in slopes]


def reverse_over_forward(call_with, sources):
    vector = [tf.sin(1.0 + s) for s in sources]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        with tf.autodiff.ForwardAccumulator(sources, vector) as accumulator:
            value = total(call_with(sources))
        slope = accumulator.jvp(value)
    return tape.gradient(slope, sources)


def third(call_with, sources):
    with tf.GradientTape() as tape:
        tape.watch(sources)
        slope = total(second(lambda: call_with(sources), sources))
    return tape.gradient(slope, sources)


USES = (meta_step, forward_over_reverse, reverse_over_forward, third)


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
@pytest.mark.parametrize("traced", (False, True), ids=("eager", "graph"))
def test_uses(problem, use, traced):
    if traced and (problem.cell != "lstm" or use is third):
        pytest.skip("one cell, and no third derivative, is enough to trace")

    def found(function, traced):
        given = unrolled.tensors(problem)

        def call_with(sources):
            return function(problem, dict(zip(given, sources, strict=True)))

        def step():
            return use(call_with, list(given.values()))

        return (tf.function(step) if traced else step)()

    expected = found(unrolled.run, traced=False)
    assert_all_equal(found(unrolled.ours, traced), expected)


def test_critic_with_gradient_penalty_trains_as_stock():
    """WGAN-GP's critic under `fit`: the penalty on the gradient of the inputs."""

    @keras.saving.register_keras_serializable(package="tests")
    class Critic(keras.Sequential):
        def train_step(self, data):
            (x,) = data
            with tf.GradientTape() as outer:
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    score = tf.reduce_mean(self(x, training=True))
                norms = tf.norm(tf.reshape(inner.gradient(score, x), (4, -1)), axis=1)
                loss = score + 10.0 * tf.reduce_mean((norms - 1.0) ** 2)
            variables = self.trainable_variables
            slopes = outer.gradient(loss, [v.value for v in variables])
            self.optimizer.apply(slopes, variables)
            return {"loss": loss}

    def trained(layer_class, weights=None):
        critic = Critic(
            [
                keras.Input((6, 3), dtype="float64"),
                layer_class(5, return_sequences=True, dtype="float64", unroll=True),
                layer_class(4, dtype="float64", unroll=True),
                keras.layers.Dense(1, dtype="float64"),
            ]
        )
        if weights:
            critic.set_weights(weights)
        first = critic.get_weights()
        critic.compile(keras.optimizers.SGD(0.05))
        x = draw_inputs(batch=20)
        history = critic.fit(x, batch_size=4, epochs=2, shuffle=False, verbose=0)
        return first, history.history["loss"], critic.get_weights()

    first, expected, expected_weights = trained(keras.layers.LSTM)
    _, losses, weights = trained(tf_ecornn.LSTM, first)
    assert expected[1] < expected[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-8)
    for a, e in zip(weights, expected_weights, strict=True):
        assert_equal(a, e, "weights", TOLERANCE)


def first_order_graph(wide):
    """The graph of a first derivative: its forward op, and its op types."""
    features, units = (100, 4) if wide else (3, 4)
    shapes = ((None, None, features), (features, 4 * units), (units, 4 * units))

    @tf.function(input_signature=[tf.TensorSpec(s) for s in shapes])
    def step(x, kernel, recurrent_kernel):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch((x, kernel, recurrent_kernel))
            found = tf_ecornn.lstm(x, kernel, recurrent_kernel, return_sequences=True)
            value = tf.reduce_sum(found.output)
        return tape.gradient(value, (x, kernel, recurrent_kernel))

    operations = step.get_concrete_function().graph.get_operations()
    (forward,) = (op for op in operations if op.type == "EcoRNN>Lstm")
    return forward, [op.type for op in operations]


@pytest.mark.parametrize("wide", (False, True), ids=("joined", "projected"))
def test_first_derivatives_are_the_ops_alone(wide):
    forward, types = first_order_graph(wide)
    assert types.count("EcoRNN>Lstm") == types.count("EcoRNN>LstmGrad") == 1
    assert types.count("MatMul") == (4 if wide else 3)
    assert not {t for t in types if "While" in t or "TensorList" in t or "If" in t}
    # The ops reuse these buffers, which nothing else may read: gates, and x W.
    readers = {
        op.type for op in forward.outputs[4].consumers() if op.type != "ZerosLike"
    }
    assert readers == {"EcoRNN>LstmGrad"}
    if wide:
        assert [op.type for op in forward.inputs[0].consumers()] == ["EcoRNN>Lstm"]


def test_first_derivatives_run_two_ops(fused_calls):
    """Eager and traced, with tapes around that could ask for more."""
    problem = draw_problem("lstm", 3, features=3)
    given = list(unrolled.tensors(problem).values())
    names = list(unrolled.tensors(problem))

    def call():
        return total(unrolled.ours(problem, dict(zip(names, given, strict=True))))

    for function in (call, tf.function(call)):
        before = fused_calls()
        with tf.GradientTape() as tape:
            tape.watch(given)
            value = function()
        tape.gradient(value, given)
        assert fused_calls() - before == 2


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
def test_narrow_dtypes(cell, dtype):
    problem = draw_problem(cell, 4, features=3, scale=0.5)
    given = unrolled.tensors(problem)
    expected = second(lambda: unrolled.run(problem, given), list(given.values()))
    narrow = unrolled.tensors(problem, tf.as_dtype(dtype))
    actual = second(lambda: unrolled.ours(problem, narrow), list(narrow.values()))
    bound = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1}[dtype]
    for (name, a), e in zip(zip(narrow, actual, strict=True), expected, strict=True):
        assert a.dtype == dtype
        error = np.abs(tf.cast(a, tf.float64) - e).max() / np.abs(e).max()
        assert error < bound, f"{name}: off by {error:.1e}, relative to the largest"


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("batch, steps", ((0, 3), (2, 0)))
@pytest.mark.parametrize("traced", (False, True), ids=("eager", "graph"))
def test_empty_batches_and_sequences(cell, batch, steps, traced):
    problem = draw_problem(cell, 1, batch=batch, steps=steps, features=3)
    given = list(unrolled.tensors(problem).values())
    names = list(unrolled.tensors(problem))

    def step(*sources):
        def call():
            return unrolled.ours(problem, dict(zip(names, sources, strict=True)))

        return second(call, list(sources))

    if traced:
        signature = [
            tf.TensorSpec((None,) * len(g.shape), g.dtype)
            if name in ("x", "initial_h", "initial_c")
            else tf.TensorSpec(g.shape, g.dtype)
            for name, g in zip(names, given, strict=True)
        ]
        step = tf.function(step, input_signature=signature)
    found = step(*given)
    for name, slope, source in zip(names, found, given, strict=True):
        assert slope.shape == source.shape
        assert np.isfinite(slope).all(), name
        if "initial" not in name:
            # Of no steps or no rows.
            assert not np.any(slope), name


def test_under_xla(problem):
    if not _library.has_xla():
        pytest.skip("this build has no kernels for XLA")
    given = unrolled.tensors(problem)
    sources = list(given.values())

    def call():
        return unrolled.ours(problem, given)

    compiled = tf.function(lambda: second(call, sources), jit_compile=True)
    assert_all_equal(compiled(), second(call, sources))


def test_through_a_reloaded_function(problem, tmp_path):
    given = unrolled.tensors(problem)
    names = list(given)

    @tf.function
    def call(*sources):
        return unrolled.ours(problem, dict(zip(names, sources, strict=True)))

    module = tf.Module()
    module.call = call
    call(*given.values())
    tf.saved_model.save(module, str(tmp_path))
    reloaded = tf.saved_model.load(str(tmp_path))
    sources = list(given.values())
    actual = second(lambda: reloaded.call(*sources), sources)
    assert_all_equal(actual, second(lambda: unrolled.run(problem, given), sources))
