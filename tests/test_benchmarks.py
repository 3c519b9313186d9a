"""The benchmark: what it times, how it compares, what it reports."""

import contextlib
import importlib
import io
import json
import math
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

# The benchmark needs packages that tf_ecornn itself does not.
Console = pytest.importorskip("rich.console").Console
pytest.importorskip("matplotlib")
bars, contenders, data, method, options, plots, results, run, sets, tables, works = (
    importlib.import_module(f"benchmarks.{name}")
    for name in (
        "bars",
        "contenders",
        "data",
        "method",
        "options",
        "plots",
        "results",
        "run",
        "sets",
        "tables",
        "works",
    )
)
Case, Work = works.Case, works.Work

# --- Works -------------------------------------------------------------------


def test_names_read_back_as_written():
    cases = {case for each in sets.SETS.values() for case in each}
    timed = {case.work for case in cases} | set(sets.MEMORY_WORKS)
    for work in timed:
        assert Work.parse(work.name) == work
    assert len({work.name for work in timed}) == len(timed)
    assert not [case.label for case in cases if case.work.excludes(case.kind)]
    name = "gru-u1-b2-t3-f4-l5-bf16-before-masked-rdrop-bidi"
    work = Work.parse("gru-bidi-rdrop-L5-f4-t3-b2-u1-masked-before-bf16")
    assert work.name == name
    assert work == Work(
        units=1,
        batch=2,
        timesteps=3,
        features=4,
        layers=5,
        cell="gru",
        policy="mixed_bfloat16",
        reset_before=True,
        masked=True,
        dropped=True,
        bidirectional=True,
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "unknown part ''"),
        ("u1-b1-t1", "no features"),
        ("u0-b1-t1-f1", "units must be at least 1"),
        ("u1-b1-t1-f1-l0", "layers must be at least 1"),
        ("u1-u1-b1-t1-f1", "units is there twice"),
        ("u1-b1-t1-f1-bf16-fp16", "policy is there twice"),
        ("rnn-u1-b1-t1-f1", "unknown part 'rnn'"),
        ("u1-b1-t1-f1-before", "only a GRU resets"),
        ("u1-b1-t1-f1-v9-bidi", "neither masked nor bidirectional"),
    ],
)
def test_bad_names_say_why(name, why):
    with pytest.raises(ValueError, match="is no work like") as error:
        Work.parse(name)
    assert why in str(error.value)


def test_kinds_that_a_work_has_not():
    assert "T=1" in Work.parse("u1-b1-t2-f1").excludes("decode")
    assert "training alone" in Work.parse("u1-b1-t2-f1-v9").excludes("inference")
    assert "dropout" in Work.parse("u1-b1-t2-f1-rdrop").excludes("inference")
    assert Work.parse("u1-b1-t1-f1").excludes("decode") is None


# Counted by hand: 21 rows of all steps. One layer forward: x·W is 21 × 2 × 20
# multiply-adds, h·U 21 × 5 × 20, so 2940; its weights' gradients as many again, and
# 2100 for h's. A second layer has 5 inputs: 4200 forward, 8400 backward.
@pytest.mark.parametrize(
    ("name", "kind", "multiply_adds"),
    [
        ("u5-b3-t7-f2", "inference", 2940),
        ("u5-b3-t7-f2", "training", 2940 + 2940 + 2100),
        ("u5-b3-t7-f2-bf16", "training", 7980),
        ("u5-b3-t7-f2-bidi", "training", 2 * 7980),
        ("gru-u5-b3-t7-f2", "training", 5985),
        ("gru-u5-b3-t7-f2-before", "inference", 2205),
        ("u5-b3-t7-f2-l2", "inference", 2940 + 4200),
        ("u5-b3-t7-f2-l2", "training", 7980 + 3 * 4200),
        # The second layer has 10 inputs: 21 × (10 + 5) × 20 in each direction.
        ("u5-b3-t7-f2-l2-bidi", "inference", 2 * (2940 + 6300)),
        # 11 logits of 5 units at each step; x has a gradient.
        ("u5-b3-t7-f2-v11", "training", 3 * 2940 + 3 * 21 * 5 * 11),
        ("u5-b3-t1-f2", "decode", 3 * 7 * 20),
    ],
)
def test_operations_are_those_of_the_matrix_products(name, kind, multiply_adds):
    assert Work.parse(name).flops(kind) == 2 * multiply_adds


def test_only_valid_steps_of_masked_works_count():
    work = Work.parse("u5-b64-t100-f2-masked")
    lengths = work.lengths
    assert lengths.shape == (64,) and lengths.min() >= 1 and lengths.max() <= 100
    assert 35 < lengths.mean() < 65
    assert work.flops("training") == 2 * lengths.sum() * 380  # 7980 / 21
    made = data.Data.random(work)
    valid = (made.x != 0).all(axis=2)
    np.testing.assert_array_equal(valid.sum(axis=1), lengths)
    assert (np.diff(valid.astype(int), axis=1) <= 0).all()
    assert (made.x != 0).any(axis=2).sum() == lengths.sum()
    assert made.first_row().x.shape == (1, 100, 2)


# --- Method ------------------------------------------------------------------


def test_rounds_alternate_and_ratios_pair():
    calls = []

    def clock(name):
        return lambda steps: calls.append((name, steps)) or 0.02 * steps

    clocks = {name: clock(name) for name in ("a", "b")}
    times = method.interleave(clocks, rounds=3, turn_s=0.1)
    assert calls[:4] == [("a", 1), ("b", 1)] * 2
    assert calls[4:] == [(name, 5) for name in "abbaab"]
    assert times == {"a": [0.02] * 3, "b": [0.02] * 3}
    spread = {"a": [3.0, 3.0, 0.1], "b": [1.0, 2.0, 9.0]}
    assert method.fastest(spread, ("a", "b", "c")) == "b"
    assert method.fastest(spread, ("c",)) is None
    assert method.Ratio.of([2.0, 4.0, 6.0], [1.0, 1.0, 2.0]).median == 3.0


def test_confidence_interval_of_the_median():
    steady = method.Ratio.of([3.0] * 7, [2.0] * 7)
    assert (steady.low, steady.median, steady.high) == (1.5, 1.5, 1.5)

    # Of 9 different values, the median of 9 draws is at most the k-th one if at
    # least 5 of them are.
    def probability(k):
        p = k / 9
        return sum(math.comb(9, n) * p**n * (1 - p) ** (9 - n) for n in range(5, 10))

    low = next(k for k in range(1, 10) if probability(k) >= 0.025)
    high = next(k for k in range(1, 10) if probability(k) >= 0.975)
    ratio = method.Ratio.of([9.0, 1, 8, 2, 7, 3, 6, 4, 5], [1.0] * 9)
    assert (ratio.low, ratio.median, ratio.high) == (low, 5, high)


# --- Results -----------------------------------------------------------------

CASE = Case(Work.parse("u128-b64-t100-f32"), "training")


def timing(case, **milliseconds):
    """A row in which each contender took the same time in all three rounds."""
    times = {name: [1e-3 * value] * 3 for name, value in milliseconds.items()}
    return results.Timing.of(case, times, dict.fromkeys(times, 1.0), {}, {})


def result_of(*rows):
    peaks = {"float32": 1e12, "float16": 5e11, "bfloat16": 2e12}
    return results.Result({"rounds": 3}, {}, peak_flops=peaks, times=list(rows))


def test_bars_are_judged_by_the_fastest_peer():
    bar = next(bar for bar in bars.BARS if bar.case == CASE and bar.least == 2.4)
    result = result_of(
        timing(CASE, keras=9.0, torch=5.0, ecornn=2.0, keras_avx2=3.0, ecornn_avx2=3.0)
    )
    verdicts = {verdict.bar: verdict for verdict in result.verdicts()}
    assert len(verdicts) == len(bars.BARS)
    assert verdicts[bar].ratio.median == pytest.approx(2.5) and verdicts[bar].met
    (avx2,) = (each for each in verdicts if each.case == CASE and each != bar)
    assert verdicts[avx2].ratio.median == 1.0 and verdicts[avx2].met is False
    assert [each.met for each in verdicts.values()].count(None) == len(verdicts) - 2

    console = Console(file=io.StringIO(), width=140)
    tables.print_tables(console, result, bars=True)
    text = console.file.getvalue()
    assert re.search(r"2\.40× │ +2\.50× │ +2\.50–2\.50 │ met", text)
    assert re.search(r"1\.30× │ +1\.00× │ +1\.00–1\.00 │ missed", text)
    assert "not measured" in text and "Nowhere slower than stock Keras" in text


def test_every_bar_names_contenders_and_works_of_its_set():
    for bar in bars.BARS:
        assert bar.case in sets.SETS["bars"] and bar.case in sets.SETS["all"]
        named = {bar.ours, *bar.against}
        assert named == {contenders.find(name).name for name in named}
        assert named <= bars.specials(bar.case)


def test_what_is_slower_than_stock_keras_is_told():
    other = Case(Work.parse("u8-b2-t3-f2"), "inference")
    slow = timing(other, keras=1.0, keras_xla=0.5, ecornn=2.0)
    result = result_of(timing(CASE, keras=2.0, ecornn=1.0), slow)
    assert {case: one.median for case, one in result.slower_than_keras().items()} == {
        other: 0.5
    }
    assert slow.best_peer == "keras_xla" and slow.ratio.median == 0.25
    found = results.collect(result)
    assert list(found["slower_than_keras"]) == [other.label]


def test_floor_is_that_of_the_policys_peak():
    for suffix, peak in (("", 1e12), ("-fp16", 1e12), ("-bf16", 2e12)):
        row = timing(Case(Work.parse("u8-b2-t3-f2" + suffix), "training"), keras=1.0)
        result = result_of(row)
        assert result.floor_s(row) == row.flops / peak
        assert result.shares(row)["keras"] == pytest.approx(1e3 * row.flops / peak)


def test_results_that_must_agree():
    work = Work.parse("u8-b2-t3-f2-rdrop")

    def agree(policy_work, **first):
        case = Case(policy_work, "training")
        return results.Timing.of(case, {}, first, {}, {}).results_agree

    assert agree(work, keras=1.0, keras_xla=2.0, torch=3.0, ecornn=1.0)
    assert not agree(work, keras=1.0, ecornn=1.01)
    assert not agree(CASE.work, keras=1.0, keras_xla=1.01, ecornn=1.0)
    assert agree(Work.parse("u8-b2-t3-f2-bf16"), keras=1.0, ecornn=1.01)


def test_failures_are_told_and_decide_the_status():
    failed = results.Timing.of(CASE, {}, {}, {}, {"torch": "RuntimeError: no luck"})
    result = result_of(failed)
    assert result.failed() and not result_of(timing(CASE, keras=1.0)).failed()
    console = Console(file=io.StringIO(), width=140)
    tables.print_tables(console, result, bars=False)
    assert "torch failed at training" in console.file.getvalue()
    assert "no luck" in console.file.getvalue()


def test_plots_are_drawn(tmp_path):
    rows = [timing(case, keras=2.0, ecornn=1.0) for case in sets.HASTE[:5]]
    decode = timing(Case(Work.parse("u8-b1-t1-f8"), "decode"), keras=1.0, torch=0.5)
    paths = plots.draw(result_of(*rows, decode), tmp_path / "plots")
    assert {path.stem for path in paths} == {
        "ratio_heatmap",
        *(f"time_against_size_{kind}" for kind in ("training", "decode")),
        *(f"percent_of_peak_{kind}" for kind in ("training", "decode")),
    }
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
    assert plots.ratio_heatmap(result_of(decode)) is None


# --- Command line ------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--works", "u1"], "'u1' is no work like"),
        (["--set", "some"], "invalid choice: 'some'"),
        (["--set", "bars", "--works", "u1-b1-t1-f1"], "not allowed with argument"),
        (["--rounds", "0"], "must be a whole number of at least 1, not 0"),
        (["--threads", "-1"], "must be a whole number of at least 0, not -1"),
        (["--measure", "speed"], "invalid choice: 'speed'"),
        (["--works", "u1-b1-t2-f1", "--measure", "decode"], "nothing is left"),
        (["--json", "/no/such/place/a.json"], "there is no directory"),
        (["--plots", "/no/such/place/plots"], "there is no directory"),
    ],
)
def test_bad_arguments(arguments, words, capsys):
    with pytest.raises(SystemExit) as end:
        options.parse("", arguments)
    assert end.value.code == 2
    assert words in capsys.readouterr().err


def test_sets_by_the_command_line():
    assert set(options.parse("", []).cases) == set(sets.SETS["all"])
    assert set(options.parse("", ["--quick"]).cases) == set(sets.SETS["quick"])
    bars_only = options.parse("", ["--set", "bars", "--measure", "inference"])
    assert len(bars_only.cases) == 5 and bars_only.memory_works == ()


def test_a_run_without_pytorch_must_be_asked_for():
    arguments = ["--works", "u4-b2-t3-f2", "--measure", "inference"]
    arguments += ["--torch-python", "/no/python", "--contenders", "torch"]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert run.main(arguments) == 2
    assert "there is no /no/python" in output.getvalue()
    assert "--without-torch does without" in " ".join(output.getvalue().split())


def test_work_too_large_for_the_machine_is_left_out():
    words = run.too_large(Work.parse("u1-b100000-t1000-f1-v10000"))
    assert re.match(r"needs about \d+ GiB of memory, and there are \d+", words)
    assert run.too_large(Work.parse("u1000-b100-t100-f1")) is None


def test_benchmark_runs_and_writes_its_files(tmp_path):
    path, folder = tmp_path / "figures.json", tmp_path / "plots"
    command = [sys.executable, str(EXAMPLES / "benchmarks" / "run.py"), "--quick"]
    command += ["--works", "gru-u4-b2-t1-f2", "--measure", "training", "decode"]
    command += ["--rounds", "2", "--threads", "1", "--without-torch"]
    command += ["--contenders", "keras", "block", "ecornn"]
    command += ["--json", str(path), "--plots", str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(path.read_text())
    assert result["arguments"]["works"] == ["gru-u4-b2-t1-f2"]
    assert result["machine"]["intra_op_threads"] == 1
    assert {"tensorflow", "keras"} <= set(result["versions"])
    assert [row["kind"] for row in result["times"]] == ["training", "decode"]
    for row in result["times"]:
        assert row["results_agree"] and not row["failures"]
        assert row["cannot"] == {"block": "LSTM only"}
        assert len(row["rounds"]["ecornn"]) == 2
        assert row["spread"]["keras"]["low"] <= row["spread"]["keras"]["median"]
        assert 0 < row["share_of_peak"]["ecornn"] < 1
        assert row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
    assert result["memory"] == [] and len(list(folder.glob("*.png"))) == 4
    assert re.search(r"Training, ms a step(.|\n)*Decode, ms a step", done.stdout)
