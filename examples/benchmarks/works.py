"""What is timed: a recurrent network, what is done with it, and its multiply-adds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

KINDS = ("training", "inference", "decode")
GATES = {"lstm": 4, "gru": 3}
RECURRENT_DROPOUT = 0.2
# Options at the end of a name, in this order: what they set, and how labels say it.
_OPTIONS = {
    "fp16": ("policy", "mixed_float16", "float16"),
    "bf16": ("policy", "mixed_bfloat16", "bfloat16"),
    "before": ("reset_before", True, "reset before"),
    "masked": ("masked", True, "masked"),
    "rdrop": ("dropped", True, "recurrent dropout"),
    "bidi": ("bidirectional", True, "bidirectional"),
}
_SIZES = {
    "u": "units",
    "b": "batch",
    "t": "timesteps",
    "f": "features",
    "l": "layers",
    "v": "vocabulary",
}
_SIZE = re.compile(r"([ubtflv])(\d+)")


@dataclass(frozen=True)
class Work:
    """A stack of recurrent layers, and a Dense(1) on the last step.

    Written gru-u128-b64-t100-f32-l2-bf16: cell (lstm if it is left out), units,
    batch, time steps, features, layers (1 if left out) and options:

    - fp16, bf16: policy mixed_float16 or mixed_bfloat16; float32 if left out;
    - before: a GRU with `reset_after=False`;
    - masked: rows of lengths drawn evenly from 1 to T, padded on the right;
    - rdrop: `recurrent_dropout=0.2`;
    - bidi: each layer in both directions, `units` of each.

    -v10000 makes it a language model: an embedding of so many words as wide as
    `features` in front, and logits of all words behind every step.
    """

    units: int
    batch: int
    timesteps: int
    features: int
    layers: int = 1
    vocabulary: int = 0
    cell: str = "lstm"
    policy: str = "float32"
    reset_before: bool = False
    masked: bool = False
    dropped: bool = False
    bidirectional: bool = False

    @classmethod
    def parse(cls, text: str) -> Work:
        """The reverse of `name`.

        Raises:
            ValueError: the text is no such name, or names no sensible work.
        """

        def refuse(why: str) -> ValueError:
            example = "[gru-]u128-b64-t100-f32[-l2][-v10000][-bf16][-masked]"
            return ValueError(f"{text!r} is no work like {example}: {why}")

        given: dict[str, object] = {}
        tokens = text.strip().lower().split("-")
        if tokens[0] in GATES:
            given["cell"] = tokens.pop(0)
        for token in tokens:
            size = _SIZE.fullmatch(token)
            if size:
                key, value = _SIZES[size[1]], int(size[2])
            elif token in _OPTIONS:
                key, value, _ = _OPTIONS[token]
            else:
                raise refuse(f"unknown part {token!r}")
            if key in given:
                raise refuse(f"{key} is there twice")
            if size and value < 1:
                raise refuse(f"{key} must be at least 1")
            given[key] = value
        missing = [key for key in list(_SIZES.values())[:4] if key not in given]
        if missing:
            raise refuse(f"no {', '.join(missing)}")
        # Each key was given a value of its field's type.
        work = cls(**given)  # type: ignore[arg-type]
        if work.reset_before and work.cell != "gru":
            raise refuse("only a GRU resets before or after")
        if work.vocabulary and (work.masked or work.bidirectional):
            raise refuse("a language model is neither masked nor bidirectional")
        return work

    @cached_property
    def name(self) -> str:
        optional = {"layers": 1, "vocabulary": 0}
        parts = [] if self.cell == "lstm" else [self.cell]
        for letter, key in _SIZES.items():
            value = getattr(self, key)
            if value != optional.get(key):
                parts.append(f"{letter}{value}")
        return "-".join(parts + [token for token, _ in self._options()])

    @cached_property
    def label(self) -> str:
        layers = f"{self.layers} × " if self.layers > 1 else ""
        parts = [
            f"{layers}{self.cell.upper()} U={self.units}",
            f"B={self.batch} T={self.timesteps} F={self.features}",
        ]
        if self.vocabulary:
            parts.append(f"V={self.vocabulary}")
        return " ".join(parts + [word for _, word in self._options()])

    def _options(self) -> list[tuple[str, str]]:
        return [
            (token, word)
            for token, (key, value, word) in _OPTIONS.items()
            if getattr(self, key) == value
        ]

    def excludes(self, kind: str) -> str | None:
        """Why there is no such kind of this work; None if there is."""
        if self.vocabulary and kind != "training":
            return "language models are timed in training alone"
        if kind == "decode" and self.timesteps > 1:
            return "decoding is one step: T=1"
        if kind == "decode" and (self.masked or self.bidirectional):
            return "decoding is neither masked nor bidirectional"
        if kind != "training" and self.dropped:
            return "recurrent dropout is a matter of training"
        return None

    @cached_property
    def lengths(self) -> np.ndarray:
        """Valid steps of each row, (B,)."""
        if not self.masked:
            return np.full(self.batch, self.timesteps)
        rng = np.random.default_rng(1)
        return rng.integers(1, self.timesteps + 1, self.batch)

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def memory_unit(self) -> int:
        """Bytes of B·T·U float32 values, the unit of peak memory."""
        return 4 * self.batch * self.timesteps * self.units

    @property
    def logits_bytes(self) -> int:
        """Bytes of a language model's float32 logits, by far its largest tensor."""
        return 4 * self.batch * self.timesteps * self.vocabulary

    def flops(self, kind: str) -> float:
        """Floating point operations of the matrix products, 2 a multiply-add.

        Forward: x·W and h·U at valid steps. Backward: twice as much (a gradient for
        each factor), but nothing asks for the gradient of the first layer's x,
        unless an embedding is behind it. A language model's logits count, a Dense(1)
        does not.
        """
        steps = int(self.lengths.sum())
        # Of one row at one step, for each of its inputs.
        step = 2.0 * steps * GATES[self.cell] * self.units * self.directions
        backward = 2 if kind == "training" else 0
        total = (1 + backward) * 2.0 * steps * self.units * self.vocabulary
        for layer in range(self.layers):
            first = layer == 0
            inputs = self.features if first else self.units * self.directions
            x_backward = min(backward, 1) if first and not self.vocabulary else backward
            total += step * ((1 + x_backward) * inputs + (1 + backward) * self.units)
        return total


@dataclass(frozen=True)
class Case:
    """A work, and what is done with it: one of KINDS."""

    work: Work
    kind: str

    @property
    def label(self) -> str:
        return f"{self.kind}, {self.work.label}"
