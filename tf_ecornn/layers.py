"""Keras layers on the fused ops.

Weights, saving, dropout masks, state variables, configuration and the wrappers'
protocols come from the stock layers; only `inner_loop` is replaced. What the op
cannot do runs the stock loop, and says so once.
"""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import tensorflow as tf

from tf_ecornn import fused_cell, gpu
from tf_ecornn.fused_cell import checked_units, say_once
from tf_ecornn.ops import clear_masked
from tf_ecornn.ragged import Rows


def _masked_steps(mask: Any, sequences: tf.Tensor) -> tf.Tensor | None:
    """A (B, T) boolean mask from what Keras hands over: also a list, or (B, T, 1)."""
    if isinstance(mask, (list, tuple)):
        mask = mask[0]
    if mask is None:
        return None
    if isinstance(mask, tf.RaggedTensor):
        raise ValueError(f"`mask` must be dense as the inputs are. Received {mask}")
    mask = tf.convert_to_tensor(mask)
    steps = tf.squeeze(mask, axis=2) if mask.shape[2:] == (1,) else mask
    if not steps.shape.is_compatible_with(sequences.shape[:2]):
        raise ValueError(
            "`mask` must have shape (batch, timesteps), here "
            f"{tuple(sequences.shape[:2])}. Received shape {tuple(mask.shape)}"
        )
    return tf.cast(steps, tf.bool)


class FusedRNN:
    """What the fused layers share: the sequence's run, and when it is not fused."""

    # Whether the layer's cell is a plain stack of cells.
    _stacked = False

    @property
    def fused(self) -> bool:
        """Whether this layer runs on the fused op."""
        return self.unfused_reason() is None

    def unfused_reason(self) -> str | None:
        """Why this layer runs the stock loop, None if it runs fused."""
        for cell in self._cells:
            reason = fused_cell.unfused_reason(cell)
            if reason is not None:
                return reason
        return None

    @property
    def _cells(self) -> list[keras.layers.Layer]:
        """The cells that a step calls one after the other."""
        return self.cell.cells if self._stacked else [self.cell]

    def build(self, sequences_shape, initial_state_shape=None):
        with contextlib.ExitStack() as stack:
            for cell in self._cells:
                stack.enter_context(fused_cell.recurrent_initializer_in_float32(cell))
            super().build(sequences_shape, initial_state_shape)

    def call(self, sequences, initial_state=None, mask=None, training=False):
        if not isinstance(sequences, tf.RaggedTensor):
            return super().call(sequences, initial_state, mask, training)
        if mask is not None:
            raise ValueError(
                "`mask` must be None with ragged inputs, which hold nothing but valid "
                f"steps. Received: mask={mask}"
            )
        rows = Rows.of(sequences)
        # `inner_loop` gets the rows in the mask's place.
        found = super().call(rows.pad(sequences.values), initial_state, rows, training)
        if not self.return_sequences:
            return found
        if not self.return_state:
            return rows.unpad(found, self.go_backwards)
        return rows.unpad(found[0], self.go_backwards), *found[1:]

    def inner_loop(self, sequences, initial_state, mask, training=False):
        rows = mask if isinstance(mask, Rows) else None
        mask = mask if rows is None else rows.mask
        reason = self.unfused_reason()
        fused_cell.notify(self, reason)
        if reason is not None:
            say_once(self, f"runs Keras's own loop: {reason}")
            return super().inner_loop(sequences, initial_state, mask, training)
        if not self._stacked:
            initial_state = [initial_state]
        steps = _masked_steps(mask, sequences)
        output = clear_masked(sequences, steps)
        reverse = self.go_backwards
        final = []
        for cell, state in zip(self._cells, initial_state, strict=True):
            nested = isinstance(state, (list, tuple))
            last = len(final) == len(initial_state) - 1
            output, new = fused_cell.run(
                cell,
                output,
                list(state) if nested else [state],
                mask=steps,
                training=training,
                return_sequences=self.return_sequences or not last,
                reverse=reverse,
                # The next cell skips these steps too: any finite values do.
                zero_output_for_mask=self.zero_output_for_mask or not last,
                save_for_backward=bool(training),
                gather_valid=rows is not None,
            )
            final.append(new if nested else new[0])
            if reverse:
                # The output is in processing order.
                reverse = False
                steps = None if steps is None else tf.reverse(steps, [1])
        states = final if self._stacked else new
        if self.return_sequences:
            # Keras takes the sequence and leaves the last output alone.
            return new[0], output, states
        return output, output[:, tf.newaxis, :], states


class _WithOwnCell(FusedRNN):
    """A fused layer that is made from its cell's arguments."""

    def __init__(self, units, *args, **kwargs):
        super().__init__(checked_units(units), *args, **kwargs)
        if self.fused:
            self.supports_jit = fused_cell.ops_support_jit()

    def unfused_reason(self) -> str | None:
        if self.use_cudnn is True and gpu.visible():
            return "use_cudnn=True asks for cuDNN"
        return super().unfused_reason()

    def get_config(self):
        # The stock layers leave these two out.
        return {
            **super().get_config(),
            "use_cudnn": self.use_cudnn,
            "implementation": self.cell.implementation,
        }


@keras.saving.register_keras_serializable(package="tf_ecornn")
class LSTM(_WithOwnCell, keras.layers.LSTM):
    """Takes the place of `keras.layers.LSTM`: same arguments, weights and results.

    The whole sequence, forward and backward, is one fused op (`tf_ecornn.lstm`).
    Inputs (B, T, F) in any dtype policy of float32, float64, float16, bfloat16,
    mixed_float16 and mixed_bfloat16; outputs (B, U), or (B, T, U) with
    `return_sequences`, in the compute dtype, followed by h and c, each (B, U), with
    `return_state`. Every argument and call argument of `keras.layers.LSTM` is
    taken; see its documentation. These differ:

    - `implementation` and `unroll` are accepted; on the fused path they change no
      result but which dropout masks are drawn, as in Keras.
    - Where TensorFlow sees a GPU, `use_cudnn=True` runs Keras's own path, cuDNN;
      "auto", the default, and False run fused. Without a GPU it changes nothing.
      The environment variable TF_ECORNN_GPU=stock leaves every layer to Keras there.
    - A mask may have any pattern, on every device. What the inputs hold at masked
      steps, NaN included, reaches no result and no gradient.
    - Inputs may be a tf.RaggedTensor (B, (T), F); sequences then come out ragged.

    What the op does not do runs Keras's own loop, and a warning names the reason
    once: an activation that is none of `tf_ecornn.ACTIVATIONS`, or a GPU for which
    this build has no kernels. `layer.fused` and `tf_ecornn.explain(model)` tell.

    Raises:
        ValueError: `units` is no positive integer, an input's, a mask's or a state's
            shape does not fit, or TF_ECORNN_GPU is neither "fused" nor "stock".

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((100, 8)),
    ...     tf_ecornn.LSTM(64),
    ...     keras.layers.Dense(1, activation="sigmoid"),
    ... ])
    """


@keras.saving.register_keras_serializable(package="tf_ecornn")
class GRU(_WithOwnCell, keras.layers.GRU):
    """Takes the place of `keras.layers.GRU`: same arguments, weights and results.

    The whole sequence, forward and backward, is one fused op (`tf_ecornn.gru`), in
    both forms of `reset_after`. Inputs (B, T, F) in any dtype policy of float32,
    float64, float16, bfloat16, mixed_float16 and mixed_bfloat16; outputs (B, U), or
    (B, T, U) with `return_sequences`, in the compute dtype, followed by h, (B, U),
    with `return_state`. Every argument and call argument of `keras.layers.GRU` is
    taken; see its documentation. What differs is what differs for `tf_ecornn.LSTM`.

    Raises:
        ValueError: `units` is no positive integer, or an input's, a mask's or a
            state's shape does not fit.

    Example:

    >>> model = keras.Sequential([
    ...     keras.Input((None, 8)),
    ...     keras.layers.Masking(),
    ...     tf_ecornn.GRU(64, recurrent_dropout=0.2),
    ...     keras.layers.Dense(3, activation="softmax"),
    ... ])
    """
