"""Time series to classify: two real data sets and a synthetic one.

The real ones are small, univariate and have two classes. They ship inside the
sktime package, so nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

DATA_SETS = ("italy_power_demand", "gunpoint", "synthetic")
TEST_SHARE = 0.2
# The split belongs to the data set: it stays when --seed changes.
SPLIT_SEED = 20


@dataclass(frozen=True)
class DataSet:
    """Float32 inputs (cases, steps, features) and labels.

    Labels are float32 (cases, 1) of 0 and 1, or int32 (cases,) class numbers.
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    # Steps of the shortest and the longest case, where cases are padded to one length.
    lengths: tuple[int, int] | None = None

    def describe(self) -> dict[str, Any]:
        """Name and sizes, ready for JSON."""
        cases, timesteps, features = self.x_train.shape
        sizes = {
            "name": self.name,
            "train_cases": cases,
            "test_cases": len(self.x_test),
            "timesteps": timesteps,
            "features": features,
        }
        return sizes | ({"lengths": self.lengths} if self.lengths else {})

    def title(self) -> str:
        """Name and sizes in words."""
        cases, timesteps, features = self.x_train.shape
        steps = "{} to {}".format(*self.lengths) if self.lengths else timesteps
        return f"{self.name}: {cases} × {steps} steps × {features}"


def load(name: str, samples: int, timesteps: int, features: int) -> DataSet:
    """Loads one of DATA_SETS; the sizes are for "synthetic" only.

    Raises:
        ModuleNotFoundError: sktime or scikit-learn is needed and missing.
    """
    if name == "synthetic":
        return _synthetic(samples, timesteps, features)
    return _from_sktime(name)


def _from_sktime(name: str) -> DataSet:
    from sklearn.model_selection import train_test_split
    from sktime import datasets

    loader = getattr(datasets, f"load_{name}")
    # The archive's own split leaves 67 (italy_power_demand) and 50 (gunpoint)
    # cases for training, so both parts are merged and split again.
    x, labels = loader(split=None, return_X_y=True, return_type="numpy3D")
    x = x.transpose(0, 2, 1).astype("float32")  # (cases, steps, features)
    y = (labels == np.unique(labels)[-1]).astype("float32")[:, None]
    x_train, x_test, y_train, y_test = train_test_split(
        x, y, test_size=TEST_SHARE, stratify=y, random_state=SPLIT_SEED
    )
    return DataSet(name, x_train, y_train, x_test, y_test)


def _synthetic(samples: int, timesteps: int, features: int) -> DataSet:
    """`samples` training cases, and a fifth more (at least two) to test on.

    A case is a sine of random phase in noise, two or three periods long
    according to its class.
    """
    rng = np.random.default_rng(SPLIT_SEED)
    test = max(2, round(samples * TEST_SHARE))
    cases = samples + test
    y = rng.permutation(np.arange(cases) % 2)[:, None]
    time = np.linspace(0.0, 2.0 * np.pi, timesteps)
    phase = rng.uniform(0.0, 2.0 * np.pi, (cases, 1))
    wave = np.sin((2 + y) * time + phase)[:, :, None]
    x = wave * rng.uniform(0.5, 1.5, features)
    x += 0.3 * rng.standard_normal(x.shape)
    x, y = x.astype("float32"), y.astype("float32")
    return DataSet("synthetic", x[:samples], y[:samples], x[samples:], y[samples:])
