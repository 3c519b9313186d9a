"""The number types of the GPU engine, as NumPy arrays that hold their bits.

NumPy has no bfloat16: such numbers are the upper halves of float32 ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Dtype:
    """One way of computing.

    Attributes:
        code: in tests/cuda_on_cpu/entry.h.
        storage: what NumPy holds its numbers in.
        state: what an LSTM's saved c is held in.
        tensor_float_32: whether products round float32 operands to TF32.
        rounding: whose rounding the inputs need, by name: "float32" for types that
            hold all numbers of float32.
        bar: ‖actual - expected‖ / ‖expected‖ allowed after 20 steps.
        torch: PyTorch's name of the storage type.
    """

    name: str
    code: int
    storage: type
    state: type
    rounding: str
    bar: float
    torch: str
    tensor_float_32: bool = False

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Numbers as they are stored, rounded to the nearest, ties to even."""
        if self.name != "bfloat16":
            with np.errstate(over="ignore"):
                return np.asarray(values).astype(self.storage)
        single = np.asarray(values).astype(np.float32)
        bits = single.view(np.uint32)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        return np.where(np.isnan(single), 0x7FC0, rounded).astype(np.uint16)

    def decode(self, stored: np.ndarray) -> np.ndarray:
        """In float64. Takes arrays of the storage type and those of `state`."""
        if stored.dtype == np.uint16:
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        return stored.astype(np.float64)

    def round(self, values: np.ndarray) -> np.ndarray:
        return self.decode(self.encode(values))


DTYPES = {
    d.name: d
    for d in (
        Dtype("float16", 2, np.float16, np.float32, "float16", 2e-3, "float16"),
        Dtype("bfloat16", 3, np.uint16, np.float32, "bfloat16", 1e-2, "bfloat16"),
        Dtype("tf32", 0, np.float32, np.float32, "float32", 1e-3, "float32", True),
        Dtype("float32", 0, np.float32, np.float32, "float32", 1e-5, "float32"),
        Dtype("float64", 1, np.float64, np.float64, "float32", 1e-13, "float64"),
    )
}
CELL_CODES = {"lstm": 0, "gru_before": 1, "gru": 2}
PATHS = ("choose", "steps", "persistent")
