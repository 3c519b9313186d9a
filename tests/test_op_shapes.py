"""Shape functions: what is known of the results while a graph is traced."""

import inspect
import itertools

import numpy as np
import pytest
import tensorflow as tf

from helpers import FORWARD, GRADIENT, check_op
from problems import CELLS, draw_problem

BATCH, STEPS, UNITS, FEATURES = 3, 4, 5, 2
LISTS = (
    "bias",
    "recurrent_bias",
    "mask",
    "reset",
    "recurrent_dropout",
    "kernel",
    "grad_outputs",
)
pytestmark = pytest.mark.parametrize("cell", CELLS)


def shared_specs(cell, batch, steps, units, dtype):
    gates = CELLS[cell][0]
    width = None if units is None else gates * units
    return {
        "recurrent_kernel": tf.TensorSpec((units, width), dtype),
        "mask": tf.TensorSpec((batch, steps), tf.bool),
        "reset": tf.TensorSpec((batch, steps), tf.bool),
        "recurrent_dropout": tf.TensorSpec((batch, gates, units), dtype),
    }


def forward_specs(cell, batch, steps, units, dtype=tf.float32, features=None):
    """Every input; the kernel only if there are features."""
    gates, states, form = CELLS[cell]
    width = None if units is None else gates * units
    specs = {
        "x": tf.TensorSpec((batch, steps, features or width), dtype),
        **{f"initial_{s}": tf.TensorSpec((batch, units), dtype) for s in states},
        "bias": tf.TensorSpec((width,), dtype),
        **shared_specs(cell, batch, steps, units, dtype),
    }
    if form.get("reset_after"):
        specs["recurrent_bias"] = tf.TensorSpec((width,), dtype)
    if features:
        specs["kernel"] = tf.TensorSpec((features, width), dtype)
    return specs


def gradient_specs(cell, batch, steps, units, dtype=tf.float32):
    gates, states, _ = CELLS[cell]
    width = None if units is None else gates * units
    state = tf.TensorSpec((batch, units), dtype)
    sequence = tf.TensorSpec((batch, steps, units), dtype)
    kept = ("previous_c",) if cell == "lstm" else ("previous_h", "candidate")
    return {
        "gates": tf.TensorSpec((batch, steps, width), dtype),
        **dict.fromkeys(kept, sequence),
        "grad_last_output": state,
        **{f"grad_final_{s}": state for s in states},
        "grad_outputs": sequence,
        **shared_specs(cell, batch, steps, units, dtype),
    }


def forward_attributes(cell, outputs=1, saved=1):
    attributes = {"num_outputs": outputs, "num_saved": saved, **CELLS[cell][2]}
    if cell == "lstm":
        attributes["state_type"] = tf.float32
    return attributes


def gradient_attributes(cell, biases=1):
    attributes = {"num_biases": biases, **CELLS[cell][2]}
    if attributes.get("reset_after"):
        attributes["num_recurrent_biases"] = biases
    return attributes


def list_names(op):
    """The list inputs of a raw op."""
    return [n for n in LISTS if n in inspect.signature(op).parameters]


def both_ops(cell, features=None):
    """(op, right specs, attributes) of the forward and the gradient op."""
    yield (
        FORWARD[cell],
        forward_specs(cell, BATCH, STEPS, UNITS, features=features),
        forward_attributes(cell),
    )
    yield (
        GRADIENT[cell],
        gradient_specs(cell, BATCH, STEPS, UNITS),
        gradient_attributes(cell),
    )


def traced_results(op, specs, **attributes):
    """The op traced on the given specs; a spec left out is an empty list."""

    @tf.function
    def traced(inputs):
        named = {n: [inputs[n]] if n in LISTS else inputs[n] for n in inputs}
        empty = {n: [] for n in list_names(op) if n not in inputs}
        return op(**named, **empty, **attributes)._asdict()

    found = traced.get_concrete_function(specs).structured_outputs
    return tf.nest.map_structure(lambda t: tuple(t.shape), found)


def forward_shapes(cell, specs, outputs=1, saved=1):
    return traced_results(
        FORWARD[cell], specs, **forward_attributes(cell, outputs, saved)
    )


@pytest.mark.parametrize("batch", (BATCH, None))
@pytest.mark.parametrize("steps", (STEPS, None))
@pytest.mark.parametrize("features", (None, FEATURES))
def test_forward_shapes(cell, batch, steps, features):
    gates, states, _ = CELLS[cell]
    specs = forward_specs(cell, batch, steps, UNITS, features=features)
    found = forward_shapes(cell, specs)
    row, sequence = (batch, UNITS), (batch, steps, UNITS)
    assert found["last_output"] == row
    assert all(found[f"final_{s}"] == row for s in states)
    assert found["outputs"] == [sequence]
    assert found["gates"] == [(batch, steps, gates * UNITS)]
    assert found["previous_h"] == [sequence]
    assert found["previous_c" if cell == "lstm" else "candidate"] == [sequence]
    fewer = forward_shapes(cell, specs, outputs=0, saved=0)
    assert fewer["outputs"] == fewer["gates"] == fewer["previous_h"] == []


@pytest.mark.parametrize("batch", (BATCH, None))
@pytest.mark.parametrize("steps", (STEPS, None))
def test_gradient_shapes(cell, batch, steps):
    gates, states, form = CELLS[cell]
    for biases in (0, 1):
        found = traced_results(
            GRADIENT[cell],
            gradient_specs(cell, batch, steps, UNITS),
            **gradient_attributes(cell, biases),
        )
        assert found["grad_gates"] == (batch, steps, gates * UNITS)
        assert all(found[f"grad_initial_{s}"] == (batch, UNITS) for s in states)
        assert found["grad_bias"] == [(gates * UNITS,)] * biases
        if form.get("reset_after"):
            assert found["grad_recurrent_bias"] == [(gates * UNITS,)] * biases
            assert found["grad_candidate"] == (batch, steps, UNITS)


def test_what_one_input_knows_all_results_know(cell):
    """Batch and time known from a single input, in turn."""
    for name, spec in forward_specs(cell, BATCH, STEPS, UNITS).items():
        if name in ("recurrent_kernel", "bias", "recurrent_bias"):
            continue
        timed = name in ("x", "mask", "reset")
        specs = {**forward_specs(cell, None, None, UNITS), name: spec}
        found = forward_shapes(cell, specs)
        steps = STEPS if timed else None
        assert found["last_output"] == (BATCH, UNITS), name
        assert found["outputs"] == [(BATCH, steps, UNITS)], name


def test_units_known_from_the_kernel_or_the_gates(cell):
    for name in ("recurrent_kernel", "x", "initial_h", "bias"):
        specs = forward_specs(cell, BATCH, STEPS, None)
        specs[name] = forward_specs(cell, BATCH, STEPS, UNITS)[name]
        found = forward_shapes(cell, specs)
        if name != "bias":
            assert found["outputs"] == [(BATCH, STEPS, UNITS)], name
        assert found["outputs"][0][:2] == (BATCH, STEPS), name


def test_nothing_known(cell):
    known = forward_specs(cell, 1, 1, 1)
    specs = {n: tf.TensorSpec(None, s.dtype) for n, s in known.items()}

    @tf.function
    def traced(inputs):
        named = {n: [v] if n in LISTS else v for n, v in inputs.items()}
        empty = {n: [] for n in list_names(FORWARD[cell]) if n not in inputs}
        found = FORWARD[cell](**named, **empty, **forward_attributes(cell))
        return found.last_output, found.outputs[0]

    last, outputs = traced.get_concrete_function(specs).structured_outputs
    assert last.shape.rank == 2 and outputs.shape.rank == 3


def test_optional_inputs_in_every_combination(cell):
    given = [n for n in LISTS if n in forward_specs(cell, None, None, UNITS)]
    for present in itertools.product((False, True), repeat=len(given)):
        specs = forward_specs(cell, None, None, UNITS)
        for name, keep in zip(given, present, strict=True):
            if not keep:
                del specs[name]
        assert forward_shapes(cell, specs)["outputs"] == [(None, None, UNITS)]


@pytest.mark.parametrize("wrong", (0, 1, 2, 6))
@pytest.mark.parametrize("features", (None, FEATURES))
def test_shapes_that_contradict_each_other(cell, wrong, features):
    """One input with one axis changed, everything else known."""
    for op, good, attributes in both_ops(cell, features):
        for name, spec in good.items():
            for axis, size in enumerate(spec.shape):
                if size == wrong:
                    continue
                shape = [*spec.shape[:axis], wrong, *spec.shape[axis + 1 :]]
                specs = {**good, name: tf.TensorSpec(shape, spec.dtype)}
                with pytest.raises(ValueError):
                    traced_results(op, specs, **attributes)


@pytest.mark.parametrize("features", (None, FEATURES))
def test_wrong_rank_with_unknown_sizes(cell, features):
    for op, good, attributes in both_ops(cell, features):
        for (name, spec), rank in itertools.product(good.items(), range(5)):
            if rank == spec.shape.rank:
                continue
            specs = {**good, name: tf.TensorSpec([None] * rank, spec.dtype)}
            with pytest.raises(ValueError):
                traced_results(op, specs, **attributes)


def test_static_shapes_agree_with_run_time_ones(cell):
    problem = draw_problem(cell, 1, BATCH, STEPS, UNITS, mask="random", reset=True)
    check_op(problem, np.float32)
    known = forward_shapes(cell, forward_specs(cell, BATCH, STEPS, UNITS))
    assert known["outputs"] == [problem.grad_outputs.shape]
