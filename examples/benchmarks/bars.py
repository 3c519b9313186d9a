"""How much faster than all others we want to be, work by work."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.contenders import OURS, PEERS
from benchmarks.works import Case, Work


@dataclass(frozen=True)
class Bar:
    """The least ratio of the fastest of `against` to `ours`."""

    case: Case
    least: float
    ours: str = OURS
    against: tuple[str, ...] = PEERS


def _bars(kind: str, least: dict[str, float], *contenders) -> tuple[Bar, ...]:
    return tuple(
        Bar(Case(Work.parse(name), kind), ratio, *contenders)
        for name, ratio in least.items()
    )


BARS = (
    *_bars(
        "training",
        {
            "u1000-b100-t100-f1": 1.45,
            "u1000-b100-t100-f1-bf16": 1.45,
            "u1000-b100-t100-f1-fp16": 1.7,
            "u256-b64-t32-f256-l2": 1.45,
            "u128-b64-t100-f32": 2.4,
            "u128-b64-t100-f32-bf16": 1.6,
            "u128-b64-t100-f32-fp16": 2.3,
            "u128-b64-t100-f32-rdrop": 2.0,
            "u128-b64-t100-f32-masked": 3.5,
            "u32-b32-t100-f8": 2.0,
            "u64-b16-t2000-f8": 3.5,
            "u64-b1024-t50-f16": 1.8,
            "gru-u128-b64-t100-f32": 2.1,
        },
    ),
    *_bars(
        "inference",
        {
            "u1000-b100-t100-f1": 1.15,
            "u128-b64-t100-f32": 1.2,
            "u32-b32-t100-f8": 1.2,
            "u128-b1-t100-f32": 1.3,
        },
    ),
    # Two threads against one.
    *_bars("inference", {"u1000-b1-t100-f1": 1.6}, OURS, ("ecornn_1thread",)),
    # Both sides without AVX-512.
    *_bars(
        "training",
        {"u128-b64-t100-f32": 1.3, "u1000-b100-t100-f1": 1.3},
        "ecornn_avx2",
        ("keras_avx2",),
    ),
)


def specials(case: Case) -> set[str]:
    """Contenders that the bars of a case name."""
    return {
        name for bar in BARS if bar.case == case for name in (bar.ours, *bar.against)
    }
