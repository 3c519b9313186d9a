"""TensorFlow's own LSTM op, BlockLSTMV2, as a Keras layer.

The op takes x time-major and one matrix of kernel and recurrent kernel, its gates in
Keras's order; it knows no mask, no dropout, and no type but float32 and half. The
gradient registered for it in TensorFlow 2.21 calls the op of the first version, whose
gates are in another order, hence the gradient here.
"""

from __future__ import annotations

import keras
import tensorflow as tf


@tf.custom_gradient
def block_lstm(x, h, c, weights, bias):
    """Hidden and cell states (T, B, U) of x (T, B, F) from states (B, U)."""
    peephole = tf.zeros_like(bias[: bias.shape[0] // 4])
    inputs = {
        "seq_len_max": tf.shape(x, out_type=tf.int64)[0],
        **{"x": x, "cs_prev": c, "h_prev": h, "w": weights, "b": bias},
        **{"wci": peephole, "wcf": peephole, "wco": peephole},
    }
    i, cs, f, o, ci, co, hs = tf.raw_ops.BlockLSTMV2(**inputs)

    def gradient(hs_grad, cs_grad):
        grads = tf.raw_ops.BlockLSTMGradV2(
            **inputs,
            **{"i": i, "cs": cs, "f": f, "o": o, "ci": ci, "co": co, "h": hs},
            **{"cs_grad": cs_grad, "h_grad": hs_grad, "use_peephole": False},
        )
        return (
            grads.x_grad,
            grads.h_prev_grad,
            grads.cs_prev_grad,
            grads.w_grad,
            grads.b_grad,
        )

    return (hs, cs), gradient


@keras.saving.register_keras_serializable("benchmarks")  # Bidirectional copies it
class LSTM(keras.layers.LSTM):
    """`keras.layers.LSTM` with its weights, computed by `block_lstm`."""

    def call(self, sequences, initial_state=None, mask=None, training=False):
        if mask is not None:
            raise ValueError("BlockLSTMV2 takes no mask")
        x = tf.transpose(sequences, (1, 0, 2))
        if self.go_backwards:
            x = tf.reverse(x, [0])
        if initial_state is None:
            zeros = tf.zeros((tf.shape(x)[1], self.units), x.dtype)
            initial_state = (zeros, zeros)
        h, c = (tf.cast(state, x.dtype) for state in initial_state)
        cell = self.cell
        weights = tf.concat([cell.kernel, cell.recurrent_kernel], axis=0)
        hs, cs = block_lstm(x, h, c, weights, tf.convert_to_tensor(cell.bias))
        output = tf.transpose(hs, (1, 0, 2)) if self.return_sequences else hs[-1]
        return (output, hs[-1], cs[-1]) if self.return_state else output
