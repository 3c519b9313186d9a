"""The CUDA kernels from Keras down: tests of ops and layers with them emulated.

The package is built once more, into build/emulated, with the kernels of `cuda/` run by
tests/cuda_on_cpu in the place of the CPU engine: the ops' glue, the gradients, the
layers and the kernels work together as they do on a GPU. All but the kernels' own
objects are those of the ordinary build.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from problems import CELLS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "build" / "emulated"

pytestmark = pytest.mark.skipif(
    not (ROOT / "setup.py").exists(), reason="the source folder is not here"
)

DTYPES = ("float16", "bfloat16", "float32", "float64")


def each(test: str) -> list[str]:
    """A test's id for every cell and dtype that it names."""
    return [
        test.format(cell=cell, dtype=dtype)
        for cell in (CELLS if "{cell}" in test else ("",))
        for dtype in (DTYPES if "{dtype}" in test else ("",))
    ]


ALL_DTYPES = each(
    "test_precision.py::test_error_against_float64[5-7-19-{dtype}-{cell}]"
)
MASKED_LAYERS = [
    *each("test_layer_parity.py::test_masks_and_directions[False-False-left-{cell}]"),
    *each("test_layer_parity.py::test_masks_and_directions[True-True-random-{cell}]"),
]
TESTS = {
    "persistent": [
        *each(
            "test_op_values.py::test_options_in_combination[True-random-float32-{cell}]"
        ),
        *each("test_op_values.py::test_larger_than_a_tile[17-40-48-float32-{cell}]"),
        *each("test_op_values.py::test_all_rows_masked[float32-{cell}]"),
        *each("test_op_values.py::test_kernel_inside_the_op_and_empty_sizes"),
        *each("test_op_bits.py::test_companions_do_not_matter[right-float32-{cell}]"),
        "test_op_errors.py::test_wrong_shape[lstm-forward-mask]",
        "test_op_errors.py::test_wrong_shape[lstm-joined-kernel]",
        "test_op_errors.py::test_wrong_shape[lstm-gradient-grad_outputs]",
        "test_op_errors.py::test_wrong_shape[gru-gradient-candidate]",
        *ALL_DTYPES,
        *MASKED_LAYERS,
        *each(
            "test_layer_parity.py::test_options[{{'return_state': True}}-True-{cell}]"
        ),
        "test_precision.py::test_dtypes_of_results_and_gradients",
        "test_functional_graphs.py",
        # Masks, both directions at once, other activations; dropout.
        "test_training.py::test_losses_equal_stock[stacked]",
        "test_training.py::test_losses_equal_stock[regularised]",
    ],
    "steps": [
        *each("test_op_values.py::test_all_rows_masked[float32-{cell}]"),
        *each("test_op_bits.py::test_companions_do_not_matter[right-float32-{cell}]"),
        *ALL_DTYPES,
        *MASKED_LAYERS,
        "test_training.py::test_losses_equal_stock[masked_classifier]",
    ],
}


@pytest.fixture(scope="module")
def emulated_package() -> Path:
    """The folder of a build whose ops run the emulated kernels."""
    words = ["--quiet", "build", "--build-lib", str(PACKAGE)]
    result = subprocess.run(
        [sys.executable, "setup.py", *words],
        cwd=ROOT,
        env={**os.environ, "TF_ECORNN_CUDA": "emulated"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return PACKAGE


@pytest.mark.parametrize("path", TESTS)
def test_ops_and_layers_on_the_emulated_kernels(path, emulated_package, run_worker):
    folders = (emulated_package, ROOT / "tests")
    result = run_worker(
        "device_path.py",
        path,
        1,
        *TESTS[path],
        timeout=600,
        PYTHONPATH=os.pathsep.join(map(str, folders)),
    )
    report = result.stdout + result.stderr[-2000:]
    assert result.returncode == 0, report
    passed = re.search(r"(\d+) passed", result.stdout)
    counts = re.search(r"launches (\d+) persistent (\d+)", result.stdout)
    assert passed and counts, report
    assert int(passed[1]) >= len(TESTS[path])
    # A call launches a handful, and only one of them is the sequence.
    launches, persistent = map(int, counts.groups())
    assert launches > 500
    assert persistent > 100 if path == "persistent" else persistent == 0
