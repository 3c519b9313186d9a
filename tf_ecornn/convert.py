"""Keras models with stock layers into models with fused layers, and back."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable
from typing import Any

import keras

from tf_ecornn import fused_cell
from tf_ecornn.cells import GRUCell, LSTMCell
from tf_ecornn.layers import GRU, LSTM, FusedRNN
from tf_ecornn.model_copy import ModelCopy
from tf_ecornn.rnn import RNN

_Layer = keras.layers.Layer
_OURS: dict[type[_Layer], type[_Layer]] = {
    keras.layers.LSTM: LSTM,
    keras.layers.GRU: GRU,
    keras.layers.LSTMCell: LSTMCell,
    keras.layers.GRUCell: GRUCell,
    keras.layers.RNN: RNN,
}
_STOCK = {ours: stock for stock, ours in _OURS.items()}
# These make their cell themselves, of the stock class.
_WITH_OWN_CELL = (keras.layers.LSTM, keras.layers.GRU)


def from_keras(model: _Layer, *, in_place: bool = False) -> _Layer:
    """A copy of a Keras model with `tf_ecornn` layers in place of the stock ones.

    Each `keras.layers.LSTM`, `GRU`, `LSTMCell`, `GRUCell`, and `RNN` around such
    cells, becomes ours, in nested models, wrappers and stacks too. The copy has the
    model's names, weights, states, seeds, trainable flags and dtype policies, and
    where the model is compiled its loss, metrics and optimizer with its state:
    training goes on as it would have. What is shared in the model is shared in the
    copy; the model itself is left alone.

    Sequential and functional models are put together again from their layers.
    Layers and models of other classes are copied as Keras saves them, through
    `get_config`; recurrent layers that they made are converted as well. What was set
    on such objects otherwise does not come along. Subclasses of the stock layers stay
    what they are.

    Args:
        model: a Keras model or layer, built or not.
        in_place: converts the model itself, which must be built, and returns it. This
            serves models that can not be made again from a configuration.

    Returns:
        The converted copy, or with `in_place` the model.

    Raises:
        TypeError: `model` is no Keras layer.
        ValueError: a layer of it can not be copied; the message names it and what
            to do.

    Example:

    >>> model = tf_ecornn.from_keras(keras.saving.load_model("stock.keras"))
    >>> print(tf_ecornn.explain(model))
    layer  class           fused  why not
    lstm   tf_ecornn.LSTM  yes
    """
    return _converted(model, _our_class, in_place)


def to_keras(model: _Layer, *, in_place: bool = False) -> _Layer:
    """A copy of a model with stock Keras layers in place of those of `tf_ecornn`.

    The reverse of `from_keras`, with the same rules. What is saved or exported from
    the copy needs no `tf_ecornn` where it is loaded; it is also the way to TensorFlow
    Lite and ONNX.

    Args:
        model: a Keras model or layer, built or not.
        in_place: converts the model itself, which must be built, and returns it.

    Returns:
        The converted copy, or with `in_place` the model. Nothing in it is of this
        package.

    Raises:
        TypeError: `model` is no Keras layer.
        ValueError: a layer of it can not be copied, is of a class derived from one of
            ours, or calls `tf_ecornn` from a function of its own.

    Example:

    >>> tf_ecornn.to_keras(model).export("served_anywhere")
    """
    return _converted(model, _stock_class, in_place)


def _converted(
    model: Any, class_for: Callable[[_Layer], type[_Layer]], in_place: bool
) -> _Layer:
    if not isinstance(model, _Layer):
        raise TypeError(
            f"`model` must be a Keras model or layer. Received: model={model!r}"
        )
    layers = model._flatten_layers()
    kept = {id(layer.cell) for layer in layers if isinstance(layer, _WITH_OWN_CELL)}

    def class_of(layer):
        return type(layer) if id(layer) in kept else class_for(layer)

    copier = ModelCopy(class_of)
    if not in_place:
        return copier.copy(model)
    exchanged = [(x, class_of(x)) for x in layers if class_of(x) is not type(x)]
    unbuilt = [layer.name for layer, _ in exchanged if not layer.built]
    if unbuilt:
        raise ValueError(
            "`in_place=True` needs a model that is built. Call it on some data "
            f"first. Received a model with unbuilt layers {unbuilt}"
        )
    for layer, new_class in exchanged:
        copier.exchange_class(layer, new_class)
    for layer in layers:
        if isinstance(layer, keras.Model):
            # Traced with the layers as they were.
            layer.train_function = layer.test_function = layer.predict_function = None
    return model


def _our_class(layer: _Layer) -> type[_Layer]:
    if type(layer) is keras.layers.RNN and not _is_fusible(layer.cell):
        return type(layer)
    return _OURS.get(type(layer), type(layer))


def _is_fusible(cell: Any) -> bool:
    cells = cell.cells if isinstance(cell, keras.layers.StackedRNNCells) else [cell]
    return all(fused_cell.kind_of(inner) is not None for inner in cells)


def _stock_class(layer: _Layer) -> type[_Layer]:
    stock = _STOCK.get(type(layer))
    if stock is not None:
        return stock
    if _is_ours(layer):
        raise ValueError(
            f"Layer '{layer.name}' is a {type(layer).__name__}, a class derived from a "
            "tf_ecornn layer, for which there is no stock class. Derive it from the "
            "keras layer and load the weights, which have the same file format."
        )
    _refuse_own_calls(layer)
    return type(layer)


def _is_ours(value: Any) -> bool:
    return isinstance(value, (FusedRNN, fused_cell.FusedCell))


def _refuse_own_calls(layer: _Layer) -> None:
    """Code of the user's own may call us where no configuration shows it."""
    is_lambda = isinstance(layer, keras.layers.Lambda)
    function = inspect.unwrap(layer.function if is_lambda else type(layer).call)
    if not inspect.isfunction(function) or function.__module__.startswith("keras."):
        return
    for name, value in _names_used(function).items():
        layers = value._flatten_layers() if isinstance(value, _Layer) else []
        module = value.__name__ if inspect.ismodule(value) else _module_of(value)
        if module.split(".")[0] == "tf_ecornn" or any(map(_is_ours, layers)):
            raise ValueError(
                f"A function of layer '{layer.name}' ({type(layer).__name__}) uses "
                f"`{name}`, which is of tf_ecornn or holds layers of it. Make it a "
                "layer that the model shows, or write it with Keras's own."
            )


def _names_used(function: types.FunctionType) -> dict[str, Any]:
    """The globals and the variables of outer functions that a function reads."""
    code = function.__code__
    loaded = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    found = {k: v for k, v in function.__globals__.items() if k in loaded}
    cells = function.__closure__ or ()
    return found | dict(zip(code.co_freevars, (c.cell_contents for c in cells)))


def _module_of(value: Any) -> str:
    return getattr(value, "__module__", None) or ""
