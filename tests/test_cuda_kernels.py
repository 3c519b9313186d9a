"""The GPU engine's kernels, run on the CPU, against the NumPy reference."""

import itertools
import zlib
from dataclasses import replace

import numpy as np
import pytest

import cuda_calls
from cuda_calls import A100, DTYPES, H200, T4, CudaError, DeviceModel
from gpu.references import recurrent_kernel_gradient, relative_error, rounded
from problems import CELLS, MASK_KINDS, assert_same_bits, draw_problem, draw_tame
from reference_activations import ACTIVATIONS

# ‖actual - expected‖ / ‖expected‖ over 20 steps.
BOUNDS = {
    "float32": 1e-5,
    "float64": 1e-13,
    "tf32": 1e-3,
    "float16": 2e-3,
    "bfloat16": 1e-2,
}
# So few multiprocessors that a block has several tiles.
TINY = DeviceModel("tiny", 3, 600_000, 9, 0)


@pytest.fixture(scope="module")
def engine():
    return cuda_calls.library()


@pytest.fixture(autouse=True)
def fresh(engine, request):
    """Every test on an H200, in an order of threads of its own."""
    engine.ecornn_emulation_reset()
    engine.ecornn_emulation_set_seed(zlib.crc32(request.node.name.encode()))
    yield
    engine.ecornn_emulation_reset()


def run(engine, problem, dtype, path="choose", *, outputs=True, joined=False):
    saved = cuda_calls.run_forward(engine, problem, dtype, path, joined=joined)
    grads = cuda_calls.run_backward(
        engine, problem, dtype, saved, path, outputs=outputs
    )
    results = saved | grads
    results["recurrent_kernel"] = recurrent_kernel_gradient(
        problem, {k: np.asarray(v, np.float64) for k, v in results.items()}
    )
    return results


def check(
    engine,
    problem,
    dtype,
    path="choose",
    *,
    outputs=True,
    joined=False,
    bound=None,
    least=0.0,
):
    problem = rounded(problem, dtype)
    if joined:
        problem = replace(
            problem,
            gates_x=cuda_calls.reference.project(
                problem.x, problem.kernel, problem.mask
            ),
        )
    actual = run(engine, problem, dtype, path, outputs=outputs, joined=joined)
    expected = cuda_calls.expected_results(problem, outputs)
    about = (
        f"{problem.cell} {dtype} {path} B={problem.batch} T={problem.steps} "
        f"U={problem.units}"
    )
    for name, value in expected.items():
        error = relative_error(actual[name], value, least)
        limit = bound or BOUNDS[dtype]
        assert error <= limit, f"{name} of {about}: {error:.2e}, at most {limit:.0e}"


@pytest.mark.parametrize("path", ("steps", "persistent"))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS)
def test_twenty_steps(engine, cell, dtype, path):
    problem = draw_problem(cell, 1, batch=6, steps=20, units=40)
    check(engine, problem, dtype, path)


@pytest.mark.parametrize("path", ("steps", "persistent"))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS)
def test_sizes(engine, cell, dtype, path):
    """Around a tile's units (8), its rows (32), and a chunk (16)."""
    for batch, units in ((1, 1), (2, 7), (15, 8), (17, 16), (33, 9), (3, 37), (1, 65)):
        problem = draw_problem(cell, 2, batch=batch, steps=3, units=units)
        # A few numbers may all be small where what they are the sum of is not.
        check(engine, problem, dtype, path, least=1.0)


@pytest.mark.parametrize("cell", CELLS)
def test_more_weights_than_registers_keep(engine, cell):
    problem = draw_problem(cell, 3, batch=2, steps=2, units=264)
    for path in ("steps", "persistent"):
        check(engine, problem, "float16", path)


@pytest.mark.parametrize("path", ("steps", "persistent"))
@pytest.mark.parametrize("mask", MASK_KINDS)
@pytest.mark.parametrize("cell", CELLS)
def test_options_in_combination(engine, cell, mask, path):
    for index, (reset, reverse, zero, dropout) in enumerate(
        itertools.product(*((False, True),) * 4)
    ):
        problem = draw_problem(
            cell,
            4 + index,
            batch=5,
            steps=5,
            units=11,
            mask=mask,
            reset=reset,
            dropout=dropout,
            reverse=reverse,
            zero_output_for_mask=zero,
            bias=index % 3 != 0,
        )
        dtype = ("float32", "float64", "float16", "bfloat16", "tf32")[index % 5]
        check(engine, problem, dtype, path, outputs=index % 2 == 0)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("cell", CELLS)
def test_activations(engine, cell, name):
    scale = 0.2 if name == "exponential" else 1.0
    for options in (
        {"activation": name},
        {"recurrent_activation": name, "activation": "softsign"},
    ):
        problem = draw_tame(
            cell, 5, 3e-5, batch=3, steps=2, units=9, scale=scale, **options
        )
        check(engine, problem, "float64")
        check(engine, problem, "float32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS)
def test_inputs_with_their_kernel(engine, cell, dtype):
    for features, mask in ((1, "none"), (5, "random"), (33, "right")):
        problem = draw_problem(
            cell, 6, batch=5, steps=3, units=12, features=features, mask=mask
        )
        check(engine, problem, dtype, joined=True)
        alone = rounded(problem, dtype)
        alone_results = cuda_calls.run_forward(
            engine, alone, dtype, save=False, joined=True
        )
        saving = cuda_calls.run_forward(engine, alone, dtype, joined=True)
        for name in ("outputs", "final_h", "last_output"):
            assert_same_bits(alone_results[name], saving[name], name)


@pytest.mark.parametrize("cell", CELLS)
def test_large_arguments_saturate(engine, cell):
    problem = draw_problem(cell, 7, batch=3, steps=4, units=9)
    problem = rounded(replace(problem, gates_x=problem.gates_x * 1e4), "float16")
    expected = cuda_calls.expected_results(problem)
    for dtype in ("float16", "float32"):
        actual = run(engine, problem, dtype)
        for name in expected:
            assert np.isfinite(actual[name]).all(), f"{name} {dtype}"
        for name in ("outputs", "last_output", "final_h"):
            error = relative_error(actual[name], expected[name])
            assert error <= BOUNDS[dtype], f"{name} {dtype}: {error:.2e}"


def test_gradients_too_large_for_half_become_infinite(engine):
    problem = draw_problem("lstm", 8, batch=2, steps=1, units=8)
    problem = replace(problem, grad_outputs=problem.grad_outputs * 0)
    problem = rounded(problem, "float16")
    # 60000 + 60000 is beyond half's range, though each is not.
    large = np.full_like(problem.grad_final_h, 60000.0)
    problem = replace(
        problem,
        grad_final_h=large,
        grad_last_output=large,
        gates_x=problem.gates_x * 0,
        grad_final_c=large,
        bias=None,
    )
    saved = cuda_calls.run_forward(engine, problem, "float16")
    grads = cuda_calls.run_backward(engine, problem, "float16", saved)
    expected = cuda_calls.expected_results(problem)["grad_initial_c"]
    assert (np.abs(expected) > 65520).any()
    beyond = np.abs(expected) > 65520
    assert np.isinf(grads["grad_initial_c"][beyond]).all()


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("batch", "steps"), ((0, 3), (2, 0), (0, 0)))
def test_empty(engine, cell, batch, steps):
    problem = draw_problem(cell, 9, batch=batch, steps=steps, units=5)
    for path in ("choose", "steps"):
        check(engine, problem, "float32", path)
        check(engine, problem, "float16", path, outputs=False)


# --- What the planner makes of a device ------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS)
def test_blocks_of_several_tiles(engine, cell, dtype):
    cuda_calls.set_device(engine, TINY)
    for batch, units in ((70, 40), (5, 90), (40, 17)):
        problem = draw_problem(
            cell, 10, batch=batch, steps=3, units=units, mask="random", reset=True
        )
        check(engine, problem, dtype, "persistent")
    assert engine.ecornn_emulation_cooperative_launches() == 6


@pytest.mark.parametrize("device", (H200, A100, T4), ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", ("float32", "float64", "float16", "tf32"))
def test_devices(engine, device, dtype):
    cuda_calls.set_device(engine, device)
    for units in (24, 200):
        problem = draw_problem("gru", 11, batch=3, steps=2, units=units)
        # TF32 needs tensor cores that a T4 lacks: exact float32 there.
        exact = dtype == "tf32" and device is T4
        check(engine, problem, dtype, bound=BOUNDS["float32"] if exact else None)


def test_one_cooperative_launch_a_sequence(engine):
    problem = rounded(draw_problem("lstm", 12, batch=4, steps=9, units=24), "float16")
    cuda_calls.run_forward(engine, problem, "float16")
    assert engine.ecornn_emulation_cooperative_launches() == 1
    # The packing of the weights, and the sequence.
    assert engine.ecornn_emulation_launches() == 2


def test_without_cooperative_launches(engine):
    cuda_calls.set_device(engine, replace(H200, cooperative=False))
    problem = draw_problem("lstm", 13, batch=4, steps=3, units=24)
    check(engine, problem, "float32")
    assert engine.ecornn_emulation_cooperative_launches() == 0
    with pytest.raises(CudaError, match="invalid"):
        cuda_calls.run_forward(engine, problem, "float32", "persistent")


def test_steps_that_no_row_takes_need_no_exchange(engine):
    """Three of twelve steps valid: as many barriers as three steps have."""
    problem = rounded(draw_problem("lstm", 14, batch=4, steps=12, units=24), "float16")
    mask = np.zeros((4, 12), bool)
    mask[:, 4:7] = True
    counts = []
    for kept in (np.ones((4, 3), bool), mask):
        engine.ecornn_emulation_reset()
        steps = kept.shape[1]
        part = replace(
            problem,
            mask=kept,
            gates_x=problem.gates_x[:, :steps],
            grad_outputs=problem.grad_outputs[:, :steps],
        )
        cuda_calls.run_forward(engine, part, "float16", "persistent")
        blocks = engine.ecornn_emulation_blocks()
        counts.append(engine.ecornn_emulation_block_barriers() / blocks)
    # A skipped step has one, to mark the rows.
    assert counts[1] <= counts[0] + 9


# --- Bits ------------------------------------------------------------------


def _both(engine, problem, dtype, path):
    saved = cuda_calls.run_forward(engine, problem, dtype, path)
    return saved, cuda_calls.run_backward(engine, problem, dtype, saved, path)


@pytest.mark.parametrize("path", ("steps", "persistent"))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS)
def test_same_bits_again_and_for_rows_alone(engine, cell, dtype, path):
    problem = rounded(
        draw_problem(
            cell,
            15,
            batch=9,
            steps=4,
            units=21,
            mask="random",
            reset=True,
            dropout=True,
        ),
        dtype,
    )
    first = _both(engine, problem, dtype, path)
    engine.ecornn_emulation_set_seed(99)
    again = _both(engine, problem, dtype, path)
    rows = [2, 7]
    alone = _both(engine, problem.rows(rows), dtype, path)
    inputs = {"scratch", "mask", "reset", "recurrent_dropout", "recurrent_kernel"}
    for one, two, part in zip(first, again, alone, strict=True):
        for name in one.keys() - inputs:
            assert_same_bits(one[name], two[name], name)
            if one[name].shape[:1] == (9,):
                assert_same_bits(one[name][rows], part[name], f"rows of {name}")


# --- Synchronisation -------------------------------------------------------


def _exercise(engine, seed):
    """Cases that between them need every synchronisation of the kernels."""
    engine.ecornn_emulation_set_seed(seed)
    cuda_calls.set_device(engine, TINY)
    # Steps that none of the first rows takes, between others.
    mask = np.ones((40, 5), bool)
    mask[:32, 1:4] = False
    mask[3, 4] = False
    for cell, dtype in (("lstm", "float32"), ("gru_before", "float16")):
        problem = draw_problem(cell, 16, batch=40, steps=5, units=40)
        check(engine, replace(problem, mask=mask), dtype, "persistent")
        check(engine, problem, dtype, "persistent")


def _sync_points():
    text = (cuda_calls.cuda_on_cpu.ROOT / "cuda" / "sync_point.h").read_text()
    body = text.split("enum class SyncPoint : int {")[1].split("}")[0]
    return [line.split(",")[0].strip() for line in body.splitlines() if "," in line]


def test_exercise_passes(engine):
    _exercise(engine, seed=0)


@pytest.mark.parametrize("point", _sync_points())
def test_every_synchronisation_is_needed(engine, point):
    """Without it, the emulation reports a fault or results are wrong."""
    index = _sync_points().index(point)
    engine.ecornn_emulation_disable(index)
    assert engine.ecornn_emulation_sync_point_name(index).decode() == point
    with pytest.raises((CudaError, AssertionError)) as caught:
        for seed in range(4):
            _exercise(engine, seed)
    print(f"without {point}: {str(caught.value).splitlines()[0][:300]}")
