"""Bad inputs of the raw ops: an error each time, never the end of the process.

Sizes are wrong one argument at a time. Each wrong call is made three ways: eager
(the kernel's checks), traced with known shapes (the shape function's checks) and
traced with unknown shapes (the kernel's checks again, inside a graph).
"""

import itertools
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from helpers import (
    FORWARD,
    GRADIENT,
    forward_arguments,
    gradient_arguments,
)
from problems import draw_problem

BATCH, STEPS, UNITS = 3, 4, 5
LISTS = ("bias", "mask", "reset", "recurrent_dropout", "grad_outputs")
FORWARD_INPUTS = (
    "gates_x",
    "recurrent_kernel",
    "initial_h",
    "initial_c",
    "bias",
    "mask",
    "reset",
    "recurrent_dropout",
)
GRADIENT_INPUTS = (
    "gates",
    "previous_c",
    "recurrent_kernel",
    "grad_last_output",
    "grad_final_h",
    "grad_final_c",
    "grad_outputs",
    "mask",
    "reset",
    "recurrent_dropout",
)
CASES = [(FORWARD, n) for n in FORWARD_INPUTS] + [
    (GRADIENT, n) for n in GRADIENT_INPUTS
]
CASE_IDS = [f"{'forward' if o is FORWARD else 'gradient'}-{n}" for o, n in CASES]


LIST_CASES = [
    pytest.param(*case, id=name)
    for case, name in zip(CASES, CASE_IDS, strict=True)
    if case[1] in LISTS
]


def good_arguments(op, dtype=np.float32):
    problem = draw_problem(
        1, BATCH, STEPS, UNITS, mask="random", reset=True, dropout=True
    )
    forward = forward_arguments(problem, dtype)
    if op is FORWARD:
        return forward
    return gradient_arguments(problem, FORWARD(**forward), dtype)


def tensor_of(arguments, name):
    return arguments[name][0] if name in LISTS else arguments[name]


def with_shape(arguments, name, shape):
    """The arguments with one tensor replaced by one of another shape."""
    dtype = tensor_of(arguments, name).dtype
    value = tf.ones(shape, dtype) if dtype != tf.bool else tf.fill(shape, True)
    return {**arguments, name: [value] if name in LISTS else value}


def wrong_shapes(right):
    """Every rank from 0 to 4 but the right one, and every size off by some."""
    for rank in range(5):
        if rank != len(right):
            yield (*right, 1, 1, 1, 1)[:rank]
            yield (1, 1, 1, *right)[len(right) + 3 - rank :] if rank else ()
    for axis, change in itertools.product(range(len(right)), (-1, 1, "zero", "large")):
        size = {"zero": 0, "large": 40 * right[axis]}.get(change)
        size = right[axis] + change if size is None else size
        yield (*right[:axis], size, *right[axis + 1 :])
    yield tuple(reversed(right)) if len(set(right)) > 1 else (0,) * len(right)


def assert_refused(op, arguments, name):
    with pytest.raises(tf.errors.InvalidArgumentError):
        op(**arguments)
    with pytest.raises(ValueError):
        tf.function(partial(op, **arguments)).get_concrete_function()
    given = tensor_of(arguments, name)

    @tf.function(input_signature=[tf.TensorSpec(None, given.dtype)])
    def unknown(value):
        return op(**{**arguments, name: [value] if name in LISTS else value})

    with pytest.raises(tf.errors.InvalidArgumentError):
        unknown(given)


@pytest.mark.parametrize(("op", "name"), CASES, ids=CASE_IDS)
def test_wrong_shape(op, name):
    arguments = good_arguments(op)
    right = tuple(tensor_of(arguments, name).shape)
    op(**arguments)
    for shape in dict.fromkeys(wrong_shapes(right)):
        assert_refused(op, with_shape(arguments, name, shape), name)
    op(**arguments)


@pytest.mark.parametrize(("op", "name"), LIST_CASES)
def test_empty_list_is_allowed(op, name):
    op(**{**good_arguments(op), name: []})


@pytest.mark.parametrize(("op", "name"), LIST_CASES)
def test_too_long_list(op, name):
    arguments = good_arguments(op)
    for count in (2, 3, 9):
        longer = {**arguments, name: arguments[name] * count}
        with pytest.raises(tf.errors.InvalidArgumentError):
            op(**longer)
        with pytest.raises(ValueError):
            tf.function(partial(op, **longer)).get_concrete_function()


@pytest.mark.parametrize("op", (FORWARD, GRADIENT), ids=("forward", "gradient"))
@pytest.mark.parametrize("count", (2, 7, -1))
def test_too_many_optional_results(op, count):
    counts = ("num_outputs", "num_saved") if op is FORWARD else ("num_biases",)
    for name in counts:
        arguments = {**good_arguments(op), name: count}
        with pytest.raises(tf.errors.InvalidArgumentError):
            op(**arguments)
        with pytest.raises(ValueError):
            tf.function(partial(op, **arguments)).get_concrete_function()


@pytest.mark.parametrize("op", (FORWARD, GRADIENT), ids=("forward", "gradient"))
@pytest.mark.parametrize("name", ("", "Tanh", "tanh ", "softmax", "no such", "x" * 999))
def test_unknown_activation(op, name):
    for place in ("activation", "recurrent_activation"):
        arguments = {**good_arguments(op), place: name}
        with pytest.raises(tf.errors.InvalidArgumentError):
            op(**arguments)
        with pytest.raises(ValueError):
            tf.function(partial(op, **arguments)).get_concrete_function()


@pytest.mark.parametrize("op", (FORWARD, GRADIENT), ids=("forward", "gradient"))
def test_batch_or_time_that_only_one_input_has(op):
    """Every pair of inputs that share an axis, one of the two changed."""
    arguments = good_arguments(op)
    names = FORWARD_INPUTS if op is FORWARD else GRADIENT_INPUTS
    sequences = [n for n in names if len(tensor_of(arguments, n).shape) == 3]
    for name in sequences:
        right = tuple(tensor_of(arguments, name).shape)
        for shape in ((right[1], right[0], right[2]), (0, right[1], right[2])):
            assert_refused(op, with_shape(arguments, name, shape), name)


@pytest.mark.parametrize("op", (FORWARD, GRADIENT), ids=("forward", "gradient"))
def test_no_units(op):
    """U = 0 everywhere: an error or an empty result, nothing worse."""
    arguments = good_arguments(op)
    for name in arguments:
        value = arguments[name]
        value = value[0] if isinstance(value, list) and value else value
        if not tf.is_tensor(value) or value.dtype == tf.bool:
            continue
        shape = [0 if s in (UNITS, 4 * UNITS) else s for s in value.shape]
        arguments = with_shape(arguments, name, shape)
    try:
        found = op(**arguments)
    except tf.errors.InvalidArgumentError:
        return
    assert all(tf.size(v) == 0 for v in tf.nest.flatten(tuple(found)))


@pytest.mark.parametrize("op", (FORWARD, GRADIENT), ids=("forward", "gradient"))
def test_other_dtypes(op):
    errors = (
        tf.errors.InvalidArgumentError,
        tf.errors.NotFoundError,
        tf.errors.UnimplementedError,
        TypeError,
    )
    for dtype in (tf.int32, tf.complex64, tf.string):
        arguments = good_arguments(op)
        name = "gates_x" if op is FORWARD else "gates"
        arguments[name] = tf.zeros(arguments[name].shape, dtype)
        with pytest.raises(errors):
            op(**arguments)
    for name in ("mask", "reset"):
        arguments = good_arguments(op)
        arguments[name] = [tf.cast(arguments[name][0], tf.float32)]
        with pytest.raises(errors):
            op(**arguments)


def test_state_type_that_does_not_fit():
    errors = (
        tf.errors.InvalidArgumentError,
        tf.errors.NotFoundError,
        tf.errors.UnimplementedError,
    )
    for dtype, state_type in ((np.float32, tf.float64), (np.float64, tf.float32)):
        with pytest.raises(errors):
            FORWARD(**{**good_arguments(FORWARD, dtype), "state_type": state_type})
        arguments = good_arguments(GRADIENT, dtype)
        arguments["previous_c"] = tf.cast(arguments["previous_c"], state_type)
        with pytest.raises(errors):
            GRADIENT(**arguments)


def test_shape_function_counts_in_64_bits():
    """Sizes beyond 32 bits, traced only: no memory stands behind them."""

    @tf.function
    def traced(gates, kernel, h):
        return FORWARD(
            gates_x=gates,
            recurrent_kernel=kernel,
            initial_h=h,
            initial_c=h,
            bias=[],
            mask=[],
            reset=[],
            recurrent_dropout=[],
            num_outputs=1,
            num_saved=1,
            state_type=tf.float32,
        ).outputs[0]

    units = 2**30
    found = traced.get_concrete_function(
        tf.TensorSpec((4, 2, 4 * units)),
        tf.TensorSpec((units, 4 * units)),
        tf.TensorSpec((4, units)),
    )
    assert found.outputs[0].shape == (4, 2, units)
