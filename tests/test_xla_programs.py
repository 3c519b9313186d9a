"""The programs that XLA makes of functions with fused ops in them, and their use."""

import re
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

import reference
import tf_ecornn
from helpers import needs_xla
from layer_pairs import KINDS
from problems import (
    CELLS,
    assert_close,
    assert_same_bits,
    draw_problem,
    reference_forward,
    tolerance_of,
)

pytestmark = needs_xla

every_kind = pytest.mark.parametrize("kind", KINDS)
B, T, F = 16, 9, 5


# What is in the program ----------------------------------------------------------


def program(function, *arguments):
    """The text of the program that XLA made of a jit-compiled function."""
    return function.experimental_get_compiler_ir(*arguments)(stage="optimized_hlo")


def custom_calls(text):
    return re.findall(r'custom_call_target="(EcoRNN>\w+)"', text)


def training_step(layer):
    @tf.function(jit_compile=True)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(layer(x, training=True) ** 2)
        weights = [v.value for v in layer.trainable_variables]
        return tape.gradient(total, [x, *weights])

    return step


@every_kind
def test_the_program_holds_the_custom_calls(kind, fused_calls):
    """The ops, and no loop over the steps."""
    x = tf.random.stateless_normal((B, T, F), (1, 2))
    layer = KINDS[kind].make_ours(8, return_sequences=True)
    layer.build(x.shape)
    step = training_step(layer)
    text = program(step, x)
    name = "Lstm" if kind == "lstm" else "Gru"
    ops = {f"EcoRNN>{name}", f"EcoRNN>{name}Grad", "EcoRNN>SummedProducts"}
    assert set(custom_calls(text)) == ops
    assert " while(" not in text
    assert fused_calls() == 0
    step(x)
    assert fused_calls() == 2


def test_the_program_of_a_stock_layer_is_another():
    """What the test above looks for tells the two apart."""
    x = tf.ones((B, T, F))
    layer = keras.layers.GRU(8)
    layer.build(x.shape)
    text = program(tf.function(layer, jit_compile=True), x)
    assert not custom_calls(text) and " while(" in text


@every_kind
def test_gates_replace_the_product_in_its_memory(kind):
    """No copy of (B, T, GU) between x W, the gates and their gradient."""
    units, features = 8, 200
    x = tf.random.stateless_normal((B, T, features), (1, 2))
    layer = KINDS[kind].make_ours(units)
    layer.build(x.shape)
    text = program(training_step(layer), x)
    width = KINDS[kind].gates * units
    copies = re.findall(rf"= f32\[(?:{B * T}|{B},{T}),{width}\]\S* copy\(.*", text)
    # The GRU's candidate gate is cut out of the gradient.
    assert not copies, copies
    assert text.count("output_to_operand_aliasing={") == 2


# Functions ----------------------------------------------------------------------


def test_one_function_for_all_lengths(fused_calls):
    problem = draw_problem("lstm", 8, 1, 1, 6, features=3)
    weights = [tf.constant(getattr(problem, n)) for n in ("kernel", "recurrent_kernel")]

    signature = [tf.TensorSpec((None, None, 3), tf.float64)]

    @tf.function(jit_compile=True, input_signature=signature)
    def run(x):
        return tf_ecornn.lstm(x, *weights, return_sequences=True)

    for batch, steps in ((1, 1), (5, 9), (2, 30), (3, 0)):
        drawn = draw_problem("lstm", batch, batch, steps, 6, features=3, bias=False)
        zeros = np.zeros((batch, 6))
        drawn = replace(
            drawn,
            gates_x=reference.project(drawn.x, problem.kernel),
            recurrent_kernel=problem.recurrent_kernel,
            initial_h=zeros,
            initial_c=zeros,
        )
        expected, found = reference_forward(drawn), run(drawn.x)
        tolerance = tolerance_of(drawn, np.float64)
        assert_close(found.output, expected.outputs, tolerance, "output")
        assert_close(found.c, expected.states[1], tolerance, "c")
    assert fused_calls() == 4
    assert run.experimental_get_tracing_count() == 1


def test_in_loops_and_branches():
    """Three calls in a while loop are one call over three times the steps."""
    problem = draw_problem("gru", 9, 4, 15, 6, features=3)
    given = {
        "kernel": problem.kernel,
        "recurrent_kernel": problem.recurrent_kernel,
        "bias": problem.both_biases,
    }

    def total(given, h):
        def body(i, h, total):
            part = tf.slice(problem.x, (0, 5 * i, 0), (-1, 5, -1))
            found = tf_ecornn.gru(part, **given, initial_state=h, return_sequences=True)
            weight = tf.slice(problem.grad_outputs, (0, 5 * i, 0), (-1, 5, -1))
            more = tf.cond(
                h[0, 0] > -2.0,
                lambda: tf.reduce_sum(found.output * weight),
                lambda: tf.zeros((), tf.float64),
            )
            return i + 1, found.h, total + more

        loop = (0, h, tf.zeros((), tf.float64))
        return tf.while_loop(lambda i, *_: i < 3, body, loop, maximum_iterations=3)

    @tf.function(jit_compile=True)
    def run(given, h):
        with tf.GradientTape() as tape:
            tape.watch([given, h])
            _, last, loss = total(given, h)
        return last, tape.gradient(loss, [given, h])

    given = {name: tf.constant(value) for name, value in given.items()}
    last, (gradients, d_h) = run(given, tf.constant(problem.initial_h))
    forward = reference_forward(problem)
    grads = reference.run_gradient(forward, problem.grad_outputs)
    tolerance = tolerance_of(problem, np.float64)
    assert_close(last, forward.states[0], tolerance, "h")
    assert_close(d_h, grads.states[0], tolerance, "d h", summed=True)
    assert_close(
        gradients["recurrent_kernel"],
        grads.recurrent_kernel,
        tolerance,
        "d recurrent_kernel",
        summed=True,
    )
    assert_close(gradients["bias"], grads.bias, tolerance, "d bias", summed=True)


@pytest.mark.parametrize("cell", CELLS)
def test_gradient_from_outside(cell):
    """An eager tape over a jit-compiled forward pass; asked twice, equal bits."""
    problem = draw_problem(cell, 10, 5, 4, 6, features=100, mask="random")
    function = tf_ecornn.lstm if cell == "lstm" else tf_ecornn.gru
    form = {} if cell == "lstm" else CELLS[cell][2]
    names = ("x", "kernel", "recurrent_kernel")
    given = [tf.constant(getattr(problem, n)) for n in names]
    states = tuple(tf.constant(s) for s in problem.initial_states)

    @tf.function(jit_compile=True)
    def run(*given):
        return function(
            *given,
            problem.both_biases,
            initial_state=states,
            mask=problem.mask,
            return_sequences=True,
            **form,
        ).output

    with tf.GradientTape(persistent=True) as tape:
        tape.watch(given)
        loss = tf.reduce_sum(run(*given) * problem.grad_outputs)
    found = tape.gradient(loss, given)
    grads = reference.run_gradient(reference_forward(problem), problem.grad_outputs)
    expected = [
        *reference.project_gradient(
            problem.x, problem.kernel, grads.gates_x, problem.mask
        ),
        grads.recurrent_kernel,
    ]
    tolerance = tolerance_of(problem, np.float64)
    for name, value, wanted in zip(names, found, expected, strict=True):
        assert_close(value, wanted, tolerance, f"d {name}", summed=True)
    for value, again in zip(found, tape.gradient(loss, given), strict=True):
        assert_same_bits(again, value, "the gradient asked again")
