"""Learns to add numbers that are written out: "27+58" in, "85" out.

An encoder LSTM reads the characters of the question, a decoder LSTM writes those of
the answer; in training it sees the right character before the one it is to write.
"""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
from keras import layers

DIGITS = 2
SAMPLES = 512
QUESTION, ANSWER = 2 * DIGITS + 1, DIGITS + 1
# The first one fills up, the last one starts an answer.
CHARACTERS = " 0123456789+="


def encode(texts, length):
    """One-hot characters, (texts, length, characters)."""
    codes = [[CHARACTERS.index(c) for c in text.ljust(length)] for text in texts]
    return np.eye(len(CHARACTERS), dtype="float32")[codes]


def generate():
    """Questions, answers, and the answers one step later, all one-hot."""
    pairs = np.random.default_rng(1).integers(0, 10**DIGITS, (SAMPLES, 2))
    # Reversed, so that the units come first on both sides.
    questions = [f"{a}+{b}"[::-1] for a, b in pairs]
    answers = [str(a + b)[::-1] for a, b in pairs]
    shifted = ["=" + answer[: ANSWER - 1] for answer in answers]
    return (
        encode(questions, QUESTION),
        encode(shifted, ANSWER),
        encode(answers, ANSWER),
    )


def build(units=64):
    question = keras.Input((QUESTION, len(CHARACTERS)), name="question")
    _, h, c = layers.LSTM(units, return_state=True, name="encoder")(question)
    written = keras.Input((ANSWER, len(CHARACTERS)), name="written")
    decoder = layers.LSTM(units, return_sequences=True, name="decoder")
    hidden = decoder(written, initial_state=[h, c])
    answer = layers.TimeDistributed(
        layers.Dense(len(CHARACTERS), activation="softmax")
    )(hidden)
    return keras.Model([question, written], answer)


keras.utils.set_random_seed(7)
questions, shifted, answers = generate()
model = build()
model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
history = model.fit(
    [questions, shifted], answers, batch_size=32, epochs=3, verbose=2
).history
print("final loss", repr(history["loss"][-1]))
