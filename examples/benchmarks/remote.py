"""The other side of worker.py: a worker in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TIMEOUT_S = 600  # for one reply
# Milliseconds for which LLVM's OpenMP threads wait in a loop for more work: see
# worker.SETTLE_S. What the user has set comes first.
BLOCKTIME = {"KMP_BLOCKTIME": "5"}


class RemoteWorker:
    """Has the methods of `worker.Worker`.

    Args:
        python: the interpreter.
        backend: the module of its networks, "keras_net" or "torch_net".
        threads: how many a network uses.
        environment: variables for the process.

    Raises:
        RuntimeError: the process ended, took too long, or told of an error; by any
            method.
    """

    def __init__(
        self,
        python: str | Path,
        backend: str,
        threads: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # The process must find this package wherever it was started from.
        paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        variables = BLOCKTIME | dict(os.environ) | dict(environment or {})
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        self.what = f"{backend} in {python}"
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", backend, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=variables,
        )

    def start(self, variant: str, work: str, kind: str) -> dict[str, float]:
        return self.ask("start", variant=variant, work=work, kind=kind)

    def time(self, variant: str, steps: int) -> dict[str, float]:
        return self.ask("time", variant=variant, steps=steps)

    def memory(self, variant: str, work: str, steps: int) -> dict[str, Any]:
        return self.ask("memory", variant=variant, work=work, steps=steps)

    def versions(self) -> dict[str, str]:
        return self.ask("versions")

    def stop(self) -> dict[str, Any]:
        return self.ask("stop")

    def alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, do: str, **arguments: object) -> dict[str, Any]:
        """Sends a request and waits for the reply."""
        limit = threading.Timer(TIMEOUT_S, self.process.kill)
        limit.start()
        try:
            print(json.dumps({"do": do, **arguments}), file=self.process.stdin)
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            limit.cancel()
        if not line:
            raise RuntimeError(f"{self.what} ended: {self._last_words()}")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(f"{self.what}: {reply['error']}")
        return reply

    def _last_words(self) -> str:
        status = self.process.wait()
        self.log.seek(0)
        lines = self.log.read().strip().splitlines()[-5:]
        return "\n".join([f"exit status {status}", *lines])

    def close(self) -> None:
        """Ends the process."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended by itself
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()
