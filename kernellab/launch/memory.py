"""The memory of a launch's arguments: which tensors hold it, and copies of it, which leave the user's as it is."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_WORD_BYTES = 8

Moves = Sequence[tuple[int, int, int]]
"""Address and size in bytes of memories, and the addresses of their copies."""


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


def numbers_of(arguments: Mapping[str, Any]) -> dict[str, int]:
    """Return the integers among the arguments, by name; ``sizes[1]`` for a member of a tuple."""
    found: dict[str, int] = {}
    for name, value in arguments.items():
        if isinstance(value, tuple):
            found.update(numbers_of({f"{name}[{i}]": member for i, member in enumerate(value)}))
        elif isinstance(value, numbers.Integral) and not isinstance(value, bool):
            found[name] = int(value)
    return found


def span_of(tensor: Any) -> tuple[int, int]:
    """Return the address of the first element of a tensor, and that of the end of its last one."""
    start = int(tensor.data_ptr())
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size() if tensor.numel() else start


def words_of(tensor: Any) -> Any:
    """Return what lies between the first and the last element of a tensor as words of 64 bits, a view of its memory.

    A word that is not aligned to its size, which no kernel can load, is left out.
    """
    import torch  # keeps `import kernellab` light

    storage = tensor.untyped_storage()
    base = storage.data_ptr()
    begin, end = span_of(tensor)
    first = -(-(begin - base) // _WORD_BYTES)
    count = 0 if base % _WORD_BYTES else max(0, (end - base) // _WORD_BYTES - first)
    return torch.empty(0, dtype=torch.int64, device=tensor.device).set_(storage, first, (count,), (1,))


def moved_address(address: int, moves: Moves) -> int:
    """Return where an address lies in the copy of its memory; one that lies in none stays what it is."""
    return next((to + address - start for start, size, to in moves if start <= address < start + size), address)


def move_addresses(words: Any, moves: Moves) -> None:
    """Change every word that is an address in some memory to the same place in the copy of that memory."""
    import torch  # keeps `import kernellab` light

    if not moves or not words.numel():
        return
    ordered = sorted(moves)
    starts, ends, shifts = (
        torch.tensor(column, dtype=torch.int64, device=words.device)
        for column in zip(*((start, start + size, to - start) for start, size, to in ordered), strict=True)
    )
    places = (torch.searchsorted(starts, words, right=True) - 1).clamp_(min=0)
    inside = (words >= starts[places]) & (words < ends[places])
    words += torch.where(inside, shifts[places], 0)


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
