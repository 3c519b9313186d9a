"""`python -m tf_ecornn script.py`: a Keras program with fused layers, unchanged."""

from __future__ import annotations

import argparse
import atexit
import importlib
import os
import platform
import sys
import warnings
from pathlib import Path

from tf_ecornn import __version__
from tf_ecornn.program import (
    Program,
    ProgramError,
    after_import,
    find_module,
    find_script,
)

_DESCRIPTION = """\
Runs a Keras program, unchanged, with Keras's LSTM and GRU layers and cells on the
fused ops of tf_ecornn; or, with --info, says what is installed and what it uses."""


def _threads() -> str:
    import tensorflow as tf

    configured = tf.config.threading.get_intra_op_parallelism_threads()
    if configured:
        return str(configured)
    return f"{len(os.sched_getaffinity(0))} (one a processor)"


def information() -> dict[str, str]:
    """Versions, instruction set, threads, XLA and CUDA, in the order they are shown."""
    import keras
    import tensorflow as tf

    from tf_ecornn import _build_info, _library

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
        "XLA kernels (jit_compile)": "yes" if _build_info.XLA else "no",
        **_cuda(),
        "GPUs TensorFlow sees": str(len(gpus)),
    }


def _cuda() -> dict[str, str]:
    """What the build has for GPUs, and whether this machine can run it."""
    from tf_ecornn import _build_info, _library

    if not _library.has_cuda():
        emulated = _build_info.CUDA == "emulated"
        return {"CUDA kernels": "emulated on the CPU" if emulated else "no"}
    return {
        "CUDA kernels": "yes",
        "CUDA toolkit": _build_info.CUDA,
        "CUDA targets": " ".join(_build_info.CUDA_TARGETS),
        "CUDA driver": _library.cuda_error(0) or "serves device 0",
    }


def _print_information() -> None:
    rows = information()
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:{width}}  {value}")


def _arguments(given: list[str]) -> tuple[list[str], list[str]]:
    """What is for this command, and the program with what is for it."""
    for i, argument in enumerate(given):
        if argument == "-m" or not argument.startswith("-"):
            return given[:i], given[i:]
    return given, []


def _switch_on(report: bool) -> None:
    from tf_ecornn.switch import switch_on

    switch_on()
    if report:
        from tf_ecornn.report import start_report

        start_report()


def _report_without_keras() -> None:
    if "keras" not in sys.modules:
        print("\ntf_ecornn: the program has not imported Keras", file=sys.stderr)


def _warn_of_keras_2() -> None:
    warnings.warn(
        "tf_ecornn: this program uses Keras 2 (tf_keras), whose layers are not "
        "switched.",
        stacklevel=2,
    )


def _leave_package_to_the_program() -> None:
    """The program's imports find the package whole, and where it is now."""
    if not hasattr(sys.modules["tf_ecornn"], "LSTM"):
        for name in [n for n in sys.modules if n.split(".")[0] == "tf_ecornn"]:
            del sys.modules[name]
    folder = str(Path(__file__).parent.parent)
    # The first entry is the current folder, to which a script has no claim.
    if folder not in map(os.path.abspath, sys.path[1:]):
        sys.path.append(folder)


def _find(command: list[str]) -> Program:
    if command[0] == "-m":
        return find_module(command[1], command[2:])
    return find_script(command[0], command[1:])


def main(arguments: list[str] | None = None) -> None:
    own, command = _arguments(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="python -m tf_ecornn",
        usage="%(prog)s [--report] (script.py | -m module) [argument ...]\n"
        "       %(prog)s --info",
        description=_DESCRIPTION,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="at the end, say on stderr which layers ran fused and what they took",
    )
    parser.add_argument(
        "--info",
        action="store_true",
        help="print versions, instruction set, threads and CUDA",
    )
    options = parser.parse_args(own)
    if options.info:
        if command or options.report:
            parser.error("--info takes nothing else")
        _print_information()
        return
    if not command or command == ["-m"]:
        parser.error("a script, -m and a module, or --info is needed")
    _leave_package_to_the_program()
    try:
        program = _find(command)
    except ProgramError as error:
        parser.error(str(error))
    if options.report:
        atexit.register(_report_without_keras)
    # Where the program imports this package, Keras comes while that is under way.
    after_import("keras", lambda: importlib.import_module("tf_ecornn"))
    after_import("tf_ecornn", lambda: _switch_on(options.report))
    after_import("tf_keras", _warn_of_keras_2)
    program.run()


if __name__ == "__main__":
    main()
