"""tests/gpu/check_and_time.py, as far as it goes without a GPU."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from buildtools import cuda_on_cpu
from gpu import cases, kernels, memory, report, results, sanitizer, workloads
from gpu.dtypes import CELL_CODES, DTYPES
from gpu.engine import Engine, read_fields

GPU = Path(__file__).with_name("gpu")


@pytest.fixture(scope="module")
def library():
    return cuda_on_cpu.build()


def run(script, *arguments, timeout=170, **environment):
    return subprocess.run(
        [sys.executable, str(GPU / script), *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_emulated_checks(library, tmp_path):
    """Every kernel, by the command that a GPU's machine is given."""
    file = tmp_path / "result.json"
    process = run("check_and_time.py", "--emulated", "--quick", "--json", file)
    assert process.returncode == 0, process.stdout + process.stderr
    result = json.loads(file.read_text())
    assert result["wrong"] == [] and result["checks"]["unfinished"] == []
    rows = result["checks"]["rows"]
    assert len(rows) == len(list(cases.quick_cases()))
    assert all(row["error"] <= row["bar"] for row in rows)
    checked = {tuple(row["case"].split()[:3]) for row in rows}
    wanted = {(c, d, p) for c in CELL_CODES for d in DTYPES for p in cases.PATHS}
    assert wanted <= checked
    assert process.stdout.count(" at most: ") == len(DTYPES)
    assert "all right" in process.stdout.splitlines()[-1]


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)
def test_emulated_trial(library, tmp_path):
    """The timing as well, and that both sides do the same work."""
    file = tmp_path / "result.json"
    process = run(
        "check_and_time.py",
        "--emulated",
        "--quick",
        "--trial",
        "--json",
        file,
        timeout=600,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    rows = json.loads(file.read_text())["timing"]["rows"]
    assert len(rows) == 8 * len(workloads.TRIAL_WORKS)


def test_kernels_without_a_barrier_fail(library, tmp_path):
    """Sums are read before all warps have theirs there: wrong, or not finished."""
    file = tmp_path / "checks.json"
    process = run(
        "part.py",
        *("checks", "--library", library, "--file", file, "--device", "cpu"),
        *("--cases", "quick", "--share", "0/40"),
        ECORNN_EMULATION_DISABLE="kPartsReady",
    )
    found = results.load(file)
    rows = found.get("rows", [])
    assert rows, process.stdout + process.stderr
    assert all(row["failures"] for row in rows), rows
    assert "FAILED" in process.stdout


def test_a_part_that_ended_early_is_known_by_its_case(tmp_path):
    part = results.Results(tmp_path / "part.json")
    assert results.load(tmp_path / "other.json")["running"] == "its start"
    part.data["rows"] = [1]
    part.now("a case")
    assert results.load(tmp_path / "part.json")["running"] == "a case"
    part.finish()
    assert results.load(tmp_path / "part.json") == {"finished": True, "rows": [1]}


def test_shares_are_all_the_cases():
    whole = list(cases.all_cases())
    shares = [list(cases.share(iter(whole), i, 3)) for i in range(3)]
    assert len(whole) == len(set(whole)) == sum(map(len, shares))
    assert {c for share in shares for c in share} == set(whole)


def test_what_is_written_beyond_an_array_is_seen():
    array = memory.poisoned(memory.HostMemory(), (3,), np.float16)
    values, intact = array.read()
    assert intact and np.isnan(values).all() and array.pointer % 256 == 0
    array.block[array.size + 1] = 0
    assert not array.read()[1]


def test_bfloat16_rounds_to_the_nearest_even():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = DTYPES["bfloat16"]
    values = np.random.default_rng(1).normal(size=1000) * 10.0 ** np.arange(
        -20, 20, 0.04
    )
    halfway = np.array([1.0 + 2**-8, 1.0 + 3 * 2**-8, -1.0 - 2**-8, 3.39e38, np.inf])
    values = np.concatenate([values, halfway])
    expected = values.astype(np.float32).astype(ml_dtypes.bfloat16)
    assert np.array_equal(kind.round(values), expected.astype(np.float64))
    assert np.isnan(kind.round(np.array([np.nan]))).all()


def test_arguments_are_those_of_the_header(library):
    assert read_fields("EcornnCudaForward")[:2] == ("dtype", "cell")
    with pytest.raises(ValueError, match="colour"):
        Engine(library).run("forward", {"colour": 1}, lambda size: 0)


@pytest.mark.parametrize(
    ("exit_code", "finished", "failures", "log", "verdict"),
    (
        (0, True, [], "========= ERROR SUMMARY: 0 errors", "clean"),
        (9, True, [], "========= ERROR SUMMARY: 2 errors", "faults: ERROR"),
        (
            9,
            False,
            [],
            "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)",
            "faults: RACECHECK",
        ),
        (0, True, ["off"], "========= ERROR SUMMARY: 0 errors", "faults"),
        (1, False, [], "========= Error: Device not supported", "not checked: exit 1"),
        (None, False, [], "=========", "not checked: too slow"),
        # No word of the tool's: it saw nothing.
        (0, True, [], "", "not checked"),
    ),
)
def test_verdict_on_a_sanitizer(exit_code, finished, failures, log, verdict):
    data = {"exit": exit_code, "finished": finished, "rows": [{"failures": failures}]}
    assert sanitizer.verdict(data, log).startswith(verdict)


# --- The report ------------------------------------------------------------------


def row(work="w", cell="lstm", dtype="float16", aim=None, **median_ms):
    times = {name: {"median": value} for name, value in median_ms.items()}
    peers = [name for name in median_ms if name not in report.OURS]
    return {
        "work": work,
        "cell": cell,
        "dtype": dtype,
        "steps": 100,
        "aim": aim,
        "aimed": ("forward",),
        "peers": peers,
        "notes": {},
        "disagreements": [],
        "floor_ms": {"forward": 0.1, "training": 0.1},
        "times": {"forward": times, "training": times},
    }


def test_aims_are_against_the_faster_of_the_narrow_types():
    rows = [
        row(aim=2.0, persistent=1.0, steps=3.0, cudnn=5.0),
        row(dtype="bfloat16", persistent=1.0, cudnn=1.5),
        row(dtype="float32", persistent=1.0, cudnn=0.1),
        row(cell="gru", aim=2.0, persistent=1.0, cudnn=0.1),
    ]
    (aim,) = report.aims(rows)
    assert aim["times_as_fast"] == 1.5 and not aim["met"]
    assert "MISSED" in "".join(report.aim_lines([aim]))
    assert report.ratio(rows[0], "forward") == 5.0


def test_what_does_not_fit_and_what_is_not_cudnn_is_shown():
    fits_not = row(steps=2.0, cudnn=4.0)
    fits_not["notes"]["PyTorch used"] = "Stack"
    only_theirs = row(work="v", cudnn=4.0, aim=1.5)
    timing = {
        "ceilings": {"rates": {"float16": 8e14}, "bandwidth": 4e12},
        "rows": [fits_not, only_theirs],
        "errors": ["w gru tf32: out of memory"],
        "not_timed": ["x", "y"],
    }
    lines = list(report.timing_lines(timing))
    line = next(line for line in lines if line.startswith("  lstm half"))
    assert "40.00        -    20.00   2.00    5%" in line
    assert line.endswith("PyTorch used Stack")
    assert any("out of memory" in line for line in lines)
    assert "2, from x on" in lines[-1]
    assert report.ratio(only_theirs, "forward") is None
    assert report.aims([only_theirs])[0]["times_as_fast"] == 0.0


def test_launches_of_one_kernel_are_one_line():
    launch = {
        "cat": "kernel",
        "name": "void ecornn::cuda::RunSequence<ecornn::Half>",
        "dur": 2.5,
        "args": {
            "grid": [64, 1, 1],
            "block": [256, 1, 1],
            "shared memory": 4096,
            "registers per thread": 180,
        },
    }
    other = {"cat": "gpu_memset", "name": "Memset (Device)", "dur": 1.0, "args": {}}
    listed = kernels.summed([launch, {"cat": "cpu_op", "name": "x"}, other, launch])
    assert [entry["us"] for entry in listed] == [5.0, 1.0]
    assert listed[0]["launches"] == 2
    text = "\n".join(report.kernel_lines({"w persistent": listed, "w cudnn": listed}))
    assert "64x1x1 blocks, 4096 shared, 180 registers" in text
    assert text.count("RunSequence<Half>") == 1


def test_the_least_time_is_that_of_operations_or_of_bytes():
    work = workloads.Work("w", units=10, batch=2, steps=5, features=6)
    rates = dict.fromkeys(workloads.ALL_DTYPES, 1e3)
    slow = workloads.Ceilings(rates, 1e30)
    operations = 2 * 10 * (6 + 10) * 40
    floor = workloads.floor_ms(work, 4, "float16", "forward", slow)
    assert floor == pytest.approx(operations)
    floor = workloads.floor_ms(work, 4, "float16", "training", slow)
    assert floor == pytest.approx(3 * operations)
    fast = workloads.Ceilings(dict.fromkeys(rates, 1e30), 1e3)
    numbers = (6 + 10) * 40 + 10 * (6 + 10)
    floor = workloads.floor_ms(work, 4, "float32", "forward", fast)
    assert floor == pytest.approx(4 * numbers)


def test_lengths_fall_from_all_steps_to_a_tenth():
    work = workloads.Work("w", 8, batch=10, steps=100, features=3, lengths=True)
    lengths = work.row_lengths()
    assert lengths == sorted(lengths, reverse=True)
    assert (lengths[0], lengths[-1]) == (100, 10)
