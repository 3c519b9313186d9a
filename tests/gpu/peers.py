"""PyTorch's ways to the same results: cuDNN, packed sequences, loops of cells.

Each peer is a module: `forward(x)` gives outputs (T, B, U) of x (T, B, F), the layout
that cuDNN takes as it is. Weights come in Keras's order of gates.
"""

from __future__ import annotations

import torch
from torch import nn

from gpu.ours import GATES, Weights

# Where PyTorch has a gate of Keras's order, and the reverse: LSTM i, f, c, o and
# GRU z, r, h; PyTorch's GRU has r first.
_ORDER = {"lstm": (0, 1, 2, 3), "gru": (1, 0, 2)}


def _reordered(cell: str, value: torch.Tensor) -> torch.Tensor:
    """(GU, ...) with gates in the other's order."""
    gates = value.chunk(GATES[cell])
    return torch.cat([gates[index] for index in _ORDER[cell]])


class CuDNN(nn.Module):
    """torch.nn.LSTM or GRU; on a GPU, cuDNN with the algorithm that PyTorch picks.

    Args:
        cell: "lstm" or "gru".
        layers: the weights of each layer.
        lengths: (B,) on the host, falling: each row's steps. The input is packed and
            the output padded with zeros again, as for padded data.
    """

    def __init__(
        self, cell: str, layers: list[Weights], lengths: torch.Tensor | None = None
    ):
        super().__init__()
        self._cell = cell
        self._lengths = lengths
        first = layers[0].kernel
        units = layers[0].recurrent_kernel.shape[0]
        kind = {"lstm": nn.LSTM, "gru": nn.GRU}[cell]
        self._rnn = kind(
            first.shape[0], units, len(layers), device=first.device, dtype=first.dtype
        )
        with torch.no_grad():
            for index, weights in enumerate(layers):
                for name, value in self._converted(weights).items():
                    getattr(self._rnn, f"{name}_l{index}").copy_(value)
        self._rnn.flatten_parameters()

    def _converted(self, w: Weights) -> dict[str, torch.Tensor]:
        # PyTorch's LSTM has a second bias, too, that is added to the first.
        second = (
            torch.zeros_like(w.bias) if w.recurrent_bias is None else w.recurrent_bias
        )
        values = {
            "weight_ih": w.kernel.T,
            "weight_hh": w.recurrent_kernel.T,
            "bias_ih": w.bias,
            "bias_hh": second,
        }
        return {name: _reordered(self._cell, v) for name, v in values.items()}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._lengths is None:
            return self._rnn(x)[0]
        packed = nn.utils.rnn.pack_padded_sequence(x, self._lengths)
        outputs, _ = self._rnn(packed)
        return nn.utils.rnn.pad_packed_sequence(outputs, total_length=x.shape[0])[0]

    def kernel(self, x: torch.Tensor) -> str:
        """What PyTorch hands the work to, by the name of its gradient."""
        if self._lengths is not None:
            x = nn.utils.rnn.pack_padded_sequence(x, self._lengths)
        outputs = self._rnn(x)[0]
        data = outputs if self._lengths is None else outputs.data
        return data.grad_fn.name().removesuffix("Backward0")

    def named(self, gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Gradients of parameters, by the names and in the form of ours."""
        found = {}
        names = {
            "weight_ih": "kernel",
            "weight_hh": "recurrent_kernel",
            "bias_ih": "bias",
            "bias_hh": "recurrent_bias",
        }
        for name, gradient in gradients.items():
            theirs, layer = name.removeprefix("_rnn.").rsplit("_l", 1)
            if theirs == "bias_hh" and self._cell == "lstm":
                continue
            gradient = _reordered(self._cell, gradient)
            found[f"{names[theirs]} {layer}"] = (
                gradient.T if gradient.dim() == 2 else gradient
            )
        return found


class GateLoop(nn.Module):
    """A loop over time, with recurrent dropout gate by gate, as Keras has it.

    The inputs' product is one for all steps, and a step's recurrent products are one
    batched product.

    Args:
        cell: "lstm" or "gru".
        weights: of the layer.
        dropout: (B, G, U).
    """

    def __init__(self, cell: str, weights: Weights, dropout: torch.Tensor):
        super().__init__()
        self._cell = cell
        self._gates = GATES[cell]
        self._dropout = dropout.transpose(0, 1).contiguous()  # (G, B, U)
        units = weights.recurrent_kernel.shape[0]
        by_gate = weights.recurrent_kernel.view(units, self._gates, units)
        values = weights.named()
        values["recurrent_kernel"] = by_gate.transpose(0, 1).contiguous()  # (G, U, U)
        for name, value in values.items():
            self.register_parameter(name, nn.Parameter(value.clone()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps, batch, _ = x.shape
        units = self.recurrent_kernel.shape[1]
        gates_x = x @ self.kernel + self.bias
        gates_x = gates_x.view(steps, batch, self._gates, units).transpose(1, 2)
        h = c = x.new_zeros(batch, units)
        step = {"lstm": self._lstm, "gru": self._gru}[self._cell]
        outputs = []
        for inputs in gates_x.unbind(0):
            recurrent = torch.bmm(h * self._dropout, self.recurrent_kernel)
            h, c = step(inputs, recurrent, h, c)
            outputs.append(h)
        return torch.stack(outputs)

    def _lstm(self, inputs, recurrent, h, c):
        i, f, g, o = (inputs + recurrent).unbind(0)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def _gru(self, inputs, recurrent, h, c):
        recurrent = recurrent + self.recurrent_bias.view(self._gates, 1, -1)
        z = torch.sigmoid(inputs[0] + recurrent[0])
        r = torch.sigmoid(inputs[1] + recurrent[1])
        n = torch.tanh(inputs[2] + r * recurrent[2])
        return z * h + (1 - z) * n, c

    def named(self, gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        gradients = dict(gradients)
        by_gate = gradients["recurrent_kernel"]  # (G, U, U)
        whole = by_gate.transpose(0, 1).reshape(by_gate.shape[1], -1)
        gradients["recurrent_kernel"] = whole
        return {f"{name} 0": gradient for name, gradient in gradients.items()}


class CellLoop(nn.Module):
    """The loop that users write: torch.nn.LSTMCell, one mask for all gates.

    For a GRU that is another function: the state that a cell keeps is dropped, too.

    Args:
        weights: of an LSTM layer.
        dropout: (B, U).
    """

    def __init__(self, weights: Weights, dropout: torch.Tensor):
        super().__init__()
        features, _ = weights.kernel.shape
        units = weights.recurrent_kernel.shape[0]
        like = {"device": weights.kernel.device, "dtype": weights.kernel.dtype}
        self._cell = nn.LSTMCell(features, units, **like)
        self._dropout = dropout
        with torch.no_grad():
            self._cell.weight_ih.copy_(weights.kernel.T)
            self._cell.weight_hh.copy_(weights.recurrent_kernel.T)
            self._cell.bias_ih.copy_(weights.bias)
            self._cell.bias_hh.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(self._dropout.shape)
        outputs = []
        for inputs in x.unbind(0):
            h, c = self._cell(inputs, (h * self._dropout, c))
            outputs.append(h)
        return torch.stack(outputs)

    def named(self, gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        of = {name.removeprefix("_cell."): value for name, value in gradients.items()}
        return {
            "kernel 0": of["weight_ih"].T,
            "recurrent_kernel 0": of["weight_hh"].T,
            "bias 0": of["bias_ih"],
        }


class Trainer:
    """A peer's calls on sets of inputs, and its results in the form of ours."""

    def __init__(self, peer: nn.Module):
        self.peer = peer
        self._names, self._parameters = zip(*peer.named_parameters(), strict=True)

    def prepare(self, direction: str) -> None:
        """For calls of `forward`, or of `train`: cuDNN keeps what only these need."""
        self.peer.train(direction == "training")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.peer(x)

    def train(self, x: torch.Tensor, grad_outputs: torch.Tensor) -> dict:
        """Of x (T, B, F), which must require a gradient."""
        outputs = self.peer(x)
        wanted = [x, *self._parameters]
        d_x, *found = torch.autograd.grad(outputs, wanted, grad_outputs)
        gradients = dict(zip(self._names, found, strict=True))
        return {"outputs": outputs.detach(), "x": d_x, "gradients": gradients}

    def comparable(self, trained: dict) -> dict[str, torch.Tensor]:
        """What `train` returned, batch first and by the names of ours."""
        return {
            "outputs": trained["outputs"].transpose(0, 1),
            "x": trained["x"].transpose(0, 1),
            **self.peer.named(trained["gradients"]),
        }
