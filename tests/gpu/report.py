"""The results as text: short, since the end of a long output is what is kept."""

from __future__ import annotations

from collections.abc import Iterator

from gpu import checks
from gpu.dtypes import DTYPES
from gpu.workloads import DIRECTIONS

OURS = ("persistent", "steps")
_SHORT = {"float16": "half", "bfloat16": "bf16", "tf32": "tf32", "float32": "fp32"}


# --- What a row says -----------------------------------------------------------


def best(row: dict, direction: str, names: tuple[str, ...]) -> float | None:
    """Milliseconds of the fastest of these ways that the row has."""
    times = row["times"][direction]
    return min((times[n]["median"] for n in names if n in times), default=None)


def ratio(row: dict, direction: str) -> float | None:
    """How many times as fast as PyTorch's fastest way ours is, None without ours.

    CUDA graphs, which neither side has by itself, are left out.
    """
    ours = best(row, direction, OURS)
    theirs = best(row, direction, tuple(row["peers"]))
    return theirs / ours if ours else None


def aims(rows: list[dict]) -> list[dict]:
    """What came of the works that have an aim: of an LSTM in half precision.

    Against the faster of PyTorch's 16-bit types, which need not be the same one.
    """
    found = []
    for row in rows:
        if not row["aim"] or (row["cell"], row["dtype"]) != ("lstm", "float16"):
            continue
        narrow = [
            r
            for r in rows
            if (r["work"], r["cell"]) == (row["work"], "lstm")
            and r["dtype"] in ("float16", "bfloat16")
        ]
        for direction in row["aimed"]:
            ours = best(row, direction, OURS)
            theirs = min(best(r, direction, tuple(r["peers"])) for r in narrow)
            times = theirs / ours if ours else 0.0
            found.append(
                {
                    "work": row["work"],
                    "direction": direction,
                    "times_as_fast": times,
                    "aim": row["aim"],
                    "met": times >= row["aim"],
                }
            )
    return found


# --- Text ------------------------------------------------------------------------


def unfinished(part: dict) -> str:
    """What became of a part that wrote no end to its results."""
    how = "hung or was too slow" if part["exit"] is None else f"exit {part['exit']}"
    return f"not finished: {how} at {part['running']}"


def build_line(kernels: list[dict], seconds: float) -> str:
    persistent = [k for k in kernels if k["persistent"]]
    most = max(k["registers"] for k in persistent)
    spilling = sum(k["spills"] > 0 for k in persistent)
    return (
        f"build: {len(kernels)} kernels in {seconds:.0f} s, those of sequences with at "
        f"most {most} registers, {spilling} of them spill"
    )


def check_lines(data: dict) -> Iterator[str]:
    rows = data["rows"]
    refused = [r for r in rows if "refused" in r]
    failed = checks.count_failed(rows)
    yield (
        f"checks: {len(rows)} cases, {failed} failed, {len(refused)} too large for a "
        f"persistent kernel here, {data['seconds']:.0f} s"
    )
    for dtype, row in checks.worst_of_each(rows, DTYPES).items():
        yield (
            f"  {dtype:9} {row['error']:.1e} of {row['bar']:.0e} at most: "
            f"{row['worst']} of {row['case']}"
        )


def sanitizer_lines(found: dict) -> Iterator[str]:
    for tool, result in found.items():
        yield f"{tool}: {result['verdict']} ({result['cases']} cases)"
    if not found:
        yield "compute-sanitizer: not checked: it is not installed"


def timing_lines(data: dict) -> Iterator[str]:
    """µs a step, a line for each work, cell and type."""
    rates = ", ".join(
        f"{_SHORT[dtype]} {rate / 1e12:.0f}"
        for dtype, rate in data["ceilings"]["rates"].items()
    )
    yield (
        f"ceilings: {rates} TFLOP/s of a large product, a copy "
        f"{data['ceilings']['bandwidth'] / 1e12:.2f} TB/s"
    )
    side = f"{'PyTorch':>9}{'persist.':>9}{'steps':>9}{'times':>7}{'floor':>6}"
    yield f"{'µs a step':12}{'forward':>40} |{'forward and backward':>40}"
    yield f"{'':12}{side} |{side}"
    work = None
    for row in data["rows"]:
        if row["work"] != work:
            work = row["work"]
            yield work
        parts = [_direction(row, direction) for direction in DIRECTIONS]
        used = row["notes"].get("PyTorch used", "CudnnRnn")
        note = "" if used == "CudnnRnn" else f"  PyTorch used {used}"
        yield f"  {row['cell']:5}{_SHORT[row['dtype']]:5}{' |'.join(parts)}{note}"
        if any(f"{peer} graph" in row["times"]["forward"] for peer in row["peers"]):
            graphs = [f"{_cells(row, d, ' graph'):40}" for d in DIRECTIONS]
            yield f"    graphs  {' |'.join(graphs)}".rstrip()
        for what in row["disagreements"]:
            yield f"    DIFFERS FROM PyTorch: {what}"
    yield "times: PyTorch's time by ours; floor: the least possible time by ours"
    for label in data["errors"]:
        yield f"ERROR {label[:300]}"
    if data["not_timed"]:
        first = data["not_timed"][0]
        yield f"NOT TIMED for lack of time: {len(data['not_timed'])}, from {first} on"


def _cells(row: dict, direction: str, suffix: str = "") -> str:
    """µs a step of PyTorch's fastest way and of both of ours."""

    def cell(*names: str) -> str:
        took = best(row, direction, tuple(name + suffix for name in names))
        return f"{'-':>9}" if took is None else f"{1e3 * took / row['steps']:9.2f}"

    return cell(*row["peers"]) + "".join(cell(path) for path in OURS)


def _direction(row: dict, direction: str) -> str:
    times, ours = ratio(row, direction), best(row, direction, OURS)
    shown = _cells(row, direction)
    if times is None:
        return f"{shown}{'-':>7}{'-':>6}"
    share = row["floor_ms"][direction] / ours
    return f"{shown}{times:7.2f}{share:6.0%}"


def kernel_lines(listed: dict[str, list[dict]]) -> Iterator[str]:
    """The slowest kernels of our side of a training step."""
    for name, entries in listed.items():
        if not name.endswith(OURS[0]):
            continue
        total = sum(entry["us"] for entry in entries)
        yield f"{name}: {total:.0f} µs in kernels, most of it in"
        for entry in entries[:3]:
            blocks = "x".join(map(str, entry["blocks"] or "?"))
            yield (
                f"  {entry['us']:8.0f} µs {entry['launches']} x {entry['name'][:56]}: "
                f"{blocks} blocks, {entry['shared']} shared, "
                f"{entry['registers']} registers"
            )


def aim_lines(found: list[dict]) -> Iterator[str]:
    for aim in found:
        verdict = "met" if aim["met"] else "MISSED"
        yield (
            f"aim {verdict}: {aim['work']} LSTM half {aim['direction']}: "
            f"{aim['times_as_fast']:.2f} times as fast as PyTorch, "
            f"aimed at {aim['aim']:g}"
        )
