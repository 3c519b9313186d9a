"""The time-parallel matrix products around the recurrence, as TensorFlow products.

Sequences are reshaped to two dimensions first: the batched form of a product would
make a weight gradient for every batch row.
"""

from __future__ import annotations

import tensorflow as tf


def project(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """x W for all steps at once: (B, T, F) and (F, N) give (B, T, N)."""
    return _unflat(tf.matmul(_flat(x), kernel), x, kernel.shape[1])


def project_back(grad: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """d Wᵀ, the gradient of x in `project`: (B, T, N) and (F, N) give (B, T, F)."""
    product = tf.matmul(_flat(grad), kernel, transpose_b=True)
    return _unflat(product, grad, kernel.shape[0])


def summed_product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """aᵀ b summed over rows and steps: (B, T, M) and (B, T, N) give (M, N).

    float16 is summed in float32. TensorFlow's own float16 product of this form is
    slower by two thirds on processors without float16 arithmetic.
    """
    if a.dtype != tf.float16:
        return tf.matmul(_flat(a), _flat(b), transpose_a=True)
    wide = [tf.cast(_flat(x), tf.float32) for x in (a, b)]
    return tf.cast(tf.matmul(*wide, transpose_a=True), tf.float16)


def summed_product_by_gate(
    h: tf.Tensor, grad_gates: tf.Tensor, dropout: list[tf.Tensor]
) -> tf.Tensor:
    """The recurrent kernel's gradient: (B, T, U) and (B, T, GU) give (U, GU).

    `dropout` is empty, or one tensor (B, G, U): then gate g's operand was
    h * dropout[:, g].
    """
    if not dropout:
        return summed_product(h, grad_gates)
    keep = tf.unstack(dropout[0], axis=1)
    parts = tf.split(grad_gates, len(keep), axis=-1)
    return tf.concat(
        [
            summed_product(h * k[:, tf.newaxis, :], part)
            for k, part in zip(keep, parts, strict=True)
        ],
        axis=-1,
    )


def _flat(x: tf.Tensor) -> tf.Tensor:
    """(B, T, N) as (B T, N). Sizes are named: -1 fails where another size is 0."""
    batch, steps, width = x.shape
    if batch is None or steps is None or width is None:
        shape = tf.shape(x)
        return tf.reshape(x, tf.stack([shape[0] * shape[1], width or shape[2]]))
    return tf.reshape(x, (batch * steps, width))


def _unflat(flat: tf.Tensor, like: tf.Tensor, width: int | None) -> tf.Tensor:
    """(B T, N) as (B, T, N), with B and T of `like`."""
    batch, steps = like.shape[:2]
    if batch is None or steps is None or width is None:
        shape = tf.concat([tf.shape(like)[:2], tf.shape(flat)[1:]], axis=0)
        x = tf.reshape(flat, shape)
        return tf.ensure_shape(x, (batch, steps, width))
    return tf.reshape(flat, (batch, steps, width))
