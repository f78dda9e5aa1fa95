"""Random facts of launches from a seed, each possible by itself, whatever kernel they would be of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

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
LINES = (None, 3, 4, 5, 6, 7)
ARGUMENTS = ("x", "y", "out")
LIMITS = (None, (), (WidthLimit("mask", "n", 1001),), (WidthLimit("base", "x"),))
Drawn = TypeVar("Drawn")


def power(draw: Random, low: int, high: int) -> int:
    return 1 << draw.randint(low, high)


def count(draw: Random, most: float) -> float:
    """Draw a count from 1 to ``most``, of any magnitude."""
    return float(round(most ** draw.random()))


def some(draw: Random, most: int, one: Callable[[], Drawn]) -> tuple[Drawn, ...]:
    return tuple(one() for _ in range(draw.randint(0, most)))


def is_true(draw: Random, share: float = 0.5) -> bool:
    return draw.random() < share


def access(draw: Random, programs: int, warps: int, guessed: int | None) -> AccessFacts:
    """Draw an access whose bytes, sectors and requests fit its tile and the number of its runs."""
    element, elements, trips = power(draw, 0, 3), power(draw, 0, 14), draw.choice([1, 1, 4, 63.5, 512])
    operation, line = draw.choice(["load", "load", "store", "atomic"]), draw.choice(LINES)
    in_loop, off = trips > 1 or is_true(draw), draw.choice([0.0, 0.0, 0.3, 0.9])
    tile = float(element * elements)
    moved = tile * trips * programs * (1 - off)
    ideal, owned = max(1.0, moved / 32), max(element, int(tile) // (32 * warps))
    width = max(element, min(16, owned) >> draw.choice([0, 0, 2, 4]))
    touched = moved / draw.choice([1, 1, 3, programs])
    in_sectors = touched * draw.choice([1, 1.5, 8])
    return AccessFacts(
        line=line,
        operation=operation,  # type: ignore[arg-type]
        argument=draw.choice(ARGUMENTS),
        bytes=moved,
        sectors=ideal * draw.choice([1, 1, 1.1, 2, 8, 32]),
        ideal_sectors=ideal,
        requests=max(1.0, moved / (32 * width)),
        touched_bytes=draw.choice([touched, touched, None]),
        width_bytes=width,
        owned_bytes=owned,
        lanes_off=off,
        trips=float(trips),
        knows_trips=line != guessed,
        is_async=operation == "load" and in_loop and is_true(draw),
        is_replicated=elements < 32 * warps,
        element_bytes=element,
        tile_bytes=tile,
        in_loop=in_loop,
        lane_step_bytes=draw.choice([None, 0.0, float(element), float(owned), 4096.0]),
        axes=frozenset(draw.sample(range(3), draw.randint(0, 3))),
        argument_bytes=draw.choice([in_sectors, in_sectors, None]),
        sector_bytes=draw.choice([in_sectors, in_sectors, None]),
        limits=draw.choice(LIMITS),
    )


def with_twin(draw: Random, accesses: Sequence[AccessFacts]) -> tuple[AccessFacts, ...]:
    """Return accesses, at times with one more like the first: by another line, to another argument."""
    twins = [replace(each, line=8, argument="twin") for each in accesses[:1] if is_true(draw)]
    return (*accesses, *twins)


def product(draw: Random) -> DotFacts:
    kind = draw.choice(KINDS)
    return DotFacts(
        line=draw.choice(LINES),
        kind=kind,
        flops=1e6 * count(draw, 1e7),
        on_tensor_cores=kind not in {"fp32", "fp64"} and is_true(draw, 0.7),
        tile=(power(draw, 4, 8), power(draw, 4, 8), power(draw, 4, 7)),
        was_narrower=draw.choice(["", "", "fp16", "fp8"]) if kind in {"fp32", "tf32"} else "",
        in_loop=is_true(draw),
        unit=draw.choice(["wgmma", "mma"]),
    )


def multiplications(dot: DotFacts) -> LineFacts:
    """Return the instructions of a product: those of its own if the tensor cores do not compute it."""
    return LineFacts(dot.line, 100.0 if dot.on_tensor_cores else dot.flops / 64)


def line_facts(draw: Random, line: int | None, programs: int, warps: int) -> LineFacts:
    instructions = programs * warps * count(draw, 1e4)
    slow = {kind: instructions * draw.choice([0.1, 0.5]) for kind in draw.sample(SLOW, draw.randint(0, 2))}
    words = frozenset(draw.sample(WORDS, draw.randint(0, 2)))
    return LineFacts(line, instructions, slow, words, count(draw, 512), is_true(draw))


def shared_access(draw: Random) -> SharedFacts:
    ideal = count(draw, 1e7)
    return SharedFacts(draw.choice(LINES), "load", ideal * draw.choice([1, 1.2, 2, 8, 32]), ideal)


def reduction(draw: Random, guessed: int | None) -> ReductionFacts:
    line, trips, flops = draw.choice(LINES), draw.choice([1.0, 8.0, 512.0]), count(draw, 1e11)
    return ReductionFacts(line, trips, trips > 1, is_true(draw, 0.3), flops, is_true(draw), line != guessed)


def atomic(draw: Random, programs: int) -> AtomicFacts:
    updates = programs * count(draw, 4096)
    return AtomicFacts(draw.choice(LINES), draw.choice(ARGUMENTS), updates, draw.choice([None, 1.0, 64.0, updates]))


def random_facts(seed: int) -> Facts:
    """Return the facts of a launch, with or without counted traffic and a measured time."""
    draw = Random(seed)
    programs, warps, guessed = int(count(draw, 1e6)), power(draw, 0, 5), draw.choice([9, 9, 5])
    accesses = with_twin(draw, some(draw, 4, lambda: access(draw, programs, warps, guessed)))
    products = some(draw, draw.choice([0, 0, 2]), lambda: product(draw))
    lines = [line_facts(draw, line, programs, warps) for line in draw.sample(LINES, draw.randint(0, 4))]
    touched = sum(each.bytes if each.touched_bytes is None else each.touched_bytes for each in accesses)
    is_guess = any(not each.knows_trips for each in accesses)
    facts = Facts(
        kernel="k",
        target="cuda:90",
        device=named_device(draw.choice(DEVICES)).rates,
        programs=programs,
        warps=warps,
        resident=draw.randint(1, 64 // warps),
        grid=(programs, 1, 1),
        limiter=draw.choice(["", "registers", "shared memory"]),
        stages=draw.randint(1, 5),
        loop_stages=draw.choice([0, 0, 1, 2, 4, 6]),
        registers=draw.choice([None, 32, 64, 128, 255]),
        spill_bytes=256 * any("spill" in each.slow for each in lines),
        accesses=accesses,
        shared=some(draw, 2, lambda: shared_access(draw)),
        dots=products,
        lines=(*lines, *map(multiplications, products)),
        reductions=some(draw, 2, lambda: reduction(draw, guessed)),
        atomics=some(draw, draw.choice([0, 2]), lambda: atomic(draw, programs)),
        footprint_bytes=touched,
        dram_bytes=draw.choice([None, touched, 2.5 * touched]),
        loop_trips=draw.choice([0.0, 0.0, 16.0, 512.0]),
        has_traffic=is_true(draw, 0.8),
        unknown=("Trip counts are assumed to be 8 in line 5: a bound is loaded.",) if is_guess else (),
    )
    factor = draw.choice([None, None, 0.95, 1.1, 2.0, 30.0])
    return facts if factor is None else replace(facts, time_s=factor * floor_seconds(facts))
