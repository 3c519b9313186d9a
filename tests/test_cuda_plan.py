"""The GPU planner: what it makes of given sizes on given devices."""

import ctypes
import itertools
from dataclasses import replace

import pytest

import cuda_calls
from cuda_calls import A100, H200, T4
from gpu.engine import read_fields

_REQUEST = read_fields("EcornnPlanRequest")
_RESULT = read_fields("EcornnPlanResult")
# Bytes of shared memory that a multiprocessor has and a block cannot ask for.
_RESERVED = 1024

# An LSTM's forward pass: 16-bit tiles, and TF32's.
HALF = {
    "gates": 4,
    "operands": 1,
    "states": 3,
    "tile_units": 8,
    "tile_rows": 32,
    "product_warps": 8,
    "kept_chunks": 16,
    "part_stride": 8,
    "weight_padding": 0,
    "operand_bytes": 2,
    "compute_bytes": 4,
}
TF32 = HALF | {
    "kept_chunks": 0,
    "part_stride": 16,
    "weight_padding": 128,
    "operand_bytes": 4,
}
DOUBLE = HALF | {
    "product_warps": 4,
    "kept_chunks": 0,
    "operand_bytes": 8,
    "compute_bytes": 8,
}
FLOAT = HALF | {"kept_chunks": 0, "operand_bytes": 4}


@pytest.fixture(scope="module")
def engine():
    return cuda_calls.library()


def plan(engine, device, shape, batch, units, path="choose", resident=1):
    values = shape | {
        "batch": batch,
        "units": units,
        "multiprocessors": device.multiprocessors,
        "shared_per_block": device.shared_per_block,
        "shared_per_multiprocessor": device.shared_per_block + _RESERVED,
        "most_resident": resident,
        "cooperative": int(device.cooperative),
        "path": cuda_calls.PATHS.index(path),
    }
    request = (ctypes.c_int64 * len(_REQUEST))(*(values[n] for n in _REQUEST))
    result = (ctypes.c_int64 * len(_RESULT))()
    error = engine.ecornn_cuda_plan(request, result)
    return error, dict(zip(_RESULT, result, strict=True))


@pytest.mark.parametrize(
    ("device", "shape", "batch", "units"),
    [
        (H200, HALF, 16, 768),
        (H200, HALF, 100, 1000),
        (H200, HALF, 64, 512),
        (H200, HALF, 128, 256),
        (H200, HALF, 64, 128),
        (H200, HALF, 32, 1536),
        (H200, TF32, 100, 1000),
        (H200, FLOAT, 100, 1000),
        (H200, FLOAT, 64, 512),
        (A100, HALF, 32, 1000),
        (A100, TF32, 64, 512),
        (T4, HALF, 64, 128),
    ],
    ids=lambda v: getattr(v, "name", str(v) if isinstance(v, int) else ""),
)
def test_persistent_where_the_weights_fit(engine, device, shape, batch, units):
    error, p = plan(engine, device, shape, batch, units)
    assert error == 0 and p["persistent"]
    assert p["blocks"] <= device.multiprocessors
    assert p["shared_bytes"] <= device.shared_per_block
    # Every unit and every row has its block.
    assert p["unit_slices"] * shape["tile_units"] >= units
    assert p["unit_blocks"] * p["group"] >= p["unit_slices"]
    assert p["row_slices"] * p["row_tiles"] * shape["tile_rows"] >= batch
    assert p["blocks"] == p["unit_blocks"] * p["row_slices"]


@pytest.mark.parametrize(
    ("device", "shape", "units"),
    [(H200, HALF, 4096), (H200, FLOAT, 2048), (A100, FLOAT, 1500), (T4, HALF, 1000)],
    ids=lambda v: getattr(v, "name", str(v) if isinstance(v, int) else ""),
)
def test_steps_where_they_do_not(engine, device, shape, units):
    error, p = plan(engine, device, shape, 64, units)
    assert error == 0 and not p["persistent"]
    assert p["group"] == p["row_tiles"] == 1
    # Only the product's own room: no weights in shared memory.
    assert p["shared_bytes"] < 64 * 1024
    error, _ = plan(engine, device, shape, 64, units, "persistent")
    assert error != 0


@pytest.mark.parametrize("shape", (HALF, TF32, FLOAT, DOUBLE))
def test_steps_fit_every_supported_device(engine, shape):
    """A T4 gives a block 64 KB; TF32 needs an A10, which gives 99 KB."""
    device = replace(A100, shared_per_block=99 * 1024) if shape is TF32 else T4
    for units in (20, 5000):
        error, p = plan(engine, device, shape, 64, units, "steps")
        assert error == 0
        assert p["shared_bytes"] <= device.shared_per_block


def test_a_forced_path_is_kept(engine):
    for path in ("steps", "persistent"):
        error, p = plan(engine, H200, HALF, 64, 128, path)
        assert error == 0 and p["persistent"] == (path == "persistent")


def test_the_busiest_multiprocessor_has_the_least(engine):
    """No split of the same blocks would leave it fewer tiles a step."""
    for batch, units in itertools.product((1, 16, 100, 700), (64, 256, 1000)):
        error, p = plan(engine, H200, HALF, batch, units)
        assert error == 0 and p["persistent"]
        tiles = p["unit_slices"] * -(-batch // HALF["tile_rows"])
        ideal = -(-tiles // H200.multiprocessors)
        share = p["group"] * p["row_tiles"]
        # Whole groups and whole slices of rows may cost up to as much again.
        assert ideal <= share <= 2 * ideal, (batch, units, p)


def test_any_batch(engine):
    """Rows beyond what shared memory keeps the states of go in steps."""
    for batch in (0, 1, 31, 33, 5000, 300_000, 3_000_000):
        error, p = plan(engine, H200, HALF, batch, 256)
        assert error == 0
        assert p["row_slices"] * p["row_tiles"] * HALF["tile_rows"] >= batch
        assert p["blocks"] < 2**31
