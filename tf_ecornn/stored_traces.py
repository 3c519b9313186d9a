"""Tells functions that are traced to be stored from those that are traced to run.

What is stored, a SavedModel or what a converter makes of a function, must run where
tf_ecornn is not installed. All exporters and converters of Keras and TensorFlow trace
by `tf.function`'s `get_concrete_function`, or while a SavedModel is written: there
`traces_are_stored()` is true. Such traces and others of the same `tf.function` never
stand in for each other.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import (
    function_context,
    polymorphic_function,
)
from tensorflow.python.saved_model import save

# How many calls that trace to store are under way, thread by thread.
_calls = threading.local()


def traces_are_stored() -> bool:
    """Whether what is traced now will run elsewhere."""
    return getattr(_calls, "depth", 0) > 0


def watch_stored_traces() -> None:
    """Makes `traces_are_stored()` tell, from here on."""
    function = polymorphic_function.Function
    function.get_concrete_function = _watched_trace(function.get_concrete_function)
    save.save_and_return_nodes = _watched_save(save.save_and_return_nodes)
    function_context.make_function_context = _with_key_of_its_own(
        function_context.make_function_context
    )


@contextlib.contextmanager
def _storing() -> Iterator[None]:
    _calls.depth = getattr(_calls, "depth", 0) + 1
    try:
        yield
    finally:
        _calls.depth -= 1


def _watched_trace(stock: Callable) -> Callable:
    @functools.wraps(stock)
    def get_concrete_function(self, *args, **kwargs):
        # Inside a function TensorFlow itself calls it, to transform what will run.
        if tf.inside_function():
            return stock(self, *args, **kwargs)
        with _storing():
            return stock(self, *args, **kwargs)

    return get_concrete_function


def _with_key_of_its_own(stock: Callable) -> Callable:
    @functools.wraps(stock)
    def make_function_context(*args, **kwargs):
        # A part of the key under which a `tf.function` keeps a trace.
        made = stock(*args, **kwargs)
        if traces_are_stored():
            return made._replace(context=(made.context, "stored"))
        return made

    return make_function_context


def _watched_save(stock: Callable) -> Callable:
    @functools.wraps(stock)
    def save_and_return_nodes(obj, export_dir, *args, **kwargs):
        with _storing():
            result = stock(obj, export_dir, *args, **kwargs)
        # A concrete function that the program got otherwise is stored as it is.
        files = Path(str(export_dir)).glob("saved_model*")
        if any(b"EcoRNN>" in file.read_bytes() for file in files):
            warnings.warn(
                f"tf_ecornn: the SavedModel in {export_dir} holds fused ops: it needs "
                "`import tf_ecornn` before it is loaded.",
                stacklevel=3,
            )
        return result

    return save_and_return_nodes
