"""The raw ops inside XLA's programs (`jit_compile=True`)."""

import threading
from dataclasses import fields, replace

import numpy as np
import pytest
import tensorflow as tf

import helpers
import reference
import tf_ecornn
from helpers import check_op, forward_arguments, gradient_arguments, needs_xla, run_op
from problems import (
    CELLS,
    assert_close,
    assert_same_bits,
    draw_problem,
    reference_forward,
    tolerance_of,
)

pytestmark = needs_xla

every_cell = pytest.mark.parametrize("cell", CELLS)
BFLOAT16 = tf.bfloat16.as_numpy_dtype
# Twice the error of one rounding.
ROUNDING = {np.float16: 2.0**-10, BFLOAT16: 2.0**-7}


def compiled(op):
    """The raw op as the only one of a jit-compiled function."""

    def call(**arguments):
        is_tensor = {
            n: tf.is_tensor(v) or isinstance(v, list) for n, v in arguments.items()
        }
        tensors = {n: v for n, v in arguments.items() if is_tensor[n]}
        rest = {n: v for n, v in arguments.items() if not is_tensor[n]}
        function = tf.function(lambda given: op(**given, **rest), jit_compile=True)
        return function(tensors)

    return call


@pytest.fixture
def compiled_ops(monkeypatch):
    """The helpers' raw ops, each in a jit-compiled function of its own."""
    for ops in (helpers.FORWARD, helpers.GRADIENT):
        for cell in CELLS:
            monkeypatch.setitem(ops, cell, compiled(ops[cell]))


# Values -------------------------------------------------------------------------

OPTIONS = (
    {},
    {"mask": "random", "reset": True, "dropout": True, "reverse": True},
    {"mask": "right", "zero_output_for_mask": True, "bias": False},
    {"activation": "softsign", "recurrent_activation": "hard_sigmoid"},
)


@every_cell
@pytest.mark.parametrize("dtype", helpers.DTYPES)
def test_values_and_gradients(cell, dtype, compiled_ops, fused_calls):
    """Every optional input and output; each compiled function runs the op once."""
    for options in OPTIONS:
        problem = draw_problem(cell, 1, 7, 6, 19, features=3, **options)
        check_op(problem, dtype)
        check_op(problem, dtype, outputs=False)
        check_op(problem, dtype, joined=True)
        check_op(problem, dtype, save=False)
    assert fused_calls() == 7 * len(OPTIONS)


@every_cell
def test_sizes(cell, compiled_ops):
    """One of each, none, more than a tile, and units over several panels."""
    for batch, steps, units in ((1, 1, 1), (0, 3, 4), (3, 0, 4), (37, 3, 130)):
        problem = draw_problem(cell, 2, batch, steps, units, features=2, mask="random")
        check_op(problem, np.float32)
        check_op(problem, np.float32, joined=True)
    check_op(draw_problem(cell, 3, 4, 3, 6, features=0), np.float64, joined=True)


def as_held(problem, dtype):
    """The problem with every number as `dtype` holds it."""

    def held(value):
        if not isinstance(value, np.ndarray) or value.dtype != np.float64:
            return value
        return value.astype(dtype).astype(np.float64)

    names = [f.name for f in fields(problem)]
    return replace(problem, **{n: held(getattr(problem, n)) for n in names})


@every_cell
@pytest.mark.parametrize("dtype", ROUNDING)
def test_16_bits(cell, dtype, compiled_ops):
    problem = draw_problem(cell, 4, 7, 5, 19, mask="random", dropout=True)
    problem = as_held(problem, dtype)
    actual = run_op(problem, dtype)
    forward = reference_forward(problem)
    grads = reference.run_gradient(
        forward,
        problem.grad_outputs,
        problem.grad_last_output,
        problem.grad_final_states,
    )
    expected = {
        "last_output": forward.last_output,
        "outputs": forward.outputs,
        "final_h": forward.states[0],
        "grad_gates": grads.gates_x,
        "grad_initial_h": grads.states[0],
        "grad_bias": grads.bias if problem.recurrent_bias is None else grads.bias[0],
    }
    for name, value in expected.items():
        assert actual[name].dtype == dtype
        error = np.abs(actual[name].astype(np.float64) - value).max()
        # Saved gates are rounded; steps and rows add up what that does.
        bound = 6 * ROUNDING[dtype] * max(1.0, np.abs(value).max())
        assert error <= bound, f"{name}: off by {error:.1e} (bound {bound:.1e})"


@every_cell
@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.float16, BFLOAT16))
def test_bits_of_the_op_outside(cell, dtype, monkeypatch):
    """The same engine: what jit-compiled functions return has the same bits."""
    problem = draw_problem(cell, 5, 21, 8, 40, mask="random", reset=True)
    outside = run_op(problem, dtype)
    for ops in (helpers.FORWARD, helpers.GRADIENT):
        monkeypatch.setitem(ops, cell, compiled(ops[cell]))
    for _ in range(2):
        inside = run_op(problem, dtype)
        assert inside.keys() == outside.keys()
        for name, value in outside.items():
            assert_same_bits(inside[name], value, name)


@every_cell
def test_given_tensors_stay_as_they_are(cell):
    """Gates take the memory of an input, but never that of a program's own."""
    problem = draw_problem(cell, 6, 5, 4, 8)
    given = forward_arguments(problem, np.float32)
    x = given["x"].numpy()
    saved = compiled(helpers.FORWARD[cell])(**given)
    assert_same_bits(given["x"], x, "x")
    gates = saved.gates[0].numpy()
    compiled(helpers.GRADIENT[cell])(**gradient_arguments(problem, saved, np.float32))
    assert_same_bits(saved.gates[0], gates, "gates")


@every_cell
def test_inputs_as_wide_as_the_gates(cell):
    """x, multiplied inside the op, looks like the gates and is still needed."""
    problem = draw_problem(cell, 7, 5, 4, 20, features=20 * CELLS[cell][0])
    given = forward_arguments(problem, np.float64, joined=True)

    @tf.function(jit_compile=True)
    def run(x):
        return helpers.FORWARD[cell](**{**given, "x": 2.0 * x}).outputs[0]

    tolerance = tolerance_of(problem, np.float64)
    expected = reference_forward(problem).outputs
    assert_close(run(given["x"] / 2.0), expected, tolerance, "outputs")


# Errors -------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ("lstm", "gru"))
@pytest.mark.parametrize("name", ("initial_h", "mask", "recurrent_dropout", "bias"))
def test_wrong_shapes_are_refused(cell, name):
    """Where they show when the function is traced, and where XLA first sees them."""
    problem = draw_problem(cell, 11, 3, 4, 5, mask="random", dropout=True)
    given = forward_arguments(problem, np.float32)
    right = given[name][0] if isinstance(given[name], list) else given[name]
    wrong = tf.concat([right, right], axis=0)

    def run(value):
        listed = [value] if isinstance(given[name], list) else value
        return helpers.FORWARD[cell](**{**given, name: listed}).last_output

    with pytest.raises(ValueError, match=name):
        tf.function(run, jit_compile=True)(wrong)
    unknown = [tf.TensorSpec(None, right.dtype)]
    function = tf.function(run, jit_compile=True, input_signature=unknown)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{name} must have shape"):
        function(wrong)
    assert function(right).shape == (3, 5)


def test_recurrent_biases_without_reset_after_are_refused():
    problem = draw_problem("gru", 12)
    given = forward_arguments(problem, np.float32)
    match = "go(es)? with reset_after alone"
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        compiled(helpers.FORWARD["gru"])(**{**given, "reset_after": False})
    saved = helpers.FORWARD["gru"](**given)
    given = gradient_arguments(problem, saved, np.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        compiled(helpers.GRADIENT["gru"])(**{**given, "reset_after": False})


def test_sizes_computed_inside_are_refused():
    """XLA pads what it does not know the size of; the op would see the padding."""
    weights = [tf.ones((5, 9)), tf.ones((3, 9))]

    @tf.function(jit_compile=True)
    def run(x, keep):
        return tf_ecornn.gru(tf.boolean_mask(x, keep), *weights).output

    with pytest.raises(tf.errors.InvalidArgumentError, match="x has a size that"):
        run(tf.ones((4, 9, 5)), tf.constant([True, False, True, True]))


# Threads ------------------------------------------------------------------------


@pytest.mark.parametrize("intra", (1, 2))
def test_threads_are_those_of_the_pool(intra, run_worker):
    done = run_worker("xla_threads.py", intra, timeout=120)
    assert done.returncode == 0, done.stderr
    working = int(done.stdout.split()[-1])
    # Two at once: the caller, and now one, now the other of the pool's two.
    assert working == 1 if intra == 1 else working in (2, 3), working


def test_many_calls_at_once():
    x = tf.random.stateless_normal((48, 12, 5), (1, 2))
    weights = [tf.random.stateless_normal((n, 4 * 40), (n, 3)) for n in (5, 40)]

    @tf.function(jit_compile=True)
    def run(x):
        return tf_ecornn.lstm(x, *weights, return_sequences=True).output

    expected = run(x)
    different = []

    def work():
        for _ in range(20):
            if run(x).numpy().tobytes() != expected.numpy().tobytes():
                different.append(threading.current_thread().name)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not different
