"""The walk of the backward pass over the steps, and its adjoint, in ordinary ops.

What does not depend on the cell: masks, resets, outputs that are repeated, dtypes.
float16 and bfloat16 are computed in float32, as in the fused ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_ecornn.products import project_back

Tensors = dict[str, tf.Tensor]
Product = Callable[[tf.Tensor], tf.Tensor]
# A cell's step on (B, N) tensors: from those of the states, and what it reads, by
# name, what it puts out and those of the states on its other side.
Step = Callable[[Sequence[tf.Tensor], Tensors], tuple[list[tf.Tensor], list[tf.Tensor]]]


class Sweep:
    """The steps of a batch.

    Sequences are (B, T, N), in input order unless said otherwise. A masked step
    neither takes part nor puts out anything but zeros.

    Args:
        gate_count: G.
        gates: (B, T, GU), for its shape and dtype.
        others: as the gradient op's.
    """

    def __init__(
        self,
        gate_count: int,
        gates: tf.Tensor,
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
        # (B, G, U), in a list if it is there.
        self.dropout = [self.wide(keep) for keep in recurrent_dropout]
        self._flags = {
            name: flags[0][..., tf.newaxis]
            for name, flags in {"mask": mask, "reset": reset}.items()
            if flags
        }
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

    def valid(self, x: tf.Tensor) -> tf.Tensor:
        """A sequence in the dtype of the arithmetic, with zeros at masked steps."""
        return _where(self._flags.get("mask"), self.wide(x))

    def dropped(self, x: tf.Tensor, gate: int) -> tf.Tensor:
        """x (B, T, U) times the recurrent dropout of a gate."""
        for keep in self.dropout:
            x *= keep[:, tf.newaxis, gate]
        return x

    def back(self, first: int, last: int, dropout: bool = True) -> Product:
        """A step's product with the transposed kernel: (B, ..U) gives (B, U).

        Of gates [first, last); `dropout`: each gate's part (B, U) times its mask.
        """
        kernels, masks = self._of_gates(first, last, dropout)
        # Once, outside of the loop.
        kernel = tf.concat(kernels, axis=-1)
        if not masks:
            return lambda z: tf.matmul(z, kernel, transpose_b=True)
        return lambda z: tf.add_n(
            [
                tf.matmul(part, kernel, transpose_b=True) * keep
                for part, kernel, keep in zip(
                    tf.split(z, len(masks), axis=-1), kernels, masks, strict=True
                )
            ]
        )

    def forth(self, first: int, last: int, dropout: bool = True) -> Product:
        """The adjoint of `back`: (B, U) gives (B, ..U)."""
        kernels, masks = self._of_gates(first, last, dropout)
        kernel = tf.concat(kernels, axis=-1)
        if not masks:
            return lambda h: tf.matmul(h, kernel)
        return lambda h: tf.concat(
            [
                tf.matmul(h * keep, kernel)
                for kernel, keep in zip(kernels, masks, strict=True)
            ],
            axis=-1,
        )

    def back_all(
        self, z: tf.Tensor, first: int, last: int, dropout: bool = True
    ) -> tf.Tensor:
        """`back` of all steps at once: (B, T, ..U) gives (B, T, U)."""
        kernels, masks = self._of_gates(first, last, dropout)
        if not masks:
            return project_back(z, tf.concat(kernels, axis=-1))
        parts = tf.split(z, len(masks), axis=-1)
        return tf.add_n(
            [
                project_back(part, kernel) * keep[:, tf.newaxis]
                for part, kernel, keep in zip(parts, kernels, masks, strict=True)
            ]
        )

    def _of_gates(self, first, last, dropout):
        """The kernels (U, U) of gates, and their masks (B, U) if there are any."""
        masks = []
        if dropout and self.dropout:
            masks = tf.unstack(self.dropout[0][:, first:last], axis=1)
        return self._kernels[first:last], masks

    def down(
        self,
        step: Step,
        sequences: Tensors,
        final: Sequence[tf.Tensor],
        widths: Sequence[int],
        entering: Sequence[tf.Tensor] = (),
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Walks from the last step to the first.

        Args:
            step: from the gradients of the states that left it to those of the states
                that entered.
            sequences: what it reads.
            final: the gradients of the final states, each (B, U).
            widths: of what a step puts out, in units.
            entering: more gradients of the states that entered each step.

        Returns:
            What the steps put out, and the gradients of the initial states.
        """
        more = {f"entering {i}": x for i, x in enumerate(entering)}
        reading = self._by_step(sequences | more)
        for grad in self._grad_outputs:
            # In processing order as it is.
            reading["grad_output"] = self._to_array(grad)

        def body(now, states, repeated):
            # Of the output, and of those that repeat it in later steps.
            repeated = _plus(repeated, now.get("grad_output"))
            put, before = step([states[0] + repeated, *states[1:]], now)
            if "mask" in now:
                valid = now["mask"]
                put = [_where(valid, x) for x in put]
                before = [
                    tf.where(valid, *both) for both in zip(before, states, strict=True)
                ]
            before = [_plus(x, now.get(f"entering {i}")) for i, x in enumerate(before)]
            before = [_unless(now.get("reset"), x) for x in before]
            return put, before, self._passed_on(now, repeated)

        start = [self.wide(grad) for grad in final], self._grad_last_output
        outputs, before, _ = self._walk(body, reading, start, widths, backwards=True)
        return [self._turned(x) for x in outputs], before

    def up(
        self,
        step: Step,
        sequences: Tensors,
        initial: Sequence[tf.Tensor],
        widths: Sequence[int],
    ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor], tf.Tensor]:
        """The adjoint of `down`: walks from the first step to the last.

        Args:
            step: from the gradients of what `down`'s step gave for the states that
                entered to those of what it got for the states that left.
            sequences: what it reads.
            initial: the gradients of what `down` gave for the initial states.
            widths: of what a step puts out, in units.

        Returns:
            What the steps put out, zero where masked; and the gradients of
            `grad_outputs`, (B, T, U) in processing order, of `down`'s final states and
            of `grad_last_output`.
        """

        def body(now, after, repeated):
            after = [_unless(now.get("reset"), x) for x in after]
            past = [_unless(now["mask"], x) for x in after] if "mask" in now else []
            put, states = step([_where(now.get("mask"), x) for x in after], now)
            repeated = states[0] + self._passed_on(now, repeated)
            if past:
                put = [_where(now["mask"], x) for x in put]
                states = [x + p for x, p in zip(states, past, strict=True)]
            return [*put, repeated], states, repeated

        states = [self.wide(grad) for grad in initial]
        start = states, tf.zeros_like(states[0])
        (*outputs, of_outputs), after, of_last = self._walk(
            body, self._by_step(sequences), start, (*widths, 1), backwards=False
        )
        return [self._turned(x) for x in outputs], of_outputs, after, of_last

    def _passed_on(self, now: Tensors, repeated: tf.Tensor) -> tf.Tensor:
        """What of an output's gradient is that of the output which it repeats."""
        if "mask" not in now or self._zero_output:
            return tf.zeros_like(repeated)
        return _unless(now["mask"], repeated)

    def _walk(self, body, reading, start, widths, *, backwards):
        states, repeated = start
        outputs = [self._zeros(repeated, width) for width in widths]

        def one(count, states, repeated, outputs):
            t = self._steps - 1 - count if backwards else count
            now = {name: array.read(t) for name, array in reading.items()}
            put, new, repeated = body(now, states, repeated)
            outputs = [a.write(t, x) for a, x in zip(outputs, put, strict=True)]
            # A loop's variables keep what is known of their shapes.
            shapes = [state.shape for state in states]
            new = list(map(tf.ensure_shape, new, shapes))
            return count + 1, new, tf.ensure_shape(repeated, shapes[0]), outputs

        _, states, repeated, outputs = tf.while_loop(
            lambda count, *_: count < self._steps,
            one,
            (0, states, repeated, outputs),
            maximum_iterations=self._steps,
        )
        return [self._from_array(array) for array in outputs], states, repeated

    def _by_step(self, sequences: Tensors) -> dict[str, tf.TensorArray]:
        """Sequences, and mask and reset, in processing order."""
        every = sequences | self._flags
        return {name: self._to_array(self._turned(x)) for name, x in every.items()}

    def _turned(self, x: tf.Tensor) -> tf.Tensor:
        """Input order from processing order and the other way."""
        return tf.reverse(x, [1]) if self._reverse else x

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


def _plus(a: tf.Tensor, b: tf.Tensor | None) -> tf.Tensor:
    return a if b is None else a + b


def _where(flag: tf.Tensor | None, x: tf.Tensor) -> tf.Tensor:
    return x if flag is None else tf.where(flag, x, tf.zeros_like(x))


def _unless(flag: tf.Tensor | None, x: tf.Tensor) -> tf.Tensor:
    return x if flag is None else tf.where(flag, tf.zeros_like(x), x)
