"""What only a program that looks behind the switch sees; run by `-m tf_ecornn`."""

import sys
import warnings

import keras
import numpy as np
import tensorflow as tf

import tf_ecornn
from tf_ecornn import _library, fused_cell, switch

folder = sys.argv[1]
x = tf.constant(np.random.default_rng(1).normal(size=(3, 4, 2)), tf.float32)
model = keras.Sequential(
    [
        keras.Input((4, 2)),
        keras.layers.LSTM(3, return_sequences=True, name="lstm"),
        keras.layers.SimpleRNN(3, name="simple"),
    ]
)
expected = model(x)


def reasons_in(call):
    """What the layers say while it runs; and that it returns the right values."""
    told = {}
    observer = lambda layer, reason: told.update({layer.name: reason})  # noqa: E731
    fused_cell.observers.append(observer)
    np.testing.assert_allclose(call(), expected, rtol=0, atol=1e-5)
    fused_cell.observers.remove(observer)
    return told


def test_switching_on_again_changes_nothing():
    now = keras.layers.LSTM.inner_loop
    switch.switch_on()
    assert keras.layers.LSTM.inner_loop is now


def test_explanation():
    print(tf_ecornn.explain(model))
    lstm, simple = tf_ecornn.explain(model)
    assert (lstm.kind, lstm.fused, lstm.reason) == ("keras.LSTM", True, "")
    assert not simple.fused and "SimpleRNNCell is no cell" in simple.reason


def test_our_own_layers_say_what_they_always_say():
    own = tf_ecornn.LSTM(3, activation=lambda v: v)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        own(x)
    told = [str(w.message) for w in caught if "fused functions" in str(w.message)]
    assert told[0].startswith("tf_ecornn.LSTM (layer"), told
    cell = tf_ecornn.LSTMCell(3)
    before = _library.calls()
    cell(x[:, 0], cell.get_initial_state(3))
    assert _library.calls() == before + 1


def test_xla():
    compiled = tf.function(lambda: model(x), jit_compile=True)
    told = reasons_in(compiled)["lstm"]
    assert (told is None) == fused_cell.ops_support_jit(), told
    # A build without kernels for XLA.
    _library.has_xla = lambda: False
    compiled = tf.function(lambda: model(x), jit_compile=True)
    with warnings.catch_warnings(record=True):
        assert "compiled by XLA" in reasons_in(compiled)["lstm"]
    assert reasons_in(tf.function(lambda: model(x)))["lstm"] is None


def test_a_fused_trace_that_is_stored_all_the_same():
    function = tf.function(model)
    function(x)
    (fused,) = function._list_all_concrete_functions()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tf.saved_model.save(model, f"{folder}/fused", signatures=fused)
        tf.saved_model.save(model, f"{folder}/stock")
    told = [str(w.message) for w in caught if "holds fused ops" in str(w.message)]
    assert len(told) == 1 and f"{folder}/fused" in told[0], told


def test_traces_inside_a_function_run_here():
    """TensorFlow calls `get_concrete_function` there for its own purposes."""

    @tf.function
    def outer():
        return tf.function(model).get_concrete_function(x)(x)

    assert reasons_in(outer)["lstm"] is None


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(name, "passed")
