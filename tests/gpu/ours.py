"""Layers on the GPU engine, with PyTorch's products for what runs in parallel.

What a TensorFlow layer of ours does: the inputs' product by cuBLAS, the recurrence
by the engine, and the gradients of weights and inputs by cuBLAS again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpu.dtypes import CELL_CODES, DTYPES, PATHS
from gpu.engine import Engine

GATES = {"lstm": 4, "gru": 3}


@dataclass
class Weights:
    """Of one layer, in Keras's order of gates.

    Attributes:
        kernel: (F, GU).
        recurrent_kernel: (U, GU).
        bias: (GU,).
        recurrent_bias: (GU,) of a GRU, whose reset gate comes after the product.
    """

    kernel: torch.Tensor
    recurrent_kernel: torch.Tensor
    bias: torch.Tensor
    recurrent_bias: torch.Tensor | None

    def named(self) -> dict[str, torch.Tensor]:
        return {name: value for name, value in vars(self).items() if value is not None}


class Layer:
    """One layer on the engine.

    Args:
        cell: "lstm" or "gru".
        dtype: of dtypes.DTYPES.
        path: of dtypes.PATHS.
        mask: (B, T) bool or None: masked steps put out zero.
        dropout: (B, G, U) or None.
    """

    def __init__(
        self,
        engine: Engine,
        cell: str,
        dtype: str,
        path: str,
        weights: Weights,
        mask: torch.Tensor | None = None,
        dropout: torch.Tensor | None = None,
    ):
        self._engine = engine
        self._cell = cell
        self._weights = weights
        self._mask = mask
        self._dropout = dropout
        self._state = torch.float64 if dtype == "float64" else torch.float32
        self._fixed = {
            "dtype": DTYPES[dtype].code,
            "cell": CELL_CODES[cell],
            "units": weights.recurrent_kernel.shape[0],
            "zero_output_for_mask": 1,
            "recurrent_activation": 1,  # sigmoid; tanh is 0
            "tensor_float_32": int(DTYPES[dtype].tensor_float_32),
            "path": PATHS.index(path),
            "recurrent_kernel": weights.recurrent_kernel.data_ptr(),
            "mask": 0 if mask is None else mask.data_ptr(),
            "recurrent_dropout": 0 if dropout is None else dropout.data_ptr(),
        }

    def forward(self, x: torch.Tensor, save: bool) -> dict[str, torch.Tensor]:
        """outputs (B, T, U) of x (B, T, F), and with `save` what `backward` needs."""
        batch, steps, features = x.shape
        units = self._fixed["units"]
        w = self._weights
        gates_x = (x.view(-1, features) @ w.kernel).view(batch, steps, -1)
        zero = x.new_zeros(batch, units)
        made = {
            "outputs": x.new_empty(batch, steps, units),
            "last_output": x.new_empty(batch, units),
            "final_h": x.new_empty(batch, units),
        }
        if self._cell == "lstm":
            made["final_c"] = x.new_empty(batch, units)
        if save:
            # Where nothing else needs them, the gates replace their inputs.
            made["gates"] = gates_x
            made["previous_h"] = x.new_empty(batch, steps, units)
            if self._cell == "lstm":
                made["previous_c"] = torch.empty_like(
                    made["previous_h"], dtype=self._state
                )
            else:
                made["candidate"] = x.new_empty(batch, steps, units)
        given = {"gates_x": gates_x, "bias": w.bias, "initial_h": zero}
        if self._cell == "lstm":
            given["initial_c"] = zero
        else:
            given["recurrent_bias"] = w.recurrent_bias
        self._run("forward", x, given | made)
        return made

    def backward(
        self, x: torch.Tensor, saved: dict, grad_outputs: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Gradients of x and the weights, by name. `saved` serves once."""
        units = self._fixed["units"]
        batch = x.shape[0]
        zero = x.new_zeros(batch, units)
        made = {
            "grad_gates": saved["gates"],
            "grad_initial_h": x.new_empty(batch, units),
            "grad_bias": torch.empty_like(self._weights.bias),
        }
        given = {
            "grad_last_output": zero,
            "grad_final_h": zero,
            "grad_outputs": grad_outputs,
        }
        names = ["gates", "previous_h"]
        if self._cell == "lstm":
            names.append("previous_c")
            given["grad_final_c"] = zero
            made["grad_initial_c"] = x.new_empty(batch, units)
        else:
            names.append("candidate")
            made["grad_candidate"] = torch.empty_like(saved["candidate"])
            made["grad_recurrent_bias"] = torch.empty_like(self._weights.bias)
        given |= {name: saved[name] for name in names}
        self._run("backward", x, given | made)
        d_gates = made["grad_gates"].view(-1, made["grad_gates"].shape[-1])
        rows = x.view(-1, x.shape[-1])
        grads = {
            "x": (d_gates @ self._weights.kernel.T).view(x.shape),
            "kernel": rows.T @ d_gates,
            "recurrent_kernel": self._recurrent_gradient(saved, made, d_gates),
            "bias": made["grad_bias"],
        }
        if self._cell == "gru":
            grads["recurrent_bias"] = made["grad_recurrent_bias"]
        return grads

    def _recurrent_gradient(self, saved, made, d_gates) -> torch.Tensor:
        """(U, GU): products of the states that entered the steps."""
        units = self._fixed["units"]
        before = saved["previous_h"]
        rows = before.view(-1, units)
        split = self._cell == "gru"
        if self._dropout is None and not split:
            return rows.T @ d_gates
        if self._dropout is None:
            last = made["grad_candidate"].view(-1, units)
            whole = (d_gates[:, : 2 * units], last)
            return torch.cat([rows.T @ part for part in whole], dim=1)
        parts = []
        for gate in range(GATES[self._cell]):
            kept = (before * self._dropout[:, None, gate]).view(-1, units)
            part = d_gates[:, gate * units : (gate + 1) * units]
            if split and gate == 2:
                part = made["grad_candidate"].view(-1, units)
            parts.append(kept.T @ part)
        return torch.cat(parts, dim=1)

    def _run(self, direction: str, x: torch.Tensor, tensors: dict) -> None:
        values = self._fixed | {
            "batch": x.shape[0],
            "steps": x.shape[1],
            **{name: tensor.data_ptr() for name, tensor in tensors.items()},
        }
        if x.is_cuda:
            values["stream"] = torch.cuda.current_stream().cuda_stream
        working = []

        def scratch(size: int) -> int:
            working.append(torch.empty(size, dtype=torch.uint8, device=x.device))
            return working[0].data_ptr()

        # What is freed here is taken up again by later work of this stream alone.
        self._engine.run(direction, values, scratch)


class Stack:
    """Layers one after another."""

    def __init__(self, layers: list[Layer]):
        self._layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """For inference: the last layer's outputs."""
        for layer in self._layers:
            x = layer.forward(x, save=False)["outputs"]
        return x

    def train(self, x: torch.Tensor, grad_outputs: torch.Tensor) -> dict:
        """Forward and backward: outputs, and gradients by name and layer."""
        inputs, tapes = [], []
        for layer in self._layers:
            inputs.append(x)
            tapes.append(layer.forward(x, save=True))
            x = tapes[-1]["outputs"]
        results = {"outputs": x}
        gradient = grad_outputs
        for index in reversed(range(len(self._layers))):
            grads = self._layers[index].backward(inputs[index], tapes[index], gradient)
            gradient = grads.pop("x")
            results |= {f"{name} {index}": value for name, value in grads.items()}
        return results | {"x": gradient}
