"""Checks the summed products on a number of threads and saves the largest ones."""

import itertools
import sys

import numpy as np
import tensorflow as tf

threads, path = sys.argv[1:]
tf.config.threading.set_intra_op_parallelism_threads(int(threads))

import test_summed_products as tests  # noqa: E402

saved = {}
for dtype, mask, factors in itertools.product(tests.TYPES, *[[False, True]] * 2):
    for sizes in (*tests.SIZES, (64, 40, [66, 40], 300)):
        parts = (3, 0, 3) if sizes[3] % 3 == 0 else (1, 0, 1)
        arguments = tests.case(sizes, dtype, *parts, mask=mask, factors=factors)
        results = tests.run(arguments, dtype)
        tests.check(arguments, dtype, results)
        name = f"{dtype.name}{sizes}{mask}{factors}"
        wide = [tf.cast(result, tf.float64).numpy().ravel() for result in results]
        saved[name] = np.concatenate(wide)
if path:
    np.savez(path, **saved)
