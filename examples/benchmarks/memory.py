"""Peak memory of a training step, each contender in a process of its own.

The figure is how far resident memory rises, at its highest during some training
steps, above the process with model and data in place, in units of B·T·U floats.

What TensorFlow allocates once (thread pools, oneDNN's code, the optimizer's
variables) must not count, so the model first trains on a batch of one row. The
allocator is then asked to return what it holds free (malloc_trim), or the warm-up's
leftovers would hide a part of the rise.

Resident memory depends on the allocator as well as on what is asked of it, so it is
measured under two:

- "default": with oneDNN, TensorFlow takes buffers of 256 KB and more from a pool of
  its own (BFC) that grows by regions of a power of two and returns nothing. A buffer
  that lands elsewhere in the next step makes more of the pool resident; this is what
  the user sees, and after some steps it stays the same. Buffers of a single time
  step are mostly smaller and come from malloc.
- "exact": malloc instead (TF_ONEDNN_USE_SYSTEM_ALLOCATOR=1), told to map every
  buffer of 64 KB and more by itself and to unmap it when it is freed: what the step
  needs, whatever an allocator makes of it. PyTorch takes everything from malloc.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.data import Data
from benchmarks.works import Work


@dataclass(frozen=True)
class Allocator:
    """Environment variables that choose it, and steps until the peak is there."""

    environment: dict[str, str]
    steps: int


ALLOCATORS = {
    "default": Allocator({}, steps=20),
    "exact": Allocator(
        {
            "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1",
            "MALLOC_MMAP_THRESHOLD_": "65536",
        },
        steps=3,
    ),
}


@dataclass(frozen=True)
class Peak:
    """Bytes of one process, and the rise in units of B·T·U floats."""

    baseline: int
    peak: int
    units: float
    method: str


class Net(Protocol):
    """A network of any backend."""

    def step(self, kind: str, data: Data) -> Callable[[], float]: ...


def _status(key: str) -> int:
    """A size in bytes from /proc/self/status, such as VmRSS."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return 1024 * int(line.split()[1])
    raise KeyError(key)


def _reset_high_water_mark() -> bool:
    """Sets VmHWM back to VmRSS; False where the system does not allow it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


class _Sampler(threading.Thread):
    """Stands in for VmHWM: reads resident memory again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            self.peak = max(self.peak, _status("VmRSS"))
            time.sleep(0.0005)

    def stop(self) -> int:
        self._end.set()
        self.join()
        return self.peak


def rise(net: Net, work: Work, steps: int) -> Peak:
    """Trains the network in this process and watches resident memory."""
    data = Data.random(work)
    step = net.step("training", data)
    warm_up = net.step("training", data.first_row())
    for _ in range(3):
        warm_up()
    ctypes.CDLL(None).malloc_trim(0)

    baseline = _status("VmRSS")
    sampler = None if _reset_high_water_mark() else _Sampler()
    if sampler:
        sampler.start()
    for _ in range(steps):
        step()
    peak = sampler.stop() if sampler else _status("VmHWM")
    units = (peak - baseline) / work.memory_unit
    return Peak(baseline, peak, units, "sampled" if sampler else "VmHWM")
