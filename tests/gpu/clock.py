"""How long PyTorch's work takes: on a GPU by its own clock, else by the host's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

# A call, given which of the sets of inputs it shall take.
Work = Callable[[int], object]

WARM_UP = 2
# A sample of several calls hides what the first of them waits for.
SAMPLE_MS = 4.0
MOST_CALLS = 64


@dataclass
class Times:
    """Of one call, in milliseconds: the samples' median, and their quartiles."""

    median: float
    low: float
    high: float
    samples: int


class Clock:
    def __init__(self, device: str):
        self.on_gpu = device == "cuda"

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def milliseconds(self, work: Callable[[], object]) -> float:
        """From idle to idle: a GPU's by events around what it was given."""
        self.synchronize()
        if not self.on_gpu:
            began = time.perf_counter()
            work()
            return 1e3 * (time.perf_counter() - began)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)


def interleaved(
    clock: Clock,
    works: dict[str, Work],
    sets: int,
    budget_s: float,
    rounds: tuple[int, int],
) -> dict[str, Times]:
    """Times several works in turns, so that what drifts drifts for all of them.

    Args:
        works: by name.
        sets: of inputs, which calls take in turn so that caches do not hold them.
        budget_s: about how long to measure.
        rounds: samples of each work, at least and at most.
    """
    taken = dict.fromkeys(works, 0)

    def calls(name: str, count: int) -> None:
        for _ in range(count):
            works[name](taken[name] % sets)
            taken[name] += 1

    counts, round_ms = {}, 0.0
    for name in works:
        calls(name, WARM_UP)
        once = clock.milliseconds(lambda name=name: calls(name, 1))
        counts[name] = max(1, min(MOST_CALLS, round(SAMPLE_MS / max(once, 1e-3))))
        round_ms += counts[name] * once
    least, most = rounds
    turns = max(least, min(most, round(1e3 * budget_s / round_ms)))
    samples = {name: [] for name in works}
    names = list(works)
    for turn in range(turns):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            count = counts[name]
            took = clock.milliseconds(lambda n=name, c=count: calls(n, c))
            samples[name].append(took / count)
    return {name: summary(values) for name, values in samples.items()}


def summary(samples: list[float]) -> Times:
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Times(median, low, high, len(samples))


class Graphed:
    """A work as a CUDA graph: the GPU need not wait for the host's launches."""

    def __init__(self, work: Work, sets: int):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work(0)
            work(0)
        torch.cuda.current_stream().wait_stream(side)
        self._graphs = []
        for index in range(sets):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                work(index)
            self._graphs.append(graph)

    def __call__(self, index: int) -> None:
        self._graphs[index % len(self._graphs)].replay()
