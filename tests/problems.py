"""Random problems, their reference results, and what counts as equal."""

from dataclasses import dataclass, replace

import numpy as np

import reference

# The cells: how many gates, the names of the states, and what else tells them apart.
CELLS = {
    "lstm": (4, ("h", "c"), {}),
    "gru": (3, ("h",), {"reset_after": True}),
    "gru_before": (3, ("h",), {"reset_after": False}),
}
MASK_KINDS = ("none", "random", "right", "left", "holes", "some_rows_off", "all_off")


@dataclass(frozen=True)
class Problem:
    """One call of a cell and the incoming gradients of its results, in float64.

    Every number is one that float32 can hold, so that these dtypes are given the
    same problem. `gates_x` (B, T, GU) feeds the op; `x` (B, T, F) and `kernel`
    (F, GU), where drawn, feed the functional form and replace it. A GRU has no c.
    """

    cell: str
    gates_x: np.ndarray
    recurrent_kernel: np.ndarray
    bias: np.ndarray | None
    recurrent_bias: np.ndarray | None
    initial_h: np.ndarray
    initial_c: np.ndarray | None
    mask: np.ndarray | None
    reset: np.ndarray | None
    recurrent_dropout: np.ndarray | None
    grad_outputs: np.ndarray
    grad_last_output: np.ndarray
    grad_final_h: np.ndarray
    grad_final_c: np.ndarray | None
    x: np.ndarray | None = None
    kernel: np.ndarray | None = None
    activation: str = "tanh"
    recurrent_activation: str = "sigmoid"
    reverse: bool = False
    zero_output_for_mask: bool = False

    @property
    def gates(self):
        return CELLS[self.cell][0]

    @property
    def states(self):
        return CELLS[self.cell][1]

    @property
    def initial_states(self):
        return tuple(getattr(self, f"initial_{name}") for name in self.states)

    @property
    def grad_final_states(self):
        return tuple(getattr(self, f"grad_final_{name}") for name in self.states)

    @property
    def both_biases(self):
        """The bias as Keras and the reference have it."""
        if self.recurrent_bias is None:
            return self.bias
        return np.stack([self.bias, self.recurrent_bias])

    @property
    def batch(self):
        return self.initial_h.shape[0]

    @property
    def steps(self):
        return self.gates_x.shape[1]

    @property
    def units(self):
        return self.initial_h.shape[1]

    def rows(self, index):
        """The problem of some rows alone."""
        names = (
            "gates_x initial_h initial_c mask reset recurrent_dropout grad_outputs "
            "grad_last_output grad_final_h grad_final_c x"
        ).split()
        values = {n: getattr(self, n) for n in names}
        return replace(
            self, **{n: None if v is None else v[index] for n, v in values.items()}
        )


def draw_problem(
    cell,
    seed,
    batch=5,
    steps=4,
    units=6,
    features=None,
    mask="none",
    reset=False,
    bias=True,
    dropout=False,
    scale=1.0,
    **options,
) -> Problem:
    """A problem of the given sizes; `mask` is one of MASK_KINDS.

    `dropout` gives recurrent dropout masks of zeros and twos (rate one half).

    The recurrent kernel shrinks with U, so that errors are not amplified from
    step to step and the bound of `tolerance` holds at every size.
    """
    rng = np.random.default_rng([seed, batch, steps, units])

    def normal(*shape, scale=1.0):
        return (scale * rng.normal(size=shape)).astype(np.float32).astype(np.float64)

    gates, states, form = CELLS[cell]
    x = kernel = None
    gates_x = normal(batch, steps, gates * units, scale=scale)
    mask_value = draw_mask(rng, mask, batch, steps)
    if features is not None:
        x = normal(batch, steps, features)
        kernel = normal(features, gates * units, scale=scale / max(features, 1) ** 0.5)
        gates_x = reference.project(x, kernel, mask_value)
    return Problem(
        cell=cell,
        gates_x=gates_x,
        recurrent_kernel=normal(units, gates * units, scale=0.8 * scale / units**0.5),
        bias=normal(gates * units, scale=0.5 * scale) if bias else None,
        recurrent_bias=normal(gates * units, scale=0.5 * scale)
        if bias and form.get("reset_after")
        else None,
        initial_h=normal(batch, units, scale=0.5),
        initial_c=normal(batch, units, scale=0.5) if "c" in states else None,
        mask=mask_value,
        reset=rng.random((batch, steps)) < 0.25 if reset else None,
        recurrent_dropout=2.0 * rng.integers(0, 2, (batch, gates, units))
        if dropout
        else None,
        grad_outputs=normal(batch, steps, units),
        grad_last_output=normal(batch, units),
        grad_final_h=normal(batch, units),
        grad_final_c=normal(batch, units) if "c" in states else None,
        x=x,
        kernel=kernel,
        **options,
    )


def draw_mask(rng, kind, batch, steps):
    """(B, T) bool, or None for "none"."""
    position = np.arange(steps)
    lengths = rng.integers(1, steps + 1, (batch, 1)) if steps else np.zeros((batch, 1))
    masks = {
        "none": None,
        "random": rng.random((batch, steps)) < 0.6,
        "right": position < lengths,
        "left": position >= steps - lengths,
        "holes": np.tile(position % 3 != 1, (batch, 1)),
        "some_rows_off": (rng.random((batch, steps)) < 0.7)
        & (np.arange(batch)[:, None] % 2 == 1),
        "all_off": np.zeros((batch, steps), bool),
    }
    return masks[kind]


def draw_tame(cell, seed, margin, **arguments) -> Problem:
    """The first problem from `seed` on where rounding errors stay rounding errors.

    Its activations stay off their kinks by `margin`, as across one the slope jumps,
    and unbounded ones do not run away (exponential of an exponential).
    """
    for candidate in range(seed, seed + 1000):
        problem = draw_problem(cell, candidate, **arguments)
        with np.errstate(over="ignore", invalid="ignore"):
            forward = reference_forward(problem)
        values = (forward.outputs, forward.last_output, *forward.states)
        tame = all(np.abs(v).max(initial=0.0) < 100.0 for v in values)
        if tame and forward.kink_distance() > margin:
            return problem
    raise AssertionError(f"no problem is tame; use a smaller one: {arguments}")


def reference_forward(problem: Problem) -> reference.Forward:
    make = reference.LSTMCell if problem.cell == "lstm" else reference.GRUCell
    cell = make(
        problem.recurrent_kernel,
        problem.both_biases,
        problem.activation,
        problem.recurrent_activation,
        problem.recurrent_dropout,
        **CELLS[problem.cell][2],
    )
    return reference.run(
        cell,
        problem.gates_x,
        problem.initial_states,
        mask=problem.mask,
        reset=problem.reset,
        reverse=problem.reverse,
        zero_output_for_mask=problem.zero_output_for_mask,
    )


@dataclass
class Tolerance:
    """|actual - expected| <= eps * factor * max(1, max |expected|), for one dtype.

    Ones: inputs and incoming gradients are of that size, and a slope taken from a
    rounded activation is off by eps. The factor counts roundings that can add up:
    a product sums U terms, an error travels over T steps, a weight gradient sums
    B * T terms; independent errors add as the root of their number. Factors and
    the constant are set so that the reference's own formulas, evaluated in
    float32, stay below a quarter of it.
    """

    dtype: np.dtype
    units: int
    steps: int
    rows: int = 1
    extra: float = 0.0

    def bound(self, expected, summed=False):
        if expected.size == 0:
            return 0.0
        factor = 8.0 + 2.0 * self.units**0.5 + 2.0 * self.steps**0.5
        if summed:
            factor += 2.0 * (self.rows * self.steps) ** 0.5
        eps = np.finfo(self.dtype).eps
        scale = max(1.0, np.abs(expected).max())
        return (eps * factor + self.extra) * scale


def tolerance_of(problem: Problem, dtype, extra=0.0) -> Tolerance:
    return Tolerance(
        np.dtype(dtype), problem.units, problem.steps, problem.batch, extra=extra
    )


def assert_close(actual, expected, tolerance, name, summed=False):
    """Compares shape and values; NaN or inf in either is a failure."""
    actual = np.asarray(actual)
    expected = np.asarray(expected)
    assert actual.shape == expected.shape, (
        f"{name}: shape {actual.shape}, expected {expected.shape}"
    )
    if not actual.size:
        return
    assert np.isfinite(expected).all(), f"{name}: the reference is not finite"
    assert np.isfinite(actual).all(), f"{name}: not finite"
    error = np.abs(actual.astype(np.float64) - expected)
    bound = tolerance.bound(expected, summed)
    worst = np.unravel_index(error.argmax(), error.shape)
    assert error.max() <= bound, (
        f"{name}: off by {error.max():.3e} (bound {bound:.3e}) at {worst}: "
        f"{actual[worst]!r}, expected {expected[worst]!r}"
    )


def assert_same_bits(actual, expected, name):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, name
    if actual.tobytes() != expected.tobytes():
        differ = actual != expected
        raise AssertionError(f"{name}: {differ.sum()} of {actual.size} values differ")
