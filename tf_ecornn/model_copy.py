"""Copies a Keras model layer by layer, with other classes in the place of some.

Keras's `clone_model` gives new weights, loses the optimizer's state, and copies the
loss and Python functions through their serialised form, which fails for what nobody
registered. Here the live objects are at hand, so functions are handed over as they
are, and weights, states and the optimizer's variables are copied.
"""

from __future__ import annotations

import contextlib
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.src.models.functional import Functional

_Layer, _RNN = keras.layers.Layer, keras.layers.RNN
_LIBRARIES = ("builtins", "keras", "numpy", "tensorflow", "tf_ecornn")
# Attributes that the stock recurrent layers' configurations lack. The last two
# decide how many dropout masks are drawn.
_UNSAVED = {"use_cudnn", "implementation", "dropout_mask_count"}
_WITH_UNSAVED = (
    keras.layers.LSTM,
    keras.layers.GRU,
    keras.layers.LSTMCell,
    keras.layers.GRUCell,
)


class ModelCopy:
    """One copy of a model or layer; layers that it shares are shared in the copy.

    Args:
        class_of: the class that a layer has in the copy. It takes the arguments of
            the layer's own class and builds the same variables.
    """

    def __init__(self, class_of: Callable[[_Layer], type[_Layer]]):
        self._class_of = class_of
        self._copies: dict[int, Any] = {}
        self._optimizers: dict[int, keras.optimizers.Optimizer] = {}

    def copy(self, model: _Layer) -> _Layer:
        """The copy, with weights, states and, where compiled, the optimizer.

        Raises:
            ValueError: a layer can not be made again from its configuration, or
                what is made has other layers or weights.
        """
        copied = self._copy_of(model)
        pairs = list(self._pairs(model, copied, set()))
        variables = _paired_variables(model, copied)
        for old, new in pairs:
            _copy_settings(old, new)
        for old, new in variables:
            new.assign(old)
            new.trainable = old.trainable
        for old, new in pairs:
            _copy_own_state(old, new)
        counterparts = {id(old): new for old, new in variables}
        for old, new in pairs:
            if isinstance(old, keras.Model) and old.compiled:
                self._compile(old, new, counterparts)
        return copied

    def exchange_class(self, layer: _Layer, new_class: type[_Layer]) -> None:
        """Makes a built layer one of another class, with the same attributes.

        Raises:
            ValueError: the layer is not built; Keras bound the old class's `build`.
        """
        if not layer.built:
            raise ValueError(
                f"Layer '{layer.name}' has no weights yet and its class can not be "
                "changed. Call the model on some data first."
            )
        # The one attribute whose value depends on the class.
        supports_jit = self._make_from_config(layer, new_class).supports_jit
        layer.__class__ = new_class
        layer.supports_jit = supports_jit

    # --- The layers ---------------------------------------------------------

    def _copy_of(self, operation: Any) -> Any:
        """The copy of a layer or of an operation of a functional model."""
        if id(operation) not in self._copies:
            self._copies[id(operation)] = self._make(operation)
        return self._copies[id(operation)]

    def _make(self, old: Any) -> Any:
        if isinstance(old, (keras.Sequential, Functional)) and not _own_init(old):
            new = self._make_container(old)
        elif type(old) is keras.layers.Lambda:
            # Its configuration would drop the globals of the functions.
            new = keras.layers.Lambda(
                old.function,
                output_shape=old._output_shape,
                mask=old.mask,
                arguments=old.arguments,
                **_Layer.get_config(old),
            )
        elif isinstance(old, _Layer):
            new = self._make_from_config(old, self._class_of(old))
        else:
            new = type(old).from_config(old.get_config())
        if isinstance(old, keras.Model):
            self._attach(old, new)
        return new

    def _make_container(self, old: keras.Model) -> keras.Model:
        """A Sequential or functional model around the copies of its layers."""
        settings = {"name": old.name, "trainable": old.trainable}
        if isinstance(old, keras.Sequential):
            new = type(old)([self._copy_of(x) for x in _sublayers(old)], **settings)
        else:
            inputs = keras.tree.map_structure(
                lambda tensor: self._copy_of(tensor._keras_history.operation).output,
                old.input,
            )
            outputs = old._run_through_graph(inputs, operation_fn=self._copy_of)
            new = type(old)(inputs, outputs, **settings)
        # The constructor takes the global one.
        new.dtype_policy = old.dtype_policy
        return new

    def _make_from_config(self, old: _Layer, new_class: type[_Layer]) -> _Layer:
        """Any other layer, copies of its layers where its configuration names them."""
        objects: dict[str, Any] = {}
        with _explained(f"'{old.name}' ({type(old).__name__})", IN_PLACE_ADVICE):
            config = old.get_config()
        config = self._with_copies(config, old, objects)
        if _is_keras(type(old)):
            config = _with_live_objects(config, old)
        else:
            objects |= _custom_objects(old)
        with _explained(f"'{old.name}' ({type(old).__name__})", IN_PLACE_ADVICE):
            with keras.saving.custom_object_scope(objects):
                return new_class.from_config(config)

    def _with_copies(self, config: Any, old: _Layer, objects: dict[str, Any]) -> Any:
        """The configuration with copies for the layers that `old` holds.

        `objects` receives them under the names that the configuration then has.
        """
        held: dict[tuple, list[_Layer]] = {}
        for layer in _sublayers(old):
            held.setdefault((type(layer).__name__, layer.name), []).append(layer)

        def replaced(value):
            if isinstance(value, (list, tuple)):
                return type(value)([replaced(v) for v in value])
            if not isinstance(value, dict):
                return value
            inner = value.get("config")
            if "class_name" not in value or not isinstance(inner, dict):
                return {k: replaced(v) for k, v in value.items()}
            layers = held.get((value["class_name"], inner.get("name")))
            if not layers:
                return value
            # One layer may be named twice; several of one name come in their order.
            layer = layers.pop(0) if len(layers) > 1 else layers[0]
            name = f"tf_ecornn>copy of {id(layer)}"
            objects[name] = _Ready(self._copy_of(layer))
            entry = {"module": value["module"], "class_name": value["class_name"]}
            return {**entry, "config": {}, "registered_name": name}

        return replaced(config)

    def _attach(self, old: keras.Model, new: keras.Model) -> None:
        """Layers that were made attributes of the model object."""
        for name, value in list(vars(old).items()):
            if name not in vars(new) and _holds_layers(value):
                setattr(new, name, self._with_copied_layers(value))

    def _with_copied_layers(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._with_copied_layers(v) for v in value]
        if isinstance(value, dict):
            return {k: self._with_copied_layers(v) for k, v in value.items()}
        return self._copy_of(value) if isinstance(value, _Layer) else value

    def _pairs(
        self, old: _Layer, new: _Layer, seen: set[int]
    ) -> Iterator[tuple[_Layer, _Layer]]:
        """Each layer with its copy, which is built here where nothing built it."""
        if id(old) in seen:
            return
        seen.add(id(old))
        if old.built and not new.built:
            new.build_from_config(old.get_build_config())
        wanted = self._class_of(old)
        if type(new) is type(old) is not wanted:
            # Made by the code of a class that is not ours to change.
            self.exchange_class(new, wanted)
        of_old, of_new = _sublayers(old), _sublayers(new)
        if type(new) is not wanted or len(of_old) != len(of_new):
            raise ValueError(
                f"'{old.name}' ({type(old).__name__}) holds {_named(of_old)}, and "
                f"made again from its configuration {type(new).__name__} with "
                f"{_named(of_new)}. {IN_PLACE_ADVICE}"
            )
        yield old, new
        for inner in zip(of_old, of_new, strict=True):
            yield from self._pairs(*inner, seen)

    # --- What it was compiled with ------------------------------------------

    def _compile(self, old: keras.Model, new: keras.Model, counterparts) -> None:
        if type(old).compile is not keras.Model.compile:
            warnings.warn(
                f"Model '{old.name}' ({type(old).__name__}) has a `compile()` of its "
                "own: call it on the converted model.",
                stacklevel=5,
            )
            return
        arguments = dict(old._compile_config.config)
        for name in ("metrics", "weighted_metrics"):
            arguments[name] = keras.tree.map_structure(_new_metric, arguments[name])
        # The optimizer may be wrapped already, or not be meant to be.
        arguments["optimizer"] = self._optimizer_of(old.optimizer, counterparts)
        new.compile(**arguments, auto_scale_loss=False)

    def _optimizer_of(self, old, counterparts):
        if old is None:
            return None
        if id(old) not in self._optimizers:
            new = _made_again(old, "optimizer")
            if old.built:
                new.build([counterparts[id(v)] for v in old._trainable_variables])
            for mine, theirs in zip(new.variables, old.variables, strict=True):
                mine.assign(theirs)
            self._optimizers[id(old)] = new
        return self._optimizers[id(old)]


IN_PLACE_ADVICE = (
    "Convert the model itself with `in_place=True`; or write its class with the "
    "other layers and load the weights, which have the same file format."
)


class _Ready:
    """In the place of a class: its `from_config` gives a layer that is there."""

    def __init__(self, layer: _Layer):
        self._layer = layer

    def from_config(self, config: dict) -> _Layer:
        return self._layer


def _sublayers(layer: _Layer) -> list[_Layer]:
    return layer._flatten_layers(include_self=False, recursive=False)


def _holds_layers(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(map(_holds_layers, value))
    return isinstance(value, _Layer)


def _named(layers: list[_Layer]) -> str:
    return f"[{', '.join(type(x).__name__ for x in layers)}]"


def _is_keras(value: Any) -> bool:
    """Whether a class or function is of Keras or of this package."""
    return value.__module__.split(".")[0] in ("keras", "tf_ecornn")


def _own_init(model: keras.Model) -> bool:
    """Whether a class of the user's own says how the model is constructed."""
    return not _is_keras(next(c for c in type(model).__mro__ if "__init__" in vars(c)))


def _with_live_objects(config: dict, layer: _Layer) -> dict:
    """The layer's own functions and objects, in place of a description of them.

    Only Keras's layers are known to take both. It matters for what nobody
    registered, for lambdas, and for functions that use the names around them.
    """

    def live(name, value):
        found = getattr(layer, name, None)
        if isinstance(found, types.FunctionType):
            return value if _is_keras(found) else found
        if _is_keras(type(found)) or not isinstance(value, dict):
            return value
        return found if value.get("class_name") == type(found).__name__ else value

    return {name: live(name, value) for name, value in config.items()}


def _custom_objects(holder: Any) -> dict[str, Any]:
    """The classes and functions that a configuration of `holder` may name."""
    held = [holder, *vars(holder).values()]
    if isinstance(holder, _Layer):
        held += holder._flatten_layers()
    named = [x if isinstance(x, types.FunctionType) else type(x) for x in held]
    own = [x for x in named if x.__module__.split(".")[0] not in _LIBRARIES]
    return {keras.saving.get_registered_name(x): x for x in own}


def _paired_variables(model: _Layer, copied: _Layer) -> list[tuple]:
    """Weights, states and seeds of both."""
    old, new = model.variables, copied.variables
    if [v.shape for v in old] != [v.shape for v in new]:
        raise ValueError(
            f"'{model.name}' has {len(old)} variables, and made again from its "
            f"configuration {len(new)}, or of other shapes. {IN_PLACE_ADVICE}"
        )
    return list(zip(old, new, strict=True))


def _copy_settings(old: _Layer, new: _Layer) -> None:
    # The property would set the layers inside too, which have their own.
    new._trainable = old._trainable
    # Some of Keras's exports want a model that was called once.
    new._called = old._called
    if isinstance(old, _WITH_UNSAVED):
        for name in vars(old).keys() & _UNSAVED:
            setattr(new, name, getattr(old, name))


def _copy_own_state(old: _Layer, new: _Layer) -> None:
    """What a layer keeps beside its variables, or makes of them."""
    if type(old).load_own_variables is not _Layer.load_own_variables:
        store: dict[str, Any] = {}
        old.save_own_variables(store)
        new.load_own_variables(store)
    if hasattr(old, "save_assets"):
        with tempfile.TemporaryDirectory() as folder:
            old.save_assets(folder)
            new.load_assets(folder)
    if isinstance(old, _RNN) and old.states is not None:
        flat = (keras.tree.flatten(layer.states) for layer in (old, new))
        for theirs, mine in zip(*flat, strict=True):
            mine.assign(theirs)


def _new_metric(metric: Any) -> Any:
    """A metric has a state: each model has its own."""
    if not isinstance(metric, keras.metrics.Metric):
        return metric
    return _made_again(metric, "metric")


def _made_again(old: Any, kind: str) -> Any:
    """A Keras object from the configuration of another one."""
    with _explained(
        f"The {kind} {type(old).__name__}",
        "Convert the model itself with `in_place=True`, or one that is not compiled.",
    ):
        config = old.get_config()
        with keras.saving.custom_object_scope(_custom_objects(old)):
            return type(old).from_config(config)


@contextlib.contextmanager
def _explained(what: str, advice: str) -> Iterator[None]:
    """Says of what Keras's error comes, and what to do."""
    try:
        yield
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ValueError(
            f"{what} can not be made again from its configuration: {error}\n{advice}"
        ) from error
