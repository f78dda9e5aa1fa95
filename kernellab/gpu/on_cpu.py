"""Launches of GPU tensors on copies in the memory of the host, where the interpreter checks every access."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernellab.errors import RunError
from kernellab.memory import Copier, memory_of, size_bytes
from kernellab.run import Run

_MOST_BYTES_TO_COPY = 256 << 20


def on_cpu(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a launch on copies of their memory on the CPU; views of one storage stay so.

    Raises:
        RunError: there is more memory than is copied for a second look.
    """
    if size_bytes(arguments) > _MOST_BYTES_TO_COPY:
        raise RunError("The arguments are too large for a second look on the CPU.")
    return _copier().of(arguments)


def run_on_cpu(arguments: Mapping[str, Any], run: Callable[[dict[str, Any]], Run]) -> Run:
    """Run a launch on copies of its arguments on the CPU; what it changed is copied back once it ended well.

    Tensors that are on the CPU already are given to it as they are.
    """
    copier = _copier()
    found = run(copier.of(arguments))
    for name, tensor in memory_of(arguments).items():
        storage = tensor.untyped_storage()
        if found.changed.get(name) and storage.device.type != "cpu":
            storage.copy_(copier.storages[storage.device, storage.data_ptr()])
    return found


def _copier() -> Copier:
    return Copier(lambda storage: storage.cpu())
