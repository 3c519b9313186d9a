"""Memory: nothing left behind, nothing read before it was written."""

import gc
import itertools

import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
from helpers import DTYPES, check_op, run_op
from problems import CELLS, assert_same_bits, draw_problem

PAGE = 4096


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * PAGE


def growth(call, warm_up, calls):
    """Resident memory after `calls` more calls, less that after the warm-up."""
    for number in range(warm_up):
        call(number)
    gc.collect()
    before = resident_bytes()
    for number in range(calls):
        call(number)
    gc.collect()
    return resident_bytes() - before


def test_flat_over_raw_ops(long_run):
    """Forward and gradient, eager, a new shape each call."""
    problems = [
        draw_problem(cell, 1, batch, steps, units, mask=mask)
        for cell, (batch, steps, units), mask in itertools.product(
            CELLS,
            ((1, 7, 40), (33, 3, 17), (64, 5, 64), (7, 20, 5), (2, 2, 200), (0, 3, 4)),
            ("none", "random"),
        )
    ]

    def call(number):
        run_op(problems[number % len(problems)], DTYPES[number // 7 % 2])

    calls = 10_000 if long_run else 1_500
    assert growth(call, warm_up=300, calls=calls) < 16 * 2**20


def test_flat_over_training_calls(long_run):
    """The functional form with a gradient, traced once for all shapes."""
    units, features = 24, 6
    rng = np.random.default_rng(2)
    kernel = tf.Variable(rng.normal(size=(features, 4 * units)), dtype=tf.float32)
    recurrent = tf.Variable(0.1 * rng.normal(size=(units, 4 * units)), dtype=tf.float32)
    bias = tf.Variable(tf.zeros(4 * units))

    @tf.function(input_signature=[tf.TensorSpec((None, None, features))])
    def step(x):
        with tf.GradientTape() as tape:
            found = tf_ecornn.lstm(x, kernel, recurrent, bias, return_sequences=True)
            total = tf.reduce_sum(found.output) + tf.reduce_sum(found.c)
        return tape.gradient(total, [kernel, recurrent, bias])

    inputs = [
        tf.constant(rng.normal(size=(batch, steps, features)), tf.float32)
        for batch, steps in itertools.product((1, 5, 16, 40), (1, 4, 11, 25))
    ]

    def call(number):
        step(inputs[number % len(inputs)])

    calls = 10_000 if long_run else 1_500
    assert growth(call, warm_up=300, calls=calls) < 16 * 2**20


def fill_free_memory_with_nan(sizes):
    """Takes blocks of these sizes from the allocator, fills and returns them."""
    blocks = [tf.fill((max(size // 4, 1),), np.float32(np.nan)) for size in sizes]
    del blocks


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", ("none", "random", "all_off"))
def test_every_element_is_written(cell, dtype, mask):
    """Results do not depend on what memory held before."""
    for batch, steps, units in ((5, 4, 9), (33, 3, 64), (1, 6, 150), (70, 2, 20)):
        problem = draw_problem(cell, 3, batch, steps, units, mask=mask, reset=True)
        first = run_op(problem, dtype)
        sizes = [v.nbytes for v in first.values()]
        sizes += [4 * first["outputs"].nbytes, units * 4 * units * 8, 2**12, 2**16]
        for _ in range(3):
            fill_free_memory_with_nan(sizes * 4)
            check_op(problem, dtype)
            fill_free_memory_with_nan(sizes * 4)
            for name, value in run_op(problem, dtype).items():
                assert_same_bits(value, first[name], name)
