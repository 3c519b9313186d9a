"""The GPU engine through its C functions, on a `Problem`, where it is emulated.

tests/cuda_on_cpu/entry.h has the functions and says how the structs are laid out.
"""

import ctypes
from dataclasses import dataclass

import ml_dtypes
import numpy as np

import reference
from buildtools import cuda_on_cpu
from problems import CELLS, Problem, reference_forward
from tf_ecornn.activations import ACTIVATIONS

DTYPES = {
    "float32": (0, np.float32, False),
    "float64": (1, np.float64, False),
    "float16": (2, np.float16, False),
    "bfloat16": (3, ml_dtypes.bfloat16, False),
    # float32 whose products round their operands.
    "tf32": (0, np.float32, True),
}
PATHS = ("choose", "steps", "persistent")
_CELL_KINDS = {"lstm": 0, "gru_before": 1, "gru": 2}

_CALL = (
    "dtype cell batch steps units reverse zero_output_for_mask activation "
    "recurrent_activation device tensor_float_32 path scratch stream"
).split()
_FORWARD = (
    "features gates_x x kernel recurrent_kernel bias recurrent_bias initial_h "
    "initial_c mask reset recurrent_dropout last_output final_h final_c outputs "
    "gates previous_h previous_c candidate"
).split()
_BACKWARD = (
    "gates previous_h previous_c candidate recurrent_kernel mask reset "
    "recurrent_dropout grad_last_output grad_final_h grad_final_c grad_outputs "
    "grad_gates grad_candidate grad_initial_h grad_initial_c grad_bias "
    "grad_recurrent_bias"
).split()


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
    for direction, fields in (("forward", _FORWARD), ("backward", _BACKWARD)):
        size = getattr(loaded, f"ecornn_cuda_{direction}_bytes")
        size.restype = ctypes.c_int64
        assert size() == 8 * (len(_CALL) + len(fields))
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
        self.values = dict.fromkeys((*_CALL, *_FORWARD, *_BACKWARD), 0)
        self.arrays = {}
        self.values |= {
            "dtype": self.code,
            "cell": _CELL_KINDS[problem.cell],
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
        fields = (*_CALL, *(_FORWARD if direction == "forward" else _BACKWARD))
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
    """The reference's results under the names of the C functions."""
    forward = reference_forward(problem)
    grads = reference.run_gradient(
        forward,
        problem.grad_outputs if outputs else None,
        problem.grad_last_output,
        problem.grad_final_states,
    )
    values = {
        "last_output": forward.last_output,
        "outputs": forward.outputs,
        "grad_gates": grads.gates_x,
        "recurrent_kernel": grads.recurrent_kernel,
    }
    for index, state in enumerate(CELLS[problem.cell][1]):
        values[f"final_{state}"] = forward.states[index]
        values[f"grad_initial_{state}"] = grads.states[index]
    if problem.recurrent_bias is not None:
        values["grad_bias"], values["grad_recurrent_bias"] = grads.bias
    elif problem.bias is not None:
        values["grad_bias"] = grads.bias
    return values


def relative_error(actual, expected, least=0.0):
    """‖actual - expected‖ / ‖expected‖ in float64; NaN is no small number.

    `least` is a size of numbers below which they count as that large.
    """
    actual = np.asarray(actual, np.float64)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if not actual.size:
        return 0.0
    norm = max(np.linalg.norm(expected), least * expected.size**0.5)
    error = np.linalg.norm(actual - expected)
    return float(error / norm) if norm else float(error)
