"""Keras cells whose step is one fused op."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_ecornn import recurrence
from tf_ecornn.fused_cell import FusedCell


@keras.saving.register_keras_serializable(package="tf_ecornn")
class LSTMCell(FusedCell, keras.layers.LSTMCell):
    """Takes the place of `keras.layers.LSTMCell`: same arguments, weights, results.

    A step, forward and backward, is one fused op: for decoders, attention, and
    whatever is written around a cell. `call(inputs, states, training=False)` takes
    inputs (B, F) and the states [h, c], each (B, U), and returns h and the new
    [h, c], in the compute dtype: float32, float64, float16 or bfloat16. Dropout
    masks are held until `reset_dropout_mask()` and `reset_recurrent_dropout_mask()`,
    as in Keras. In `tf_ecornn.RNN` the cell runs a whole sequence as one op.

    An activation that is none of `tf_ecornn.ACTIVATIONS`, or a GPU for which this
    build has no kernels, runs Keras's own step, and a warning names the reason once.
    `cell.fused` and `tf_ecornn.explain(model)` tell.

    Raises:
        ValueError: `units` is no positive integer, or the shapes of the inputs and
            the states do not fit.

    Example:

    >>> cell = tf_ecornn.LSTMCell(8)
    >>> states = cell.get_initial_state(batch_size=2)
    >>> for step in range(3):
    ...     h, states = cell(tf.random.normal((2, 4)), states)
    >>> h.shape
    TensorShape([2, 8])
    """

    _stock = keras.layers.LSTMCell
    _op = recurrence.LSTM

    @staticmethod
    def _op_biases(cell):
        return {"bias": [] if cell.bias is None else [cell.bias]}


@keras.saving.register_keras_serializable(package="tf_ecornn")
class GRUCell(FusedCell, keras.layers.GRUCell):
    """Takes the place of `keras.layers.GRUCell`: same arguments, weights, results.

    A step, forward and backward, is one fused op, in both forms of `reset_after`.
    `call(inputs, states, training=False)` takes inputs (B, F) and the state h,
    (B, U), alone or in a list, and returns h and the new state in the same form.
    What else holds for `tf_ecornn.LSTMCell` holds here.

    Raises:
        ValueError: `units` is no positive integer, or the shapes of the inputs and
            the state do not fit.

    Example:

    >>> cell = tf_ecornn.GRUCell(8, reset_after=False)
    >>> h, states = cell(tf.random.normal((2, 4)), cell.get_initial_state(2))
    >>> h.shape
    TensorShape([2, 8])
    """

    _stock = keras.layers.GRUCell
    _op = recurrence.GRU

    @staticmethod
    def _op_biases(cell):
        if cell.bias is None:
            return {"bias": [], "recurrent_bias": []}
        if not cell.reset_after:
            return {"bias": [cell.bias], "recurrent_bias": []}
        bias, recurrent_bias = tf.unstack(cell.bias)
        return {"bias": [bias], "recurrent_bias": [recurrent_bias]}

    @staticmethod
    def _op_attributes(cell):
        return {"reset_after": cell.reset_after}
