"""Named sets of cases."""

from __future__ import annotations

from benchmarks.bars import BARS
from benchmarks.works import Case, Work

Cases = tuple[Case, ...]


def _cases(kind: str, *names: str) -> Cases:
    return tuple(Case(Work.parse(name), kind) for name in names)


def _union(*sets: Cases) -> Cases:
    return tuple(dict.fromkeys(case for cases in sets for case in cases))


# What the field measures and real uses have: the classification benchmark
# (U=1000), middling, small, long and large batches, every cell, type and option.
BASELINES = (
    *_cases(
        "training",
        "u1000-b100-t100-f1",
        "u1000-b100-t100-f1-bf16",
        "u1000-b100-t100-f1-fp16",
        "u128-b64-t100-f32",
        "u128-b64-t100-f32-bf16",
        "u128-b64-t100-f32-fp16",
        "u128-b64-t100-f32-rdrop",
        "u128-b64-t100-f32-masked",
        "u128-b64-t100-f32-bidi",
        "gru-u128-b64-t100-f32",
        "gru-u128-b64-t100-f32-before",
        "u32-b32-t100-f8",
        "u64-b16-t2000-f8",
        "u64-b1024-t50-f16",
        "u128-b32-t200-f128",
        "u256-b64-t32-f256-l2",
        "gru-u256-b64-t32-f256-l2",
    ),
    *_cases(
        "inference",
        "u1000-b100-t100-f1",
        "u128-b64-t100-f32",
        "u32-b32-t100-f8",
        "u128-b1-t100-f32",
        "u1000-b1-t100-f1",
    ),
    *_cases("decode", "u256-b1-t1-f256"),
)

# haste's grid of batches N and input sizes C at T=50, with as many units as inputs.
HASTE_BATCHES = (1, 16, 32, 64, 128)
HASTE_SIZES = (64, 128, 256, 512)
HASTE = _cases(
    "training",
    *(f"u{c}-b{n}-t50-f{c}" for n in HASTE_BATCHES for c in HASTE_SIZES),
)

# dlbench's language model, and the word model of EcoRNN's paper.
DLBENCH = _cases(
    "training",
    *(
        f"u256-b{batch}-t{steps}-f256-l2-v10000"
        for steps in (32, 64)
        for batch in (128, 256, 512, 1024)
    ),
    "u650-b32-t35-f650-l2-v10000",
)

MORE = (
    *_cases(
        "training",
        "u512-b64-t100-f512-l4",
        "u320-b64-t100-f125",
        "gru-u1000-b100-t100-f1",
        "gru-u128-b64-t100-f32-masked",
        "gru-u128-b64-t100-f32-bf16",
    ),
    *_cases("inference", "gru-u128-b64-t100-f32", "gru-u128-b1-t100-f32"),
    *_cases("decode", "u256-b64-t1-f256", "u1000-b1-t1-f1000", "gru-u256-b1-t1-f256"),
)

QUICK = (
    *_cases(
        "training",
        "u128-b64-t100-f32",
        "u128-b64-t100-f32-bf16",
        "u128-b64-t100-f32-masked",
        "gru-u128-b64-t100-f32",
        "u32-b32-t100-f8",
    ),
    *_cases("inference", "u128-b64-t100-f32"),
    *_cases("decode", "u256-b1-t1-f256"),
)

_BARS = _union(tuple(bar.case for bar in BARS))
SETS: dict[str, Cases] = {
    "bars": _BARS,
    "baselines": BASELINES,
    "haste": HASTE,
    "dlbench": DLBENCH,
    "quick": QUICK,
    "all": _union(_BARS, BASELINES, HASTE, DLBENCH, MORE),
}

# Works whose peak training memory is measured.
MEMORY_WORKS = tuple(map(Work.parse, ("u256-b64-t400-f64", "u1000-b100-t100-f1")))
QUICK_MEMORY_WORKS = tuple(map(Work.parse, ("u128-b64-t200-f64",)))
