"""Keras's layers under the switch: every name of theirs, and what is stored."""

import json
import pathlib

import numpy as np
import pytest

from switched_runs import python, switched

PROGRAM = pathlib.Path(__file__).parent / "workers" / "keras_program.py"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The program's folder and result under the switch."""
    folder = tmp_path_factory.mktemp("stored")
    done = switched(PROGRAM, "store", folder, folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("runs Keras's own code: DoubledCell has its own") == 1
    return folder, json.loads(done.stdout)


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    """The program's result as it is."""
    folder = tmp_path_factory.mktemp("stock")
    done = python(PROGRAM, "ways", folder, folder=folder, with_package=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_name_of_a_layer_is_switched(stored, stock):
    found, expected = stored[1]["ways"], stock["ways"]
    assert set(found) == set(expected)
    for way in expected:
        assert found[way]["fused_calls"] > 0, f"{way}: no fused op ran"
        assert found[way]["class"] == expected[way]["class"], way
        assert expected[way]["fused_calls"] == 0
        np.testing.assert_allclose(
            found[way]["output"],
            expected[way]["output"],
            rtol=0,
            atol=1e-13,
            err_msg=way,
        )
    print(f"\n{len(found)} ways to name a layer")


def test_training_is_the_same(stored, stock):
    np.testing.assert_allclose(
        stored[1]["trained"]["predictions"],
        stock["trained"]["predictions"],
        rtol=0,
        atol=1e-13,
    )


def test_what_is_stored_loads_without_us(stored):
    folder, result = stored
    done = python(PROGRAM, "load", folder, folder=folder, with_package=False)
    assert done.returncode == 0, done.stderr
    forms = json.loads(done.stdout)
    assert set(forms) == {"keras", "weights", "json", "exported", "saved", "server"}
    for form, predictions in forms.items():
        np.testing.assert_allclose(
            predictions, result["trained"]["predictions"], 0, 1e-13, err_msg=form
        )
    for file in folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes().lower()
            assert b"ecornn" not in content, file


def test_traces_to_store_and_to_run_are_kept_apart(stored, stock):
    assert stored[1]["trained"]["operations"] == stock["trained"]["operations"]
    assert "While" in stock["trained"]["operations"]
    # Three layers, the function's call and that of `predict`, after all storing.
    assert stored[1]["trained"]["fused_calls_after"] == 6


def test_corners(tmp_path):
    path = PROGRAM.with_name("switched_corners.py")
    done = switched(path, tmp_path, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == 6
