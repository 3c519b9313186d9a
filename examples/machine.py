"""What a result depends on besides the code: machine, versions, settings."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

PACKAGES = ("tensorflow", "keras", "numpy", "tf_ecornn", "sktime", "scikit-learn")
INSTRUCTION_SETS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16")
# Environment variables that change what the layers compute or how fast.
SETTINGS = (
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "ONEDNN_MAX_CPU_ISA",
    "TF_CPU_MAX_ISA",
    "TF_ECORNN_ISA",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)


def _cpu() -> tuple[str, list[str]]:
    """Model name and the instruction sets of interest that the CPU has."""
    model, flags = platform.processor() or platform.machine(), set()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        elif key.strip() == "flags":
            flags = set(value.split())
            break
    return model, [name for name in INSTRUCTION_SETS if name in flags]


def cpu_count() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gib() -> float | None:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    return round(size / 2**30, 1)


def describe_machine() -> dict[str, Any]:
    """The hardware and the operating system, ready for JSON."""
    model, instruction_sets = _cpu()
    return {
        "cpu": model,
        "cpus": cpu_count(),
        "instruction_sets": instruction_sets,
        "memory_gib": _memory_gib(),
        "system": platform.platform(),
        "settings": {key: os.environ[key] for key in SETTINGS if key in os.environ},
    }


def describe_devices() -> dict[str, Any]:
    """What TensorFlow makes of the machine; starts TensorFlow's devices."""
    import tensorflow as tf

    return {
        "gpus": [
            tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
            for gpu in tf.config.list_physical_devices("GPU")
        ],
        # 0: TensorFlow chooses, one thread for each CPU.
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that matter, if installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        module = sys.modules.get(package)
        version = getattr(module, "__version__", None)
        if version is None:
            # tensorflow-cpu and the like import as tensorflow, hence modules first.
            try:
                version = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                continue
        found[package] = version
    return found


def one_line() -> str:
    """The machine in one line, for the foot of a table."""
    machine, known = describe_machine(), versions()
    sets = ", ".join(machine["instruction_sets"]) or "no wide vectors"
    software = ", ".join(
        f"{name} {known[name]}" for name in ("tensorflow", "keras") if name in known
    )
    return f"{machine['cpus']} CPUs of {machine['cpu']} ({sets}); {software}"
