"""Times the engine beside PyTorch: the same work on both sides, in turns."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import torch

from gpu import clock as clocks
from gpu import kernels
from gpu.engine import DoesNotFit, Engine, EngineError
from gpu.ours import GATES, Stack
from gpu.peers import CuDNN, Trainer
from gpu.results import Results
from gpu.sides import (
    Data,
    draw_data,
    draw_weights,
    our_stacks,
    set_precision,
    their_trainers,
    torch_type,
)
from gpu.workloads import (
    ALL_DTYPES,
    CELLS,
    DIRECTIONS,
    TRIAL_WORKS,
    WORKS,
    Ceilings,
    Work,
    floor_ms,
)

# How long each direction of one row of the table is measured, and how many samples
# each way has.
BUDGET_S = 0.3
ROUNDS, TRIAL_ROUNDS = (5, 15), (2, 2)
# ‖ours - theirs‖ / ‖theirs‖ that is still the same work: both sides round, each in
# its own places. A wrong order of gates is off by about 1.
AGREEMENT = {"float16": 0.1, "bfloat16": 0.3, "tf32": 5e-2, "float32": 1e-3}
# Ways of many launches, for which the host may be what takes time.
MANY_LAUNCHES = ("steps", "loop")
# Seconds kept for what follows the timing.
KERNELS_S = 15.0


class Timing:
    """Times works until the seconds are over.

    Args:
        engine: the library.
        device: "cuda"; "cpu" is a trial with tiny works.
        paths: of the engine that are timed.
        seconds: for all of it.
    """

    def __init__(
        self, engine: Engine, device: str, paths: tuple[str, ...], seconds: float
    ):
        self._engine = engine
        self._device = device
        self._paths = paths
        self._end = time.monotonic() + seconds
        self._clock = clocks.Clock(device)
        self._rounds = ROUNDS if self._clock.on_gpu else TRIAL_ROUNDS

    def run(self, results: Results, say: Callable[[str], None]) -> None:
        """Rows, what there was no time for, and errors, into `results`."""
        began = time.monotonic()
        torch.manual_seed(1)
        data = results.data
        results.now("the ceilings")
        ceilings = measure_ceilings(self._clock, self._device)
        data["ceilings"] = dataclasses.asdict(ceilings)
        data |= {"rows": [], "not_timed": [], "errors": []}
        for work in WORKS if self._clock.on_gpu else TRIAL_WORKS:
            work_began = time.monotonic()
            for cell in CELLS:
                for dtype in ALL_DTYPES:
                    label = f"{work.name} {cell} {dtype}"
                    if time.monotonic() > self._end - KERNELS_S:
                        data["not_timed"].append(label)
                        continue
                    results.now(label)
                    try:
                        row = self.measure(work, cell, dtype, ceilings)
                    except (RuntimeError, EngineError) as error:
                        data["errors"].append(f"{label}: {error}")
                    else:
                        data["rows"].append(row)
            say(f"timed {work.name}: {time.monotonic() - work_began:.1f} s")
        if self._clock.on_gpu:
            results.now("the list of kernels")
            try:
                data["kernels"] = self.list_kernels()
            except (RuntimeError, EngineError) as error:
                data["errors"].append(f"list of kernels: {error}")
        data["seconds"] = time.monotonic() - began
        results.finish()

    def measure(self, work: Work, cell: str, dtype: str, ceilings: Ceilings) -> dict:
        """A row of the table: both directions, all ways."""
        ours, theirs, data = self._sides(work, cell, dtype)
        row = {
            "work": work.name,
            "cell": cell,
            "dtype": dtype,
            "steps": work.steps * work.layers,
            "aim": work.aim,
            "aimed": work.aimed,
            "peers": list(theirs),
            "notes": {},
            "disagreements": [],
            "floor_ms": {
                direction: floor_ms(work, GATES[cell], dtype, direction, ceilings)
                for direction in DIRECTIONS
            },
            "times": {},
        }
        compare(row, ours, theirs, data)
        for direction in DIRECTIONS:
            works = works_of(direction, ours, theirs, data)
            if self._clock.on_gpu:
                names = tuple(works) if work.short else MANY_LAUNCHES
                works |= graphs_of(works, names, row["notes"])
            times = clocks.interleaved(
                self._clock, works, len(data.ours), BUDGET_S, self._rounds
            )
            row["times"][direction] = {
                name: dataclasses.asdict(taken) for name, taken in times.items()
            }
        return row

    def list_kernels(self) -> dict[str, list[dict]]:
        """Every kernel of a training step in half precision, of both sides."""
        found = {}
        for work in WORKS:
            if work.aim is None:
                continue
            ours, theirs, data = self._sides(work, "lstm", "float16")
            for name, call in works_of("training", ours, theirs, data).items():
                # Thousands of launches take long to record.
                if name not in MANY_LAUNCHES:
                    listed = kernels.launched(lambda c=call: c(0))
                    found[f"{work.name} {name}"] = listed
        return found

    def _sides(
        self, work: Work, cell: str, dtype: str
    ) -> tuple[dict[str, Stack], dict[str, Trainer], Data]:
        set_precision(dtype)
        layers = draw_weights(work, cell, dtype, self._device)
        ours = our_stacks(self._engine, work, cell, dtype, layers, self._paths)
        theirs = their_trainers(work, cell, layers)
        return ours, theirs, draw_data(work, dtype, self._device)


def measure_ceilings(clock: clocks.Clock, device: str) -> Ceilings:
    """The rate of a large product of each type, and of a large copy."""
    rates = {}
    size, numbers = (8192, 1 << 29) if clock.on_gpu else (64, 1 << 16)
    for dtype in ALL_DTYPES:
        set_precision(dtype)
        a, b = (
            torch.randn(size, size, device=device).to(torch_type(dtype))
            for _ in range(2)
        )
        rates[dtype] = 2 * size**3 / best_of(clock, lambda a=a, b=b: a @ b)
    source = torch.randn(numbers, device=device)
    target = torch.empty_like(source)
    took = best_of(clock, lambda: target.copy_(source))
    return Ceilings(rates, 2 * source.nbytes / took)


def best_of(clock: clocks.Clock, work: Callable[[], object]) -> float:
    """Seconds: a ceiling is what was reached at best."""
    work()
    return 1e-3 * min(clock.milliseconds(work) for _ in range(5))


def compare(row: dict, ours: dict, theirs: dict, data: Data) -> None:
    """That all do the same work; takes out of `ours` what does not fit the device."""
    found = {}
    for name, trainer in theirs.items():
        trainer.prepare("training")
        found[name] = trainer.comparable(trainer.train(*data.theirs[0]))
        if isinstance(trainer.peer, CuDNN):
            row["notes"]["PyTorch used"] = trainer.peer.kernel(data.theirs[0][0])
    expected = found[row["peers"][0]]
    for path in list(ours):
        try:
            found[path] = ours[path].train(*data.ours[0])
        except DoesNotFit as error:
            row["notes"][path] = str(error)
            del ours[path]
    for name, values in found.items():
        for result, value in expected.items():
            norm = value.double().norm()
            error = float((values[result].double() - value.double()).norm() / norm)
            if not error <= AGREEMENT[row["dtype"]]:
                row["disagreements"].append(f"{name}: {result} by {error:.1e}")


def works_of(direction: str, ours: dict, theirs: dict, data: Data) -> dict:
    """What is timed, by name."""
    for trainer in theirs.values():
        trainer.prepare(direction)
    found: dict[str, clocks.Work] = {}
    for ways, sets in ((ours, data.ours), (theirs, data.theirs)):
        for name, way in ways.items():
            if direction == "forward":
                found[name] = lambda i, w=way, s=sets: w.forward(s[i][0])
            else:
                found[name] = lambda i, w=way, s=sets: w.train(*s[i])
    return found


def graphs_of(works: dict, names: tuple[str, ...], notes: dict) -> dict:
    """Those of the ways as CUDA graphs."""
    found = {}
    for name in names:
        if name not in works:
            continue
        try:
            found[f"{name} graph"] = clocks.Graphed(works[name], 2)
        except (RuntimeError, EngineError) as error:
            notes[f"{name} graph"] = str(error)
    return found
