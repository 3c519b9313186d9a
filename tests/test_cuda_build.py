"""The build of the CUDA engine with a nvcc of our own: found, asked, refused."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fake_nvcc import HELPER, MANGLED, REPORT, put_nvcc
from tf_ecornn import _build_info

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "cc"))

from buildtools import compiler, cuda, cuda_resources  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (ROOT / "setup.py").exists(), reason="the source folder is not here"
)


@pytest.fixture
def no_nvcc(monkeypatch):
    """An environment without any nvcc, whatever this machine has."""
    for name in ("CUDA", "CUDA_TARGETS", "NVCCFLAGS", "WERROR", "CXXFLAGS"):
        monkeypatch.setenv(f"TF_ECORNN_{name}", "")
    monkeypatch.setenv("CUDA_HOME", "")
    monkeypatch.setattr(cuda.shutil, "which", lambda name: None)
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def toolkit(no_nvcc, monkeypatch, tmp_path):
    """The home of the only toolkit there is, in CUDA_HOME."""
    put_nvcc(tmp_path / "toolkit")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    return tmp_path / "toolkit"


@pytest.fixture
def project(tmp_path):
    """A folder with two CUDA units and one for the ops."""
    made = tmp_path / "project"
    (made / "cuda/units").mkdir(parents=True)
    (made / "cc/kernels").mkdir(parents=True)
    (made / "cuda/plan.h").write_text("int Plan();\n")
    (made / "cuda/plan.cu").write_text('#include "plan.h"\nint Plan() { return 7; }\n')
    (made / "cuda/units/float.cu").write_text("int Float() { return 32; }\n")
    (made / "cc/kernels/gpu.cc").write_text(
        '#include "../../cuda/plan.h"\n'
        'extern "C" __attribute__((visibility("default"))) int ecornn_plan()'
        " { return Plan(); }\n"
    )
    return made


def engine(project) -> cuda.Engine:
    return cuda.engine(project, ["g++"], ["-fPIC"], project / "build/cc")


def compiled(project) -> list[str]:
    """Builds the engine's objects; returns the names of the sources compiled."""
    found = engine(project)
    stale = [u for u in found.units if not compiler.is_current(u, project)]
    compiler.compile_units(found.units, project)
    cuda.check(found, project)
    return sorted(str(unit.source) for unit in stale)


def asked(home: Path) -> list[str]:
    file = home / "bin/asked"
    return file.read_text().splitlines() if file.exists() else []


def refusal(call, *arguments) -> str:
    with pytest.raises(SystemExit) as error:
        call(*arguments)
    message = str(error.value)
    assert message.startswith("tf_ecornn: ") and message.endswith(".")
    return message


# --- Finding nvcc ------------------------------------------------------------


def test_cuda_home_then_the_path_then_a_package(no_nvcc, monkeypatch, tmp_path):
    package = put_nvcc(tmp_path / "site/nvidia/cu13", "13.1")
    # The package for CUDA 12 has that folder, but no nvcc.
    (tmp_path / "site/nvidia/cuda_nvcc/bin").mkdir(parents=True)
    spec = type(
        "Spec", (), {"submodule_search_locations": [str(tmp_path / "site/nvidia")]}
    )
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: spec)
    assert cuda.find_toolkit().nvcc == package
    assert cuda.find_toolkit().version == "13.1"

    on_path = put_nvcc(tmp_path / "path", "12.5")
    monkeypatch.setattr(cuda.shutil, "which", lambda name: str(on_path))
    assert cuda.find_toolkit().nvcc == on_path

    named = put_nvcc(tmp_path / "home", "12.9")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    found = cuda.find_toolkit()
    assert found.nvcc == named and found.version == "12.9"
    assert found.library_folders == (str(tmp_path / "home/bin"),)
    assert "90" in found.architectures


def test_without_nvcc_one_line_says_so(no_nvcc, project, capsys):
    assert engine(project) == cuda.Engine()
    (line,) = capsys.readouterr().out.splitlines()
    assert "CPU only" in line and "CUDA_HOME" in line and "pip" in line


def test_required_and_without_nvcc(no_nvcc, project, monkeypatch):
    monkeypatch.setenv("TF_ECORNN_CUDA", "1")
    assert "TF_ECORNN_CUDA=1" in refusal(engine, project)


def test_switched_off(toolkit, project, monkeypatch, capsys):
    monkeypatch.setenv("TF_ECORNN_CUDA", "0")
    assert engine(project) == cuda.Engine()
    assert not capsys.readouterr().out and not asked(toolkit)


@pytest.mark.parametrize("value", ["yes", "2", "emulate"])
def test_an_unknown_switch(no_nvcc, project, monkeypatch, value):
    monkeypatch.setenv("TF_ECORNN_CUDA", value)
    assert repr(value) in refusal(engine, project)


def test_cuda_home_without_nvcc(no_nvcc, project, monkeypatch, capsys, tmp_path):
    """What is named and not there is said, and nothing else taken in its place."""
    on_path = put_nvcc(tmp_path / "path")
    monkeypatch.setattr(cuda.shutil, "which", lambda name: str(on_path))
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    assert engine(project) == cuda.Engine()
    assert "'/nowhere'" in capsys.readouterr().out
    monkeypatch.setenv("TF_ECORNN_CUDA", "1")
    assert "'/nowhere'" in refusal(engine, project)


def test_a_toolkit_that_does_not_work(no_nvcc, project, monkeypatch, capsys, tmp_path):
    put_nvcc(tmp_path / "half", fails="fatal error: mma.h: No such file")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "half"))
    assert engine(project) == cuda.Engine()
    (line,) = capsys.readouterr().out.splitlines()
    assert "mma.h: No such file" in line and "CPU only" in line
    monkeypatch.setenv("TF_ECORNN_CUDA", "1")
    assert "mma.h" in refusal(engine, project)


def test_something_that_is_no_nvcc(no_nvcc, project, monkeypatch, capsys, tmp_path):
    nvcc = put_nvcc(tmp_path / "odd")
    nvcc.write_text("#!/bin/sh\necho hello\n")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "odd"))
    assert engine(project) == cuda.Engine()
    assert "release" in capsys.readouterr().out


def test_a_copy_without_cuda_sources(toolkit, project, capsys):
    shutil.rmtree(project / "cuda")
    assert engine(project) == cuda.Engine()
    assert "no sources" in capsys.readouterr().out


# --- Options -----------------------------------------------------------------


def test_the_default_targets(toolkit, project):
    made = engine(project)
    assert made.targets == ("75+ptx", "80", "86", "89", "90+ptx")
    assert made.toolkit == "12.8"
    unit = next(u for u in made.units if u.source.suffix == ".cu")
    words = [w for w in unit.command if w.startswith("-gencode")]
    assert words == [
        "-gencode=arch=compute_75,code=[sm_75,compute_75]",
        "-gencode=arch=compute_80,code=[sm_80,sm_86,sm_89]",
        "-gencode=arch=compute_90,code=[sm_90,compute_90]",
    ]


def test_a_target_of_the_default_that_nvcc_no_longer_knows(toolkit, project):
    nvcc = toolkit / "bin/nvcc"
    nvcc.write_text(nvcc.read_text().replace('"75 80 86', '"80 86'))
    assert engine(project).targets == ("80", "86", "89", "90+ptx")


def test_targets_of_the_environment(toolkit, project, monkeypatch):
    monkeypatch.setenv("TF_ECORNN_CUDA_TARGETS", " 100+ptx  86 86")
    assert engine(project).targets == ("100+ptx", "86")
    assert cuda.generation_flags(("100+ptx", "86")) == [
        "-gencode=arch=compute_86,code=[sm_86]",
        "-gencode=arch=compute_100,code=[sm_100,compute_100]",
    ]


@pytest.mark.parametrize("target", ["sm_80", "80,90", "90a", "ptx", "80+"])
def test_a_target_that_cannot_be_read(toolkit, project, monkeypatch, target):
    monkeypatch.setenv("TF_ECORNN_CUDA_TARGETS", f"75 {target}")
    message = refusal(engine, project)
    assert "TF_ECORNN_CUDA_TARGETS" in message and repr(target) in message


def test_a_target_that_nvcc_does_not_compile_for(toolkit, project, monkeypatch):
    monkeypatch.setenv("TF_ECORNN_CUDA_TARGETS", "70 80")
    message = refusal(engine, project)
    assert "'70'" in message and "75 80 86 89 90 100" in message


def test_warnings_are_errors_unless_asked_otherwise(toolkit, project, monkeypatch):
    def words():
        return engine(project).units[0].command

    assert "all-warnings" in words() and "-Werror" in words()
    monkeypatch.setenv("TF_ECORNN_WERROR", "0")
    monkeypatch.setenv("TF_ECORNN_NVCCFLAGS", "-lineinfo -DX=1")
    assert not any("-Werror" in word for word in words())
    assert {"-lineinfo", "-DX=1"} <= set(words())


# --- Compilation -------------------------------------------------------------


def test_compiles_what_changed_and_no_more(toolkit, project):
    everything = ["cc/kernels/gpu.cc", "cuda/plan.cu", "cuda/units/float.cu"]
    assert compiled(project) == everything
    assert compiled(project) == []
    (project / "cuda/plan.h").write_text("int Plan();  // changed\n")
    assert compiled(project) == ["cc/kernels/gpu.cc", "cuda/plan.cu"]
    probes = [words for words in asked(toolkit) if "probe.cu" in words]
    assert len(probes) == 1
    # Another nvcc in the same place makes other objects.
    nvcc = toolkit / "bin/nvcc"
    nvcc.write_text(nvcc.read_text().replace("12.8", "12.9"))
    assert compiled(project) == ["cuda/plan.cu", "cuda/units/float.cu"]


def test_a_unit_that_does_not_compile_is_named(toolkit, project):
    (project / "cuda/units/float.cu").write_text("int Float() { return x; }\n")
    assert "cuda/units/float.cu" in refusal(compiled, project)


def test_the_library_holds_the_engine(toolkit, tmp_path):
    """The whole build, linked: the engine, the op kernels and the notes about it."""
    project = tmp_path / "project"
    ignored = shutil.ignore_patterns("*.so", "_build_info.py", "__pycache__")
    shutil.copytree(ROOT / "tf_ecornn", project / "tf_ecornn", ignore=ignored)
    shutil.copytree(ROOT / "cc/buildtools", project / "cc/buildtools", ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "cc/exports.map"):
        shutil.copy(ROOT / name, project / name)
    (project / "README.md").touch()
    (project / "cuda").mkdir()
    (project / "cuda/plan.cu").write_text("int Plan() { return 7; }\n")
    (project / "cc/kernels").mkdir()
    (project / "cc/kernels/gpu.cc").write_text(
        "int Plan();\n"
        'extern "C" __attribute__((visibility("default"))) int ecornn_plan()'
        " { return Plan(); }\n"
    )
    (project / "cc/kernels/cpu.cc").write_text("int Cpu() { return 1; }\n")
    known = ROOT / "build/cc/tensorflow.json"
    if known.exists():
        (project / "build/cc").mkdir(parents=True)
        shutil.copy(known, project / "build/cc")

    def build(**environment) -> dict:
        variables = {**os.environ, "TF_ECORNN_CXXFLAGS": "", **environment}
        words = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        result = subprocess.run(
            words, cwd=project, env=variables, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr
        info = {}
        exec((project / "tf_ecornn/_build_info.py").read_text(), info)
        names = subprocess.run(
            ["nm", "--dynamic", "--defined-only", project / "tf_ecornn/_ecornn.so"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return {**info, "plan": "ecornn_plan" in names}

    made = build(TF_ECORNN_CUDA="1", TF_ECORNN_CUDA_TARGETS="75 90+ptx")
    assert made["CUDA"] == "12.8" and made["CUDA_TARGETS"] == ("75", "90+ptx")
    assert made["plan"]
    made = build(TF_ECORNN_CUDA="0")
    assert made["CUDA"] == "" and made["CUDA_TARGETS"] == () and not made["plan"]


# --- The report of resources -------------------------------------------------


def test_reads_what_ptxas_reports():
    found = cuda_resources.parse(REPORT)
    assert [(r.name, r.target, r.kernel) for r in found] == [
        (MANGLED, "sm_75", True),
        (HELPER, "sm_75", False),
        (HELPER, "sm_90", False),
        (MANGLED, "sm_90", True),
    ]
    first, helper, _, last = found
    assert (first.registers, first.shared, first.stack) == (168, 512, 0)
    assert (first.spill_stores, first.spill_loads) == (0, 0)
    assert (helper.registers, helper.stack) == (0, 16)
    assert (last.registers, last.shared, last.stack) == (255, 0, 40)
    assert (last.spill_stores, last.spill_loads) == (36, 24)


def test_a_persistent_kernel_that_spills_fails_the_build(toolkit, project, capsys):
    (toolkit / "bin/report").write_text(REPORT)
    message = refusal(compiled, project)
    assert "spill" in message
    listed = capsys.readouterr().err
    assert "RunSequence" in listed and "sm_90" in listed and "60 SPILLED" in listed
    assert "sm_75" not in listed


def test_a_spill_may_be_let_pass(toolkit, project, capsys, monkeypatch):
    monkeypatch.setenv("TF_ECORNN_WERROR", "0")
    (toolkit / "bin/report").write_text(REPORT)
    compiled(project)
    assert "60 SPILLED" in capsys.readouterr().err


def test_another_kernel_may_spill(toolkit, project, capsys):
    (toolkit / "bin/report").write_text(REPORT.replace("RunSequence", "PackWeights"))
    compiled(project)
    cuda_resources.main(project)
    table = capsys.readouterr().out
    assert "60 SPILLED" in table and "with spills" in table


def test_a_compiler_that_reports_nothing_fails_the_build(toolkit, project):
    (toolkit / "bin/report").write_text("")
    assert "spills" in refusal(compiled, project)


def test_the_table_has_a_column_for_each_target(toolkit, project, capsys):
    compiled(project)
    capsys.readouterr()
    cuda_resources.main(project)
    heading, *rows, total = capsys.readouterr().out.splitlines()
    assert heading.split() == ["sm_75", "sm_90"]
    row = next(r for r in rows if "RunSequence" in r)
    assert "168 registers, 512 shared" in row and "255 registers" in row
    assert total.endswith("0 with spills")


def test_the_table_before_a_build(tmp_path):
    assert "build with CUDA first" in refusal(cuda_resources.main, tmp_path)


@pytest.mark.skipif(
    not _build_info.CUDA_TARGETS, reason="this build has no CUDA kernels"
)
def test_no_persistent_kernel_of_this_build_spills():
    report = ROOT / "build/cuda/resources.json"
    if not report.exists():
        pytest.skip("the package was not built in this folder")
    found = [cuda_resources.Resources(**r) for r in json.loads(report.read_text())]
    persistent = [r for r in found if cuda_resources.PERSISTENT in r.name]
    numbers = {t.partition("+")[0] for t in _build_info.CUDA_TARGETS}
    assert {r.target for r in persistent} == {f"sm_{n}" for n in numbers}
    spilling = [r for r in persistent if r.spill_stores or r.spill_loads]
    assert not spilling, cuda_resources.table(spilling)
    assert all(r.registers > 0 for r in persistent if r.kernel)
