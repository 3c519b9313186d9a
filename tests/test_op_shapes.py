"""Shape functions: what is known of the results while a graph is traced."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from helpers import FORWARD, GRADIENT, check_op
from problems import draw_problem

BATCH, STEPS, UNITS = 3, 4, 5


def forward_specs(batch, steps, units, dtype=tf.float32):
    gates = None if units is None else 4 * units
    return {
        "gates_x": tf.TensorSpec((batch, steps, gates), dtype),
        "recurrent_kernel": tf.TensorSpec((units, gates), dtype),
        "initial_h": tf.TensorSpec((batch, units), dtype),
        "initial_c": tf.TensorSpec((batch, units), dtype),
        "bias": tf.TensorSpec((gates,), dtype),
        "mask": tf.TensorSpec((batch, steps), tf.bool),
        "reset": tf.TensorSpec((batch, steps), tf.bool),
        "recurrent_dropout": tf.TensorSpec((batch, 4, units), dtype),
    }


def gradient_specs(batch, steps, units, dtype=tf.float32):
    gates = None if units is None else 4 * units
    state = tf.TensorSpec((batch, units), dtype)
    return {
        "gates": tf.TensorSpec((batch, steps, gates), dtype),
        "previous_c": tf.TensorSpec((batch, steps, units), dtype),
        "recurrent_kernel": tf.TensorSpec((units, gates), dtype),
        "grad_last_output": state,
        "grad_final_h": state,
        "grad_final_c": state,
        "grad_outputs": tf.TensorSpec((batch, steps, units), dtype),
        "mask": tf.TensorSpec((batch, steps), tf.bool),
        "reset": tf.TensorSpec((batch, steps), tf.bool),
        "recurrent_dropout": tf.TensorSpec((batch, 4, units), dtype),
    }


LISTS = ("bias", "mask", "reset", "recurrent_dropout", "grad_outputs")


def traced_results(op, specs, **attributes):
    """The op traced on the given specs; a spec left out is an empty list."""

    @tf.function
    def traced(inputs):
        named = {
            n: [inputs[n]] if n in LISTS else inputs[n] for n in specs if n in inputs
        }
        lists = LISTS[:4] if op is FORWARD else LISTS[1:]
        empty = {n: [] for n in lists if n not in inputs}
        return tuple(op(**named, **empty, **attributes))

    traced.get_concrete_function(specs)
    found = traced.get_concrete_function(specs).structured_outputs
    return tf.nest.map_structure(lambda t: tuple(t.shape), found)


def forward_shapes(specs, outputs=1, saved=1, dtype=tf.float32):
    names = "last_output final_h final_c outputs gates previous_h previous_c".split()
    found = traced_results(
        FORWARD, specs, num_outputs=outputs, num_saved=saved, state_type=dtype
    )
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("batch", (BATCH, None))
@pytest.mark.parametrize("steps", (STEPS, None))
def test_forward_shapes(batch, steps):
    found = forward_shapes(forward_specs(batch, steps, UNITS))
    row, sequence = (batch, UNITS), (batch, steps, UNITS)
    assert found["last_output"] == found["final_h"] == found["final_c"] == row
    assert found["outputs"] == [sequence]
    assert found["gates"] == [(batch, steps, 4 * UNITS)]
    assert found["previous_h"] == found["previous_c"] == [sequence]
    fewer = forward_shapes(forward_specs(batch, steps, UNITS), outputs=0, saved=0)
    assert fewer["outputs"] == fewer["gates"] == fewer["previous_h"] == []


@pytest.mark.parametrize("batch", (BATCH, None))
@pytest.mark.parametrize("steps", (STEPS, None))
def test_gradient_shapes(batch, steps):
    for biases in (0, 1):
        gates, h, c, bias = traced_results(
            GRADIENT, gradient_specs(batch, steps, UNITS), num_biases=biases
        )
        assert gates == (batch, steps, 4 * UNITS)
        assert h == c == (batch, UNITS)
        assert bias == [(4 * UNITS,)] * biases


def test_what_one_input_knows_all_results_know():
    """Batch and time known from a single input, in turn."""
    for name, (batch, steps) in {
        "gates_x": (BATCH, STEPS),
        "initial_h": (BATCH, None),
        "initial_c": (BATCH, None),
        "mask": (BATCH, STEPS),
        "reset": (BATCH, STEPS),
        "recurrent_dropout": (BATCH, None),
    }.items():
        specs = forward_specs(None, None, UNITS)
        specs[name] = forward_specs(BATCH, STEPS, UNITS)[name]
        found = forward_shapes(specs)
        assert found["last_output"] == (batch, UNITS), name
        assert found["outputs"] == [(batch, steps, UNITS)], name


def test_units_known_from_the_kernel_or_the_gates():
    for name in ("recurrent_kernel", "gates_x", "initial_h", "bias"):
        specs = forward_specs(BATCH, STEPS, None)
        specs[name] = forward_specs(BATCH, STEPS, UNITS)[name]
        found = forward_shapes(specs)
        if name != "bias":
            assert found["outputs"] == [(BATCH, STEPS, UNITS)], name
        assert found["outputs"][0][:2] == (BATCH, STEPS), name


def test_nothing_known():
    specs = {n: tf.TensorSpec(None, s.dtype) for n, s in forward_specs(1, 1, 1).items()}

    @tf.function
    def traced(inputs):
        named = {n: [v] if n in LISTS else v for n, v in inputs.items()}
        found = FORWARD(
            **named,
            num_outputs=1,
            num_saved=0,
            state_type=tf.float32,
        )
        return found.last_output, found.outputs[0]

    last, outputs = traced.get_concrete_function(specs).structured_outputs
    assert last.shape.rank == 2 and outputs.shape.rank == 3


def test_optional_inputs_in_every_combination():
    for present in itertools.product((False, True), repeat=4):
        specs = forward_specs(None, None, UNITS)
        for name, keep in zip(LISTS[:4], present, strict=True):
            if not keep:
                del specs[name]
        assert forward_shapes(specs)["outputs"] == [(None, None, UNITS)]


@pytest.mark.parametrize("wrong", (0, 1, 2, 6))
def test_shapes_that_contradict_each_other(wrong):
    """One input with one axis changed, everything else known."""
    for op, specs_of in ((FORWARD, forward_specs), (GRADIENT, gradient_specs)):
        good = specs_of(BATCH, STEPS, UNITS)
        for name, spec in good.items():
            for axis, size in enumerate(spec.shape):
                if size == wrong:
                    continue
                shape = [*spec.shape[:axis], wrong, *spec.shape[axis + 1 :]]
                specs = {**good, name: tf.TensorSpec(shape, spec.dtype)}
                attributes = (
                    {"num_outputs": 1, "num_saved": 1, "state_type": tf.float32}
                    if op is FORWARD
                    else {"num_biases": 1}
                )
                with pytest.raises(ValueError):
                    traced_results(op, specs, **attributes)


def test_wrong_rank_with_unknown_sizes():
    for op, specs_of in ((FORWARD, forward_specs), (GRADIENT, gradient_specs)):
        good = specs_of(BATCH, STEPS, UNITS)
        attributes = (
            {"num_outputs": 1, "num_saved": 1, "state_type": tf.float32}
            if op is FORWARD
            else {"num_biases": 1}
        )
        for (name, spec), rank in itertools.product(good.items(), range(5)):
            if rank == spec.shape.rank:
                continue
            specs = {**good, name: tf.TensorSpec([None] * rank, spec.dtype)}
            with pytest.raises(ValueError):
                traced_results(op, specs, **attributes)


def test_static_shapes_agree_with_run_time_ones():
    problem = draw_problem(1, BATCH, STEPS, UNITS, mask="random", reset=True)
    check_op(problem, np.float32)
    known = forward_shapes(forward_specs(BATCH, STEPS, UNITS))
    assert known["outputs"] == [problem.grad_outputs.shape]
