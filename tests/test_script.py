"""Scripts that know nothing of tf_ecornn reach the same loss under the switch."""

import pathlib
import re
import runpy
import sys

import pytest

from switched_runs import report_rows, switched

SCRIPTS = pathlib.Path(__file__).parent / "scripts"

# The layers of the scripts, as the report names them.
LAYERS = {
    "addition_seq2seq": {"encoder", "decoder"},
    "bidirectional_text": {
        "sequential/bidirectional/forward_lstm",
        "sequential/bidirectional/backward_lstm",
        "sequential/bidirectional_1/forward_gru",
        "sequential/bidirectional_1/backward_gru",
    },
    "lstm_classification": {"sequential/lstm"},
}


def final_loss(output):
    return float(re.search(r"^final loss (\S+)$", output, re.MULTILINE)[1])


@pytest.mark.parametrize("script", LAYERS)
def test_scripts_reach_the_same_loss(script, tmp_path, monkeypatch, capsys):
    path = SCRIPTS / f"{script}.py"
    monkeypatch.setattr(sys, "argv", [str(path)])
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        assert not end.code
    expected = final_loss(capsys.readouterr().out)

    done = switched("--report", path, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = final_loss(done.stdout)
    print(f"{script}: final loss {expected} with Keras, {found} with the switch")
    assert found == pytest.approx(expected, rel=1e-5)
    rows = report_rows(done.stderr)
    assert set(rows) == LAYERS[script]
    for row in rows.values():
        assert row["fused"] == "yes" and row["why not"] == ""
        assert int(row["forward"]) > 0 and int(row["gradient"]) > 0
        assert re.fullmatch(r"\d+%", row["floor"]), row
