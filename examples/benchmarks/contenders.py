"""Who competes: ways to train and run the same network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.works import Case, Work

Limit = tuple[Callable[[Work], bool], str]  # a contender can't do such works: why


@dataclass(frozen=True)
class Contender:
    """A variant of a backend's network (keras_net.py, torch_net.py), and its place.

    Attributes:
        ours: uses tf_ecornn.
        special: takes part only in cases that name it.
        threads: of a process of its own; None: as many as all others.
        environment: variables of a process of its own.
    """

    name: str
    label: str
    backend: str
    variant: str
    limits: tuple[Limit, ...] = ()
    ours: bool = False
    special: bool = False
    threads: int | None = None
    environment: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_torch(self) -> bool:
        return self.backend == "torch_net"

    @property
    def own_process(self) -> bool:
        return self.is_torch or bool(self.environment) or self.threads is not None

    def cannot(self, case: Case) -> str | None:
        """Why it can't do the work of a case; None if it can."""
        return next((why for applies, why in self.limits if applies(case.work)), None)

    def follows(self, case: Case) -> bool:
        """Whether its first result must be that of stock Keras.

        Weights are the same under Keras; XLA draws other dropout masks.
        """
        return not self.is_torch and not (
            case.work.dropped and self.variant == "keras_xla"
        )


_BLOCK = (
    (lambda work: work.cell != "lstm", "LSTM only"),
    (lambda work: work.policy == "mixed_bfloat16", "no bfloat16"),
    (lambda work: work.masked, "no mask"),
    (lambda work: work.dropped, "no recurrent dropout"),
)
_TORCH = (
    # Outside oneDNN a float16 step takes seconds; autocast to it is an error.
    (lambda work: work.policy == "mixed_float16", "no float16 in oneDNN's LSTM"),
    (lambda work: work.reset_before, "resets after only"),
    (lambda work: work.dropped, "no recurrent dropout"),
)
_TORCH_PURE = (
    (lambda work: work.policy != "mixed_bfloat16", "bfloat16 only"),
    *_TORCH,
)
_AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "TF_ECORNN_ISA": "avx2"}

CONTENDERS = (
    Contender("keras", "Keras", "keras_net", "keras"),
    Contender("keras_xla", "Keras, XLA", "keras_net", "keras_xla"),
    Contender("block", "BlockLSTMV2", "keras_net", "block", _BLOCK),
    Contender("torch", "PyTorch", "torch_net", "torch", _TORCH),
    Contender("torch_pure", "PyTorch, pure", "torch_net", "torch_pure", _TORCH_PURE),
    Contender("ecornn", "tf_ecornn", "keras_net", "ecornn", ours=True),
    Contender(
        "ecornn_1thread",
        "tf_ecornn, 1 thread",
        "keras_net",
        "ecornn",
        ours=True,
        special=True,
        threads=1,
    ),
    *(
        Contender(
            f"{variant}_avx2",
            f"{label}, AVX2",
            "keras_net",
            variant,
            ours=variant == "ecornn",
            special=True,
            environment=_AVX2,
        )
        for variant, label in (("keras", "Keras"), ("ecornn", "tf_ecornn"))
    ),
)
OURS = "ecornn"
PEERS = tuple(one.name for one in CONTENDERS if not one.ours and not one.special)


def find(name: str) -> Contender:
    """The contender of this name."""
    return next(one for one in CONTENDERS if one.name == name)
