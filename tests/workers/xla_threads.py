"""How many threads share the work of a fused op inside a jit-compiled function.

`xla_threads.py INTRA` prints how many threads spent at least a tenth of the time
that the busiest one spent, with INTRA intra-op threads.
"""

import pathlib
import sys

import tensorflow as tf

import tf_ecornn


def processor_time():
    """Clock ticks of user time of each thread of this process."""
    times = {}
    for task in pathlib.Path("/proc/self/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        times[task.name] = int(fields[11])
    return times


tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
x = tf.random.stateless_normal((64, 100, 64), (1, 2))
kernel = tf.random.stateless_normal((64, 4 * 256), (1, 3))
recurrent_kernel = tf.random.stateless_normal((256, 4 * 256), (1, 4))


@tf.function(jit_compile=True)
def run(x):
    return tf_ecornn.lstm(x, kernel, recurrent_kernel).output


run(x)
before = processor_time()
for _ in range(20):
    run(x)
spent = [t - before.get(name, 0) for name, t in processor_time().items()]
print(sum(t >= max(spent) / 10 for t in spent))
