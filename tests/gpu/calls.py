"""One call of the engine on a `Problem`: its arrays, before and after."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

import reference
from gpu import memory as memories
from gpu.dtypes import CELL_CODES, DTYPES, PATHS, Dtype
from gpu.engine import Engine
from problems import Problem
from reference_activations import ACTIVATIONS

# The references' list has the order of cc/recurrence/activation.h; a wrong one
# would be another function.
_ACTIVATIONS = tuple(ACTIVATIONS)


@dataclass
class Outcome:
    """What a call left behind.

    Attributes:
        values: its results as they are stored, by the names of the arguments.
        faults: what it did to arrays that it must leave alone.
    """

    values: dict[str, np.ndarray]
    faults: list[str] = field(default_factory=list)


class Call:
    """The arguments of one call; its arrays live as long as it does."""

    def __init__(self, engine: Engine, memory, problem: Problem, dtype: str, path: str):
        self._engine = engine
        self._memory = memory
        self._dtype: Dtype = DTYPES[dtype]
        self._inputs: dict[str, tuple[memories.Array, np.ndarray]] = {}
        self._results: dict[str, memories.Array] = {}
        self._values = {
            "dtype": self._dtype.code,
            "cell": CELL_CODES[problem.cell],
            "batch": problem.batch,
            "steps": problem.steps,
            "units": problem.units,
            "reverse": int(problem.reverse),
            "zero_output_for_mask": int(problem.zero_output_for_mask),
            "activation": _ACTIVATIONS.index(problem.activation),
            "recurrent_activation": _ACTIVATIONS.index(problem.recurrent_activation),
            "tensor_float_32": int(self._dtype.tensor_float_32),
            "path": PATHS.index(path),
        }

    def set(self, name: str, number: int) -> None:
        self._values[name] = number

    def give(self, name: str, values: np.ndarray | None) -> None:
        """An input of float64 numbers; None: absent."""
        if values is not None:
            self.give_stored(name, self._dtype.encode(values))

    def give_flags(self, name: str, flags: np.ndarray | None) -> None:
        if flags is not None:
            self.give_stored(name, np.asarray(flags, bool))

    def give_stored(self, name: str, stored: np.ndarray) -> None:
        array = memories.put(self._memory, stored)
        self._inputs[name] = array, stored
        self._values[name] = array.pointer

    def take(self, name: str, *shape: int, dtype: type | None = None) -> None:
        """A result, at first full of NaN."""
        array = memories.poisoned(self._memory, shape, dtype or self._dtype.storage)
        self._results[name] = array
        self._values[name] = array.pointer

    def take_in_place(self, name: str, over: str) -> None:
        """A result in the memory of an input, which it replaces."""
        self._results[name] = self._inputs.pop(over)[0]
        self._values[name] = self._values[over]

    def run(self, direction: str) -> Outcome:
        working = []

        def scratch(size: int) -> int:
            working.append(memories.poisoned(self._memory, (size,), np.uint8))
            return working[0].pointer

        values = self._values | {"stream": self._memory.stream()}
        self._engine.run(direction, values, scratch)
        outcome = Outcome({})
        for name, array in self._results.items():
            outcome.values[name], intact = array.read()
            if not intact:
                outcome.faults.append(f"{direction} wrote beyond {name}")
        if not working[0].read()[1]:
            outcome.faults.append(f"{direction} wrote beyond its scratch memory")
        for name, (array, before) in self._inputs.items():
            after, intact = array.read()
            if not intact or after.tobytes() != before.tobytes():
                outcome.faults.append(f"{direction} changed its input {name}")
        return outcome


def run_forward(
    engine: Engine,
    memory,
    problem: Problem,
    dtype: str,
    path: str,
    *,
    outputs: bool = True,
    save: bool = True,
    in_place: bool = False,
) -> Outcome:
    """The forward pass; of x and its kernel where the problem has them.

    What stands in gates_x at masked steps is NaN, which no result may show.
    """
    call = Call(engine, memory, problem, dtype, path)
    batch, steps, units = problem.batch, problem.steps, problem.units
    for name in "recurrent_kernel bias recurrent_bias recurrent_dropout".split():
        call.give(name, getattr(problem, name))
    for name in ("initial_h", "initial_c"):
        call.give(name, getattr(problem, name))
    call.give_flags("mask", problem.mask)
    call.give_flags("reset", problem.reset)
    if problem.x is not None:
        call.set("features", problem.x.shape[-1])
        call.give("x", reference.clear_masked(problem.x, problem.mask))
        call.give("kernel", problem.kernel)
    else:
        gates_x = problem.gates_x
        if problem.mask is not None:
            gates_x = np.where(problem.mask[..., None], gates_x, np.nan)
        call.give("gates_x", gates_x)
    call.take("last_output", batch, units)
    for state in problem.states:
        call.take(f"final_{state}", batch, units)
    if outputs:
        call.take("outputs", batch, steps, units)
    if save:
        if in_place:
            call.take_in_place("gates", "gates_x")
        else:
            call.take("gates", batch, steps, problem.gates * units)
        call.take("previous_h", batch, steps, units)
        if problem.cell == "lstm":
            call.take("previous_c", batch, steps, units, dtype=DTYPES[dtype].state)
        else:
            call.take("candidate", batch, steps, units)
    return call.run("forward")


def run_backward(
    engine: Engine,
    memory,
    problem: Problem,
    dtype: str,
    path: str,
    saved: dict[str, np.ndarray],
    *,
    outputs: bool = True,
    in_place: bool = False,
) -> Outcome:
    """The backward pass; `saved` are the forward pass's values."""
    call = Call(engine, memory, problem, dtype, path)
    batch, steps, units = problem.batch, problem.steps, problem.units
    for name in ("recurrent_kernel", "recurrent_dropout"):
        call.give(name, getattr(problem, name))
    call.give_flags("mask", problem.mask)
    call.give_flags("reset", problem.reset)
    for name in ("gates", "previous_h", "previous_c", "candidate"):
        if name in saved:
            call.give_stored(name, saved[name])
    for name in ("grad_last_output", "grad_final_h", "grad_final_c"):
        call.give(name, getattr(problem, name))
    if outputs:
        call.give("grad_outputs", problem.grad_outputs)
    if in_place:
        call.take_in_place("grad_gates", "gates")
    else:
        call.take("grad_gates", batch, steps, problem.gates * units)
    for state in problem.states:
        call.take(f"grad_initial_{state}", batch, units)
    if problem.cell == "gru":
        call.take("grad_candidate", batch, steps, units)
    for bias in ("bias", "recurrent_bias"):
        if getattr(problem, bias) is not None:
            call.take(f"grad_{bias}", problem.gates * units)
    return call.run("backward")
