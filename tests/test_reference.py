"""The reference itself: against central differences and against stock Keras."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import reference
from reference_activations import ACTIVATIONS

BATCH, STEPS, UNITS, FEATURES = 3, 4, 3, 2
CELLS = ("lstm", "gru_after", "gru_before")
# TensorFlow keeps the constants of these two in float32, whatever the dtype.
FLOAT32_CONSTANTS = ("gelu", "leaky_relu")
FLOAT32_CONSTANT = 2e-8


def gate_count(kind):
    return 4 if kind == "lstm" else 3


def make_cell(kind, recurrent_kernel, bias, dropout=None, **activations):
    if kind == "lstm":
        return reference.LSTMCell(
            recurrent_kernel, bias, recurrent_dropout=dropout, **activations
        )
    return reference.GRUCell(
        recurrent_kernel,
        bias,
        recurrent_dropout=dropout,
        reset_after=kind == "gru_after",
        **activations,
    )


def draw(kind, seed, batch=BATCH, steps=STEPS, units=UNITS):
    """Arrays of a problem: everything that has a gradient, and loss weights."""
    rng = np.random.default_rng(seed)
    gates = gate_count(kind) * units
    states = 2 if kind == "lstm" else 1
    bias = (2, gates) if kind == "gru_after" else (gates,)
    values = {
        "gates_x": rng.normal(size=(batch, steps, gates)),
        "recurrent_kernel": rng.normal(size=(units, gates)) * 0.7,
        "bias": rng.normal(size=bias),
        **{f"state{i}": rng.normal(size=(batch, units)) for i in range(states)},
    }
    loss = {
        "outputs": rng.normal(size=(batch, steps, units)),
        "last_output": rng.normal(size=(batch, units)),
        "states": tuple(rng.normal(size=(batch, units)) for _ in range(states)),
    }
    options = {
        "mask": rng.random((batch, steps)) < 0.6,
        "reset": rng.random((batch, steps)) < 0.3,
        "dropout": rng.integers(0, 2, (batch, gate_count(kind), units)) * 2.0,
    }
    return values, loss, options


def forward(kind, values, dropout=None, activations=None, **options):
    cell = make_cell(
        kind, values["recurrent_kernel"], values.get("bias"), dropout, **activations
    )
    states = tuple(values[k] for k in sorted(values) if k.startswith("state"))
    return reference.run(cell, values["gates_x"], states, **options)


def loss_of(result, loss):
    total = (result.outputs * loss["outputs"]).sum()
    total += (result.last_output * loss["last_output"]).sum()
    return total + sum(
        (s * w).sum() for s, w in zip(result.states, loss["states"], strict=True)
    )


def check_differences(kind, values, loss, activations=None, **options):
    """Every entry of every gradient against a central difference."""
    activations = activations or {}
    result = forward(kind, values, activations=activations, **options)
    found = reference.run_gradient(
        result, loss["outputs"], loss["last_output"], loss["states"]
    )
    analytic = {
        "gates_x": found.gates_x,
        "recurrent_kernel": found.recurrent_kernel,
        "bias": found.bias,
        **{f"state{i}": s for i, s in enumerate(found.states)},
    }
    for name, value in values.items():
        numeric = np.zeros_like(value)
        step = 1e-6
        for index in np.ndindex(value.shape):
            sides = []
            for sign in (1.0, -1.0):
                moved = value.copy()
                moved[index] += sign * step
                shifted = {**values, name: moved}
                sides.append(
                    loss_of(
                        forward(kind, shifted, activations=activations, **options), loss
                    )
                )
            numeric[index] = (sides[0] - sides[1]) / (2.0 * step)
        np.testing.assert_allclose(
            analytic[name], numeric, rtol=1e-6, atol=2e-7, err_msg=f"{kind} {name}"
        )


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("case", range(8))
def test_gradient_of_option_combinations(kind, case):
    values, loss, drawn = draw(kind, seed=case)
    options = {"reverse": bool(case & 1), "zero_output_for_mask": bool(case & 2)}
    if case & 4:
        options["dropout"] = drawn["dropout"]
    if case >= 2:
        options["mask"] = drawn["mask"]
    if case in (1, 3, 6, 7):
        options["reset"] = drawn["reset"]
    if case in (2, 5):
        del values["bias"]
    check_differences(kind, values, loss, **options)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("kind", CELLS)
def test_gradient_of_activations(kind, name):
    values, loss, _ = draw(kind, seed=11, batch=2, steps=2, units=2)
    if name == "exponential":
        values = {k: 0.3 * v for k, v in values.items()}
    check_differences(kind, values, loss, {"activation": name})
    recurrent = {"recurrent_activation": name, "activation": "softsign"}
    check_differences(kind, values, loss, recurrent)


def test_activations_equal_keras():
    x = np.concatenate([np.linspace(-9, 9, 181), [-50.0, 50.0, 0.0, 1e-9]])
    for name, activation in ACTIVATIONS.items():
        value = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(value)
            expected = tf.convert_to_tensor(keras.activations.get(name)(value))
        slope = tape.gradient(expected, value)
        atol = FLOAT32_CONSTANT if name in FLOAT32_CONSTANTS else 1e-14
        np.testing.assert_allclose(
            activation.value(x), expected, rtol=1e-12, atol=10 * atol, err_msg=name
        )
        np.testing.assert_allclose(
            activation.slope(x), slope, rtol=1e-9, atol=atol, err_msg=name
        )


def test_reset_equals_two_sequences():
    for kind in CELLS:
        values, loss, _ = draw(kind, seed=3, steps=6)
        reset = np.zeros((BATCH, 6), bool)
        reset[:, 4] = True
        whole = forward(kind, values, activations={}, reset=reset)
        tail = {**values, "gates_x": values["gates_x"][:, 4:]}
        for name in values:
            if name.startswith("state"):
                tail[name] = np.zeros_like(values[name])
        alone = forward(kind, tail, activations={})
        np.testing.assert_array_equal(whole.outputs[:, 4:], alone.outputs)
        only_end = reference.run_gradient(whole, grad_last_output=loss["last_output"])
        assert not only_end.gates_x[:, :4].any()
        assert not any(s.any() for s in only_end.states)


def test_reset_acts_at_a_masked_step_and_output_still_repeats():
    values, _, _ = draw("lstm", seed=5, batch=1, steps=3)
    mask = np.array([[True, False, False]])
    reset = np.array([[False, True, False]])
    result = forward("lstm", values, activations={}, mask=mask, reset=reset)
    assert not any(s.any() for s in result.states)
    np.testing.assert_array_equal(result.outputs[0, 2], result.outputs[0, 0])
    assert result.last_output.any()


def test_all_masked_and_empty():
    for kind in CELLS:
        values, loss, _ = draw(kind, seed=6)
        mask = np.zeros((BATCH, STEPS), bool)
        result = forward(kind, values, activations={}, mask=mask)
        grads = reference.run_gradient(
            result, loss["outputs"], loss["last_output"], loss["states"]
        )
        assert not result.outputs.any() and not result.last_output.any()
        np.testing.assert_array_equal(result.states[0], values["state0"])
        assert not grads.gates_x.any() and not grads.recurrent_kernel.any()
        np.testing.assert_array_equal(grads.states[0], loss["states"][0])
        empty = {**values, "gates_x": values["gates_x"][:, :0]}
        nothing = forward(kind, empty, activations={})
        assert nothing.outputs.shape == (BATCH, 0, UNITS)
        assert not nothing.last_output.any()
        np.testing.assert_array_equal(nothing.states[0], values["state0"])


def test_masked_inputs_are_never_read():
    for kind in CELLS:
        values, loss, drawn = draw(kind, seed=7)
        poisoned = np.where(drawn["mask"][..., None], values["gates_x"], np.nan)
        results = [
            reference.run_gradient(
                forward(kind, {**values, "gates_x": g}, activations={}, mask=m),
                loss["outputs"],
            )
            for g in (values["gates_x"], poisoned)
            for m in (drawn["mask"],)
        ]
        np.testing.assert_array_equal(results[0].gates_x, results[1].gates_x)
        np.testing.assert_array_equal(
            results[0].recurrent_kernel, results[1].recurrent_kernel
        )


# Against stock Keras ----------------------------------------------------------


def stock_layer(kind, **options):
    if kind == "lstm":
        return keras.layers.LSTM(UNITS, dtype="float64", use_cudnn=False, **options)
    return keras.layers.GRU(
        UNITS,
        dtype="float64",
        use_cudnn=False,
        reset_after=kind == "gru_after",
        **options,
    )


STOCK_CASES = [
    {
        "masked": masked,
        "go_backwards": backwards,
        "zero_output_for_mask": zero,
        "use_bias": bias,
    }
    for masked, backwards, zero, bias in itertools.product((False, True), repeat=4)
    if masked or not zero
]


def check_stock(kind, seed, masked=False, dropped=False, scale=1.0, **options):
    activations = {options.get(k) for k in ("activation", "recurrent_activation")}
    loose = 1e4 if activations & set(FLOAT32_CONSTANTS) else 1.0
    rng = np.random.default_rng(seed)
    layer = stock_layer(kind, return_sequences=True, return_state=True, **options)
    if dropped:
        layer.cell.recurrent_dropout = 0.5
        layer.cell.implementation = 1
    layer.build((BATCH, STEPS, FEATURES))
    layer.set_weights([scale * rng.normal(size=w.shape) for w in layer.get_weights()])
    values, loss, drawn = draw(kind, seed)
    x = tf.constant(rng.normal(size=(BATCH, STEPS, FEATURES)))
    states = [tf.constant(values[k]) for k in sorted(values) if k.startswith("state")]
    dropout = None
    if dropped:
        dropout = drawn["dropout"]
        masks = [tf.constant(dropout[:, k]) for k in range(dropout.shape[1])]
        layer.cell.get_recurrent_dropout_mask = lambda _: masks
    mask = drawn["mask"] if masked else None
    with tf.GradientTape() as tape:
        tape.watch([x, *states])
        outputs, *final = layer(
            x,
            initial_state=states,
            mask=None if mask is None else tf.constant(mask),
            training=dropped,
        )
        total = tf.reduce_sum(outputs * loss["outputs"]) + sum(
            tf.reduce_sum(f * w) for f, w in zip(final, loss["states"], strict=True)
        )
    expected = tape.gradient(total, [x, *states, *layer.trainable_variables])

    kernel, recurrent_kernel, *bias = layer.get_weights()
    cell = make_cell(
        kind,
        recurrent_kernel,
        bias[0] if bias else None,
        dropout,
        activation=options.get("activation", "tanh"),
        recurrent_activation=options.get("recurrent_activation", "sigmoid"),
    )
    result = reference.run(
        cell,
        reference.project(x.numpy(), kernel, mask),
        tuple(s.numpy() for s in states),
        mask=mask,
        reverse=options.get("go_backwards", False),
        zero_output_for_mask=options.get("zero_output_for_mask", False),
    )
    grads = reference.run_gradient(
        result, loss["outputs"], grad_final_states=loss["states"]
    )
    d_x, d_kernel = reference.project_gradient(x.numpy(), kernel, grads.gates_x, mask)
    found = [d_x, *grads.states, d_kernel, grads.recurrent_kernel]
    if bias:
        found.append(grads.bias)
    for a, b in zip([outputs, *final], [result.outputs, *result.states], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-11 * loose, atol=1e-12 * loose)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-10 * loose, atol=1e-11 * loose)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("case", range(len(STOCK_CASES)))
def test_equals_stock_keras(kind, case):
    check_stock(kind, seed=case, **STOCK_CASES[case])


@pytest.mark.parametrize("kind", CELLS)
def test_equals_stock_keras_with_recurrent_dropout(kind):
    check_stock(kind, seed=21, dropped=True)
    check_stock(kind, seed=22, dropped=True, masked=True, go_backwards=True)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_equals_stock_keras_for_activations(kind, name):
    scale = 0.2 if name == "exponential" else 0.5
    check_stock(kind, seed=31, scale=scale, activation=name)
    mixed = {"recurrent_activation": name, "activation": "softsign"}
    check_stock(kind, seed=32, scale=scale, **mixed)


GOLDEN = [
    ("lstm", {}, [0.6288687, 0.86899155, 0.9460773]),
    ("lstm", {"go_backwards": True}, [0.35622165, 0.74789524, 0.8872726]),
    ("lstm", {"unit_forget_bias": False}, [0.57019705, 0.8661914, 0.9459622]),
    ("lstm", {"use_bias": False}, [0.54986924, 0.86226785, 0.9443936]),
    ("gru_after", {}, [0.5217289, 0.6371659, 0.39384964]),
]


@pytest.mark.parametrize(("kind", "options", "golden"), GOLDEN)
def test_golden_values(kind, options, golden):
    """The values that Keras's own tests pin for constant initialisers."""
    x = np.arange(72.0).reshape(3, 6, 4)
    gates = gate_count(kind) * 3
    bias = None
    if options.get("use_bias", True):
        bias = np.full((2, gates) if kind == "gru_after" else (gates,), 0.03)
        if kind == "lstm" and options.get("unit_forget_bias", True):
            bias[3:6] = 1.0
    cell = make_cell(kind, np.full((3, gates), 0.02), bias)
    result = reference.run(
        cell,
        reference.project(x, np.full((4, gates), 0.01)),
        reverse=options.get("go_backwards", False),
    )
    np.testing.assert_allclose(
        result.last_output, np.repeat(np.array(golden)[:, None], 3, 1), atol=1e-5
    )
