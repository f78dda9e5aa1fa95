"""The memory of a launch's arguments: which tensors hold it, and copies of it, which leave the user's as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


def memory_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors among the arguments, by name; ``outs[1]`` for a member of a tuple."""
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, tuple):
            found.update(memory_of({f"{name}[{i}]": member for i, member in enumerate(value)}))
        elif hasattr(value, "untyped_storage"):
            found[name] = value
        elif hasattr(getattr(value, "base", None), "untyped_storage"):
            found[name] = value.base
    return found


def _cloned(storage: Any) -> Any:
    return storage.clone()


def _moves(tensor: Any) -> bool:
    return True


@dataclass(slots=True)
class Copier:
    """Copies arguments with their layout; what shared memory before shares it in the copies.

    ``copy_storage`` makes one storage of another, on the same device or a different one. A tensor for which ``moves``
    is false stays what it is.
    """

    copy_storage: Callable[[Any], Any] = _cloned
    moves: Callable[[Any], bool] = _moves
    storages: dict[tuple[Any, int], Any] = field(default_factory=dict)

    def of(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments by name on copies of their memory."""
        return {name: self.value(each) for name, each in arguments.items()}

    def value(self, value: Any) -> Any:
        """Return one argument on copies of its memory."""
        return with_tensors(value, self._tensor)

    def _tensor(self, tensor: Any) -> Any:
        import torch  # keeps `import kernellab` light

        if not self.moves(tensor):
            return tensor
        storage = tensor.untyped_storage()
        key = storage.device, storage.data_ptr()
        if not storage.data_ptr() or key not in self.storages:
            self.storages[key] = self.copy_storage(storage)
        held = self.storages[key]
        empty = torch.empty(0, dtype=tensor.dtype, device=held.device)  # whatever the default device is
        return empty.set_(held, tensor.storage_offset(), tensor.shape, tensor.stride())


def with_tensors(value: Any, replaced: Callable[[Any], Any]) -> Any:
    """Return an argument with each tensor in it replaced: alone, in tuples, under descriptors and other types."""
    if isinstance(value, tuple):
        members = [with_tensors(member, replaced) for member in value]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    if hasattr(value, "untyped_storage"):
        return replaced(value)
    if hasattr(getattr(value, "base", None), "untyped_storage"):  # a descriptor, or a tensor under another type
        twin = copy.copy(value)
        twin.base = replaced(value.base)
        return twin
    return value


def copied(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with all their memory copied."""
    return Copier().of(arguments)


def size_bytes(arguments: Mapping[str, Any]) -> int:
    """Return the bytes of all memory among the arguments, each storage once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in memory_of(arguments).values()}
    return sum(storages.values())
