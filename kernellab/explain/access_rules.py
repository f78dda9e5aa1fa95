"""Rules on single accesses: whether the lanes of a warp are coalesced, and how wide an instruction is.

A rule is a function of a launch's facts; it returns a proposal, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

from kernellab.errors import share_text
from kernellab.explain.causes import Cause, PerformanceFinding, count_text, joined_text, lines_text, sentence
from kernellab.explain.facts import WARP_THREADS, WIDEST_BYTES, AccessFacts, AtomicFacts, Facts, WidthLimit

_WASTEFUL = 0.6
OF_ALL = 0.1  # the least share of the transferred bytes that is worth a finding
ALIKE = 0.9  # of the worst; others that are as bad are named with it


def uncoalesced_access(facts: Facts) -> PerformanceFinding | None:
    """Threads of a warp access scattered addresses, so most of each sector is transferred for nothing."""
    total = sum(access.sectors for access in facts.accesses)
    wasteful = [
        access
        for access in facts.accesses
        if access.operation != "atomic"
        and access.efficiency < _WASTEFUL
        and not access.is_split
        and access.sectors > OF_ALL * total
    ]
    if not facts.has_traffic or not wasteful:
        return None
    worst = max(wasteful, key=lambda access: access.sectors - access.ideal_sectors)
    alike = [a for a in wasteful if a.sectors >= ALIKE * worst.sectors and a.leaves_gaps == worst.leaves_gaps]
    sectors, ideal = (sum(getattr(access, name) for access in alike) for name in ("sectors", "ideal_sectors"))
    text = (
        f"{_accesses_text(alike)} with scattered addresses: {count_text(sectors)} sectors, "
        f"{count_text(ideal)} ideal; {_part_text(sectors / total)} of the kernel's traffic. "
        f"{_REMEDY_OF_GAPS if worst.leaves_gaps else _REMEDY_OF_ORDER}"
    )
    fixed, least = with_accesses(facts, wasteful, _coalesce_access), None
    before, after = (sum(access.moved_bytes for access in f.accesses) for f in (facts, fixed))
    if facts.dram_bytes is not None and after:
        saved = max(0.0, facts.dram_bytes - facts.footprint_bytes) * (1 - after / before)
        fixed = replace(fixed, dram_bytes=facts.dram_bytes - saved)
    if worst.in_loop and not worst.leaves_gaps:  # an iteration then uses whole sectors, and may wait for each load
        trips = facts.loop_trips * worst.efficiency
        least = replace(fixed, loop_trips=max(trips, min(facts.loop_trips, _widest_loads(facts))))
        fixed = replace(fixed, loop_trips=trips)
    figures = {"sectors": sectors, "ideal sectors": ideal, "of all sectors": sectors / total}
    return PerformanceFinding(Cause.UNCOALESCED, worst.line, text, figures, fixed, least)


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


def places_text(accesses: Sequence[AccessFacts | AtomicFacts]) -> str:
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


def _widest_loads(facts: Facts) -> float:
    """Return the loads of a thread in the loops of a program, if each is as wide as one instruction can be."""
    loaded = sum(access.bytes for access in facts.accesses if access.operation == "load" and access.in_loop)
    return loaded / (facts.programs * facts.warps * WARP_THREADS * WIDEST_BYTES)


def with_accesses(facts: Facts, changed: Iterable[AccessFacts], change: Callable[[AccessFacts], AccessFacts]) -> Facts:
    """Return the facts with some accesses changed."""
    chosen = {id(access) for access in changed}
    return replace(facts, accesses=tuple(change(a) if id(a) in chosen else a for a in facts.accesses))


def narrow_access(facts: Facts) -> PerformanceFinding | None:
    """Threads own neighbouring elements and move them one by one: alignment or a common mask is not proven."""
    total = sum(access.bytes for access in facts.accesses)
    slow = [a for a in facts.accesses if a.is_narrow and a.is_split and a.bytes > OF_ALL * total]
    if not slow:
        return None
    worst = max(slow, key=lambda access: access.bytes / access.width_bytes)
    wide, figures_of = worst.possible_bytes, attrgetter("width_bytes", "possible_bytes", "element_bytes")
    alike = [access for access in slow if figures_of(access) == figures_of(worst)]
    reasons = dict.fromkeys(why for a in alike for why in _why_narrow(a, wide // max(1, worst.element_bytes)))
    text = (
        f"{_accesses_text(alike)} {worst.width_bytes} B per thread and instruction; {wide} B fit. {' '.join(reasons)}"
    )
    fixed = with_accesses(facts, slow, _widen_access)
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
