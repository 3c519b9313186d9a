"""tf_ecornn.lstm in traces, loops and saved functions, against the reference."""

from dataclasses import replace

import numpy as np
import tensorflow as tf

import reference
import tf_ecornn
from functional_calls import (
    call,
    check,
    draw,
    expected_gradients,
    tensors,
    total_of,
)
from problems import (
    assert_close,
    reference_forward,
    tolerance_of,
)


def test_one_trace_for_all_lengths():
    signature = {
        "x": tf.TensorSpec((None, None, 3), tf.float64),
        "mask": tf.TensorSpec((None, None), tf.bool),
    }
    base = draw(9, units=8)
    weights = tensors(base, np.float64)

    @tf.function(input_signature=[signature])
    def traced(inputs):
        found = tf_ecornn.lstm(
            inputs["x"],
            weights["kernel"],
            weights["recurrent_kernel"],
            weights["bias"],
            mask=inputs["mask"],
            return_sequences=True,
        )
        assert found.output.shape.as_list() == [None, None, 8]
        assert found.h.shape.as_list() == [None, 8]
        return found

    for batch, steps in ((1, 1), (5, 9), (17, 2), (0, 4), (3, 0)):
        rng = np.random.default_rng(batch + steps)
        x, mask = rng.normal(size=(batch, steps, 3)), rng.random((batch, steps)) < 0.7
        found = traced({"x": tf.constant(x), "mask": tf.constant(mask)})
        zeros = np.zeros((batch, 8))
        problem = replace(
            base,
            gates_x=reference.project(x, base.kernel, mask),
            mask=mask,
            initial_h=zeros,
            initial_c=zeros,
        )
        assert_close(
            found.output,
            reference_forward(problem).outputs,
            tolerance_of(problem, np.float64),
            "output",
        )
    assert traced.experimental_get_tracing_count() == 1


def test_static_shapes_inside_a_function():
    problem = draw(10, mask="random")
    given = tensors(problem, np.float32)

    @tf.function
    def traced():
        for sequences, shape in ((True, (5, 4, 6)), (False, (5, 6))):
            found = call(problem, given, sequences)
            assert tuple(found.output.shape) == shape
            assert tuple(found.h.shape) == tuple(found.c.shape) == (5, 6)
        return found

    traced()


def test_inside_a_loop():
    """Saved tensors pass through the loop's own stacks to the gradient."""
    problem = draw(13, batch=4, steps=5, mask="random")
    given = tensors(problem, np.float64)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            tape.watch(given)

            def one(number):
                factor = tf.cast(number, tf.float64)
                return factor * call(problem, given, True).output

            found = tf.map_fn(one, tf.range(1, 4), fn_output_signature=tf.float64)
            total = tf.reduce_sum(found * problem.grad_outputs)
        return found, tape.gradient(total, given)

    found, gradients = step()
    forward = reference_forward(problem)
    tolerance = tolerance_of(problem, np.float64)
    assert_close(found[2], 3.0 * forward.outputs, tolerance, "third round")
    expected = expected_gradients(problem, forward, ("output",), True)
    for name, value in expected.items():
        assert_close(gradients[name], 6.0 * value, tolerance, f"d {name}", summed=True)


def test_gradients_come_in_each_inputs_dtype():
    problem = draw(14, mask="random")
    given = tensors(problem, np.float32)
    for name in ("kernel", "bias", "initial_c"):
        given[name] = tf.cast(given[name], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(given)
        found = call(problem, given, True)
        total = total_of(problem, found, ("output", "h", "c"), True, np.float32)
    expected = expected_gradients(
        problem, reference_forward(problem), ("output", "h", "c"), True
    )
    gradients = tape.gradient(total, given)
    tolerance = tolerance_of(problem, np.float32)
    for name, value in expected.items():
        assert gradients[name].dtype == given[name].dtype, name
        assert_close(gradients[name], value, tolerance, f"d {name}", summed=True)


def test_one_op_each_way(fused_calls):
    problem = draw(11, mask="random", reset=True)
    given = tensors(problem, np.float32)
    call(problem, given, True, save_for_backward=False)
    assert fused_calls() == 1
    check(problem, np.float32)
    assert fused_calls() == 3


def test_gradient_after_reload(tmp_path):
    """A saved function finds its op and the registered gradient again."""
    problem = draw(12, mask="random")
    given = tensors(problem, np.float64)

    class Saved(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((None, None, 3), tf.float64)])
        def __call__(self, x):
            return call(problem, {**given, "x": x}, True).output

    tf.saved_model.save(Saved(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    with tf.GradientTape() as tape:
        tape.watch(given["x"])
        total = tf.reduce_sum(loaded(given["x"]) * problem.grad_outputs)
    expected = expected_gradients(
        problem, reference_forward(problem), ("output",), True
    )
    assert_close(
        tape.gradient(total, given["x"]),
        expected["x"],
        tolerance_of(problem, np.float64),
        "d x",
    )
