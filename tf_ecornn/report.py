"""What `python -m tf_ecornn --report` says at the end of a program.

Two sources meet: the layers tell at each trace and eager call whether they are fused,
and in which name scope; the kernels count, node by node, what their executions take.
A node belongs to the layer whose scope is in its name.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_ecornn import _library, fused_cell
from tf_ecornn.switch import STORED

# Sizes of square matrices whose products measure the machine. A large one takes all
# cores to their peak, a small one is more often left in peace by other processes.
_PEAK_SIZES = (512, 1024, 2048)
_PEAK_SECONDS = 0.1  # for each size, at least two products

_HEADER = (
    *("layer", "class", "fused", "forward", "gradient", "time"),
    *("floor", "bytes", "why not"),
)
_NOTES = """\
forward, gradient: how often the fused ops ran. time: inside them, all runs together;
TensorFlow's products over all time steps are not in it. floor: the share of that time
that the multiply-adds at unmasked steps need at the machine's peak. bytes: results of
the largest forward run, with what it keeps for the gradient. "-": not measured; eager
runs are counted together, runs inside XLA's programs not at all."""


class Key(NamedTuple):
    """What a line of the report is about: layers that a reader cannot tell apart."""

    layer: str
    kind: str
    reason: str | None


class Node(NamedTuple):
    """What the runs of a graph's node took, or all runs of an op in eager mode.

    Attributes:
        name: the node's, in eager mode the op's.
        op: e.g. "EcoRNN>LstmGrad".
        dtype: e.g. "float".
        calls: how many.
        nanoseconds, multiply_adds: sums. No time is measured on a GPU.
        bytes: those of the outputs of the largest run.
    """

    name: str
    op: str
    dtype: str
    calls: int
    nanoseconds: int
    multiply_adds: int
    bytes: int

    @property
    def is_gradient(self) -> bool:
        """Whether the op is a gradient op."""
        return self.op.endswith("Grad")

    @property
    def is_eager(self) -> bool:
        """Whether it stands for all eager runs of an op."""
        return self.name == self.op


def recorded_nodes() -> list[Node]:
    """All that has run since the record began."""
    rows = [line.split("\t") for line in _library.recorded().splitlines()]
    return [Node(*row[:3], *map(int, row[3:])) for row in rows]


class Report:
    """Collects what the layers tell, and puts it beside what the kernels counted."""

    def __init__(self) -> None:
        # In the order in which they were first seen; with whether it is a cell.
        self._is_cell: dict[Key, bool] = {}
        self._scopes: dict[str, Key] = {}
        self._stored: dict[str, bool] = {}

    def note(self, layer: Any, reason: str | None) -> None:
        """An observer for `fused_cell.observers`."""
        # The switch hands over a stock layer inside another object.
        layer = getattr(layer, "layer", layer)
        path = layer.path or layer.name
        is_cell = not isinstance(layer, keras.layers.RNN)
        if reason == STORED:
            self._stored[path] = is_cell
            return
        package = type(layer).__module__.partition(".")[0]
        key = Key(path, f"{package}.{type(layer).__name__}", reason)
        if reason is None and not tf.executing_eagerly():
            # Layers of equal scopes, in the graphs of a model and its copy, have nodes
            # of equal names: they count together.
            scope = tf.get_current_name_scope()
            first = self._scopes.get(scope)
            if first is not None and first.kind == key.kind:
                key = first
            self._scopes[scope] = key
        self._is_cell[key] = is_cell

    def rows(self, nodes: Sequence[Node], peaks: dict[str, float]) -> list[tuple]:
        """The table's cells, row by row.

        Args:
            nodes: what has run.
            peaks: multiply-adds a second by the name of a dtype.
        """
        found: dict[Key, list[Node]] = {k: [] for k in self._is_cell}
        for node in nodes:
            found.setdefault(self._key_of(node), []).append(node)
        listed = {key.layer: is_cell for key, is_cell in self._is_cell.items()}
        return [
            (*_first_cells(key), *_figures(found[key], peaks), key.reason or "")
            for key in found
            if found[key] or not _is_in_a_layer(key.layer, listed)
        ]

    def stored_layers(self) -> list[str]:
        """The layers, and the cells without one, that were traced to be stored."""
        return [path for path in self._stored if not _is_in_a_layer(path, self._stored)]

    def _key_of(self, node: Node) -> Key:
        name = f"/{node.name}"
        scopes = [scope for scope in self._scopes if f"/{scope}/" in name]
        if scopes:
            return self._scopes[max(scopes, key=len)]
        where = "(eager, any layer)" if node.is_eager else f"({node.name})"
        return Key(where, node.op.removesuffix("Grad"), None)


def measured_peak(dtype: tf.DType) -> float:
    """The machine's multiply-adds a second, by TensorFlow's matrix product."""
    rates = []
    for size in _PEAK_SIZES:
        times = []
        with tf.device("CPU"):
            matrix = tf.ones((size, size), dtype)
            while len(times) < 2 or sum(times) < _PEAK_SECONDS:
                start = time.perf_counter()
                tf.matmul(matrix, matrix)
                times.append(time.perf_counter() - start)
        rates.append(size**3 / min(times))
    return max(rates)


def _peaks(nodes: Sequence[Node]) -> dict[str, float]:
    """The peak for each dtype that has run; none where only graphs can be run."""
    if not tf.executing_eagerly():
        return {}
    # The narrow types are computed in float32.
    computed = {
        n.dtype: tf.float64 if n.dtype == "double" else tf.float32 for n in nodes
    }
    peaks = {dtype: measured_peak(dtype) for dtype in set(computed.values())}
    return {name: peaks[dtype] for name, dtype in computed.items()}


def _is_in_a_layer(path: str, listed: dict[str, bool]) -> bool:
    """Whether it is the cell of a layer that is listed; cells by path."""
    return listed.get(path, False) and any(
        path.startswith(f"{other}/") for other, is_cell in listed.items() if not is_cell
    )


def _first_cells(key: Key) -> tuple[str, str, str]:
    return key.layer, key.kind, "no" if key.reason else "yes"


def _figures(nodes: list[Node], peaks: dict[str, float]) -> tuple[str, ...]:
    """Cells "forward" to "bytes" for a layer's nodes."""
    if not nodes:
        return ("-",) * 5
    counts = [sum(n.calls for n in nodes if n.is_gradient == g) for g in (False, True)]
    seconds = 1e-9 * sum(node.nanoseconds for node in nodes)
    floor = sum(node.multiply_adds / peaks[node.dtype] for node in nodes if peaks)
    largest = max((n.bytes for n in nodes if not n.is_gradient), default=None)
    return (
        *map(str, counts),
        _with_unit(seconds, "s") if seconds else "-",
        f"{floor / seconds:.0%}" if seconds and peaks else "-",
        "-" if largest is None else _with_unit(largest, "B"),
    )


def _with_unit(value: float, unit: str) -> str:
    """Three digits and a unit with its prefix, e.g. "1.25 ms"."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value / 1e-6:.3g} µ{unit}"


def _text(report: Report, nodes: Sequence[Node], peaks: dict[str, float]) -> str:
    lines = ["tf_ecornn: recurrent layers"]
    rows = [_HEADER, *report.rows(nodes, peaks)]
    if len(rows) == 1:
        lines.append("none have run")
    else:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        lines.append(_NOTES)
    lines += [
        f"Peak for {', '.join(name for name in peaks if peaks[name] == peak)}: "
        f"{_with_unit(peak, '')} multiply-adds a second, by tf.matmul just now."
        for peak in sorted(set(peaks.values()), reverse=True)
    ]
    if report.stored_layers():
        layers = ", ".join(report.stored_layers())
        lines.append(f"Keras's own loop, where it was {STORED}: {layers}.")
    return "\n".join(lines)


def _print_at_exit(report: Report, process: int) -> None:
    # A forked child comes here too, without TensorFlow's threads.
    if os.getpid() != process:
        return
    _library.record(False)
    nodes = recorded_nodes()
    text = _text(report, nodes, _peaks(nodes))
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()
    print(f"\n{text}", file=sys.stderr)


def start_report() -> None:
    """Begins to record, and prints the report on stderr when the process ends."""
    report = Report()
    fused_cell.observers.append(report.note)
    _library.record(True)
    atexit.register(_print_at_exit, report, os.getpid())
