"""Fused LSTM and GRU layers for TensorFlow and Keras."""

from tf_ecornn import _library as _library
from tf_ecornn import vectorized as vectorized
from tf_ecornn.arguments import ACTIVATIONS
from tf_ecornn.cells import GRUCell, LSTMCell
from tf_ecornn.explanation import explain
from tf_ecornn.layers import GRU, LSTM
from tf_ecornn.ops import GRUOutput, LSTMOutput, gru, lstm
from tf_ecornn.rnn import RNN

__version__ = "0.1.0"

__all__ = [
    "ACTIVATIONS",
    "GRU",
    "GRUCell",
    "GRUOutput",
    "LSTM",
    "LSTMCell",
    "LSTMOutput",
    "RNN",
    "__version__",
    "explain",
    "gru",
    "lstm",
]
