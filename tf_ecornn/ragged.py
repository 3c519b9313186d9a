"""Ragged batches: rows of different lengths, as the ops take them.

The ops take (B, T, ...), T the longest row, and a mask: they do no work at masked
steps. What is left are x W before the op, where it is not joined to it, and dx after
its gradient, which run on the rows' own steps alone, gathered by `ValidSteps`. So a
batch costs what its steps cost, and memory for B * T of them.

Packing several rows into one, with the ops' `reset` between them, would save that
memory too, but an op gives the states of a row's last step alone: a packed LSTM has
no c for the rows before it, and no row could start from a state of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class ValidSteps:
    """The steps of a padded batch that its mask leaves, in rows' order.

    Attributes:
        index: (N), the positions of these steps among all B * T, int64.
        mask: (B, T) boolean.
    """

    index: tf.Tensor
    mask: tf.Tensor

    @classmethod
    def of(cls, mask: tf.Tensor) -> ValidSteps:
        return cls(tf.where(tf.reshape(mask, [-1]))[:, 0], mask)

    def take(self, x: tf.Tensor) -> tf.Tensor:
        """(B, T, M) as (N, 1, M): a batch of N rows with one step."""
        shape = tf.shape(x, tf.int64)
        flat = tf.reshape(x, tf.stack([shape[0] * shape[1], shape[2]]))
        return tf.ensure_shape(tf.gather(flat, self.index), (None, x.shape[2]))[
            :, tf.newaxis
        ]

    def put(self, x: tf.Tensor) -> tf.Tensor:
        """(N, 1, M) as (B, T, M), zero at the other steps."""
        shape = tf.shape(self.mask, tf.int64)
        width = tf.shape(x, tf.int64)[2]
        flat = tf.scatter_nd(
            self.index[:, tf.newaxis],
            x[:, 0],
            tf.stack([shape[0] * shape[1], width]),
        )
        padded = tf.reshape(flat, tf.concat([shape, [width]], axis=0))
        return tf.ensure_shape(padded, [*self.mask.shape, x.shape[2]])


@dataclass(frozen=True)
class Rows:
    """A ragged batch's rows in a padded one.

    Attributes:
        batch: the ragged batch, (B, (steps), F).
        mask: (B, T) boolean, T the longest row's steps and at least 1.
    """

    batch: tf.RaggedTensor
    mask: tf.Tensor

    @classmethod
    def of(cls, batch: tf.RaggedTensor) -> Rows:
        """Checks a batch.

        Raises:
            ValueError: its shape is not (B, (steps), F).
        """
        if batch.ragged_rank != 1 or batch.values.shape.rank not in (None, 2):
            raise ValueError(
                "A ragged `x` must have shape (batch, (timesteps), features), ragged "
                "in the second axis alone, as tf.ragged.constant makes it with "
                f"ragged_rank=1. Received shape {batch.shape} with ragged rank "
                f"{batch.ragged_rank}"
            )
        lengths = tf.cast(batch.row_lengths(), tf.int64)
        # At least one step: Keras's layers look at the first.
        longest = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
        mask = tf.sequence_mask(lengths, longest)
        return cls(batch, tf.ensure_shape(mask, (batch.shape[0], None)))

    def pad(self, values: tf.Tensor) -> tf.Tensor:
        """The rows' steps, (N, M), as (B, T, M), zero past a row's end."""
        return self._steps(at_end=False).put(values[:, tf.newaxis])

    def pad_flags(self, name: str, flags: tf.RaggedTensor) -> tf.Tensor:
        """A ragged boolean argument (B, (steps)) as (B, T)."""
        if not isinstance(flags, tf.RaggedTensor) or flags.shape.rank != 2:
            raise ValueError(
                f"With a ragged `x`, `{name}` must be a tf.RaggedTensor (batch, "
                f"(timesteps)) with rows of the same lengths. Received: {name}={flags}"
            )
        same = tf.debugging.assert_equal(
            tf.cast(flags.row_splits, tf.int64),
            tf.cast(self.batch.row_splits, tf.int64),
            f"The rows of `{name}` must have the lengths of those of `x`",
        )
        with tf.control_dependencies([] if same is None else [same]):
            values = tf.cast(flags.values, tf.bool)
        return self.pad(values[:, tf.newaxis])[..., 0]

    def unpad(self, sequence: tf.Tensor, reverse: bool) -> tf.RaggedTensor:
        """(B, T, M) as a ragged batch with the rows of this one.

        `reverse`: the sequence is in processing order from the last step on, so it is
        at its end that it has a row's steps.
        """
        return self.batch.with_values(self._steps(at_end=reverse).take(sequence)[:, 0])

    def _steps(self, at_end: bool) -> ValidSteps:
        """Where the rows' steps are if a row stands at the beginning, or the end."""
        lengths = tf.cast(self.batch.row_lengths(), tf.int64)
        row = tf.cast(self.batch.value_rowids(), tf.int64)
        longest = tf.shape(self.mask, tf.int64)[1]
        # Of a row's first step, less the number of steps of all rows before.
        start = tf.range(tf.size(lengths, tf.int64)) * longest - tf.cumsum(
            lengths, exclusive=True
        )
        if at_end:
            start += longest - lengths
        steps = tf.range(tf.shape(self.batch.values, tf.int64)[0])
        return ValidSteps(tf.gather(start, row) + steps, self.mask)
