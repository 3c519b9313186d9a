"""How time is measured and compared.

All contenders of a work run in one process, in rounds: each does a few steps in
turn, and every other round goes through them in reverse. What disturbs the machine
for a while then disturbs all of them, and ratios are taken within a round.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Step = Callable[[], object]
MAX_STEPS = 100  # per turn


@dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray | list[float]) -> Spread:
        low, median, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
        return cls(median, low, high)


def clock(step: Step, count: int) -> float:
    """Mean seconds of a step over `count` steps."""
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count


def interleave(
    steps: Mapping[str, Step],
    rounds: int,
    turn_s: float,
    after_round: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds a step of each contender, one value for each round.

    Args:
        steps: by name; each has run before, so that nothing is left to compile.
        rounds: how often each has its turn.
        turn_s: how long a turn lasts at least, unless MAX_STEPS come first.
        after_round: moves a progress bar.
    """
    # The first call after the warm-up is thrown away; the second sets the count.
    for step in steps.values():
        step()
    counts = {
        name: min(MAX_STEPS, max(1, math.ceil(turn_s / clock(step, 1))))
        for name, step in steps.items()
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for index in range(rounds):
        names = list(steps) if index % 2 == 0 else list(reversed(steps))
        for name in names:
            times[name].append(clock(steps[name], counts[name]))
        after_round()
    return times


def fastest(times: Mapping[str, list[float]]) -> str:
    """The contender with the smallest median."""
    return min(times, key=lambda name: float(np.median(times[name])))


def ratio(theirs: list[float], ours: list[float]) -> Spread:
    """How many times faster ours is, taken round by round."""
    return Spread.of(np.divide(theirs, ours))


def matmul_peak(size: int = 3072, tries: int = 3) -> float:
    """Float32 operations per second of a large `tf.matmul`, the best of some tries.

    Stands in for the machine's multiply-add peak, which is some percent higher.
    """
    import tensorflow as tf

    a, b = tf.random.uniform((size, size)), tf.random.uniform((size, size))
    tf.matmul(a, b).numpy()
    best = min(clock(lambda: tf.matmul(a, b)[0, 0].numpy(), 1) for _ in range(tries))
    return 2.0 * size**3 / best
