"""The activation functions as ordinary TensorFlow ops, for second derivatives.

The fused ops keep of an activation y = f(x) either y or x (`keeps_argument`), and
take the slope dy/dx from that. So do these, so that what a gradient op read can be
differentiated. They are sums and products of ops whose own gradients have gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

_LEAKY_SLOPE = 0.2
_SELU_SCALE = 1.0507009873554804934193349852946
_SELU_ALPHA = 1.6732632423543772848170429916717


@dataclass(frozen=True)
class Activation:
    """One function.

    Attributes:
        value: y from x.
        slope: dy/dx from what is saved. At kinks it is TensorFlow's.
        keeps_argument: whether x is saved, else y.
    """

    value: Callable[[tf.Tensor], tf.Tensor]
    slope: Callable[[tf.Tensor], tf.Tensor]
    keeps_argument: bool = False

    def restore(self, saved: tf.Tensor) -> tf.Tensor:
        """y from what is saved."""
        return self.value(saved) if self.keeps_argument else saved

    def slope_at(self, x: tf.Tensor) -> tf.Tensor:
        """dy/dx from x."""
        return self.slope(x if self.keeps_argument else self.value(x))

    def per_saved(self, saved: tf.Tensor) -> tf.Tensor:
        """d saved / dx: turns a gradient of what is saved into one of x."""
        return tf.ones_like(saved) if self.keeps_argument else self.slope(saved)


def _step(condition: tf.Tensor, inside: float, outside: float, like) -> tf.Tensor:
    return tf.where(
        condition, tf.constant(inside, like.dtype), tf.constant(outside, like.dtype)
    )


def _between(y: tf.Tensor, low: float, high: float, slope: float) -> tf.Tensor:
    return _step((y > low) & (y < high), slope, 0.0, y)


def _expm1_negative(x: tf.Tensor) -> tf.Tensor:
    return tf.math.expm1(tf.minimum(x, 0.0))


def _normal_cdf(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * (1.0 + tf.math.erf(x / math.sqrt(2.0)))


def _normal_density(x: tf.Tensor) -> tf.Tensor:
    return tf.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def _silu_slope(x: tf.Tensor) -> tf.Tensor:
    s = tf.sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


PLAIN_ACTIVATIONS = {
    "tanh": Activation(tf.tanh, lambda y: 1.0 - y * y),
    "sigmoid": Activation(tf.sigmoid, lambda y: y * (1.0 - y)),
    "hard_sigmoid": Activation(
        lambda x: tf.nn.relu6(x + 3.0) / 6.0,
        lambda y: _between(y, 0.0, 1.0, 1.0 / 6.0),
    ),
    "hard_tanh": Activation(
        lambda x: tf.minimum(tf.maximum(x, -1.0), 1.0),
        lambda x: _step(tf.abs(x) <= 1.0, 1.0, 0.0, x),
        keeps_argument=True,
    ),
    "relu": Activation(tf.nn.relu, lambda y: _step(y > 0.0, 1.0, 0.0, y)),
    "relu6": Activation(tf.nn.relu6, lambda y: _between(y, 0.0, 6.0, 1.0)),
    "leaky_relu": Activation(
        lambda x: tf.where(x > 0.0, x, _LEAKY_SLOPE * x),
        lambda y: _step(y > 0.0, 1.0, _LEAKY_SLOPE, y),
    ),
    "elu": Activation(
        lambda x: tf.where(x > 0.0, x, _expm1_negative(x)),
        lambda y: tf.where(y < 0.0, y + 1.0, tf.ones_like(y)),
    ),
    "selu": Activation(
        lambda x: _SELU_SCALE * tf.where(x >= 0.0, x, _SELU_ALPHA * _expm1_negative(x)),
        lambda y: tf.where(
            y < 0.0, y + _SELU_SCALE * _SELU_ALPHA, _SELU_SCALE * tf.ones_like(y)
        ),
    ),
    "softsign": Activation(
        lambda x: x / (1.0 + tf.abs(x)),
        lambda x: tf.square(1.0 / (1.0 + tf.abs(x))),
        keeps_argument=True,
    ),
    "softplus": Activation(tf.nn.softplus, lambda y: -tf.math.expm1(-y)),
    "exponential": Activation(tf.exp, lambda y: y),
    "linear": Activation(lambda x: x, tf.ones_like),
    "silu": Activation(lambda x: x * tf.sigmoid(x), _silu_slope, keeps_argument=True),
    "gelu": Activation(
        lambda x: x * _normal_cdf(x),
        lambda x: _normal_cdf(x) + x * _normal_density(x),
        keeps_argument=True,
    ),
}
