"""LSTM and GRU, forward and backward through time, in NumPy float64.

The slow and plain statement of what the fused ops must compute. It shares no
code with them and needs no TensorFlow. One driver walks the sequence (masks,
reset, direction, repeated or zero outputs); a cell knows one step and its
derivative. A masked row simply does not take the step, so nothing that stands
in its inputs can reach a result.

Shapes: B rows, T steps, F features, U units, G gates (4 for LSTM, 3 for GRU).
Sequences that go in are in input order; `outputs` is in processing order, as
Keras's `go_backwards` has it.
"""

from dataclasses import dataclass

import numpy as np

from reference_cells import GRUCell, LSTMCell, float64

__all__ = [
    "Forward",
    "GRUCell",
    "Gradient",
    "LSTMCell",
    "project",
    "project_gradient",
    "run",
    "run_gradient",
]


@dataclass
class Forward:
    """Results of `run`, and what `run_gradient` needs.

    Attributes:
        last_output: (B, U).
        outputs: (B, T, U) in processing order.
        states: final states, each (B, U): (h, c) or (h,).
        previous_h: (B, T, U) in input order: the h that entered each step.
    """

    last_output: np.ndarray
    outputs: np.ndarray
    states: tuple
    previous_h: np.ndarray
    cell: object
    steps: list
    mask: np.ndarray
    reset: np.ndarray
    order: list
    zero_output_for_mask: bool

    def kink_distance(self):
        """Distance of the nearest pre-activation to a kink; inf without kinks."""
        distances = [self.cell.kinks(s) for s in self.steps if s is not None]
        return min(distances, default=np.inf)


@dataclass
class Gradient:
    """Gradients of one scalar loss.

    Attributes:
        gates_x: (B, T, G * U) in input order, zero at masked steps.
        states: gradients of the initial states, each (B, U).
        recurrent_kernel: (U, G * U).
        bias: as the bias, or None.
    """

    gates_x: np.ndarray
    states: tuple
    recurrent_kernel: np.ndarray
    bias: np.ndarray | None


def run(
    cell,
    gates_x,
    initial_states=None,
    mask=None,
    reset=None,
    reverse=False,
    zero_output_for_mask=False,
):
    """Walks a cell over a sequence.

    Args:
        cell: LSTMCell or GRUCell.
        gates_x: (B, T, G * U) in input order; bias not yet added.
        initial_states: tuple of (B, U), or None for zeros.
        mask: (B, T) bool or None. False: the row skips the step.
        reset: (B, T) bool or None. True: states are zero before the step, masked
            or not.
        reverse: process t = T - 1 .. 0.
        zero_output_for_mask: output zero at masked steps instead of repeating.

    Returns:
        Forward.
    """
    gates_x = float64(gates_x)
    batch, steps, _ = gates_x.shape
    units = cell.units
    mask = np.ones((batch, steps), bool) if mask is None else np.asarray(mask, bool)
    reset = np.zeros((batch, steps), bool) if reset is None else np.asarray(reset, bool)
    if initial_states is None:
        initial_states = (np.zeros((batch, units)),) * cell.state_count
    states = [float64(s).copy() for s in initial_states]
    order = list(range(steps))[:: -1 if reverse else 1]
    output = np.zeros((batch, units))
    outputs = np.zeros((batch, steps, units))
    previous_h = np.zeros((batch, steps, units))
    tape = []
    for position, t in enumerate(order):
        for state in states:
            state[reset[:, t]] = 0.0
        previous_h[:, t] = states[0]
        rows = np.flatnonzero(mask[:, t])
        if zero_output_for_mask:
            output[:] = 0.0
        saved = None
        if rows.size:
            new, saved = cell.step(rows, gates_x[rows, t], [s[rows] for s in states])
            for state, value in zip(states, new, strict=True):
                state[rows] = value
            output[rows] = new[0]
        tape.append(saved)
        outputs[:, position] = output
    return Forward(
        last_output=output.copy(),
        outputs=outputs,
        states=tuple(states),
        previous_h=previous_h,
        cell=cell,
        steps=tape,
        mask=mask,
        reset=reset,
        order=order,
        zero_output_for_mask=zero_output_for_mask,
    )


def run_gradient(
    forward, grad_outputs=None, grad_last_output=None, grad_final_states=None
):
    """Backward through time, for incoming gradients of every result of `run`.

    Args:
        forward: what `run` returned.
        grad_outputs: (B, T, U) in processing order, or None.
        grad_last_output: (B, U) or None.
        grad_final_states: tuple of (B, U) or None entries, or None.

    Returns:
        Gradient.
    """
    cell = forward.cell
    batch, steps, units = forward.outputs.shape
    d_gates = np.zeros((batch, steps, cell.gate_count * units))
    weights = cell.weight_zeros()
    d_states = [np.zeros((batch, units)) for _ in range(cell.state_count)]
    for d_state, given in zip(
        d_states, grad_final_states or (None,) * cell.state_count, strict=True
    ):
        if given is not None:
            d_state += given
    # Gradient of the output that a later masked step repeats.
    d_repeated = np.zeros((batch, units))
    if grad_last_output is not None:
        d_repeated += grad_last_output
    for position in reversed(range(steps)):
        t = forward.order[position]
        d_output = d_repeated
        if grad_outputs is not None:
            d_output = d_output + grad_outputs[:, position]
        rows = np.flatnonzero(forward.mask[:, t])
        if rows.size:
            incoming = [d[rows] for d in d_states]
            incoming[0] = incoming[0] + d_output[rows]
            d_z, d_previous, d_weights = cell.step_gradient(
                forward.steps[position], incoming
            )
            d_gates[rows, t] = d_z
            for d_state, value in zip(d_states, d_previous, strict=True):
                d_state[rows] = value
            for name, value in d_weights.items():
                weights[name] += value
        repeats = ~forward.mask[:, t] & (not forward.zero_output_for_mask)
        d_repeated = np.where(repeats[:, None], d_output, 0.0)
        for d_state in d_states:
            d_state[forward.reset[:, t]] = 0.0
    return Gradient(
        gates_x=d_gates,
        states=tuple(d_states),
        recurrent_kernel=weights["recurrent_kernel"],
        bias=weights.get("bias"),
    )


def project(x, kernel, mask=None):
    """x (B, T, F) @ kernel (F, G * U), with masked steps of x set to zero."""
    return clear_masked(x, mask) @ float64(kernel)


def project_gradient(x, kernel, d_gates, mask=None):
    """Returns dx (B, T, F) and dW (F, G * U)."""
    x = clear_masked(x, mask)
    return d_gates @ float64(kernel).T, np.einsum("btf,btg->fg", x, d_gates)


def clear_masked(x, mask):
    x = float64(x)
    return x if mask is None else np.where(np.asarray(mask, bool)[..., None], x, 0.0)
