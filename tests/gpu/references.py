"""Problems in numbers that a type can hold, and their results in float64."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

import reference
from gpu.dtypes import DTYPES
from problems import CELLS, Problem, draw_problem, draw_tame, reference_forward

_FLOATS = (
    "gates_x recurrent_kernel bias recurrent_bias initial_h initial_c grad_outputs "
    "grad_last_output grad_final_h grad_final_c x kernel"
).split()


def rounded(problem: Problem, dtype: str) -> Problem:
    """The problem that the type can hold: its rounding is not the kernels'."""
    kind = DTYPES[dtype]
    values = {name: getattr(problem, name) for name in _FLOATS}
    return replace(
        problem,
        **{n: None if v is None else kind.round(v) for n, v in values.items()},
    )


# Cases that differ only in path and type follow each other.
@lru_cache(maxsize=3)
def drawn(rounding: str, margin: float, gates_scale: float, arguments: tuple):
    """A problem, and its results: (Problem, dict).

    Args:
        rounding: the type whose numbers it is made of.
        margin: distance from the kinks of its activations, 0 for any.
        gates_scale: what to multiply gates_x by.
        arguments: of `problems.draw_problem`, as pairs.
    """
    arguments = dict(arguments)
    outputs = arguments.pop("outputs")
    if margin:
        problem = draw_tame(margin=margin, **arguments)
    else:
        problem = draw_problem(**arguments)
    problem = replace(problem, gates_x=problem.gates_x * gates_scale)
    problem = rounded(problem, rounding)
    if problem.x is not None:
        projected = reference.project(problem.x, problem.kernel, problem.mask)
        problem = replace(problem, gates_x=projected)
    return problem, expected_results(problem, outputs)


def expected_results(problem: Problem, outputs: bool) -> dict[str, np.ndarray]:
    """By the names of the C functions' arguments; `recurrent_kernel`: its gradient.

    `previous_h` is zero at masked steps, as saved states are.
    """
    forward = reference_forward(problem)
    grads = reference.run_gradient(
        forward,
        problem.grad_outputs if outputs else None,
        problem.grad_last_output,
        problem.grad_final_states,
    )
    values = {
        "last_output": forward.last_output,
        "previous_h": reference.clear_masked(forward.previous_h, problem.mask),
        "grad_gates": grads.gates_x,
        "recurrent_kernel": grads.recurrent_kernel,
    }
    if outputs:
        values["outputs"] = forward.outputs
    for index, state in enumerate(CELLS[problem.cell][1]):
        values[f"final_{state}"] = forward.states[index]
        values[f"grad_initial_{state}"] = grads.states[index]
    if problem.recurrent_bias is not None:
        values["grad_bias"], values["grad_recurrent_bias"] = grads.bias
    elif problem.bias is not None:
        values["grad_bias"] = grads.bias
    return values


def recurrent_kernel_gradient(problem: Problem, saved: dict) -> np.ndarray:
    """(U, GU) from what the engine returned, in float64.

    Gate by gate: the operand that met the kernel, times the gradient of the sum
    that it went into. For a GRU's candidate one of the two is an array of its own.
    """
    units, gates = problem.units, problem.gates
    parts = []
    for gate in range(gates):
        operand = saved["previous_h"]
        if problem.recurrent_dropout is not None:
            operand = operand * problem.recurrent_dropout[:, None, gate]
        columns = slice(gate * units, (gate + 1) * units)
        gradient = saved["grad_gates"][..., columns]
        if problem.cell == "gru" and gate == 2:
            gradient = saved["grad_candidate"]
        elif problem.cell == "gru_before" and gate == 2:
            operand = saved["candidate"]
        parts.append(operand.reshape(-1, units).T @ gradient.reshape(-1, units))
    return np.concatenate(parts, axis=1)


def relative_error(
    actual: np.ndarray, expected: np.ndarray, least: float = 0.0
) -> float:
    """‖actual - expected‖ / ‖expected‖ in float64, absolute where zero is expected.

    `least` is a size of numbers below which they count as that large. NaN stays
    NaN, which is below no bar.
    """
    actual = np.asarray(actual, np.float64)
    if actual.shape != expected.shape:
        raise AssertionError(f"shape {actual.shape}, expected {expected.shape}")
    norm = max(np.linalg.norm(expected), least * expected.size**0.5)
    error = np.linalg.norm(actual - expected)
    return float(error / norm) if norm else float(error)
