"""Japanese vowels: utterances of different lengths, to tell nine speakers apart.

Source: M. Kudo, J. Toyama, M. Shimbo, Multidimensional curve classification using
passing-through regions, Pattern Recognition Letters 20 (1999). The data ship inside
the sktime package, so nothing is downloaded.
"""

from __future__ import annotations

import keras
import numpy as np

from classification.data import DataSet

CLASSES = 9
# Of the steps that fill a case up; no real step has this in every feature.
PADDING = 0.0


def load(padding: str) -> DataSet:
    """Loads the data set in its own split, 270 and 370 cases of 7 to 29 steps.

    Each of the 12 features is brought to mean 0 and deviation 1 over all training
    steps. Labels are int32 (cases,), 0 to 8.

    Args:
        padding: "post" or "pre", the end at which all cases are filled up to the
            length of the longest with PADDING.

    Raises:
        ModuleNotFoundError: sktime is needed and missing.
    """
    from sktime import datasets

    cases, labels = {}, {}
    for part in ("TRAIN", "TEST"):
        table, names = datasets.load_japanese_vowels(
            split=part, return_type="nested_univ"
        )
        # A row is a case, a cell the series of one feature; here (steps, features).
        cases[part] = [np.stack(row, axis=1) for row in table.to_numpy()]
        labels[part] = names.astype("int32") - 1

    steps = np.concatenate(cases["TRAIN"])
    mean, deviation = steps.mean(axis=0), steps.std(axis=0)
    lengths = [len(case) for part in cases.values() for case in part]
    inputs = {
        part: keras.utils.pad_sequences(
            [(case - mean) / deviation for case in of_part],
            maxlen=max(lengths),
            dtype="float32",
            padding=padding,
            value=PADDING,
        )
        for part, of_part in cases.items()
    }
    return DataSet(
        "japanese_vowels",
        inputs["TRAIN"],
        labels["TRAIN"],
        inputs["TEST"],
        labels["TEST"],
        lengths=(min(lengths), max(lengths)),
    )
