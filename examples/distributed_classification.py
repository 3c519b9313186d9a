"""The classification benchmark's model, trained on several devices or machines.

Every worker holds the model and takes its part of each batch; the gradients are
summed over all workers, by TensorFlow's own engine (`tf.distribute`). The weights
come out as one device would have them from the same batches, rounding aside.

One device, and two devices of one process (here two halves of the CPU):

    python examples/distributed_classification.py
    python examples/distributed_classification.py --devices 2

Two machines, or two processes of one: the same command on each, with its own number.
The first worker reports and saves. Each waits until all are there.

    python examples/distributed_classification.py --worker 0 --workers a:12345,b:12345
    python examples/distributed_classification.py --worker 1 --workers a:12345,b:12345

The training loop is written out, since `fit` of Keras 3 does not take several
machines. It is short, and it counts rows: the last batch of an epoch may be smaller,
and a worker may get none of it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

import tf_ecornn
from classification import command, data
from keras_lstm_classification import SYNTHETIC_SIZES, build_model


def make_strategy(
    devices: int, worker: int | None, workers: list[str]
) -> tf.distribute.Strategy:
    """How the work is shared out. To be called before TensorFlow does anything else.

    Args:
        devices: logical CPUs of this process.
        worker: this machine's number among several.
        workers: the addresses of all, host:port; empty for this process alone.
    """
    if workers:
        cluster = {"cluster": {"worker": workers}}
        task = {"task": {"type": "worker", "index": worker}}
        os.environ["TF_CONFIG"] = json.dumps(cluster | task)
        return tf.distribute.MultiWorkerMirroredStrategy()
    if devices > 1:
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * devices
        )
        return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)])
    return tf.distribute.get_strategy()


def batches(data_set: data.DataSet, batch_size: int, seed: int) -> tf.data.Dataset:
    """Endless epochs of shuffled batches of `batch_size` rows, all workers together."""
    pairs = (data_set.x_train, data_set.y_train)
    rows = tf.data.Dataset.from_tensor_slices(pairs)
    shuffled = rows.shuffle(len(data_set.x_train), seed=seed).batch(batch_size)
    options = tf.data.Options()
    # All workers make the same batches and each keeps its part.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    return shuffled.repeat().with_options(options)


def make_step(strategy: tf.distribute.Strategy, model: keras.Model):
    """A function that trains on an iterator's next batch and returns the mean loss."""
    variables = model.trainable_variables
    with strategy.scope():
        model.optimizer.build(variables)

    def on_one_device(x, y):
        replica = tf.distribute.get_replica_context()
        # Of the batch on all devices; here may be none.
        rows = replica.all_reduce("SUM", tf.cast(tf.shape(x)[0], x.dtype))
        with tf.GradientTape() as tape:
            losses = keras.losses.binary_crossentropy(y, model(x, training=True))
            loss = tf.reduce_sum(losses) / rows
        gradients = tape.gradient(loss, [v.value for v in variables])
        # Sums them over the devices.
        model.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    @tf.function
    def step(iterator):
        losses = strategy.run(on_one_device, args=next(iterator))
        return strategy.reduce("SUM", losses, axis=None)

    return step


def train(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    dataset: tf.data.Dataset,
    steps: int,
) -> tuple[list[float], float]:
    """Returns the loss of each step, and seconds a step without the first."""
    step = make_step(strategy, model)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    losses = [float(step(iterator))]
    start = time.perf_counter()
    losses += [float(step(iterator)) for _ in range(steps - 1)]
    return losses, (time.perf_counter() - start) / max(steps - 1, 1)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line; a bad one ends the program with status 2."""
    parser = argparse.ArgumentParser(
        description="Train the classification benchmark's model with tf_ecornn.LSTM "
        "on several devices or machines.",
    )
    add = parser.add_argument
    add(
        "--devices",
        type=command.positive,
        default=1,
        help="devices to make of this machine's CPU (default: 1)",
    )
    add("--worker", type=int, metavar="NUMBER", help="this machine's, from 0")
    add("--workers", default="", metavar="HOST:PORT,...", help="all machines")
    add(
        "--data",
        choices=data.DATA_SETS,
        default="italy_power_demand",
        help="default: italy_power_demand",
    )
    for size, default in SYNTHETIC_SIZES.items():
        add(
            f"--{size}",
            type=command.positive,
            default=default,
            help=f"with --data synthetic only (default: {default})",
        )
    add("--units", type=command.positive, default=64, help="default: 64")
    add("--steps", type=command.positive, default=200, help="default: 200")
    add(
        "--batch-size",
        type=command.positive,
        default=32,
        help="rows in a batch, of all devices together (default: 32)",
    )
    add("--seed", type=command.seed, default=0, help="weights, batches (default: 0)")
    add(
        "--save",
        type=command.output_path,
        metavar="PATH",
        help="write the weights to this .weights.h5 file",
    )
    args = parser.parse_args(arguments)
    args.workers = [address for address in args.workers.split(",") if address]
    if (args.worker is None) == bool(args.workers):
        parser.error("--worker and --workers go together")
    if args.workers and not 0 <= args.worker < len(args.workers):
        parser.error(f"argument --worker: not one of 0 to {len(args.workers) - 1}")
    if args.workers and args.devices > 1:
        parser.error("argument --devices: not with --workers")
    if args.save and not args.save.name.endswith(".weights.h5"):
        parser.error(f"argument --save: {args.save} does not end in .weights.h5")
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; returns the exit status."""
    args = parse(arguments)
    strategy = make_strategy(args.devices, args.worker, args.workers)
    data_set = data.load(args.data, args.samples, args.timesteps, args.features)
    # The same weights everywhere.
    keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = build_model(tf_ecornn.LSTM, args.units, data_set)
    dataset = batches(data_set, args.batch_size, args.seed)
    losses, seconds = train(strategy, model, dataset, args.steps)
    if args.worker:
        print(f"worker {args.worker}: done")
        return 0
    right = (model(data_set.x_test).numpy() > 0.5) == (data_set.y_test > 0.5)
    print(f"{data_set.title()}, {strategy.num_replicas_in_sync} device(s)")
    print(f"loss {losses[0]:.4f} to {losses[-1]:.4f} in {args.steps} steps")
    print(f"{1e3 * seconds:.1f} ms a step; test accuracy {right.mean():.3f}")
    if args.save:
        model.save_weights(args.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
