"""Where contenders run: TensorFlow here, others in processes of their own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import machine
from benchmarks import contenders
from benchmarks.contenders import Contender
from benchmarks.memory import ALLOCATORS, Peak
from benchmarks.remote import RemoteWorker
from benchmarks.worker import Worker
from benchmarks.works import Case, Work


class Stage:
    """Starts workers when they are first needed, and ends them all.

    Args:
        threads: of each network; 0: what TensorFlow chooses, and a thread for each
            CPU under PyTorch.
        torch_python: the interpreter of an environment with PyTorch.
    """

    def __init__(self, threads: int, torch_python: Path) -> None:
        self.threads = threads
        self.torch_python = torch_python
        self.workers: dict[tuple, Worker | RemoteWorker] = {}
        self._worker(contenders.find(contenders.OURS))  # sets TensorFlow's threads

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()

    def missing(self, contender: Contender) -> str | None:
        """Why a contender can't take part in anything; None if it can."""
        if contender.is_torch and not self.torch_python.exists():
            return f"there is no {self.torch_python}"
        try:
            if contender.variant == "ecornn":
                importlib.import_module("tf_ecornn")
            if contender.is_torch:
                self._worker(contender).versions()
        except (ImportError, OSError, RuntimeError) as error:
            return str(error)
        return None

    def start(
        self, contender: Contender, case: Case
    ) -> tuple[float, Callable[[int], float]]:
        """Its first result, and a function: seconds of so many further steps."""
        worker, variant = self._worker(contender), contender.variant
        first = worker.start(variant, case.work.name, case.kind)["first"]
        return first, lambda steps: worker.time(variant, steps)["seconds"]

    def stop(self) -> None:
        """Has all workers forget the networks of a case; leaves out dead ones."""
        for key, worker in list(self.workers.items()):
            if worker.alive():
                worker.stop()
            else:
                worker.close()
                del self.workers[key]

    def peak(self, contender: Contender, work: Work, allocator: str) -> Peak:
        """Peak training memory, in a new process, under one of ALLOCATORS."""
        chosen = ALLOCATORS[allocator]
        worker = self._process(contender, chosen.environment)
        try:
            found = worker.memory(contender.variant, work.name, chosen.steps)
        finally:
            worker.close()
        return Peak(**found)

    def versions(self) -> dict[str, str]:
        """Of the libraries behind all workers."""
        found: dict[str, str] = {}
        for worker in self.workers.values():
            found |= worker.versions()
        return found

    def _worker(self, contender: Contender) -> Worker | RemoteWorker:
        environment = tuple(sorted(contender.environment.items()))
        key = (contender.backend, contender.threads, environment)
        if key not in self.workers:
            if contender.own_process:
                self.workers[key] = self._process(contender, {})
            else:
                self.workers[key] = Worker(contender.backend, self.threads)
        return self.workers[key]

    def _process(
        self, contender: Contender, environment: dict[str, str]
    ) -> RemoteWorker:
        python = self.torch_python if contender.is_torch else sys.executable
        threads = self.threads if contender.threads is None else contender.threads
        if contender.is_torch:
            threads = threads or machine.cpu_count()
        return RemoteWorker(
            python, contender.backend, threads, contender.environment | environment
        )
