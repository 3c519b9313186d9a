"""The fused ops under `tf.vectorized_map`, Jacobians and TimeDistributed.

Right values come from Keras's loop in float64, run element by element. What Keras
does not have, `reset` and masks given from outside, is compared with the functional
layers run element by element; those have tests of their own.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
from layer_pairs import assert_equal, copy_weights, random_weights, tensors_of, weigh

ELEMENTS, BATCH, STEPS, FEATURES, UNITS = 3, 2, 4, 3, 5
CELLS = {
    "lstm": (keras.layers.LSTM, tf_ecornn.LSTM, {}),
    "gru": (keras.layers.GRU, tf_ecornn.GRU, {}),
    "gru_before": (keras.layers.GRU, tf_ecornn.GRU, {"reset_after": False}),
}
KINDS = tuple(CELLS)


def make_pair(kind, **options):
    stock_class, our_class, form = CELLS[kind]
    options = {"dtype": "float64", "return_state": True, **form, **options}
    stock = stock_class(UNITS, use_cudnn=False, **options)
    ours = our_class(UNITS, **options)
    for layer in (stock, ours):
        layer.build((BATCH, STEPS, FEATURES))
    random_weights(stock)
    copy_weights(stock, ours)
    return stock, ours


def draw(seed, *shape):
    return tf.constant(np.random.default_rng(seed).normal(size=shape))


def draw_flags(seed, probability, *shape):
    return tf.constant(np.random.default_rng(seed).random(shape) < probability)


def states_of(kind, *leading):
    return [draw([7, i], *leading, UNITS) for i in range(2 if kind == "lstm" else 1)]


def run_layer(layer, x, mask, states):
    """Results and all gradients of one element: x is (B, T, F)."""
    sources = [x, *states, *tensors_of(layer)]
    with tf.GradientTape() as tape:
        tape.watch([x, *states])
        found = layer(x, mask=mask, initial_state=states, training=True)
        total = tf.add_n([tf.reduce_sum(weigh(i, v)) for i, v in enumerate(found)])
    return [*found, *tape.gradient(total, sources)]


def assert_mapped(mapped, elements):
    """Stacked values against a list of the values of each element."""
    for i, (a, *e) in enumerate(zip(mapped, *elements, strict=True)):
        assert_equal(a, np.stack(e), f"value {i}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sequences", (False, True))
def test_gradients_of_each_element(kind, sequences, fused_calls):
    """Weight and bias gradients by element; states from outside, a mask by element."""
    stock, ours = make_pair(kind, return_sequences=sequences)
    x = draw(1, ELEMENTS, BATCH, STEPS, FEATURES)
    mask = draw_flags(2, 0.7, ELEMENTS, BATCH, STEPS)
    states = states_of(kind, BATCH)
    mapped = tf.vectorized_map(lambda a: run_layer(ours, *a, states), (x, mask))
    assert fused_calls() == 2
    assert_mapped(
        mapped, [run_layer(stock, x[i], mask[i], states) for i in range(ELEMENTS)]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_states_by_element_and_common_inputs(kind, fused_calls):
    """What is the same for all elements is repeated for them; no bias, reversed."""
    stock, ours = make_pair(kind, use_bias=False, go_backwards=True)
    x, states = draw(1, BATCH, STEPS, FEATURES), states_of(kind, ELEMENTS, BATCH)
    mapped = tf.vectorized_map(lambda s: run_layer(ours, x, None, s), states)
    assert fused_calls() == 2
    assert_mapped(
        mapped,
        [run_layer(stock, x, None, [s[i] for s in states]) for i in range(ELEMENTS)],
    )


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_sizes_and_outer_gradient(kind, fused_calls):
    """In a graph, elements and batch unknown; the gradient is taken outside."""
    stock, ours = make_pair(kind)
    signature = tf.TensorSpec((None, None, None, FEATURES), tf.float64)

    def mapped_sum(layer, x, by_element):
        sources = [x, *tensors_of(layer)]
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = by_element(lambda e: layer(e, training=True)[0], x)
            total = tf.reduce_sum(weigh(0, found))
        return [found, *tape.gradient(total, sources)]

    @tf.function(input_signature=[signature])
    def traced(x):
        return mapped_sum(ours, x, tf.vectorized_map)

    for elements, batch in ((ELEMENTS, BATCH), (1, 1), (2, 4)):
        x = draw(elements, elements, batch, STEPS, FEATURES)
        expected = mapped_sum(stock, x, lambda f, x: tf.stack([f(e) for e in x]))
        before = fused_calls()
        for i, (a, e) in enumerate(zip(traced(x), expected, strict=True)):
            assert_equal(a, e, f"value {i}")
        assert fused_calls() - before == 2


@pytest.mark.parametrize("kind", KINDS)
def test_jacobian(kind, fused_calls):
    """One gradient op for all rows of the Jacobians by inputs, states and weights."""
    found = []
    for layer in make_pair(kind):
        x, states = draw(1, BATCH, STEPS, FEATURES), states_of(kind, BATCH)
        sources = [x, *states, *tensors_of(layer)]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, *states])
            output = layer(x, initial_state=states, training=True)[0]
        use_pfor = isinstance(layer, CELLS[kind][1])
        before = fused_calls()
        found.append(tape.jacobian(output, sources, experimental_use_pfor=use_pfor))
        if use_pfor:
            assert fused_calls() - before == 1
    for i, (e, a) in enumerate(zip(*found, strict=True)):
        assert_equal(a, e, f"jacobian {i}")


FUNCTIONS = {"lstm": tf_ecornn.lstm, "gru": tf_ecornn.gru, "gru_before": tf_ecornn.gru}


def functional(kind, save=True):
    """A function of one element's tensors, and those tensors for all elements."""
    gates = 4 if kind == "lstm" else 3
    bias_shape = (2, gates * UNITS) if kind == "gru" else (gates * UNITS,)
    options = {"reset_after": False} if kind == "gru_before" else {}
    options |= {"return_sequences": True, "save_for_backward": save}
    tensors = {
        "x": draw(1, ELEMENTS, BATCH, STEPS, FEATURES),
        "kernel": draw(2, ELEMENTS, FEATURES, gates * UNITS),
        "recurrent_kernel": draw(3, ELEMENTS, UNITS, gates * UNITS),
        "bias": draw(4, ELEMENTS, *bias_shape),
        "recurrent_dropout_mask": draw(5, ELEMENTS, BATCH, gates, UNITS),
        "mask": draw_flags(6, 0.7, ELEMENTS, BATCH, STEPS),
        "reset": draw_flags(7, 0.2, ELEMENTS, BATCH, STEPS),
    }

    def call(given):
        sources = [given[n] for n in ("x", "kernel", "recurrent_kernel", "bias")]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            found = FUNCTIONS[kind](**given, **options)
            total = tf.add_n([tf.reduce_sum(weigh(i, v)) for i, v in enumerate(found)])
        return [*found, *tape.gradient(total, sources)]

    return call, tensors


WEIGHTS = ("kernel", "recurrent_kernel", "bias")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("common", "save"),
    [
        ((), True),
        ((), False),
        (("x", "reset"), True),
        (("mask", "recurrent_dropout_mask"), True),
    ],
)
def test_every_optional_input(kind, common, save, fused_calls):
    """All by element; some the same for all; and with a second forward pass."""
    call, tensors = functional(kind, save)
    shared = {name: tensors.pop(name)[0] for name in (*WEIGHTS, *common)}
    found = tf.vectorized_map(lambda given: call({**shared, **given}), tensors)
    assert fused_calls() == (2 if save else 3)
    assert_mapped(found, elements_of(call, shared, tensors))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("by_element", "calls"),
    [
        (("kernel",), 2),
        # The gradient op takes no bias, so it stays one call.
        (("bias",), ELEMENTS + 1),
        (WEIGHTS, 2 * ELEMENTS),
    ],
)
def test_weights_by_element(kind, by_element, calls, fused_calls):
    """TensorFlow's loop over the op, where a batch can't have its weights."""
    call, tensors = functional(kind)
    shared = {n: tensors.pop(n)[0] for n in WEIGHTS if n not in by_element}
    found = tf.vectorized_map(lambda given: call({**shared, **given}), tensors)
    assert fused_calls() == calls
    assert_mapped(found, elements_of(call, shared, tensors))


def elements_of(call, shared, tensors):
    return [
        call({**shared, **{name: t[i] for name, t in tensors.items()}})
        for i in range(ELEMENTS)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_sums_a_long_bias_gradient_in_float32(kind):
    """3000 ones: a sum in half would stop at 2048."""
    steps, width = 3000, (4 if kind == "lstm" else 3)
    options = {"reset_after": False} if kind == "gru_before" else {}
    bias_shape = (2, width) if kind == "gru" else (width,)
    bias = tf.zeros(bias_shape, tf.float16)

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(bias)
            output = FUNCTIONS[kind](
                x,
                tf.zeros((1, width), tf.float16),
                tf.zeros((1, width), tf.float16),
                bias,
                activation="linear",
                return_sequences=True,
                **options,
            ).output
            total = tf.reduce_sum(output)
        return tape.gradient(total, bias)

    x = tf.zeros((2, 1, steps, 1), tf.float16)
    mapped = tf.vectorized_map(gradient, x)
    one = tf.cast(gradient(x[0]), tf.float32)
    np.testing.assert_allclose(tf.cast(mapped, tf.float32), [one, one], rtol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_time_distributed_with_unknown_time(kind, fused_calls):
    """As many outer steps as rows: Keras 3.15 maps over the first axis's length."""
    length = 3
    found = []
    for layer in make_pair(kind, return_state=False):
        wrapped = keras.layers.TimeDistributed(layer, dtype="float64")
        known = length if type(layer).__module__.startswith("keras") else None
        shape = (length, known, STEPS, FEATURES)

        @tf.function(input_signature=[tf.TensorSpec(shape, tf.float64)])
        def traced(x, wrapped=wrapped):
            sources = [x, *tensors_of(wrapped)]
            with tf.GradientTape() as tape:
                tape.watch(x)
                output = wrapped(x, training=True)
                total = tf.reduce_sum(weigh(0, output))
            return [output, *tape.gradient(total, sources)]

        found.append(traced(draw(3, length, length, STEPS, FEATURES)))
    assert fused_calls() == 2
    for i, (e, a) in enumerate(zip(*found, strict=True)):
        assert_equal(a, e, f"value {i}")


def test_reloading_the_module_registers_nothing_twice():
    import importlib

    from tf_ecornn import vectorized

    importlib.reload(vectorized)
