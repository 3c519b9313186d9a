"""Tells two kinds of generated token sequences of different lengths apart."""

import numpy as np
import tensorflow as tf
from tensorflow.keras.layers import GRU, LSTM, Bidirectional, Dense, Dropout, Embedding

VOCABULARY = 60
LONGEST = 24
SAMPLES = 400


def generate():
    """Tokens 2 and above, zeros behind them; a class prefers one half of them."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, SAMPLES)
    texts = []
    for label in labels:
        size = rng.integers(3, LONGEST + 1)
        own = rng.random(size) < 0.65
        half = np.where(own, label, 1 - label) * (VOCABULARY - 2) // 2
        texts.append(2 + half + rng.integers(0, (VOCABULARY - 2) // 2, size))
    return tf.keras.utils.pad_sequences(texts, LONGEST, padding="post"), labels


tf.keras.utils.set_random_seed(11)
tokens, labels = generate()
model = tf.keras.Sequential(
    [
        tf.keras.Input((LONGEST,), dtype="int32"),
        Embedding(VOCABULARY, 16, mask_zero=True),
        Bidirectional(LSTM(24, return_sequences=True, recurrent_dropout=0.1)),
        Bidirectional(GRU(16), merge_mode="sum"),
        Dropout(0.2),
        Dense(1, activation="sigmoid"),
    ]
)
model.compile("rmsprop", "binary_crossentropy", metrics=["accuracy"])
model.fit(tokens[:320], labels[:320], batch_size=40, epochs=3, verbose=2)
loss, _ = model.evaluate(tokens[320:], labels[320:], verbose=0)
print("final loss", repr(loss))
