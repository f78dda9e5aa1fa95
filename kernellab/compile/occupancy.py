"""Theoretical occupancy: how many blocks of a kernel one multiprocessor can hold at a time, and what limits it.

The rules are those of NVIDIA's occupancy calculator: registers are given to warps in units, warps in groups of four,
shared memory in units of 128 bytes with a reserved part for each block.
https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#calculating-occupancy
"""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.target import DeviceLimits

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
