"""Second derivatives of a call, and their comparison."""

import numpy as np
import tensorflow as tf

from layer_pairs import assert_equal, weigh

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
