"""tf_ecornn.lstm: bad arguments are named, in eager mode and while tracing."""

import numpy as np
import pytest
import tensorflow as tf

import reference
import tf_ecornn

BATCH, STEPS, FEATURES, UNITS = 3, 4, 2, 5


def good_arguments():
    rng = np.random.default_rng(1)

    def normal(*shape):
        return tf.constant(rng.normal(size=shape), tf.float32)

    return {
        "x": normal(BATCH, STEPS, FEATURES),
        "kernel": normal(FEATURES, 4 * UNITS),
        "recurrent_kernel": normal(UNITS, 4 * UNITS),
        "bias": normal(4 * UNITS),
        "initial_state": (normal(BATCH, UNITS), normal(BATCH, UNITS)),
        "mask": tf.ones((BATCH, STEPS), tf.bool),
        "reset": tf.zeros((BATCH, STEPS), tf.bool),
    }


def state_of(h_shape, c_shape=(BATCH, UNITS)):
    return (tf.zeros(h_shape), tf.zeros(c_shape))


WRONG = [
    ("x", tf.zeros((BATCH, FEATURES))),
    ("x", tf.zeros((BATCH, STEPS, FEATURES, 1))),
    ("x", tf.zeros((BATCH, STEPS, FEATURES + 1))),
    ("x", tf.zeros((BATCH, STEPS, FEATURES), tf.int32)),
    ("kernel", tf.zeros((FEATURES, 4 * UNITS + 4))),
    ("kernel", tf.zeros((FEATURES + 1, 4 * UNITS))),
    ("kernel", tf.zeros((4 * UNITS,))),
    ("kernel", tf.zeros((FEATURES, 4 * UNITS), tf.complex64)),
    ("recurrent_kernel", tf.zeros((UNITS, 3 * UNITS))),
    ("recurrent_kernel", tf.zeros((4 * UNITS, UNITS))),
    ("recurrent_kernel", tf.zeros((UNITS,))),
    ("bias", tf.zeros((8 * UNITS,))),
    ("bias", tf.zeros((4 * UNITS - 1,))),
    ("bias", tf.zeros((2, 4 * UNITS))),
    ("mask", tf.ones((BATCH, STEPS + 1), tf.bool)),
    ("mask", tf.ones((BATCH + 1, STEPS), tf.bool)),
    ("mask", tf.ones((STEPS,), tf.bool)),
    ("mask", tf.ones((BATCH, STEPS, UNITS), tf.bool)),
    ("reset", tf.ones((BATCH, STEPS - 1), tf.bool)),
    ("reset", tf.ones((BATCH,), tf.bool)),
    ("initial_state", state_of((BATCH, UNITS + 1))),
    ("initial_state", state_of((BATCH, UNITS), (BATCH, UNITS - 1))),
    ("initial_state", state_of((BATCH + 1, UNITS))),
    ("initial_state", state_of((1, UNITS))),
    ("initial_state", state_of((4, BATCH, UNITS))),
    ("initial_state", (tf.zeros((BATCH, UNITS)),)),
    ("initial_state", state_of((BATCH, UNITS)) + (tf.zeros((BATCH, UNITS)),)),
    ("mask", "no such"),
    ("mask", object()),
    ("reset", [[b"no"] * STEPS] * BATCH),
    ("reset", object()),
    ("return_sequences", "no such"),
    ("go_backwards", None),
    ("zero_output_for_mask", 2),
    ("save_for_backward", np.ones(3)),
    ("activation", "no such"),
    ("activation", "softmax"),
    ("recurrent_activation", ""),
    ("recurrent_activation", 7),
]
IDS = [
    f"{n}-{i}-{getattr(v, 'shape', '')}".replace(" ", "")
    for i, (n, v) in enumerate(WRONG)
]
# Two arguments can each be the wrong one of a pair: either name will do.
PARTNERS = {
    "x": ("x", "kernel"),
    "kernel": ("kernel", "x"),
    "recurrent_kernel": ("recurrent_kernel", "kernel"),
    "initial_state": ("initial_state", "initial_h", "initial_c"),
}


@pytest.mark.parametrize(("name", "value"), WRONG, ids=IDS)
def test_named_in_the_error(name, value):
    arguments = {**good_arguments(), name: value}
    tf_ecornn.lstm(**good_arguments())
    for attempt in (
        lambda: tf_ecornn.lstm(**arguments),
        tf.function(lambda: tf_ecornn.lstm(**arguments)),
    ):
        with pytest.raises((ValueError, TypeError)) as caught:
            attempt()
        message = str(caught.value)
        assert any(n in message for n in PARTNERS.get(name, (name,))), message


@pytest.mark.parametrize("known", (True, False))
@pytest.mark.parametrize("name", ("x", "kernel", "mask", "reset", "initial_state"))
def test_sizes_known_only_at_run_time(name, known):
    """Sizes that contradict each other when the graph runs: an error, no result."""
    good = good_arguments()
    specs = tf.nest.map_structure(
        lambda t: tf.TensorSpec([None] * t.shape.rank, t.dtype), good
    )
    if known:
        for weight in ("kernel", "recurrent_kernel", "bias"):
            specs[weight] = tf.TensorSpec(good[weight].shape, tf.float32)
        specs["x"] = tf.TensorSpec((None, None, FEATURES), tf.float32)
        if name == "kernel":
            pytest.skip("Python knows it")

    @tf.function(input_signature=[specs])
    def traced(inputs):
        return tuple(tf_ecornn.lstm(**inputs))

    traced(good)
    wrong = {
        "x": [
            tf.zeros((batch, steps, FEATURES))
            for batch, steps in ((BATCH + 1, STEPS), (1, STEPS), (BATCH, 1), (1, 1))
        ],
        "kernel": [
            tf.zeros((FEATURES + 1, 4 * UNITS)),
            tf.zeros((FEATURES, 4 * UNITS - 1)),
            tf.zeros((1, 4 * UNITS)),
        ],
        "mask": [
            tf.ones((BATCH, STEPS + 1), tf.bool),
            tf.ones((STEPS, BATCH), tf.bool),
            tf.ones((BATCH, 1), tf.bool),
            tf.ones((5, 5), tf.bool),
        ],
        "reset": [tf.ones((BATCH, 1), tf.bool), tf.ones((BATCH + 1, STEPS), tf.bool)],
        "initial_state": [state_of((1, UNITS)), state_of((BATCH, 2 * UNITS))],
    }
    for value in wrong[name]:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            traced({**good, name: value})
        names = {"x": ("mask",), "initial_state": ("initial_",)}
        assert any(n in str(caught.value) for n in names.get(name, (name,)))


def test_gradient_of_a_gradient():
    """Second order: equal to differences of first-order gradients, or one error."""
    arguments = {
        n: tf.cast(v, tf.float64)
        for n, v in good_arguments().items()
        if n in ("x", "kernel", "recurrent_kernel", "bias")
    }

    def first_order(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = tf_ecornn.lstm(**{**arguments, "x": x}, return_sequences=True)
            total = tf.reduce_sum(found.output**2)
        return tape.gradient(total, x)

    def reference_first_order(x):
        weights = {n: v.numpy() for n, v in arguments.items()}
        cell = reference.LSTMCell(weights["recurrent_kernel"], weights["bias"])
        forward = reference.run(cell, reference.project(x, weights["kernel"]))
        gates = reference.run_gradient(forward, 2.0 * forward.outputs).gates_x
        return reference.project_gradient(x, weights["kernel"], gates)[0]

    x = arguments["x"]
    direction = np.random.default_rng(2).normal(size=x.shape)
    step = 1e-6
    ahead, behind = (
        np.sum(reference_first_order(x.numpy() + s * step * direction) ** 2)
        for s in (1.0, -1.0)
    )
    for attempt in (first_order, tf.function(first_order)):
        try:
            with tf.GradientTape() as tape:
                tape.watch(x)
                squared = tf.reduce_sum(attempt(x) ** 2)
            second = tape.gradient(squared, x)
        except Exception as error:
            assert "gradient" in str(error).lower(), error
            continue
        assert second is not None, "a missing second gradient must not pass in silence"
        np.testing.assert_allclose(
            tf.reduce_sum(second * direction), (ahead - behind) / (2 * step), rtol=1e-6
        )
