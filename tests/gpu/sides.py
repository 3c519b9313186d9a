"""The two sides of a timed work: the same weights, inputs and random masks."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from gpu.dtypes import DTYPES
from gpu.engine import Engine
from gpu.ours import GATES, Layer, Stack, Weights
from gpu.peers import CellLoop, CuDNN, GateLoop, Trainer
from gpu.workloads import Work

# Inputs are so many bytes in all that no cache holds them, or so many sets.
ROTATED_BYTES = 160 << 20
MOST_SETS = 12

Pairs = list[tuple[torch.Tensor, torch.Tensor]]


@dataclass
class Data:
    """Sets of x and of the outputs' gradient: (B, T, ·) ours, (T, B, ·) theirs."""

    ours: Pairs = field(default_factory=list)
    theirs: Pairs = field(default_factory=list)


def torch_type(dtype: str) -> torch.dtype:
    return getattr(torch, DTYPES[dtype].torch)


def set_precision(dtype: str) -> None:
    """PyTorch's float32 products as the type asks for them."""
    allowed = DTYPES[dtype].tensor_float_32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def draw_data(work: Work, dtype: str, device: str) -> Data:
    kind = torch_type(dtype)
    widths = work.features, work.units
    size = work.batch * work.steps * sum(widths) * kind.itemsize
    data = Data()
    for _ in range(max(2, min(MOST_SETS, ROTATED_BYTES // size))):
        x, gradient = (
            torch.randn(work.batch, work.steps, width, device=device).to(kind)
            for width in widths
        )
        data.ours.append((x, gradient))
        x, gradient = (v.transpose(0, 1).contiguous() for v in (x, gradient))
        data.theirs.append((x.requires_grad_(), gradient))
    return data


def draw_weights(work: Work, cell: str, dtype: str, device: str) -> list[Weights]:
    width = GATES[cell] * work.units

    def normal(*shape: int, scale: float) -> torch.Tensor:
        return (scale * torch.randn(shape, device=device)).to(torch_type(dtype))

    return [
        Weights(
            normal(features, width, scale=features**-0.5),
            normal(work.units, width, scale=0.8 * work.units**-0.5),
            normal(width, scale=0.3),
            normal(width, scale=0.3) if cell == "gru" else None,
        )
        for features in work.layer_features()
    ]


def draw_dropout(work: Work, like: torch.Tensor) -> torch.Tensor:
    """(B, U), for all gates the same: PyTorch's LSTMCell can have no other."""
    generator = torch.Generator().manual_seed(2)
    kept = torch.randint(0, 2, (work.batch, work.units), generator=generator)
    return (2 * kept).to(like)


def our_stacks(
    engine: Engine,
    work: Work,
    cell: str,
    dtype: str,
    layers: list[Weights],
    paths: tuple[str, ...],
) -> dict[str, Stack]:
    """By path."""
    like = layers[0].kernel
    mask = dropout = None
    if work.lengths:
        lengths = torch.tensor(work.row_lengths(), device=like.device)
        mask = torch.arange(work.steps, device=like.device) < lengths[:, None]
    if work.dropout:
        dropout = draw_dropout(work, like)[:, None].repeat(1, GATES[cell], 1)
    return {
        path: Stack(
            [Layer(engine, cell, dtype, path, w, mask, dropout) for w in layers]
        )
        for path in paths
    }


def their_trainers(work: Work, cell: str, layers: list[Weights]) -> dict[str, Trainer]:
    """By name; ours are compared with the results of the first one."""
    if work.lengths:
        lengths = torch.tensor(work.row_lengths())
        return {"packed": Trainer(CuDNN(cell, layers, lengths))}
    if not work.dropout:
        return {"cudnn": Trainer(CuDNN(cell, layers))}
    dropout = draw_dropout(work, layers[0].kernel)
    by_gate = dropout[:, None].expand(-1, GATES[cell], -1)
    found = {"loop": Trainer(GateLoop(cell, layers[0], by_gate))}
    if cell == "lstm":
        found["cells"] = Trainer(CellLoop(layers[0], dropout))
    return found
