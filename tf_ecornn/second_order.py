"""Gradients of the gradient ops, of ordinary TensorFlow ops.

The fused ops come in pairs, the forward op F and its gradient op G:

    h, saved = F(p)            p: x, U, biases, initial states
    d        = G(saved, U, g)  g: gradients of h;  d: gradients of the pre-activations
    dp       = d times p       over all steps at once (`recurrence`)

A second derivative goes through d. It needs what a first one does not:

1. The gradient of G. G is linear in g, with coefficients that follow from `saved`.
   For the LSTM, s' the slope of a gate, a that of the activation, h and c those that
   left the step, h- and c- those that entered it:

       d_c += d_h o a'(c)
       d_z  = [d_c g s'_i, d_c c- s'_f, d_c i a'_g, d_h a(c) s'_o]
       d_h- = d_z Uᵀ          d_c- = d_c f

   from the last step to the first. `plain_backward` states this in ordinary ops, the
   coefficients for all steps at once, the rest in a `tf.while_loop`. TensorFlow
   differentiates that statement, with respect to g, U and `saved`.

2. The gradient of F from gradients of `saved`, which 1 gives. They join the same
   linear recurrence: that of a saved gate, times its slope, is a part of d_z; those
   of an h and a c that entered a step are parts of d_h- and d_c-. So one statement
   serves both.

In a graph these are the registered gradients of the two ops. F's receives zeros for
`saved` whenever nobody asks for a second derivative; `use_of` tells such zeros from
gradients, so that a first derivative stays G alone. In eager mode F hides behind
`tf.custom_gradient`, and so does its gradient, whose own gradient runs F once more
where a tape sees it. Since all of it is ordinary ops, there are third derivatives.
"""

from __future__ import annotations

import enum

import tensorflow as tf


class Use(enum.Enum):
    """What a graph under construction tells of the gradients of `saved`."""

    ZERO = "TensorFlow filled in zeros: nobody asked"
    REAL = "somebody asked"
    OPEN = "arguments of the function under construction: either"


def use_of(saved_grads: dict[str, tf.Tensor]) -> Use:
    """Whether any of these gradients can be other than zero."""
    uses = {_use_of_one(grad) for grad in saved_grads.values()}
    if Use.REAL in uses:
        return Use.REAL
    return Use.OPEN if Use.OPEN in uses else Use.ZERO


def _use_of_one(grad: tf.Tensor) -> Use:
    if not tf.is_symbolic_tensor(grad):
        return Use.REAL
    op = grad.op
    while op.type == "Identity":
        op = op.inputs[0].op
    if op.type == "Placeholder":
        return Use.OPEN
    if op.type == "ZerosLike":
        return Use.ZERO
    # Where the shape is known: a constant if small, else a constant repeated.
    constant = op.inputs[1] if op.type == "Fill" else op.outputs[0]
    value = tf.get_static_value(constant) if constant.op.type == "Const" else None
    return Use.REAL if value is None or value.any() else Use.ZERO


def any_nonzero(saved_grads: dict[str, tf.Tensor]) -> tf.Tensor:
    """The same at run time: a boolean. NaN is not zero."""
    return tf.reduce_any(
        [tf.reduce_any(tf.not_equal(grad, 0)) for grad in saved_grads.values()]
    )
