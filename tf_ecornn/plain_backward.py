"""The backward pass as ordinary TensorFlow ops, for second derivatives.

Takes what the gradient ops take and gives what they give; `second_order` tells what
for. float16 and bfloat16 are computed in float32, as in the ops.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_ecornn.plain_activations import PLAIN_ACTIVATIONS, Activation

# Named as the outputs of the ops, so that either can be asked.
LSTMGradient = namedtuple(
    "LSTMGradient", "grad_gates grad_initial_h grad_initial_c grad_bias"
)
GRUGradient = namedtuple(
    "GRUGradient",
    "grad_gates grad_candidate grad_initial_h grad_bias grad_recurrent_bias",
)

# From the gradients of the states that left a step, and what the step reads, each
# (B, N): what it puts out, and the gradients of the states that entered.
Step = Callable[
    [Sequence[tf.Tensor], dict[str, tf.Tensor]],
    tuple[list[tf.Tensor], list[tf.Tensor]],
]


def lstm_gradient(
    *,
    gates: tf.Tensor,
    previous_c: tf.Tensor,
    grad_final_h: tf.Tensor,
    grad_final_c: tf.Tensor,
    num_biases: int,
    activation: str,
    recurrent_activation: str,
    saved_grads: dict[str, tf.Tensor] | None = None,
    **shared: Any,
) -> LSTMGradient:
    """EcoRNN>LstmGrad as ordinary ops; the arguments are the op's.

    Args:
        saved_grads: gradients of the forward op's saved outputs, by name: gates
            (B, T, 4U), previous_h and previous_c, each (B, T, U). None: zeros.
        shared: the arguments that `_Sweep` takes.

    Returns:
        What the op returns, in its dtypes.
    """
    sweep = _Sweep(4, gates, saved_grads, **shared)
    gate, candidate = _functions(recurrent_activation, activation)
    functions = (gate, gate, candidate, gate)
    saved = tf.split(sweep.wide(gates), 4, axis=-1)
    i, f, g, o = _each(functions, "restore", saved)
    slope_i, slope_f, slope_g, slope_o = _each(functions, "slope", saved)
    c = sweep.wide(previous_c)
    c_next = f * c + i * g
    # One by one: joined to (B, T, 3U), XLA's CPU compiler in TensorFlow 2.21 gives
    # wrong numbers for some sizes, T=4 U=5 among them.
    sequences = {
        "to_c": o * candidate.slope_at(c_next),
        "to_i": g * slope_i,
        "to_f": c * slope_f,
        "to_g": i * slope_g,
        "to_o": candidate.value(c_next) * slope_o,
        "f": f,
        **sweep.extra_gates("ifgo", functions, saved),
    }
    through_kernel = sweep.through_kernel(0, 4)

    def step(grads, now):
        grad_h, grad_c = grads
        grad_c = grad_c + grad_h * now["to_c"]
        sources = {"i": grad_c, "f": grad_c, "g": grad_c, "o": grad_h}
        z = [
            _plus(grad * now[f"to_{gate}"], now.get(f"extra_{gate}"))
            for gate, grad in sources.items()
        ]
        z = tf.concat(z, axis=-1)
        return [z], [through_kernel(z), grad_c * now["f"]]

    final = {"previous_h": grad_final_h, "previous_c": grad_final_c}
    (z,), grads = sweep.run(step, sequences, final, (4,))
    return LSTMGradient(
        sweep.narrow(z),
        *map(sweep.narrow, grads),
        [sweep.summed(z)] * num_biases,
    )


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
    saved_grads: dict[str, tf.Tensor] | None = None,
    **shared: Any,
) -> GRUGradient:
    """EcoRNN>GruGrad as ordinary ops; the arguments are the op's.

        d_n = d_h (1 - z) a'_n        d_z = d_h (h - n) s'_z
        reset after:  d_s = d_n r,    d_r = d_n s s'_r
                      d_h- = d_h z + [d_z, d_r, d_s] Uᵀ
        else:         d_q = d_n U_nᵀ, d_r = d_q h s'_r
                      d_h- = d_h z + [d_z, d_r] U_zrᵀ + d_q r

    s is the candidate's recurrent sum and q = r h the operand of its product; one of
    them is the saved `candidate`.

    Args:
        saved_grads: gradients of the forward op's saved outputs, by name: gates
            (B, T, 3U), previous_h and candidate, each (B, T, U). None: zeros.
        shared: the arguments that `_Sweep` takes.

    Returns:
        What the op returns, in its dtype.
    """
    sweep = _Sweep(3, gates, saved_grads, **shared)
    gate, function = _functions(recurrent_activation, activation)
    functions = (gate, gate, function)
    saved = tf.split(sweep.wide(gates), 3, axis=-1)
    z, r, n = _each(functions, "restore", saved)
    slope_z, slope_r, slope_n = _each(functions, "slope", saved)
    h = sweep.wide(previous_h)
    sequences = {
        "z": z,
        "to_z": (h - n) * slope_z,
        "to_n": (1.0 - z) * slope_n,
        **sweep.extra_gates("zrn", functions, saved),
        "extra_candidate": sweep.extra("candidate"),
    }
    if reset_after:
        step = _reset_after_step(sweep)
        sequences |= {"to_r": sweep.wide(candidate) * slope_r, "r": r}
    else:
        step = _reset_before_step(sweep)
        # The operand of the candidate's product has its own dropout.
        sequences |= {"to_r": sweep.dropped(h, 2) * slope_r, "r": sweep.dropped(r, 2)}
    (input_side, split), grads = sweep.run(
        step, sequences, {"previous_h": grad_final_h}, (3, 1)
    )
    z_and_r = input_side[..., : -tf.shape(split)[-1]]
    return GRUGradient(
        sweep.narrow(input_side),
        # Empty without reset_after, as the op's.
        sweep.narrow(split if reset_after else split[:0, :0]),
        *map(sweep.narrow, grads),
        [sweep.summed(input_side)] * num_biases,
        [sweep.summed(tf.concat([z_and_r, split], axis=-1))] * num_recurrent_biases,
    )


def _reset_after_step(sweep: _Sweep) -> Step:
    through_kernel = sweep.through_kernel(0, 3)

    def step(grads, now):
        (grad_h,) = grads
        grad_z = _plus(grad_h * now["to_z"], now.get("extra_z"))
        grad_n = _plus(grad_h * now["to_n"], now.get("extra_n"))
        grad_r = _plus(grad_n * now["to_r"], now.get("extra_r"))
        grad_s = _plus(grad_n * now["r"], now.get("extra_candidate"))
        before = grad_h * now["z"]
        before += through_kernel(tf.concat([grad_z, grad_r, grad_s], axis=-1))
        return [tf.concat([grad_z, grad_r, grad_n], axis=-1), grad_s], [before]

    return step


def _reset_before_step(sweep: _Sweep) -> Step:
    through_z_and_r = sweep.through_kernel(0, 2)
    through_n = sweep.through_kernel(2, 3, dropout=False)

    def step(grads, now):
        (grad_h,) = grads
        grad_z = _plus(grad_h * now["to_z"], now.get("extra_z"))
        grad_n = _plus(grad_h * now["to_n"], now.get("extra_n"))
        grad_q = _plus(through_n(grad_n), now.get("extra_candidate"))
        grad_r = _plus(grad_q * now["to_r"], now.get("extra_r"))
        before = grad_h * now["z"] + grad_q * now["r"]
        before += through_z_and_r(tf.concat([grad_z, grad_r], axis=-1))
        return [tf.concat([grad_z, grad_r, grad_n], axis=-1), grad_n], [before]

    return step


def _functions(*names: str) -> list[Activation]:
    return [PLAIN_ACTIVATIONS[name] for name in names]


def _each(functions: Sequence[Activation], method: str, tensors) -> list[tf.Tensor]:
    return [getattr(f, method)(x) for f, x in zip(functions, tensors, strict=True)]


def _plus(a: tf.Tensor, b: tf.Tensor | None) -> tf.Tensor:
    return a if b is None else a + b


class _Sweep:
    """The walk from the last step to the first: what does not depend on the cell.

    Sequences are (B, T, N), in input order unless said otherwise. A masked step
    neither takes part nor puts out anything but zeros.

    Args:
        gate_count: G.
        gates: (B, T, GU), for its shape and dtype.
        saved_grads: gradients of the saved tensors by name, or None.
        others: as the gradient op's.
    """

    def __init__(
        self,
        gate_count: int,
        gates: tf.Tensor,
        saved_grads: dict[str, tf.Tensor] | None,
        *,
        recurrent_kernel: tf.Tensor,
        grad_last_output: tf.Tensor,
        grad_outputs: list[tf.Tensor],
        mask: list[tf.Tensor],
        reset: list[tf.Tensor],
        recurrent_dropout: list[tf.Tensor],
        reverse: bool,
        zero_output_for_mask: bool,
    ):
        self._narrow = gates.dtype
        self._wide = tf.float64 if gates.dtype == tf.float64 else tf.float32
        static = gates.shape[1]
        self._steps = tf.shape(gates)[1] if static is None else static
        self._kernels = tf.split(self.wide(recurrent_kernel), gate_count, axis=-1)
        self._dropout = (
            tf.unstack(self.wide(recurrent_dropout[0]), axis=1)
            if recurrent_dropout
            else None
        )
        self._flags = {
            name: flags[0][..., tf.newaxis]
            for name, flags in {"mask": mask, "reset": reset}.items()
            if flags
        }
        self._saved_grads = saved_grads or {}
        self._grad_last_output = self.wide(grad_last_output)
        self._grad_outputs = [self.wide(grad) for grad in grad_outputs]
        self._reverse = reverse
        self._zero_output = zero_output_for_mask

    def wide(self, x: tf.Tensor) -> tf.Tensor:
        """x in the dtype of the arithmetic."""
        return tf.cast(x, self._wide)

    def narrow(self, x: tf.Tensor) -> tf.Tensor:
        """x in the op's dtype."""
        return tf.cast(x, self._narrow)

    def summed(self, x: tf.Tensor) -> tf.Tensor:
        """The sum over rows and steps, (N), in the op's dtype."""
        return self.narrow(tf.reduce_sum(x, axis=(0, 1)))

    def dropped(self, x: tf.Tensor, gate: int) -> tf.Tensor:
        """x (B, T, U) times the recurrent dropout of a gate."""
        return x * self._dropout[gate][:, tf.newaxis] if self._dropout else x

    def through_kernel(
        self, first: int, last: int, dropout: bool = True
    ) -> Callable[[tf.Tensor], tf.Tensor]:
        """A function: the product of a step's gradients with the transposed kernel.

        It takes those of gates [first, last), (B, ..U). `dropout`: each gate's part of
        the product, (B, U), is multiplied by the gate's mask.
        """
        kernels = self._kernels[first:last]
        if not (dropout and self._dropout):
            # Once, outside of the loop.
            kernel = tf.concat(kernels, axis=-1)
            return lambda z: tf.matmul(z, kernel, transpose_b=True)
        keep = self._dropout[first:last]

        def by_gate(z):
            parts = zip(tf.split(z, len(keep), axis=-1), kernels, keep, strict=True)
            return tf.add_n(
                [tf.matmul(x, k, transpose_b=True) * m for x, k, m in parts]
            )

        return by_gate

    def extra(self, name: str) -> tf.Tensor | None:
        """The gradient of a saved tensor; those of masked steps are constants."""
        if name not in self._saved_grads:
            return None
        grad = self.wide(self._saved_grads[name])
        if "mask" not in self._flags:
            return grad
        return tf.where(self._flags["mask"], grad, tf.zeros_like(grad))

    def extra_gates(self, names, functions, saved) -> dict[str, tf.Tensor]:
        """The gradients of the saved gates as ones of their pre-activations."""
        joined = self.extra("gates")
        if joined is None:
            return {}
        grads = tf.split(joined, len(names), axis=-1)
        slopes = _each(functions, "per_saved", saved)
        products = (grad * slope for grad, slope in zip(grads, slopes, strict=True))
        return {f"extra_{n}": x for n, x in zip(names, products, strict=True)}

    def run(
        self,
        step: Step,
        sequences: dict[str, tf.Tensor | None],
        final: dict[str, tf.Tensor],
        widths: Sequence[int],
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Walks.

        Args:
            step: the cell's.
            sequences: what it reads; None is left out.
            final: the gradients of the final states, (B, U) each, by the name of
                the saved tensor of the states that entered the steps.
            widths: of what the steps put out, in units.

        Returns:
            The sequences that the steps put out, and the gradients of the initial
            states.
        """
        names = list(final)
        sequences = sequences | self._flags | {n: self.extra(n) for n in names}
        sequences = {n: x for n, x in sequences.items() if x is not None}
        if self._reverse:
            sequences = {n: tf.reverse(x, [1]) for n, x in sequences.items()}
        # These are in processing order.
        if self._grad_outputs:
            sequences["grad_output"] = self._grad_outputs[0]
        by_step = {n: self._to_array(x) for n, x in sequences.items()}
        states = [self.wide(grad) for grad in final.values()]
        outputs = [self._zeros(states[0], width) for width in widths]

        def body(t, states, repeated, outputs):
            t -= 1
            now = {n: array.read(t) for n, array in by_step.items()}
            put, states, repeated = self._step(step, names, states, repeated, now)
            outputs = [a.write(t, x) for a, x in zip(outputs, put, strict=True)]
            return t, states, repeated, outputs

        _, states, _, outputs = tf.while_loop(
            lambda t, *_: t > 0,
            body,
            (self._steps, states, self._grad_last_output, outputs),
            maximum_iterations=self._steps,
        )
        sequences = [self._from_array(array) for array in outputs]
        if self._reverse:
            sequences = [tf.reverse(x, [1]) for x in sequences]
        return sequences, states

    def _step(self, step, names, states, repeated, now):
        """A step of all rows, masks and resets included."""
        # Of the output, and of those that repeat it in later steps.
        repeated = _plus(repeated, now.get("grad_output"))
        put, before = step([states[0] + repeated, *states[1:]], now)
        if "mask" in now:
            valid, none = now["mask"], tf.zeros_like(repeated)
            put = [tf.where(valid, x, tf.zeros_like(x)) for x in put]
            before = [
                tf.where(valid, *both) for both in zip(before, states, strict=True)
            ]
            repeated = none if self._zero_output else tf.where(valid, none, repeated)
        else:
            repeated = tf.zeros_like(repeated)
        before = [_plus(x, now.get(n)) for n, x in zip(names, before, strict=True)]
        if "reset" in now:
            before = [tf.where(now["reset"], tf.zeros_like(x), x) for x in before]
        # A loop's variables keep what is known of their shapes.
        before = [
            tf.ensure_shape(x, s.shape) for x, s in zip(before, states, strict=True)
        ]
        return put, before, tf.ensure_shape(repeated, states[0].shape)

    def _to_array(self, x: tf.Tensor) -> tf.TensorArray:
        """(B, T, N) as T elements (B, N)."""
        array = tf.TensorArray(x.dtype, size=self._steps, clear_after_read=False)
        return array.unstack(tf.transpose(x, (1, 0, 2)))

    def _zeros(self, state: tf.Tensor, gates: int) -> tf.TensorArray:
        """An array of zeros (B, gates * U), one at least; `state` is (B, U)."""
        zeros = tf.tile(tf.zeros_like(state), (1, gates))
        # Of no elements, the shape of the stack would be unknown.
        size = tf.maximum(self._steps, 1)
        array = tf.TensorArray(state.dtype, size, element_shape=zeros.shape)
        return array.unstack(tf.repeat(zeros[tf.newaxis], size, axis=0))

    def _from_array(self, array: tf.TensorArray) -> tf.Tensor:
        """T elements (B, N) as (B, T, N)."""
        return tf.transpose(array.stack()[: self._steps], (1, 0, 2))
