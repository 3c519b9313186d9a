"""On which versions of TensorFlow the kernels for XLA are built."""

import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tf_ecornn import _library

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "cc"))

from buildtools import xla  # noqa: E402
from buildtools.installed_tensorflow import TensorFlow  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (ROOT / "setup.py").exists(), reason="the source folder is not here"
)


@pytest.mark.parametrize(
    ("version", "built"),
    [("2.18.1", False), ("2.19.0", False), ("2.20.0", True), ("2.21.0-rc1", True)],
)
def test_versions(version, built):
    sources = [Path("cc/kernels/cpu.cc"), Path("cc/xla/kernels.cc")]
    tensorflow = TensorFlow(version, ("-I/there",), ())
    kept = xla.buildable(sources, tensorflow)
    assert kept == sources[: 2 if built else 1]
    assert xla.is_part_of(kept) == built
    flags = xla.compile_flags(tensorflow)
    assert all(flag.startswith("/there/") for flag in flags[1::2])
    assert bool(flags) == built


def test_this_library_has_them_where_they_build():
    version = tuple(int(part) for part in tf.__version__.split(".")[:2])
    assert _library.has_xla() == (version >= xla.OLDEST)
