"""Which layers run fused where TensorFlow sees a GPU; the GPU is made up."""

import keras
import pytest
import tensorflow as tf

import tf_ecornn
from layer_pairs import assert_same_results, draw_inputs, make_pair
from tf_ecornn import _build_info, _library, fused_cell, gpu

TARGETS = ("75+ptx", "80", "86", "89", "90+ptx")


@pytest.fixture
def build(monkeypatch):
    """A build with working CUDA kernels, and a TensorFlow that sees one H100.

    The ops still run on the CPU: no layer is placed on a device that is not there.
    """
    details = {"compute_capability": (9, 0), "device_name": "made up"}
    device = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")

    def listed(real):
        def listed_devices(device_type=None):
            found = list(real(device_type))
            return found + [device] if device_type in (None, "GPU") else found

        return listed_devices

    for name in ("list_physical_devices", "get_visible_devices"):
        monkeypatch.setattr(tf.config, name, listed(getattr(tf.config, name)))
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", lambda device: details
    )
    monkeypatch.setattr(_library, "has_cuda", lambda: True)
    monkeypatch.setattr(_library, "cuda_error", lambda device: "")
    monkeypatch.setattr(_build_info, "CUDA", "13.0")
    monkeypatch.setattr(_build_info, "CUDA_TARGETS", TARGETS)
    monkeypatch.setattr(fused_cell, "_said", set())
    monkeypatch.delenv("TF_ECORNN_GPU", raising=False)
    gpu._unusable.cache_clear()
    yield details
    gpu._unusable.cache_clear()


def reason_of(layer) -> str:
    (row,) = tf_ecornn.explain(layer)
    assert row.fused == layer.fused == (not row.reason)
    return row.reason


def layers():
    yield tf_ecornn.LSTM(3)
    yield tf_ecornn.GRU(3)
    yield tf_ecornn.RNN([tf_ecornn.LSTMCell(3), keras.layers.GRUCell(2)])
    yield tf_ecornn.GRUCell(3)


def test_cuda_kernels_are_used(build, fused_calls):
    for layer in layers():
        assert reason_of(layer) == ""
    stock, ours = make_pair(return_sequences=True)
    assert_same_results(stock, ours, draw_inputs())
    assert fused_calls() > 0


def test_the_environment_chooses_the_stock_path(build, monkeypatch, fused_calls):
    monkeypatch.setenv("TF_ECORNN_GPU", "stock")
    for layer in layers():
        assert "TF_ECORNN_GPU=stock" in reason_of(layer)
    stock, ours = make_pair(return_sequences=True)
    with pytest.warns(UserWarning, match="TF_ECORNN_GPU=stock"):
        assert_same_results(stock, ours, draw_inputs())
    assert fused_calls() == 0
    # It is read at each call.
    for value in ("fused", ""):
        monkeypatch.setenv("TF_ECORNN_GPU", value)
        assert ours.fused


def test_the_environment_says_nothing_without_a_gpu(monkeypatch):
    monkeypatch.setenv("TF_ECORNN_GPU", "stock")
    for layer in layers():
        assert reason_of(layer) == ""


def test_an_unknown_choice_is_refused_with_and_without_a_gpu(monkeypatch):
    layer = tf_ecornn.LSTM(3)
    monkeypatch.setenv("TF_ECORNN_GPU", "cudnn")
    for call in (lambda: layer(draw_inputs()), lambda: tf_ecornn.GRU(3)):
        with pytest.raises(ValueError, match="fused, stock.*TF_ECORNN_GPU='cudnn'"):
            call()


@pytest.mark.parametrize("layer_class", [tf_ecornn.LSTM, tf_ecornn.GRU])
def test_use_cudnn_asks_for_cudnn(build, layer_class):
    for choice, stock in (("auto", False), (False, False), (True, True)):
        layer = layer_class(3, use_cudnn=choice)
        assert ("use_cudnn=True" in reason_of(layer)) == stock
        again = layer_class.from_config(layer.get_config())
        assert again.use_cudnn is layer.use_cudnn
        assert reason_of(again) == reason_of(layer)


def test_use_cudnn_without_a_gpu():
    assert reason_of(tf_ecornn.LSTM(3, use_cudnn=True)) == ""


def test_a_driver_that_is_too_old(build, monkeypatch, fused_calls):
    error = "CUDA driver version is insufficient for CUDA runtime version"
    monkeypatch.setattr(_library, "cuda_error", lambda device: error)
    gpu._unusable.cache_clear()
    for layer in layers():
        assert error in reason_of(layer) and "CUDA 13.0" in reason_of(layer)
    stock, ours = make_pair()
    with pytest.warns(UserWarning, match="driver version"):
        assert_same_results(stock, ours, draw_inputs())
    assert fused_calls() == 0


def test_a_gpu_that_no_target_serves(build):
    build["compute_capability"] = (7, 0)
    gpu._unusable.cache_clear()
    assert "compute capability 7.0" in reason_of(tf_ecornn.LSTM(3))


def test_a_build_without_cuda_kernels(build, monkeypatch):
    monkeypatch.setattr(_library, "has_cuda", lambda: False)
    assert "no CUDA kernels" in reason_of(tf_ecornn.LSTM(3))


@pytest.mark.parametrize(
    ("capability", "targets", "served"),
    [
        ((7, 5), TARGETS, True),
        ((8, 7), TARGETS, True),  # Jetson Orin: the machine code of 8.6
        ((9, 0), TARGETS, True),
        ((10, 0), TARGETS, True),  # PTX for 9.0
        ((12, 1), TARGETS, True),
        ((7, 0), TARGETS, False),
        ((6, 1), TARGETS, False),
        ((8, 0), ("86",), False),
        ((9, 0), ("80", "86"), False),
        ((9, 0), ("80+ptx",), True),
        ((12, 0), ("100",), False),
        ((10, 3), ("100",), True),
        ((8, 0), (), False),
    ],
)
def test_which_gpus_a_build_serves(capability, targets, served):
    assert gpu.runs_on(capability, targets) == served
