"""The gradients of the gradient ops, in ordinary TensorFlow ops.

A gradient op G is a linear recurrence from the last step to the first, with
coefficients that follow from the saved tensors (`plain_backward`). Its gradient is the
same recurrence the other way round, from the first step to the last, between products
over all steps. With x' for the gradient of x, for the LSTM:

    d_z' = d_z'(given) + d_h-' U           d_c' = d_c-' f + d_i' g s'_i + ...
    d_h' = d_o' a(c) s'_o + d_c' o a'(c)

    U' = sum of d_h-'ᵀ d_z                 (g s'_i)' = d_i' d_c, and so on

The states' gradients d_h and d_c of all steps, which the last line needs, come of a
walk from the last step on that has no product in it: G's result tells those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_ecornn.plain_backward import (
    gru_factors,
    gru_functions,
    lstm_factors,
    lstm_functions,
)
from tf_ecornn.plain_sweep import Step, Sweep
from tf_ecornn.products import summed_product, summed_product_by_gate


def lstm_adjoint(
    *,
    result: dict[str, Any],
    grads: dict[str, Any],
    gates: tf.Tensor,
    previous_c: tf.Tensor,
    grad_final_h: tf.Tensor,
    grad_final_c: tf.Tensor,
    activation: str,
    recurrent_activation: str,
    **shared: Any,
) -> dict[str, Any]:
    """The gradient of EcoRNN>LstmGrad.

    Args:
        result: the op's outputs by name.
        grads: their gradients by name.
        gates, ..., recurrent_activation: the op's arguments.
        shared: those that `Sweep` takes.

    Returns:
        The gradients of the op's float inputs by name; of `grad_outputs` in a list.
    """
    sweep = Sweep(4, gates, **shared)
    saved = {"gates": gates, "previous_c": previous_c}
    with tf.GradientTape() as tape:
        tape.watch(saved)
        functions = lstm_functions(activation, recurrent_activation)
        factors = lstm_factors(sweep, functions=functions, **saved)
    z = sweep.wide(result["grad_gates"])

    def states_step(grads, now):
        grad_h, grad_c = grads
        grad_c = grad_c + grad_h * now["to_c"]
        return [grad_h, grad_c], [now["before"], grad_c * now["f"]]

    (grad_h, grad_c), _ = sweep.down(
        states_step,
        {**factors, "before": sweep.back_all(z, 0, 4)},
        (grad_final_h, grad_final_c),
        (1, 1),
    )
    forth = sweep.forth(0, 4)

    def step(after, now):
        of_h, of_c = after
        of_z = now["given"] + forth(of_h)
        i, f, g, o = tf.split(of_z, 4, axis=-1)
        c = of_c * now["f"] + i * now["to_i"] + f * now["to_f"] + g * now["to_g"]
        return [of_z, of_h, of_c], [o * now["to_o"] + c * now["to_c"], c]

    given = _given(sweep, grads["grad_gates"], grads["grad_bias"])
    (of_z, of_h, of_c), *of_grads = sweep.up(
        step,
        {**factors, "given": given},
        (grads["grad_initial_h"], grads["grad_initial_c"]),
        (4, 1, 1),
    )
    i, f, g, o = tf.split(of_z, 4, axis=-1)
    of_total_c = of_c * factors["f"]
    of_total_c += i * factors["to_i"] + f * factors["to_f"] + g * factors["to_g"]
    of_factors = {
        "to_c": of_total_c * grad_h,
        "to_i": i * grad_c,
        "to_f": f * grad_c,
        "to_g": g * grad_c,
        "to_o": o * grad_h,
        "f": of_c * grad_c,
    }
    kernel = summed_product_by_gate(of_h, z, sweep.dropout)
    return {
        **_of_saved(tape, factors, of_factors, saved),
        "recurrent_kernel": sweep.narrow(kernel),
        **_of_grads(sweep, ("grad_final_h", "grad_final_c"), *of_grads),
    }


def gru_adjoint(
    *,
    result: dict[str, Any],
    grads: dict[str, Any],
    gates: tf.Tensor,
    previous_h: tf.Tensor,
    candidate: tf.Tensor,
    grad_final_h: tf.Tensor,
    activation: str,
    recurrent_activation: str,
    reset_after: bool,
    **shared: Any,
) -> dict[str, Any]:
    """The gradient of EcoRNN>GruGrad; see `lstm_adjoint`."""
    sweep = Sweep(3, gates, **shared)
    saved = {"gates": gates, "previous_h": previous_h, "candidate": candidate}
    with tf.GradientTape() as tape:
        tape.watch(saved)
        functions = gru_functions(activation, recurrent_activation)
        factors = gru_factors(
            sweep, functions=functions, reset_after=reset_after, **saved
        )
    z, r, n = tf.split(sweep.wide(result["grad_gates"]), 3, axis=-1)
    if reset_after:
        sums = tf.concat([z, r, sweep.wide(result["grad_candidate"])], axis=-1)
        before = sweep.back_all(sums, 0, 3)
    else:
        sums = tf.concat([z, r], axis=-1)
        operand = sweep.back_all(n, 2, 3, dropout=False)
        before = sweep.back_all(sums, 0, 2) + operand * factors["r"]

    def states_step(grads, now):
        (grad_h,) = grads
        return [grad_h], [grad_h * now["z"] + now["before"]]

    ((grad_h,), _) = sweep.down(
        states_step, {**factors, "before": before}, (grad_final_h,), (1,)
    )
    given = _given(sweep, grads["grad_gates"], grads["grad_bias"])
    sequences = factors | dict(
        zip(("given_z", "given_r", "given_n"), tf.split(given, 3, axis=-1), strict=True)
    )
    if reset_after:
        step = _reset_after_step(sweep)
        of_candidate = _given(sweep, grads["grad_candidate"])
        for bias in grads["grad_recurrent_bias"]:
            of_z, of_r, of_s = tf.split(sweep.wide(bias), 3)
            sequences["given_z"] = sweep.valid(sequences["given_z"] + of_z)
            sequences["given_r"] = sweep.valid(sequences["given_r"] + of_r)
            of_candidate = sweep.valid(of_candidate + of_s)
        sequences["given_candidate"] = of_candidate
    else:
        step = _reset_before_step(sweep)
    (of_z, of_r, of_n, of_candidate, of_h), *of_grads = sweep.up(
        step, sequences, (grads["grad_initial_h"],), (1,) * 5
    )
    of_factors = {"z": of_h * grad_h, "to_z": of_z * grad_h, "to_n": of_n * grad_h}
    kernel = summed_product_by_gate(
        of_h, sums, [keep[:, : 3 if reset_after else 2] for keep in sweep.dropout]
    )
    if reset_after:
        of_factors |= {"to_r": of_r * n, "r": of_candidate * n}
    else:
        of_factors |= {"to_r": of_r * operand, "r": of_h * operand}
        kernel = tf.concat([kernel, summed_product(of_candidate, n)], axis=-1)
    return {
        **_of_saved(tape, factors, of_factors, saved),
        "recurrent_kernel": sweep.narrow(kernel),
        **_of_grads(sweep, ("grad_final_h",), *of_grads),
    }


def _reset_after_step(sweep: Sweep) -> Step:
    forth = sweep.forth(0, 3)

    def step(after, now):
        (of_h,) = after
        sum_z, sum_r, sum_s = tf.split(forth(of_h), 3, axis=-1)
        z, r = now["given_z"] + sum_z, now["given_r"] + sum_r
        s = now["given_candidate"] + sum_s
        n = now["given_n"] + r * now["to_r"] + s * now["r"]
        h = of_h * now["z"] + z * now["to_z"] + n * now["to_n"]
        return [z, r, n, s, of_h], [h]

    return step


def _reset_before_step(sweep: Sweep) -> Step:
    forth_z_and_r, forth_n = sweep.forth(0, 2), sweep.forth(2, 3, dropout=False)

    def step(after, now):
        (of_h,) = after
        sum_z, sum_r = tf.split(forth_z_and_r(of_h), 2, axis=-1)
        z, r = now["given_z"] + sum_z, now["given_r"] + sum_r
        q = of_h * now["r"] + r * now["to_r"]
        n = now["given_n"] + forth_n(q)
        h = of_h * now["z"] + z * now["to_z"] + n * now["to_n"]
        return [z, r, n, q, of_h], [h]

    return step


def _given(sweep: Sweep, grad: tf.Tensor, biases: Sequence[tf.Tensor] = ()):
    """The gradient of a sequence that the op gives, and sums up to biases."""
    grad = sweep.wide(grad)
    for bias in biases:
        grad += sweep.wide(bias)
    return sweep.valid(grad)


def _of_saved(tape, factors, of_factors, saved) -> dict[str, tf.Tensor]:
    names = list(of_factors)
    targets = [factors[name] for name in names]
    return tape.gradient(targets, saved, [of_factors[name] for name in names], "zero")


def _of_grads(sweep, names, of_outputs, of_final, of_last) -> dict[str, Any]:
    """What `Sweep.up` tells, by the names of the op's arguments."""
    narrow = sweep.narrow
    return {
        "grad_outputs": [narrow(of_outputs)],
        "grad_last_output": narrow(of_last),
        **{name: narrow(x) for name, x in zip(names, of_final, strict=True)},
    }
