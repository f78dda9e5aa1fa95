"""Stores with measurements that are written down: what tunings of a kernel on a GPU would have kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernellab._triton.closure import closure_of
from kernellab.registry import version_digest
from kernellab.source import Closure
from kernellab.store import Entry, Measurement, Store
from kernellab.timing.config import Config
from tests import samples

ADD: Closure = closure_of(samples.add_kernel)[0]
CHANGED: Closure = replace(ADD, functions=(replace(ADD.functions[0], text=ADD.functions[0].text + "    # again\n"),))
DAY = 86400.0
START = 1_760_000_000.0


def key(
    n: int = 4096,
    triton: str = "3.6.0",
    driver: str = "550.1",
    device: str = "NVIDIA H200",
    closure: Closure | None = ADD,
    dtype: str = "fp32",
    **more: Any,
) -> str:
    """Return the key that a tuning of ``add_kernel`` on n elements has on a device."""
    types = ["tuple", ["tuple", "x_ptr", f"*{dtype}"], ["tuple", "n", "i32"]]
    fields = {
        "schema": 1,
        "closure": closure and closure.digest,
        "signature": types,
        "attributes": ["tuple", ["tuple", ["tuple", 0], ["tuple", ["tuple", "tt.divisibility", 16]]]],
        "constants": ["tuple"],
        "values": {"n": str(n), "x_ptr": f"({n},)"},
        "options": {},
        "device": device,
        "driver": driver,
        "target": "cuda:90",
        "triton": triton,
    }
    return json.dumps({name: value for name, value in {**fields, **more}.items() if value is not None}, sort_keys=True)


def measured(
    key: str,
    time_ms: float | None,
    *,
    block: int = 128,
    noise: float = 0.01,
    samples: int = 30,
    status: str = "ok",
    reason: str = "",
    config: Mapping[str, Any] | None = None,
) -> Measurement:
    """Return a row of a tuning whose median is known but for a share."""
    low, high = (None, None) if time_ms is None else (time_ms * (1 - noise), time_ms * (1 + noise))
    details = {"reason": reason, "standing": "", "low_ms": low, "high_ms": high, "samples": samples}
    stored = Config.of({"BLOCK": block, "num_warps": 4}).stored if config is None else config
    return Measurement(key, stored, json.loads(key)["device"], status, time_ms, details)


def store_of(*rows: tuple[Measurement, float], name: str = "add_kernel", closure: Closure = ADD) -> Store:
    """Return a store in memory that has these rows, each with the day that it was made on."""
    store = Store(None)
    entered(store, *rows, name=name, closure=closure)
    return store


def entered(store: Store, *rows: tuple[Measurement, float], name: str = "add_kernel", closure: Closure = ADD) -> None:
    """Enter rows, each with the day that it was made on, of a version of a kernel."""
    made = tuple((measurement, START + day * DAY) for measurement, day in rows)
    store.enter([Entry(name, closure, version_digest(closure), measurements=made)])
