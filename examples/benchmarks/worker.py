"""Networks that do steps on request, in this process or in one of its own.

    python -m benchmarks.worker BACKEND THREADS

reads requests and writes replies, one JSON object a line:

    {"do": "start", "variant": "torch", "work": "u8-b2-t3-f2", "kind": "training"}
    {"first": 0.93}                 what the first step gave; a second one follows
    {"do": "time", "variant": "torch", "steps": 20}
    {"seconds": 0.51}               of all 20 steps
    {"do": "memory", "variant": "torch", "work": "u8-b2-t3-f2", "steps": 3}
    {"baseline": …, "peak": …, "units": …, "method": "VmHWM"}     see memory.py
    {"do": "versions"}
    {"torch": "2.13.0+cpu"}
    {"do": "stop"}                  forgets the networks
    {}

A failure is {"error": "…"}, and the process goes on. Between requests it is blocked
on its pipe, and its threads sleep, so that others can be timed. BACKEND is the module
keras_net or torch_net; nothing but numpy is imported besides it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TextIO

from benchmarks import memory
from benchmarks.data import Data
from benchmarks.works import Work

Step = Callable[[], float]

# OpenMP's threads wait in a loop for some milliseconds before they sleep. Forbidding
# it (OMP_WAIT_POLICY=passive) would make small PyTorch networks several times slower,
# so a process waits until they sleep before it replies.
SETTLE_S = 0.02


def clock(step: Step, count: int) -> float:
    """Seconds of `count` steps."""
    start = time.perf_counter()
    for _ in range(count):
        step()
    return time.perf_counter() - start


class Worker:
    """The networks of a backend that have started; one of each variant."""

    def __init__(self, backend: str, threads: int) -> None:
        self.backend = importlib.import_module(f"benchmarks.{backend}")
        self.backend.prepare(threads)
        self.steps: dict[str, Step] = {}

    def start(self, variant: str, work: str, kind: str) -> dict[str, float]:
        parsed = Work.parse(work)
        step = self.backend.Net(variant, parsed).step(kind, Data.random(parsed))
        first = step()
        step()
        self.steps[variant] = step
        return {"first": first}

    def time(self, variant: str, steps: int) -> dict[str, float]:
        return {"seconds": clock(self.steps[variant], steps)}

    def memory(self, variant: str, work: str, steps: int) -> dict[str, Any]:
        parsed = Work.parse(work)
        net = self.backend.Net(variant, parsed)
        return asdict(memory.rise(net, parsed, steps))

    def versions(self) -> dict[str, str]:
        return self.backend.versions()

    def stop(self) -> dict[str, Any]:
        self.steps.clear()
        self.backend.clean_up()
        return {}

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        self.stop()


REQUESTS = ("start", "time", "memory", "versions", "stop")


def serve(worker: Worker, requests: TextIO, replies: TextIO) -> None:
    """Answers until there are no more requests."""
    for line in requests:
        try:
            arguments = json.loads(line)
            do = arguments.pop("do", None)
            if do not in REQUESTS:
                raise ValueError(f"'do' must be one of {REQUESTS}, not {do!r}")
            reply = getattr(worker, do)(**arguments)
        except Exception as error:  # goes to the other side, which raises it
            reply = {"error": f"{type(error).__name__}: {error}"}
        time.sleep(SETTLE_S)
        print(json.dumps(reply), file=replies, flush=True)


def main() -> None:
    # What libraries print must not get among the replies.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    backend, threads = sys.argv[1:]
    serve(Worker(backend, int(threads)), sys.stdin, replies)


if __name__ == "__main__":
    main()
