"""Checks of a launch's outputs: elements that it never writes, and NaN that it creates.

Arguments that a kernel only writes are filled with a pattern before the launch, which shows the unwritten elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kernellab.errors import CheckFailed
from kernellab.ir.effects import Effects
from kernellab.launch.arguments import bypass_modes, memory_of

# Bits that no arithmetic gives: NaNs with a payload of their own, truth values that are neither, and integers too large
# to be counts.
_PATTERNS = {
    "float16": 0x7E5A,
    "bfloat16": 0x7FE5,
    "float32": 0x7FE5A5A5,
    "float64": 0x7FFDA5A5A5A5A5A5,
    "float8_e4m3fn": 0xFF,
    "float8_e5m2": 0xFF,
    "bool": 0x5A,
    "int32": 0x5AA5A55A,
    "int64": 0x5AA5A55A3CC3C33C,
    "uint32": 0x5AA5A55A,
    "uint64": 0x5AA5A55A3CC3C33C,
}
# Of fewer bits, a kernel may well write any: these mark the copies of the lab alone.
_LIKELY = {1: 0x5A, 2: 0x5AA5}


Key = tuple[int, tuple[int, ...], tuple[int, ...]]


def key_of(tensor: Any) -> Key:
    """The key of a view of memory: address, shape and strides."""
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())


@dataclass(frozen=True, slots=True)
class _PoisonRecord:
    """An output filled with the pattern, and its earlier contents."""

    name: str
    tensor: Any
    before: Any


@dataclass(slots=True)
class Poison:
    """The filled outputs, until `lift`."""

    filled: tuple[_PoisonRecord, ...] = ()
    unwritten: dict[str, Any] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)

    @property
    def fills(self) -> dict[str, float | None]:
        """The earlier value of the unwritten elements, if it is the same for all; valid after `lift`."""
        return {output.name: fill_of(output.before[self.unwritten[output.name]]) for output in self.filled}

    @bypass_modes()
    def lift(self) -> None:
        """Restore the values of elements that were not written.

        ``unwritten`` then holds a mask of them per argument, ``changed`` how many elements differ from before.
        """
        import torch

        for output in self.filled:
            now, before = bits_of(output.tensor), bits_of(output.before)
            mask = pattern_mask(output.tensor)
            self.unwritten[output.name] = mask
            differs = now != before
            self.changed[output.name] = int(
                ((differs.any(-1) if differs.dim() > mask.dim() else differs) & ~mask).sum()
            )
            if bool(mask.any()):
                kept = mask.unsqueeze(-1) if now.dim() > mask.dim() else mask
                now.copy_(torch.where(kept, before, now))


def fill(tensor: Any) -> None:
    """Fill a tensor with the pattern of its dtype."""
    bits_of(tensor).fill_(_pattern_of(tensor))


def pattern_mask(tensor: Any) -> Any:
    """The mask of the elements that hold the pattern; of a complex number, both parts do."""
    mask = bits_of(tensor) == _pattern_of(tensor)
    return mask.all(-1) if tensor.is_complex() else mask


def fill_of(values: Any) -> float | None:
    """The common value of all elements of a tensor, or None."""
    if not values.numel() or values.is_complex():
        return None
    first = values.flatten()[0]
    return float(first) if bool((values == first).all()) else None


@bypass_modes()
def poison(arguments: Mapping[str, Any], effects: Effects, *, copies: bool = False) -> Poison:
    """Fill each tensor that the kernel writes and does not read with the pattern.

    Those that share memory with another argument stay, as do integers of so few bits that each may be a result, unless
    the arguments are ``copies`` of the lab.
    """
    if effects.unknown:
        return Poison()
    filled, tensors = [], memory_of(arguments)
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors.values()]
    for name in [name for name in tensors if name in effects.writes - effects.reads - effects.atomics]:
        tensor = tensors[name]
        is_alone = storages.count(tensor.untyped_storage().data_ptr()) == 1
        is_spread = all(stride or size <= 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        if tensor.numel() and is_alone and is_spread and (copies or _dtype_name(tensor) in _PATTERNS):
            before = tensor.detach().clone()
            fill(tensor)
            filled.append(_PoisonRecord(name, tensor, before))
    return Poison(tuple(filled))


def pattern_of(dtype: str, size_bytes: int) -> int:
    """The bits of the pattern, by torch's name of a dtype that is not complex."""
    return _PATTERNS.get(dtype) or _LIKELY[size_bytes]


def _pattern_of(tensor: Any) -> int:
    return pattern_of(_dtype_name(tensor), bits_of(tensor).element_size())


def _dtype_name(tensor: Any) -> str:
    """torch's name of a tensor's dtype; of a complex one, that of its parts."""
    dtype = tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype
    return str(dtype).removeprefix("torch.")


def bits_of(tensor: Any) -> Any:
    """The bits of the elements as integers, a view of their memory; of a complex number, both parts."""
    import torch

    data = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    return data.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[data.element_size()])


@dataclass(frozen=True, slots=True)
class LaunchChecks:
    """The checks of a thread's launches; ``kernels`` are the names of the checked kernels, empty for all.

    ``bounds`` tries each launch in the GPU worker, on copies between redzones, and not the first of its kind alone:
    writes out of bounds are found there. On the CPU every access is checked anyway.
    """

    nan: bool = False
    bounds: bool = False
    kernels: frozenset[str] = frozenset()
    launched: set[str] = field(default_factory=set, compare=False)

    def of(self, kernel: str) -> LaunchChecks:
        """The checks of a kernel; its launch is added to ``launched``."""
        self.launched.add(kernel)
        return self if not self.kernels or kernel in self.kernels else LaunchChecks()

    def missed_kernels_warning(self) -> str:
        """A warning about the named kernels that were not launched; "" if all were."""
        missing = ", ".join(sorted(self.kernels - self.launched))
        others = f"; it launched {', '.join(sorted(self.launched))}" if self.launched else ""
        return f"checking: this thread launched no {missing} through the lab{others}." if missing else ""


NO_CHECKS = LaunchChecks()


@contextmanager
def no_new_nan(kernel: str, arguments: Mapping[str, Any], effects: Effects) -> Iterator[None]:
    """Raise `CheckFailed` if the launch inside a with statement writes NaN, and nothing that it reads holds one.

    What it leaves as it was does not count, whatever that holds. Outputs hold what the launch has left all the same.
    """
    tensors = {n: t for n, t in memory_of(arguments).items() if t.is_floating_point() or t.is_complex()}
    is_known = not effects.unknown
    read = [t for n, t in tensors.items() if not is_known or n in effects.reads | effects.atomics]
    with bypass_modes():
        has_nan = any(bool(_is_nan(tensor).any()) for tensor in read)
        written = {n: t for n, t in tensors.items() if not is_known or n in effects.mutated}
        before = {} if has_nan else {name: _is_nan(tensor) for name, tensor in written.items()}
    if has_nan:
        yield
        return
    poisoned = poison(arguments, effects)
    try:
        yield
    finally:
        poisoned.lift()
    kept = {**before, **poisoned.unwritten}
    with bypass_modes():
        for name, tensor in written.items():
            new_nan = _is_nan(tensor) & ~kept[name]
            if bool(new_nan.any()):
                first, count = new_nan.nonzero()[0].tolist(), f"{int(new_nan.sum()):,} of {new_nan.numel():,}"
                text = f"{kernel} made {count} elements of {name} NaN, the first at {first}"
                raise CheckFailed(f"{text}; nothing that it reads holds NaN.", kernel=kernel)


def _is_nan(tensor: Any) -> Any:
    return (tensor.float() if tensor.element_size() == 1 else tensor).isnan()
