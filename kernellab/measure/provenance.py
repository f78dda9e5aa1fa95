"""Where numbers come from: the device, its driver, the versions; and the key that measurements are kept under."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kernellab._triton.closure import value_key
from kernellab.errors import UsageError
from kernellab.launch.calls import checked_grid
from kernellab.launch.memory import memory_of
from kernellab.launch.run import device_name, driver_version
from kernellab.launch.runtime import Runtime
from kernellab.measure.ceilings import Ceilings, keep_ceilings, kept_ceilings, measured_ceilings
from kernellab.measure.config import Config
from kernellab.measure.launches import Launches
from kernellab.source import jsonable
from kernellab.target import Target

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Device:
    """What a tuning measures on; without a GPU, ``name`` is "" and ``facts`` have the versions alone.

    ``index`` is its number on this machine.
    """

    target: Target
    name: str
    driver: str
    facts: Mapping[str, Any]
    index: int | None = None


def device_of(target: Target, has_gpu: bool, index: int | None = None) -> Device:
    """Return a device by its number, by default the current one; or the mere target where there is no GPU."""
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
    """Tell whether launches can be timed: there is a GPU, and it is the target, by default the lab's."""
    from kernellab._triton.offline import gpu_target_of_machine

    return not runtime.is_offline() and (target or runtime.target) == gpu_target_of_machine()


def device_here(runtime: Runtime, index: int | None = None) -> Device:
    """Return the device that a lab measures on, with its ceilings where they were measured before."""
    device = device_of(runtime.target, has_gpu=can_time(runtime), index=index)
    found = kept_ceilings(runtime.compiler.folder.parent, device.name, device.driver) if device.name else None
    return device if found is None else replace(device, facts={**device.facts, "ceilings": found.as_dict()})


def ceilings_here(runtime: Runtime, *, fresh: bool = False) -> Ceilings:
    """Return the ceilings of the GPU: as kept under the folder of the store, else measured and kept.

    Raises:
        UsageError: there is no GPU.
    """
    device = device_of(runtime.target, has_gpu=can_time(runtime))
    if not device.name:
        raise UsageError("There is no GPU, so there are no ceilings to measure.")
    folder = runtime.compiler.folder.parent
    found = None if fresh else kept_ceilings(folder, device.name, device.driver)
    if found is None:
        found = measured_ceilings(device.name, device.driver)
        keep_ceilings(folder, found)
    return found


def key_fields(
    launches: Launches, config: Config, device: Device, sizes: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return what a measurement holds for, beside its config.

    That is the kernel's closure, the types and assumptions of the arguments that no config sets, and the values of the
    autotuner's ``key``; of a kernel without one, all numbers and shapes, and a grid that is no function of them. Then
    device, driver and Triton. ``sizes`` are those that a tuning goes over: they count whatever a ``key`` names.
    """
    from kernellab._triton.kernel import declared

    job = launches.of(config).job
    tuned = {name for name, _ in config.parameters}
    names = [name for name, _ in job.signature]
    key = declared(launches.kernel).key
    return {
        "closure": job.closure.digest,
        "signature": jsonable(tuple((name, kind) for name, kind in job.signature if name not in tuned)),
        "attributes": jsonable(tuple((path, v) for path, v in job.attributes if names[path[0]] not in tuned and v)),
        "constants": jsonable(tuple((path, v) for path, v in job.constants if names[path[0]] not in tuned)),
        "values": _sizes(launches) if key is None else _values(launches, key) | _texts(sizes or {}),
        "options": {n: str(v) for n, v in sorted(launches.meta.items()) if n not in names and n not in config.options},
        "device": device.name,
        "driver": device.driver,
        "target": str(device.target),
        "triton": device.facts["triton"],
        **({"timed": "graph"} if launches.manner.by_graph else {}),
    }


def key_of(fields: Mapping[str, Any]) -> str:
    """Return the key of some fields, as canonical JSON that can be read."""
    return json.dumps({"schema": SCHEMA, **fields}, sort_keys=True, separators=(",", ":"), default=str)


def _values(launches: Launches, key: tuple[str, ...]) -> dict[str, str]:
    given = launches.given
    return {name: _text(given[name]) for name in key if name in given}


def _texts(sizes: Mapping[str, int]) -> dict[str, str]:
    return {name: _text(value) for name, value in sizes.items()}


def _sizes(launches: Launches) -> dict[str, str]:
    given = launches.given
    numbers = {name: _text(value) for name, value in _numbers(given)}
    shapes = {name: str(tuple(tensor.shape)) for name, tensor in memory_of(given).items()}
    strides = {f"{name}.strides": str(tuple(d.strides)) for name, d in given.items() if hasattr(d, "block_shape")}
    grid = {} if callable(launches.grid) else {"grid": str(checked_grid(launches.grid, launches.name))}
    return {**numbers, **shapes, **strides, **grid}


def _numbers(values: Mapping[str, Any]) -> Iterator[tuple[str, int | float]]:
    """Yield the numbers among arguments, those of tuples by their place: ``sizes[1]``."""
    for name, value in values.items():
        if isinstance(value, int | float):
            yield name, value
        elif isinstance(value, tuple):
            yield from _numbers({f"{name}[{i}]": member for i, member in enumerate(value)})


def _text(value: Any) -> str:
    if hasattr(value, "data_ptr") or hasattr(value, "block_shape"):
        return str(tuple(value.shape))
    return repr(value) if isinstance(value, int | float | str | None) else value_key(value)
