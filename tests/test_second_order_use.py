"""Second derivatives as users ask for them: ways to a graph, losses, training."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
import unrolled
from helpers import needs_xla
from layer_pairs import assert_equal, draw_inputs
from problems import CELLS, draw_problem
from second_derivatives import TOLERANCE, assert_all_equal, second, squares, total


def make_problem(cell):
    return draw_problem(cell, 7, batch=3, steps=4, units=5, features=3)


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


# Tracing takes its time: the other cells go two ways.
@pytest.mark.parametrize(
    "cell, route",
    [("lstm", route) for route in ROUTES]
    + [(c, r) for c in ("gru", "gru_before") for r in ("graph", "around a function")],
)
def test_routes(cell, route):
    problem = make_problem(cell)

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


@pytest.mark.parametrize(
    "cell, use, traced",
    [(c, u, False) for c in CELLS for u in USES]
    # A third derivative takes long to trace.
    + [("lstm", u, True) for u in USES if u is not third],
)
def test_uses(cell, use, traced):
    problem = make_problem(cell)

    def found(function, traced):
        given = unrolled.tensors(problem)

        def call_with(sources):
            return function(problem, dict(zip(given, sources, strict=True)))

        def step():
            return use(call_with, list(given.values()))

        return (tf.function(step) if traced else step)()

    expected = found(unrolled.run, traced=False)
    assert_all_equal(found(unrolled.ours, traced), expected)


@pytest.mark.usefixtures("float64_everywhere")
def test_critic_with_gradient_penalty_trains_as_stock():
    """WGAN-GP's critic under `fit`: the penalty on the gradient of the inputs."""

    class Critic(keras.Sequential):
        def train_step(self, x):
            with tf.GradientTape() as outer:
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    score = tf.reduce_mean(self(x, training=True))
                norms = tf.norm(tf.reshape(inner.gradient(score, x), (4, -1)), axis=1)
                loss = score + 10.0 * tf.reduce_mean((norms - 1.0) ** 2)
            variables = self.trainable_variables
            slopes = outer.gradient(loss, [v.value for v in variables])
            self.optimizer.apply(slopes, variables)
            return {"penalised": loss}

    def trained(layer_class, weights=None):
        critic = Critic(
            [
                keras.Input((6, 3)),
                layer_class(5, return_sequences=True, unroll=True),
                layer_class(4, unroll=True),
                keras.layers.Dense(1),
            ]
        )
        if weights:
            critic.set_weights(weights)
        first = critic.get_weights()
        critic.compile(keras.optimizers.SGD(0.05))
        x = draw_inputs(batch=20)
        history = critic.fit(x, batch_size=4, epochs=2, shuffle=False, verbose=0)
        return first, history.history["penalised"], critic.get_weights()

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
    assert types.count("EcoRNN>SummedProducts") == 1
    # dx, and with a product of its own x W and dW.
    assert types.count("MatMul") == (3 if wide else 1)
    assert not {t for t in types if "While" in t or "TensorList" in t or "If" in t}
    # The ops reuse these buffers, which nothing else may read: gates, and x W.
    readers = {op.type for op in forward.outputs[4].consumers()}
    assert readers - {"ZerosLike"} == {"EcoRNN>LstmGrad"}
    if wide:
        readers = {op.type for op in forward.inputs[0].consumers()}
        assert readers - {"Shape"} == {"EcoRNN>Lstm"}


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


@needs_xla
@pytest.mark.parametrize("cell", CELLS)
def test_under_xla(cell):
    problem = make_problem(cell)
    given = unrolled.tensors(problem)
    sources = list(given.values())

    def call():
        return unrolled.ours(problem, given)

    compiled = tf.function(lambda: second(call, sources), jit_compile=True)
    assert_all_equal(compiled(), second(call, sources))


@pytest.mark.parametrize("cell", ("lstm", "gru"))
def test_through_a_reloaded_function(cell, tmp_path):
    problem = make_problem(cell)
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
