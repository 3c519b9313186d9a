"""The GPU engine through its C functions (tests/cuda_on_cpu/entry.h).

The arguments are plain numbers and addresses, so any framework's memory will do.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "tests" / "cuda_on_cpu" / "entry.h"
DIRECTIONS = ("forward", "backward")


class EngineError(Exception):
    """A call that the engine refused, with the cudaError_t `code`."""

    def __init__(self, what: str, code: int, text: str):
        super().__init__(f"{what}: {text} (error {code})")


class DoesNotFit(EngineError):
    """The planner found no plan of the path that was asked for, on this device."""


# cudaErrorInvalidValue.
_INVALID_VALUE = 1


def read_fields(struct: str) -> tuple[str, ...]:
    """The names of a C struct's fields; those of a struct in it in its place."""
    body = re.search(rf"struct {struct} {{(.*?)\n}};", HEADER.read_text(), re.DOTALL)
    names = []
    for line in body.group(1).splitlines():
        field = re.match(r"\s*(.+?)\s*\b(\w+);", line)
        if field is None:
            continue
        kind, name = field.groups()
        names += read_fields(kind) if kind.startswith("Ecornn") else [name]
    return tuple(names)


class Engine:
    """A loaded library of the engine."""

    def __init__(self, library: Path):
        self._library = ctypes.CDLL(str(library))
        self._library.ecornn_cuda_error_text.restype = ctypes.c_char_p
        self._emulated = hasattr(self._library, "ecornn_emulation_error")
        if self._emulated:
            self._library.ecornn_emulation_error.restype = ctypes.c_char_p
        self._fields = {}
        for direction in DIRECTIONS:
            fields = read_fields(f"EcornnCuda{direction.capitalize()}")
            size = getattr(self._library, f"ecornn_cuda_{direction}_bytes")
            size.restype = ctypes.c_int64
            if size() != 8 * len(fields):
                raise RuntimeError(
                    f"{library} has {size()} bytes of {direction} arguments, and "
                    f"{HEADER.name} has {8 * len(fields)}; build it again."
                )
            self._fields[direction] = fields

    def scratch_bytes(self, direction: str, values: dict[str, int]) -> int:
        size = ctypes.c_int64()
        ask = getattr(self._library, f"ecornn_cuda_{direction}_scratch")
        struct = self._pack(direction, values)
        code = ask(struct, ctypes.byref(size))
        # Only the planner has been at work.
        kind = DoesNotFit if code == _INVALID_VALUE else EngineError
        self._check(code, f"plan of {direction}", kind)
        return size.value

    def run(
        self, direction: str, values: dict[str, int], scratch: Callable[[int], int]
    ) -> None:
        """Enqueues a call.

        Args:
            direction: "forward" or "backward".
            values: the struct's fields, 0 where absent.
            scratch: gives the address of so many bytes of working memory, which
                must live until the call's work is done.

        Raises:
            DoesNotFit: the device is too small for a persistent call.
            EngineError: the engine refused the call.
        """
        address = scratch(self.scratch_bytes(direction, values))
        struct = self._pack(direction, values | {"scratch": address})
        call = getattr(self._library, f"ecornn_cuda_{direction}")
        self._check(call(struct), direction)

    def _pack(self, direction: str, values: dict[str, int]):
        fields = self._fields[direction]
        unknown = values.keys() - fields
        if unknown:
            raise ValueError(f"no such arguments of {direction}: {sorted(unknown)}")
        numbers = [values.get(name, 0) for name in fields]
        return (ctypes.c_int64 * len(fields))(*numbers)

    def _check(self, code: int, what: str, kind: type = EngineError) -> None:
        if code == 0:
            return
        text = self._library.ecornn_cuda_error_text(code).decode()
        if self._emulated:
            text = f"{text} {self._library.ecornn_emulation_error().decode()}".strip()
        raise kind(what, code, text)
