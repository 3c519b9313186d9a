"""The network of a work in PyTorch, and functions that do one step of it.

Runs in an environment of its own, with numpy and torch alone: see worker.py.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from benchmarks import data as inputs
from benchmarks.data import Data
from benchmarks.works import Work

Step = Callable[[], float]


def prepare(threads: int) -> None:
    """Before the first network."""
    torch.set_num_threads(threads)


def clean_up() -> None:
    """After the networks of a case."""
    gc.collect()


def versions() -> dict[str, str]:
    return {"torch": torch.__version__}


class Module(nn.Module):
    """The layers; all stacked ones in one `nn.LSTM` or `nn.GRU`."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.embedding = (
            nn.Embedding(work.vocabulary, work.features) if work.vocabulary else None
        )
        self.rnn = getattr(nn, work.cell.upper())(
            work.features,
            work.units,
            num_layers=work.layers,
            batch_first=True,
            bidirectional=work.bidirectional,
        )
        self.head = nn.Linear(work.units * work.directions, work.vocabulary or 1)

    def forward(self, x, lengths=None, states=None):
        """Predictions, and the states of all layers."""
        if self.embedding:
            x = self.embedding(x)
        if lengths is not None:
            x = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        outputs, states = self.rnn(x, states)
        if self.embedding:
            return self.head(outputs), states
        h = states[0] if isinstance(states, tuple) else states
        last = torch.cat((h[-2], h[-1]), dim=1) if self.rnn.bidirectional else h[-1]
        return self.head(last), states


class Net:
    """Variants: "torch", autocast to bfloat16 if the work's policy is mixed;
    "torch_pure", weights and everything in bfloat16."""

    def __init__(self, variant: str, work: Work) -> None:
        torch.manual_seed(0)
        self.work = work
        self.pure = variant == "torch_pure"
        self.autocast = work.policy == "mixed_bfloat16" and not self.pure
        self.module = Module(work).to(self._dtype())
        parameters = self.module.parameters()
        if work.vocabulary:
            self.optimizer = torch.optim.SGD(parameters, lr=0.01)
        else:
            self.optimizer = torch.optim.Adam(parameters)

    def step(self, kind: str, data: Data) -> Step:
        """A function that does one step of this kind and returns when it is done."""
        x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
        if self.work.vocabulary:
            x, y = x.long(), y.long().reshape(-1)
        else:
            x, y = x.to(self._dtype()), y.to(self._dtype())
        lengths = None if data.lengths is None else torch.from_numpy(data.lengths)
        if kind == "training":
            return lambda: self._train(x, y, lengths)
        self.module.eval()
        if kind == "inference":
            return lambda: self._infer(x, lengths, None)[0]
        return self._decode_step(x)

    def _dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.pure else torch.float32

    def _context(self) -> contextlib.AbstractContextManager:
        if self.autocast:
            return torch.autocast("cpu", dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def _train(self, x, y, lengths) -> float:
        """Forward, backward and update; gives the loss before the update."""
        self.optimizer.zero_grad()
        with self._context():
            predicted, _ = self.module(x, lengths)
            if self.work.vocabulary:
                logits = predicted.reshape(-1, self.work.vocabulary)
                loss = nn.functional.cross_entropy(logits, y)
            else:
                loss = nn.functional.mse_loss(predicted, y)
        loss.backward()
        if self.work.vocabulary:
            nn.utils.clip_grad_norm_(self.module.parameters(), 5.0)
        self.optimizer.step()
        return loss.item()

    def _infer(self, x, lengths, states):
        """The mean of the squared predictions, and the states."""
        with torch.inference_mode(), self._context():
            predicted, states = self.module(x, lengths, states)
            return predicted.float().square().mean().item(), states

    def _decode_step(self, x) -> Step:
        layers = inputs.states(self.work)
        stacked = [
            torch.stack(list(map(torch.from_numpy, one))) for one in zip(*layers)
        ]
        stacked = [one.to(self._dtype()) for one in stacked]
        states = tuple(stacked) if self.work.cell == "lstm" else stacked[0]

        def step() -> float:
            nonlocal states
            result, states = self._infer(x, None, states)
            return result

        return step
