"""The examples: command lines, tiny runs, and what they report."""

import dataclasses
import json
import pathlib
import re
import socket
import sys

import keras
import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

# The examples need packages (rich, matplotlib) that tf_ecornn itself does not.
pytest.importorskip("rich")
pytest.importorskip("matplotlib")
(
    benchmark,
    japanese_vowels,
    comparison,
    data,
    timing,
    vowels,
) = (
    pytest.importorskip(name)
    for name in (
        "keras_lstm_classification",
        "japanese_vowels",
        "classification.comparison",
        "classification.data",
        "classification.timing",
        "classification.vowels",
    )
)

TINY = [
    *("--data", "synthetic", "--samples", "10", "--timesteps", "5"),
    *("--features", "2", "--units", "3", "--batch-size", "4", "--epochs", "2"),
]


@pytest.fixture(autouse=True)
def dtype_policy():
    """The example sets the global policy, as a program may."""
    before = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(before)


@pytest.fixture
def no_warm_up(monkeypatch):
    """Leaves out what only matters for times."""
    monkeypatch.setattr(comparison, "warm_up", lambda *_: None)


@pytest.fixture
def no_download(monkeypatch):
    """Makes every connection fail."""

    def refuse(*_):
        raise AssertionError("the data set must not be downloaded")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def few_vowels(monkeypatch):
    """Leaves 10 cases to train on and 3 to test on, of all lengths and classes."""
    pytest.importorskip("sktime")
    load = vowels.load

    def load_few(padding):
        full = load(padding)
        return dataclasses.replace(
            full,
            x_train=full.x_train[::27],
            y_train=full.y_train[::27],
            x_test=full.x_test[::150],
            y_test=full.y_test[::150],
        )

    monkeypatch.setattr(vowels, "load", load_few)


def run_example(example, tmp_path, *arguments):
    """Runs an example in this process; gives the JSON."""
    path = tmp_path / "figures.json"
    assert example.main(["--json", str(path), *arguments]) == 0
    return json.loads(path.read_text())


def run_tiny(tmp_path, *arguments):
    """Runs the classification benchmark on next to nothing."""
    return run_example(benchmark, tmp_path, *TINY, *arguments)


# --- Command line ------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--units", "0"], "--units: must be a whole number above 0, not 0"),
        (["--epochs", "-1"], "--epochs: must be a whole number above 0, not -1"),
        (["--batch-size", "2.5"], "--batch-size: must be a whole number"),
        (["--units", "many"], "--units: must be a whole number above 0, not many"),
        (["--seed", "-1"], "--seed: must be a whole number from 0"),
        (["--layer", "gru"], "--layer: invalid choice: 'gru'"),
        (["--data", "mnist"], "--data: invalid choice: 'mnist'"),
        (["--policy", "int8"], "--policy: invalid choice: 'int8'"),
        (["--samples", "5"], "--samples: only with --data synthetic"),
        (["--data", "gunpoint", "--features", "1"], "--features: only with"),
        (["--plot", "curves.pdf"], "--plot: curves.pdf does not end in .png"),
        (["--plot", "/no/such/place/a.png"], "--plot: there is no directory"),
        (["--json", "/"], "--json: / is a directory"),
        (["--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_bad_arguments_end_with_a_clear_error(arguments, words, capsys):
    check_error(benchmark, arguments, words, capsys)


def check_error(example, arguments, words, capsys):
    with pytest.raises(SystemExit) as end:
        example.parse(arguments)
    assert end.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--units", "0"], "--units: must be a whole number above 0, not 0"),
        (["--layer", "lstm"], "--layer: invalid choice: 'lstm'"),
        (["--cell", "rnn"], "--cell: invalid choice: 'rnn'"),
        (["--padding", "both"], "--padding: invalid choice: 'both'"),
        (["--recurrent-dropout", "1"], "must be at least 0 and below 1, not 1"),
        (["--recurrent-dropout", "-0.1"], "must be at least 0 and below 1, not -0.1"),
        (["--recurrent-dropout", "nan"], "must be at least 0 and below 1, not nan"),
        (["--recurrent-dropout", "some"], "must be at least 0 and below 1, not some"),
        (["--plot", "curves.pdf"], "--plot: curves.pdf does not end in .png"),
        (["--data", "gunpoint"], "unrecognized arguments: --data gunpoint"),
    ],
)
def test_bad_arguments_of_the_vowels(arguments, words, capsys):
    check_error(japanese_vowels, arguments, words, capsys)


def test_defaults_are_the_real_data_and_both_layers():
    args = benchmark.parse([])
    assert (args.layer, args.data, args.policy) == (
        "both",
        "italy_power_demand",
        "float32",
    )


def test_published_run_parses():
    line = re.search(r"--data synthetic (.|\n)*?--epochs 100", benchmark.__doc__)
    args = benchmark.parse(line.group().replace("\\", "").split())
    assert (args.samples, args.timesteps, args.features) == (937, 100, 1)
    assert (args.units, args.batch_size, args.epochs) == (1000, 100, 100)


def test_missing_package_is_explained(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tf_ecornn", None)
    assert benchmark.main([*TINY, "--layer", "both"]) == 1
    words = capsys.readouterr().err
    assert words.startswith("keras_lstm_classification.py: tf_ecornn is not installed")
    assert "--layer keras runs without it" in words

    monkeypatch.setitem(sys.modules, "sktime", None)
    for example, end in (
        (benchmark, "installs it, --data synthetic runs without it\n"),
        (japanese_vowels, "installs it\n"),
    ):
        assert example.main(["--layer", "keras"]) == 1
        words = capsys.readouterr().err
        assert "sktime is not installed; `pip install sktime" in words
        assert words.endswith(end)


# --- Data --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "train", "test", "steps"),
    [("italy_power_demand", 876, 220, 24), ("gunpoint", 160, 40, 150)],
)
@pytest.mark.usefixtures("no_download")
def test_real_data_is_shipped_and_split_evenly(name, train, test, steps):
    pytest.importorskip("sktime")
    first, second = (data.load(name, 0, 0, 0) for _ in range(2))
    assert first.x_train.shape == (train, steps, 1)
    assert first.x_test.shape == (test, steps, 1)
    assert first.x_train.dtype == first.y_train.dtype == np.float32
    for y in (first.y_train, first.y_test):
        assert set(np.unique(y)) == {0.0, 1.0}
        assert abs(y.mean() - 0.5) < 0.02
    np.testing.assert_array_equal(first.x_test, second.x_test)


@pytest.mark.parametrize("sizes", [(937, 100, 1), (1, 1, 1), (10, 5, 3)])
def test_synthetic_data_has_the_sizes_asked_for(sizes):
    made = data.load("synthetic", *sizes)
    assert made.x_train.shape == sizes
    assert made.y_train.shape == (sizes[0], 1)
    assert set(np.unique(made.y_test)) <= {0.0, 1.0}
    assert np.isfinite(made.x_train).all()
    assert made.describe()["test_cases"] == len(made.x_test) >= 2


@pytest.mark.usefixtures("no_download")
def test_vowels_are_shipped_and_padded_where_asked():
    pytest.importorskip("sktime")
    post, pre = (vowels.load(padding) for padding in ("post", "pre"))
    assert post.x_train.shape == (270, 29, 12)
    assert post.x_test.shape == (370, 29, 12)
    assert post.x_train.dtype == np.float32
    assert post.describe()["lengths"] == (7, 29)
    assert post.title() == "japanese_vowels: 270 × 7 to 29 steps × 12"
    # 30 utterances of each speaker to train on; the rest of the archive to test on.
    assert np.bincount(post.y_train).tolist() == [30] * 9
    assert np.bincount(post.y_test).tolist() == [31, 35, 88, 44, 29, 24, 40, 50, 29]

    lengths = []
    for first, second in ((post.x_train, pre.x_train), (post.x_test, pre.x_test)):
        after, before = ((x != vowels.PADDING).any(axis=2) for x in (first, second))
        lengths += after.sum(axis=1).tolist()
        # Padding at the end only, at the start only; in between, the same steps.
        assert (np.diff(after.astype(int)) <= 0).all()
        assert (np.diff(before.astype(int)) >= 0).all()
        np.testing.assert_array_equal(first[after], second[before])
    assert (min(lengths), max(lengths)) == post.lengths
    steps = post.x_train[(post.x_train != vowels.PADDING).any(axis=2)]
    np.testing.assert_allclose(steps.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(steps.std(axis=0), 1.0, atol=1e-5)


# --- Classification run ------------------------------------------------------


def test_run_reports_everything(tmp_path, capsys, monkeypatch):
    # The stock layer needs no tf_ecornn.
    monkeypatch.setitem(sys.modules, "tf_ecornn", None)
    plot = tmp_path / "curves.png"
    result = run_tiny(tmp_path, "--layer", "keras", "--plot", str(plot))

    assert result["arguments"]["units"] == 3
    assert result["data"] == {
        "name": "synthetic",
        "train_cases": 10,
        "test_cases": 2,
        "timesteps": 5,
        "features": 2,
    }
    assert result["machine"]["cpus"] >= 1
    assert {"python", "tensorflow", "keras", "numpy"} <= set(result["versions"])
    assert result["comparison"] is None

    (one,) = result["runs"]
    assert one["layer"] == "keras.layers.LSTM"
    assert one["parameters"] == 4 * 3 * (2 + 3 + 1) + 3 + 1
    times = one["times"]
    assert len(times["epochs"]) == len(times["curve"]["losses"]) == 2
    assert len(times["first_epoch"]["losses"]) == 3  # 4 + 4 + 2 samples
    assert times["curve"]["seconds"] == sorted(times["curve"]["seconds"])
    assert times["elapsed"] >= sum(times["epochs"])
    # Tracing is in the first step, and left out of the median.
    assert times["first_step"] > times["step"] > 0
    assert one["epoch"] == pytest.approx(np.mean(times["epochs"]))
    assert times["samples_per_s"] > 0

    output = capsys.readouterr().out
    for text in (
        f"{times['elapsed']:.2f} s",
        f"{1e3 * times['step']:.4g} ms",
        f"{one['train']['loss']:.6f}",
        f"{one['test']['loss']:.6f}",
        f"{one['test']['accuracy']:.4f}",
    ):
        assert text in output
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert plot.stat().st_size > 10_000


@pytest.mark.usefixtures("no_warm_up")
def test_both_runs_start_alike_and_see_the_same_batches(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(comparison, "layer_class", lambda *_: keras.layers.LSTM)
    result = run_tiny(tmp_path)
    first, second = result["runs"]
    assert result["comparison"]["largest_loss_difference"] == 0.0
    assert first["times"]["curve"]["losses"] == second["times"]["curve"]["losses"]
    assert first["test"] == second["test"]
    speed_up = result["comparison"]["speed_up"]
    elapsed = first["times"]["elapsed"] / second["times"]["elapsed"]
    assert speed_up["elapsed"] == pytest.approx(elapsed)
    assert f"{speed_up['elapsed']:.2f}×" in capsys.readouterr().out


@pytest.mark.usefixtures("no_warm_up")
def test_single_step_has_no_median_and_follows_the_seed(tmp_path, capsys):
    arguments = ("--layer", "keras", "--epochs", "1", "--batch-size", "64")
    plot = tmp_path / "curves.png"
    (first,) = run_tiny(tmp_path, *arguments, "--plot", str(plot))["runs"]
    assert first["times"]["step"] is first["times"]["samples_per_s"] is None
    assert re.search(r"Median step\W+–", capsys.readouterr().out)
    assert plot.exists()

    (second,) = run_tiny(tmp_path, *arguments, "--seed", "1", "--quiet")["runs"]
    assert first["train"]["loss"] != second["train"]["loss"]
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("no_warm_up")
def test_curves_of_both_layers_agree(tmp_path):
    tf_ecornn = pytest.importorskip("tf_ecornn")
    if not hasattr(tf_ecornn, "LSTM"):
        pytest.skip("this build has no LSTM layer")
    result = run_tiny(tmp_path, "--quiet")
    names = [one["layer"] for one in result["runs"]]
    assert names == ["keras.layers.LSTM", "tf_ecornn.LSTM"]
    assert result["runs"][1]["fused"] is True
    assert result["comparison"]["largest_loss_difference"] < 1e-4


def test_stopwatch_leaves_the_short_batch_out_of_the_median(monkeypatch):
    ticks = iter(float(tick) for tick in range(100))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(ticks))
    watch = timing.Stopwatch(samples=10, batch_size=4)
    logs = {"loss": 1.0, "accuracy": 0.5}
    with watch:
        watch.on_epoch_begin(0)
        for batch in range(3):
            watch.on_train_batch_begin(batch)
            if batch == 2:
                next(ticks)  # the short one takes longer
            watch.on_train_batch_end(batch, logs)
        watch.on_epoch_end(0, logs)
    times = watch.times()
    # Clock: 0 start, 1 epoch, 2-3, 4-5, 6-(7)-8 steps, 9 epoch's end, 10 stop.
    assert (times.first_step, times.step, times.elapsed) == (1.0, 1.0, 10.0)
    assert times.epochs == [8.0]
    assert times.samples_per_s == pytest.approx((10 - 4) / (10 - 3))


# --- Japanese vowels ---------------------------------------------------------


@pytest.mark.usefixtures("no_warm_up", "few_vowels")
@pytest.mark.parametrize(
    ("cell", "arguments", "limit"),
    [
        ("gru", "--padding pre --plot curves.png", 1e-4),
        # Losses are reported in float32.
        ("lstm", "--recurrent-dropout 0.3 --policy float64", 1e-6),
    ],
)
def test_curves_of_both_layers_agree_on_vowels(
    cell, arguments, limit, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("tf_ecornn")
    monkeypatch.chdir(tmp_path)
    arguments += f" --cell {cell} --units 3 --batch-size 4 --epochs 2"
    result = run_example(japanese_vowels, tmp_path, *arguments.split())
    assert result["benchmark"] == "japanese_vowels"
    assert result["data"]["lengths"] == [7, 29]
    stock, ours = result["runs"]
    assert stock["layer"] == f"keras.layers.{cell.upper()}"
    assert ours["layer"] == f"tf_ecornn.{cell.upper()}"
    assert (stock["fused"], ours["fused"]) == (None, True)
    assert stock["parameters"] == ours["parameters"]
    assert result["comparison"]["largest_loss_difference"] < limit
    assert stock["test"]["loss"] == pytest.approx(ours["test"]["loss"], abs=limit)
    output = capsys.readouterr().out
    assert f"7 to 29 steps × 12, bidirectional {cell.upper()} of 2 × 3" in output
    assert ("recurrent dropout 0.3" in output) == ("dropout" in arguments)
    if "--plot" in arguments:
        plot = tmp_path / "curves.png"
        assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("no_warm_up")
def test_vowels_are_learnt(tmp_path):
    pytest.importorskip("tf_ecornn")
    pytest.importorskip("sktime")
    arguments = ("--layer", "ecornn", "--epochs", "12", "--quiet")
    (run,) = run_example(japanese_vowels, tmp_path, *arguments)["runs"]
    assert run["test"]["accuracy"] > 0.95


def test_stock_loop_in_a_wrapper_is_told():
    tf_ecornn = pytest.importorskip("tf_ecornn")

    def fused(*layers):
        return comparison.fused(keras.Sequential(layers))

    def double(x):
        return 2.0 * x

    with keras.saving.custom_object_scope({"double": double}):
        ours = keras.layers.Bidirectional(tf_ecornn.LSTM(2))
        other = keras.layers.Bidirectional(tf_ecornn.GRU(2, activation=double))
    assert fused(ours) is fused(keras.layers.Masking(), tf_ecornn.GRU(2)) is True
    assert fused(other) is fused(ours, other) is False
    assert fused(keras.layers.Bidirectional(keras.layers.LSTM(2))) is None
