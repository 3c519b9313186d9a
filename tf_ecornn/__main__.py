"""`python -m tf_ecornn --info`: what is installed and what it uses."""

from __future__ import annotations

import argparse
import os
import platform

import keras
import tensorflow as tf

from tf_ecornn import __version__, _build_info, _library


def _threads() -> str:
    configured = tf.config.threading.get_intra_op_parallelism_threads()
    if configured:
        return str(configured)
    return f"{len(os.sched_getaffinity(0))} (one a processor)"


def information() -> dict[str, str]:
    """Versions, instruction set, threads and CUDA, in the order they are shown."""
    gpus = tf.config.list_physical_devices("GPU")
    return {
        "tf_ecornn": __version__,
        "TensorFlow": f"{tf.__version__} (built for {_build_info.TENSORFLOW_VERSION})",
        "Keras": keras.__version__,
        "Python": platform.python_version(),
        "compiler": _build_info.COMPILER,
        "instruction set": _library.isa(),
        "instruction sets compiled": ", ".join(_library.compiled_isas()),
        "threads (intra-op)": _threads(),
        "CUDA kernels": "yes" if _library.has_cuda() else "no",
        "GPUs TensorFlow sees": str(len(gpus)),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tf_ecornn", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "--info",
        action="store_true",
        required=True,
        help="print versions, instruction set, threads and CUDA",
    )
    parser.parse_args(arguments)
    rows = information()
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:{width}}  {value}")


if __name__ == "__main__":
    main()
