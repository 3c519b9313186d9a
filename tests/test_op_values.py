"""The raw ops against the reference: shapes, options, activations."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from helpers import DTYPES, FORWARD, check_op, forward_arguments, run_op
from problems import (
    CELLS,
    MASK_KINDS,
    assert_close,
    assert_same_bits,
    draw_problem,
    draw_tame,
    reference_forward,
    tolerance_of,
)
from reference_activations import ACTIVATIONS

pytestmark = pytest.mark.parametrize("cell", CELLS)

# Around the widths of vectors (4, 8, 16) and panels (64), and primes.
UNITS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130)
# Around the rows of a register tile (6) and twice that.
ROWS = (1, 2, 5, 6, 7, 11, 12, 13, 37)
ACTIVATION_KINK_MARGIN = {np.float32: 3e-5, np.float64: 1e-12}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("units", UNITS)
def test_shapes(cell, units, dtype):
    for batch, steps in zip(ROWS, itertools.cycle((1, 2, 3, 5)), strict=False):
        check_op(draw_problem(cell, 1, batch, steps, units), dtype)
        check_op(
            draw_problem(cell, 2, batch, 3, units, mask="right"), dtype, outputs=False
        )
        check_op(draw_problem(cell, 2, batch, 2, units, dropout=True), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "steps", "units"),
    [
        (1, 5, 256),
        (1, 1, 512),
        (2, 3, 301),
        (70, 2, 257),
        (131, 2, 67),
        (300, 3, 16),
        (3, 200, 11),
        (1, 300, 24),
        (17, 40, 48),
    ],
)
def test_larger_than_a_tile(cell, batch, steps, units, dtype):
    check_op(draw_problem(cell, 3, batch, steps, units), dtype)
    check_op(
        draw_problem(cell, 4, batch, steps, units, mask="random", reset=True), dtype
    )
    check_op(draw_problem(cell, 5, batch, steps, units, dropout=True), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("units", "steps", "mask"),
    [(64, 100, "none"), (64, 100, "right"), (24, 260, "random")],
)
def test_more_than_caches_keep(cell, units, steps, mask, dtype):
    """At least 32 MB are saved, in rows that are whole cache lines or not."""
    check_op(draw_problem(cell, 6, 260, steps, units, mask=mask), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", MASK_KINDS)
@pytest.mark.parametrize("reset", (False, True))
def test_options_in_combination(cell, mask, reset, dtype):
    for reverse, zero, bias, outputs, dropout, units in itertools.product(
        *((False, True),) * 5, (3, 17)
    ):
        problem = draw_problem(
            cell,
            5,
            batch=7,
            steps=6,
            units=units,
            mask=mask,
            reset=reset,
            bias=bias,
            dropout=dropout,
            reverse=reverse,
            zero_output_for_mask=zero,
        )
        check_op(problem, dtype, outputs=outputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations(cell, name, dtype):
    margin = ACTIVATION_KINK_MARGIN[dtype]
    scale = 0.2 if name == "exponential" else 1.0
    for options, units in itertools.product(
        (
            {"activation": name},
            {"recurrent_activation": name, "activation": "softsign"},
            {"activation": name, "recurrent_activation": name, "mask": "random"},
            {"activation": name, "recurrent_activation": "hard_sigmoid"},
        ),
        (5, 18),
    ):
        problem = draw_tame(
            cell, 7, margin, batch=5, steps=2, units=units, scale=scale, **options
        )
        check_op(problem, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_piecewise_activations_in_their_flat_parts(cell, dtype):
    """Pre-activations far out: both ends of every clipped activation."""
    for name in ("hard_sigmoid", "hard_tanh", "relu", "relu6", "leaky_relu", "selu"):
        problem = draw_tame(
            cell,
            8,
            ACTIVATION_KINK_MARGIN[dtype],
            batch=12,
            steps=1,
            units=8,
            scale=4.0,
            activation="hard_tanh",
            recurrent_activation=name,
        )
        check_op(problem, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_alone(cell, dtype):
    """Saving nothing gives the same bits as saving for the backward pass."""
    for outputs, mask in itertools.product((False, True), ("none", "random")):
        problem = draw_problem(cell, 9, batch=8, steps=5, units=20, mask=mask)
        check_op(problem, dtype, outputs=outputs, save=False)
        alone = run_op(problem, dtype, outputs=outputs, save=False)
        saving = run_op(problem, dtype, outputs=outputs, save=True)
        for name, value in alone.items():
            assert_same_bits(value, saving[name], name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "steps", "units"), [(0, 3, 5), (3, 0, 5), (0, 0, 5), (0, 3, 130)]
)
def test_empty_sizes(cell, batch, steps, units, dtype):
    for mask, reset, bias, dropout, outputs in itertools.product(
        ("none", "random"), *((False, True),) * 4
    ):
        problem = draw_problem(
            cell,
            10,
            batch,
            steps,
            units,
            mask=mask,
            reset=reset,
            bias=bias,
            dropout=dropout,
        )
        check_op(problem, dtype, outputs=outputs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_rows_masked(cell, dtype):
    problem = draw_problem(cell, 11, batch=9, steps=4, units=12, mask="all_off")
    result = run_op(problem, dtype)
    assert not result["outputs"].any() and not result["last_output"].any()
    assert not result["grad_gates"].any() and not result["grad_bias"].any()
    for state in problem.states:
        initial = getattr(problem, f"initial_{state}")
        assert_same_bits(result[f"final_{state}"], initial.astype(dtype), state)
        assert_same_bits(
            result[f"grad_initial_{state}"],
            getattr(problem, f"grad_final_{state}").astype(dtype),
            state,
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", (np.nan, np.inf, -np.inf))
def test_masked_gates_are_never_read(cell, bad, dtype):
    for mask, zero in itertools.product(("random", "some_rows_off"), (False, True)):
        clean = draw_problem(
            cell, 12, batch=8, steps=5, units=19, mask=mask, zero_output_for_mask=zero
        )
        gates = np.where(clean.mask[..., None], clean.gates_x, bad)
        poisoned = run_op(replace(clean, gates_x=gates), dtype)
        for name, value in run_op(clean, dtype).items():
            assert_same_bits(poisoned[name], value, name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_saturated_gates(cell, dtype):
    """Large pre-activations saturate cleanly, forward and backward."""
    for size in (30.0, 1e3, 1e30):
        problem = draw_problem(cell, 13, batch=6, steps=3, units=10)
        signs = np.sign(problem.gates_x) * size
        signs = signs.astype(np.float32).astype(np.float64)
        result = run_op(replace(problem, gates_x=signs), dtype)
        check_op(replace(problem, gates_x=signs), dtype)
        assert all(np.isfinite(v).all() for v in result.values())


def test_infinite_gates_are_saturated_too(cell):
    problem = draw_problem(cell, 14, batch=3, steps=2, units=9)
    for dtype in DTYPES:
        gates = np.sign(problem.gates_x) * np.inf
        result = run_op(replace(problem, gates_x=gates), dtype, save=False)
        assert np.isfinite(result["outputs"]).all()
        large = run_op(
            replace(problem, gates_x=np.sign(gates) * 1e4), dtype, save=False
        )
        for name, value in large.items():
            assert_same_bits(result[name], value, name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_unbounded_activation_overflows_to_infinity(cell, dtype):
    """Infinite content times an open gate is infinite, not a NaN."""
    problem = draw_problem(
        cell, 16, batch=6, steps=1, units=21, activation="exponential"
    )
    content = 2 if cell == "lstm" else problem.gates - 1
    gates = problem.gates_x.reshape(6, 1, problem.gates, 21).copy()
    gates[:, :, content] = 1e4
    problem = replace(problem, gates_x=gates.reshape(6, 1, -1))
    result = run_op(problem, dtype)
    assert (result["outputs"] == np.inf).all()
    if cell != "lstm":
        # d loss / d z holds h - n; the content's slope is infinite as well.
        grad = result["grad_gates"].reshape(6, 1, 3, 21)
        incoming = (
            problem.grad_outputs[:, 0] + problem.grad_last_output + problem.grad_final_h
        )
        np.testing.assert_array_equal(grad[:, 0, 0], -np.sign(incoming) * np.inf)
        np.testing.assert_array_equal(grad[:, 0, 2], np.sign(incoming) * np.inf)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_input_shows(cell, dtype):
    """A NaN at a valid step must not vanish, and stays in its own row."""
    problem = draw_problem(cell, 15, batch=13, steps=4, units=33)
    gates = problem.gates_x.copy()
    gates[6, 1, 5] = np.nan
    result = run_op(replace(problem, gates_x=gates), dtype)
    clean = run_op(problem, dtype)
    assert np.isnan(result["outputs"][6, 1:]).any()
    assert np.isnan(result["final_h"][6]).all()
    others = np.arange(13) != 6
    for name in ("outputs", "final_h", "grad_gates", "grad_initial_h"):
        assert_same_bits(result[name][others], clean[name][others], name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("features", (1, 2, 3, 8, 17, 64, 70))
def test_kernel_inside_the_op(cell, features, dtype):
    """The op projects x itself, what masked steps hold included."""
    for (batch, steps, units), mask, reverse in itertools.product(
        ((1, 3, 5), (7, 4, 16), (13, 2, 65), (64, 3, 8)),
        ("none", "random", "right"),
        (False, True),
    ):
        problem = draw_problem(
            cell, 17, batch, steps, units, features, mask=mask, reverse=reverse
        )
        check_op(problem, dtype, joined=True)
        if mask != "none":
            x = np.where(problem.mask[..., None], problem.x, np.nan)
            dirty = run_op(replace(problem, x=x), dtype, joined=True)
            for name, value in run_op(problem, dtype, joined=True).items():
                assert_same_bits(dirty[name], value, name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("units", (3, 8, 12, 21, 40))
def test_kernel_inside_the_op_and_inputs_as_wide_as_the_gates(cell, units, dtype):
    """In a graph, where the saved gates could have the memory of such inputs."""
    features = CELLS[cell][0] * units
    problem = draw_problem(cell, 19, batch=7, steps=5, units=units, features=features)
    arguments = forward_arguments(problem, dtype, joined=True)
    x = arguments.pop("x")

    @tf.function
    def run(x, one):
        # Made here: nobody else holds it.
        return FORWARD[cell](x=x * one, **arguments)

    actual = run(x, tf.ones((), dtype))
    expected = reference_forward(problem)
    tolerance = tolerance_of(problem, dtype)
    assert_close(actual.outputs[0], expected.outputs, tolerance, "outputs")
    assert_close(actual.final_h, expected.states[0], tolerance, "final_h")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "steps"), [(0, 3), (3, 0), (0, 0), (4, 2)])
def test_kernel_inside_the_op_and_empty_sizes(cell, batch, steps, dtype):
    for features in (0, 3):
        problem = draw_problem(cell, 18, batch, steps, 5, features, mask="random")
        check_op(problem, dtype, joined=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_denormals_outside_the_op_are_left_alone(cell, dtype):
    """If the op flushes denormals, it puts the processor's flag back."""
    tiny = np.array([np.finfo(dtype).smallest_subnormal * 8], dtype)
    one = np.ones(1, dtype)
    for batch, units in ((1, 300), (64, 32)):
        run_op(draw_problem(cell, 16, batch=batch, steps=3, units=units), dtype)
        assert (tiny * one == tiny).all() and (tiny * one).any()


def test_random_configurations(cell, long_run):
    rng = np.random.default_rng(2024)
    names = sorted(ACTIVATIONS)
    for seed in range(4000 if long_run else 400):
        dtype = DTYPES[seed % 2]
        activations = ("tanh", "sigmoid")
        if rng.integers(2):
            activations = [names[rng.integers(len(names))] for _ in range(2)]
        steps = 6
        if any(ACTIVATIONS[name].kinks for name in activations):
            steps = 3
        if "exponential" in activations:
            steps = 1
        problem = draw_tame(
            cell,
            seed,
            ACTIVATION_KINK_MARGIN[dtype],
            batch=int(rng.integers(1, 15)),
            steps=int(rng.integers(1, steps + 1)),
            units=int(rng.integers(1, 40)),
            mask=MASK_KINDS[rng.integers(len(MASK_KINDS))],
            reset=bool(rng.integers(2)),
            bias=bool(rng.integers(2)),
            dropout=bool(rng.integers(2)),
            scale=0.3,
            reverse=bool(rng.integers(2)),
            zero_output_for_mask=bool(rng.integers(2)),
            activation=activations[0],
            recurrent_activation=activations[1],
        )
        check_op(problem, dtype, outputs=bool(rng.integers(2)))
