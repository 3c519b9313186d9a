"""The activations of the Keras 3 contract: value and slope, NumPy float64.

Both are written in terms of the pre-activation. At a kink the slope is the one
TensorFlow uses.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946
LEAKY_SLOPE = 0.2


@dataclass(frozen=True)
class Activation:
    """value(x), slope(x) = d value / dx, and where the slope jumps."""

    value: Callable
    slope: Callable
    kinks: tuple = ()

    def kink_distance(self, x):
        """Distance from x to the nearest kink; exact hits do not count.

        An exact hit is a structural zero (relu of an empty cell), which every
        precision reproduces; a near miss is one that rounding may move across.
        """
        gaps = [np.abs(np.asarray(x) - kink).ravel() for kink in self.kinks]
        gaps = np.concatenate([[np.inf], *gaps])
        return gaps[gaps > 0.0].min()


def sigmoid(x):
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def sigmoid_slope(x):
    return 0.25 / np.cosh(0.5 * np.clip(x, -600.0, 600.0)) ** 2


def relu6(x):
    return np.clip(x, 0.0, 6.0)


def relu6_slope(x):
    return np.where((x > 0.0) & (x < 6.0), 1.0, 0.0)


def negative_exp(x):
    """exp(min(x, 0)): never overflows."""
    return np.exp(np.minimum(x, 0.0))


def elu(x):
    return np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0)))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def normal_cdf(x):
    return 0.5 * (1.0 + _erf(x / math.sqrt(2.0)))


def normal_pdf(x):
    return np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


ACTIVATIONS = {
    "tanh": Activation(np.tanh, lambda x: 1.0 - np.tanh(x) ** 2),
    "sigmoid": Activation(sigmoid, sigmoid_slope),
    "hard_sigmoid": Activation(
        lambda x: relu6(x + 3.0) / 6.0,
        lambda x: relu6_slope(x + 3.0) / 6.0,
        (-3.0, 3.0),
    ),
    "hard_tanh": Activation(
        lambda x: np.clip(x, -1.0, 1.0),
        lambda x: np.where(np.abs(x) <= 1.0, 1.0, 0.0),
        (-1.0, 1.0),
    ),
    "relu": Activation(
        lambda x: np.maximum(x, 0.0), lambda x: np.where(x > 0.0, 1.0, 0.0), (0.0,)
    ),
    "relu6": Activation(relu6, relu6_slope, (0.0, 6.0)),
    "leaky_relu": Activation(
        lambda x: np.where(x > 0.0, x, LEAKY_SLOPE * x),
        lambda x: np.where(x > 0.0, 1.0, LEAKY_SLOPE),
        (0.0,),
    ),
    "elu": Activation(elu, negative_exp),
    "selu": Activation(
        lambda x: SELU_SCALE * np.where(x > 0.0, x, SELU_ALPHA * elu(x)),
        lambda x: SELU_SCALE * np.where(x >= 0.0, 1.0, SELU_ALPHA * negative_exp(x)),
        (0.0,),
    ),
    "softsign": Activation(
        lambda x: x / (1.0 + np.abs(x)), lambda x: 1.0 / (1.0 + np.abs(x)) ** 2
    ),
    "softplus": Activation(lambda x: np.logaddexp(x, 0.0), sigmoid),
    "exponential": Activation(np.exp, np.exp),
    "linear": Activation(lambda x: x + 0.0, np.ones_like),
    "silu": Activation(
        lambda x: x * sigmoid(x), lambda x: sigmoid(x) + x * sigmoid_slope(x)
    ),
    "gelu": Activation(
        lambda x: x * normal_cdf(x), lambda x: normal_cdf(x) + x * normal_pdf(x)
    ),
}


def get_activation(name: str) -> Activation:
    return ACTIVATIONS[name]
