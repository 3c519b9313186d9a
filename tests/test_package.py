"""Import, its refusals, `--info`, and what the compiled library shows to others."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tf_ecornn
from tf_ecornn import _build_info, _library
from tf_ecornn.__main__ import main

ROOT = Path(__file__).parent.parent
PACKAGE = Path(tf_ecornn.__file__).parent
LIBRARY = PACKAGE / "_ecornn.so"


def run_python(code, *, path=(), **environment):
    """Runs `code` in a process of its own, `path` before all other modules."""
    folders = [*map(str, path), str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=os.sep,  # not a folder with a tf_ecornn, which -c would take first
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def import_error(**options) -> str:
    """The message of the one ImportError that `import tf_ecornn` ends in."""
    result = run_python("import tf_ecornn", **options)
    assert result.returncode == 1, result.stdout
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: tf_ecornn") or "TF_ECORNN_ISA" in last
    assert "another exception" not in result.stderr
    return last


def is_one_sentence(message: str) -> bool:
    return not re.search(r"\. [A-Z]", message) and message.endswith(".")


@pytest.fixture
def fake_tensorflow(tmp_path):
    """A folder with a `tensorflow` of another version, which loads no library."""

    def make(version):
        module = tmp_path / "fake" / "tensorflow" / "__init__.py"
        module.parent.mkdir(parents=True)
        module.write_text(
            f"__version__ = {version!r}\n"
            "def load_op_library(path):\n    raise AssertionError('loaded')\n"
        )
        return module.parent.parent

    return make


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", tf_ecornn.__version__)
    try:
        installed = importlib.metadata.version("tf_ecornn")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("used from its folder, not installed")
    assert installed == tf_ecornn.__version__


@pytest.mark.parametrize("version", ["2.17.3", "2.30.0", "3.21.0"])
def test_another_minor_version_is_refused_before_loading(fake_tensorflow, version):
    message = import_error(path=[fake_tensorflow(version)])
    assert version in message
    assert _build_info.TENSORFLOW_VERSION in message
    assert "pip install --no-build-isolation" in message
    assert is_one_sentence(message)


def test_another_patch_version_is_loaded(fake_tensorflow):
    minor = _build_info.TENSORFLOW_VERSION.rpartition(".")[0]
    path = [fake_tensorflow(f"{minor}.99")]
    result = run_python("import tf_ecornn", path=path)
    assert "AssertionError: loaded" in result.stderr


@pytest.mark.parametrize("backend", ["jax", "torch", "numpy"])
def test_another_backend_is_refused(backend):
    message = import_error(KERAS_BACKEND=backend)
    assert repr(backend) in message
    assert "KERAS_BACKEND=tensorflow" in message
    assert is_one_sentence(message)


def test_another_backend_in_the_configuration_file_is_refused(tmp_path):
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    message = import_error(KERAS_HOME=str(tmp_path), KERAS_BACKEND="")
    assert "'jax'" in message


@pytest.mark.parametrize("value", ["1", "True"])
def test_legacy_keras_is_refused(value):
    message = import_error(TF_USE_LEGACY_KERAS=value)
    assert "TF_USE_LEGACY_KERAS" in message
    assert is_one_sentence(message)


@pytest.mark.parametrize("removed", ["_ecornn.so", "_build_info.py"])
def test_without_the_library_the_build_command_is_named(tmp_path, removed):
    shutil.copytree(PACKAGE, tmp_path / "tf_ecornn")
    (tmp_path / "tf_ecornn" / removed).unlink()
    shutil.rmtree(tmp_path / "tf_ecornn" / "__pycache__", ignore_errors=True)
    message = import_error(path=[tmp_path])
    assert str(tmp_path) in message
    assert "pip install --no-build-isolation" in message
    assert is_one_sentence(message)


def test_a_source_folder_is_named_in_the_build_command(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "tf_ecornn")
    (tmp_path / "tf_ecornn" / "_ecornn.so").unlink()
    (tmp_path / "setup.py").touch()
    assert f"-e {tmp_path}`" in import_error(path=[tmp_path])


def test_without_tensorflow_its_version_is_named():
    code = (
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda n, *p: None if n == 'tensorflow' else real(n, *p)\n"
        "import tf_ecornn"
    )
    result = run_python(code)
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: tf_ecornn needs TensorFlow")
    assert _build_info.TENSORFLOW_VERSION in last


def test_a_damaged_library_is_an_import_error(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "tf_ecornn")
    (tmp_path / "tf_ecornn" / "_ecornn.so").write_bytes(b"no library")
    message = import_error(path=[tmp_path])
    assert "cannot be loaded" in message
    assert "pip install --no-build-isolation" in message


@pytest.mark.parametrize(
    "first",
    ["import tensorflow", "import keras", "from tf_ecornn import _library"],
)
def test_any_import_order_and_loading_twice(first):
    code = f"""
{first}
import importlib, sys
import tf_ecornn, tensorflow as tf, keras
from tf_ecornn import _library
before = _library.calls()
for name in sorted(n for n in sys.modules if n.startswith("tf_ecornn")):
    importlib.reload(sys.modules[name])
for name in [n for n in sys.modules if n.startswith("tf_ecornn")]:
    del sys.modules[name]
import tf_ecornn
assert _library.ops.eco_rnn_lstm and tf_ecornn._library.ops.eco_rnn_lstm
assert tf_ecornn._library.calls() == before
assert keras.backend.backend() == "tensorflow"
"""
    result = run_python(code)
    assert result.returncode == 0, result.stderr


def test_unknown_instruction_set_is_refused():
    message = import_error(TF_ECORNN_ISA="sse9")
    for part in ("TF_ECORNN_ISA", "'sse9'", "generic"):
        assert part in message


def test_instruction_set_that_the_machine_lacks_is_refused(monkeypatch):
    monkeypatch.setenv("TF_ECORNN_ISA", "avx512")
    flags = {"sse2", "avx2", "fma", "f16c"}
    with pytest.raises(ImportError, match="'avx512'.*: .* generic, avx2\\."):
        _library._check_isa(("generic", "avx2", "avx512"), flags)
    with pytest.raises(ImportError, match="generic\\."):
        _library._check_isa(("generic",), None)
    monkeypatch.setenv("TF_ECORNN_ISA", "avx2")
    _library._check_isa(("generic", "avx2", "avx512"), flags)


def test_library_functions():
    assert _library.isa() in _library.compiled_isas()
    assert set(_library.compiled_isas()) == set(_build_info.INSTRUCTION_SETS)
    assert "generic" in _library.compiled_isas()
    assert _library.has_cuda() in (False, True)
    assert _library.calls() >= 0


def test_info():
    result = subprocess.run(
        [sys.executable, "-m", "tf_ecornn", "--info"],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    rows = dict(re.split(r"  +", row, maxsplit=1) for row in result.stdout.splitlines())
    assert rows["tf_ecornn"] == tf_ecornn.__version__
    assert f"built for {_build_info.TENSORFLOW_VERSION}" in rows["TensorFlow"]
    assert rows["Keras"] and rows["Python"]
    assert rows["instruction set"] in rows["instruction sets compiled"].split(", ")
    assert rows["CUDA kernels"] in ("yes", "no")
    assert int(rows["threads (intra-op)"].split()[0]) >= 1


@pytest.mark.parametrize("arguments", [[], ["--inf"], ["--info", "--all"], ["x.py"]])
def test_unknown_arguments_are_a_usage_error(arguments, capsys):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    assert "usage: python -m tf_ecornn" in capsys.readouterr().err


def tool(name, *arguments) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"no {name} here")
    words = [name, *map(str, arguments)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_the_library_records_no_search_path():
    dynamic = tool("readelf", "--dynamic", "--wide", LIBRARY)
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
    needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic)
    assert "libtensorflow_framework.so.2" in needed
    allowed = r"lib(tensorflow_framework|tensorflow_cc|stdc\+\+|gcc_s|m|c|pthread)\.so"
    foreign = [n for n in needed if not re.match(rf"{allowed}|ld-linux", n)]
    assert not foreign


def test_the_library_carries_no_path_of_where_it_was_built():
    content = LIBRARY.read_bytes()
    assert b"site-packages" not in content
    assert str(ROOT).encode() + b"/" not in content


def test_the_library_shows_its_c_functions_only():
    rows = tool("nm", "--dynamic", "--defined-only", LIBRARY).splitlines()
    names = [row.split()[-1] for row in rows]
    assert {"ecornn_isa", "ecornn_calls"} <= set(names)
    assert all(name.startswith("ecornn_") for name in names), names


def test_no_blas_symbol_is_left_open():
    open_names = tool("nm", "--dynamic", "--undefined-only", LIBRARY)
    assert not re.search(r"gemm|gemv|cblas|mkl_|dnnl", open_names, re.IGNORECASE)


def objects(instruction_set):
    import tensorflow as tf

    folders = (ROOT / "build" / "cc").glob(f"tensorflow-{tf.__version__}-*")
    newest = max(folders, key=lambda f: f.stat().st_mtime_ns, default=None)
    found = sorted(newest.rglob(f"*_{instruction_set}.o")) if newest else []
    return found or pytest.skip(f"no {instruction_set} object in this folder")


@pytest.mark.parametrize("instruction_set", ["avx2", "avx512", "avx512bf16", "amxbf16"])
def test_wide_units_share_no_code_with_others(instruction_set):
    """A function the linker may take for all must not need a newer processor."""
    for file in objects(instruction_set):
        for row in tool("nm", "--demangle", "--defined-only", file).splitlines():
            _, kind, name = row.split(maxsplit=2)
            if kind in "WVwvu":
                assert f"{instruction_set}::" in name, f"{file.name}: {name}"
