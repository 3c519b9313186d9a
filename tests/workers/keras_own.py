"""Runs test files that ship inside the installed keras package.

`keras_own.py stock|ours FILE.json NAME...`: with "ours", the classes of this
package take the place of Keras's before the test files are imported. The file gets
the outcome of each test, how often the ops ran, and why Keras's own loop was run.
"""

import collections
import json
import pathlib
import sys

import keras
import keras.src.layers
import pytest

REPLACED = ("LSTM", "GRU", "LSTMCell", "GRUCell", "RNN")
FOLDER = pathlib.Path(keras.src.layers.__file__).parent / "rnn"


class Outcomes:
    """A pytest plugin: {test: "passed", "skipped" or "failed"}, and the reasons."""

    def __init__(self):
        self.found = {}
        self.reports = {}

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.rpartition("/")[2]
        if report.when == "call" or not report.passed:
            self.found[name] = report.outcome
        if report.failed:
            self.reports[name] = report.longreprtext


def replace_classes():
    import tf_ecornn

    for name in REPLACED:
        ours = getattr(tf_ecornn, name)
        for module in (keras.src.layers, keras.layers):
            assert issubclass(ours, getattr(module, name))
            setattr(module, name, ours)


def watch_stock_loops():
    """Counts the layers that come to Keras's own loop, by what they say of it."""
    reasons = collections.Counter()
    stock = keras.src.layers.rnn.rnn.RNN
    original = stock.inner_loop

    def inner_loop(layer, *arguments, **options):
        told = getattr(layer, "unfused_reason", lambda: "another class of Keras")
        reasons[f"{type(layer).__name__}: {told()}"] += 1
        return original(layer, *arguments, **options)

    stock.inner_loop = inner_loop
    return reasons


if __name__ == "__main__":
    which, path, *names = sys.argv[1:]
    reasons, calls = {}, lambda: 0
    if which == "ours":
        reasons = watch_stock_loops()
        replace_classes()
        from tf_ecornn._library import calls
    outcomes = Outcomes()
    files = [str(FOLDER / f"{name}.py") for name in names]
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(FOLDER)]
    pytest.main([*options, *files], plugins=[outcomes])
    found = {
        "outcomes": outcomes.found,
        "reports": outcomes.reports,
        "calls": calls(),
        "stock_loops": dict(reasons),
    }
    pathlib.Path(path).write_text(json.dumps(found))
