"""Keras's own tests of these layers, on the stock classes and on ours."""

import collections
import json

import pytest

# Files of keras/src/layers/rnn in the installed package.
FILES = (
    "lstm_test",
    "gru_test",
    "bidirectional_test",
    "time_distributed_test",
    "rnn_test",
    "stacked_rnn_cells_test",
)
TIME_LIMIT = 600
# The only reasons for Keras's own loop: cells and functions that are a user's, and
# SimpleRNN, which the package does not replace.
ALLOWED_LOOPS = (
    "is no cell of a fused op",
    "is not one of the fused functions",
    "SimpleRNN: another class of Keras",
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    return tmp_path_factory.mktemp("keras_own")


def run_files(run_worker, folder, which):
    path = folder / f"{which}.json"
    if not path.exists():
        done = run_worker("keras_own.py", which, path, *FILES, timeout=TIME_LIMIT)
        assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text())


def test_as_many_pass_as_with_the_stock_classes(run_worker, outcomes):
    stock = run_files(run_worker, outcomes, "stock")["outcomes"]
    ours = run_files(run_worker, outcomes, "ours")
    counts = [
        dict(collections.Counter(found.values())) for found in (stock, ours["outcomes"])
    ]
    print(f"\nKeras's own tests: stock {counts[0]}, ours {counts[1]}")
    assert counts[0]["passed"] >= 50
    worse = {
        name: ours["reports"].get(name, ours["outcomes"].get(name))
        for name, outcome in stock.items()
        if outcome == "passed" and ours["outcomes"].get(name) != "passed"
    }
    assert not worse, "\n".join(f"{name}: {why}" for name, why in worse.items())
    skipped = {n for n, outcome in ours["outcomes"].items() if outcome == "skipped"}
    assert skipped <= {n for n, outcome in stock.items() if outcome == "skipped"}


def test_all_calls_that_can_be_are_fused(run_worker, outcomes):
    ours = run_files(run_worker, outcomes, "ours")
    print(f"\nop executions: {ours['calls']}; Keras's loop: {ours['stock_loops']}")
    assert ours["calls"] > 100
    for reason in ours["stock_loops"]:
        assert any(reason.endswith(allowed) for allowed in ALLOWED_LOOPS), reason
