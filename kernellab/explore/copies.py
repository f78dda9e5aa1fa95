"""Copies of the arguments of a launch, so that trying points of it leaves the user's memory as it is."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.gpu.observed import memory_of


@dataclass(slots=True)
class Copier:
    """Copies arguments with their layout; what shared memory before shares it in the copies."""

    _storages: dict[int, Any] = field(default_factory=dict)

    def of(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._value(value) for name, value in arguments.items()}

    def _value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            items = [self._value(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if hasattr(value, "untyped_storage"):
            return self._tensor(value)
        if hasattr(getattr(value, "base", None), "untyped_storage"):  # a descriptor, or a tensor under another type
            fresh = copy.copy(value)
            fresh.base = self._tensor(value.base)
            return fresh
        return value

    def _tensor(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        key = storage.data_ptr() or id(tensor)
        if key not in self._storages:
            self._storages[key] = storage.clone()
        empty = tensor.detach().new_empty(0)
        return empty.set_(self._storages[key], tensor.storage_offset(), tensor.shape, tensor.stride())


def copied(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with all their memory copied."""
    return Copier().of(arguments)


def size_bytes(arguments: Mapping[str, Any]) -> int:
    """Return the bytes of all memory among the arguments, each storage once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in memory_of(arguments).values()}
    return sum(storages.values())


def outputs_of(arguments: Mapping[str, Any], effects: Any) -> dict[str, Any]:
    """Return the tensors that a kernel may write, by name; all of them where an effect is unknown."""
    tensors = memory_of(arguments)
    return tensors if effects.unknown else {name: t for name, t in tensors.items() if name in effects.mutated}
