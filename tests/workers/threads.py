"""The ops on pools of a given size: bits of the results, then a crowd of ops.

`threads.py INTRA INTER FILE.npz` saves the results of a fixed list of problems,
then runs many ops at once, from Python threads, inside one graph, in a tf.data
pipeline with a private pool and in a constant-folded graph, and compares all of
them with the single runs.
"""

import itertools
import sys
import threading

import numpy as np
import tensorflow as tf

from helpers import DTYPES, FORWARD, forward_arguments, run_op
from problems import CELLS, assert_same_bits, draw_problem

# (rows, steps, units): rows to split, units to split, both, neither.
SIZES = (
    (64, 12, 32),
    (1, 12, 300),
    (2, 6, 520),
    (13, 9, 130),
    (97, 4, 64),
    (256, 3, 24),
    (5, 3, 7),
    (1, 1, 1),
)


def problems():
    for cell in CELLS:
        for size, mask in itertools.product(SIZES, ("none", "random")):
            yield draw_problem(cell, 1, *size, mask=mask, dropout=mask == "random")


def single_runs():
    """{name: array} of every problem and dtype."""
    found = {}
    for number, problem in enumerate(problems()):
        for dtype in DTYPES:
            for name, value in run_op(problem, dtype).items():
                found[f"{number}.{np.dtype(dtype).name}.{name}"] = value
    return found


def crowd_of_threads(count=8, rounds=3):
    """Python threads, each running every problem, all at the same time."""
    expected = [run_op(p, np.float32) for p in problems()]
    failures = []
    start = threading.Barrier(count)

    def work(offset):
        try:
            start.wait()
            listed = list(zip(problems(), expected, strict=True))
            for _ in range(rounds):
                for problem, wanted in listed[offset:] + listed[:offset]:
                    for name, value in run_op(problem, np.float32).items():
                        assert_same_bits(value, wanted[name], name)
        except BaseException as error:  # reported by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def crowd_in_a_graph(copies=12):
    """Independent ops of one graph, with gradients, on the inter-op pool."""
    chosen = list(problems())[::4]
    arguments = [forward_arguments(p, np.float32) for p in chosen]
    ops = [FORWARD[p.cell] for p in chosen]

    @tf.function
    def together(gates, nudge):
        results, gradients = [], []
        for op, given, value in zip(ops, arguments, gates, strict=True):
            for _ in range(copies):
                with tf.GradientTape() as tape:
                    moved = value + nudge
                    tape.watch(moved)
                    found = op(**{**given, "x": moved})
                    total = tf.reduce_sum(found.outputs[0])
                results.append(found.outputs[0])
                gradients.append(tape.gradient(total, moved))
        return results, gradients

    gates = [a["x"] for a in arguments]
    results, gradients = together(gates, tf.constant(0.0))
    for number, (op, given) in enumerate(zip(ops, arguments, strict=True)):
        alone = op(**given).outputs[0]
        for copy in range(copies):
            place = number * copies + copy
            assert_same_bits(results[place], alone, "outputs in a crowd")
            assert_same_bits(
                gradients[place], gradients[number * copies], "gradients in a crowd"
            )


def private_pool():
    """A tf.data pipeline brings its own threads."""
    problem = draw_problem("lstm", 2, 24, 6, 64)
    arguments = forward_arguments(problem, np.float32, save=False)
    expected = FORWARD["lstm"](**arguments).outputs[0]
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    data = tf.data.Dataset.range(30).map(
        lambda _: FORWARD["lstm"](**arguments).outputs[0], num_parallel_calls=4
    )
    for value in data.with_options(options):
        assert_same_bits(value, expected, "outputs in a pipeline")


def constant_folding():
    """A graph of constants is run by the optimizer, on its own threads."""
    problem = draw_problem("gru", 3, 16, 5, 40)
    expected = run_op(problem, np.float32, save=False)["outputs"]

    @tf.function
    def constants():
        arguments = forward_arguments(problem, np.float32, save=False)
        return FORWARD["gru"](**arguments).outputs[0]

    for _ in range(3):
        assert_same_bits(constants(), expected, "constant folding")


if __name__ == "__main__":
    intra, inter, path = sys.argv[1:]
    tf.config.threading.set_intra_op_parallelism_threads(int(intra))
    tf.config.threading.set_inter_op_parallelism_threads(int(inter))
    results = single_runs()
    np.savez(path, **results)
    crowd_of_threads()
    crowd_in_a_graph()
    private_pool()
    constant_folding()
    print("done")
