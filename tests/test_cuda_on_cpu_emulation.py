"""The emulation of a GPU on the CPU, by kernels of its own: what it lets pass, what
it finds, and the values of its tensor cores and conversions."""

import ctypes
import re
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "cc"))

from buildtools import cuda_on_cpu  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (ROOT / "cuda").exists() or shutil.which("g++") is None,
    reason="the source folder or a compiler is not here",
)

COUNT = 1024
INVALID_CONFIGURATION, LAUNCH_FAILURE, TOO_LARGE, NOT_SUPPORTED = 9, 719, 720, 801
SEEDS = range(1, 6)

# What the kernels leave in their array of ones, where that says something.
PASSING = {
    "PointPastTheEnd": None,
    "ReadZeroedScratch": None,
    "ReadWithBarrier": None,
    "WarpBarrierWithinWarps": None,
    "AnyIsABarrier": np.where(np.arange(COUNT) < 64, 3.0, 1.0),
    # Six rounds of eight blocks, each with 100 * round + its index.
    "NarrowNeighbours": np.where(
        np.arange(COUNT) < 32, np.array(0x3C000000, np.uint32).view(np.float32), 1.0
    ),
    "HalvesAfterAllHaveRead": None,
    "PingPong": np.where(np.arange(COUNT) < 512, 100 * 8 * 15 + 6 * 28, 1.0),
    "EachThreadFences": np.where(np.arange(COUNT) < 512, 100 * 8 * 15 + 6 * 28, 1.0),
    "AllReadOneArray": None,
    "ProductOfOnes": np.where(np.arange(COUNT) < 256, 32.0, 1.0),
    "TensorFloat": None,
}

# What the text of each fault says, of what and where.
FAULTS = {
    "ReadPastTheEnd": "thread 31 reads 1 element(s) from number 1024 on of the 1024 "
    "of 4 bytes at array + 0",
    "WriteBeforeTheBegin": "writes 1 element(s) from number -1 on",
    "ReadNull": "reads through a null pointer",
    "TakeTooMuch": "takes 4100 bytes of global memory from array + 0",
    "TakeTooMuchShared": "takes 52 bytes of shared memory from 16 on; the block has 64",
    "ReadPastTheEndOfShared": "writes 1 element(s) from number 4 on of the 4",
    "ReadVectorPastTheEnd": "reads 4 element(s) from number 4 on of the 6",
    "MisalignedVector": "shared memory + 8, which is not aligned to 16 bytes",
    "WriteByte": "writes 1 byte(s) of global memory",
    "ReadUnwrittenShared": ", which nobody in the block wrote",
    "ReadOthersShared": ", which nobody in the block wrote",
    "ReadUnwrittenScratch": "reads scratch + 4092, which nobody wrote",
    "ReadPartlyWrittenScratch": "reads scratch + 4088, which nobody wrote",
    "WriteOneForAll": "writes shared memory + 0, which thread ",
    "ReadWithoutBarrier": "shared memory + ",
    "WriteWithoutBarrierAfterRead": "with no barrier between",
    "WarpBarrierAcrossWarps": "",
    "HalfOfAnothersWord": "",
    "HalfOfAnothersGlobalWord": "array + ",
    "HalvesBeforeAllHaveRead": "",
    "GlobalRaceInBlock": "of its block wrote with no barrier between",
    "NoBarrierBeforePublishing": "",
    "NoFenceBeforeArrival": "reads scratch + ",
    "NoFenceAfterArrival": "this thread does not know it from a counter",
    "NoBarrierAfterArrival": "",
    "NoWaiting": "",
    "OneBuffer": "writes scratch + ",
    "OwnCacheRead": "LoadVectorL2 passes it by",
    "ShareArray": "only working memory may be shared between blocks",
    "ReadSharedArray": "reads array + 28, which block 0's thread 0 wrote in the same "
    "launch; only working memory",
    "ScratchWithoutOrder": "no fence of that block has come after that yet",
    "CounterNeverArrives": "deadlock",
    "HalfTheBlockAtABarrier": "a barrier that only some of a block's threads come to",
    "TwoBarriersAtOnce": "where others of its block wait at another barrier",
    "HalfTheWarpAtABarrier": "deadlock",
    "WaitInOrdinaryLaunch": "deadlock",
    "LoadByHalfAWarp": "deadlock",
    "LoadWithTwoStrides": "calls load_matrix_sync with other arguments",
    "TwoCallsInOneWarp": "",
    "HalfAWarpOfThreads": "store_matrix_sync in a warp of 16 lanes",
    "MisalignedTile": "is not aligned to 32 bytes",
    "OddStride": "with lines 20 elements apart",
    "TilePastTheEnd": "reads 16 element(s) from number 512 on of the 512",
    "UnloadedFragment": "a fragment that nobody loaded or filled",
    "StagedWithoutBarrier": "with no barrier between",
    "RestagedWithoutBarrier": "lanes of warp 0 of its block read with no barrier",
    "StoredWithoutBarrier": "lanes of warp 0 of its block wrote with no barrier",
    "UnroundedTensorFloat": "1.10000002 in tensor cores, which is not rounded to TF32",
}


class Library:
    """The emulation with its own kernels; a device of its own for each test."""

    def __init__(self, path):
        self.c = ctypes.CDLL(str(path))
        for name in ("self_test_case_name", "self_test_error_text"):
            getattr(self.c, name).restype = ctypes.c_char_p
        for name in ("error", "sync_point_name"):
            getattr(self.c, f"ecornn_emulation_{name}").restype = ctypes.c_char_p
        for name in ("launches", "cooperative_launches", "blocks", "block_barriers"):
            getattr(self.c, f"ecornn_emulation_{name}").restype = ctypes.c_int64
        self.c.ecornn_emulation_set_seed.argtypes = [ctypes.c_uint64]
        self.c.ecornn_emulation_set_device.argtypes = [
            ctypes.c_int,
            ctypes.c_size_t,
            *[ctypes.c_int] * 3,
        ]
        self.c.self_test_run.argtypes = [
            ctypes.c_char_p,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int,
            ctypes.c_int64,
        ]
        self.c.self_test_product.argtypes = [
            *[ctypes.c_int] * 3,
            *[ctypes.c_void_p] * 3,
            ctypes.c_int64,
        ]
        self.c.self_test_convert.argtypes = [
            ctypes.c_int,
            *[ctypes.c_void_p] * 2,
            ctypes.c_int64,
        ]

    def run(self, name, seed=1, blocks=0, threads=0, shared_bytes=0):
        """Returns the error, its text and what is left in the array."""
        self.c.ecornn_emulation_set_seed(seed)
        array = aligned(COUNT, np.float32)
        error = self.c.self_test_run(
            name.encode(), array.ctypes.data, blocks, threads, shared_bytes
        )
        assert error != -1, f"no kernel {name}"
        return error, self.c.self_test_error_text(error).decode(), array

    def point(self, name):
        count = self.c.ecornn_emulation_sync_points()
        names = [self.c.ecornn_emulation_sync_point_name(i) for i in range(count)]
        return names.index(name.encode())


def aligned(count, dtype):
    """Zeros that begin at a multiple of 256 bytes, as memory of a GPU does."""
    size = count * np.dtype(dtype).itemsize
    memory = np.zeros(size + 256, np.uint8)
    begin = -memory.ctypes.data % 256
    return memory[begin : begin + size].view(dtype)


def like(values):
    array = aligned(values.size, values.dtype)
    array[:] = values.ravel()
    return array.reshape(values.shape)


@pytest.fixture(scope="module")
def built():
    try:
        return Library(cuda_on_cpu.build_self_test())
    except SystemExit as refusal:
        pytest.fail(f"the kernels were not built: {refusal}")


@pytest.fixture
def library(built):
    built.c.ecornn_emulation_reset()
    yield built
    built.c.ecornn_emulation_reset()


def test_every_kernel_has_its_verdict(library):
    names = [
        library.c.self_test_case_name(i).decode()
        for i in range(library.c.self_test_cases())
    ]
    assert sorted(names) == sorted([*PASSING, *FAULTS])


@pytest.mark.parametrize("name", PASSING)
def test_what_is_right_passes(library, name):
    for seed in SEEDS:
        error, text, array = library.run(name, seed)
        assert error == 0, f"seed {seed}: {text}"
        if PASSING[name] is not None:
            np.testing.assert_array_equal(array, PASSING[name], f"seed {seed}")


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_found(library, name):
    for seed in SEEDS:
        error, text, _ = library.run(name, seed)
        assert error == LAUNCH_FAILURE, f"seed {seed}: error {error}, {text}"
        assert FAULTS[name] in text, f"seed {seed}: {text}"
        assert f"self_test::{name}(" in text, "the kernel's name"
        assert library.c.ecornn_emulation_error().decode() == text


def test_a_fault_leaves_nothing_behind(library):
    """Neither threads nor marks of a launch that was given up reach the next."""
    for name in FAULTS:
        library.run(name)
        error, text, array = library.run("PingPong")
        assert error == 0, f"after {name}: {text}"
        np.testing.assert_array_equal(array, PASSING["PingPong"], f"after {name}")


@pytest.mark.parametrize(
    "kernel, point",
    [
        ("PingPong", "kPublished"),
        ("PingPong", "kPublishFence"),
        ("PingPong", "kArrivalFence"),
        ("PingPong", "kArrived"),
        ("EachThreadFences", "kPublishFence"),
        ("EachThreadFences", "kArrivalFence"),
        ("EachThreadFences", "kArrived"),
        ("ReadWithBarrier", "kPartsReady"),
        ("ReadWithBarrier", "kPartsRead"),
        ("WarpBarrierWithinWarps", "kStaged"),
        ("WarpBarrierWithinWarps", "kStageRead"),
        ("AnyIsABarrier", "kRowsMarked"),
        ("ProductOfOnes", "kStaged"),
    ],
)
def test_a_point_taken_out_is_missed(library, kernel, point):
    library.c.ecornn_emulation_disable(library.point(point))
    for seed in SEEDS:
        error, text, _ = library.run(kernel, seed)
        assert error == LAUNCH_FAILURE, f"seed {seed}: error {error}, {text}"
    library.c.ecornn_emulation_disable(-1)
    assert library.run(kernel)[0] == 0


def test_deadlock_tells_who_waits_where(library):
    _, text, _ = library.run("CounterNeverArrives", blocks=3)
    assert text.count("block ") >= 3
    assert "31 threads (1-31) wait at BlockBarrier(kArrived) at block_cases.cu:" in text
    _, text, _ = library.run("HalfTheBlockAtABarrier")
    assert "40 threads (0-39) wait at BlockBarrier(kPartsReady)" in text
    assert "24 threads (40-63) ended" in text


def test_counts(library):
    for _ in range(3):
        assert library.run("PingPong")[0] == 0
    assert library.run("ReadZeroedScratch")[0] == 0
    c = library.c
    assert c.ecornn_emulation_launches() == 4
    assert c.ecornn_emulation_cooperative_launches() == 3
    assert c.ecornn_emulation_blocks() == 3 * 8 + 1
    assert c.ecornn_emulation_block_barriers() == 3 * 8 * 6 * 2
    c.ecornn_emulation_reset()
    assert c.ecornn_emulation_launches() == 0


def test_a_seed_repeats_and_another_does_not(library):
    """ReadWithoutBarrier's fault tells which thread came first."""
    texts = [library.run("ReadWithoutBarrier", seed)[1] for seed in (7, 7, *range(20))]
    assert texts[0] == texts[1]
    found = {text.partition("): ")[2] for text in texts}
    assert len(found) > 5, "the order of threads hardly changes"


def test_environment(library, monkeypatch):
    array = aligned(COUNT, np.float32)
    monkeypatch.setenv("ECORNN_EMULATION_SEED", "1234")
    monkeypatch.setenv("ECORNN_EMULATION_DISABLE", "kArrivalFence")
    monkeypatch.setenv("ECORNN_EMULATION_LINES", "1")
    library.c.ecornn_emulation_reset()
    error = library.c.self_test_run(b"PingPong", array.ctypes.data, 0, 0, 0)
    text = library.c.self_test_error_text(error).decode()
    assert error == LAUNCH_FAILURE
    assert "seed 1234, its launch 0" in text
    if shutil.which("addr2line"):
        assert re.search(r"SumOfAll at block_cases\.cu:\d+", text), text


def test_launches_that_the_device_refuses(library):
    set_device = library.c.ecornn_emulation_set_device
    assert library.run("PingPong", threads=1025)[0] == INVALID_CONFIGURATION
    # 128 registers a thread: two blocks of 256 threads on a multiprocessor.
    set_device(2, 227 * 1024, 9, 0, 1)
    assert library.run("PingPong", blocks=4, threads=256)[0] == 0
    error, text, _ = library.run("PingPong", blocks=5, threads=256)
    assert (error, text) == (TOO_LARGE, "too many blocks in cooperative launch")
    # Shared memory for one block on a multiprocessor.
    half = 114 * 1024
    assert library.run("PingPong", blocks=2, threads=64, shared_bytes=half)[0] == 0
    error, _, _ = library.run("PingPong", blocks=3, threads=64, shared_bytes=half)
    assert error == TOO_LARGE
    error, text, _ = library.run("ReadZeroedScratch", shared_bytes=228 * 1024)
    assert (error, text) == (1, "invalid argument")
    set_device(2, 64 * 1024, 6, 1, 0)
    assert library.run("PingPong")[0] == NOT_SUPPORTED
    assert library.run("ReadZeroedScratch")[0] == 0


def test_tensor_cores_of_older_devices(library):
    library.c.ecornn_emulation_set_device(40, 64 * 1024, 7, 5, 1)
    assert library.run("ProductOfOnes")[0] == 0
    error, text, _ = library.run("TensorFloat")
    assert error == LAUNCH_FAILURE
    assert "compute capability 7.5 do not have" in text


def test_threads_of_the_host(library):
    """Launches of several threads take turns, each with its own memory and text."""
    wrong = []

    def work(name):
        for _ in range(10):
            error, text, array = library.run(name)
            if name in FAULTS:
                good = error == LAUNCH_FAILURE and FAULTS[name] in text
            else:
                good = error == 0 and (array == PASSING[name]).all()
            if not good:
                wrong.append(f"{name}: error {error}, {text}")

    names = ["PingPong", "OwnCacheRead", "ProductOfOnes", "ReadNull"]
    threads = [threading.Thread(target=work, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def bfloat16_bits(values):
    """float32 to the nearest bfloat16, ties to even; NaN as CUDA's."""
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


@pytest.mark.parametrize("row_major", [False, True])
@pytest.mark.parametrize(
    "type_, m, n, tolerance",
    [(t, m, 256 // m, 1e-6) for t in (0, 1) for m in (8, 16, 32)] + [(2, 16, 16, 1e-6)],
)
def test_products(library, type_, m, n, tolerance, row_major):
    rng = np.random.default_rng(m + type_)
    a = rng.normal(size=(m, 48)).astype(np.float32)
    b = rng.normal(size=(48, n)).astype(np.float32)
    if type_ == 0:
        a, b = (x.astype(np.float16) for x in (a, b))
        exact = [x.astype(np.float64) for x in (a, b)]
    elif type_ == 1:
        a, b = (bfloat16_bits(x) for x in (a, b))
        exact = [(x.astype(np.uint32) << 16).view(np.float32) for x in (a, b)]
    else:
        a, b = ((x.view(np.uint32) & 0xFFFFE000).view(np.float32) for x in (a, b))
        exact = [a, b]
    expected = exact[0].astype(np.float64) @ exact[1].astype(np.float64)
    left, right = like(a), like(b if row_major else np.ascontiguousarray(b.T))
    got = like(np.zeros((m, n) if row_major else (n, m), np.float32))
    pointers = [array.ctypes.data for array in (left, right, got)]
    error = library.c.self_test_product(type_, m, row_major, *pointers, 48)
    assert error == 0, library.c.self_test_error_text(error).decode()
    got = got if row_major else got.T
    worst = np.abs(got - expected).max() / np.abs(expected).max()
    assert worst < tolerance, f"off by {worst:.2e}"


def convert(library, kind, values, dtype):
    given, got = like(values), aligned(values.size, dtype)
    error = library.c.self_test_convert(
        kind, given.ctypes.data, got.ctypes.data, values.size
    )
    assert error == 0, library.c.self_test_error_text(error).decode()
    return got


def interesting_floats():
    """All exponents and signs, and around each bit that rounding looks at."""
    rng = np.random.default_rng(0)
    exponents = np.arange(256, dtype=np.uint32)[:, None] << 23
    fractions = [0, 1, 0x7FFFFF]
    for bit in (12, 13, 15, 16):
        tie = 1 << bit
        fractions += [tie - 1, tie, tie + 1, 3 * tie - 1, 3 * tie, 3 * tie + 1]
    fractions += [0x7FFFFF & ~((1 << bit) - 1) for bit in (12, 13, 15, 16)]
    fractions += list(rng.integers(0, 1 << 23, 40))
    bits = (exponents | np.array(fractions, np.uint32)).ravel()
    return np.concatenate([bits, bits | 0x80000000]).astype(np.uint32).view(np.float32)


def test_half(library):
    every = np.arange(1 << 16, dtype=np.uint16)
    wide = convert(library, 0, every, np.float32)
    np.testing.assert_array_equal(wide, every.view(np.float16).astype(np.float32))
    values = interesting_floats()
    got = convert(library, 1, values, np.uint16)
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16)
    assert np.isnan(got.view(np.float16)[np.isnan(values)]).all()
    kept = ~np.isnan(values)
    np.testing.assert_array_equal(got[kept], expected.view(np.uint16)[kept])


def test_bfloat16(library):
    every = np.arange(1 << 16, dtype=np.uint16)
    wide = convert(library, 2, every, np.uint32)
    np.testing.assert_array_equal(wide, every.astype(np.uint32) << 16)
    values = interesting_floats()
    got = convert(library, 3, values, np.uint16)
    np.testing.assert_array_equal(got, bfloat16_bits(values))


def test_tensor_float_32(library):
    """10 bits of fraction; ties go away from zero, as cvt.rna says."""
    values = interesting_floats()
    values = values[np.isfinite(values)]
    got = convert(library, 4, values, np.float32).astype(np.float64)
    with np.errstate(over="ignore"):
        _, exponents = np.frexp(values.astype(np.float64))
        # The last bit of the fraction; denormals have that of the least exponent.
        unit = np.ldexp(1.0, np.maximum(exponents - 1, -126) - 10)
        magnitude = np.floor(np.abs(values.astype(np.float64)) / unit + 0.5) * unit
    limit = np.float64(2.0) ** 128
    expected = np.where(magnitude >= limit, np.inf, magnitude) * np.sign(values)
    np.testing.assert_array_equal(got, expected)
