"""Where the buffers of a program lie in memory that the caller gives: one piece for all, with an offset for each.

Buffers that are alive at one time do not overlap. What the program returns lies elsewhere, since it outlives the run,
and so does what an operation of torch allocates by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernellab.capture.plan import Allocation, MemoryPlan

ALIGNMENT = 512  # bytes, as torch's allocator of GPU memory has it; Triton counts on 16


def with_workspace(plan: MemoryPlan, device: str) -> MemoryPlan:
    """Return the plan with offsets for the buffers on a device, the largest first, each at the lowest place."""
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    placed: list[tuple[int, Allocation]] = []
    for allocation in sorted(plan.allocations, key=lambda each: -each.size_bytes):
        first = buffers[allocation.buffers[0]]
        is_there = first.fixed or allocation.given or not allocation.size_bytes
        if is_there or allocation.last >= plan.steps or first.kind.partition(" ")[2] != device:
            continue
        placed.append((_offset(placed, allocation), allocation))
    offsets: Mapping[str, int] = {allocation.buffers[0]: offset for offset, allocation in placed}
    size_bytes = max((offset + allocation.size_bytes for offset, allocation in placed), default=0)
    return replace(plan, offsets=tuple(offsets.items()), workspace_bytes=size_bytes)


def _offset(placed: list[tuple[int, Allocation]], new: Allocation) -> int:
    """Return the lowest offset at which an allocation overlaps none that is alive at the same time."""
    others = [(o, each) for o, each in placed if each.first <= new.last and new.first <= each.last]
    offset = 0
    for start, other in sorted(others, key=lambda pair: pair[0]):
        if start - offset >= new.size_bytes:
            break
        offset = max(offset, -(-(start + other.size_bytes) // ALIGNMENT) * ALIGNMENT)
    return offset


ROOM = '''\
WORKSPACE_BYTES = SIZE  # what `run` needs of a workspace; without one it allocates


def room(workspace, offset, count, dtype, device):
    """Return memory for a buffer: a part of the caller's workspace, or new."""
    if workspace is None:
        return torch.empty(count, dtype=dtype, device=device)
    return workspace[offset : offset + count * dtype.itemsize].view(dtype)


def require_workspace(workspace, device):
    """Raise ValueError for a workspace that is no piece of memory of that size on the device."""
    found = (workspace.dtype, workspace.dim(), workspace.is_contiguous(), workspace.device)
    wanted = (torch.uint8, 1, True, device)
    if found != wanted or workspace.numel() < WORKSPACE_BYTES or workspace.data_ptr() % 16:
        raise ValueError(f"The workspace is {found} of {workspace.numel():,} bytes; expected {wanted}, "
                         f"{WORKSPACE_BYTES:,} bytes at least, from a multiple of 16 on: torch.empty gives that.")'''
