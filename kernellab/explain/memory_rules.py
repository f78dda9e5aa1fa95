"""Rules on how accesses add up: repeated loads, the order of programs, bank conflicts, latency, and atomics.

A rule is a function of a launch's facts; it returns a proposal, or None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from kernellab.explain.access_rules import (
    ALIKE,
    OF_ALL,
    narrow_access,
    places_text,
    uncoalesced_access,
    with_accesses,
)
from kernellab.explain.causes import (
    Cause,
    PerformanceFinding,
    bytes_text,
    count_text,
    joined_text,
    lines_text,
    sentence,
)
from kernellab.explain.facts import (
    MOST_WARPS,
    WARP_THREADS,
    AccessFacts,
    Facts,
    ReductionFacts,
    SharedFacts,
    is_repeated,
)
from kernellab.explain.hbm import dram_bytes
from kernellab.explain.model import bytes_in_flight, needed_bytes_in_flight, times_of

_LEAST_ROUNDS = 4
_STAGES = 4


def repeated_loads(facts: Facts) -> PerformanceFinding | None:
    """Several lines load the same elements of an argument, one pass after the other."""
    loads: dict[str, list[AccessFacts]] = {}
    for access in facts.accesses:
        if access.operation == "load":
            loads.setdefault(access.argument, []).append(access)
    total = sum(access.bytes for access in facts.accesses)
    passes = {name: group for name, group in loads.items() if is_repeated(group) and group[0].bytes > OF_ALL * total}
    if not passes or facts.dots:
        return None
    sums = {name: sum(access.bytes for access in group) for name, group in passes.items()}
    worst = max(sums, key=lambda name: sums[name])
    alike = {name: group for name, group in passes.items() if sums[name] >= ALIKE * sums[worst]}
    group = passes[worst]
    later = [load for own in alike.values() for load in sorted(own, key=lambda access: access.line or 0)[1:]]
    times = sums[worst] / max(access.touched_bytes or access.bytes for access in group)
    more_warps = " with more num_warps" if facts.warps < MOST_WARPS else ""
    last = max(later, key=lambda access: access.line or 0).line
    row_words = max(access.bytes * max(1.0, 4 / access.element_bytes) for access in group) / 4
    fits = row_words / facts.programs <= _KEPT_REGISTERS
    text = (
        f"{joined_text(alike)} {'is' if len(alike) == 1 else 'are'} loaded {times:.2g} times, the last time in "
        f"{lines_text([last])}. {_KEEP_ROW.format(more_warps) if fits else _FEWER_PASSES}"
    )
    fixed = replace(_without_loads(facts, later), loop_trips=facts.loop_trips / len(group))
    least = None if fits else _without_loads(facts, later[:1])  # two passes become one, which may wait as often
    return PerformanceFinding(Cause.REREAD, last, text, {"times loaded": times}, fixed, least)


_KEPT_REGISTERS = 1 << 15  # half of an SM's, for the row of a program
_KEEP_ROW = "Keep the row in registers: one block for all of it (a larger BLOCK{})."
_FEWER_PASSES = "The row is too long for the registers of a program: use fewer passes (an online maximum and sum)."


def _without_loads(facts: Facts, loads: Sequence[AccessFacts]) -> Facts:
    """Return the facts without loads of what others load as well."""
    again = {id(access) for access in loads}
    kept = tuple(access for access in facts.accesses if id(access) not in again)
    unique = sum({(a.argument, a.operation): a.touched_bytes or a.bytes for a in kept}.values())
    now = dram_bytes(facts)
    dropped = sum(access.touched_bytes or access.bytes for access in loads)
    return replace(facts, accesses=kept, dram_bytes=min(now, max(unique, now - dropped)))


def shared_loads(facts: Facts) -> PerformanceFinding | None:
    """Every program loads most of an argument, for few results."""
    many = facts.programs // facts.device.multiprocessors
    moved = sum(access.moved_bytes for access in facts.accesses)
    loads = [
        load
        for load in facts.accesses
        if load.operation == "load"
        and load.touched_bytes
        and load.bytes >= _MOST_OF_IT * load.touched_bytes * facts.programs
        and load.moved_bytes > 0.5 * moved
    ]
    if not loads or facts.dots or many < 2:
        return None
    worst = max(loads, key=lambda load: load.bytes)
    alike = [load for load in loads if load.bytes >= ALIKE * worst.bytes]
    times, each_takes = _reuse(worst), min(_RESULTS, many)
    is_whole = all((access.touched_bytes or 0.0) > 0.99 * (access.argument_bytes or math.inf) for access in alike)
    loaded, distinct = sum(access.bytes for access in alike), sum(access.touched_bytes or 0.0 for access in alike)
    text = (
        f"Each of {count_text(facts.programs)} programs loads {'all' if is_whole else 'most'} of "
        f"{places_text(alike)}: {bytes_text(loaded)} loaded, {bytes_text(distinct)} distinct. "
        f"Compute several results per program from one load ({each_takes} rows of a tile), or compute the common part "
        "once, in a kernel of its own."
    )
    accesses = with_accesses(facts, loads, lambda access: scale_traffic(access, 1 / each_takes))
    fixed = replace(accesses, programs=facts.programs // each_takes)
    return PerformanceFinding(
        Cause.SHARED_LOADS, worst.line, text, {"times loaded": times, "programs": facts.programs}, fixed
    )


_MOST_OF_IT = 0.5
_RESULTS = 16  # of one program, from shared loads


def program_order(facts: Facts) -> PerformanceFinding | None:
    """Programs that use the same bytes run so far apart that the L2 has evicted them."""
    if facts.dram_bytes is None or facts.dram_bytes < 1.25 * facts.footprint_bytes or facts.footprint_bytes <= 0:
        return None
    if facts.dram_bytes < 0.5 * facts.device.l2_bytes:
        return None
    repeated = [access for access in facts.accesses if access.operation == "load" and _reuse(access) > 1.5]
    if not repeated or any(not access.is_split for access in facts.accesses):
        return None
    worst = max(repeated, key=lambda load: load.bytes - (load.touched_bytes or load.bytes))
    times = facts.dram_bytes / facts.footprint_bytes
    alike = [a for a in repeated if a.bytes >= ALIKE * worst.bytes and ALIKE <= _reuse(a) / _reuse(worst) <= 1 / ALIKE]
    text = (
        f"Each byte of {places_text(alike)} is loaded {_reuse(worst):.3g} times, in programs that run far apart: HBM "
        f"traffic is {times:.2g}x the footprint. Run programs that share data one after the other: swap the axes of "
        "the grid, or group the tiles (tl.swizzle2d, GROUP_M)."
    )
    fixed = replace(facts, dram_bytes=facts.footprint_bytes * 1.05)
    return PerformanceFinding(Cause.ORDER, worst.line, text, {"bytes moved of those there": times}, fixed)


def _reuse(access: AccessFacts) -> float:
    return access.bytes / access.touched_bytes if access.touched_bytes else 1.0


def bank_conflicts(facts: Facts) -> PerformanceFinding | None:
    """Threads of a warp access different words of one bank of shared memory, one after the other."""
    wasteful = [access for access in facts.shared if access.wavefronts > 1.5 * access.ideal_wavefronts > 0]
    times = times_of(facts)
    if not wasteful or times.shared < 0.2 * times.longest:
        return None
    worst = max(wasteful, key=lambda access: access.wavefronts - access.ideal_wavefronts)
    ways = worst.wavefronts / worst.ideal_wavefronts
    alike = [
        a
        for a in wasteful
        if a.wavefronts >= ALIKE * worst.wavefronts and a.ideal_wavefronts <= worst.ideal_wavefronts / ALIKE
    ]
    turns, ideal = sum(access.wavefronts for access in alike), sum(access.ideal_wavefronts for access in alike)
    text = (
        f"{sentence(lines_text(access.line for access in alike))}: {ways:.2g}-way bank conflicts "
        f"({count_text(turns)} wavefronts, {count_text(ideal)} ideal). Spread the indices over the banks "
        "of shared memory (another order of axes, an odd stride), or keep the values in registers."
    )
    fixed, least = (
        replace(facts, shared=tuple(change(a) if a in wasteful else a for a in facts.shared))
        for change in (lambda a: replace(a, wavefronts=a.ideal_wavefronts), _spread_lanes)
    )
    figures = {"wavefronts": turns, "without conflicts": ideal}
    return PerformanceFinding(Cause.CONFLICTS, worst.line, text, figures, fixed, least)


_OWNED_WAVEFRONTS = 4  # of a request whose lanes step by the 16 bytes that a thread owns of a blocked layout


def _spread_lanes(access: SharedFacts) -> SharedFacts:
    """Return an access whose lanes go to neighbouring elements in the order in which threads own them."""
    owned = _OWNED_WAVEFRONTS * (access.requests or access.ideal_wavefronts)
    return replace(access, wavefronts=min(access.wavefronts, max(access.ideal_wavefronts, owned)))


def no_pipeline(facts: Facts) -> PerformanceFinding | None:
    """Each iteration of a loop waits for its own loads, and too few programs run meanwhile to hide that."""
    loops = [access for access in facts.accesses if access.operation == "load" and access.in_loop]
    waiting = [load for load in loops if not load.is_async and load.trips >= _LEAST_ROUNDS]
    times = times_of(facts)
    if not waiting or times.latency < 0.5 * times.longest:
        return None
    in_flight, needed = bytes_in_flight(facts), needed_bytes_in_flight(facts)
    if not facts.dots and in_flight > 0.8 * needed:
        return None
    worst = max(waiting, key=lambda load: (load.tile_bytes, load.trips, -(load.line or 0)))
    figures_of = attrgetter("tile_bytes", "trips", "knows_trips", "width_bytes")
    alike = [load for load in waiting if figures_of(load) == figures_of(worst)]
    hidden = f"; about {bytes_text(needed)} needed to hide latency" if in_flight < needed else ""
    text = (
        f"{sentence(iterations_text(worst))} waits for {places_text(alike)}: {bytes_text(in_flight)} in "
        f"flight{hidden}. {_prefetch_text(worst, facts)}"
    )
    fixed = replace(
        facts,
        loop_trips=facts.loop_trips / _STAGES,
        accesses=tuple(replace(a, is_async=a.is_async or a in waiting) for a in facts.accesses),
    )
    figures = {**iterations_figure(worst), "KiB in flight": in_flight / 1024}
    return PerformanceFinding(Cause.NO_PIPELINE, worst.line, text, figures, fixed)


def iterations_text(repeated: AccessFacts | ReductionFacts) -> str:
    """Return ``each of 64 iterations``; without the number where it is a guess."""
    return f"each of {count_text(repeated.trips)} iterations" if repeated.knows_trips else "every iteration"


def iterations_figure(repeated: AccessFacts | ReductionFacts) -> dict[str, float]:
    """Return the iterations as evidence; nothing where they are a guess."""
    return {"iterations": repeated.trips} if repeated.knows_trips else {}


_LEAST_ASYNC_BYTES = 4  # of cp.async. PTX ISA, "cp.async"


def _prefetch_text(access: AccessFacts, facts: Facts) -> str:
    """Return the advice to load iterations ahead: the next step that the launch does not use yet."""
    if 0 < access.width_bytes < _LEAST_ASYNC_BYTES:
        return (
            f"It loads {access.width_bytes} B per instruction, and cp.async takes {_LEAST_ASYNC_BYTES} at least: align "
            "its rows, or take a larger block or more programs."
        )
    has_dots = any(dot.in_loop for dot in facts.dots)
    stages = facts.loop_stages or (facts.stages if has_dots else 1)
    now = f"num_stages={stages}" if has_dots and not facts.loop_stages else f"tl.range(..., num_stages={stages})"
    wanted = _STAGES - 1 if has_dots else _STAGES
    if stages >= wanted:
        direct = "feed the load to tl.dot directly, or " if has_dots else ""
        return f"{now} does not pipeline it: {direct}take a larger block or more programs."
    better = now.replace(str(stages), str(wanted))
    if has_dots:
        return f"Prefetch with {better} or more (now {stages})."
    return f"Prefetch with {better}, or take a larger block or more programs."


def scale_traffic(access: AccessFacts, factor: float) -> AccessFacts:
    """Return an access that moves ``factor`` times as much."""
    names = ("sectors", "ideal_sectors", "requests", "bytes")
    return replace(access, **{name: getattr(access, name) * factor for name in names})


def contended_atomics(facts: Facts) -> PerformanceFinding | None:
    """Many threads update one address by atomics, which happen one after the other."""
    times = times_of(facts)
    contended = [
        atomic
        for atomic in facts.atomics
        if atomic.updates_per_address >= WARP_THREADS and atomic.updates >= 2 * facts.programs
    ]
    if not contended or times.atomics < 0.3 * times.longest:
        return None
    worst = max(contended, key=lambda atomic: atomic.updates_per_address)
    figures_of = attrgetter("updates", "addresses", "knows_updates")
    alike = [atomic for atomic in contended if figures_of(atomic) == figures_of(worst)]
    many, count = worst.updates / facts.programs, worst.addresses or 1
    where = "one address" if count == 1 else f"{count_text(count)} addresses"
    updates, per_program = f"{count_text(worst.updates)} atomic updates", f", {count_text(many)} per program"
    if not worst.knows_updates:
        updates, per_program = "Atomic updates", ""
    text = (
        f"{updates} of {places_text(alike)} at {where}"
        f"{' each' if len(alike) > 1 else ''}{per_program}; updates of one address are "
        "serialized. Reduce first, with tl.sum (or tl.histogram) over the block, then one atomic per program."
    )
    changed = tuple(
        replace(atomic, updates=min(atomic.updates, float(facts.programs) * max(1.0, atomic.addresses or 1.0)))
        if atomic in contended
        else atomic
        for atomic in facts.atomics
    )
    arguments = {atomic.argument for atomic in contended}
    left = sum(access.updates for access in changed) / sum(atomic.updates for atomic in facts.atomics)
    own = [access for access in facts.accesses if access.operation == "atomic" and access.argument in arguments]
    fixed = with_accesses(
        replace(facts, atomics=changed),
        own,
        lambda access: replace(access, sectors=access.sectors * left, requests=access.requests * left),
    )
    figures = {"updates of each address": worst.updates_per_address} if worst.knows_updates else {}
    return PerformanceFinding(Cause.ATOMICS, worst.line, text, figures, fixed)


MEMORY_RULES = {
    Cause.UNCOALESCED: uncoalesced_access,
    Cause.NARROW: narrow_access,
    Cause.REREAD: repeated_loads,
    Cause.SHARED_LOADS: shared_loads,
    Cause.ORDER: program_order,
    Cause.CONFLICTS: bank_conflicts,
    Cause.NO_PIPELINE: no_pipeline,
    Cause.ATOMICS: contended_atomics,
}
