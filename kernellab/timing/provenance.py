"""The provenance of measurements: device, driver, versions, and the key that they are stored under.

The ceilings of a device are its best rates of copies (bytes/s) and matrix products (FLOP/s), measured once and stored.
"""

from __future__ import annotations

import contextlib
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from kernellab._triton.closure import value_key
from kernellab.display import Displayable
from kernellab.errors import UsageError, warn_user
from kernellab.launch.arguments import members_of, memory_of
from kernellab.launch.calls import checked_grid
from kernellab.launch.runtime import Runtime
from kernellab.source import jsonable
from kernellab.target import Target, device_name, driver_version
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.timing.stopwatch import Turn, gpu_stopwatch
from kernellab.workers.scratch import write_whole

_KEY_SCHEMA = 1
_CEILINGS_SCHEMA = 1
_FILE = "ceilings.json"
_ROUNDS = 12
_COPIED_BYTES = 1 << 30
_SIDE = 8192


@dataclass(frozen=True, slots=True)
class Device:
    """The device of a tuning; without a GPU, ``name`` is "" and ``facts`` have the versions alone.

    ``index`` is its number on this machine.
    """

    target: Target
    name: str
    driver: str
    facts: Mapping[str, Any]
    index: int | None = None


def device_of(target: Target, has_gpu: bool, index: int | None = None) -> Device:
    """Return a device by its number, by default the current one; without a GPU, the target with versions alone."""
    import torch  # a launch needs both anyway
    import triton

    versions = {
        "target": str(target),
        "triton": str(triton.__version__),
        "torch": str(torch.__version__),
        "kernellab": sys.modules["kernellab"].__version__,
        "python": platform.python_version(),
        "host": platform.node(),
    }
    if not has_gpu:
        return Device(target, "", "", {"device": None, **versions})
    index = torch.cuda.current_device() if index is None else index
    name, driver = device_name(index), driver_version()
    facts = {"device": name, "driver": driver, "cuda": torch.version.cuda, **versions}
    return Device(target, name, driver, facts, index)


def can_time(runtime: Runtime, target: Target | None = None) -> bool:
    """Whether launches can be timed: there is a GPU, and it is the target, by default the lab's."""
    from kernellab._triton.drivers import gpu_target_of_machine

    return not runtime.is_offline() and (target or runtime.target) == gpu_target_of_machine()


def device_here(runtime: Runtime, index: int | None = None) -> Device:
    """Return the device that a lab measures on, with its ceilings if they are stored."""
    device = device_of(runtime.target, has_gpu=can_time(runtime), index=index)
    ceilings = load_ceilings(runtime.compiler.folder.parent, device.name, device.driver) if device.name else None
    return device if ceilings is None else replace(device, facts={**device.facts, "ceilings": ceilings.as_dict()})


def ceilings_here(runtime: Runtime, *, fresh: bool = False) -> Ceilings:
    """Return the ceilings of the GPU: the stored ones, else measured and stored.

    Raises:
        UsageError: there is no GPU.
    """
    device = device_of(runtime.target, has_gpu=can_time(runtime))
    if not device.name:
        raise UsageError("There is no GPU, so there are no ceilings to measure.")
    folder = runtime.compiler.folder.parent
    ceilings = None if fresh else load_ceilings(folder, device.name, device.driver)
    if ceilings is None:
        ceilings = measure_ceilings(device.name, device.driver)
        save_ceilings(folder, ceilings)
    return ceilings


def key_fields(
    launches: Launches, config: Config, device: Device, sizes: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return the fields of a measurement's key; its config is stored apart.

    They are the kernel's closure, the types and specializations of the arguments that no config sets, the values of the
    autotuner's ``key``, the device, the driver and Triton. Without a ``key``, all numbers and shapes count, and a grid
    that is not a function. ``sizes`` are those that a tuning iterates over: they count with any ``key``.
    """
    from kernellab._triton.kernel import autotune_settings

    job = launches.job(config)
    tuned = {name for name, _ in config.parameters}
    names = [name for name, _ in job.signature]
    key, arguments = autotune_settings(launches.kernel).key, launches.given
    keyed = {**{name: arguments[name] for name in key or () if name in arguments}, **(sizes or {})}
    return {
        "closure": job.closure.digest,
        "signature": jsonable(tuple((name, kind) for name, kind in job.signature if name not in tuned)),
        "attributes": jsonable(tuple((path, v) for path, v in job.attributes if names[path[0]] not in tuned and v)),
        "constants": jsonable(tuple((path, v) for path, v in job.constants if names[path[0]] not in tuned)),
        "values": _sizes(launches) if key is None else {name: _text(value) for name, value in keyed.items()},
        "options": {n: str(v) for n, v in sorted(launches.meta.items()) if n not in names and n not in config.options},
        "device": device.name,
        "driver": device.driver,
        "target": str(device.target),
        "triton": device.facts["triton"],
        **({"timed": "graph"} if launches.manner.by_graph else {}),
    }


def key_of(fields: Mapping[str, Any]) -> str:
    """Return the key of some fields, as readable canonical JSON."""
    return json.dumps({"schema": _KEY_SCHEMA, **fields}, sort_keys=True, separators=(",", ":"), default=str)


def _sizes(launches: Launches) -> dict[str, str]:
    arguments = launches.given
    numbers = {name: _text(value) for name, value in members_of(arguments.items()) if isinstance(value, int | float)}
    shapes = {name: str(tuple(tensor.shape)) for name, tensor in memory_of(arguments).items()}
    strides = {f"{name}.strides": str(tuple(d.strides)) for name, d in arguments.items() if hasattr(d, "block_shape")}
    grid = {} if callable(launches.grid) else {"grid": str(checked_grid(launches.grid, launches.name))}
    return {**numbers, **shapes, **strides, **grid}


def _text(value: Any) -> str:
    if hasattr(value, "data_ptr") or hasattr(value, "block_shape"):
        return str(tuple(value.shape))
    return repr(value) if isinstance(value, int | float | str | None) else value_key(value)


@dataclass(frozen=True, slots=True)
class Ceilings(Displayable):
    """The ceilings of one model of device under one driver.

    ``memory_gbps`` counts the bytes read and written by a large copy, or by a large sum where that is faster.
    ``tflops`` are the rates of square products by `torch.matmul`, by number format: ``fp16``, ``bf16``, ``tf32``,
    ``fp32``, ``fp8``.
    """

    device: str
    driver: str
    memory_gbps: float
    tflops: Mapping[str, float] = field(default_factory=dict)
    created: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the ceilings in JSON's types."""
        return {**asdict(self), "tflops": dict(self.tflops)}


def load_ceilings(folder: Path, device: str, driver: str) -> Ceilings | None:
    """Load the ceilings of an earlier measurement, or None; warn about an unreadable file."""
    entry = _entries(folder / _FILE).get(f"{device}, driver {driver}")
    try:
        return None if entry is None else Ceilings(**entry)
    except TypeError:
        return None  # of another release


def save_ceilings(folder: Path, ceilings: Ceilings) -> None:
    """Write ceilings to the folder's file; where that fails, they are measured again next time."""
    path = folder / _FILE
    entries = {**_entries(path), f"{ceilings.device}, driver {ceilings.driver}": ceilings.as_dict()}
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"schema": _CEILINGS_SCHEMA, "ceilings": entries}, indent=1).encode())


def measure_ceilings(device: str, driver: str) -> Ceilings:
    """Measure the current device by copies and products for a second; skip those that do not fit."""
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
    for run in work.values():
        run()
    times = dict(zip(work, watch.turns([Turn(launch) for launch in work.values()], _ROUNDS), strict=True))
    memory_gbps = max(2 * size / median(times.pop("copy")), 3 * size / median(times.pop("sum"))) / 1e6
    flops = 2 * side**3
    rates = {kind: flops / median(samples) / 1e9 for kind, samples in times.items()}
    return Ceilings(device, driver, memory_gbps, rates, time.time())


def _products(side: int) -> dict[str, Callable[[], Any]]:
    """Return a product of square matrices for each number format that this torch multiplies."""
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

    products = {
        "fp16": product(torch.float16),
        "bf16": product(torch.bfloat16),
        "tf32": product(torch.float32, tf32=True),
        "fp32": product(torch.float32),
    }
    if hasattr(torch, "_scaled_mm") and torch.cuda.get_device_capability() >= (8, 9):
        a, b = operands(torch.float8_e4m3fn)
        one = torch.ones((), device="cuda")
        products["fp8"] = lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    return products


def _entries(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return dict(content["ceilings"]) if content.get("schema") == _CEILINGS_SCHEMA else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        warn_user(f"{path} cannot be read ({exc}); the ceilings will be measured again.")
        return {}
