"""Random facts of launches, each possible by itself, whatever kernel they would be of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from kernellab.explain.devices import named_device
from kernellab.explain.facts import (
    AccessFacts,
    AtomicFacts,
    DotFacts,
    Facts,
    LineFacts,
    ReductionFacts,
    SharedFacts,
    WidthLimit,
)
from kernellab.explain.model import floor_seconds

DEVICES = ("h100", "h200", "a100-80", "l4", "rtx4090", "b200", "t4")
KINDS = ("fp16", "bf16", "tf32", "fp32", "fp8", "int8", "fp64", "tf32x3")
WORDS = ("fp64", "division", "division64", "pow", "precise", "exp", "libdevice erf")
SLOW = ("fp64", "special", "spill", "barrier", "shuffle", "conversion")
LINES = st.sampled_from([None, 3, 4, 5, 6, 7])
ARGUMENTS = st.sampled_from(["x", "y", "out"])
Draw = Callable[..., Any]


def one_of_powers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.sampled_from([1 << power for power in range(low, high + 1)])


def counts(most: float) -> st.SearchStrategy[float]:
    """Draw a count from 1 on, of any magnitude."""
    return st.floats(0.0, 1.0).map(lambda share: float(round(most**share)))


@st.composite
def accesses(draw: Draw, programs: int, warps: int, guessed: frozenset[int | None]) -> AccessFacts:
    """Draw an access whose bytes, sectors and requests fit its tile and the number of its runs."""
    element, elements, trips = (
        draw(one_of_powers(0, 3)),
        draw(one_of_powers(0, 14)),
        draw(st.sampled_from([1, 4, 63.5, 512])),
    )
    operation, in_loop = draw(st.sampled_from(["load", "load", "store", "atomic"])), trips > 1 or draw(st.booleans())
    line, tile, off = draw(LINES), float(element * elements), draw(st.sampled_from([0.0, 0.0, 0.3, 0.9]))
    moved = tile * trips * programs * (1 - off)
    ideal = max(1.0, moved / 32)
    owned = max(element, int(tile) // (32 * warps))
    width = max(element, min(16, owned) >> draw(st.sampled_from([0, 0, 2, 4])))
    touched = moved / draw(st.sampled_from([1, 1, 3, programs]))
    touched_sectors = touched * draw(st.sampled_from([1, 1.5, 8]))
    return AccessFacts(
        line=line,
        operation=operation,
        argument=draw(ARGUMENTS),
        bytes=moved,
        sectors=ideal * draw(st.sampled_from([1, 1, 1.1, 2, 8, 32])),
        ideal_sectors=ideal,
        requests=max(1.0, moved / (32 * width)),
        touched_bytes=draw(st.sampled_from([touched, None])),
        width_bytes=width,
        owned_bytes=owned,
        lanes_off=off,
        trips=float(trips),
        knows_trips=line not in guessed,
        is_async=operation == "load" and in_loop and draw(st.booleans()),
        is_replicated=elements < 32 * warps,
        element_bytes=element,
        tile_bytes=tile,
        in_loop=in_loop,
        lane_step_bytes=draw(st.sampled_from([None, 0.0, float(element), float(owned), 4096.0])),
        axes=frozenset(draw(st.sets(st.integers(0, 2)))),
        argument_bytes=draw(st.sampled_from([touched_sectors, None])),
        sector_bytes=draw(st.sampled_from([touched_sectors, None])),
        limits=draw(st.sampled_from([None, (), (WidthLimit("mask", "n", 1001),), (WidthLimit("base", "x"),)])),
    )


@st.composite
def dots(draw: Draw) -> DotFacts:
    kind = draw(st.sampled_from(KINDS))
    return DotFacts(
        line=draw(LINES),
        kind=kind,
        flops=1e6 * draw(counts(1e7)),
        on_tensor_cores=kind not in {"fp32", "fp64"} and draw(st.sampled_from([True, True, False])),
        tile=(draw(one_of_powers(4, 8)), draw(one_of_powers(4, 8)), draw(one_of_powers(4, 7))),
        was_narrower=draw(st.sampled_from(["", "", "fp16", "fp8"])) if kind in {"fp32", "tf32"} else "",
        in_loop=draw(st.booleans()),
        unit=draw(st.sampled_from(["wgmma", "mma"])),
    )


def multiplications(dot: DotFacts) -> LineFacts:
    """Return the instructions of a product: those of its own if the tensor cores do not compute it."""
    return LineFacts(dot.line, 100.0 if dot.on_tensor_cores else dot.flops / 64)


@st.composite
def lines(draw: Draw, programs: int, warps: int) -> tuple[LineFacts, ...]:
    """Draw the instructions of some lines, each once."""
    found = []
    for line in draw(st.sets(LINES, max_size=4)):
        instructions = programs * warps * draw(counts(1e4))
        shares = {
            kind: draw(st.sampled_from([0.0, 0.1, 0.5])) for kind in draw(st.sets(st.sampled_from(SLOW), max_size=2))
        }
        slow = {kind: instructions * share for kind, share in shares.items()}
        words = frozenset(draw(st.sets(st.sampled_from(WORDS), max_size=2)))
        found.append(LineFacts(line, instructions, slow, words, draw(counts(512)), draw(st.booleans())))
    return tuple(found)


@st.composite
def shared(draw: Draw) -> SharedFacts:
    ideal = draw(counts(1e7))
    return SharedFacts(draw(LINES), "load", ideal * draw(st.sampled_from([1, 1.2, 2, 8, 32])), ideal)


@st.composite
def reductions(draw: Draw, guessed: frozenset[int | None]) -> ReductionFacts:
    trips, flops = draw(st.sampled_from([1.0, 8.0, 512.0])), draw(counts(1e11))
    line, flags = draw(LINES), {name: draw(st.booleans()) for name in ("as_product", "accumulates")}
    return ReductionFacts(line, trips, trips > 1, flops=flops, knows_trips=line not in guessed, **flags)


@st.composite
def atomics(draw: Draw, programs: int) -> AtomicFacts:
    updates = programs * draw(counts(4096))
    addresses = draw(st.sampled_from([None, 1.0, 64.0, updates]))
    return AtomicFacts(draw(LINES), draw(ARGUMENTS), updates, addresses)


def some(strategy: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=most).map(tuple)


def with_twins(accesses: Sequence[AccessFacts], draw: Draw) -> tuple[AccessFacts, ...]:
    """Return accesses, some of them twice: by another line, of another argument."""
    twins = [replace(each, line=8, argument="twin") for each in accesses if draw(st.booleans())]
    return (*accesses, *twins[:1])


@st.composite
def launches(draw: Draw) -> Facts:
    """Draw the facts of a launch, with or without counted traffic and a measured time."""
    programs, warps = int(draw(counts(1e6))), draw(one_of_powers(0, 5))
    guessed = draw(st.sampled_from([frozenset[int | None](), frozenset({5})]))
    own = with_twins(draw(st.lists(accesses(programs, warps, guessed), max_size=4)), draw)
    products = draw(some(dots(), 2))
    own_lines = (*draw(lines(programs, warps)), *map(multiplications, products))
    spills = any("spill" in each.slow for each in own_lines)
    touched = sum(each.touched_bytes if each.touched_bytes is not None else each.bytes for each in own)
    unknown = ("Trip counts are assumed to be 8 in line 5: a bound is loaded.",) if guessed else ()
    found = Facts(
        kernel="k",
        target="cuda:90",
        device=named_device(draw(st.sampled_from(DEVICES))).rates,
        programs=programs,
        warps=warps,
        resident=draw(st.integers(1, 64 // warps)),
        grid=(programs, 1, 1),
        limiter=draw(st.sampled_from(["", "registers", "shared memory"])),
        stages=draw(st.integers(1, 5)),
        loop_stages=draw(st.sampled_from([0, 0, 1, 2, 4, 6])),
        registers=draw(st.sampled_from([None, 32, 64, 128, 255])),
        spill_bytes=256 if spills else 0,
        accesses=own,
        shared=draw(some(shared(), 2)),
        dots=products,
        lines=own_lines,
        reductions=draw(some(reductions(guessed), 2)),
        atomics=draw(some(atomics(programs), 2)),
        footprint_bytes=touched,
        dram_bytes=draw(st.sampled_from([None, touched, 2.5 * touched])),
        loop_trips=draw(st.sampled_from([0.0, 0.0, 16.0, 512.0])),
        has_traffic=draw(st.booleans()),
        unknown=unknown,
    )
    factor = draw(st.sampled_from([None, None, 0.95, 1.1, 2.0, 30.0]))
    return found if factor is None else replace(found, time_s=factor * floor_seconds(found))
