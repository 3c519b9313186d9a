"""What the installed TensorFlow says about building against it."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from buildtools.compiler import refuse

# Also in pyproject.toml's extras; a test compares the two.
OLDEST = (2, 18)
NEWEST = (2, 21)

_ASK = """
import json
import tensorflow as tf
print(json.dumps({
    "version": tf.__version__,
    "compile_flags": tf.sysconfig.get_compile_flags(),
    "link_flags": tf.sysconfig.get_link_flags(),
}))
"""


@dataclasses.dataclass(frozen=True)
class TensorFlow:
    version: str
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]

    @property
    def minor(self) -> tuple[int, int]:
        return _minor(self.version)

    @property
    def include(self) -> str:
        return next(flag[2:] for flag in self.compile_flags if flag.startswith("-I"))


def _locate() -> Path:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        refuse(
            "building needs the TensorFlow that will run it, and this environment "
            "has none; install it (`pip install tensorflow-cpu`, or "
            "`tensorflow[and-cuda]`), then `pip install --no-build-isolation .` "
            "(pip's build isolation hides an installed TensorFlow)."
        )
    return Path(spec.origin)


def _ask() -> dict:
    result = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True
    )
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        refuse(f"`import tensorflow` fails in this environment: {last}")
    return json.loads(result.stdout.strip().splitlines()[-1])


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _check_version(version: str) -> None:
    if not OLDEST <= _minor(version) <= NEWEST:
        oldest, newest = (".".join(map(str, v)) for v in (OLDEST, NEWEST))
        refuse(
            f"TensorFlow {oldest} to {newest} is supported and {version} is "
            f"installed; `pip install 'tensorflow-cpu>={oldest},"
            f"<{NEWEST[0]}.{NEWEST[1] + 1}'` brings one that fits."
        )


def find(cache: Path) -> TensorFlow:
    """Asks the TensorFlow of this Python; `cache` saves its import next time."""
    origin = _locate()
    library = origin.with_name("libtensorflow_framework.so.2")
    stamps = [p.stat().st_mtime_ns for p in (origin, library) if p.exists()]
    key = [str(origin), *stamps]
    try:
        known = json.loads(cache.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        known = {}
    if known.get("key") != key:
        known = {"key": key, **_ask()}
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(known, indent=1))
    _check_version(known["version"])
    return TensorFlow(
        known["version"], tuple(known["compile_flags"]), tuple(known["link_flags"])
    )
