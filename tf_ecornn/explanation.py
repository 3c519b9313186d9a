"""Which recurrent layers of a model run fused, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import keras

from tf_ecornn.fused_cell import FusedCell
from tf_ecornn.layers import FusedRNN

# What is reported as a whole; everything else is searched.
_RECURRENT = (keras.layers.RNN, FusedCell)


class LayerReport(NamedTuple):
    """One recurrent layer or cell of a model, as `explain` finds it.

    Attributes:
        name: the layer's path in the model, e.g. "encoder/bidirectional/forward".
        kind: the layer's class, e.g. "tf_ecornn.LSTM".
        fused: whether it runs on the fused op.
        reason: why it does not, else empty.
    """

    name: str
    kind: str
    fused: bool
    reason: str


class Explanation(list):
    """A list of `LayerReport` that prints as a table."""

    def __str__(self) -> str:
        if not self:
            return "no recurrent layers"
        rows = [("layer", "class", "fused", "why not")]
        rows += [(r.name, r.kind, "yes" if r.fused else "no", r.reason) for r in self]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join(
            "  ".join(
                text.ljust(width) for text, width in zip(row, widths, strict=True)
            ).rstrip()
            for row in rows
        )

    __repr__ = __str__


def explain(model: keras.layers.Layer) -> Explanation:
    """Lists each recurrent layer of a model: fused or not, and why.

    A `tf_ecornn` cell that a model calls itself is listed like a layer.

    Args:
        model: a Keras model or layer. Nested models and wrappers are searched.

    Returns:
        A list of `LayerReport` that prints as a table.

    Raises:
        TypeError: `model` is not a Keras layer.

    Example:

    >>> print(tf_ecornn.explain(model))
    layer  class           fused  why not
    lstm   tf_ecornn.LSTM  yes
    """
    if not isinstance(model, keras.layers.Layer):
        raise TypeError(
            f"`model` must be a Keras model or layer. Received: model={model!r}"
        )
    reports = Explanation()
    seen: set[int] = set()

    def visit(layer: keras.layers.Layer, path: str) -> None:
        if id(layer) in seen:
            return
        seen.add(id(layer))
        if isinstance(layer, _RECURRENT):
            reports.append(_report(layer, path))
            return
        for inner in layer._flatten_layers(include_self=False, recursive=False):
            visit(inner, f"{path}/{inner.name}" if path else inner.name)

    visit(model, model.name if isinstance(model, _RECURRENT) else "")
    return reports


def _report(layer: keras.layers.Layer, path: str) -> LayerReport:
    if isinstance(layer, (FusedRNN, FusedCell)):
        reason = layer.unfused_reason() or ""
        kind = f"tf_ecornn.{type(layer).__name__}"
        return LayerReport(path, kind, not reason, reason)
    kind = f"{type(layer).__module__.split('.')[0]}.{type(layer).__name__}"
    reason = stock_reason(layer) or ""
    return LayerReport(path, kind, not reason, reason)


def _reason_of_stock(layer: keras.layers.RNN) -> str | None:
    reason = "not a tf_ecornn layer"
    if isinstance(layer.cell, FusedCell) and layer.cell.fused:
        reason += ", but each of its cell's steps is fused"
    return reason


# Why a layer of Keras is not fused. `python -m tf_ecornn` has another answer.
stock_reason: Callable[[keras.layers.RNN], str | None] = _reason_of_stock
