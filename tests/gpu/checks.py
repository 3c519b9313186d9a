"""Every case of cases.py: right to its type's bar, and the same bits every time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import numpy as np

from gpu import references
from gpu.calls import Outcome, run_backward, run_forward
from gpu.cases import Case
from gpu.dtypes import DTYPES
from gpu.engine import DoesNotFit, Engine, EngineError
from gpu.results import Results
from problems import Problem

MOST_SAID = 10

# A run's outcome, forward and backward.
Both = tuple[Outcome, Outcome]


def run_both(
    engine: Engine, memory, problem: Problem, case: Case, in_place: bool = False
) -> Both:
    how = {"outputs": case.outputs, "in_place": in_place}
    where = engine, memory, problem, case.dtype, case.path
    forward = run_forward(*where, **how)
    backward = run_backward(*where, forward.values, **how)
    return forward, backward


def decoded(case: Case, problem: Problem, both: Both) -> dict[str, np.ndarray]:
    """All results in float64, and the recurrent kernel's gradient that they make."""
    dtype = DTYPES[case.dtype]
    stored = both[0].values | both[1].values
    actual = {name: dtype.decode(value) for name, value in stored.items()}
    actual["recurrent_kernel"] = references.recurrent_kernel_gradient(problem, actual)
    return actual


def errors(case: Case, both: Both, actual: dict, expected: dict) -> dict[str, float]:
    """The relative error of every result that a case is judged by."""
    names = expected.keys()
    if case.saturated:
        names &= both[0].values.keys()
    return {n: references.relative_error(actual[n], expected[n]) for n in names}


def differing(first: Both, other: Both, rows: list | None = None) -> list[str]:
    """Results whose bits differ; with `rows`, those of these rows alone.

    Gradients of biases are sums over rows, which rows alone do not have.
    """
    found = []
    for one, two in zip(first, other, strict=True):
        # A run for inference has less.
        for name in one.values.keys() & two.values.keys():
            value = one.values[name]
            if rows is not None:
                if name in ("grad_bias", "grad_recurrent_bias"):
                    continue
                value = value[rows]
            if value.tobytes() != two.values[name].tobytes():
                found.append(name)
    return sorted(found)


def faults_of(both: Both) -> list[str]:
    return [fault for outcome in both for fault in outcome.faults]


def check(engine: Engine, memory, case: Case) -> dict:
    """What came of a case: its worst error, and its failures as sentences."""
    problem, expected = references.drawn(*case.problem)
    failures: list[str] = []
    row = {"case": case.label, "bar": case.allowed, "failures": failures}
    try:
        first = run_both(engine, memory, problem, case)
    except DoesNotFit as error:
        if case.path != "persistent":
            raise
        return row | {"refused": str(error)}
    failures += faults_of(first)

    def compare(how: str, other: Both, rows: list | None = None) -> None:
        names = differing(first, other, rows)
        if names:
            failures.append(f"other bits {how}: {', '.join(names)}")
        failures.extend(faults_of(other))

    actual = decoded(case, problem, first)
    for name, value in actual.items():
        if not np.isfinite(value).all():
            failures.append(f"{name} is not finite")
    found = errors(case, first, actual, expected)
    row["worst"], row["error"] = max(
        found.items(), key=lambda item: np.nan_to_num(item[1], nan=np.inf)
    )
    for name, error in found.items():
        if not error <= case.allowed:
            failures.append(f"{name} off by {error:.1e}, at most {row['bar']:.0e}")
    if case.repeats == 0:
        return row
    for _ in range(case.repeats):
        compare("in a second run", run_both(engine, memory, problem, case))
    if problem.batch > 1:
        rows = [problem.batch - 1, 0]
        alone = run_both(engine, memory, problem.rows(rows), case)
        compare("of rows alone", alone, rows)
    where = engine, memory, problem, case.dtype, case.path
    inference = run_forward(*where, outputs=case.outputs, save=False)
    compare("for inference", (inference, Outcome({})))
    if problem.x is None:
        compare("in place", run_both(engine, memory, problem, case, in_place=True))
    return row


def run(
    engine: Engine, memory, cases: Iterable[Case], results: Results, say: Callable
) -> None:
    """Checks all cases; the first that fail are said at once."""
    began, said = time.monotonic(), 0
    rows = results.data["rows"] = []
    for case in cases:
        results.now(case.label)
        try:
            row = check(engine, memory, case)
        except EngineError as error:
            row = {"case": case.label, "failures": [str(error)]}
        rows.append(row)
        if row["failures"] and said < MOST_SAID:
            said += 1
            say(f"FAILED {row['case']}: {'; '.join(row['failures'])[:500]}")
    results.data["seconds"] = time.monotonic() - began
    results.finish()


def count_failed(rows: list[dict]) -> int:
    return sum(bool(row["failures"]) for row in rows)


def worst_of_each(rows: list[dict], dtypes: Iterable[str]) -> dict[str, dict]:
    """For each number type, the case that came nearest to its bar."""
    found = {}
    for dtype in dtypes:
        of_dtype = [r for r in rows if r["case"].split()[1] == dtype and "error" in r]
        if of_dtype:
            found[dtype] = max(of_dtype, key=lambda r: r["error"] / r["bar"])
    return found
