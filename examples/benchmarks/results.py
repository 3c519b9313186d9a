"""Results of a benchmark run, and what follows from them; JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

import machine
from benchmarks import contenders, method
from benchmarks.bars import BARS, Bar
from benchmarks.contenders import OURS, PEERS
from benchmarks.memory import Peak
from benchmarks.method import Ratio, Spread
from benchmarks.works import Case, Work

# Contenders with equal weights do the same work, so their first results must agree
# this well, relatively; those near 0, absolutely to a hundredth of it.
TOLERANCES = {"float32": 1e-3, "mixed_float16": 3e-2, "mixed_bfloat16": 3e-2}


@dataclass(frozen=True)
class Timing:
    """All contenders at one case; times in seconds a step."""

    work: Work
    kind: str
    flops: float
    rounds: dict[str, list[float]]
    spread: dict[str, Spread]
    # Contenders that took no part: why they can't, or what went wrong; "rounds" is
    # what ended the rounds of all.
    cannot: dict[str, str]
    failures: dict[str, str]
    # Loss of the first training step, or mean square of the first predictions.
    first_results: dict[str, float]
    results_agree: bool
    # Ours against the fastest of the peers; None if one of the two is missing.
    best_peer: str | None
    ratio: Ratio | None

    @classmethod
    def of(
        cls,
        case: Case,
        times: dict[str, list[float]],
        first_results: dict[str, float],
        cannot: dict[str, str],
        failures: dict[str, str],
    ) -> Timing:
        """Puts the figures together from what was measured."""
        return cls(
            work=case.work,
            kind=case.kind,
            flops=case.work.flops(case.kind),
            rounds=times,
            spread={name: Spread.of(seconds) for name, seconds in times.items()},
            cannot=cannot,
            failures=failures,
            first_results=first_results,
            results_agree=_agree(case, first_results),
            best_peer=method.fastest(times, PEERS),
            ratio=_ratio(times, OURS, PEERS),
        )

    @property
    def case(self) -> Case:
        return Case(self.work, self.kind)


def _agree(case: Case, first_results: Mapping[str, float]) -> bool:
    values = [
        value
        for name, value in first_results.items()
        if contenders.find(name).follows(case)
    ]
    tolerance = TOLERANCES[case.work.policy]
    return not values or bool(
        np.allclose(values, values[0], rtol=tolerance, atol=tolerance / 100)
    )


def _ratio(
    times: Mapping[str, list[float]], ours: str, against: Iterable[str]
) -> Ratio | None:
    best = method.fastest(times, against)
    if best is None or ours not in times:
        return None
    return Ratio.of(times[best], times[ours])


@dataclass(frozen=True)
class Memory:
    """Peak training memory of one contender, in units of B·T·U floats."""

    work: Work
    contender: str
    units: dict[str, float]  # by allocator, the median of the processes
    processes: dict[str, list[Peak]]

    @classmethod
    def of(cls, work: Work, contender: str, processes: dict[str, list[Peak]]) -> Memory:
        """Puts the figures together from what was measured."""
        units = {
            allocator: float(np.median([peak.units for peak in peaks]))
            for allocator, peaks in processes.items()
        }
        return cls(work, contender, units, processes)


@dataclass(frozen=True)
class Verdict:
    """A bar and what was measured; None if its case or a contender is missing."""

    bar: Bar
    ratio: Ratio | None

    @property
    def met(self) -> bool | None:
        return None if self.ratio is None else self.ratio.median >= self.bar.least


@dataclass
class Result:
    """A run of the benchmarks."""

    arguments: dict[str, Any]
    missing: dict[str, str]  # contenders: why
    versions: dict[str, str] = field(default_factory=dict)  # behind contenders
    peak_flops: dict[str, float] = field(default_factory=dict)  # a second, by dtype
    times: list[Timing] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # cases: why
    memory: list[Memory] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # in measuring memory

    def peak(self, work: Work) -> float:
        """The measured operations per second that a work's policy allows."""
        return max(self.peak_flops[dtype] for dtype in method.PEAK_DTYPES[work.policy])

    def floor_s(self, timing: Timing) -> float:
        """Seconds that the multiply-adds alone take at the measured peak."""
        return timing.flops / self.peak(timing.work)

    def shares(self, timing: Timing) -> dict[str, float]:
        """Of the measured peak, by contender."""
        floor = self.floor_s(timing)
        return {name: floor / spread.median for name, spread in timing.spread.items()}

    def verdicts(self) -> list[Verdict]:
        """On every bar."""
        times = {timing.case: timing.rounds for timing in self.times}
        return [
            Verdict(bar, _ratio(times.get(bar.case, {}), bar.ours, bar.against))
            for bar in BARS
        ]

    def slower_than_keras(self) -> dict[Case, Ratio]:
        """Cases where ours is slower than stock Keras without XLA."""
        ratios = {
            timing.case: _ratio(timing.rounds, OURS, ("keras",))
            for timing in self.times
        }
        return {
            case: ratio for case, ratio in ratios.items() if ratio and ratio.median < 1
        }

    def failed(self) -> bool:
        """Whether something went wrong that should not have."""
        return bool(self.failures) or any(
            each.failures or not each.results_agree for each in self.times
        )


def collect(result: Result) -> dict[str, Any]:
    """Everything there is to tell, ready for JSON."""
    return {
        "benchmark": "tf_ecornn benchmarks",
        "arguments": _plain(result.arguments),
        "machine": machine.describe_machine() | machine.describe_devices(),
        "versions": machine.versions() | result.versions,
        "missing": result.missing,
        "skipped": result.skipped,
        "peak_flops": result.peak_flops,
        "times": [
            _plain(timing)
            | {
                "floor_s": result.floor_s(timing),
                "share_of_peak": result.shares(timing),
            }
            for timing in result.times
        ],
        "bars": [
            _plain(verdict) | {"met": verdict.met} for verdict in result.verdicts()
        ],
        "slower_than_keras": {
            case.label: _plain(ratio)
            for case, ratio in result.slower_than_keras().items()
        },
        "memory": _plain(result.memory),
        "failures": result.failures,
    }


def _plain(value: Any) -> Any:
    """Dataclasses to dictionaries, works to their names."""
    if isinstance(value, Work):
        return value.name
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def write_json(path: Path, result: Result) -> None:
    """Writes the result; floats keep all their digits."""
    path.write_text(json.dumps(collect(result), indent=2) + "\n")
