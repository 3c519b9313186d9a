"""Imports the package under the instruction set that the environment names.

`isa.py check` compares the ops with the reference over a compact list of
problems. Prints the set in use.
"""

import itertools
import sys

from helpers import DTYPES, check_op
from problems import CELLS, draw_problem, draw_tame
from reference_activations import ACTIVATIONS
from tf_ecornn import _library


def check_shapes():
    for cell, dtype in itertools.product(CELLS, DTYPES):
        for units, batch in itertools.product(
            (1, 3, 4, 7, 8, 9, 15, 16, 17, 33, 64, 65), (1, 2, 6, 7, 13)
        ):
            check_op(draw_problem(cell, 1, batch, 3, units), dtype)
        # In the last one weights of every type are larger than a second-level cache,
        # and rows more than are brought through a panel at once.
        for batch, steps, units in (
            (37, 3, 130),
            (1, 20, 150),
            (200, 2, 24),
            (110, 2, 340),
        ):
            check_op(draw_problem(cell, 2, batch, steps, units, mask="random"), dtype)


def check_options():
    for cell, dtype, mask, reset, reverse, zero in itertools.product(
        CELLS,
        DTYPES,
        ("none", "random", "right", "some_rows_off"),
        *((False, True),) * 3,
    ):
        problem = draw_problem(
            cell,
            3,
            batch=8,
            steps=5,
            units=18,
            mask=mask,
            reset=reset,
            reverse=reverse,
            zero_output_for_mask=zero,
            bias=not reverse,
            dropout=reset,
        )
        check_op(problem, dtype, outputs=not zero)


def check_activations():
    for cell, dtype, name in itertools.product(CELLS, DTYPES, ACTIVATIONS):
        for place in ("activation", "recurrent_activation"):
            problem = draw_tame(
                cell, 4, 3e-5, batch=3, steps=3, units=19, scale=0.3, **{place: name}
            )
            check_op(problem, dtype)


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check_shapes()
        check_options()
        check_activations()
    print(_library.isa())
