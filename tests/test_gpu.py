"""The ops and layers on a GPU, from TensorFlow down: `pytest -m gpu tests/test_gpu.py`.

The kernels alone are checked by tests/gpu, without TensorFlow.
"""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import reference
import tf_ecornn
from helpers import check_op, run_op
from layer_pairs import (
    KINDS,
    assert_same_results,
    copy_weights,
    draw_inputs,
    draw_layer_mask,
    draw_states,
    make_pair,
)
from problems import (
    CELLS,
    MASK_KINDS,
    assert_same_bits,
    draw_problem,
)
from tf_ecornn import _library, gpu

DEVICE = "GPU:0"
GPUS = tf.config.list_physical_devices("GPU")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not GPUS, reason="TensorFlow sees no GPU (it is hidden without `-m gpu`)"
    ),
    pytest.mark.skipif(
        not _library.has_cuda(), reason="this build has no CUDA kernels"
    ),
]

every_cell = pytest.mark.parametrize("cell", CELLS)
every_kind = pytest.mark.parametrize("kind", KINDS)

# Largest errors against float64, relative to a result's largest value, at T=20.
BOUNDS = {tf.float64: 1e-14, tf.float32: 1e-5, tf.float16: 2e-3, tf.bfloat16: 1e-2}
TENSOR_FLOAT_32_BOUND = 1e-3


@pytest.fixture(autouse=True)
def on_the_gpu_alone():
    """Ops run on the GPU or fail; float32 is exact unless a test says otherwise."""
    placement = tf.config.get_soft_device_placement()
    tensor_float_32 = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.set_soft_device_placement(False)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    with tf.device(DEVICE):
        yield
    tf.config.set_soft_device_placement(placement)
    tf.config.experimental.enable_tensor_float_32_execution(tensor_float_32)


def on_gpu(tensor) -> bool:
    return DEVICE in tensor.device


def test_the_layers_use_the_kernels():
    assert gpu.stock_reason() is None
    assert tf_ecornn.LSTM(3).fused and tf_ecornn.GRU(3).fused


# --- The ops -------------------------------------------------------------------


@every_cell
@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_op_shapes(cell, dtype):
    for batch, steps, units in (
        (1, 1, 1),
        (5, 4, 6),
        (32, 3, 64),
        (33, 2, 65),
        (3, 40, 130),
        (1, 7, 512),
        (130, 5, 250),
        (300, 3, 16),
    ):
        check_op(draw_problem(cell, 1, batch, steps, units), dtype)
        check_op(draw_problem(cell, 2, batch, steps, units, 3), dtype, joined=True)


@every_cell
@pytest.mark.parametrize("mask", MASK_KINDS)
def test_op_options(cell, mask):
    for reset, reverse, zero, dropout, outputs in itertools.product(
        *((False, True),) * 5
    ):
        problem = draw_problem(
            cell,
            3,
            batch=7,
            steps=6,
            units=17,
            mask=mask,
            reset=reset,
            dropout=dropout,
            reverse=reverse,
            zero_output_for_mask=zero,
        )
        check_op(problem, np.float32, outputs=outputs)


@every_cell
@pytest.mark.parametrize(("batch", "steps"), [(0, 3), (3, 0), (0, 0)])
def test_op_empty_sizes(cell, batch, steps):
    for features in (0, 3):
        problem = draw_problem(cell, 4, batch, steps, 5, features, mask="random")
        check_op(problem, np.float32)
        check_op(problem, np.float32, joined=True)


@every_cell
def test_op_same_bits_again_and_in_other_company(cell):
    problem = draw_problem(cell, 5, batch=70, steps=9, units=96, mask="right")
    first = run_op(problem, np.float32)
    for name, value in run_op(problem, np.float32).items():
        assert_same_bits(value, first[name], name)
    rows = np.array([3, 69, 0])
    part = run_op(problem.rows(rows), np.float32)
    for name in ("outputs", "final_h", "grad_gates", "grad_initial_h"):
        assert_same_bits(part[name], first[name][rows], f"{name} of three rows")


def relative_errors(cell, dtype) -> dict[str, float]:
    """Of the output and of the gradients, against float64 on the same numbers."""

    def exact(value):
        return tf.cast(tf.cast(value, dtype), tf.float64).numpy()

    steps = 20
    drawn = draw_problem(cell, 6, batch=16, steps=steps, units=64, features=8)
    x, kernel = exact(drawn.x), exact(drawn.kernel)
    recurrent, bias = exact(drawn.recurrent_kernel), exact(drawn.both_biases)
    options = {} if cell == "lstm" else CELLS[cell][2]
    function = tf_ecornn.lstm if cell == "lstm" else tf_ecornn.gru
    weights = exact(drawn.grad_outputs)

    given = [tf.constant(v, dtype) for v in (x, kernel, recurrent, bias)]
    with tf.GradientTape() as tape:
        tape.watch(given)
        found = function(*given, return_sequences=True, **options)
        total = tf.reduce_sum(found.output * tf.constant(weights, dtype))
    gradients = tape.gradient(total, given)
    assert on_gpu(found.output) and all(map(on_gpu, gradients))

    make = reference.LSTMCell if cell == "lstm" else reference.GRUCell
    states = [np.zeros((16, 64))] * len(CELLS[cell][1])
    forward = reference.run(
        make(recurrent, bias, "tanh", "sigmoid", None, **options),
        reference.project(x, kernel, None),
        states,
    )
    grads = reference.run_gradient(forward, weights, None, [None] * len(states))
    d_x, d_kernel = reference.project_gradient(x, kernel, grads.gates_x, None)
    pairs = {
        "output": (found.output, forward.outputs),
        "x": (gradients[0], d_x),
        "kernel": (gradients[1], d_kernel),
        "recurrent_kernel": (gradients[2], grads.recurrent_kernel),
        "bias": (gradients[3], grads.bias),
    }
    return {
        name: np.abs(tf.cast(a, tf.float64) - e).max() / np.abs(e).max()
        for name, (a, e) in pairs.items()
    }


@every_cell
@pytest.mark.parametrize("dtype", BOUNDS, ids=lambda dtype: dtype.name)
def test_errors_against_float64(cell, dtype):
    errors = relative_errors(cell, dtype)
    assert max(errors.values()) <= BOUNDS[dtype], errors


@every_cell
def test_tensor_float_32_follows_tensorflows_switch(cell):
    tf.config.experimental.enable_tensor_float_32_execution(True)
    errors = relative_errors(cell, tf.float32)
    assert max(errors.values()) <= TENSOR_FLOAT_32_BOUND, errors
    major, _ = tf.config.experimental.get_device_details(GPUS[0])["compute_capability"]
    if major >= 8:
        assert errors["output"] > 2 * relative_errors_without(cell), errors


def relative_errors_without(cell) -> float:
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return relative_errors(cell, tf.float32)["output"]


def test_an_error_names_the_op_and_the_argument():
    problem = draw_problem("lstm", 7)
    with pytest.raises(tf.errors.InvalidArgumentError, match="initial_h"):
        _library.ops.eco_rnn_lstm(
            x=tf.constant(problem.gates_x),
            recurrent_kernel=tf.constant(problem.recurrent_kernel),
            initial_h=tf.constant(problem.initial_h[1:]),
            initial_c=tf.constant(problem.initial_c),
            bias=[],
            mask=[],
            reset=[],
            recurrent_dropout=[],
            kernel=[],
            num_outputs=1,
            num_saved=0,
            state_type=tf.float64,
        )


@every_cell
def test_many_calls_need_no_more_memory(cell):
    problem = draw_problem(cell, 8, batch=16, steps=50, units=64)
    for _ in range(3):
        run_op(problem, np.float32)
    before = tf.config.experimental.get_memory_info(DEVICE)["current"]
    for _ in range(50):
        run_op(problem, np.float32)
    assert tf.config.experimental.get_memory_info(DEVICE)["current"] <= before


@pytest.mark.skipif(len(GPUS) < 2, reason="only one GPU is here")
@every_cell
def test_another_device(cell):
    problem = draw_problem(cell, 9, batch=5, steps=6, units=40)
    first = run_op(problem, np.float32)
    with tf.device("GPU:1"):
        for name, value in run_op(problem, np.float32).items():
            assert_same_bits(value, first[name], name)


# --- The layers ------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("traced", (False, True))
@pytest.mark.parametrize("mask", ("none", "random", "right", "left"))
def test_layers_against_stock(kind, mask, traced, fused_calls):
    stock, ours = make_pair(kind=kind, return_sequences=True, return_state=True)
    found, gradients = assert_same_results(
        stock,
        ours,
        draw_inputs(),
        mask=draw_layer_mask(mask),
        states=draw_states(kind=kind),
        traced=traced,
        training=True,
    )
    assert fused_calls() == 2 and ours.fused
    assert all(on_gpu(v) for v in (*found, *gradients))


@every_kind
def test_dropout_against_stock(kind, fused_calls):
    stock, ours = make_pair(kind=kind, dropout=0.3, recurrent_dropout=0.4, seed=5)
    assert_same_results(stock, ours, draw_inputs(), training=True)
    assert fused_calls() == 2


def bidirectional(kind, dtype):
    return keras.layers.Bidirectional(
        kind.make_ours(24, return_sequences=True, dtype=dtype), dtype=dtype
    )


@every_kind
@pytest.mark.parametrize("dtype", ("float32", "mixed_float16", "mixed_bfloat16"))
def test_training_learns(kind, dtype, fused_calls):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((12, 4)),
            keras.layers.Masking(dtype=dtype),
            bidirectional(KINDS[kind], dtype),
            KINDS[kind].make_ours(16, recurrent_dropout=0.1, dtype=dtype),
            keras.layers.Dense(1, activation="sigmoid", dtype="float32"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy")
    x = np.random.default_rng(0).normal(size=(512, 12, 4)).astype("float32")
    x[:100, 7:] = 0.0
    y = (x.sum((1, 2)) > 0).astype("float32")[:, None]
    # Datasets and optimizers have ops of their own on the CPU.
    tf.config.set_soft_device_placement(True)
    losses = model.fit(x, y, batch_size=64, epochs=12, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < 0.6 * losses[0], losses
    # Three layers, forward and gradient, 8 steps an epoch.
    assert fused_calls() >= 3 * 2 * 8 * 12
    assert all(row.fused for row in tf_ecornn.explain(model))


@every_kind
def test_use_cudnn_and_the_environment_choose_stock(kind, monkeypatch, fused_calls):
    stock = KINDS[kind].make_stock(8)
    layer = KINDS[kind].make_ours(8, use_cudnn=True)
    x = tf.cast(draw_inputs(), tf.float32)
    for each in (stock, layer):
        each.build(x.shape)
    copy_weights(stock, layer)
    if kind != "gru_before":  # which cuDNN does not have
        with pytest.warns(UserWarning, match="use_cudnn"):
            found = layer(x)
        np.testing.assert_allclose(found, stock(x), rtol=0, atol=1e-5)
    monkeypatch.setenv("TF_ECORNN_GPU", "stock")
    other = KINDS[kind].make_ours(8)
    other(x)
    assert not other.fused and fused_calls() == 0


@every_kind
def test_an_exported_graph_moves_between_devices(kind, tmp_path):
    x = tf.cast(draw_inputs(features=3), tf.float32)
    tf.config.set_soft_device_placement(True)
    with tf.device(None):  # else the graph would name one
        layer = KINDS[kind].make_ours(20, return_sequences=True)
        model = keras.Sequential([keras.Input((None, 3)), layer])
        expected = model(x)
        model.export(str(tmp_path / "model"), verbose=False)
    for device in ("CPU:0", DEVICE):
        with tf.device(device):
            loaded = tf.saved_model.load(str(tmp_path / "model"))
            served = loaded.serve(x)
        np.testing.assert_allclose(served, expected, rtol=0, atol=1e-5)
