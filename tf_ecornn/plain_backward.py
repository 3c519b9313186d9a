"""The gradient ops as ordinary TensorFlow ops, with gradients of saved tensors too.

`second_order` tells what for, and the formulas of the LSTM.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_ecornn.plain_activations import PLAIN_ACTIVATIONS, Activation
from tf_ecornn.plain_sweep import Step, Sweep, Tensors

# Named as the outputs of the ops, so that either can be asked.
LSTMGradient = namedtuple(
    "LSTMGradient", "grad_gates grad_initial_h grad_initial_c grad_bias"
)
GRUGradient = namedtuple(
    "GRUGradient",
    "grad_gates grad_candidate grad_initial_h grad_bias grad_recurrent_bias",
)


def lstm_gradient(
    *,
    gates: tf.Tensor,
    previous_c: tf.Tensor,
    grad_final_h: tf.Tensor,
    grad_final_c: tf.Tensor,
    num_biases: int,
    activation: str,
    recurrent_activation: str,
    saved_grads: Tensors,
    **shared: Any,
) -> LSTMGradient:
    """EcoRNN>LstmGrad; the arguments are the op's.

    Args:
        saved_grads: gradients of the forward op's saved outputs, by name: gates
            (B, T, 4U), previous_h and previous_c, each (B, T, U).
        shared: the arguments that `Sweep` takes.

    Returns:
        What the op returns, in its dtypes.
    """
    sweep = Sweep(4, gates, **shared)
    functions = lstm_functions(activation, recurrent_activation)
    sequences = lstm_factors(sweep, gates, previous_c, functions)
    sequences |= _of_gates(sweep, "ifgo", gates, saved_grads["gates"], functions)
    back = sweep.back(0, 4)

    def step(grads, now):
        grad_h, grad_c = grads
        grad_c = grad_c + grad_h * now["to_c"]
        sources = {"i": grad_c, "f": grad_c, "g": grad_c, "o": grad_h}
        z = tf.concat(
            [g * now[f"to_{name}"] + now[f"of_{name}"] for name, g in sources.items()],
            axis=-1,
        )
        return [z], [back(z), grad_c * now["f"]]

    (z,), initial = sweep.down(
        step,
        sequences,
        (grad_final_h, grad_final_c),
        (4,),
        [sweep.valid(saved_grads[name]) for name in ("previous_h", "previous_c")],
    )
    return LSTMGradient(
        sweep.narrow(z),
        *map(sweep.narrow, initial),
        [sweep.summed(z)] * num_biases,
    )


def lstm_functions(activation: str, recurrent_activation: str) -> list[Activation]:
    """Those of the gates i, f, c and o."""
    gate, candidate = _functions(recurrent_activation, activation)
    return [gate, gate, candidate, gate]


def lstm_factors(
    sweep: Sweep, gates: tf.Tensor, previous_c: tf.Tensor, functions: list[Activation]
) -> Tensors:
    """The coefficients of the linear recurrence, (B, T, U) each, from saved tensors."""
    saved = tf.split(sweep.wide(gates), 4, axis=-1)
    i, f, g, o = _each(functions, "restore", saved)
    slope_i, slope_f, slope_g, slope_o = _each(functions, "slope", saved)
    c = sweep.wide(previous_c)
    c_next = f * c + i * g
    candidate = functions[2]
    # One by one: joined to (B, T, 3U), XLA's CPU compiler in TensorFlow 2.21 gives
    # wrong numbers for some sizes, T=4 U=5 among them.
    return {
        "to_c": o * candidate.slope_at(c_next),
        "to_i": g * slope_i,
        "to_f": c * slope_f,
        "to_g": i * slope_g,
        "to_o": candidate.value(c_next) * slope_o,
        "f": f,
    }


def gru_gradient(
    *,
    gates: tf.Tensor,
    previous_h: tf.Tensor,
    candidate: tf.Tensor,
    grad_final_h: tf.Tensor,
    num_biases: int,
    num_recurrent_biases: int,
    activation: str,
    recurrent_activation: str,
    reset_after: bool,
    saved_grads: Tensors,
    **shared: Any,
) -> GRUGradient:
    """EcoRNN>GruGrad; the arguments are the op's.

        d_n = d_h (1 - z) a'_n        d_z = d_h (h - n) s'_z
        reset after:  d_s = d_n r,    d_r = d_n s s'_r
                      d_h- = d_h z + [d_z, d_r, d_s] Uᵀ
        else:         d_q = d_n U_nᵀ, d_r = d_q h s'_r
                      d_h- = d_h z + [d_z, d_r] U_zrᵀ + d_q r

    s is the candidate's recurrent sum and q = r h the operand of its product; one of
    them is the saved `candidate`.

    Args:
        saved_grads: gradients of the forward op's saved outputs, by name: gates
            (B, T, 3U), previous_h and candidate, each (B, T, U).
        shared: the arguments that `Sweep` takes.

    Returns:
        What the op returns, in its dtype.
    """
    sweep = Sweep(3, gates, **shared)
    functions = gru_functions(activation, recurrent_activation)
    sequences = gru_factors(sweep, gates, previous_h, candidate, functions, reset_after)
    sequences |= _of_gates(sweep, "zrn", gates, saved_grads["gates"], functions)
    sequences["of_candidate"] = sweep.valid(saved_grads["candidate"])
    (input_side, split), initial = sweep.down(
        _reset_after_step(sweep) if reset_after else _reset_before_step(sweep),
        sequences,
        (grad_final_h,),
        (3, 1),
        [sweep.valid(saved_grads["previous_h"])],
    )
    z, r, _ = tf.split(input_side, 3, axis=-1)
    return GRUGradient(
        sweep.narrow(input_side),
        # Empty without reset_after, as the op's.
        sweep.narrow(split if reset_after else split[:0, :0]),
        *map(sweep.narrow, initial),
        [sweep.summed(input_side)] * num_biases,
        [sweep.summed(tf.concat([z, r, split], axis=-1))] * num_recurrent_biases,
    )


def gru_functions(activation: str, recurrent_activation: str) -> list[Activation]:
    """Those of the gates z, r and h."""
    gate, candidate = _functions(recurrent_activation, activation)
    return [gate, gate, candidate]


def gru_factors(
    sweep: Sweep,
    gates: tf.Tensor,
    previous_h: tf.Tensor,
    candidate: tf.Tensor,
    functions: list[Activation],
    reset_after: bool,
) -> Tensors:
    """The coefficients of the linear recurrence, (B, T, U) each, from saved tensors."""
    saved = tf.split(sweep.wide(gates), 3, axis=-1)
    z, r, n = _each(functions, "restore", saved)
    slope_z, slope_r, slope_n = _each(functions, "slope", saved)
    h = sweep.wide(previous_h)
    if reset_after:
        to_r = sweep.wide(candidate) * slope_r
    else:
        # The operand of the candidate's product has its own dropout.
        to_r, r = sweep.dropped(h, 2) * slope_r, sweep.dropped(r, 2)
    return {
        "z": z,
        "r": r,
        "to_z": (h - n) * slope_z,
        "to_r": to_r,
        "to_n": (1.0 - z) * slope_n,
    }


def _reset_after_step(sweep: Sweep) -> Step:
    back = sweep.back(0, 3)

    def step(grads, now):
        (grad_h,) = grads
        z = grad_h * now["to_z"] + now["of_z"]
        n = grad_h * now["to_n"] + now["of_n"]
        r = n * now["to_r"] + now["of_r"]
        s = n * now["r"] + now["of_candidate"]
        before = grad_h * now["z"] + back(tf.concat([z, r, s], axis=-1))
        return [tf.concat([z, r, n], axis=-1), s], [before]

    return step


def _reset_before_step(sweep: Sweep) -> Step:
    back_z_and_r, back_n = sweep.back(0, 2), sweep.back(2, 3, dropout=False)

    def step(grads, now):
        (grad_h,) = grads
        z = grad_h * now["to_z"] + now["of_z"]
        n = grad_h * now["to_n"] + now["of_n"]
        q = back_n(n) + now["of_candidate"]
        r = q * now["to_r"] + now["of_r"]
        before = grad_h * now["z"] + q * now["r"]
        before += back_z_and_r(tf.concat([z, r], axis=-1))
        return [tf.concat([z, r, n], axis=-1), n], [before]

    return step


def _of_gates(sweep, names, gates, grad, functions) -> Tensors:
    """The gradient of the saved gates as those of their pre-activations."""
    saved = tf.split(sweep.wide(gates), len(names), axis=-1)
    grads = tf.split(sweep.valid(grad), len(names), axis=-1)
    slopes = _each(functions, "per_saved", saved)
    return {f"of_{n}": g * s for n, g, s in zip(names, grads, slopes, strict=True)}


def _functions(*names: str) -> list[Activation]:
    return [PLAIN_ACTIVATIONS[name] for name in names]


def _each(functions: Sequence[Activation], method: str, tensors) -> list[tf.Tensor]:
    return [getattr(f, method)(x) for f, x in zip(functions, tensors, strict=True)]
