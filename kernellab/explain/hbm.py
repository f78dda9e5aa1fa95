"""The part of HBM in the model of time: the bytes that it moves for a launch, and how fast."""

from __future__ import annotations

import math

from kernellab.explain.facts import WARP_THREADS, AccessFacts, Facts

_ONE_MULTIPROCESSOR_GBPS = 154  # of HBM bandwidth
_DRAM_REACHED = 0.882  # of a copy's rate, by a kernel that reads and writes in turn
_OPEN_BYTES, _SPREAD = 16 << 20, 0.06  # a span of addresses in flight, and the slowdown of lone sectors per doubling
_DIRTY_BYTES = 8.12e6  # of the L2 after a flush, written back before what is read takes their place
_SPILLS_KEPT = 0.8  # of the L2, for spilled registers


def hbm_seconds(facts: Facts) -> float:
    """Return the seconds that HBM takes for the bytes of a launch."""
    spread_bytes = sum(_spread_bytes(access, facts) for access in facts.accesses)
    moved_bytes = dram_bytes(facts) + spread_bytes + _written_back_bytes(facts) + _spilled_dram_bytes(facts)
    of_busy_gbps = _ONE_MULTIPROCESSOR_GBPS * facts.busy_multiprocessors
    return moved_bytes / (min(_DRAM_REACHED * facts.device.memory_gbps, of_busy_gbps) * 1e9)


def dram_bytes(facts: Facts) -> float:
    """Return a lower bound of a launch's HBM bytes: every byte that it touches once, in whole bursts."""
    return max(facts.dram_bytes or 0.0, facts.footprint_bytes) + sum(map(_burst_bytes, facts.accesses))


def _spread_bytes(access: AccessFacts, facts: Facts) -> float:
    """Return the extra bytes that lone sectors cost where resident programs access many rows of HBM at once.

    Bursts from a row that is open are faster. How many rows are open at once follows from the span of the addresses
    that the resident programs access in one iteration.
    """
    if access.argument_bytes is None or not access.has_lone_sectors:
        return 0.0
    at_once = min(1.0, facts.slots / facts.programs) / (max(1.0, access.trips) if access.in_loop else 1.0)
    doublings = math.log2(max(1.0, access.argument_bytes * at_once / _OPEN_BYTES))
    return _SPREAD * doublings * (access.fetched_bytes + _burst_bytes(access))


def _burst_bytes(access: AccessFacts) -> float:
    """Return the bytes that HBM moves with lone sectors: its bursts have 64 bytes, two sectors."""
    if not access.leaves_gaps or access.argument_bytes is None:
        return 0.0
    sector_bytes = access.fetched_bytes if access.sector_bytes is None else access.sector_bytes
    return max(0.0, min(2 * sector_bytes, access.argument_bytes) - sector_bytes)


def _spilled_dram_bytes(facts: Facts) -> float:
    """Return the bytes of spilled registers that HBM moves, where the L2 does not hold those of all resident warps."""
    resident = min(facts.programs, facts.slots) * facts.warps * WARP_THREADS
    share = facts.spill_bytes * resident / (_SPILLS_KEPT * facts.device.l2_bytes)
    return sum(line.spilled_bytes for line in facts.lines) * min(1.0, max(0.0, share - 1))


def _written_back_bytes(facts: Facts) -> float:
    """Return the dirty bytes of the L2 that a launch drives out, beyond those of its own that stay there."""
    written = _touched_bytes(facts, loads=False)
    driven_out = min(_DIRTY_BYTES, written + _touched_bytes(facts, loads=True))
    return max(0.0, driven_out - min(_DIRTY_BYTES, written))


def _touched_bytes(facts: Facts, *, loads: bool) -> float:
    touched: dict[str, float] = {}
    for access in facts.accesses:
        if (access.operation == "load") is loads:
            own = access.bytes if access.touched_bytes is None else access.touched_bytes
            touched[access.argument] = max(touched.get(access.argument, 0.0), own)
    return sum(touched.values())
