"""What a compiled kernel needs of a device, and its theoretical occupancy.

That is how many blocks of a kernel one multiprocessor can hold at a time, and what limits it.

The rules are those of NVIDIA's occupancy calculator: registers are given to warps in units, warps in groups of four,
shared memory in units of 128 bytes with a reserved part for each block.
https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#calculating-occupancy
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.compile.types import Resources
from kernellab.target import DeviceLimits, Target, limits_of, shared_bytes_limit

_WARP_THREADS = 32
_WARP_GROUP = 4
_SHARED_UNIT_BYTES = 128


@dataclass(frozen=True, slots=True)
class Occupancy:
    """``share`` of the resident warps, from 0 to 1; ``blocks`` per multiprocessor; ``limiter`` as a word."""

    share: float
    blocks: int
    limiter: str


def occupancy(limits: DeviceLimits, *, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Return the occupancy of blocks of ``threads`` threads with ``registers`` per thread and ``shared_bytes`` each."""
    warps = -(-threads // _WARP_THREADS)
    bounds = {
        "registers": _blocks_by_registers(limits, warps, registers),
        "shared memory": _blocks_by_shared(limits, shared_bytes),
        "threads": limits.threads_per_multiprocessor // (warps * _WARP_THREADS),
        "blocks": limits.blocks_per_multiprocessor,
    }
    limiter = min(bounds, key=lambda name: bounds[name])
    blocks = bounds[limiter]
    return Occupancy(blocks * warps * _WARP_THREADS / limits.threads_per_multiprocessor, blocks, limiter)


def _blocks_by_registers(limits: DeviceLimits, warps: int, registers: int) -> int:
    per_warp = _round_up(max(registers, 1) * _WARP_THREADS, limits.register_allocation_unit)
    resident_warps = limits.registers_per_multiprocessor // per_warp // _WARP_GROUP * _WARP_GROUP
    return resident_warps // warps


def _blocks_by_shared(limits: DeviceLimits, shared_bytes: int) -> int:
    per_block = _round_up(shared_bytes + limits.reserved_shared_bytes, _SHARED_UNIT_BYTES)
    return limits.shared_bytes_per_multiprocessor // per_block if per_block else limits.blocks_per_multiprocessor


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def resources_of(summary: Mapping[str, Any], target: Target) -> Resources:
    """Return what a compiled kernel needs, from the summary of its compile worker, and whether the target has it."""
    binary = summary["binary"]
    threads = summary["threads"]
    static = _static_shared_bytes(binary, target)
    shared = summary["shared_bytes"] + (static or 0)
    limits = limits_of(target)
    why_not = _why_not(shared, threads, target)
    share = None
    if limits is not None and binary is not None and why_not is None:
        share = occupancy(limits, threads=threads, registers=binary["registers"], shared_bytes=shared)
    return Resources(
        registers=binary and binary["registers"],
        spill_bytes=binary and binary["spill_bytes"],
        stack_bytes=binary and binary["stack_bytes"],
        shared_bytes=shared,
        static_shared_bytes=static,
        threads=threads,
        occupancy=share.share if share else None,
        limiter=share.limiter if share else None,
        fits=why_not is None,
        why_not=why_not,
    )


def _static_shared_bytes(binary: Mapping[str, int] | None, target: Target) -> int | None:
    """Return what the kernel itself declares; from Hopper on, a binary lists what the system reserves as well."""
    limits = limits_of(target)
    if binary is None or limits is None:
        return None
    reserved = limits.reserved_shared_bytes if int(target.arch) >= 90 else 0
    return max(0, binary["static_shared_bytes"] - reserved)


def _why_not(shared: int, threads: int, target: Target) -> str | None:
    limit = shared_bytes_limit(target)
    if limit is not None and shared > limit:
        return (
            f"it needs {shared:,} bytes of shared memory per block and {target} has {limit:,}; "
            "use smaller blocks or fewer stages"
        )
    limits = limits_of(target)
    if limits is not None and threads > limits.threads_per_block:
        return f"it needs {threads:,} threads per block and {target} has {limits.threads_per_block:,}; use fewer warps"
    return None
