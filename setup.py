"""Builds the compiled library; all else about the package is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "cc"))

from buildtools import compiler, library  # noqa: E402

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    try:
        from wheel.bdist_wheel import bdist_wheel
    except ImportError:
        compiler.refuse("setuptools is too old; `pip install -U setuptools`.")


class BuildLibrary(build_ext):
    """`build_ext` whose one extension is what cc/buildtools/library.py makes."""

    def run(self):
        # Set for `build_ext --inplace` and for editable installs.
        folder = ROOT if self.inplace else Path(self.build_lib)
        library.build(ROOT, folder / "tf_ecornn")

    def get_ext_filename(self, fullname):
        # A TensorFlow library knows no Python ABI: no suffix for one.
        return f"tf_ecornn/{library.NAME}"

    def get_outputs(self):
        outputs = super().get_outputs()
        if not self.inplace:
            outputs.append(str(Path(self.build_lib, "tf_ecornn", library.INFO)))
        return outputs


class PlatformWheel(bdist_wheel):
    """A wheel for this platform that serves every Python 3."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(
    # Here, since setuptools before 77 refuses the short form in pyproject.toml
    # and later ones refuse the long one.
    license="Apache-2.0",
    ext_modules=[Extension("tf_ecornn._ecornn", sources=[])],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
)
