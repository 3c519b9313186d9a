"""EcoRNN>SummedProducts against NumPy in float64."""

import itertools
import os

import numpy as np
import pytest
import tensorflow as tf

from helpers import needs_xla
from problems import assert_same_bits
from tf_ecornn import _library

TYPES = {
    tf.float64: 1e-13,
    tf.float32: 2e-6,
    # What is summed is exact in float32, so but for the products themselves (bfloat16
    # factors are rounded with what they multiply) the result's rounding is left.
    tf.float16: 1e-3,
    tf.bfloat16: 1e-2,
}
# B, T, the widths of the left-hand sides, N. Widths around vectors, tiles and panels of
# every instruction set, steps around one window.
SIZES = [
    (1, 1, [1], 3),
    (2, 3, [5], 12),
    (3, 43, [6, 1], 64),
    (1, 128, [17, 3], 66),
    (4, 33, [32, 8], 129),
    (7, 40, [65], 72),
    (16, 25, [50, 70], 192),
    (40, 30, [128, 32], 510),
]


def case(sizes, dtype, parts=1, first=0, count=1, mask=False, factors=False, seed=0):
    """The op's arguments: float64 arrays that `dtype` holds exactly."""
    batch, steps, widths, columns = sizes
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return tf.cast(rng.normal(size=shape), dtype).numpy().astype(np.float64)

    return {
        "lefts": [normal(batch, steps, width) for width in widths],
        "right": normal(batch, steps, columns),
        "mask": [rng.random((batch, steps)) < 0.6] if mask else [],
        "factors": [normal(batch, count, widths[0])] if factors else [],
        "parts": parts,
        "first_part": first,
        "part_count": count,
    }


def expected(lefts, right, mask, factors, parts, first_part, part_count):
    width = right.shape[2] // parts
    wanted = [
        right[:, :, p * width : (p + 1) * width]
        for p in range(first_part, first_part + part_count)
    ]
    keep = mask[0] if mask else np.ones(right.shape[:2], bool)
    results = []
    for i, left in enumerate(lefts):
        products = []
        for p, part in enumerate(wanted):
            operand = left
            if factors and i == 0:
                operand = left * factors[0][:, np.newaxis, p]
            products.append(operand[keep].T @ part[keep])
        results.append(np.concatenate(products, axis=1))
    return results


def tensors(arguments, dtype):
    floats = ("lefts", "factors")
    return arguments | {
        **{name: [tf.constant(x, dtype) for x in arguments[name]] for name in floats},
        "right": tf.constant(arguments["right"], dtype),
    }


def run(arguments, dtype):
    return _library.ops.eco_rnn_summed_products(**tensors(arguments, dtype))


def run_traced(arguments, dtype, **options):
    """`run` in a graph whose inputs the tensors are."""
    given = tensors(arguments, dtype)
    inputs = {name: given.pop(name) for name in ("lefts", "right", "mask", "factors")}

    @tf.function(autograph=False, **options)
    def call(inputs):
        return _library.ops.eco_rnn_summed_products(**inputs, **given)

    return call(inputs)


def check(arguments, dtype, results):
    for left, right in zip(results, expected(**arguments), strict=True):
        assert left.dtype == dtype
        assert left.shape == right.shape
        scale = max(np.abs(right).max(initial=0), 1)
        error = np.abs(left.numpy().astype(np.float64) - right).max(initial=0)
        assert error <= TYPES[dtype] * scale


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("mask", [False, True], ids=["whole", "masked"])
def test_values(sizes, dtype, mask):
    arguments = case(sizes, dtype, mask=mask)
    check(arguments, dtype, run(arguments, dtype))


PARTS = [(3, 0, 2), (3, 2, 1), (3, 0, 3), (3, 1, 1)]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("parts", PARTS, ids=str)
@pytest.mark.parametrize("factors", [False, True], ids=["plain", "factors"])
def test_parts_of_the_columns(dtype, parts, factors):
    for sizes in SIZES:
        if sizes[3] % 3 == 0:
            arguments = case(sizes, dtype, *parts, mask=True, factors=factors)
            check(arguments, dtype, run(arguments, dtype))


@pytest.mark.parametrize("batch,steps", [(0, 3), (2, 0), (0, 0)])
def test_nothing_to_sum(batch, steps):
    arguments = case((batch, steps, [4, 2], 6), tf.float32, 3, 1, 2, factors=True)
    for result in run(arguments, tf.float32):
        assert not result.numpy().any()


def test_no_width():
    arguments = case((2, 3, [4, 0], 0), tf.float32)
    first, second = run(arguments, tf.float32)
    assert first.shape == (4, 0)
    assert second.shape == (0, 0)


def test_all_masked():
    arguments = case((3, 50, [9], 20), tf.float32, mask=True)
    arguments["mask"][0][:] = False
    assert not run(arguments, tf.float32)[0].numpy().any()


@pytest.mark.parametrize(
    "compiled",
    [pytest.param(False, id="op"), pytest.param(True, id="xla", marks=needs_xla)],
)
def test_masked_steps_are_not_read(compiled):
    arguments = case((5, 30, [20, 3], 24), tf.float32, 4, 0, 4, mask=True, factors=True)
    wanted = expected(**arguments)
    for x in (*arguments["lefts"], arguments["right"]):
        x[~arguments["mask"][0]] = np.nan
    results = run_traced(arguments, tf.float32, jit_compile=compiled)
    for result, right in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, right, rtol=0, atol=1e-4)


@needs_xla
@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
def test_xla(dtype):
    options = itertools.product(SIZES[1:5], [False, True], [False, True])
    for sizes, mask, factors in options:
        parts = (3, 1, 2) if sizes[3] % 3 == 0 else (1, 0, 1)
        arguments = case(sizes, dtype, *parts, mask=mask, factors=factors)
        check(arguments, dtype, run_traced(arguments, dtype, jit_compile=True))


@pytest.mark.parametrize("mask", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("factors", [False, True], ids=["plain", "factors"])
def test_gradient(mask, factors):
    """Against the definition: the products are linear in each of their operands."""
    sizes = (3, 7, [5, 4], 12)
    arguments = case(sizes, tf.float64, 3, 1, 2, mask=mask, factors=factors)
    weights = [np.random.default_rng(1).normal(size=(m, 8)) for m in sizes[2]]
    given = tensors(arguments, tf.float64)
    operands = [*given["lefts"], given["right"]]
    with tf.GradientTape() as tape:
        tape.watch(operands)
        results = _library.ops.eco_rnn_summed_products(**given)
        total = tf.add_n(
            [tf.reduce_sum(r * w) for r, w in zip(results, weights, strict=True)]
        )
    found = tape.gradient(total, operands)

    def value(i, direction):
        moved = [*arguments["lefts"], arguments["right"]]
        moved[i] = direction
        products = expected(**arguments | {"lefts": moved[:-1], "right": moved[-1]})
        linear = products if i == 2 else products[i : i + 1]
        for_weights = weights if i == 2 else weights[i : i + 1]
        return sum((p * w).sum() for p, w in zip(linear, for_weights, strict=True))

    for i, gradient in enumerate(found):
        right = np.empty(gradient.shape)
        for index in np.ndindex(*gradient.shape):
            unit = np.zeros(gradient.shape)
            unit[index] = 1
            right[index] = value(i, unit)
        np.testing.assert_allclose(gradient, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shared", [False, True], ids=["all", "shared_right"])
def test_vectorized_map(dtype, shared):
    cases = [
        case((3, 5, [4, 2], 6), dtype, 3, 0, 2, mask=True, factors=True, seed=seed)
        for seed in range(3)
    ]
    if shared:
        for one in cases:
            one["right"] = cases[0]["right"]
    stacked = [tensors(one, dtype) for one in cases]
    right = stacked[0]["right"]

    def element(lefts, mask, factors, own_right):
        return _library.ops.eco_rnn_summed_products(
            lefts=lefts,
            right=right if shared else own_right,
            mask=[mask],
            factors=[factors],
            parts=3,
            part_count=2,
        )

    results = tf.vectorized_map(
        lambda elements: element(*elements),
        (
            [tf.stack([one["lefts"][i] for one in stacked]) for i in range(2)],
            tf.stack([one["mask"][0] for one in cases]),
            tf.stack([one["factors"][0] for one in stacked]),
            tf.stack([one["right"] for one in stacked]),
        ),
        fallback_to_while_loop=False,
    )
    for i, one in enumerate(cases):
        check(one, dtype, [result[i] for result in results])


def test_widths_are_told_apart_in_graphs():
    """A shape function that merges them has TensorFlow rewrite the graph wrongly."""
    wide, narrow = tf.ones((2, 3, 9)), tf.ones((2, 3, 4))

    @tf.function(autograph=False)
    def call(right):
        products = _library.ops.eco_rnn_summed_products(
            lefts=[wide * right[0, 0, 0], narrow * right[0, 0, 0]],
            right=right,
            mask=[],
            factors=[],
        )
        zeros = [tf.zeros_like(product) for product in products]
        return [tf.concat([p, z], 0) for p, z in zip(products, zeros, strict=True)]

    first, second = call(tf.ones((2, 3, 5)))
    assert first.shape == (18, 5)
    assert second.shape == (8, 5)


WRONG = {
    "right": ({"right": np.zeros((2, 3, 7))}, "right must .* parts, 3, .*7"),
    "right_rank": ({"right": np.zeros((2, 6))}, "right must have"),
    "lefts": ({"lefts": [np.zeros((2, 4, 5))]}, r"lefts\[0\] must have"),
    "lefts_rank": ({"lefts": [np.zeros((2, 5))]}, r"lefts\[0\] must have"),
    "second_left": (
        {"lefts": [np.zeros((2, 3, 5)), np.zeros((2, 5))]},
        r"lefts\[1\] must have",
    ),
    "three_lefts": ({"lefts": [np.zeros((2, 3, 1))] * 3}, "lefts takes at most 2"),
    "mask": ({"mask": [np.ones((2, 2), bool)]}, "mask must have"),
    "masks": ({"mask": [np.ones((2, 3), bool)] * 2}, "mask takes at most one"),
    "factors": ({"factors": [np.ones((2, 3, 5))]}, "factors must have"),
    "parts": ({"first_part": 2}, r"first_part \+ part_count must .*3.*2 \+ 2"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_refused(wrong, graph):
    changes, message = WRONG[wrong]
    arguments = case((2, 3, [5], 6), tf.float64, 3, 0, 2) | changes
    call = run_traced if graph else run
    error = (ValueError, tf.errors.InvalidArgumentError)
    with pytest.raises(error, match=message):
        call(arguments, tf.float64)


def test_bits_do_not_depend_on_the_threads(run_worker, tmp_path):
    found = []
    for threads in (1, 3, 16):
        path = tmp_path / f"{threads}.npz"
        done = run_worker("summed_products.py", threads, path)
        assert done.returncode == 0, done.stdout + done.stderr
        with np.load(path) as results:
            found.append(dict(results))
    for other in found[1:]:
        for name, value in found[0].items():
            assert_same_bits(other[name], value, name)


ISAS = [isa for isa in _library.compiled_isas() if isa != _library.isa()]


@pytest.mark.skipif("TF_ECORNN_ISA" in os.environ, reason="TF_ECORNN_ISA is set")
@pytest.mark.parametrize("isa", ISAS)
def test_other_instruction_sets(isa, run_worker):
    done = run_worker("summed_products.py", 2, "", TF_ECORNN_ISA=isa)
    if "cannot be had" in done.stderr:
        pytest.skip(f"this machine lacks {isa}")
    assert done.returncode == 0, done.stdout + done.stderr
