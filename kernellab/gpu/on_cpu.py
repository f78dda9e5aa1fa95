"""Launches of GPU tensors on copies in the memory of the host, where the interpreter checks every access."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernellab.errors import RunError
from kernellab.ir.effects import NO_EFFECTS, Effects
from kernellab.memory import Copier, memory_of, size_bytes
from kernellab.reached import Copies, apart, device_of
from kernellab.run import Run

_MOST_BYTES_TO_COPY = 256 << 20


def on_cpu(arguments: Mapping[str, Any], effects: Effects | None = None) -> dict[str, Any]:
    """Return the arguments of a launch on copies of their memory on the CPU; views of one storage stay so.

    By names of its own, what the launch reaches through addresses among them goes along, as its ``effects`` tell.

    Raises:
        RunError: there is more memory than is copied for a second look.
    """
    if size_bytes(arguments) > _MOST_BYTES_TO_COPY:
        raise RunError("The arguments are too large for a second look on the CPU.")
    return _taken(_copies(arguments, effects))


def run_on_cpu(
    arguments: Mapping[str, Any], run: Callable[[dict[str, Any]], Run], effects: Effects | None = None
) -> Run:
    """Run a launch on copies of its arguments on the CPU; what it changed is copied back once it ended well.

    Tensors that are on the CPU already are given to it as they are.
    """
    copies = _copies(arguments, effects)
    found = run(_taken(copies))
    copies.take_back_addresses()
    for name, tensor in {**memory_of(arguments), **copies.behind.tensors}.items():
        storage = tensor.untyped_storage()
        if found.changed.get(name) and storage.device.type != "cpu":
            storage.copy_(copies.copier.storages[storage.device, storage.data_ptr()])
    return found


def _copies(arguments: Mapping[str, Any], effects: Effects | None) -> Copies:
    copier = Copier(lambda storage: storage.cpu())
    return Copies(arguments, effects or NO_EFFECTS, device_of(arguments), copier)


def _taken(copies: Copies) -> dict[str, Any]:
    return {**copies.arguments, **apart(copies.reached, copies.arguments)}
