"""Keras's RNN layer around cells, with whole sequences on the fused ops."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_ecornn import fused_cell
from tf_ecornn.layers import FusedRNN


@keras.saving.register_keras_serializable(package="tf_ecornn")
class RNN(FusedRNN, keras.layers.RNN):
    """Takes the place of `keras.layers.RNN`: same arguments, weights and results.

    Takes a cell, a list of cells or a `keras.layers.StackedRNNCells`. Where they are
    `tf_ecornn` or Keras LSTM and GRU cells, a whole sequence is one fused op for each
    cell, one cell after the other, each in its own dtype policy. Inputs (B, T, F);
    outputs (B, U), or (B, T, U) with `return_sequences`, followed by the states,
    nested as the cells' `state_size`, with `return_state`. A mask (B, T) may have
    any pattern, and what the inputs hold where it is False reaches no result and no
    gradient. `go_backwards`, `stateful`, `unroll`, `zero_output_for_mask` and
    `initial_state` are Keras's.

    Other cells run Keras's own loop, all of a stack if one does, and a warning names
    the reason once: another class, an own `call`, an activation that is none of
    `tf_ecornn.ACTIVATIONS`. `layer.fused` and `tf_ecornn.explain(model)` tell.

    Raises:
        ValueError: `cell` is none, or the shape of an input, a mask or a state does
            not fit.

    Example:

    >>> layer = tf_ecornn.RNN(
    ...     [tf_ecornn.LSTMCell(32), tf_ecornn.GRUCell(16)], return_sequences=True
    ... )
    >>> layer(tf.random.normal((4, 10, 8))).shape
    TensorShape([4, 10, 16])
    """

    def __init__(self, cell, *args, **kwargs):
        super().__init__(cell, *args, **kwargs)
        if self.fused:
            self.supports_jit = fused_cell.ops_support_jit()

    @property
    def _stacked(self) -> bool:
        # A stack of the user's own may do more than one cell after the other.
        stock = keras.layers.StackedRNNCells
        return isinstance(self.cell, stock) and type(self.cell).call is stock.call

    def reset_state(self):
        """Sets the states of a stateful layer to zero."""
        for variable in keras.tree.flatten(self.states or []):
            variable.assign(tf.zeros_like(variable))

    def _maybe_config_dropout_masks(self, cell, input_sequence, input_state):
        if not (self._stacked and cell is self.cell and self.fused):
            super()._maybe_config_dropout_masks(cell, input_sequence, input_state)
            return
        # Keras runs a step of each cell to learn the shape of what the next one
        # gets; the state tells it.
        first, *others = zip(cell.cells, input_state, strict=True)
        super()._maybe_config_dropout_masks(first[0], input_sequence, first[1])
        below = _hidden(first[1])
        for inner, state in others:
            inner.get_dropout_mask(tf.cast(below, inner.compute_dtype))
            below = _hidden(state)
            inner.get_recurrent_dropout_mask(below)


def _hidden(state):
    return state[0] if isinstance(state, (list, tuple)) else state
