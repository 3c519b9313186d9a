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

   from the last step to the first. Its gradient with respect to g, U and `saved` is
   the same recurrence the other way round, with products over all steps before and
   after it: `plain_adjoint`.

2. The gradient of F from gradients of `saved`, which 1 gives. They join the same
   linear recurrence: that of a saved gate, times its slope, is a part of d_z; those
   of an h and a c that entered a step are parts of d_h- and d_c-. `plain_backward`
   is G with these, in ordinary ops.

In a graph these are the registered gradients of the two ops. F's receives zeros for
`saved` where nobody asks for a second derivative. They can be told from gradients
while the graph is built, and then a first derivative is G alone. They cannot where
they are arguments of the function being built, which is so under a persistent tape,
or several, around a `tf.function`. Whether they are zero at run time must not matter:
their own derivative does not vanish with them. Eager values can be looked at, but
mean no more than that where nothing records them.

In eager mode F hides behind `tf.custom_gradient`, and so does its gradient, whose own
gradient runs F once more where a tape sees it. All of it being ordinary ops, there
are third derivatives too.
"""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

try:
    # Has no public name.
    from tensorflow.python.eager.record import could_possibly_record as may_record
except ImportError:

    def may_record() -> bool:
        """Whether any tape or accumulator is active; where that has moved, perhaps."""
        return True


def known_zero(saved_grads: Iterable[tf.Tensor]) -> bool:
    """Whether all of these gradients are zeros, and their own derivatives not asked."""
    return all(_known_zero(grad) for grad in saved_grads)


def _known_zero(grad: tf.Tensor) -> bool:
    if not tf.is_symbolic_tensor(grad):
        # An eager value tells, where nothing records what becomes of it.
        return not (may_record() or tf.reduce_any(grad != 0))
    if grad.op.type == "ZerosLike":
        return True
    # Where the shape is known: a constant if small, else a constant repeated.
    constant = grad.op.inputs[1] if grad.op.type == "Fill" else grad
    value = tf.get_static_value(constant) if constant.op.type == "Const" else None
    return value is not None and not value.any()
