"""Parts of the script as processes that are ended when their time is over."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from gpu import results

PART = Path(__file__).with_name("part.py")

_started: list[Part] = []


def end_all() -> None:
    """Ends what still runs."""
    for part in _started:
        part.end()


class Part:
    """A running part.py.

    Args:
        name: "checks" or "timing".
        file: where it writes its results.
        arguments: more of its own.
        before: a program that runs it, with its arguments.
        log: a file for what it says; without, it says it here.
        environment: variables of its own.
    """

    def __init__(
        self,
        name: str,
        file: Path,
        arguments: list[str],
        before: tuple[str, ...] = (),
        log: Path | None = None,
        environment: dict[str, str] | None = None,
    ):
        self.log = log
        self._file = file
        self._began = time.monotonic()
        words = [*before, sys.executable, str(PART), name, "--file", str(file)]
        stream = log.open("w") if log else None
        self._process = subprocess.Popen(
            [*words, *arguments],
            stdout=stream,
            stderr=subprocess.STDOUT if stream else None,
            env={**os.environ, **(environment or {})},
            # A group of their own, so that a sanitizer and what it runs end together.
            preexec_fn=os.setpgrp,
        )
        _started.append(self)
        if stream:
            stream.close()

    def wait(self, seconds: float) -> dict:
        """Its results: `exit` is None where it had to be ended."""
        try:
            code = self._process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            self.end()
            code = None
        return results.load(self._file) | {
            "exit": code,
            "wall_seconds": time.monotonic() - self._began,
        }

    def end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, 9)
            # One that waits for a GPU may take its time to go.
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                pass
