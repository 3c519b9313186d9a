"""The GPU engine through its C functions, on a `Problem`, where it is emulated.

tests/cuda_on_cpu/entry.h has the functions and says how the structs are laid out.
"""

import ctypes
from dataclasses import dataclass

import ml_dtypes
import numpy as np

import reference
from buildtools import cuda_on_cpu
from gpu import references
from gpu.dtypes import CELL_CODES, PATHS
from gpu.engine import DIRECTIONS, read_fields
from problems import Problem, reference_forward
from tf_ecornn.activations import ACTIVATIONS

DTYPES = {
    "float32": (0, np.float32, False),
    "float64": (1, np.float64, False),
    "float16": (2, np.float16, False),
    "bfloat16": (3, ml_dtypes.bfloat16, False),
    # float32 whose products round their operands.
    "tf32": (0, np.float32, True),
}
_FIELDS = {d: read_fields(f"EcornnCuda{d.capitalize()}") for d in DIRECTIONS}


@dataclass(frozen=True)
class DeviceModel:
    """What the planner asks of a device."""

    name: str
    multiprocessors: int
    shared_per_block: int
    major: int
    minor: int
    cooperative: bool = True


H200 = DeviceModel("H200", 132, 232448, 9, 0)
A100 = DeviceModel("A100", 108, 166912, 8, 0)
T4 = DeviceModel("T4", 40, 65536, 7, 5)


class CudaError(Exception):
    pass


def library():
    """The emulated engine, built where it is not current."""
    loaded = ctypes.CDLL(str(cuda_on_cpu.build()))
    loaded.ecornn_cuda_error_text.restype = ctypes.c_char_p
    loaded.ecornn_emulation_error.restype = ctypes.c_char_p
    for name in ("launches", "cooperative_launches", "blocks", "block_barriers"):
        getattr(loaded, f"ecornn_emulation_{name}").restype = ctypes.c_int64
    loaded.ecornn_emulation_sync_point_name.restype = ctypes.c_char_p
    loaded.ecornn_emulation_set_device.argtypes = [
        ctypes.c_int,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
    ]
    loaded.ecornn_emulation_set_seed.argtypes = [ctypes.c_uint64]
    for direction, fields in _FIELDS.items():
        size = getattr(loaded, f"ecornn_cuda_{direction}_bytes")
        size.restype = ctypes.c_int64
        assert size() == 8 * len(fields)
    return loaded


def set_device(engine, device: DeviceModel):
    engine.ecornn_emulation_set_device(
        device.multiprocessors,
        device.shared_per_block,
        device.major,
        device.minor,
        int(device.cooperative),
    )


def _aligned(shape, dtype):
    """An array whose memory begins as a GPU's does."""
    count = int(np.prod(shape))
    memory = np.empty(count * np.dtype(dtype).itemsize + 256, np.uint8)
    start = -memory.ctypes.data % 256
    size = count * np.dtype(dtype).itemsize
    return memory[start : start + size].view(dtype).reshape(shape)


class _Call:
    """The arrays and numbers of one call; arrays live as long as it does."""

    def __init__(self, problem: Problem, dtype: str, path: str):
        self.code, self.dtype, tensor_float_32 = DTYPES[dtype]
        self.values = dict.fromkeys((*_FIELDS["forward"], *_FIELDS["backward"]), 0)
        self.arrays = {}
        self.values |= {
            "dtype": self.code,
            "cell": CELL_CODES[problem.cell],
            "batch": problem.batch,
            "steps": problem.steps,
            "units": problem.units,
            "reverse": int(problem.reverse),
            "zero_output_for_mask": int(problem.zero_output_for_mask),
            "activation": ACTIVATIONS.index(problem.activation),
            "recurrent_activation": ACTIVATIONS.index(problem.recurrent_activation),
            "tensor_float_32": int(tensor_float_32),
            "path": PATHS.index(path),
        }

    def give(self, name, value, dtype=None):
        if value is None:
            return
        value = np.asarray(value)
        array = _aligned(value.shape, dtype or self.dtype)
        array[...] = value
        self._hold(name, array)

    def take(self, name, *shape, dtype=None):
        """An output, full of what no result may hold."""
        array = _aligned(shape, dtype or self.dtype)
        array.fill(np.nan)
        self._hold(name, array)

    def _hold(self, name, array):
        self.arrays[name] = array
        self.values[name] = array.ctypes.data

    def run(self, engine, direction):
        fields = _FIELDS[direction]
        struct = ctypes.c_int64 * len(fields)

        def packed():
            return struct(*(self.values[name] for name in fields))

        size = ctypes.c_int64()
        ask = getattr(engine, f"ecornn_cuda_{direction}_scratch")
        _check(engine, ask(packed(), ctypes.byref(size)), direction)
        # Poison: nothing may be read of it that was not written.
        self._hold("scratch", _aligned((size.value,), np.uint8))
        self.arrays["scratch"].fill(0xFF)
        _check(engine, getattr(engine, f"ecornn_cuda_{direction}")(packed()), direction)
        return self.arrays


def _check(engine, error, direction):
    if error:
        text = engine.ecornn_cuda_error_text(error).decode()
        raise CudaError(f"{direction}: {text} {engine.ecornn_emulation_error()}")


def run_forward(
    engine, problem: Problem, dtype, path="choose", *, save=True, joined=False
):
    """Every output of the forward pass, by name."""
    call = _Call(problem, dtype, path)
    batch, steps, units = problem.batch, problem.steps, problem.units
    state = np.float64 if dtype == "float64" else np.float32
    for name in ("recurrent_kernel", "bias", "recurrent_bias", "recurrent_dropout"):
        call.give(name, getattr(problem, name))
    for name in ("initial_h", "initial_c"):
        call.give(name, getattr(problem, name))
    for name in ("mask", "reset"):
        call.give(name, getattr(problem, name), bool)
    if joined:
        call.values["features"] = problem.x.shape[-1]
        call.give("x", reference.clear_masked(problem.x, problem.mask))
        call.give("kernel", problem.kernel)
    else:
        call.give("gates_x", problem.gates_x)
    call.take("last_output", batch, units)
    call.take("final_h", batch, units)
    call.take("outputs", batch, steps, units)
    if problem.cell == "lstm":
        call.take("final_c", batch, units)
    if save:
        call.take("gates", batch, steps, problem.gates * units)
        call.take("previous_h", batch, steps, units)
        if problem.cell == "lstm":
            call.take("previous_c", batch, steps, units, dtype=state)
        else:
            call.take("candidate", batch, steps, units)
    return call.run(engine, "forward")


def run_backward(
    engine, problem: Problem, dtype, saved, path="choose", *, outputs=True
):
    """Every output of the backward pass, by name; `saved` is the forward's."""
    call = _Call(problem, dtype, path)
    batch, steps, units = problem.batch, problem.steps, problem.units
    for name in ("recurrent_kernel", "recurrent_dropout"):
        call.give(name, getattr(problem, name))
    for name in ("mask", "reset"):
        call.give(name, getattr(problem, name), bool)
    for name in ("gates", "previous_h", "previous_c", "candidate"):
        if name in saved:
            call.give(name, saved[name], saved[name].dtype)
    for name in ("grad_last_output", "grad_final_h", "grad_final_c"):
        call.give(name, getattr(problem, name))
    if outputs:
        call.give("grad_outputs", problem.grad_outputs)
    call.take("grad_gates", batch, steps, problem.gates * units)
    call.take("grad_initial_h", batch, units)
    if problem.cell == "lstm":
        call.take("grad_initial_c", batch, units)
    if problem.cell == "gru":
        call.take("grad_candidate", batch, steps, units)
    if problem.bias is not None:
        call.take("grad_bias", problem.gates * units)
    if problem.recurrent_bias is not None:
        call.take("grad_recurrent_bias", problem.gates * units)
    return call.run(engine, "backward")


def expected_results(problem: Problem, outputs=True):
    """The reference's results under the names of the C functions.

    `outputs`: whether those have a gradient.
    """
    forward = reference_forward(problem)
    return references.expected_results(problem, outputs) | {"outputs": forward.outputs}
