"""Which activation functions are fused, and how to recognise them."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tf_ecornn.arguments import ACTIVATIONS

_ALIASES = {"exponential": ("exponential", "exp"), "silu": ("silu", "swish")}

# Where users take such functions from. The defaults of all of them are the op's:
# leaky_relu has slope 0.2, gelu is the exact form, elu has alpha 1.
_MODULES = (keras.activations, keras.ops, tf.nn, tf.math, tf)

_FUNCTIONS = {
    name: [
        getattr(module, alias)
        for module in _MODULES
        for alias in _ALIASES.get(name, (name,))
        if hasattr(module, alias)
    ]
    for name in ACTIVATIONS
}

# keras.ops.gelu is the approximate form by default, unlike keras.activations.gelu.
_FUNCTIONS["gelu"] = [keras.activations.gelu, tf.nn.gelu]


def fused_name(function: Any) -> str | None:
    """The op's name of an activation function, None if the op has no such one."""
    for name, functions in _FUNCTIONS.items():
        if any(function is known for known in functions):
            return name
    return None
