"""The same row gives the same bits, whatever stands beside it."""

from dataclasses import replace

import numpy as np
import pytest

import reference
from helpers import DTYPES, run_op
from problems import (
    CELLS,
    MASK_KINDS,
    assert_close,
    assert_same_bits,
    draw_problem,
    reference_forward,
    tolerance_of,
)

pytestmark = pytest.mark.parametrize("cell", CELLS)

ROW_RESULTS = (
    "outputs",
    "last_output",
    "final_h",
    "final_c",
    "grad_gates",
    "grad_initial_h",
    "grad_initial_c",
)


def assert_rows_equal(part, whole, rows, about):
    for name in set(ROW_RESULTS) & set(whole):
        assert_same_bits(part[name], whole[name][rows], f"{name} {about}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("units", (1, 5, 16, 33, 64, 130))
def test_row_alone_and_in_a_batch_of_64(cell, units, dtype):
    problem = draw_problem(cell, 1, batch=64, steps=4, units=units)
    whole = run_op(problem, dtype)
    for row in (0, 1, 5, 6, 31, 47, 60, 63):
        rows = slice(row, row + 1)
        assert_rows_equal(run_op(problem.rows(rows), dtype), whole, rows, f"row {row}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", MASK_KINDS[1:])
def test_companions_do_not_matter(cell, mask, dtype):
    """Parts of a batch, other orders, and with masks that differ row by row."""
    problem = draw_problem(
        cell, 2, batch=29, steps=5, units=24, mask=mask, reset=True, dropout=True
    )
    whole = run_op(problem, dtype)
    rng = np.random.default_rng(3)
    for size in (2, 3, 6, 7, 12, 13, 28):
        rows = rng.permutation(29)[:size]
        assert_rows_equal(run_op(problem.rows(rows), dtype), whole, rows, f"of {size}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_last_output_does_not_depend_on_the_sequence_output(cell, dtype):
    problem = draw_problem(cell, 4, batch=9, steps=5, units=21, mask="random")
    with_outputs = run_op(problem, dtype, save=False)
    without = run_op(problem, dtype, outputs=False, save=False)
    for name, value in without.items():
        assert_same_bits(value, with_outputs[name], name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_run_after_run(cell, dtype):
    for batch, units in ((1, 200), (7, 33), (64, 64), (200, 20)):
        problem = draw_problem(
            cell, 5, batch=batch, steps=6, units=units, mask="random"
        )
        first = run_op(problem, dtype)
        for _ in range(5):
            for name, value in run_op(problem, dtype).items():
                assert_same_bits(value, first[name], name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_padded_row_equals_the_row_alone_unpadded(cell, dtype):
    """Right padding: forward and gradient, against reference and bit for bit."""
    problem = draw_problem(cell, 6, batch=13, steps=9, units=18, mask="right")
    whole = run_op(problem, dtype)
    for row in range(problem.batch):
        length = int(problem.mask[row].sum())
        alone = unpadded(problem, row, length)
        result = run_op(alone, dtype)
        expected = reference_forward(alone)
        tolerance = tolerance_of(problem, dtype)
        assert_close(
            whole["outputs"][row : row + 1, :length],
            expected.outputs,
            tolerance,
            "outputs",
        )
        for state in problem.states:
            name = f"final_{state}"
            assert_same_bits(whole[name][row], result[name][0], name)
        assert_same_bits(
            whole["outputs"][row, :length], result["outputs"][0], "outputs"
        )
        repeated = np.broadcast_to(
            result["last_output"], whole["outputs"][row, length:].shape
        )
        assert_same_bits(whole["outputs"][row, length:], repeated, "padding")
        grads = reference.run_gradient(
            expected,
            alone.grad_outputs,
            alone.grad_last_output,
            alone.grad_final_states,
        )
        initial = [f"grad_initial_{state}" for state in problem.states]
        for name, value in zip(
            ("grad_gates", *initial), (grads.gates_x, *grads.states), strict=True
        ):
            found = whole[name][row : row + 1]
            found = found[:, :length] if name == "grad_gates" else found
            assert_close(found, value, tolerance, f"{name} of row {row}")
        assert not whole["grad_gates"][row, length:].any()


def unpadded(problem, row, length):
    """One row cut to its length; what padding repeats joins the last output."""
    alone = problem.rows(slice(row, row + 1))
    repeated = alone.grad_outputs[:, length:].sum(axis=1)
    return replace(
        alone,
        gates_x=alone.gates_x[:, :length],
        grad_outputs=alone.grad_outputs[:, :length],
        grad_last_output=alone.grad_last_output + repeated,
        mask=None,
    )
