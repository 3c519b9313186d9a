"""Arrays in the memory that the engine works in: NumPy's, or a GPU's by PyTorch.

Every array begins at a multiple of 256 bytes, as a GPU's do, and is followed by
guard bytes that nothing may change. PyTorch only allocates and copies: under
compute-sanitizer no kernels but the engine's run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

ALIGNMENT = 256
GUARD = np.full(64, 0xA5, np.uint8)
# Of every byte: NaN in all number types.
POISON = 0xFF


@dataclass
class Array:
    """`shape` numbers of `dtype` at `pointer`, held alive by `block`."""

    memory: Any
    block: Any
    pointer: int
    dtype: np.dtype
    shape: tuple

    def _bytes(self) -> np.ndarray:
        return self.memory.fetch(self.block)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def read(self) -> tuple[np.ndarray, bool]:
        """The numbers, and whether the guard is as it was."""
        raw = self._bytes()
        values = raw[: self.size].view(self.dtype).reshape(self.shape)
        return values, bool((raw[self.size :] == GUARD).all())


class HostMemory:
    """For the emulated engine."""

    device = "cpu"

    def place(self, raw: np.ndarray) -> tuple[Any, int]:
        """Copies bytes to where the engine can reach them: (block, address)."""
        block = np.empty(raw.size + ALIGNMENT, np.uint8)
        start = -block.ctypes.data % ALIGNMENT
        block[start : start + raw.size] = raw
        return block[start : start + raw.size], block.ctypes.data + start

    def fetch(self, block: Any) -> np.ndarray:
        return block.copy()

    def stream(self) -> int:
        return 0


class DeviceMemory:
    """Of a GPU, by way of PyTorch."""

    device = "cuda"

    def __init__(self):
        import torch

        self._torch = torch

    def place(self, raw: np.ndarray) -> tuple[Any, int]:
        block = self._torch.from_numpy(raw).to("cuda")
        assert block.data_ptr() % ALIGNMENT == 0, block.data_ptr()
        return block, block.data_ptr()

    def fetch(self, block: Any) -> np.ndarray:
        # Waits for the kernels; what went wrong in them is raised here.
        return block.cpu().numpy()

    def stream(self) -> int:
        return self._torch.cuda.current_stream().cuda_stream


def put(memory, values: np.ndarray) -> Array:
    values = np.ascontiguousarray(values)
    raw = np.concatenate([values.reshape(-1).view(np.uint8), GUARD])
    block, pointer = memory.place(raw)
    return Array(memory, block, pointer, values.dtype, values.shape)


def poisoned(memory, shape: tuple, dtype: type) -> Array:
    """An array for results, full of NaN."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.concatenate([np.full(size, POISON, np.uint8), GUARD])
    block, pointer = memory.place(raw)
    return Array(memory, block, pointer, dtype, tuple(shape))
