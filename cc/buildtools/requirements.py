"""Prints requirements that pyproject.toml names, one a line, for pip to read.

    python cc/buildtools/requirements.py build tensorflow test

Each argument is one of pyproject.toml's extras, `build` for what the build itself
needs, or `tensorflow` for the extra `cpu` unless some TensorFlow is there already.
pip itself can install an extra only together with the package, whose build needs
the extra's TensorFlow first.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10; pip is there, since this feeds it
    from pip._vendor import tomli as tomllib

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def requirements(names: list[str]) -> list[str]:
    settings = tomllib.loads(PYPROJECT.read_text())
    extras = settings["project"]["optional-dependencies"]
    found = []
    for name in names:
        if name == "build":
            found += settings["build-system"]["requires"]
            found += settings["project"]["dependencies"]
        elif name == "tensorflow":
            missing = importlib.util.find_spec("tensorflow") is None
            found += extras["cpu"] if missing else []
        else:
            found += extras[name]
    return found


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
