"""Loads the compiled library, once, after checking that it fits this process.

A library built for one minor version of TensorFlow crashes under another, and
what Keras 3 is not running on TensorFlow cannot call it: both are refused with an
`ImportError` before anything is loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType

_PATH = Path(__file__).with_name("_ecornn.so")

# What /proc/cpuinfo must list before a set may be forced.
_AVX2 = {"avx2", "fma", "f16c"}
_AVX512 = {"avx512f", "avx512dq", "avx512bw", "avx512vl"} | _AVX2
_PROCESSOR_FLAGS = {
    "amxbf16": {"amx_tile", "amx_bf16", "avx512_bf16"} | _AVX512,
    "avx512bf16": {"avx512_bf16"} | _AVX512,
    "avx512": _AVX512,
    "avx2": _AVX2,
    "generic": set(),
}


def _build_command() -> str:
    root = _PATH.parent.parent
    if (root / "setup.py").exists():
        return f"`pip install --no-build-isolation --no-deps -e {root}`"
    return (
        "`pip install --no-build-isolation --force-reinstall --no-deps .` "
        "in the folder of tf_ecornn's source"
    )


def _configured_backend() -> str:
    """Keras's backend, without importing Keras: that would import the backend."""
    keras = sys.modules.get("keras")
    if hasattr(keras, "config"):
        return keras.config.backend()
    named = os.environ.get("KERAS_BACKEND")
    if named:
        return named
    home = os.environ.get("KERAS_HOME") or Path("~/.keras").expanduser()
    try:
        return json.loads(Path(home, "keras.json").read_text())["backend"]
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow"


def _check_keras() -> None:
    if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True"):
        raise ImportError(
            "tf_ecornn needs Keras 3, but TF_USE_LEGACY_KERAS selects Keras 2; "
            "unset it before importing tf_ecornn."
        )
    backend = _configured_backend()
    if backend != "tensorflow":
        raise ImportError(
            f"tf_ecornn needs Keras on TensorFlow, but its backend is {backend!r}; "
            "set KERAS_BACKEND=tensorflow before importing keras."
        )


def _import_build_info() -> ModuleType:
    if not (_PATH.exists() and _PATH.with_name("_build_info.py").exists()):
        raise ImportError(
            f"tf_ecornn's compiled library is not there ({_PATH}); build it with "
            f"{_build_command()}."
        )
    from tf_ecornn import _build_info

    return _build_info


def _import_tensorflow() -> ModuleType:
    if importlib.util.find_spec("tensorflow") is None:
        version = _info.TENSORFLOW_VERSION
        raise ImportError(
            "tf_ecornn needs TensorFlow, which is not installed; it was built for "
            f"this one: `pip install tensorflow-cpu=={version}`, or "
            f"`tensorflow[and-cuda]=={version}`."
        )
    import tensorflow

    return tensorflow


def _check_tensorflow(running: str, built_for: str) -> None:
    if running.split(".")[:2] != built_for.split(".")[:2]:
        raise ImportError(
            f"tf_ecornn was built for TensorFlow {built_for} and this is TensorFlow "
            f"{running}; rebuild it with {_build_command()}."
        )


def _processor_flags() -> set[str] | None:
    """The first processor's flags, None where the system does not tell."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
    except OSError:
        pass
    return None


def _check_isa(compiled: Collection[str], flags: set[str] | None) -> None:
    """Refuses a TF_ECORNN_ISA that is not compiled in or that the machine lacks."""
    wanted = os.environ.get("TF_ECORNN_ISA")
    if not wanted:
        return
    usable = [s for s in compiled if flags is None or _PROCESSOR_FLAGS[s] <= flags]
    if wanted not in usable:
        raise ImportError(
            f"TF_ECORNN_ISA={wanted!r} cannot be had: this machine and library offer "
            f"{', '.join(usable)}."
        )


def _load() -> ModuleType:
    try:
        return tensorflow.load_op_library(str(_PATH))
    except (tensorflow.errors.OpError, RuntimeError) as error:
        raise ImportError(
            f"tf_ecornn's compiled library cannot be loaded ({error}); rebuild it with "
            f"{_build_command()}."
        ) from error


_check_keras()
_info = _import_build_info()
tensorflow = _import_tensorflow()
_check_tensorflow(tensorflow.__version__, _info.TENSORFLOW_VERSION)
_flags = _processor_flags()
_check_isa(_info.INSTRUCTION_SETS, _flags)

# The module of the raw ops, e.g. `ops.eco_rnn_lstm`. TensorFlow loads a path only
# once, however often it is asked.
ops = _load()

# The same library again, for the functions that are no ops.
_functions = ctypes.CDLL(str(_PATH))
_functions.ecornn_isa.restype = ctypes.c_char_p
_functions.ecornn_compiled_isas.restype = ctypes.c_char_p
_functions.ecornn_has_cuda.restype = ctypes.c_int
_functions.ecornn_calls.restype = ctypes.c_int64
_functions.ecornn_recorded.restype = ctypes.c_char_p


def _check_isa_in_use() -> None:
    """Refuses a TF_ECORNN_ISA that the processor has and the system withholds."""
    wanted = os.environ.get("TF_ECORNN_ISA")
    if wanted and wanted != isa():
        raise ImportError(
            f"TF_ECORNN_ISA={wanted!r} cannot be had: the operating system does not "
            f"let this process use it. {isa()!r} would be used."
        )


def register_gradient(op_type: str) -> Callable[[Callable], Callable]:
    """`tf.RegisterGradient`, for modules that may be imported or reloaded again.

    TensorFlow takes one gradient for an op and has no way to give it back, so the
    function that came first stays.
    """

    def register(function: Callable) -> Callable:
        # A KeyError is what the registry answers to a second one.
        with contextlib.suppress(KeyError):
            tensorflow.RegisterGradient(op_type)(function)
        return function

    return register


def isa() -> str:
    """The instruction set in use, one of `compiled_isas()`."""
    return _functions.ecornn_isa().decode()


_check_isa_in_use()


def compiled_isas() -> tuple[str, ...]:
    """The instruction sets that the library holds, plainest first."""
    return tuple(_functions.ecornn_compiled_isas().decode().split(","))


def multiplies_bfloat16() -> bool:
    """Whether the processor has arithmetic for it, or the system does not tell."""
    return _flags is None or "avx512_bf16" in _flags


def has_cuda() -> bool:
    """Whether the library holds CUDA kernels."""
    return bool(_functions.ecornn_has_cuda())


def cuda_error(device: int) -> str:
    """Why CUDA cannot be used on a device, empty if it can. Needs `has_cuda()`."""
    function = _functions.ecornn_cuda_error
    function.restype = ctypes.c_char_p
    return function(ctypes.c_int(device)).decode()


def has_xla() -> bool:
    """Whether the library holds kernels for XLA, which `jit_compile=True` needs."""
    return _info.XLA


def calls() -> int:
    """How often the ops, forward and gradient, have run since the library's load."""
    return _functions.ecornn_calls()


def record(on: bool) -> None:
    """Begins or ends the record of what each node's executions take."""
    _functions.ecornn_record(int(on))


def recorded() -> str:
    """The record: a line for each node; see cc/kernels/execution_record.cc."""
    return _functions.ecornn_recorded().decode()


if os.environ.get("TF_ECORNN_ISA") and isa() != os.environ["TF_ECORNN_ISA"]:
    raise ImportError(
        f"TF_ECORNN_ISA={os.environ['TF_ECORNN_ISA']!r} cannot be had: {isa()} is in "
        "use; set the variable before the first import and to a set this machine has."
    )
