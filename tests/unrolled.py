"""LSTM and GRU as plain TensorFlow ops, unrolled: an oracle that has all derivatives.

It knows what the stock layers do not: `reset`, and recurrent dropout masks given. It
shares no code with the package, nor with the NumPy reference.
"""

import keras
import tensorflow as tf

import tf_ecornn
from problems import CELLS

# Keras keeps the constants of the first two in float32; TensorFlow has no second
# derivative of its softsign.
_WRITTEN_OUT = {
    "gelu": lambda x: x * 0.5 * (1.0 + tf.math.erf(x * 2.0**-0.5)),
    "leaky_relu": lambda x: tf.where(x > 0.0, x, 0.2 * x),
    "softsign": lambda x: x / (1.0 + tf.abs(x)),
}


def activation(name):
    return _WRITTEN_OUT.get(name) or keras.activations.get(name)


def tensors(problem, dtype=tf.float64):
    """Everything that has a gradient, by name."""
    values = {
        "x": problem.x,
        "kernel": problem.kernel,
        "recurrent_kernel": problem.recurrent_kernel,
        "bias": problem.both_biases,
        **{f"initial_{name}": getattr(problem, f"initial_{name}") for name in "hc"},
    }
    return {n: tf.constant(v, dtype) for n, v in values.items() if v is not None}


def ours(problem, given):
    """The public function on a problem: [sequence, *states]."""
    lstm = problem.cell == "lstm"
    function = tf_ecornn.lstm if lstm else tf_ecornn.gru
    found = function(
        given["x"],
        given["kernel"],
        given["recurrent_kernel"],
        given.get("bias"),
        initial_state=[given[f"initial_{name}"] for name in problem.states],
        mask=problem.mask,
        reset=problem.reset,
        recurrent_dropout_mask=problem.recurrent_dropout,
        activation=problem.activation,
        recurrent_activation=problem.recurrent_activation,
        go_backwards=problem.reverse,
        zero_output_for_mask=problem.zero_output_for_mask,
        return_sequences=True,
        **({} if lstm else CELLS[problem.cell][2]),
    )
    return list(found)


def run(problem, given):
    """What `ours` gives."""
    step = {"lstm": _lstm, "gru": _gru, "gru_before": _gru_before}[problem.cell]
    states = [given[f"initial_{name}"] for name in problem.states]
    output = tf.zeros_like(states[0])
    outputs = []
    order = range(problem.steps)
    for t in reversed(order) if problem.reverse else order:
        if problem.reset is not None:
            reset = problem.reset[:, t, None]
            states = [tf.where(reset, tf.zeros_like(s), s) for s in states]
        new = step(problem, given, given["x"][:, t], states)
        put = new[0]
        if problem.mask is not None:
            valid = problem.mask[:, t, None]
            skipped = tf.zeros_like(put) if problem.zero_output_for_mask else output
            put = tf.where(valid, put, skipped)
            new = [tf.where(valid, n, s) for n, s in zip(new, states, strict=True)]
        states, output = new, put
        outputs.append(output)
    return [tf.stack(outputs, axis=1), *states]


def _functions(problem):
    return map(activation, (problem.recurrent_activation, problem.activation))


def _input_sides(given, x, bias):
    """x W + b, by gate."""
    product = tf.matmul(x, given["kernel"])
    gates = product.shape[1] // given["recurrent_kernel"].shape[0]
    return tf.split(product if bias is None else product + bias, gates, axis=1)


def _recurrent_sum(problem, given, h, gate):
    """h, with its dropout, times a gate's kernel."""
    if problem.recurrent_dropout is not None:
        h = h * problem.recurrent_dropout[:, gate]
    kernels = tf.split(given["recurrent_kernel"], problem.gates, axis=1)
    return tf.matmul(h, kernels[gate])


def _lstm(problem, given, x, states):
    h, c = states
    gate, candidate = _functions(problem)
    sides = _input_sides(given, x, given.get("bias"))
    i, f, g, o = (a + _recurrent_sum(problem, given, h, n) for n, a in enumerate(sides))
    c = gate(f) * c + gate(i) * candidate(g)
    return [gate(o) * candidate(c), c]


def _gru(problem, given, x, states):
    (h,) = states
    gate, candidate = _functions(problem)
    bias = given.get("bias", [None, None])
    sides = _input_sides(given, x, bias[0])
    sums = [_recurrent_sum(problem, given, h, n) for n in range(3)]
    if bias[1] is not None:
        sums = [s + b for s, b in zip(sums, tf.split(bias[1], 3), strict=True)]
    z, r = gate(sides[0] + sums[0]), gate(sides[1] + sums[1])
    return [z * h + (1.0 - z) * candidate(sides[2] + r * sums[2])]


def _gru_before(problem, given, x, states):
    (h,) = states
    gate, candidate = _functions(problem)
    sides = _input_sides(given, x, given.get("bias"))
    z, r = (gate(sides[n] + _recurrent_sum(problem, given, h, n)) for n in range(2))
    n = candidate(sides[2] + _recurrent_sum(problem, given, r * h, 2))
    return [z * h + (1.0 - z) * n]
