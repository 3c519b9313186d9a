"""What is timed: a recurrent network's shape, and its multiply-adds."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PATTERN = re.compile(r"u(\d+)-b(\d+)-t(\d+)-f(\d+)(?:-l(\d+))?")
KINDS = ("training", "inference")


@dataclass(frozen=True)
class Work:
    """A stack of LSTM layers and a Dense(1) on the last step.

    Written u128-b64-t100-f32: 128 units, 64 rows, 100 steps, 32 features; -l2 at
    the end makes it two layers.
    """

    units: int
    batch: int
    timesteps: int
    features: int
    layers: int = 1

    @classmethod
    def parse(cls, text: str) -> Work:
        """The reverse of `name`.

        Raises:
            ValueError: the text is no such name, or a size is 0.
        """
        match = _PATTERN.fullmatch(text.strip().lower())
        sizes = [int(size) for size in match.groups(default="1")] if match else [0]
        if min(sizes) < 1:
            raise ValueError(f"{text!r} is no shape like u128-b64-t100-f32[-l2]")
        return cls(*sizes)

    @property
    def name(self) -> str:
        layers = f"-l{self.layers}" if self.layers > 1 else ""
        sizes = f"u{self.units}-b{self.batch}-t{self.timesteps}-f{self.features}"
        return sizes + layers

    @property
    def label(self) -> str:
        layers = f"{self.layers} × " if self.layers > 1 else ""
        return (
            f"{layers}U={self.units} B={self.batch} T={self.timesteps} "
            f"F={self.features}"
        )

    @property
    def memory_unit(self) -> int:
        """Bytes of B·T·U float32 values, the unit of peak memory."""
        return 4 * self.batch * self.timesteps * self.units

    def flops(self, kind: str) -> float:
        """Floating point operations of the matrix products, 2 a multiply-add.

        Forward: x·W and h·U. Backward: twice as much (a gradient for each factor),
        but nothing asks for the gradient of the first layer's x.
        """
        step = 2 * self.batch * self.timesteps * 4 * self.units
        total = 0.0
        for layer in range(self.layers):
            inputs = self.features if layer == 0 else self.units
            total += step * (inputs + self.units)
            if kind == "training":
                total += step * ((1 if layer == 0 else 2) * inputs + 2 * self.units)
        return total


# Shapes that real uses have: middling, small, the published classification
# benchmark, a long series, a large batch, and the two layers of a language model.
WORKS = tuple(
    Work.parse(name)
    for name in (
        "u128-b64-t100-f32",
        "u32-b32-t100-f8",
        "u1000-b100-t100-f1",
        "u64-b16-t2000-f8",
        "u64-b1024-t50-f16",
        "u256-b64-t32-f256-l2",
    )
)
QUICK_WORKS = tuple(work for work in WORKS if work.units < 1000)
MEMORY_WORK = Work.parse("u256-b64-t400-f64")
