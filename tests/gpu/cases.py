"""What is checked: every kernel, number type, path and option."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpu.dtypes import DTYPES
from problems import CELLS, MASK_KINDS
from reference_activations import ACTIVATIONS

PATHS = ("persistent", "steps")


@dataclass(frozen=True)
class Case:
    """A problem, and how it is computed.

    Attributes:
        options: more arguments of `problems.draw_problem`, as pairs.
        outputs: whether the sequence of outputs is asked for, or the last alone.
        margin: distance from the kinks of activations, 0 where there are none.
        gates_scale: other than 1, it makes the gates' inputs larger than any
            saturation; of gradients so small only that they are finite is asked.
        bar: allowed error, where it is not the type's.
        repeats: how many further runs must give the same bits; with 0, one run is
            all there is.
    """

    cell: str
    dtype: str
    path: str
    batch: int
    units: int
    steps: int
    options: tuple = ()
    outputs: bool = True
    margin: float = 0.0
    gates_scale: float = 1.0
    bar: float | None = None
    repeats: int = 1
    seed: int = 1

    @property
    def allowed(self) -> float:
        return self.bar or DTYPES[self.dtype].bar

    @property
    def problem(self) -> tuple:
        """The arguments of `references.drawn`."""
        arguments = {
            "cell": self.cell,
            "seed": self.seed,
            "batch": self.batch,
            "steps": self.steps,
            "units": self.units,
            "outputs": self.outputs,
            **dict(self.options),
        }
        rounding = DTYPES[self.dtype].rounding
        return rounding, self.margin, self.gates_scale, tuple(arguments.items())

    @property
    def saturated(self) -> bool:
        return self.gates_scale != 1.0

    @property
    def label(self) -> str:
        words = [
            self.cell,
            self.dtype,
            self.path,
            f"U={self.units} B={self.batch} T={self.steps}",
            *(f"{name}={value}" for name, value in self.options if value),
        ]
        words += [] if self.outputs else ["last output alone"]
        words += ["saturated"] if self.saturated else []
        return " ".join(words)


def _options(**values) -> tuple:
    return tuple(values.items())


_EVERYTHING = _options(mask="random", reset=True, dropout=True, reverse=True)


def plain(sizes: tuple, dtypes: tuple, cells: tuple = tuple(CELLS)) -> Iterator[Case]:
    """Twenty steps without and with all options, for sizes (units, batch)."""
    for (units, batch), cell in itertools.product(sizes, cells):
        for options in ((), _EVERYTHING):
            for dtype, path in itertools.product(dtypes, PATHS):
                yield Case(cell, dtype, path, batch, units, 20, options)


def option_combinations() -> Iterator[Case]:
    dtypes = tuple(DTYPES)
    flags = tuple(itertools.product((False, True), repeat=4))
    for cell, mask in itertools.product(CELLS, MASK_KINDS):
        for index, (reset, reverse, zero, dropout) in enumerate(flags):
            options = _options(
                mask=mask,
                reset=reset,
                reverse=reverse,
                zero_output_for_mask=zero,
                dropout=dropout,
                bias=index % 3 != 0,
            )
            dtype = dtypes[index % len(dtypes)]
            for path in PATHS:
                yield Case(cell, dtype, path, 5, 20, 6, options, outputs=index % 2 == 0)


def activations(names: tuple = tuple(ACTIVATIONS)) -> Iterator[Case]:
    """Each function in both places. The types differ in what lies near a kink."""
    margins = {"float64": 3e-5, "float32": 3e-5, "float16": 4e-3}
    for name, cell in itertools.product(names, CELLS):
        for options in (
            _options(activation=name),
            _options(activation="softsign", recurrent_activation=name),
        ):
            scale = 0.2 if name == "exponential" else 1.0
            for dtype, margin in margins.items():
                yield Case(
                    cell,
                    dtype,
                    "choose",
                    3,
                    9,
                    2,
                    (*options, ("scale", scale)),
                    margin=margin,
                    bar=5e-3 if dtype == "float16" else None,
                )


def inputs_with_their_kernel() -> Iterator[Case]:
    shapes = ((1, "none"), (5, "random"), (33, "right"), (128, "none"))
    for cell, (features, mask) in itertools.product(CELLS, shapes):
        for dtype in DTYPES:
            options = _options(features=features, mask=mask)
            yield Case(cell, dtype, "choose", 5, 20, 5, options)


def empty() -> Iterator[Case]:
    for cell, (batch, steps) in itertools.product(CELLS, ((0, 3), (2, 0), (0, 0))):
        for dtype in ("float32", "float16"):
            yield Case(cell, dtype, "choose", batch, 5, steps)
            yield Case(cell, dtype, "steps", batch, 5, steps)


def saturated() -> Iterator[Case]:
    for cell in CELLS:
        yield Case(cell, "float32", "choose", 3, 9, 4, gates_scale=1e4)
        yield Case(cell, "float16", "choose", 3, 9, 4, gates_scale=1e4)


def many_exchanges() -> Iterator[Case]:
    """Long sequences, many blocks, many times: a moving result is a race."""
    options = _options(mask="right", scale=0.7)
    for cell, dtype in itertools.product(CELLS, ("float16", "float32")):
        for batch, units in ((16, 256), (100, 300)):
            yield Case(
                cell,
                dtype,
                "persistent",
                batch,
                units,
                60,
                options,
                repeats=8,
            )


def small() -> Iterator[Case]:
    """Every kernel in its every use, in sizes that an emulation takes, too."""
    all_dtypes = tuple(DTYPES)
    yield from plain(((20, 1), (33, 5)), all_dtypes)
    yield from option_combinations()
    yield from activations()
    yield from inputs_with_their_kernel()
    yield from empty()
    yield from saturated()


def large() -> Iterator[Case]:
    """Weights that fill many multiprocessors; fewer steps, for the time it takes."""
    yield from plain(((200, 100),), tuple(DTYPES))
    yield from plain(((1000, 5),), ("float16", "tf32", "float32"))
    narrow = ("float16", "bfloat16", "tf32", "float32")
    for cell, dtypes in (("lstm", narrow), ("gru", ("float16",))):
        for case in plain(((1000, 100),), dtypes, (cell,)):
            if case.path == "persistent" or case.options:
                yield replace(case, steps=6)


def all_cases() -> Iterator[Case]:
    yield from small()
    yield from large()
    yield from many_exchanges()


def share(cases: Iterator[Case], index: int, count: int) -> Iterator[Case]:
    """One of `count` shares: cases of one problem stay together."""
    for number, (_, group) in enumerate(itertools.groupby(cases, _problem)):
        if number % count == index:
            yield from group


def _problem(case: Case) -> tuple:
    return case.problem


def quick_cases() -> Iterator[Case]:
    """A few of each kind, and every kernel."""
    for case in plain(((17, 2),), tuple(DTYPES)):
        # One path plain, the other with all options.
        if (case.path == "steps") == (case.options == ()):
            yield replace(case, steps=5)
    yield from itertools.islice(option_combinations(), 0, None, 53)
    yield from itertools.islice(activations(("relu", "gelu")), 0, None, 5)
    yield from itertools.islice(inputs_with_their_kernel(), 0, None, 8)
    yield from itertools.islice(empty(), 0, None, 9)
    yield from itertools.islice(saturated(), 0, None, 3)


def sanitizer_cases() -> Iterator[Case]:
    """Each kernel once or twice, few steps: a sanitizer is slow."""
    for case in plain(((33, 5),), tuple(DTYPES)):
        yield replace(case, steps=3, repeats=0)
    for case in inputs_with_their_kernel():
        if ("features", 5) in case.options:
            yield replace(case, steps=2, repeats=0)
