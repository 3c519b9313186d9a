"""The build itself, on a project of a few lines: currency, flags, refusals, wheel."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "cc"))

from buildtools import compiler, installed_tensorflow, requirements  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (ROOT / "setup.py").exists(), reason="the source folder is not here"
)

SOURCES = {
    "cc/shared.h": "int Wide();\n",
    "cc/base.cc": """
#include "shared.h"
#ifdef __AVX2__
#error "a base unit was compiled with wide vectors"
#endif
extern "C" __attribute__((visibility("default"))) int ecornn_wide() { return Wide(); }
int Hidden() { return 1; }
""",
    "cc/alone.cc": "int Alone() { return 2; }\n",
    "cc/wide_generic.cc": '#include "shared.h"\nint Wide() { return 512; }\n',
}
if compiler.is_x86_64():
    SOURCES["cc/wide_generic.cc"] = '#include "shared.h"\n'
    SOURCES["cc/wide_avx2.cc"] = (
        "#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__) || "
        "defined(__AVX512F__) || !defined(ECORNN_HAVE_AVX512)\n#error flags\n#endif\n"
    )
    SOURCES["cc/wide_avx512.cc"] = (
        '#include "shared.h"\n#if !defined(__AVX512VL__) || !defined(__AVX512DQ__) || '
        "!defined(__AVX512BW__) || !defined(ECORNN_HAVE_AVX2)\n#error flags\n#endif\n"
        "int Wide() { return 512; }\n"
    )
    SOURCES["cc/wide_avx512bf16.cc"] = (
        "#if !defined(__AVX512BF16__) || !defined(__AVX512VL__) || "
        "!defined(ECORNN_HAVE_AVX512BF16)\n#error flags\n#endif\n"
    )
    SOURCES["cc/wide_amxbf16.cc"] = (
        "#if !defined(__AMX_TILE__) || !defined(__AMX_BF16__) || "
        "!defined(__AVX512BF16__) || !defined(ECORNN_HAVE_AMXBF16)\n"
        "#error flags\n#endif\n"
    )


@pytest.fixture
def project(tmp_path):
    """This project's build with a few lines of C++ in the place of its sources."""
    made = tmp_path / "project"
    ignored = shutil.ignore_patterns("*.so", "_build_info.py", "__pycache__")
    shutil.copytree(ROOT / "tf_ecornn", made / "tf_ecornn", ignore=ignored)
    shutil.copytree(ROOT / "cc/buildtools", made / "cc/buildtools", ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "cc/exports.map"):
        shutil.copy(ROOT / name, made / name)
    (made / "README.md").touch()
    for name, text in SOURCES.items():
        (made / name).write_text(text)
    # What is known of TensorFlow here saves its import.
    known = ROOT / "build/cc/tensorflow.json"
    if known.exists():
        (made / "build/cc").mkdir(parents=True)
        shutil.copy(known, made / "build/cc")
    return made


def setup(project, *arguments, python_options=(), **environment):
    return subprocess.run(
        [sys.executable, *python_options, "setup.py", "--quiet", *arguments],
        cwd=project,
        env={**os.environ, "TF_ECORNN_CXXFLAGS": "", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def build(project, **environment) -> list[str]:
    """Builds in place; returns the names of the sources that were compiled."""
    result = setup(project, "build_ext", "--inplace", **environment)
    assert result.returncode == 0, result.stderr
    return sorted(re.findall(r"^\[.*\] cc/(\S+) ", result.stdout, re.MULTILINE))


def refusal(project, **options) -> str:
    """The sentence that a build which cannot be done ends in."""
    result = setup(project, "build_ext", "--inplace", **options)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("tf_ecornn: ") and last.endswith(".")
    assert not (project / "tf_ecornn/_ecornn.so").exists()
    return last


def touch(file: Path):
    file.write_text(file.read_text() + "\n")


def test_compiles_what_changed_and_no_more(project):
    everything = sorted(n[3:] for n in SOURCES if n.endswith(".cc"))
    library = project / "tf_ecornn/_ecornn.so"
    assert build(project) == everything
    made = library.stat().st_ino
    assert build(project) == []
    assert library.stat().st_ino == made

    touch(project / "cc/alone.cc")
    assert build(project) == ["alone.cc"]
    touch(project / "cc/shared.h")
    includers = [n for n in everything if "shared.h" in SOURCES[f"cc/{n}"]]
    assert build(project) == includers
    assert "wide_avx2.cc" not in includers

    (project / "cc/more.cc").write_text("int More() { return 3; }\n")
    assert build(project) == ["more.cc"]
    (project / "cc/more.cc").unlink()
    assert build(project) == []
    assert b"_Z4Morev" not in library.read_bytes()
    # Other flags are other objects; the former ones stay current.
    assert build(project, TF_ECORNN_CXXFLAGS="-DOTHER") == everything
    assert build(project) == []


def test_the_library_and_what_it_was_built_for(project):
    build(project)
    assert ctypes.CDLL(str(project / "tf_ecornn/_ecornn.so")).ecornn_wide() == 512
    info = {}
    exec((project / "tf_ecornn/_build_info.py").read_text(), info)
    import tensorflow as tf

    assert info["TENSORFLOW_VERSION"] == tf.__version__
    assert info["COMPILER"]
    expected = ["generic"]
    if compiler.is_x86_64():
        expected += ["avx2", "avx512", "avx512bf16", "amxbf16"]
    assert list(info["INSTRUCTION_SETS"]) == expected


def test_other_machines_build_no_wide_units(monkeypatch):
    sources = [Path(f"cc/{n}.cc") for n in ("x_avx512", "base", "x_avx2", "x_generic")]
    names = [s.stem for s in compiler.buildable(sources)]
    if compiler.is_x86_64():
        # The plainest first: the linker keeps the first of equal functions.
        assert names == ["base", "x_generic", "x_avx2", "x_avx512"]
    monkeypatch.setattr(compiler.platform, "machine", lambda: "aarch64")
    assert [s.stem for s in compiler.buildable(sources)] == ["base", "x_generic"]


def test_a_failing_unit_is_named_and_a_warning_fails(project):
    (project / "cc/alone.cc").write_text("static int unused = 1;\n")
    assert "cc/alone.cc" in refusal(project)
    assert "alone.cc" in build(project, TF_ECORNN_WERROR="0")


def test_an_undefined_symbol_is_refused_at_the_link(project):
    touch(project / "cc/alone.cc")
    (project / "cc/alone.cc").write_text(
        "int Nowhere();\nint A() { return Nowhere(); }"
    )
    assert "linking" in refusal(project)


def test_without_tensorflow(project, tmp_path):
    """As in pip's isolated environment: setuptools is there, TensorFlow is not."""
    site = tmp_path / "site"
    site.mkdir()
    for name in ("setuptools", "_distutils_hack", "wheel", "packaging"):
        spec = installed_tensorflow.importlib.util.find_spec(name)
        if spec is not None:
            (site / name).symlink_to(Path(spec.origin).parent)
    message = refusal(project, python_options=["-S"], PYTHONPATH=str(site))
    assert "--no-build-isolation" in message


def fake_tensorflow(folder: Path, text: str) -> str:
    (folder / "tensorflow").mkdir()
    (folder / "tensorflow/__init__.py").write_text(text)
    return str(folder)


@pytest.mark.parametrize("version", ["2.17.1", "2.22.0", "3.0.0"])
def test_a_tensorflow_out_of_range(project, tmp_path, version):
    text = (
        f"__version__ = {version!r}\n"
        "class sysconfig:\n"
        "    get_compile_flags = staticmethod(lambda: ['-I/none'])\n"
        "    get_link_flags = staticmethod(lambda: [])\n"
    )
    message = refusal(project, PYTHONPATH=fake_tensorflow(tmp_path, text))
    assert version in message and "2.18" in message and "2.21" in message


def test_a_tensorflow_that_does_not_import(project, tmp_path):
    text = "raise ImportError('libdamaged.so: cannot open shared object file.')\n"
    message = refusal(project, PYTHONPATH=fake_tensorflow(tmp_path, text))
    assert "libdamaged.so" in message


def test_without_a_compiler(project, tmp_path):
    assert "apt-get install g++" in refusal(project, PATH=str(tmp_path), CXX="")


def test_a_compiler_that_is_not_there(project):
    assert "'no-such-compiler'" in refusal(project, CXX="no-such-compiler -x")


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_off_linux(project, system):
    from buildtools import library

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as error:
        patch.setattr(library.sys, "platform", system)
        library.build(project, project / "tf_ecornn")
    assert "Linux only" in str(error.value) and system in str(error.value)


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_a_bad_number_of_jobs(project, jobs):
    assert "TF_ECORNN_JOBS" in refusal(project, TF_ECORNN_JOBS=jobs)


def pip(*arguments, **options):
    words = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    result = subprocess.run(words, capture_output=True, text=True, **options)
    assert result.returncode == 0, result.stdout + result.stderr


def test_wheel_from_the_source_distribution(project, tmp_path):
    result = setup(project, "sdist", "--dist-dir", str(tmp_path))
    assert result.returncode == 0, result.stderr
    (archive,) = tmp_path.glob("tf_ecornn-*.tar.gz")
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir")
    pip("wheel", *options, str(tmp_path), str(archive))
    (wheel,) = tmp_path.glob("*.whl")
    assert re.search(r"-py3-none-linux_\w+\.whl$", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    assert {"tf_ecornn/_ecornn.so", "tf_ecornn/_build_info.py"} <= set(names)
    assert {"tf_ecornn/__init__.py", "tf_ecornn/_library.py"} <= set(names)
    assert {Path(n).parts[0].partition("-")[0] for n in names} == {"tf_ecornn"}


def test_editable_install(project, tmp_path):
    """Through setuptools' hook: pip would first uninstall what is installed here."""
    hook = "import sys, setuptools.build_meta as b; b.build_editable(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", hook, str(tmp_path)],
        cwd=project,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert not any(n.endswith(".so") for n in zipfile.ZipFile(wheel).namelist())
    assert (project / "tf_ecornn/_ecornn.so").exists()
    assert (project / "tf_ecornn/_build_info.py").exists()


def test_the_source_distribution_holds_everything(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(
        ROOT,
        copy,
        ignore=shutil.ignore_patterns(
            ".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache"
        ),
    )
    (copy / "build").mkdir()
    (copy / "build/left.o").touch()
    result = setup(copy, "sdist", "--dist-dir", str(tmp_path))
    assert result.returncode == 0, result.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        names = {n.partition("/")[2] for n in content.getnames()}
    kept = ("cc", "cuda", "tests", "examples", "tf_ecornn", ".ci")
    folders = [copy / n for n in kept]
    files = [p for f in folders for p in f.rglob("*") if p.is_file()]
    expected = {str(p.relative_to(copy)) for p in files}
    made = {"tf_ecornn/_ecornn.so", "tf_ecornn/_build_info.py"}
    assert expected - made <= names
    top = {"setup.py", "pyproject.toml", "Makefile", "LICENSE", "BUILD_NOTES.md"}
    assert top | {"README.md", ".clang-format"} <= names
    assert not made & names and not any(n.startswith("build/") for n in names)


def test_supported_versions_are_the_same_everywhere():
    oldest = ".".join(map(str, installed_tensorflow.OLDEST))
    major, minor = installed_tensorflow.NEWEST
    bounds = f">={oldest},<{major}.{minor + 1}"
    listed = requirements.requirements(["cpu", "gpu"])
    assert listed and all(bounds in requirement for requirement in listed)


def test_a_tensorflow_that_is_there_is_not_required_again():
    assert requirements.requirements(["tensorflow"]) == []
    assert any("pytest" in r for r in requirements.requirements(["test"]))
    assert any("setuptools" in r for r in requirements.requirements(["build"]))
