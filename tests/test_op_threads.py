"""Pools of 1, 2 and 16 threads: equal bits, no deadlock, within a time limit."""

import numpy as np
import pytest

from problems import assert_same_bits

TIME_LIMIT = 120
# Intra-op threads, inter-op threads.
POOLS = ((1, 1), (2, 16), (16, 4))


@pytest.fixture(scope="module")
def saved_results():
    return {}


@pytest.mark.parametrize(("intra", "inter"), POOLS)
def test_pool(intra, inter, run_worker, tmp_path, saved_results):
    """Many ops at once finish, and single runs give the bits of one thread."""
    path = tmp_path / "results.npz"
    done = run_worker("threads.py", intra, inter, path, timeout=TIME_LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[-1] == "done"
    with np.load(path) as found:
        saved_results[intra] = dict(found)
    if 1 not in saved_results:
        pytest.skip("the run on one thread did not finish: nothing to compare with")
    assert saved_results[intra].keys() == saved_results[1].keys()
    for name, value in saved_results[1].items():
        assert_same_bits(saved_results[intra][name], value, f"{name}, {intra} threads")
