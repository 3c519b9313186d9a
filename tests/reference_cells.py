"""One step of an LSTM and of a GRU, and its derivative, in NumPy float64.

Shapes: R rows that take the step, U units. Gates lie side by side in the last
axis, in Keras's order.
"""

import numpy as np

from reference_activations import Activation, get_activation


class LSTMCell:
    """Gates i, f, c, o. States (h, c).

        z_k = gates_x_k + bias_k + (h * dropout_k) @ U_k
        c' = f * c + i * act(z_c)        h' = o * act(c')

    Args:
        recurrent_kernel: (U, 4U).
        bias: (4U,) or None.
        recurrent_dropout: (B, 4, U) or None; multiplies h, gate by gate.
    """

    gate_count = 4
    state_count = 2

    def __init__(
        self,
        recurrent_kernel,
        bias=None,
        activation="tanh",
        recurrent_activation="sigmoid",
        recurrent_dropout=None,
    ):
        self.units = recurrent_kernel.shape[0]
        self.kernels = split_gates(float64(recurrent_kernel), 4)
        self.bias = None if bias is None else float64(bias)
        self.act: Activation = get_activation(activation)
        self.rec: Activation = get_activation(recurrent_activation)
        self.dropout = optional64(recurrent_dropout)

    def step(self, rows, gates_x, states):
        """One step of the given rows.

        Args:
            rows: indices (R,) into the batch, for the dropout masks.
            gates_x: (R, 4U) without bias.
            states: (h, c), each (R, U).

        Returns:
            (h', c') and what `step_gradient` needs.
        """
        h, c = states
        dropped = dropped_states(self.dropout, rows, h, 4)
        z = [
            x + d @ k
            for x, d, k in zip(
                split_gates(gates_x, 4), dropped, self.kernels, strict=True
            )
        ]
        if self.bias is not None:
            z = [a + b for a, b in zip(z, split_gates(self.bias, 4), strict=True)]
        i, f, g, o = (
            self.rec.value(z[0]),
            self.rec.value(z[1]),
            self.act.value(z[2]),
            self.rec.value(z[3]),
        )
        new_c = f * c + i * g
        new_h = o * self.act.value(new_c)
        saved = (rows, dropped, c, z, (i, f, g, o), new_c)
        return (new_h, new_c), saved

    def step_gradient(self, saved, d_states):
        """Returns d_gates_x (R, 4U), (d_h, d_c), and the weights' gradients."""
        rows, dropped, c, z, (i, f, g, o), new_c = saved
        d_new_h, d_new_c = d_states
        d_o = d_new_h * self.act.value(new_c)
        d_c_total = d_new_c + d_new_h * o * self.act.slope(new_c)
        d_z = [
            d_c_total * g * self.rec.slope(z[0]),
            d_c_total * c * self.rec.slope(z[1]),
            d_c_total * i * self.act.slope(z[2]),
            d_o * self.rec.slope(z[3]),
        ]
        d_h = np.zeros_like(d_new_h)
        d_kernels = []
        for k in range(4):
            d_dropped = d_z[k] @ self.kernels[k].T
            d_h += undo_dropout(self.dropout, rows, d_dropped, k)
            d_kernels.append(dropped[k].T @ d_z[k])
        d_gates = np.concatenate(d_z, axis=-1)
        weights = {"recurrent_kernel": np.concatenate(d_kernels, axis=-1)}
        if self.bias is not None:
            weights["bias"] = d_gates.sum(axis=0)
        return d_gates, (d_h, d_c_total * f), weights

    def weight_zeros(self):
        zeros = {"recurrent_kernel": np.zeros((self.units, 4 * self.units))}
        if self.bias is not None:
            zeros["bias"] = np.zeros(4 * self.units)
        return zeros

    def kinks(self, saved):
        """Distance of the nearest pre-activation to a kink of its activation."""
        _, _, _, z, _, new_c = saved
        distances = [self.rec.kink_distance(z[k]) for k in (0, 1, 3)]
        return min(
            *distances, self.act.kink_distance(z[2]), self.act.kink_distance(new_c)
        )


class GRUCell:
    """Gates z, r, h. State (h,).

        z, r = rec(gates_x + (h * dropout) @ U + recurrent bias)
        reset_after:      n = act(x_h + r * ((h * dropout_h) @ U_h + bias_h))
        not reset_after:  n = act(x_h + (r * (h * dropout_h)) @ U_h)
        h' = z * h + (1 - z) * n

    Args:
        recurrent_kernel: (U, 3U).
        bias: None; (3U,), or with reset_after (2, 3U): row 0 joins the inputs,
            row 1 the recurrent product.
        recurrent_dropout: (B, 3, U) or None.
    """

    gate_count = 3
    state_count = 1

    def __init__(
        self,
        recurrent_kernel,
        bias=None,
        activation="tanh",
        recurrent_activation="sigmoid",
        recurrent_dropout=None,
        reset_after=True,
    ):
        self.units = recurrent_kernel.shape[0]
        self.kernels = split_gates(float64(recurrent_kernel), 3)
        self.bias = None if bias is None else float64(bias)
        self.act = get_activation(activation)
        self.rec = get_activation(recurrent_activation)
        self.dropout = optional64(recurrent_dropout)
        self.reset_after = reset_after

    def step(self, rows, gates_x, states):
        """As `LSTMCell.step`, with gates_x (R, 3U) and states (h,)."""
        (h,) = states
        dropped = dropped_states(self.dropout, rows, h, 3)
        if self.bias is not None:
            gates_x = gates_x + (self.bias[0] if self.reset_after else self.bias)
        x_z, x_r, x_h = split_gates(gates_x, 3)
        b_z = b_r = b_h = 0.0
        if self.reset_after and self.bias is not None:
            b_z, b_r, b_h = split_gates(self.bias[1], 3)
        z_in = x_z + dropped[0] @ self.kernels[0] + b_z
        r_in = x_r + dropped[1] @ self.kernels[1] + b_r
        z, r = self.rec.value(z_in), self.rec.value(r_in)
        if self.reset_after:
            inner = dropped[2] @ self.kernels[2] + b_h
            n_in = x_h + r * inner
        else:
            inner = None
            n_in = x_h + (r * dropped[2]) @ self.kernels[2]
        n = self.act.value(n_in)
        new_h = z * h + (1.0 - z) * n
        saved = (rows, dropped, h, (z_in, r_in, n_in), (z, r, n), inner)
        return (new_h,), saved

    def step_gradient(self, saved, d_states):
        """Returns d_gates_x (R, 3U), (d_h,), and the weights' gradients."""
        rows, dropped, h, (z_in, r_in, n_in), (z, r, n), inner = saved
        (d_new_h,) = d_states
        d_h = d_new_h * z
        d_z_in = d_new_h * (h - n) * self.rec.slope(z_in)
        d_n_in = d_new_h * (1.0 - z) * self.act.slope(n_in)
        if self.reset_after:
            d_r = d_n_in * inner
            d_inner_h = d_n_in * r
            left_h = dropped[2]
            d_dropped_h = d_inner_h @ self.kernels[2].T
        else:
            d_inner_h = d_n_in
            left_h = r * dropped[2]
            d_left = d_n_in @ self.kernels[2].T
            d_r = d_left * dropped[2]
            d_dropped_h = d_left * r
        d_r_in = d_r * self.rec.slope(r_in)
        d_h += undo_dropout(self.dropout, rows, d_z_in @ self.kernels[0].T, 0)
        d_h += undo_dropout(self.dropout, rows, d_r_in @ self.kernels[1].T, 1)
        d_h += undo_dropout(self.dropout, rows, d_dropped_h, 2)
        d_kernels = [dropped[0].T @ d_z_in, dropped[1].T @ d_r_in, left_h.T @ d_inner_h]
        d_gates = np.concatenate([d_z_in, d_r_in, d_n_in], axis=-1)
        weights = {"recurrent_kernel": np.concatenate(d_kernels, axis=-1)}
        if self.bias is not None:
            weights["bias"] = d_gates.sum(axis=0)
            if self.reset_after:
                d_inner = np.concatenate([d_z_in, d_r_in, d_inner_h], axis=-1)
                weights["bias"] = np.stack([weights["bias"], d_inner.sum(axis=0)])
        return d_gates, (d_h,), weights

    def weight_zeros(self):
        zeros = {"recurrent_kernel": np.zeros((self.units, 3 * self.units))}
        if self.bias is not None:
            zeros["bias"] = np.zeros_like(self.bias)
        return zeros

    def kinks(self, saved):
        """Distance of the nearest pre-activation to a kink of its activation."""
        z_in, r_in, n_in = saved[3]
        return min(
            self.rec.kink_distance(z_in),
            self.rec.kink_distance(r_in),
            self.act.kink_distance(n_in),
        )


def split_gates(value, count):
    return np.split(value, count, axis=-1)


def dropped_states(dropout, rows, h, count):
    if dropout is None:
        return [h] * count
    return [h * dropout[rows, k] for k in range(count)]


def undo_dropout(dropout, rows, d_dropped, gate):
    return d_dropped if dropout is None else d_dropped * dropout[rows, gate]


def float64(value):
    return np.asarray(value, np.float64)


def optional64(value):
    return None if value is None else float64(value)
