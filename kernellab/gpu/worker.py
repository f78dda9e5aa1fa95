"""Inside the GPU worker: one launch of a compiled kernel, on copies of its arguments between guard zones.

The notebook's memory is mapped only while it is copied, so that a kernel which runs wild has nothing of it to write to.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernellab._triton.artifact import compiled_from_files, launch_compiled
from kernellab.gpu.flight import Damage, Ending, Flight, FlightJob, Memory, Placing
from kernellab.gpu.unboarding import argument_of

# Multiplied with the position, so that what a kernel copies from one guard zone to another place shows as damage.
_GOLDEN = -7046029254386353131
_ALIGNMENT = 512
_WIDE_GUARD_BYTES = 32 << 20
_NARROW_GUARD_BYTES = 1 << 20
_OUTPUT_CHARS = 100_000


def warm(device: int, progress: object) -> None:
    """Make the CUDA context, so that the first flight need not wait for it."""
    import torch

    torch.empty(1, device=f"cuda:{device}").fill_(1)
    torch.cuda.synchronize(device)


def fly(job: FlightJob, progress: Callable[[Any], None]) -> Flight:
    """Launch once and tell how it ended. After a fault, this process can do nothing more on the device."""
    import torch

    torch.cuda.set_device(job.device)
    printed = _printed_bytes()
    placed = _place(job.memories)
    kernel = compiled_from_files(dict(job.files), job.digest, dict(job.signature), job.constants)
    arguments = tuple(argument_of(spec, placed.tensors) for _, spec in job.arguments)
    ending, message = _launched(kernel, job.grid, arguments)
    if ending is Ending.FAULT:
        return Flight(ending, placed.placing, message, output=_printed_since(printed))
    damages = tuple(placed.damages(job.memories))
    del arguments
    placing = placed.placing
    placed.free()
    if damages:
        ending = Ending.DAMAGE
    return Flight(ending, placing, message, damages, _printed_since(printed))


def _launched(kernel: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...]) -> tuple[Ending, str]:
    import torch

    message = ""
    try:
        launch_compiled(kernel, grid, arguments)
    except (RuntimeError, ValueError, TypeError, OverflowError) as exc:
        message = str(exc)
    try:
        torch.cuda.synchronize()
    except RuntimeError as exc:
        return Ending.FAULT, str(exc)
    return (Ending.REFUSED, message) if message else (Ending.CLEAN, "")


@dataclass(slots=True)
class _Placed:
    """The memory of a flight. ``spans`` gives start and end in the arena of each copy, None for what was not copied."""

    placing: Placing
    tensors: list[Any]
    arena: Any
    spans: list[tuple[int, int] | None]
    sums: list[int | None]

    def damages(self, memories: tuple[Memory, ...]) -> list[Damage]:
        found = [damage for zone in self.zones() if (damage := self._damage(*zone)) is not None]
        for index, memory in enumerate(memories):
            if self.sums[index] is not None and not memory.is_mutated and _sum(self.tensors[index]) != self.sums[index]:
                found.append(Damage(index, index, 0, 0, 0))
        return found

    def free(self) -> None:
        import torch

        self.tensors.clear()
        self.arena = None
        torch.cuda.empty_cache()

    def zones(self) -> list[tuple[int, int, int | None, int | None]]:
        """Return each guard zone: start, end, the copy that ends at its start, the one that starts at its end."""
        if self.arena is None:
            return []
        placed = sorted((span, index) for index, span in enumerate(self.spans) if span is not None)
        edges: list[tuple[int, int | None]] = [(0, None)]
        zones = []
        for (start, end), index in placed:
            zones.append((edges[-1][0], start, edges[-1][1], index))
            edges.append((end, index))
        return [*zones, (edges[-1][0], self.arena.numel(), edges[-1][1], None)]

    def _damage(self, start: int, end: int, after: int | None, before: int | None) -> Damage | None:
        wrong = self.arena[start:end] != _pattern(start, end)
        count = int(wrong.sum())
        if not count:
            return None
        first = int(wrong.int().argmax())
        last = end - start - 1 - int(wrong.flip(0).int().argmax())
        return Damage(after, before, first, end - start - last, count)


def _place(memories: tuple[Memory, ...]) -> _Placed:
    import torch

    free_bytes = torch.cuda.mem_get_info()[0] * 4 // 5
    for placing in Placing:
        copied = [memory.size_bytes > 0 and _is_copied(memory, placing) for memory in memories]
        for guard_bytes in (_WIDE_GUARD_BYTES, _NARROW_GUARD_BYTES):
            spans, total = _spans(memories, copied, guard_bytes)
            # The wide zones are a luxury: they take a tenth of the free memory at most.
            limit = free_bytes // 10 if guard_bytes == _WIDE_GUARD_BYTES else free_bytes
            if total < limit or placing is Placing.ORIGINALS:
                return _filled(memories, placing, spans, total)
    raise AssertionError("unreachable")


def _is_copied(memory: Memory, placing: Placing) -> bool:
    return placing is Placing.COPIES or (placing is Placing.WRITTEN_COPIES and memory.is_mutated)


def _spans(
    memories: tuple[Memory, ...], copied: list[bool], guard_bytes: int
) -> tuple[list[tuple[int, int] | None], int]:
    """Return where each copy starts and ends, aligned as the original is, and the size of the whole."""
    spans: list[tuple[int, int] | None] = []
    cursor = guard_bytes
    for memory, is_copied in zip(memories, copied, strict=True):
        if not is_copied:
            spans.append(None)
            continue
        start = -(-cursor // _ALIGNMENT) * _ALIGNMENT + memory.address % _ALIGNMENT
        spans.append((start, start + memory.size_bytes))
        cursor = start + memory.size_bytes + guard_bytes
    return spans, cursor if any(copied) else 0


def _filled(memories: tuple[Memory, ...], placing: Placing, spans: list[Any], total: int) -> _Placed:
    import torch

    arena = torch.empty(total, dtype=torch.uint8, device="cuda") if total else None
    tensors: list[Any] = []
    for memory, span in zip(memories, spans, strict=True):
        if memory.handle is None:
            tensors.append(torch.empty(0, dtype=torch.uint8, device="cuda"))
        elif span is None:
            tensors.append(_mapped(memory))
        else:
            assert arena is not None
            tensors.append(arena[span[0] : span[1]].copy_(_mapped(memory)))
    sums = [None if span is None else _sum(tensor) for span, tensor in zip(spans, tensors, strict=True)]
    placed = _Placed(placing, tensors, arena, spans, sums)
    for start, end, _, _ in placed.zones():
        placed.arena[start:end] = _pattern(start, end)
    return placed


def _pattern(start: int, end: int) -> Any:
    """Return what the bytes of a guard zone hold, from byte ``start`` to ``end`` of the arena."""
    import torch

    first = start // 8
    words = torch.arange(first, -(-end // 8), device="cuda") * _GOLDEN
    return words.view(torch.uint8)[start - first * 8 : end - first * 8]


def _mapped(memory: Memory) -> Any:
    function, arguments = memory.handle
    return function(*arguments)


def _sum(tensor: Any) -> int:
    import torch

    return int(tensor.sum(dtype=torch.int64))


def _printed_bytes() -> int:
    status = os.fstat(1)
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _printed_since(start: int) -> str:
    """Return what this process, the kernel included, has printed to its log file since byte ``start``."""
    size = min(_printed_bytes() - start, _OUTPUT_CHARS)
    try:
        return os.pread(1, size, start).decode(errors="replace") if size > 0 else ""
    except OSError:
        return ""
