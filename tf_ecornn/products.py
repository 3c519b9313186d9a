"""The time-parallel matrix products around the recurrence.

Sequences are reshaped to two dimensions first: the batched form of a product would
make a weight gradient for every batch row. Those that sum over rows and steps have an
op of their own on CPUs, which leaves masked steps out and reads both weights'
gradients' other factor once; the others, and large ones, are TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_ecornn import _library, gpu

# So many sums stay in a core's second-level cache. Where nothing is left out, a whole
# training step gained 9 % at U=64 and 128 by the op, nothing at U=256 and 512, and lost
# 7 % at U=1000.
_MOST_SUMS = 128 * 1024

# On processors without bfloat16 arithmetic TensorFlow's bfloat16 products take three
# times as long as float32's: (2048, 256) times (256, 1024) 17.8 ms, through float32
# 6.5 ms. Thin ones take less than the casts.
_LEAST_WIDE_SIZE = 32


def project(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """x W for all steps at once: (B, T, F) and (F, N) give (B, T, N)."""
    return _unflat(_product(_flat(x), kernel), x, kernel.shape[1])


def project_back(grad: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """d Wᵀ, the gradient of x in `project`: (B, T, N) and (F, N) give (B, T, F)."""
    product = _product(_flat(grad), kernel, transpose_b=True)
    return _unflat(product, grad, kernel.shape[0])


def summed_product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """aᵀ b summed over rows and steps: (B, T, M) and (B, T, N) give (M, N).

    float16 is summed in float32. TensorFlow's own float16 product of this form is
    slower by two thirds on processors without float16 arithmetic.
    """
    product = _wide_product if a.dtype == tf.float16 else _product
    return product(_flat(a), _flat(b), transpose_a=True)


def summed_products(
    lefts: Sequence[tf.Tensor],
    right: tf.Tensor,
    *,
    parts: int = 1,
    first_part: int = 0,
    part_count: int = 1,
    mask: Sequence[tf.Tensor] = (),
    factors: Sequence[tf.Tensor] = (),
) -> list[tf.Tensor]:
    """leftᵀ right summed over rows and valid steps, for each of one or two lefts.

    Args:
        lefts: each (B, T, M) with an M of its own.
        right: (B, T, N), whose columns fall into `parts` parts of equal width.
        parts, first_part, part_count: the parts that are taken, N' columns in all.
        mask: none, or one tensor (B, T), false at steps to leave out. `right` is zero
            there.
        factors: none, or one tensor (B, part_count, M) by which the first of `lefts`
            is multiplied for each of the parts that are taken.

    Returns:
        For each of `lefts` (M, N').
    """
    if gpu.visible() or not (mask or factors or _is_small(lefts, right)):
        right = _columns(right, parts, first_part, part_count)
        first = summed_product_by_gate(lefts[0], right, factors)
        return [first, *(summed_product(left, right) for left in lefts[1:])]
    return _library.ops.eco_rnn_summed_products(
        lefts=lefts,
        right=right,
        mask=mask,
        factors=factors,
        parts=parts,
        first_part=first_part,
        part_count=part_count,
    )


def valid_alone(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """A sequence (..., M), zero where the mask (...) is false, whatever is there."""
    return tf.where(mask[..., tf.newaxis], x, tf.zeros((), x.dtype))


def _is_small(lefts: Sequence[tf.Tensor], right: tf.Tensor) -> bool:
    """Whether the op is faster than TensorFlow's products."""
    widths = [x.shape[2] for x in (*lefts, right)]
    if None in widths:
        return False
    return sum(widths[:-1]) * widths[-1] <= _MOST_SUMS


def _columns(x: tf.Tensor, parts: int, first_part: int, part_count: int) -> tf.Tensor:
    """The last axis's parts first_part ... of `parts` equal ones."""
    if part_count == parts:
        return x
    width = (tf.shape(x)[2] if x.shape[2] is None else x.shape[2]) // parts
    return x[..., first_part * width : (first_part + part_count) * width]


def summed_product_by_gate(
    h: tf.Tensor, grad_gates: tf.Tensor, dropout: Sequence[tf.Tensor]
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


def _product(a: tf.Tensor, b: tf.Tensor, **transposed: bool) -> tf.Tensor:
    if (
        a.dtype == tf.bfloat16
        and not _library.multiplies_bfloat16()
        and not gpu.visible()
        and min(n for n in (*a.shape, *b.shape) if n is not None) >= _LEAST_WIDE_SIZE
    ):
        return _wide_product(a, b, **transposed)
    return tf.matmul(a, b, **transposed)


def _wide_product(a: tf.Tensor, b: tf.Tensor, **transposed: bool) -> tf.Tensor:
    """In float32, rounded once."""
    wide = tf.matmul(tf.cast(a, tf.float32), tf.cast(b, tf.float32), **transposed)
    return tf.cast(wide, a.dtype)


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


@_library.register_gradient("EcoRNN>SummedProducts")
def _summed_products_gradient(op: tf.Operation, *grads: tf.Tensor):
    """That of products D_l = left_lᵀ right: Σ_l left_l D_l and right D_lᵀ."""
    count = op.get_attr("num_lefts")
    lefts, (right, *rest) = op.inputs[:count], op.inputs[count:]
    masks = rest[: op.get_attr("num_masks")]
    factors = rest[len(masks) :]
    names = ("parts", "first_part", "part_count")
    parts, first_part, part_count = map(op.get_attr, names)
    columns = _columns(right, parts, first_part, part_count)

    if factors:
        # The first left-hand side, once for each part.
        by_part = zip(
            tf.unstack(factors[0][:, :, tf.newaxis], part_count, axis=1),
            tf.split(columns, part_count, axis=-1),
            tf.split(grads[0], part_count, axis=-1),
            strict=True,
        )
        terms = [
            (project(lefts[0] * keep, grad), project_back(part, grad) * keep)
            for keep, part, grad in by_part
        ]
        of_columns = tf.concat([to_right for to_right, _ in terms], axis=-1)
        of_lefts = [tf.add_n([to_left for _, to_left in terms])]
    else:
        of_columns = project(lefts[0], grads[0])
        of_lefts = [project_back(columns, grads[0])]
    for left, grad in zip(lefts[1:], grads[1:], strict=True):
        of_columns += project(left, grad)
        of_lefts.append(project_back(columns, grad))
    if masks:
        of_columns = valid_alone(of_columns, masks[0])
        of_lefts = [valid_alone(x, masks[0]) for x in of_lefts]
    width = tf.shape(columns)[2] // part_count
    around = [first_part * width, (parts - first_part - part_count) * width]
    of_right = tf.pad(of_columns, [[0, 0], [0, 0], around])
    of_right = tf.ensure_shape(of_right, right.shape)
    return [*of_lefts, of_right, *[None] * len(rest)]
