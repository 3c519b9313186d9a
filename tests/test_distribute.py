"""tf.distribute: several devices and machines train to one device's weights."""

import os
import pathlib
import socket
import subprocess
import sys

import h5py
import numpy as np
import pytest

import tf_ecornn

pytest.importorskip("rich")

SCRIPT = (
    pathlib.Path(__file__).parents[1] / "examples" / "distributed_classification.py"
)
STEPS = 20
# Batches of 16, 16 and 1: in every third step all devices but one get no rows.
ARGUMENTS = [
    *("--data", "synthetic", "--samples", 33, "--timesteps", 12, "--features", 2),
    *("--units", 6, "--batch-size", 16, "--steps", STEPS, "--seed", 3),
]


class Run:
    """The example in its own process."""

    def __init__(self, *arguments, save=None):
        if save is not None:
            arguments += ("--save", save)
        root = pathlib.Path(tf_ecornn.__file__).parents[1]
        self.save = save
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *map(str, [*ARGUMENTS, *arguments])],
            env={**os.environ, "PYTHONPATH": str(root), "KERAS_BACKEND": "tensorflow"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def output(self):
        try:
            output, _ = self.process.communicate(timeout=240)
        finally:
            self.process.kill()
        assert self.process.returncode == 0, output
        return output

    def weights(self):
        """The trained weights by their path in the file."""
        found = {}

        def visit(path, item):
            if isinstance(item, h5py.Dataset) and path.startswith("layers/"):
                found[path] = item[()]

        with h5py.File(self.save) as file:
            file.visititems(visit)
            assert file["optimizer/vars/0"][()] == STEPS
        assert len(found) == 5, found.keys()
        return found


def free_addresses(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return ",".join(addresses)


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    run = Run(save=tmp_path_factory.mktemp("single") / "one.weights.h5")
    assert "1 device(s)" in run.output()
    return run.weights()


def assert_same_weights(actual, expected):
    assert actual.keys() == expected.keys()
    worst = max(np.abs(actual[k] - expected[k]).max() for k in expected)
    print(f"weights after {STEPS} steps: off by at most {worst:.1e}")
    assert worst <= 1e-5


def test_two_devices_of_one_process(single, tmp_path):
    run = Run("--devices", 2, save=tmp_path / "two.weights.h5")
    assert "2 device(s)" in run.output()
    assert_same_weights(run.weights(), single)


def test_two_workers(single, tmp_path):
    addresses = free_addresses(2)
    first, second = (
        Run(
            *("--worker", number, "--workers", addresses),
            save=tmp_path / f"{number}.weights.h5",
        )
        for number in range(2)
    )
    outputs = first.output(), second.output()
    assert "2 device(s)" in outputs[0]
    assert "worker 1: done" in outputs[1]
    # The first worker alone saves.
    assert not second.save.exists()
    assert_same_weights(first.weights(), single)


@pytest.mark.parametrize(
    "arguments, message",
    (
        (("--worker", "0"), "go together"),
        (("--workers", "a:1,b:2"), "go together"),
        (("--worker", "2", "--workers", "a:1,b:2"), "not one of 0 to 1"),
        (("--worker", "-1", "--workers", "a:1,b:2"), "not one of 0 to 1"),
        (("--devices", "2", "--worker", "0", "--workers", "a:1"), "not with --workers"),
        (("--save", "weights"), "does not end in .weights.h5"),
    ),
)
def test_bad_command_lines(arguments, message, capsys, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    import distributed_classification

    with pytest.raises(SystemExit) as ended:
        distributed_classification.parse(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
