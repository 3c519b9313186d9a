"""What the kernels for XLA, in cc/xla, need of TensorFlow.

They use headers that TensorFlow's wheels hold, but that `tf.sysconfig` does not speak
of, and that move from one version to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from buildtools import installed_tensorflow

FOLDER = Path("cc", "xla")

# 2.19 includes headers of LLVM, which its wheels lack; 2.18 keeps XLA's builder in
# another folder.
OLDEST = (2, 20)

# Below TensorFlow's include folder: what XLA's headers include by shorter paths.
_INCLUDES = ("external/highwayhash", "external/farmhash_archive/src")


def buildable(
    sources: Sequence[Path], tensorflow: installed_tensorflow.TensorFlow
) -> list[Path]:
    """The sources without those that need a later TensorFlow."""
    if tensorflow.minor >= OLDEST:
        return list(sources)
    return [source for source in sources if FOLDER not in source.parents]


def is_part_of(sources: Sequence[Path]) -> bool:
    return any(FOLDER in source.parents for source in sources)


def compile_flags(tensorflow: installed_tensorflow.TensorFlow) -> list[str]:
    if tensorflow.minor < OLDEST:
        return []
    return [
        word
        for folder in _INCLUDES
        for word in ("-isystem", f"{tensorflow.include}/{folder}")
    ]


# Found in the folder that TensorFlow's own link flags name.
LINK_FLAGS = ("-l:libtensorflow_cc.so.2",)
