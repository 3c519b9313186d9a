"""Loads what test_files.py saved, in a process that never saw the model.

    saved_files.py FOLDER with      imports tf_ecornn first
    saved_files.py FOLDER without   in a process where tf_ecornn can not be imported

FOLDER holds the files and `inputs.npz`; results go to `with.npz` or `without.npz`.
"""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

folder, mode = pathlib.Path(sys.argv[1]), sys.argv[2]
given = np.load(folder / "inputs.npz")
x, target = tf.constant(given["x"]), tf.constant(given["target"])


def trained(function, variables):
    """The weights after some steps of gradient descent through a loaded function."""
    for _ in range(int(given["steps"])):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((function(x) - target) ** 2)
        for v, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            v.assign_sub(float(given["rate"]) * gradient)
    return [v.numpy() for v in variables]


def refusal(load, path):
    """The message of the error that loading ends in."""
    try:
        load(str(path))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "loaded"


def with_ours():
    import tf_ecornn

    model = keras.saving.load_model(folder / "ours.keras")
    assert all(r.fused for r in tf_ecornn.explain(model)), tf_ecornn.explain(model)
    results = {"keras": model(x), "kinds": [type(v).__module__ for v in model.layers]}

    exported = tf.saved_model.load(str(folder / "exported"))
    results["exported"] = exported.serve(x)
    after = {"exported": trained(exported.serve, exported.trainable_variables)}

    saved = tf.saved_model.load(str(folder / "saved"))
    signature = saved.signatures["serving_default"]

    def predict(x):
        (found,) = signature(x).values()
        return found

    results["saved"] = predict(x)
    after["saved"] = trained(predict, signature.trainable_variables)
    for way, weights in after.items():
        results |= {f"{way} {i}": value for i, value in enumerate(weights)}
    return results


def without_ours():
    assert "tf_ecornn" not in sys.modules
    sys.modules["tf_ecornn"] = None  # Any import of it is an ImportError now.
    exported = tf.saved_model.load(str(folder / "exported_stock"))
    return {
        "keras": keras.saving.load_model(folder / "stock.keras")(x),
        "exported": exported.serve(x),
        "keras refusal": refusal(keras.saving.load_model, folder / "ours.keras"),
        "exported refusal": refusal(tf.saved_model.load, folder / "exported"),
    }


results = with_ours() if mode == "with" else without_ours()
np.savez(folder / f"{mode}.npz", **results)
