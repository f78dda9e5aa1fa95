"""Rules on memory: coalescing, width, repeated loads, and latency of accesses.

A rule is a function of a launch's facts; it returns a proposal, or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

from kernellab.errors import share_text
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
    AtomicFacts,
    Facts,
    ReductionFacts,
    WidthLimit,
    is_repeated,
)
from kernellab.explain.hbm import dram_bytes
from kernellab.explain.model import bytes_in_flight, needed_bytes_in_flight, times_of

_WASTEFUL = 0.6
_OF_ALL = 0.1  # the least share of the transferred bytes that is worth a finding
_LEAST_ROUNDS = 4
_STAGES = 4
_ALIKE = 0.9  # of the worst; others that are as bad are named with it


def uncoalesced_access(facts: Facts) -> PerformanceFinding | None:
    """Threads of a warp access scattered addresses, so most of each sector is transferred for nothing."""
    total = sum(access.sectors for access in facts.accesses)
    wasteful = [
        access
        for access in facts.accesses
        if access.operation != "atomic"
        and access.efficiency < _WASTEFUL
        and not access.is_split
        and access.sectors > _OF_ALL * total
    ]
    if not facts.has_traffic or not wasteful:
        return None
    worst = max(wasteful, key=lambda access: access.sectors - access.ideal_sectors)
    alike = [a for a in wasteful if a.sectors >= _ALIKE * worst.sectors and a.leaves_gaps == worst.leaves_gaps]
    sectors, ideal = (sum(getattr(access, name) for access in alike) for name in ("sectors", "ideal_sectors"))
    text = (
        f"{_accesses_text(alike)} with scattered addresses: {count_text(sectors)} sectors, "
        f"{count_text(ideal)} ideal; {_part_text(sectors / total)} of the kernel's traffic. "
        f"{_REMEDY_OF_GAPS if worst.leaves_gaps else _REMEDY_OF_ORDER}"
    )
    fixed = _with_accesses(facts, wasteful, _coalesce_access)
    if worst.in_loop and not worst.leaves_gaps:  # an iteration then uses whole sectors
        fixed = replace(fixed, loop_trips=facts.loop_trips * worst.efficiency)
    before, after = (sum(access.moved_bytes for access in f.accesses) for f in (facts, fixed))
    if facts.dram_bytes is not None and after:
        saved = max(0.0, facts.dram_bytes - facts.footprint_bytes) * (1 - after / before)
        fixed = replace(fixed, dram_bytes=facts.dram_bytes - saved)
    figures = {"sectors": sectors, "ideal sectors": ideal, "of all sectors": sectors / total}
    return PerformanceFinding(Cause.UNCOALESCED, worst.line, text, figures, fixed)


_REMEDY_OF_ORDER = (
    "Make neighbouring lanes access neighbouring elements: put the axis with stride 1 last in the tile (swap the axes "
    "of the offsets, load a tile of rows and columns instead of a row per thread, or transpose the tile by tl.trans)."
)
_REMEDY_OF_GAPS = (
    "No program uses the bytes between, so another order of lanes does not help. Change the data layout: store what is "
    "used together contiguously (one array per field, or a packed copy)."
)


def _accesses_text(accesses: Sequence[AccessFacts]) -> str:
    """Return ``Lines 3 and 4 load x and line 5 stores y and z``."""
    arguments: dict[tuple[int | None, str], list[str]] = {}
    for access in sorted(accesses, key=lambda access: (access.line or 0, access.operation)):
        verb = "load" if access.operation == "load" else "store"
        arguments.setdefault((access.line, verb), []).append(access.argument)
    lines: dict[tuple[str, str], list[int | None]] = {}
    for (line, verb), names in arguments.items():
        lines.setdefault((verb, joined_text(names)), []).append(line)
    return sentence(
        joined_text(f"{lines_text(own)} {verb}{'s' * (len(own) == 1)} {names}" for (verb, names), own in lines.items())
    )


def _places_text(accesses: Sequence[AccessFacts | AtomicFacts]) -> str:
    """Return ``x and y in lines 3 and 4``."""
    return f"{joined_text(a.argument for a in accesses)} in {lines_text(a.line for a in accesses)}"


def _part_text(share: float) -> str:
    """Return a share in words: ``all``, ``half``, ``12 %``."""
    return "all" if share > 0.99 else "half" if abs(share - 0.5) < 0.01 else share_text(share)


def _coalesce_access(access: AccessFacts) -> AccessFacts:
    width = max(access.width_bytes, access.possible_bytes)
    requests = min(access.requests, access.bytes / (WARP_THREADS * max(width, 1)))
    if access.leaves_gaps:
        access = replace(access, argument_bytes=access.touched_bytes, sector_bytes=access.touched_bytes)
    return replace(access, sectors=access.ideal_sectors, requests=requests, width_bytes=width)


def _with_accesses(facts: Facts, changed: Iterable[AccessFacts], change: Callable[[AccessFacts], AccessFacts]) -> Facts:
    """Return the facts with some accesses changed."""
    chosen = {id(access) for access in changed}
    return replace(facts, accesses=tuple(change(a) if id(a) in chosen else a for a in facts.accesses))


def narrow_access(facts: Facts) -> PerformanceFinding | None:
    """Threads own neighbouring elements and move them one by one: alignment or a common mask is not proven."""
    total = sum(access.bytes for access in facts.accesses)
    slow = [a for a in facts.accesses if a.is_narrow and a.is_split and a.bytes > _OF_ALL * total]
    if not slow:
        return None
    worst = max(slow, key=lambda access: access.bytes / access.width_bytes)
    wide, figures_of = worst.possible_bytes, attrgetter("width_bytes", "possible_bytes", "element_bytes")
    alike = [access for access in slow if figures_of(access) == figures_of(worst)]
    reasons = dict.fromkeys(why for a in alike for why in _why_narrow(a, wide // max(1, worst.element_bytes)))
    text = (
        f"{_accesses_text(alike)} {worst.width_bytes} B per thread and instruction; {wide} B fit. {' '.join(reasons)}"
    )
    fixed = _with_accesses(facts, slow, _widen_access)
    factor = worst.width_bytes / wide
    lines = {access.line for access in slow}
    fixed = replace(
        fixed,
        lines=tuple(
            replace(line, instructions=line.instructions * (0.5 + factor / 2)) if line.line in lines else line
            for line in facts.lines
        ),
    )
    return PerformanceFinding(
        Cause.NARROW, worst.line, text, {"bytes at a time": worst.width_bytes, "possible": wide}, fixed
    )


def _why_narrow(access: AccessFacts, elements: int) -> list[str]:
    """Return each reason why an access is narrow, with a remedy; ``elements`` would fit one instruction."""
    if access.limits is None:
        declaration = f"tl.multiple_of(offset, {elements}) (and tl.max_contiguous)"
        proof = "The compiler cannot prove that the addresses are aligned."
        return [f"{proof} Declare it with {declaration}, or make strides and starts divisible by 16."]
    if not access.limits:
        return ["The reason is unknown."]
    return [_remedy_of_limit(limit, access.argument, elements) for limit in access.limits]


def _remedy_of_limit(limit: WidthLimit, argument: str, elements: int) -> str:
    source, value = limit.source, limit.value
    if limit.part == "base":
        return (
            f"The address of {argument} is not divisible by 16. Pass an aligned tensor: a copy, or a view whose "
            "offset is a multiple of 16 bytes."
        )
    if limit.part == "mask":
        named = f"{source} ({value:,})" if value is not None else source or "a value"
        return (
            f"The mask compares with {named}, not known to be a multiple of {elements}, so it may end between two "
            f"elements of a thread; tl.multiple_of on the offset does not help. "
            f"{_divisible(limit, elements, f'pad the data to a multiple of {elements}')}, or load full blocks without "
            "a mask, in a branch of their own."
        )
    if value is None:
        because = f": it depends on {source}" if source else ""
        return (
            f"The compiler cannot prove that the offset is a multiple of {elements}{because}. If it is, declare it "
            f"with tl.multiple_of(offset, {elements})."
        )
    return (
        f"{source} = {value:,} is not divisible by 16, the only divisibility that Triton checks. "
        f"{_divisible(limit, elements, 'pad the rows to a multiple of 16')}."
    )


def _divisible(limit: WidthLimit, elements: int, otherwise: str) -> str:
    """Return the remedy for a bound or stride: a constexpr where it is a multiple, else padding."""
    if limit.value is not None and limit.value % elements == 0:
        return f"Declare {limit.source} as tl.constexpr, or {otherwise}"
    return otherwise.capitalize()


def _widen_access(access: AccessFacts) -> AccessFacts:
    wide = access.possible_bytes
    requests = access.requests * (access.width_bytes / wide)
    return replace(access, width_bytes=wide, requests=requests, sectors=access.ideal_sectors)


def repeated_loads(facts: Facts) -> PerformanceFinding | None:
    """Several lines load the same elements of an argument, one pass after the other."""
    loads: dict[str, list[AccessFacts]] = {}
    for access in facts.accesses:
        if access.operation == "load":
            loads.setdefault(access.argument, []).append(access)
    total = sum(access.bytes for access in facts.accesses)
    passes = {name: group for name, group in loads.items() if is_repeated(group) and group[0].bytes > _OF_ALL * total}
    if not passes or facts.dots:
        return None
    sums = {name: sum(access.bytes for access in group) for name, group in passes.items()}
    alike = {name: group for name, group in passes.items() if sums[name] >= _ALIKE * max(sums.values())}
    group = max(alike.values(), key=lambda group: sum(access.bytes for access in group))
    later = [load for own in alike.values() for load in sorted(own, key=lambda access: access.line or 0)[1:]]
    times = sum(access.bytes for access in group) / max(access.touched_bytes or access.bytes for access in group)
    last = max(later, key=lambda access: access.line or 0).line
    text = (
        f"{joined_text(alike)} {'is' if len(alike) == 1 else 'are'} loaded {times:.2g} times, the last time in "
        f"{lines_text([last])}. Keep the row in registers: one block for all of it (a larger "
        f"BLOCK{_more_warps(facts)}), or a single pass (an online maximum and sum)."
    )
    again = {id(access) for access in later}
    kept = tuple(access for access in facts.accesses if id(access) not in again)
    unique = sum(
        {(access.argument, access.operation): access.touched_bytes or access.bytes for access in kept}.values()
    )
    trips = facts.loop_trips / len(group)
    fixed = replace(facts, accesses=kept, loop_trips=trips, dram_bytes=min(unique, dram_bytes(facts)))
    return PerformanceFinding(Cause.REREAD, last, text, {"times loaded": times}, fixed)


def _more_warps(facts: Facts) -> str:
    """Return the advice to use more warps where a program can have more."""
    return " with more num_warps" if facts.warps < MOST_WARPS else ""


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
    alike = [load for load in loads if load.bytes >= _ALIKE * worst.bytes]
    times, each_takes = _reuse(worst), min(_RESULTS, many)
    is_whole = all((access.touched_bytes or 0.0) > 0.99 * (access.argument_bytes or math.inf) for access in alike)
    loaded, distinct = sum(access.bytes for access in alike), sum(access.touched_bytes or 0.0 for access in alike)
    text = (
        f"Each of {count_text(facts.programs)} programs loads {'all' if is_whole else 'most'} of "
        f"{_places_text(alike)}: {bytes_text(loaded)} loaded, {bytes_text(distinct)} distinct. "
        f"Compute several results per program from one load ({each_takes} rows of a tile), or compute the common part "
        "once, in a kernel of its own."
    )
    accesses = _with_accesses(facts, loads, lambda access: scale_traffic(access, 1 / each_takes))
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
    alike = [
        a for a in repeated if a.bytes >= _ALIKE * worst.bytes and _ALIKE <= _reuse(a) / _reuse(worst) <= 1 / _ALIKE
    ]
    text = (
        f"Each byte of {_places_text(alike)} is loaded {_reuse(worst):.3g} times, in programs that run far apart: HBM "
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
        if a.wavefronts >= _ALIKE * worst.wavefronts and a.ideal_wavefronts <= worst.ideal_wavefronts / _ALIKE
    ]
    turns, ideal = sum(access.wavefronts for access in alike), sum(access.ideal_wavefronts for access in alike)
    text = (
        f"{sentence(lines_text(access.line for access in alike))}: {ways:.2g}-way bank conflicts "
        f"({count_text(turns)} wavefronts, {count_text(ideal)} ideal). Spread the indices over the banks "
        "of shared memory (another order of axes, an odd stride), or keep the values in registers."
    )
    chosen = {id(access) for access in wasteful}
    shared = (replace(e, wavefronts=e.ideal_wavefronts) if id(e) in chosen else e for e in facts.shared)
    fixed = replace(facts, shared=tuple(shared))
    figures = {"wavefronts": turns, "without conflicts": ideal}
    return PerformanceFinding(Cause.CONFLICTS, worst.line, text, figures, fixed)


def no_pipeline(facts: Facts) -> PerformanceFinding | None:
    """Each iteration of a loop waits for its own loads, and too few programs run meanwhile to hide that."""
    loops = [access for access in facts.accesses if access.operation == "load" and access.in_loop]
    waiting = [load for load in loops if not load.is_async and load.trips >= _LEAST_ROUNDS]
    times = times_of(facts)
    if not waiting or times.latency < 0.5 * times.longest:
        return None
    if not facts.dots and bytes_in_flight(facts) > 0.8 * needed_bytes_in_flight(facts):
        return None
    worst = max(waiting, key=lambda load: (load.tile_bytes, load.trips, -(load.line or 0)))
    figures_of = attrgetter("tile_bytes", "trips", "knows_trips", "width_bytes")
    alike = [load for load in waiting if figures_of(load) == figures_of(worst)]
    in_flight, needed = bytes_in_flight(facts), needed_bytes_in_flight(facts)
    hidden = f"; about {bytes_text(needed)} needed to hide latency" if in_flight < needed else ""
    text = (
        f"{sentence(iterations_text(worst))} waits for {_places_text(alike)}: {bytes_text(in_flight)} in "
        f"flight{hidden}. {_prefetch_text(worst, facts)}"
    )
    fixed = replace(
        facts,
        loop_trips=facts.loop_trips / _STAGES,
        accesses=tuple(replace(a, is_async=a.is_async or a in waiting) for a in facts.accesses),
    )
    figures = {"iterations": worst.trips, "KiB in flight": in_flight / 1024}
    return PerformanceFinding(Cause.NO_PIPELINE, worst.line, text, figures, fixed)


def iterations_text(repeated: AccessFacts | ReductionFacts) -> str:
    """Return ``each of 64 iterations``; without the number where it is a guess."""
    return f"each of {count_text(repeated.trips)} iterations" if repeated.knows_trips else "every iteration"


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
    alike = [a for a in contended if (a.updates, a.addresses) == (worst.updates, worst.addresses)]
    many, count = worst.updates / facts.programs, worst.addresses or 1
    where = "one address" if count == 1 else f"{count_text(count)} addresses"
    text = (
        f"{count_text(worst.updates)} atomic updates of {_places_text(alike)} at {where}"
        f"{' each' if len(alike) > 1 else ''}, {count_text(many)} per program; updates of one address are "
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
    fixed = replace(
        facts,
        atomics=changed,
        accesses=tuple(
            replace(access, sectors=access.sectors * left, requests=access.requests * left)
            if access.operation == "atomic" and access.argument in arguments
            else access
            for access in facts.accesses
        ),
    )
    return PerformanceFinding(
        Cause.ATOMICS, worst.line, text, {"updates of each address": worst.updates_per_address}, fixed
    )


MEMORY_RULES = (
    uncoalesced_access,
    narrow_access,
    repeated_loads,
    shared_loads,
    program_order,
    bank_conflicts,
    no_pipeline,
    contended_atomics,
)
