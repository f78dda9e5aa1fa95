"""Rules on memory: coalescing, width, repeated loads, and latency of accesses.

A rule is a function of a launch's facts; it returns a proposal, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from kernellab.errors import plural
from kernellab.explain.causes import Cause, PerformanceFinding, figure_text
from kernellab.explain.facts import (
    WARP_THREADS,
    AccessFacts,
    Facts,
    WidthLimit,
    is_repeated,
)
from kernellab.explain.model import Bottleneck, bytes_in_flight, dram_bytes, needed_bytes_in_flight, times_of

_WASTEFUL = 0.6
_OF_ALL = 0.1  # the least share of the transferred bytes that is worth a finding
_LEAST_ROUNDS = 4
_TINY_TILE = 32 * 32  # below it, addresses and masks dominate the arithmetic
_STAGES = 4


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
    waste = worst.sectors / worst.ideal_sectors
    wanted = "loads" if worst.operation == "load" else "stores"
    text = (
        f"line {worst.line} {wanted} {worst.argument} at addresses that lie apart: it moves {waste:.3g} times "
        f"the bytes that it uses. {_REMEDY_OF_GAPS if worst.leaves_gaps else _REMEDY_OF_ORDER}"
    )
    fixed = _with_accesses(facts, wasteful, _coalesce_access)
    if worst.in_loop and not worst.leaves_gaps:  # an iteration then uses whole sectors
        fixed = replace(fixed, loop_trips=facts.loop_trips * worst.efficiency)
    before, after = (sum(access.moved_bytes for access in f.accesses) for f in (facts, fixed))
    if facts.dram_bytes is not None and after:
        saved = max(0.0, facts.dram_bytes - facts.footprint_bytes) * (1 - after / before)
        fixed = replace(fixed, dram_bytes=facts.dram_bytes - saved)
    figures = {"sectors": worst.sectors, "ideal sectors": worst.ideal_sectors, "of all sectors": worst.sectors / total}
    return PerformanceFinding(Cause.UNCOALESCED, worst.line, text, figures, fixed)


_REMEDY_OF_ORDER = (
    "Let neighbouring threads take neighbouring elements: the axis with stride 1 last in the tile (another order of "
    "axes in the offsets, a tile of rows and columns in place of a row per thread, or a tile that is transposed by "
    "tl.trans)."
)
_REMEDY_OF_GAPS = (
    "No program touches what lies between, so no other order of threads helps. The gain is that of another layout: "
    "what is used together side by side (an array for each field, a contiguous copy that is used many times)."
)


def _coalesce_access(access: AccessFacts) -> AccessFacts:
    width = max(access.width_bytes, access.possible_bytes)
    requests = min(access.requests, access.bytes / (WARP_THREADS * max(width, 1)))
    return replace(access, sectors=access.ideal_sectors, requests=requests, width_bytes=width)


def _with_accesses(facts: Facts, changed: Iterable[AccessFacts], change: Callable[[AccessFacts], AccessFacts]) -> Facts:
    """Return the facts with some accesses changed."""
    chosen = {id(each) for each in changed}
    return replace(facts, accesses=tuple(change(a) if id(a) in chosen else a for a in facts.accesses))


def narrow_access(facts: Facts) -> PerformanceFinding | None:
    """Threads own neighbouring elements and move them one by one: alignment or a common mask is not proven."""
    total = sum(each.bytes for each in facts.accesses)
    slow = [each for each in facts.accesses if each.is_narrow and each.is_split and each.bytes > _OF_ALL * total]
    if not slow:
        return None
    worst = max(slow, key=lambda each: each.bytes / each.width_bytes)
    wide = worst.possible_bytes
    text = (
        f"line {worst.line} moves {plural(worst.width_bytes, 'byte')} of {worst.argument} per thread and instruction "
        f"where {wide} would fit: {_why_narrow(worst, wide // max(1, worst.element_bytes))}"
    )
    fixed = _with_accesses(facts, slow, _widen_access)
    factor = worst.width_bytes / wide
    lines = {each.line for each in slow}
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


def _why_narrow(access: AccessFacts, elements: int) -> str:
    """Return why an access is narrow, and a remedy for each reason; ``elements`` would fit one instruction."""
    if access.limits is None:
        return (
            "the compiler does not know that the addresses are aligned. Say so with "
            f"tl.multiple_of(offset, {elements}) (and tl.max_contiguous), or make strides and starts divisible by 16."
        )
    if not access.limits:
        return "why is not known here."
    return " ".join(_remedy_of_limit(limit, access.argument, elements) for limit in access.limits)


def _remedy_of_limit(limit: WidthLimit, argument: str, elements: int) -> str:
    source, value = limit.source, limit.value
    if limit.part == "base":
        return (
            f"{argument} starts at an address that is not divisible by 16. Pass a tensor that does: a copy, or a view "
            "whose offset is a multiple of 16 bytes."
        )
    if limit.part == "mask":
        named = f"{source} ({value:,})" if value is not None else source or "a value"
        return (
            f"the mask compares with {named}, which is not known to be a multiple of {elements}, so that neighbours "
            "may differ in it; tl.multiple_of on the offset changes nothing. "
            f"{_divisible(limit, elements, 'pad the data so that it is')}, or take blocks that lie inside as a whole "
            "without a mask, by a branch."
        )
    if value is None:
        because = f", since {source} takes part in it" if source else ""
        return (
            f"the compiler does not know that the offset is a multiple of {elements}{because}. If it is, say so with "
            f"tl.multiple_of(offset, {elements})."
        )
    return (
        f"{source} is {value:,}, and the compiler looks only whether an argument is divisible by 16. "
        f"{_divisible(limit, elements, 'pad the rows so that it is')}"
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
    name, group = max(passes.items(), key=lambda pair: sum(access.bytes for access in pair[1]))
    later = sorted(group, key=lambda access: access.line or 0)[1:]
    times = sum(access.bytes for access in group) / max(access.touched_bytes or access.bytes for access in group)
    text = (
        f"{name} is loaded {times:.2g} times over, the last time in line {later[-1].line}. Keep it in registers "
        "between the passes: one block that holds the whole row (a larger BLOCK with more num_warps), or one pass "
        "that carries what the later ones need (an online maximum and sum)."
    )
    again = {id(access) for access in later}
    kept = tuple(access for access in facts.accesses if id(access) not in again)
    unique = sum(
        {(access.argument, access.operation): access.touched_bytes or access.bytes for access in kept}.values()
    )
    trips = facts.loop_trips / len(group)
    fixed = replace(facts, accesses=kept, loop_trips=trips, dram_bytes=min(unique, dram_bytes(facts)))
    return PerformanceFinding(Cause.REREAD, later[-1].line, text, {"times loaded": times}, fixed)


def shared_loads(facts: Facts) -> PerformanceFinding | None:
    """Every program loads most of an argument, for few results."""
    many = facts.programs // facts.device.multiprocessors
    moved = sum(each.moved_bytes for each in facts.accesses)
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
    worst = max(loads, key=lambda each: each.bytes)
    times, each_takes = _reuse(worst), min(_RESULTS, many)
    whole = worst.argument_bytes
    is_whole = whole is not None and (worst.touched_bytes or 0.0) > 0.99 * whole
    text = (
        f"each of {facts.programs:,} programs loads {'all' if is_whole else 'most'} of {worst.argument} in "
        f"line {worst.line}: {figure_text(times)} times over, {figure_text(worst.bytes / 1e6)} MB where there are "
        f"{figure_text((worst.touched_bytes or 0.0) / 1e6)}. Let a program work out several results from what it has "
        f"loaded ({each_takes} of them, as rows of a tile), or work out once what is the same for all, in a launch of "
        "its own."
    )
    accesses = _with_accesses(facts, loads, lambda access: _scale_traffic(access, 1 / each_takes))
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
    repeated = [each for each in facts.accesses if each.operation == "load" and _reuse(each) > 1.5]
    if not repeated or any(not each.is_split for each in facts.accesses):
        return None
    worst = max(repeated, key=lambda each: each.bytes - (each.touched_bytes or each.bytes))
    times = facts.dram_bytes / facts.footprint_bytes
    text = (
        f"line {worst.line} loads each byte of {worst.argument} {_reuse(worst):.3g} times, in programs that run far "
        f"apart: memory moves {times:.3g} times what is there. Let programs that share data follow each other: swap "
        "the axes of the grid, or number the tiles in groups (tl.swizzle2d, GROUP_M)."
    )
    fixed = replace(facts, dram_bytes=facts.footprint_bytes * 1.05)
    return PerformanceFinding(Cause.ORDER, worst.line, text, {"bytes moved of those there": times}, fixed)


def _reuse(access: AccessFacts) -> float:
    return access.bytes / access.touched_bytes if access.touched_bytes else 1.0


def bank_conflicts(facts: Facts) -> PerformanceFinding | None:
    """Threads of a warp access different words of one bank of shared memory, one after the other."""
    wasteful = [each for each in facts.shared if each.wavefronts > 1.5 * each.ideal_wavefronts > 0]
    times = times_of(facts)
    if not wasteful or times.shared < 0.2 * times.longest:
        return None
    worst = max(wasteful, key=lambda each: each.wavefronts - each.ideal_wavefronts)
    ways = worst.wavefronts / worst.ideal_wavefronts
    text = (
        f"line {worst.line} takes {ways:.3g} turns where one would do: the threads of a warp want different words of "
        "one bank of shared memory. Spread the indices over the banks (another order of axes, an odd stride), or "
        "keep the values in registers."
    )
    chosen = {id(each) for each in wasteful}
    shared = (replace(e, wavefronts=e.ideal_wavefronts) if id(e) in chosen else e for e in facts.shared)
    fixed = replace(facts, shared=tuple(shared))
    figures = {"wavefronts": worst.wavefronts, "without conflicts": worst.ideal_wavefronts}
    return PerformanceFinding(Cause.CONFLICTS, worst.line, text, figures, fixed)


def no_pipeline(facts: Facts) -> PerformanceFinding | None:
    """Each iteration of a loop waits for its own loads, and too few programs run meanwhile to hide that."""
    loops = [each for each in facts.accesses if each.operation == "load" and each.in_loop]
    waiting = [each for each in loops if not each.is_async and each.trips >= _LEAST_ROUNDS]
    times = times_of(facts)
    if not waiting or times.latency < 0.5 * times.longest:
        return None
    if not facts.dots and bytes_in_flight(facts) > 0.8 * needed_bytes_in_flight(facts):
        return None
    worst = max(waiting, key=lambda each: (each.tile_bytes, -(each.line or 0)))
    remedy = (
        f"num_stages={_STAGES - 1} or more (it is {facts.stages})"
        if any(dot.in_loop for dot in facts.dots)
        else f"tl.range(..., num_stages={_STAGES}), a larger block, or more programs"
    )
    text = (
        f"line {worst.line} waits for {worst.argument} in each of {worst.trips:.3g} rounds, with "
        f"{bytes_in_flight(facts) / 1024:,.4g} KiB under way where the memory takes "
        f"{needed_bytes_in_flight(facts) / 1024:,.4g} KiB at a time. Load rounds ahead: {remedy}."
    )
    fixed = replace(
        facts,
        loop_trips=facts.loop_trips / _STAGES,
        accesses=tuple(replace(a, is_async=a.is_async or a in waiting) for a in facts.accesses),
    )
    figures = {"rounds": worst.trips, "KiB under way": bytes_in_flight(facts) / 1024}
    return PerformanceFinding(Cause.NO_PIPELINE, worst.line, text, figures, fixed)


def small_tiles(facts: Facts) -> PerformanceFinding | None:
    """Tiles of a product are so small that each operand is fetched many times."""
    small = [dot for dot in facts.dots if dot.on_tensor_cores and dot.tile[0] * dot.tile[1] <= 64 * 64]
    if not small:
        return None
    worst = max(small, key=lambda dot: dot.flops)
    m, n, _ = worst.tile
    times = times_of(facts)
    slowest = max(_PACED_BY_TILES, key=lambda unit: times.units[unit])
    paced, pace = times.units[slowest], f"and most of the time is {slowest}"
    if m * n < _TINY_TILE and times.arithmetic > paced:
        paced, pace = times.arithmetic, "and its addresses and masks are worked out for few products"
    if paced < 0.7 * times.longest or not worst.in_loop:
        return None
    wide = next((each for each in _TILES if _fits_tile(facts, m * n, each[0] * each[1])), None)
    if wide is None:
        return None
    wide = (max(wide[0], m), max(wide[1], n))
    factor = (1 / wide[0] + 1 / wide[1]) / (1 / m + 1 / n)
    text = (
        f"the tile of the product in line {worst.line} is {m} x {n}: each operand is fetched once per tile, "
        f"{pace}. A larger block, such as {wide[0]} x {wide[1]} with num_warps=8, fetches "
        f"{1 / factor:.2g} times less."
    )
    accesses = tuple(_scale_traffic(each, factor) if each.in_loop else each for each in facts.accesses)
    programs = max(1, int(facts.programs * m * n / wide[0] / wide[1]))
    dots = tuple(replace(dot, tile=(*wide, dot.tile[2])) if dot in small else dot for dot in facts.dots)
    shared = tuple(replace(each, wavefronts=each.wavefronts * factor) for each in facts.shared)
    lines = tuple(each.scaled_by(factor) for each in facts.lines)
    fixed = replace(facts, accesses=accesses, programs=programs, dots=dots, shared=shared, lines=lines)
    figures = {"rows": float(m), "columns": float(n), "fetched by larger tiles": factor}
    return PerformanceFinding(Cause.TILES, worst.line, text, figures, fixed)


_TILES = ((128, 128), (128, 64), (64, 64))
_PACED_BY_TILES = (Bottleneck.L2, Bottleneck.LOADS, Bottleneck.LATENCY, Bottleneck.TENSOR, Bottleneck.SHARED)


def _fits_tile(facts: Facts, elements: int, wide: int) -> bool:
    """Whether a larger tile leaves enough programs for all multiprocessors."""
    return wide > elements and facts.programs * elements / wide >= facts.device.multiprocessors


def _scale_traffic(access: AccessFacts, factor: float) -> AccessFacts:
    names = ("sectors", "ideal_sectors", "requests", "bytes")
    return replace(access, **{name: getattr(access, name) * factor for name in names})


def contended_atomics(facts: Facts) -> PerformanceFinding | None:
    """Many threads update one address by atomics, which happen one after the other."""
    times = times_of(facts)
    contended = [
        atomic
        for atomic in facts.atomics
        if atomic.updates_per_address >= WARP_THREADS and atomic.updates > facts.programs
    ]
    if not contended or times.atomics < 0.3 * times.longest:
        return None
    worst = max(contended, key=lambda atomic: atomic.updates_per_address)
    many, count = worst.updates / facts.programs, worst.addresses or 1
    where = "one address" if count == 1 else f"{figure_text(count)} addresses"
    text = (
        f"line {worst.line} updates {worst.argument} {figure_text(worst.updates)} times at {where}, "
        f"{figure_text(many)} times from each program; updates of one address wait for each other. Combine them "
        "first: tl.sum (or tl.histogram) over the block, then one atomic per program."
    )
    changed = (
        replace(each, updates=min(each.updates, float(facts.programs) * max(1.0, each.addresses or 1.0)))
        if each in contended
        else each
        for each in facts.atomics
    )
    fixed = replace(facts, atomics=tuple(changed))
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
    small_tiles,
    contended_atomics,
)
