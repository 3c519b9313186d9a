"""Fused LSTM and GRU layers for TensorFlow and Keras."""

import sys as _sys

__version__ = "0.1.0"

# `python -m tf_ecornn` comes by here first. The program that it runs then has the
# first import of TensorFlow and Keras, after setting up its environment for them.
if _sys.argv[:1] != ["-m"] or not _sys.orig_argv[-len(_sys.argv)].endswith("tf_ecornn"):
    from tf_ecornn import _library as _library
    from tf_ecornn import vectorized as vectorized
    from tf_ecornn.arguments import ACTIVATIONS
    from tf_ecornn.cells import GRUCell, LSTMCell
    from tf_ecornn.convert import from_keras, to_keras
    from tf_ecornn.explanation import explain
    from tf_ecornn.layers import GRU, LSTM
    from tf_ecornn.ops import GRUOutput, LSTMOutput, gru, lstm
    from tf_ecornn.rnn import RNN

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
    "from_keras",
    "gru",
    "lstm",
    "to_keras",
]
