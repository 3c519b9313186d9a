"""Runs tests with a build whose ops' only kernels are the CUDA engine's, emulated.

    python tests/workers/device_path.py persistent SEED test_op_values.py::test_x ...

The first argument is the path that the planner is given a device for: `persistent`, an
H200, or `steps`, an RTX 3060 without cooperative launches. Ends with pytest's status
and, before it, a line with how many kernels were launched, and of them persistent.
"""

import ctypes
import os
import sys

import pytest
import tensorflow as tf

from tf_ecornn import _build_info, _library

PATHS = ("persistent", "steps")


def main(path: str, seed: str, *tests: str) -> int:
    if _build_info.CUDA != "emulated" or path not in PATHS:
        raise SystemExit(f"{path!r} with the build {_build_info.CUDA!r}")
    # The tests' bounds are those of float32.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    library = ctypes.CDLL(str(_library._PATH))
    for name in ("launches", "cooperative_launches"):
        getattr(library, f"ecornn_emulation_{name}").restype = ctypes.c_int64
    library.ecornn_emulation_set_seed(ctypes.c_uint64(int(seed)))
    if path == "steps":
        shared_per_block = ctypes.c_size_t(99 * 1024)
        library.ecornn_emulation_set_device(28, shared_per_block, 8, 6, 0)
    status = pytest.main(["-q", "-p", "no:cacheprovider", *tests])
    launches = library.ecornn_emulation_launches()
    persistent = library.ecornn_emulation_cooperative_launches()
    print(f"launches {launches} persistent {persistent}", flush=True)
    return status


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.exit(main(*sys.argv[1:]))
