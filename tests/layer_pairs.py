"""A stock Keras layer and ours with the same weights, and their comparison.

The stock layer runs in float64 with `use_cudnn=False`: the generic loop is the
oracle. Ours keeps `use_cudnn="auto"`, as users leave it.
"""

from dataclasses import dataclass, field

import keras
import numpy as np
import tensorflow as tf

import tf_ecornn


@dataclass(frozen=True)
class Kind:
    """A stock layer class and ours, with the options that tell it from others."""

    stock: type
    ours: type
    gates: int
    states: int
    options: dict = field(default_factory=dict)

    def make(self, layer_class, *arguments, **options):
        return layer_class(*arguments, **{**self.options, **options})

    def make_stock(self, *arguments, **options):
        return self.make(self.stock, *arguments, **options)

    def make_ours(self, *arguments, **options):
        return self.make(self.ours, *arguments, **options)

    @property
    def makers(self):
        """Stock and ours, to be called like the layer classes."""
        return self.make_stock, self.make_ours


KINDS = {
    "lstm": Kind(keras.layers.LSTM, tf_ecornn.LSTM, 4, 2),
    "gru": Kind(keras.layers.GRU, tf_ecornn.GRU, 3, 1),
    "gru_before": Kind(keras.layers.GRU, tf_ecornn.GRU, 3, 1, {"reset_after": False}),
}
BATCH, STEPS, FEATURES, UNITS = 4, 6, 3, 5
# Relative to the largest value: two ways to sum the same float64 numbers.
TOLERANCE = 1e-11
# TensorFlow keeps the constants of these two in float32, whatever the dtype.
FLOAT32_CONSTANTS = ("gelu", "leaky_relu")


def random_weights(layer, seed=0, scale=0.5):
    """Gives the layer random weights of a useful size; no seed or state changes."""
    rng = np.random.default_rng(seed)
    for variable in layer.trainable_variables + layer.non_trainable_variables:
        if keras.backend.is_float_dtype(variable.dtype):
            variable.assign(scale * rng.normal(size=variable.shape))


def copy_weights(source, target):
    """Gives the target the source's weights, seeds left alone."""
    for mine, theirs in zip(target.weights, source.weights, strict=True):
        mine.assign(theirs)


def make_pair(units=UNITS, features=FEATURES, scale=0.5, kind="lstm", **options):
    """(stock, ours), built, with equal weights, both float64."""
    options = {"dtype": "float64", **options}
    stock = KINDS[kind].make_stock(units, **{"use_cudnn": False, **options})
    ours = KINDS[kind].make_ours(units, **options)
    steps = STEPS if options.get("unroll") else None
    for layer in (stock, ours):
        layer.build((BATCH, steps, features))
    random_weights(stock, scale=scale)
    copy_weights(stock, ours)
    return stock, ours


def draw_inputs(seed=0, batch=BATCH, steps=STEPS, features=FEATURES):
    return tf.constant(
        np.random.default_rng([seed, 1]).normal(size=(batch, steps, features))
    )


def draw_states(seed=0, batch=BATCH, units=UNITS, kind="lstm"):
    """As many initial states (B, U) as the layer has."""
    rng = np.random.default_rng([seed, 2])
    count = KINDS[kind].states
    return [tf.constant(rng.normal(size=(batch, units))) for _ in range(count)]


def draw_layer_mask(kind, seed=0, batch=BATCH, steps=STEPS):
    """(B, T) bool tensor or None."""
    from problems import draw_mask

    mask = draw_mask(np.random.default_rng([seed, 3]), kind, batch, steps)
    return None if mask is None else tf.constant(mask)


def results_of(layer, x, states=None, traced=False, **call):
    """Flat results of a call and the gradients of a weighted sum of all of them.

    Gradients are those of x, the initial states and the trainable weights, None
    where the tape found none.
    """

    def step():
        sources = [x, *(states or []), *tensors_of(layer)]
        with tf.GradientTape() as tape:
            tape.watch([s for s in sources if tf.is_tensor(s)])
            given = {} if states is None else {"initial_state": states}
            found = tf.nest.flatten(layer(x, **given, **call))
            total = tf.add_n([tf.reduce_sum(weigh(i, v)) for i, v in enumerate(found)])
        return found, tape.gradient(total, sources)

    found, gradients = (tf.function(step) if traced else step)()
    return found, gradients


def tensors_of(*layers):
    """The trainable weights as TensorFlow variables, for a tape."""
    return [v.value for layer in layers for v in layer.trainable_variables]


def weigh(number, value):
    """The value times fixed weights that differ from element to element."""
    positions = tf.range(tf.size(value, tf.int64))
    weights = tf.cos(1.0 + number + 0.37 * tf.cast(positions, tf.float64))
    return tf.cast(value, tf.float64) * tf.reshape(weights, tf.shape(value))


def assert_equal(actual, expected, name, tolerance=TOLERANCE):
    assert (actual is None) == (expected is None), name
    if expected is None:
        return
    actual, expected = (keras.ops.convert_to_numpy(v) for v in (actual, expected))
    assert actual.dtype == expected.dtype, (name, actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (name, actual.shape, expected.shape)
    assert np.isfinite(expected).all(), f"{name}: the oracle is not finite"
    scale = max(np.abs(expected).max(initial=0.0), 1e-3)
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=tolerance * scale, err_msg=name
    )


def assert_same_results(stock, ours, x, tolerance=TOLERANCE, **call):
    """Results and gradients of both layers, and what ours returned."""
    expected = results_of(stock, x, **call)
    actual = results_of(ours, x, **call)
    for kind, a_list, e_list in zip(
        ("result", "gradient"), actual, expected, strict=True
    ):
        assert len(a_list) == len(e_list), kind
        for number, (a, e) in enumerate(zip(a_list, e_list, strict=True)):
            assert_equal(a, e, f"{kind} {number}", tolerance)
    return actual
