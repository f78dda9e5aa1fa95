"""Copies of memories in one allocation with redzones around them, which reveal writes out of bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernellab._triton.device_kernels import GOLDEN
from kernellab.errors import Place, plural
from kernellab.gpu import device_view
from kernellab.gpu.driver import DeviceBytes, allocate
from kernellab.gpu.ipc import Memory
from kernellab.ir.effects import Site
from kernellab.ir.operations import Access


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that a launch wrote outside its arguments.

    ``after`` is the index of the memory that ends before the damage, ``before`` of the memory that begins behind it.
    The damage begins ``past_end_bytes`` after the one and ends ``ahead_bytes`` before the other. If both indices are
    equal, it lies in that memory, which the kernel should only read.
    """

    after: int | None
    before: int | None
    past_end_bytes: int
    ahead_bytes: int
    count: int


def damage_text(damage: Damage, names: Mapping[int, Sequence[str]], mutated: frozenset[str]) -> tuple[str | None, str]:
    """Return the overrun argument, None if unknown, and a description of the damage.

    ``names`` are the arguments in each memory, ``mutated`` the arguments that the kernel may write.
    """

    def name(index: int | None) -> str | None:
        arguments = [] if index is None else names[index]
        return next((argument for argument in arguments if argument in mutated), arguments[0] if arguments else None)

    after, before = name(damage.after), name(damage.before)
    if damage.after is not None and damage.after == damage.before:
        return None, f"the memory of {after} changed, which it only reads"
    is_overrun = before is None
    if after is not None and before is not None:
        is_nearer = damage.past_end_bytes <= damage.ahead_bytes
        is_overrun = is_nearer if (after in mutated) == (before in mutated) else after in mutated
    bytes_ = plural(damage.count, "byte")
    if is_overrun:
        return after, f"{bytes_} beyond the end of {after}, the first of them {damage.past_end_bytes:,} bytes behind it"
    return before, f"{bytes_} ahead of {before}, the last of them {damage.ahead_bytes:,} bytes before its start"


def likely_site(sites: Sequence[Site]) -> Site:
    """Return the site most likely out of bounds: without a mask first, writes before reads."""
    return min(sites, key=lambda site: (site.masked, site.kind is Access.READ, site.line or 0))


def likely_place(sites: Sequence[Site]) -> Place | None:
    """Return the source line of the likely site; None where it is unknown."""
    site = likely_site(sites) if sites else None
    if site is None or site.location.file is None or site.line is None:
        return None
    return Place(site.location.file, site.line)


_ALIGNMENT = 512

Span = tuple[int, int]


@dataclass(slots=True)
class Redzones:
    """One allocation filled with a pattern, and the span of each copy in it; None for a memory that is not copied.

    ``sums`` are the checksums of the read-only copies.
    """

    room: Any
    spans: tuple[Span | None, ...]
    sums: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for start, end, _, _ in self._zones():
            if isinstance(self.room, DeviceBytes):
                device_view.fill_redzone(self.room, start, end)
            else:
                self.room[start:end] = _pattern(start, end, self.room.device)

    def copy_of(self, index: int) -> Any:
        """Return the bytes of a copy."""
        span = self.spans[index]
        assert span is not None, "this memory is copied"
        return self.room[span[0] : span[1]]

    def copy(self, index: int, original: Any) -> Any:
        """Return the copy of a memory; the original where it has no span."""
        return original if self.spans[index] is None else self.copy_of(index).copy_(original)

    def watch(self, indices: Sequence[int]) -> None:
        """Take the checksums of some copies, whose later changes count as damage."""
        self.sums.update(zip(indices, _sums([self.copy_of(index) for index in indices]), strict=True))

    def watch_read_only(self, memories: Sequence[Memory]) -> None:
        """Watch the copies of memories that the kernel should only read."""
        pairs = enumerate(zip(memories, self.spans, strict=True))
        self.watch([index for index, (memory, span) in pairs if span is not None and not memory.is_mutated])

    def damages(self) -> list[Damage]:
        """Return the damage to the redzones and to the watched copies."""
        zones, damages = self._zones(), []
        find = device_view.redzone_damages if isinstance(self.room, DeviceBytes) else _tensor_damages
        per_zone = find(self.room, [(start, end) for start, end, _, _ in zones])
        for (start, end, after, before), damaged in zip(zones, per_zone, strict=True):
            if damaged is not None:
                count, first, last = damaged
                damages.append(Damage(after, before, first - start, end - last, count))
        sums = _sums([self.copy_of(index) for index in self.sums])
        pairs = zip(self.sums.items(), sums, strict=True)
        return damages + [Damage(index, index, 0, 0, 0) for (index, checksum), now in pairs if now != checksum]

    def _zones(self) -> list[tuple[int, int, int | None, int | None]]:
        """Return each redzone: start, end, the copy that ends at its start, the one that starts at its end."""
        placed = sorted((span, index) for index, span in enumerate(self.spans) if span is not None)
        starts = [(0, None), *((end, index) for (_, end), index in placed)]
        ends = [*((start, index) for (start, _), index in placed), (self.room.numel(), None)]
        return [(start, end, after, before) for (start, after), (end, before) in zip(starts, ends, strict=True)]


def spans_of(
    memories: Sequence[Memory], copied: Sequence[bool], zone_bytes: int
) -> tuple[tuple[Span | None, ...], int]:
    """Return the span of each copy, aligned like its original, and the total size in bytes."""
    spans: list[Span | None] = []
    cursor = zone_bytes
    for memory, is_copied in zip(memories, copied, strict=True):
        if not is_copied:
            spans.append(None)
            continue
        start = -(-cursor // _ALIGNMENT) * _ALIGNMENT + memory.address % _ALIGNMENT
        spans.append((start, start + memory.size_bytes))
        cursor = start + memory.size_bytes + zone_bytes
    return tuple(spans), cursor if any(copied) else 0


def allocate_like(memory: Any, size_bytes: int) -> Any:
    """Allocate ``size_bytes`` on the device of ``memory``, without torch or as a tensor like it."""
    if isinstance(memory, DeviceBytes):
        return allocate(size_bytes)
    import torch  # keeps `import kernellab` light

    return torch.empty(size_bytes, dtype=torch.uint8, device=memory.device)


def _tensor_damages(room: Any, zones: Sequence[tuple[int, int]]) -> list[tuple[int, int, int] | None]:
    """Return the damage of each redzone: number of bytes, first and last place; None if it is intact."""
    wrong = [(start, (room[start:end] != _pattern(start, end, room.device)).nonzero()) for start, end in zones]
    return [(w.numel(), start + int(w[0]), start + int(w[-1])) if w.numel() else None for start, w in wrong]


def _pattern(start: int, end: int, device: Any) -> Any:
    """Return the redzone pattern from byte ``start`` to ``end`` of the allocation."""
    import torch

    first = start // 8
    words = torch.arange(first, -(-end // 8), device=device) * GOLDEN
    return words.view(torch.uint8)[start - first * 8 : end - first * 8]


def _sums(memories: Sequence[Any]) -> list[int]:
    if all(isinstance(memory, DeviceBytes) for memory in memories):
        return device_view.byte_sums(memories)
    import torch  # keeps `import kernellab` light

    return [int(memory.sum(dtype=torch.int64)) for memory in memories]
