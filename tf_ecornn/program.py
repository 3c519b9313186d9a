"""Runs a Python program as `python` would, and acts when it imports a module.

Imports neither TensorFlow nor Keras: the program does, in the environment that it
may set up for them.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader
from pathlib import Path


class ProgramError(Exception):
    """The program is not there; says which."""


@dataclass
class Program:
    """A program that is about to run as `__main__`.

    Attributes:
        main: the module it runs in.
        code: gives what is run; raises SyntaxError.
        argv: its `sys.argv`.
        folder: what takes the place of the first entry of `sys.path`, or None.
    """

    main: types.ModuleType
    code: Callable[[], types.CodeType]
    argv: list[str]
    folder: str | None = None

    def run(self) -> None:
        """Runs it up to its end, or to the exception that it lets out.

        The traceback of what ends the process is shown from the program on.
        """
        sys.argv[:] = self.argv
        if self.folder is not None:
            sys.path[0] = self.folder
        # It stays: threads, exit handlers and pickles of the program look there.
        sys.modules["__main__"] = self.main
        try:
            exec(self.code(), self.main.__dict__)
        except BaseException:
            _show_tracebacks_from(self.main)
            raise


def find_script(path: str, arguments: Sequence[str]) -> Program:
    """What `python path arguments...` runs.

    Raises:
        ProgramError: the file cannot be read.
    """
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        raise ProgramError(f"can't open file {path!r}: {error.strerror}") from None
    main = types.ModuleType("__main__")
    main.__file__, main.__cached__ = os.path.abspath(path), None
    main.__loader__ = SourceFileLoader("__main__", main.__file__)
    safe = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
    return Program(
        main,
        lambda: compile(source, main.__file__, "exec", dont_inherit=True),
        [path, *arguments],
        None if safe else os.path.dirname(os.path.realpath(path)),
    )


def find_module(name: str, arguments: Sequence[str]) -> Program:
    """What `python -m name arguments...` runs: a module, or a package's `__main__`.

    Raises:
        ProgramError: there is no such module.
    """
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise ProgramError(f"can't find module {name!r}: {error}") from None
    if spec is None or not spec.has_location or _is_compiled(spec):
        raise ProgramError(f"there is no module {name!r} to run")
    main = types.ModuleType("__main__")
    main.__spec__, main.__loader__ = spec, spec.loader
    main.__file__, main.__cached__ = spec.origin, spec.cached
    main.__package__ = spec.parent
    return Program(main, lambda: spec.loader.get_code(name), [spec.origin, *arguments])


def _is_compiled(spec: ModuleSpec) -> bool:
    return isinstance(spec.loader, ExtensionFileLoader)


def _show_tracebacks_from(main: types.ModuleType) -> None:
    """What ends the process is shown without the frames that ran the program."""
    show = sys.excepthook

    def excepthook(kind, error, traceback):
        while traceback and traceback.tb_frame.f_globals is not main.__dict__:
            traceback = traceback.tb_next
        show(kind, error.with_traceback(traceback), traceback)

    sys.excepthook = excepthook


class _Watch(importlib.abc.MetaPathFinder):
    """Acts after a module has been imported, once."""

    def __init__(self, name: str, action: Callable[[], None]):
        self._name = name
        self._action = action

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        if name != self._name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = self._followed(spec.loader.exec_module)
        return spec

    def _followed(self, exec_module):
        def run_and_act(module):
            exec_module(module)
            if self in sys.meta_path:
                self._action()
                sys.meta_path.remove(self)

        return run_and_act


def after_import(name: str, action: Callable[[], None]) -> None:
    """Calls `action` once: now if the module is there, or right after its import."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Watch(name, action))
