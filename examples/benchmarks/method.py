"""How time is measured and compared.

All contenders of a work take part in the same rounds: each does a few steps in
turn, and every other round goes through them in reverse. What disturbs the machine
for a while then disturbs all of them, and ratios are taken within a round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.worker import clock

Clock = Callable[[int], float]  # seconds of so many steps
MAX_STEPS = 100  # per turn
RESAMPLES = 10_000
# The type whose products a policy's floor is computed by. Where the processor has no
# float16 units the products are float32 ones.
PEAK_DTYPES = {
    "float32": ("float32",),
    "mixed_float16": ("float16", "float32"),
    "mixed_bfloat16": ("bfloat16",),
}


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


@dataclass(frozen=True)
class Ratio:
    """Median of the rounds' ratios, and its 95 % confidence interval."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, theirs: list[float], ours: list[float]) -> Ratio:
        """How many times faster ours is. The interval is a percentile bootstrap's."""
        ratios = np.divide(theirs, ours)
        rng = np.random.default_rng(0)
        medians = np.median(rng.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
        low, high = np.quantile(medians, (0.025, 0.975)).tolist()
        return cls(float(np.median(ratios)), low, high)


def interleave(
    clocks: Mapping[str, Clock],
    rounds: int,
    turn_s: float,
    after_round: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds a step of each contender, one value for each round.

    Args:
        clocks: by name; each has run before, so that nothing is left to compile.
        rounds: how often each has its turn.
        turn_s: how long a turn lasts at least, unless MAX_STEPS come first.
        after_round: moves a progress bar.
    """
    # The first call after the warm-up is thrown away; the second sets the count.
    for clock_ in clocks.values():
        clock_(1)
    counts = {
        name: min(MAX_STEPS, max(1, math.ceil(turn_s / clock_(1))))
        for name, clock_ in clocks.items()
    }
    times: dict[str, list[float]] = {name: [] for name in clocks}
    for index in range(rounds):
        names = list(clocks) if index % 2 == 0 else list(reversed(clocks))
        for name in names:
            times[name].append(clocks[name](counts[name]) / counts[name])
        after_round()
    return times


def fastest(times: Mapping[str, list[float]], among: Iterable[str]) -> str | None:
    """The one with the smallest median; None if none of them was timed."""
    present = [name for name in among if name in times]
    return min(present, key=lambda name: float(np.median(times[name])), default=None)


def matmul_peak(dtype: str, size: int, tries: int = 3) -> float:
    """Operations per second of a large `tf.matmul`, the best of some tries.

    Stands in for the machine's multiply-add peak, which is some percent higher.
    """
    import tensorflow as tf

    a, b = (tf.cast(tf.random.uniform((size, size)), dtype) for _ in range(2))
    tf.matmul(a, b).numpy()
    best = min(clock(lambda: tf.matmul(a, b)[0, 0].numpy(), 1) for _ in range(tries))
    return 2.0 * size**3 / best
