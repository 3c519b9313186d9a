"""What every test of the suite shares: environment, options, subprocess runs."""

import os
import pathlib
import subprocess
import sys

# Before TensorFlow is imported.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

TESTS = pathlib.Path(__file__).parent


def pytest_addoption(parser):
    parser.addoption(
        "--long",
        action="store_true",
        help="more random configurations, and 10,000 calls in the memory test",
    )
    parser.addoption(
        "--random-configs",
        type=int,
        default=60,
        help="how many configurations the random parity test of the layers has",
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "gpu: needs TensorFlow on a GPU, and a build with CUDA; run by `-m gpu` alone",
    )
    # Also before TensorFlow is imported: all other tests check the CPU kernels and
    # the CPU path of stock Keras, also on a machine that has a GPU.
    if config.option.markexpr != "gpu":
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    # Keras's variables under NumPy 2; nothing that the package does.
    config.addinivalue_line(
        "filterwarnings", "ignore:__array__ implementation doesn't accept a copy"
    )


@pytest.fixture
def long_run(request) -> bool:
    return request.config.getoption("--long")


@pytest.fixture
def run_worker():
    """Runs a script of tests/workers in its own process.

    `run_worker(script, *arguments, timeout=seconds, **environment)` returns the
    finished process; a run past its time limit is a failure. An environment
    variable given as None is removed.
    """

    def run(script, *arguments, timeout=120, **environment):
        import tf_ecornn

        package_root = pathlib.Path(tf_ecornn.__file__).parent.parent
        paths = [str(TESTS), str(package_root), os.environ.get("PYTHONPATH", "")]
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            **environment,
        }
        return subprocess.run(
            [sys.executable, str(TESTS / "workers" / script), *map(str, arguments)],
            env={k: v for k, v in variables.items() if v is not None},
            timeout=timeout,
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture
def fused_calls():
    """A function that says how many op executions happened since the test began."""
    from tf_ecornn import _library

    start = _library.calls()
    return lambda: _library.calls() - start


@pytest.fixture
def float64_everywhere():
    """Layers, losses and metrics in float64 unless they say otherwise."""
    import keras

    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)
