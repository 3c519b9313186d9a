"""Every instruction set that is compiled in and that this machine has."""

import os
import pathlib
import re

import pytest

from tf_ecornn import _library

AVX2 = {"avx2", "fma", "f16c"}
AVX512 = {"avx512f", "avx512dq", "avx512bw", "avx512vl"} | AVX2
NEEDED_FLAGS = {
    "amxbf16": {"amx_tile", "amx_bf16", "avx512_bf16"} | AVX512,
    "avx512bf16": {"avx512_bf16"} | AVX512,
    "avx512": AVX512,
    "avx2": AVX2,
    "generic": set(),
}


def machine_flags():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return set(found.group(1).split()) if found else set()


def compiled():
    return _library.compiled_isas()


def test_generic_code_is_always_there():
    assert "generic" in compiled()
    assert set(compiled()) <= set(NEEDED_FLAGS)


@pytest.mark.skipif("TF_ECORNN_ISA" in os.environ, reason="TF_ECORNN_ISA is set")
def test_best_available_set_is_chosen():
    best = next(
        name
        for name, flags in NEEDED_FLAGS.items()
        if name in compiled() and flags <= machine_flags()
    )
    assert _library.isa() == best


@pytest.mark.parametrize("isa", NEEDED_FLAGS)
def test_results_on_each_set(isa, run_worker):
    if isa not in compiled() or not NEEDED_FLAGS[isa] <= machine_flags():
        pytest.skip(f"{isa} is not compiled in, or this machine lacks it")
    # The C library then fills new memory with values near 3e38: whatever is read
    # before it was written shows.
    done = run_worker("isa.py", "check", TF_ECORNN_ISA=isa, MALLOC_PERTURB_="128")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[-1] == isa


def test_unknown_set_is_refused(run_worker):
    done = run_worker("isa.py", "", TF_ECORNN_ISA="sse9")
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "ImportError" in last, done.stderr
    assert all(word in last for word in ("TF_ECORNN_ISA", "sse9", "generic"))
