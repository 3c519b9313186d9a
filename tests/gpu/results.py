"""The results of a part of the script, on disk while it still runs.

What a GPU never finishes cannot be waited for: the part is then ended from outside,
and what it had found, and where it stood, is in its files.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

_EVERY_S = 0.5


def _running(path: Path) -> Path:
    return path.with_suffix(".running")


class Results:
    """A dict that is written to `path` now and then, and at the end."""

    def __init__(self, path: Path):
        self.data: dict = {"finished": False}
        self._path = path
        self._saved = 0.0

    def now(self, what: str) -> None:
        """Says what begins."""
        _running(self._path).write_text(what)
        if time.monotonic() - self._saved > _EVERY_S:
            self._save()

    def finish(self) -> None:
        self.data["finished"] = True
        self._save()

    def _save(self) -> None:
        temporary = self._path.with_suffix(".part")
        temporary.write_text(json.dumps(self.data))
        os.replace(temporary, self._path)
        self._saved = time.monotonic()


def load(path: Path) -> dict:
    """What a part found. One that ended early has `running`: what it was at."""
    data = json.loads(path.read_text()) if path.exists() else {"finished": False}
    if not data["finished"]:
        running = _running(path)
        data["running"] = running.read_text() if running.exists() else "its start"
    return data
