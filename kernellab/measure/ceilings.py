"""What a device can do at best: bytes copied and products computed per second, measured once and kept."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from kernellab.display import Shown
from kernellab.errors import warn_user
from kernellab.measure.stopwatch import Turn, gpu_stopwatch

SCHEMA = 1
_FILE = "ceilings.json"
_ROUNDS = 12
_COPIED_BYTES = 1 << 30
_SIDE = 8192


@dataclass(frozen=True, slots=True)
class Ceilings(Shown):
    """The ceilings of one model of device under one driver.

    ``memory_gbps`` counts the bytes read and written by a large copy, or by a large sum where that is faster.
    ``tflops`` are those of square products by `torch.matmul`, by the kind of number that is multiplied: ``fp16``,
    ``bf16``, ``tf32``, ``fp32``, ``fp8``.
    """

    device: str
    driver: str
    memory_gbps: float
    tflops: Mapping[str, float] = field(default_factory=dict)
    created: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the ceilings as JSON has them."""
        return {**asdict(self), "tflops": dict(self.tflops)}


def kept_ceilings(folder: Path, device: str, driver: str) -> Ceilings | None:
    """Return what an earlier measurement found, or None; a file that cannot be read is a miss, with a warning."""
    found = _entries(folder / _FILE).get(f"{device}, driver {driver}")
    try:
        return None if found is None else Ceilings(**found)
    except TypeError:
        return None  # of another release


def keep_ceilings(folder: Path, ceilings: Ceilings) -> None:
    """Enter ceilings into the file of the folder; where it cannot be written, they are measured anew next time."""
    path = folder / _FILE
    entries = {**_entries(path), f"{ceilings.device}, driver {ceilings.driver}": ceilings.as_dict()}
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=_FILE)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"schema": SCHEMA, "ceilings": entries}, file, indent=1)
        os.replace(name, path)


def measured_ceilings(device: str, driver: str) -> Ceilings:
    """Measure the current device: a second of copies and products, in turns. What has no room is left out."""
    import torch  # only where there is a GPU

    watch = gpu_stopwatch()
    free = torch.cuda.mem_get_info()[0]
    size = min(_COPIED_BYTES, free // 8)
    one, other, target = (torch.zeros(size // 4, device="cuda") for _ in range(3))
    side = _SIDE if free > 6 << 30 else _SIDE // 4
    work: dict[str, Callable[[], Any]] = {
        "copy": lambda: target.copy_(one),
        "sum": lambda: torch.add(one, other, out=target),
    }
    for kind, product in _products(side).items():
        with contextlib.suppress(RuntimeError):  # a device without this kind of number, or without room
            product()
            torch.cuda.synchronize()
            work[kind] = product
    for each in work.values():
        each()
    times = dict(zip(work, watch.turns([Turn(launch) for launch in work.values()], _ROUNDS), strict=True))
    memory_gbps = max(2 * size / median(times.pop("copy")), 3 * size / median(times.pop("sum"))) / 1e6
    flops = 2 * side**3
    rates = {kind: flops / median(samples) / 1e9 for kind, samples in times.items()}
    return Ceilings(device, driver, memory_gbps, rates, time.time())


def _products(side: int) -> dict[str, Callable[[], Any]]:
    """Return a product of square matrices for each kind of number that this torch multiplies."""
    import torch

    def operands(dtype: Any) -> tuple[Any, Any]:
        a, b = (torch.randn(side, side, device="cuda", dtype=torch.float16) for _ in range(2))
        return a.to(dtype), b.to(dtype)

    def product(dtype: Any, tf32: bool = False) -> Callable[[], Any]:
        a, b = operands(dtype)
        out = torch.empty(side, side, device="cuda", dtype=dtype)

        def run() -> None:
            matmul: Any = torch.backends.cuda.matmul
            before = matmul.fp32_precision
            matmul.fp32_precision = "tf32" if tf32 else "ieee"
            try:
                torch.matmul(a, b, out=out)
            finally:
                matmul.fp32_precision = before

        return run

    found = {
        "fp16": product(torch.float16),
        "bf16": product(torch.bfloat16),
        "tf32": product(torch.float32, tf32=True),
        "fp32": product(torch.float32),
    }
    if hasattr(torch, "_scaled_mm") and torch.cuda.get_device_capability() >= (8, 9):
        a, b = operands(torch.float8_e4m3fn)
        one = torch.ones((), device="cuda")
        found["fp8"] = lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    return found


def _entries(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return dict(content["ceilings"]) if content.get("schema") == SCHEMA else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        warn_user(f"{path} cannot be read ({exc}); the ceilings will be measured again.")
        return {}
