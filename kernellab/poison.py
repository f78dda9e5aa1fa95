"""Fills what a kernel only writes with a pattern before the launch, so that an element it never writes shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.ir.effects import Effects
from kernellab.memory import memory_of

# Bits that no arithmetic gives: NaNs with a payload of their own, and integers too large to be counts. Types of fewer
# bits have no such value, and are left alone.
_PATTERNS = {
    "torch.float16": 0x7E5A,
    "torch.bfloat16": 0x7FE5,
    "torch.float32": 0x7FE5A5A5,
    "torch.float64": 0x7FFDA5A5A5A5A5A5,
    "torch.int32": 0x5AA5A55A,
    "torch.int64": 0x5AA5A55A3CC3C33C,
}


Key = tuple[int, tuple[int, ...], tuple[int, ...]]


def key_of(tensor: Any) -> Key:
    """Return what tells a view of memory from others: address, shape and strides."""
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())


@dataclass(frozen=True, slots=True)
class _Filled:
    """An output that holds the pattern, and what it held before."""

    name: str
    tensor: Any
    before: Any


@dataclass(slots=True)
class Poison:
    """The outputs that were filled, until `lift`."""

    filled: tuple[_Filled, ...] = ()
    unwritten: dict[str, Any] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)

    def lift(self) -> None:
        """Give elements that were not written their values back.

        ``unwritten`` then holds a mask of them per argument, ``changed`` how many elements differ from before.
        """
        import torch

        for found in self.filled:
            now, before = _bits(found.tensor), _bits(found.before)
            mask = now == _PATTERNS[str(found.tensor.dtype)]
            self.unwritten[found.name] = mask
            self.changed[found.name] = int(((now != before) & ~mask).sum())
            if bool(mask.any()):
                now.copy_(torch.where(mask, before, now))


def poison(arguments: Mapping[str, Any], effects: Effects) -> Poison:
    """Fill each tensor that the kernel writes and does not read; those that share memory with another argument stay."""
    filled = []
    for name, tensor in _written_only(arguments, effects):
        before = tensor.detach().clone()
        _bits(tensor).fill_(_PATTERNS[str(tensor.dtype)])
        filled.append(_Filled(name, tensor, before))
    return Poison(tuple(filled))


def _written_only(arguments: Mapping[str, Any], effects: Effects) -> Iterator[tuple[str, Any]]:
    if effects.unknown:
        return
    tensors = memory_of(arguments)
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors.values()]
    for name, tensor in tensors.items():
        is_alone = storages.count(tensor.untyped_storage().data_ptr()) == 1
        is_spread = all(stride or size <= 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        if name not in effects.writes - effects.reads - effects.atomics or not (is_alone and is_spread):
            continue
        if str(tensor.dtype) in _PATTERNS and tensor.numel():
            yield name, tensor


def _bits(tensor: Any) -> Any:
    import torch

    return tensor.detach().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])
