"""The record of what the ops take, and what `--report` makes of it."""

import re
import textwrap
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_ecornn
from switched_runs import report_rows, switched
from tf_ecornn import _library, report
from tf_ecornn.report import Node, Report

B, T, F, U = 5, 7, 3, 4
GATES = {"lstm": 4, "gru": 3}
STATES = {"lstm": 2, "gru": 1}
VALID = 11  # steps of the mask


@pytest.fixture
def new_nodes():
    """Records; a function that gives what nodes took since the test began."""
    before = {node.name: node for node in report.recorded_nodes()}
    _library.record(True)

    def since():
        found = {}
        for node in report.recorded_nodes():
            old = before.get(node.name)
            sums = ("calls", "nanoseconds", "multiply_adds")
            less = {s: getattr(node, s) - getattr(old, s) for s in sums} if old else {}
            if not old or less["calls"]:
                found[node.name] = node._replace(**less)
        return found

    yield since
    _library.record(False)


def draw(*shape, dtype="float32"):
    return tf.constant(np.random.default_rng(1).normal(size=shape), dtype)


def draw_mask():
    mask = np.zeros(B * T, bool)
    mask[np.random.default_rng(2).permutation(B * T)[:VALID]] = True
    return tf.constant(mask.reshape(B, T))


@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize("features", [F, 200])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("dtype", "name"), [("float32", "float"), ("float64", "double")]
)
def test_the_record_of_a_node(cell, features, masked, dtype, name, new_nodes):
    """Calls, multiply-adds and bytes follow from the sizes."""
    gates, size = GATES[cell], tf.as_dtype(dtype).size
    kernel = draw(features, gates * U, dtype=dtype)
    recurrent_kernel = draw(U, gates * U, dtype=dtype)
    scope = f"{cell}_{features}_{masked}_{dtype}"

    @tf.function
    def step(x):
        with tf.GradientTape() as tape, tf.name_scope(scope):
            tape.watch(x)
            run = getattr(tf_ecornn, cell)
            found = run(
                x, kernel, recurrent_kernel, mask=draw_mask() if masked else None
            )
            loss = tf.reduce_sum(found.output)
        return tape.gradient(loss, x)

    start = time.perf_counter()
    for _ in range(3):
        step(draw(B, T, features, dtype=dtype))
    elapsed = time.perf_counter() - start
    nodes = sorted(new_nodes().values(), key=lambda node: node.is_gradient)
    assert [node.is_gradient for node in nodes] == [False, True], nodes
    forward, gradient = nodes
    op = {"lstm": "Lstm", "gru": "Gru"}[cell]
    assert (forward.op, gradient.op) == (f"EcoRNN>{op}", f"EcoRNN>{op}Grad")
    assert all(f"/{scope}/" in f"/{node.name}" for node in nodes)
    assert all(node.dtype == name and node.calls == 3 for node in nodes)
    valid = VALID if masked else B * T
    # Few features are multiplied inside the op, many by TensorFlow before it.
    joined = features if features == F else 0
    assert forward.multiply_adds == 3 * valid * gates * U * (U + joined)
    assert gradient.multiply_adds == 3 * valid * gates * U * U
    # The last output and the final states; gates, and two more per step, for later.
    held = B * U * (1 + STATES[cell]) + B * T * U * (gates + 2)
    assert forward.bytes == size * held
    assert 0 < 1e-9 * (forward.nanoseconds + gradient.nanoseconds) < elapsed


def test_eager_runs_stand_under_the_ops_name(new_nodes):
    layer = tf_ecornn.GRU(U)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(draw(B, T, F), training=True))
    tape.gradient(loss, layer.trainable_variables)
    nodes = new_nodes()
    assert set(nodes) == {"EcoRNN>Gru", "EcoRNN>GruGrad"}
    assert all(node.is_eager and node.calls == 1 for node in nodes.values())


def test_failed_runs_and_others_than_asked_for_are_not_recorded(new_nodes):
    with pytest.raises(tf.errors.InvalidArgumentError):
        _library.ops.eco_rnn_gru(
            x=draw(B, T, 3 * U),
            recurrent_kernel=draw(U, 3 * U),
            initial_h=draw(B + 1, U),
            bias=[],
            recurrent_bias=[],
            mask=[],
            reset=[],
            recurrent_dropout=[],
            kernel=[],
            num_outputs=1,
            num_saved=0,
        )
    _library.record(False)
    tf_ecornn.GRU(U)(draw(B, T, F))
    assert not new_nodes()


def node(name, op="EcoRNN>Lstm", calls=1, **fields):
    fields = {"nanoseconds": 2000, "multiply_adds": 500, "bytes": 1500} | fields
    return Node(name, op, fields.pop("dtype", "float"), calls, **fields)


def noted(collected, layer, scope, reason=None):
    with tf.Graph().as_default():
        if scope:
            with tf.name_scope(scope):
                collected.note(layer, reason)
        else:
            collected.note(layer, reason)


def built(layer):
    layer.build((None, None, F))
    return layer


def test_nodes_belong_to_the_layer_whose_scope_they_name():
    collected = Report()
    noted(collected, built(keras.layers.LSTM(U, name="outer")), "model/outer")
    noted(collected, built(keras.layers.GRU(U, name="inner")), "model/outer/inner")
    noted(collected, built(keras.layers.GRU(U, name="odd")), "model/odd", "no reason")
    rows = collected.rows(
        [
            node("Call/model/outer/EcoRNN>Lstm", calls=2),
            node("gradient_tape/model/outer/EcoRNN>LstmGrad", "EcoRNN>LstmGrad"),
            node("model/outer/inner/EcoRNN>Gru", "EcoRNN>Gru", nanoseconds=1e9),
            node("model/outermost/EcoRNN>Lstm", dtype="double"),
            node("EcoRNN>GruGrad", "EcoRNN>GruGrad"),
        ],
        {"float": 1e9, "double": 5e8},
    )
    assert rows == [
        ("outer", "keras.LSTM", "yes", "2", "1", "4 µs", "25%", "1.5 kB", ""),
        ("inner", "keras.GRU", "yes", "1", "0", "1 s", "0%", "1.5 kB", ""),
        ("odd", "keras.GRU", "no", *"-----", "no reason"),
        (
            *("(model/outermost/EcoRNN>Lstm)", "EcoRNN>Lstm", "yes"),
            *("1", "0", "2 µs", "50%", "1.5 kB", ""),
        ),
        (
            *("(eager, any layer)", "EcoRNN>Gru", "yes"),
            *("0", "1", "2 µs", "25%", "-", ""),
        ),
    ]


def test_without_a_time_or_a_peak_there_is_no_share():
    collected = Report()
    noted(collected, built(keras.layers.LSTM(U, name="lstm")), "lstm")
    (row,) = collected.rows([node("lstm/EcoRNN>Lstm", nanoseconds=0)], {"float": 1e9})
    assert row[3:8] == ("1", "0", "-", "-", "1.5 kB")
    (row,) = collected.rows([node("lstm/EcoRNN>Lstm")], {})
    assert row[3:8] == ("1", "0", "2 µs", "-", "1.5 kB")


def test_copies_of_a_layer_count_together():
    collected = Report()
    first = built(keras.layers.LSTM(U, name="first"))
    noted(collected, first, "model/lstm")
    noted(collected, built(keras.layers.LSTM(U, name="copy")), "model/lstm")
    rows = collected.rows([node("model/lstm/EcoRNN>Lstm", calls=9)], {})
    assert [row[0] for row in rows] == ["first"]


def test_a_cell_stands_for_its_layer_unless_it_has_run_itself():
    collected = Report()
    layer = built(keras.layers.RNN(keras.layers.LSTMCell(U, name="cell"), name="rnn"))
    alone = keras.layers.LSTMCell(U, name="alone")
    noted(collected, layer, "rnn", "why not")
    noted(collected, layer.cell, "rnn/cell")
    noted(collected, alone, "alone")
    assert [row[0] for row in collected.rows([], {})] == ["rnn", "alone"]
    ran = collected.rows([node("rnn/while/rnn/cell/EcoRNN>Lstm")], {})
    assert [row[0] for row in ran] == ["rnn", "rnn/cell", "alone"]


def test_units_have_three_digits():
    found = [report._with_unit(v, "s") for v in (123.4, 1.0, 0.99, 2.5e-3, 4.2e-7)]
    assert found == ["123 s", "1 s", "990 ms", "2.5 ms", "0.42 µs"]
    assert report._with_unit(1536000, "B") == "1.54 MB"


def test_the_peak_is_that_of_a_matrix_product():
    """Half of the peak is at hand for NumPy too; ten times as much is for none."""
    size = 1024
    matrix = np.ones((size, size), "float32")
    times = []
    for _ in range(5):
        start = time.perf_counter()
        matrix @ matrix
        times.append(time.perf_counter() - start)
    peak = report.measured_peak(tf.float32)
    print(f"tf.matmul {peak:.3g}, NumPy {size**3 / min(times):.3g} multiply-adds/s")
    assert 0.1 < peak / (size**3 / min(times)) < 10


PROGRAM = """
    import keras
    import numpy as np

    x = keras.Input((6, 3))
    hidden = keras.layers.LSTM(8, return_sequences=True, name="first")(x)
    hidden = keras.layers.GRU(
        5, activation=lambda v: v / (1 + v * v), return_sequences=True, name="odd"
    )(hidden)
    hidden = keras.layers.SimpleRNN(4, name="simple")(hidden)
    model = keras.Model(x, keras.layers.Dense(1)(hidden))
    model.compile("sgd", "mse")
    data = np.ones((12, 6, 3), "float32")
    model.fit(data, data[:, 0, :1], batch_size=4, epochs=2, verbose=0)
    model.predict(data, batch_size=6, verbose=0)
    keras.layers.GRU(2, name="eager")(data)
    raise ValueError("at the end")
"""


def run_with_report(folder, text):
    (folder / "program.py").write_text(textwrap.dedent(text))
    return switched("--report", "program.py", folder=folder)


def test_a_report_is_printed_when_the_program_fails(tmp_path):
    done = run_with_report(tmp_path, PROGRAM)
    assert done.returncode == 1 and done.stdout == ""
    assert "ValueError: at the end" in done.stderr
    rows = report_rows(done.stderr)
    assert list(rows) == ["first", "odd", "simple", "eager", "(eager, any layer)"]
    # Six steps of training and two of prediction.
    assert (rows["first"]["forward"], rows["first"]["gradient"]) == ("8", "6")
    floats = 4 * 8 * (3 + 6 + 6 * 6)
    assert rows["first"]["bytes"] == f"{4 * floats / 1000:.3g} kB"
    assert rows["first"]["class"] == "keras.LSTM"
    assert rows["odd"]["fused"] == rows["simple"]["fused"] == "no"
    assert "activation=<lambda> is not one" in rows["odd"]["why not"]
    assert "SimpleRNNCell is no cell of a fused op" in rows["simple"]["why not"]
    assert rows["eager"]["fused"] == "yes" and rows["eager"]["forward"] == "-"
    assert rows["(eager, any layer)"]["forward"] == "1"
    assert re.search(r"^Peak for float: \S+ [GM] multiply-adds", done.stderr, re.M)
    assert done.stderr.count("GRU 'odd' runs Keras's own code: activation=") == 1
    # The user expects nothing else of a SimpleRNN.
    assert "SimpleRNN 'simple' runs" not in done.stderr


def test_a_report_is_printed_when_the_program_exits(tmp_path):
    text = """
        import os, sys, keras
        print(keras.layers.GRU(2, name="only")(keras.ops.ones((1, 3, 2))).shape)
        if os.fork() == 0:
            sys.exit()  # A child has nothing to report.
        os.wait()
        sys.exit(7)
    """
    done = run_with_report(tmp_path, text)
    assert done.returncode == 7 and done.stdout == "(1, 2)\n"
    assert list(report_rows(done.stderr)) == ["only", "(eager, any layer)"]
    assert done.stderr.count("tf_ecornn: recurrent layers") == 1


def test_a_report_of_nothing(tmp_path):
    done = run_with_report(tmp_path, "print('no Keras')")
    assert done.returncode == 0 and done.stdout == "no Keras\n"
    assert done.stderr == "\ntf_ecornn: the program has not imported Keras\n"
