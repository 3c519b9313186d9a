"""Whether the layers use the ops' CUDA kernels on the GPUs that TensorFlow sees."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

import tensorflow as tf

from tf_ecornn import _build_info, _library

CHOICES = ("fused", "stock")


def visible() -> bool:
    """Whether TensorFlow sees a GPU, on which layers then run unless told otherwise."""
    return bool(tf.config.get_visible_devices("GPU"))


def stock_reason() -> str | None:
    """Why layers run Keras's own code here; None where there is no such reason.

    The environment variable TF_ECORNN_GPU chooses what a GPU runs: "fused", which is
    the default, or "stock". It is read at each call.

    Raises:
        ValueError: TF_ECORNN_GPU has another value.
    """
    choice = os.environ.get("TF_ECORNN_GPU") or "fused"
    if choice not in CHOICES:
        raise ValueError(
            "The environment variable TF_ECORNN_GPU must be one of "
            f"{', '.join(CHOICES)}. Received: TF_ECORNN_GPU={choice!r}"
        )
    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        return None
    if choice == "stock":
        return "TF_ECORNN_GPU=stock leaves GPUs to Keras"
    if not _library.has_cuda():
        return "TensorFlow sees a GPU and this build of tf_ecornn has no CUDA kernels"
    return _unusable(tuple(gpus))


@functools.cache
def _unusable(gpus: tuple[tf.config.PhysicalDevice, ...]) -> str | None:
    """Why the CUDA kernels cannot run on one of these GPUs; None if they can."""
    for gpu in gpus:
        error = _library.cuda_error(int(gpu.name.rpartition(":")[2]))
        if error:
            return (
                f"the CUDA {_build_info.CUDA} kernels of this build of tf_ecornn "
                f"cannot be used here ({error})"
            )
        details = tf.config.experimental.get_device_details(gpu)
        capability = details.get("compute_capability")
        if capability and not runs_on(capability, _build_info.CUDA_TARGETS):
            return (
                "this build of tf_ecornn has no CUDA kernels for a GPU of compute "
                f"capability {'.'.join(map(str, capability))}"
            )
    return None


def runs_on(capability: tuple[int, int], targets: Sequence[str]) -> bool:
    """Whether code built for `targets`, as ("75", "80+ptx"), runs on such a GPU.

    Machine code serves its generation from its own number on, PTX all later GPUs.
    """
    major, minor = capability
    for target in targets:
        number, _, ptx = target.partition("+")
        built_major, built_minor = int(number[:-1]), int(number[-1])
        if built_major == major and built_minor <= minor:
            return True
        if ptx and built_major < major:
            return True
    return False
