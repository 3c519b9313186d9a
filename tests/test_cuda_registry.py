"""The ops' kernels in TensorFlow's registry, and the library without a GPU."""

import glob

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

from helpers import check_op
from problems import CELLS, draw_problem
from tf_ecornn import _build_info, _library
from tf_ecornn.__main__ import information

OPS = ("EcoRNN>Lstm", "EcoRNN>LstmGrad", "EcoRNN>Gru", "EcoRNN>GruGrad")
DTYPES = {tf.float16, tf.bfloat16, tf.float32, tf.float64}

with_cuda = pytest.mark.skipif(
    not _library.has_cuda(), reason="this build has no CUDA kernels"
)


def registered(op, device) -> list[tf.DType]:
    """The dtypes of T that an op has kernels for on a kind of device."""
    found = []
    for kernel in kernels.get_registered_kernels_for_op(op).kernel:
        if kernel.device_type != device:
            continue
        constraints = {c.name: c.allowed_values.list.type for c in kernel.constraint}
        assert set(constraints) == {"T"}, f"{op} on {device}: {kernel}"
        assert not kernel.host_memory_arg, f"{op}: an argument in the host's memory"
        found += [tf.as_dtype(t) for t in constraints["T"]]
    return found


@pytest.mark.parametrize("op", OPS)
def test_every_op_has_a_cpu_kernel_for_every_dtype(op):
    found = registered(op, "CPU")
    assert set(found) == DTYPES
    assert len(found) == len(DTYPES), f"registered twice: {found}"


@with_cuda
@pytest.mark.parametrize("op", OPS)
def test_every_op_has_a_gpu_kernel_for_every_dtype(op):
    found = registered(op, "GPU")
    assert set(found) == set(registered(op, "CPU")) == DTYPES
    assert len(found) == len(DTYPES), f"registered twice: {found}"


@pytest.mark.parametrize("op", OPS)
def test_the_definition_takes_what_the_kernels_do(op):
    """No dtype that the op allows is without a kernel."""
    (t,) = (a for a in op_def_registry.get(op).attr if a.name == "T")
    assert {tf.as_dtype(v) for v in t.allowed_values.list.type} == DTYPES


def test_what_the_build_says_is_what_the_library_holds():
    real = _build_info.CUDA not in ("", "emulated")
    assert _library.has_cuda() == real
    assert bool(_build_info.CUDA_TARGETS) == real
    rows = information()
    assert rows["CUDA kernels"] == ("yes" if real else "no")
    if real:
        assert rows["CUDA toolkit"] == _build_info.CUDA
        assert rows["CUDA targets"].split() == list(_build_info.CUDA_TARGETS)
        assert rows["CUDA driver"]


@with_cuda
@pytest.mark.skipif(bool(glob.glob("/dev/nvidia*")), reason="a GPU is here")
@pytest.mark.parametrize("cell", CELLS)
def test_without_a_driver(cell):
    """CUDA says why it cannot be used; the CPU's kernels are as good as ever."""
    error = _library.cuda_error(0)
    assert "driver" in error or "device" in error, error
    assert information()["CUDA driver"] == error
    check_op(draw_problem(cell, 1, batch=3, steps=4, units=9, mask="right"), np.float32)
    assert _library.cuda_error(0) == error
