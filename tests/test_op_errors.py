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

BATCH, STEPS, UNITS, FEATURES = 3, 4, 5, 2
LISTS = (
    "bias",
    "recurrent_bias",
    "mask",
    "reset",
    "recurrent_dropout",
    "kernel",
    "grad_outputs",
)
OPTIONS = ("mask", "reset", "recurrent_dropout")
STATES = {"lstm": ("h", "c"), "gru": ("h",)}
BIASES = {"lstm": ("bias",), "gru": ("bias", "recurrent_bias")}
SAVED = {"lstm": ("previous_c",), "gru": ("previous_h", "candidate")}
# "joined" is the forward op with a kernel of its own.
WHICH = ("forward", "joined", "gradient")
OPS = list(itertools.product(STATES, WHICH))


def input_names(cell, which):
    """The tensors that an op takes."""
    if which == "gradient":
        grads = ["grad_last_output", *(f"grad_final_{s}" for s in STATES[cell])]
        kept = ["gates", *SAVED[cell]]
        return [*kept, "recurrent_kernel", *grads, "grad_outputs", *OPTIONS]
    states = [f"initial_{s}" for s in STATES[cell]]
    kernel = ["kernel"] if which == "joined" else []
    return ["x", "recurrent_kernel", *states, *BIASES[cell], *OPTIONS, *kernel]


CASES = [(*op, name) for op in OPS for name in input_names(*op)]
LIST_CASES = [case for case in CASES if case[2] in LISTS]


def op_of(cell, which):
    return GRADIENT[cell] if which == "gradient" else FORWARD[cell]


def good_arguments(cell, which, dtype=np.float32):
    problem = draw_problem(
        cell,
        1,
        BATCH,
        STEPS,
        UNITS,
        FEATURES,
        mask="random",
        reset=True,
        dropout=True,
    )
    forward = forward_arguments(problem, dtype, joined=which == "joined")
    if which != "gradient":
        return forward
    return gradient_arguments(problem, FORWARD[cell](**forward), dtype)


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


@pytest.mark.parametrize(("cell", "which", "name"), CASES)
def test_wrong_shape(cell, which, name):
    op, arguments = op_of(cell, which), good_arguments(cell, which)
    right = tuple(tensor_of(arguments, name).shape)
    op(**arguments)
    for shape in dict.fromkeys(wrong_shapes(right)):
        assert_refused(op, with_shape(arguments, name, shape), name)
    op(**arguments)


@pytest.mark.parametrize(("cell", "which", "name"), LIST_CASES)
def test_empty_list_is_allowed(cell, which, name):
    arguments = {**good_arguments(cell, which), name: []}
    if name == "kernel":
        arguments["x"] = tf.zeros(
            (BATCH, STEPS, arguments["recurrent_kernel"].shape[1])
        )
    op_of(cell, which)(**arguments)


@pytest.mark.parametrize(("cell", "which", "name"), LIST_CASES)
def test_too_long_list(cell, which, name):
    op, arguments = op_of(cell, which), good_arguments(cell, which)
    for count in (2, 3, 9):
        longer = {**arguments, name: arguments[name] * count}
        with pytest.raises(tf.errors.InvalidArgumentError):
            op(**longer)
        with pytest.raises(ValueError):
            tf.function(partial(op, **longer)).get_concrete_function()


@pytest.mark.parametrize(("cell", "which"), OPS)
@pytest.mark.parametrize("count", (2, 7, -1))
def test_too_many_optional_results(cell, which, count):
    op = op_of(cell, which)
    names = ("num_outputs", "num_saved")
    if which == "gradient":
        names = ("num_biases", "num_recurrent_biases")[: len(BIASES[cell])]
    for name in names:
        arguments = {**good_arguments(cell, which), name: count}
        with pytest.raises(tf.errors.InvalidArgumentError):
            op(**arguments)
        with pytest.raises(ValueError):
            tf.function(partial(op, **arguments)).get_concrete_function()


@pytest.mark.parametrize(("cell", "which"), OPS)
@pytest.mark.parametrize("name", ("", "Tanh", "tanh ", "softmax", "no such", "x" * 999))
def test_unknown_activation(cell, which, name):
    op = op_of(cell, which)
    for place in ("activation", "recurrent_activation"):
        arguments = {**good_arguments(cell, which), place: name}
        with pytest.raises(tf.errors.InvalidArgumentError):
            op(**arguments)
        with pytest.raises(ValueError):
            tf.function(partial(op, **arguments)).get_concrete_function()


@pytest.mark.parametrize(("cell", "which"), OPS)
def test_batch_or_time_that_only_one_input_has(cell, which):
    """Every pair of inputs that share an axis, one of the two changed."""
    op, arguments = op_of(cell, which), good_arguments(cell, which)
    for name in input_names(cell, which):
        right = tuple(tensor_of(arguments, name).shape)
        if len(right) == 3:
            swapped = (right[1], right[0], right[2])
            for shape in {swapped, (0, *right[1:])} - {right}:
                assert_refused(op, with_shape(arguments, name, shape), name)


@pytest.mark.parametrize(("cell", "which"), OPS)
def test_no_units(cell, which):
    """U = 0 everywhere: an error or an empty result, nothing worse."""
    op, arguments = op_of(cell, which), good_arguments(cell, which)
    width = arguments["recurrent_kernel"].shape[1]
    for name in input_names(cell, which):
        value = tensor_of(arguments, name)
        if value.dtype != tf.bool:
            shape = [0 if s in (UNITS, width) else s for s in value.shape]
            arguments = with_shape(arguments, name, shape)
    try:
        found = op(**arguments)
    except tf.errors.InvalidArgumentError:
        return
    assert all(tf.size(v) == 0 for v in tf.nest.flatten(tuple(found)))


def test_recurrent_bias_goes_with_reset_after_alone():
    """The one bias of the other form is the input side's."""
    arguments = {**good_arguments("gru", "forward"), "reset_after": False}
    op = op_of("gru", "forward")
    with pytest.raises(tf.errors.InvalidArgumentError):
        op(**arguments)
    op(**{**arguments, "recurrent_bias": []})


@pytest.mark.parametrize(("cell", "which"), OPS)
def test_other_dtypes(cell, which):
    errors = (
        tf.errors.InvalidArgumentError,
        tf.errors.NotFoundError,
        tf.errors.UnimplementedError,
        TypeError,
    )
    op = op_of(cell, which)
    for dtype in (tf.int32, tf.complex64, tf.string):
        arguments = good_arguments(cell, which)
        name = input_names(cell, which)[0]
        arguments[name] = tf.zeros(arguments[name].shape, dtype)
        with pytest.raises(errors):
            op(**arguments)
    for name in ("mask", "reset"):
        arguments = good_arguments(cell, which)
        arguments[name] = [tf.cast(arguments[name][0], tf.float32)]
        with pytest.raises(errors):
            op(**arguments)


def test_state_type_that_does_not_fit():
    errors = (
        tf.errors.InvalidArgumentError,
        tf.errors.NotFoundError,
        tf.errors.UnimplementedError,
    )
    for dtype, state_type in (
        (tf.float32, tf.float64),
        (tf.float64, tf.float32),
        (tf.float16, tf.float64),
        (tf.bfloat16, tf.float64),
    ):
        arguments = good_arguments("lstm", "forward", dtype)
        with pytest.raises(errors):
            op_of("lstm", "forward")(**{**arguments, "state_type": state_type})
        arguments = good_arguments("lstm", "gradient", dtype)
        arguments["previous_c"] = tf.cast(arguments["previous_c"], state_type)
        with pytest.raises(errors):
            op_of("lstm", "gradient")(**arguments)


def test_shape_function_counts_in_64_bits():
    """Sizes beyond 32 bits, traced only: no memory stands behind them."""

    @tf.function
    def traced(gates, kernel, h):
        return FORWARD["lstm"](
            x=gates,
            recurrent_kernel=kernel,
            initial_h=h,
            initial_c=h,
            bias=[],
            mask=[],
            reset=[],
            recurrent_dropout=[],
            kernel=[],
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
