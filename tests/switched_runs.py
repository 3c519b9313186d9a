"""Runs programs under `python -m tf_ecornn`, and reads the report."""

import os
import pathlib
import re
import subprocess
import sys

PACKAGE_ROOT = pathlib.Path(__file__).parents[1]
TIME_LIMIT = 300


def python(*arguments, folder, with_package=True, **environment):
    """Runs Python in a folder; PYTHONPATH names the package, or nothing."""
    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    variables["PYTHONPATH"] = str(PACKAGE_ROOT) if with_package else ""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
    )


def switched(*arguments, folder, **environment):
    return python("-m", "tf_ecornn", *arguments, folder=folder, **environment)


def report_rows(stderr):
    """The report's table: {layer: {column: text}}."""
    lines = stderr[stderr.index("tf_ecornn: recurrent layers") :].splitlines()[1:]
    names = re.split(r"  +", lines[0])
    starts = [lines[0].index(name) for name in names]
    rows = {}
    for line in lines[1:]:
        if line.startswith("forward, gradient:"):
            return rows
        ends = [*starts[1:], None]
        cells = [line[a:b].strip() for a, b in zip(starts, ends, strict=True)]
        rows[cells[0]] = dict(zip(names, cells, strict=True))
    raise AssertionError(f"the report has no end:\n{stderr}")
