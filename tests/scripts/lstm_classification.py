"""The LSTM classification benchmark: one LSTM layer and a sigmoid unit.

python lstm_classification.py
python lstm_classification.py --samples 937 --units 1000 --epochs 100
"""

import argparse
import sys

import keras
import keras.layers as L
import numpy as np


def waves(samples, timesteps):
    """Sines of random phase in noise; class 1 has three periods, class 0 two."""
    rng = np.random.default_rng(20)
    labels = rng.permutation(np.arange(samples) % 2).astype("float32")
    time = np.linspace(0.0, 2.0 * np.pi, timesteps)
    phases = rng.uniform(0.0, 2.0 * np.pi, samples)
    x = np.sin((2.0 + labels[:, None]) * time + phases[:, None])
    x += 0.3 * rng.standard_normal(x.shape)
    return x.astype("float32")[:, :, None], labels[:, None]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--timesteps", type=int, default=50)
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()

    keras.utils.set_random_seed(3)
    x, y = waves(args.samples, args.timesteps)
    model = keras.Sequential(
        [keras.Input(x.shape[1:]), L.LSTM(args.units), L.Dense(1, "sigmoid")]
    )
    model.compile(
        keras.optimizers.Adam(0.001), "binary_crossentropy", metrics=["accuracy"]
    )
    history = model.fit(
        x, y, batch_size=args.batch_size, epochs=args.epochs, verbose=2
    ).history
    print("final loss", repr(history["loss"][-1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
