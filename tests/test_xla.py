"""`jit_compile=True`: the fused ops inside XLA's programs, with what Keras adds."""

import re
import threading
from dataclasses import fields, replace
from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf

import helpers
import reference
import tf_ecornn
from helpers import check_op, forward_arguments, gradient_arguments, run_op
from layer_pairs import KINDS
from problems import (
    CELLS,
    assert_close,
    assert_same_bits,
    draw_problem,
    reference_forward,
    tolerance_of,
)
from tf_ecornn import _library, gpu

pytestmark = pytest.mark.skipif(
    not _library.has_xla(), reason="this TensorFlow's build has no XLA part"
)

every_cell = pytest.mark.parametrize("cell", CELLS)
every_kind = pytest.mark.parametrize("kind", KINDS)
BFLOAT16 = tf.bfloat16.as_numpy_dtype
# Twice the error of one rounding.
ROUNDING = {np.float16: 2.0**-10, BFLOAT16: 2.0**-7}
B, T, F = 16, 9, 5


def compiled(op):
    """The raw op as the only one of a jit-compiled function."""

    def call(**arguments):
        is_tensor = {
            n: tf.is_tensor(v) or isinstance(v, list) for n, v in arguments.items()
        }
        tensors = {n: v for n, v in arguments.items() if is_tensor[n]}
        rest = {n: v for n, v in arguments.items() if not is_tensor[n]}
        function = tf.function(lambda given: op(**given, **rest), jit_compile=True)
        return function(tensors)

    return call


@pytest.fixture
def compiled_ops(monkeypatch):
    """The helpers' raw ops, each in a jit-compiled function of its own."""
    for ops in (helpers.FORWARD, helpers.GRADIENT):
        for cell in CELLS:
            monkeypatch.setitem(ops, cell, compiled(ops[cell]))


def program(function, *arguments):
    """The text of the program that XLA made of a jit-compiled function."""
    return function.experimental_get_compiler_ir(*arguments)(stage="optimized_hlo")


def custom_calls(text):
    return re.findall(r'custom_call_target="(EcoRNN>\w+)"', text)


# Raw ops ------------------------------------------------------------------------

OPTIONS = (
    {},
    {"mask": "random", "reset": True, "dropout": True, "reverse": True},
    {"mask": "right", "zero_output_for_mask": True, "bias": False},
    {"activation": "softsign", "recurrent_activation": "hard_sigmoid"},
)


@every_cell
@pytest.mark.parametrize("dtype", helpers.DTYPES)
def test_values_and_gradients(cell, dtype, compiled_ops, fused_calls):
    """Every optional input and output; each compiled function runs the op once."""
    for options in OPTIONS:
        problem = draw_problem(cell, 1, 7, 6, 19, features=3, **options)
        check_op(problem, dtype)
        check_op(problem, dtype, outputs=False)
        check_op(problem, dtype, joined=True)
        check_op(problem, dtype, save=False)
    assert fused_calls() == 7 * len(OPTIONS)


@every_cell
def test_sizes(cell, compiled_ops):
    """One of each, none, more than a tile, and units over several panels."""
    for batch, steps, units in ((1, 1, 1), (0, 3, 4), (3, 0, 4), (37, 3, 130)):
        problem = draw_problem(cell, 2, batch, steps, units, features=2, mask="random")
        check_op(problem, np.float32)
        check_op(problem, np.float32, joined=True)
    check_op(draw_problem(cell, 3, 4, 3, 6, features=0), np.float64, joined=True)


def as_held(problem, dtype):
    """The problem with every number as `dtype` holds it."""

    def held(value):
        if not isinstance(value, np.ndarray) or value.dtype != np.float64:
            return value
        return value.astype(dtype).astype(np.float64)

    names = [f.name for f in fields(problem)]
    return replace(problem, **{n: held(getattr(problem, n)) for n in names})


@every_cell
@pytest.mark.parametrize("dtype", ROUNDING)
def test_16_bits(cell, dtype, compiled_ops):
    problem = draw_problem(cell, 4, 7, 5, 19, mask="random", dropout=True)
    problem = as_held(problem, dtype)
    actual = run_op(problem, dtype)
    forward = reference_forward(problem)
    grads = reference.run_gradient(
        forward,
        problem.grad_outputs,
        problem.grad_last_output,
        problem.grad_final_states,
    )
    expected = {
        "last_output": forward.last_output,
        "outputs": forward.outputs,
        "final_h": forward.states[0],
        "grad_gates": grads.gates_x,
        "grad_initial_h": grads.states[0],
        "grad_bias": grads.bias if problem.recurrent_bias is None else grads.bias[0],
    }
    for name, value in expected.items():
        assert actual[name].dtype == dtype
        error = np.abs(actual[name].astype(np.float64) - value).max()
        # Saved gates are rounded; steps and rows add up what that does.
        bound = 6 * ROUNDING[dtype] * max(1.0, np.abs(value).max())
        assert error <= bound, f"{name}: off by {error:.1e} (bound {bound:.1e})"


@every_cell
@pytest.mark.parametrize("dtype", (np.float32, np.float64, np.float16, BFLOAT16))
def test_bits_of_the_op_outside(cell, dtype, monkeypatch):
    """The same engine: what jit-compiled functions return has the same bits."""
    problem = draw_problem(cell, 5, 21, 8, 40, mask="random", reset=True)
    outside = run_op(problem, dtype)
    for ops in (helpers.FORWARD, helpers.GRADIENT):
        monkeypatch.setitem(ops, cell, compiled(ops[cell]))
    for _ in range(2):
        inside = run_op(problem, dtype)
        assert inside.keys() == outside.keys()
        for name, value in outside.items():
            assert_same_bits(inside[name], value, name)


@every_cell
def test_given_tensors_stay_as_they_are(cell):
    """Gates take the memory of an input, but never that of a program's own."""
    problem = draw_problem(cell, 6, 5, 4, 8)
    given = forward_arguments(problem, np.float32)
    x = given["x"].numpy()
    saved = compiled(helpers.FORWARD[cell])(**given)
    assert_same_bits(given["x"], x, "x")
    gates = saved.gates[0].numpy()
    compiled(helpers.GRADIENT[cell])(**gradient_arguments(problem, saved, np.float32))
    assert_same_bits(saved.gates[0], gates, "gates")


@every_cell
def test_inputs_as_wide_as_the_gates(cell):
    """x, multiplied inside the op, looks like the gates and is still needed."""
    problem = draw_problem(cell, 7, 5, 4, 20, features=20 * CELLS[cell][0])
    given = forward_arguments(problem, np.float64, joined=True)

    @tf.function(jit_compile=True)
    def run(x):
        return helpers.FORWARD[cell](**{**given, "x": 2.0 * x}).outputs[0]

    tolerance = tolerance_of(problem, np.float64)
    expected = reference_forward(problem).outputs
    assert_close(run(given["x"] / 2.0), expected, tolerance, "outputs")


# What is in the program ----------------------------------------------------------


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


@every_cell
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


# Errors -------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ("lstm", "gru"))
@pytest.mark.parametrize("name", ("initial_h", "mask", "recurrent_dropout", "bias"))
def test_wrong_shapes_are_refused(cell, name):
    """Where they show when the function is traced, and where XLA first sees them."""
    problem = draw_problem(cell, 11, 3, 4, 5, mask="random", dropout=True)
    given = forward_arguments(problem, np.float32)
    right = given[name][0] if isinstance(given[name], list) else given[name]
    wrong = tf.concat([right, right], axis=0)

    def run(value):
        listed = [value] if isinstance(given[name], list) else value
        return helpers.FORWARD[cell](**{**given, name: listed}).last_output

    with pytest.raises(ValueError, match=name):
        tf.function(run, jit_compile=True)(wrong)
    unknown = [tf.TensorSpec(None, right.dtype)]
    function = tf.function(run, jit_compile=True, input_signature=unknown)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{name} must have shape"):
        function(wrong)
    assert function(right).shape == (3, 5)


def test_recurrent_biases_without_reset_after_are_refused():
    problem = draw_problem("gru", 12)
    given = forward_arguments(problem, np.float32)
    match = "go(es)? with reset_after alone"
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        compiled(helpers.FORWARD["gru"])(**{**given, "reset_after": False})
    saved = helpers.FORWARD["gru"](**given)
    given = gradient_arguments(problem, saved, np.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        compiled(helpers.GRADIENT["gru"])(**{**given, "reset_after": False})


def test_sizes_computed_inside_are_refused():
    """XLA pads what it does not know the size of; the op would see the padding."""
    weights = [tf.ones((F, 9)), tf.ones((3, 9))]

    @tf.function(jit_compile=True)
    def run(x, keep):
        return tf_ecornn.gru(tf.boolean_mask(x, keep), *weights).output

    with pytest.raises(tf.errors.InvalidArgumentError, match="x has a size that"):
        run(tf.ones((4, T, F)), tf.constant([True, False, True, True]))


# Keras --------------------------------------------------------------------------


def test_supports_jit(monkeypatch):
    layers = (
        tf_ecornn.LSTM(2),
        tf_ecornn.GRU(2),
        tf_ecornn.LSTMCell(2),
        tf_ecornn.GRUCell(2),
        tf_ecornn.RNN([tf_ecornn.LSTMCell(2), keras.layers.GRUCell(2)]),
    )
    assert all(layer.supports_jit for layer in layers)
    model = keras.Sequential([keras.Input((T, F)), *layers[:1]])
    for given, expected in (("auto", False), (True, True), (False, False)):
        model.compile("sgd", "mse", jit_compile=given)
        assert model.jit_compile == expected
    # Where a GPU runs the ops, no XLA kernels of theirs exist.
    monkeypatch.setattr(gpu, "visible", lambda: True)
    monkeypatch.setattr(gpu, "stock_reason", lambda: None)
    assert tf_ecornn.LSTM(2).fused and not tf_ecornn.LSTM(2).supports_jit
    assert not tf_ecornn.GRUCell(2).supports_jit
    monkeypatch.undo()
    monkeypatch.setattr(_library, "has_xla", lambda: False)
    assert not tf_ecornn.GRUCell(2).supports_jit
    model = keras.Sequential([keras.Input((T, F)), tf_ecornn.LSTM(2)])
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        model.compile("sgd", "mse", jit_compile=True)
    assert not model.jit_compile


def small_model():
    """Several layers and wrappers, masks, both forms of the GRU, a shared state."""
    inputs = keras.Input((None, F))
    x = keras.layers.Masking()(inputs)
    x = keras.layers.Bidirectional(tf_ecornn.LSTM(6, return_sequences=True))(x)
    x, state = tf_ecornn.GRU(4, return_sequences=True, return_state=True)(x)
    x = tf_ecornn.GRU(4, reset_after=False, go_backwards=True)(x, initial_state=state)
    return keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(x))


def stateful_model():
    return keras.Sequential(
        [
            keras.Input(batch_shape=(8, T, F)),
            tf_ecornn.LSTM(6, stateful=True, return_sequences=True),
            tf_ecornn.GRU(4, stateful=True),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )


def fit(make, jit, x, y, policy="float32"):
    """Losses, weights and predictions after some steps."""
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(policy)
    try:
        model = make()
    finally:
        keras.config.set_dtype_policy("float32")
    model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=jit)
    assert model.jit_compile == jit
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    predictions = model.predict(x, batch_size=8, verbose=0)
    return history.history["loss"], model.get_weights(), predictions


def draw_data():
    """Inputs, the last steps of which are masked here and there, and targets."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(24, T, F)).astype("float32")
    x[:, 6:] *= rng.integers(0, 2, (24, T - 6, 1))
    return x, rng.normal(size=(24, 1)).astype("float32")


def assert_fits_equal(actual, expected, tolerance):
    compare = partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance)
    keras.tree.map_structure(compare, actual, expected)


@pytest.mark.parametrize(
    ("make", "policy", "tolerance"),
    [
        (small_model, "float32", 1e-5),
        (small_model, "mixed_float16", 1e-2),
        (stateful_model, "float32", 1e-5),
    ],
)
def test_fit_with_and_without(make, policy, tolerance, fused_calls):
    x, y = draw_data()
    expected = fit(make, False, x, y, policy)
    calls = fused_calls()
    actual = fit(make, True, x, y, policy)
    assert calls > 0 and fused_calls() == 2 * calls
    assert_fits_equal(actual, expected, tolerance)


def test_dropout_masks_are_the_stock_layers(fused_calls):
    """XLA draws other numbers than TensorFlow, the same ones for both."""
    x, y = draw_data()
    losses = []
    for make in (keras.layers.LSTM, tf_ecornn.LSTM):
        keras.utils.set_random_seed(5)
        layer = make(4, dropout=0.3, recurrent_dropout=0.4, seed=1)
        model = keras.Sequential([keras.Input((T, F)), layer, keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=True)
        before = fused_calls()
        losses.append([model.train_on_batch(x, y) for _ in range(3)])
        assert (fused_calls() - before == 6) == (make is tf_ecornn.LSTM)
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert len(set(losses[0])) == 3


# Threads ------------------------------------------------------------------------


@pytest.mark.parametrize("intra", (1, 2))
def test_threads_are_those_of_the_pool(intra, run_worker):
    done = run_worker("xla_threads.py", intra, timeout=120)
    assert done.returncode == 0, done.stderr
    working = int(done.stdout.split()[-1])
    # Two at once: the caller, and now one, now the other of the pool's two.
    assert working == 1 if intra == 1 else working in (2, 3), working


def test_many_calls_at_once():
    x = tf.random.stateless_normal((48, 12, F), (1, 2))
    weights = [tf.random.stateless_normal((n, 4 * 40), (n, 3)) for n in (F, 40)]

    @tf.function(jit_compile=True)
    def run(x):
        return tf_ecornn.lstm(x, *weights, return_sequences=True).output

    expected = run(x)
    different = []

    def work():
        for _ in range(20):
            if run(x).numpy().tobytes() != expected.numpy().tobytes():
                different.append(threading.current_thread().name)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not different
