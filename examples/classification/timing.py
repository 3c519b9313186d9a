"""Measures a call of `model.fit`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

# Called with the steps done and the mean loss of the epoch so far: at the start
# (0 and None) and after every step.
Show = Callable[[int, float | None], None]


@dataclass(frozen=True)
class Score:
    """Loss and accuracy of the trained model on one part of the data."""

    loss: float
    accuracy: float


@dataclass(frozen=True)
class Curve:
    """A learning curve: loss and accuracy in training, as Keras reports them."""

    seconds: list[float] = field(default_factory=list)  # since the start
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)

    def add(self, seconds: float, logs: dict[str, Any]) -> None:
        """Appends a point."""
        self.seconds.append(seconds)
        self.losses.append(float(logs["loss"]))
        self.accuracies.append(float(logs["accuracy"]))


@dataclass(frozen=True)
class Times:
    """Times in seconds and curves of one training run.

    The run starts where `fit` is called and ends where it returns, so `elapsed`
    includes tracing; only `step*` and `samples_per_s` leave out the first step,
    in which the tracing happens.
    """

    elapsed: float
    first_step: float
    # Of full batches; None if there was only the first step.
    step: float | None
    step_quartiles: tuple[float, float] | None
    # Over everything after the first step, Keras's own work included.
    samples_per_s: float | None
    epochs: list[float]
    curve: Curve  # a point for each epoch
    # A point for each step of the first epoch: the means over the epoch so far.
    first_epoch: Curve

    @property
    def epoch(self) -> float:
        """Mean time of an epoch, the first included."""
        return float(np.mean(self.epochs))


@dataclass(frozen=True)
class Run:
    """One layer's training run."""

    layer: str
    fused: bool | None
    parameters: int
    times: Times
    train: Score
    test: Score


class Stopwatch(keras.callbacks.Callback):
    """Callback for `fit`, and a context that encloses the call."""

    def __init__(self, samples: int, batch_size: int, show: Show | None = None):
        super().__init__()
        self._samples = samples
        self._batch_size = batch_size
        self._show = show
        self._steps: list[float] = []
        self._is_full: list[bool] = []
        self._epoch_start = 0.0
        self._epochs: list[float] = []
        self._curve = Curve()
        self._first_epoch = Curve()
        self._start = self._stop = self._step_start = self._first_step_end = 0.0

    def __enter__(self) -> Stopwatch:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = time.perf_counter()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self._show:
            self._show(0, None)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch_start = time.perf_counter()

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._step_start = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any]) -> None:
        loss = float(logs["loss"])  # waits for the step on devices that run ahead
        now = time.perf_counter()
        if not self._steps:
            self._first_step_end = now
        self._steps.append(now - self._step_start)
        self._is_full.append((batch + 1) * self._batch_size <= self._samples)
        if not self._epochs:
            self._first_epoch.add(now - self._start, logs)
        if self._show:
            self._show(len(self._steps), loss)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        now = time.perf_counter()
        self._epochs.append(now - self._epoch_start)
        self._curve.add(now - self._start, logs)

    def times(self) -> Times:
        """What was measured; call after the context has ended."""
        later = list(zip(self._steps, self._is_full, strict=True))[1:]
        full = [step for step, is_full in later if is_full]
        full = full or [step for step, _ in later]
        first_batch = min(self._batch_size, self._samples)
        rest = self._samples * len(self._epochs) - first_batch
        seconds = self._stop - self._first_step_end
        return Times(
            elapsed=self._stop - self._start,
            first_step=self._steps[0],
            step=float(np.median(full)) if full else None,
            step_quartiles=tuple(np.quantile(full, (0.25, 0.75)).tolist())
            if full
            else None,
            samples_per_s=rest / seconds if rest else None,
            epochs=self._epochs,
            curve=self._curve,
            first_epoch=self._first_epoch,
        )
