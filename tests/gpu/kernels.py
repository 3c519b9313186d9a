"""The kernels that a call launches, as CUPTI sees them through PyTorch's profiler."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path


def launched(call: Callable[[], object]) -> list[dict]:
    """Each kernel once, the slowest first; `us` is the time of all its launches."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        return summed(json.loads(path.read_text())["traceEvents"])


def summed(events: list[dict]) -> list[dict]:
    """Of a trace's events: launches of one kernel with one shape are one entry."""
    found: dict[tuple, dict] = {}
    for event in events:
        if event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        details = event.get("args", {})
        shape = {
            "blocks": details.get("grid"),
            "threads": details.get("block"),
            "shared": details.get("shared memory"),
            "registers": details.get("registers per thread"),
        }
        name = event["name"].replace("ecornn::", "").replace("cuda::", "")
        key = name, *map(str, shape.values())
        entry = found.setdefault(key, {"name": name, **shape, "launches": 0, "us": 0.0})
        entry["launches"] += 1
        entry["us"] += event["dur"]
    return sorted(found.values(), key=lambda entry: -entry["us"])
