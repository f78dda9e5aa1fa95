"""What the machine code of a source line tells at a glance: how wide it reads and writes, what units it uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernellab.ir.effects import Access
from kernellab.ir.instructions import Instruction, Kind, LineProfile
from kernellab.ir.locations import place_of
from kernellab.views.exploration import Exploration, LineKey, Stage, key_of
from kernellab.views.source import moved_bytes
from kernellab.views.wording import MARKS, plural

WIDEST_BYTES = 16  # of one instruction of one thread, https://docs.nvidia.com/cuda/cuda-c-programming-guide/
_WIDTHS = {Kind.LOAD: MARKS[Access.READ], Kind.STORE: MARKS[Access.WRITE], Kind.ASYNC_COPY: "cp.async"}
_VERBS = {Kind.LOAD: "loads", Kind.STORE: "stores", Kind.ASYNC_COPY: "copies"}
_CONDITION = "if neighbours lay in one thread, at addresses known to be contiguous and aligned, under one mask"
_DOTS = frozenset({"tt.dot", "tt.dot_scaled"})


@dataclass(frozen=True, slots=True)
class Badge:
    """A few letters beside a source line, and the sentence behind them. ``alarm`` where something could be better."""

    text: str
    tip: str
    alarm: bool = False


def badges_of(exploration: Exploration) -> Mapping[LineKey, tuple[Badge, ...]]:
    """Return the badges of each source line that has any."""
    machine = exploration.machine
    if machine is None:
        return {}
    sass = next((stage.profiles for stage in exploration.stages if stage.name == "sass"), {})
    possible = _possible_bytes(exploration)
    slow = _slow_dots(exploration, machine)
    found: dict[LineKey, tuple[Badge, ...]] = {}
    for key in dict.fromkeys([*machine.profiles, *sass]):
        if key is not None:
            profile, binary = machine.profiles.get(key, _NOTHING), sass.get(key, _NOTHING)
            badges = (
                *_widths(profile, possible.get(key, 0)),
                *_units(profile, is_slow_dot=key in slow),
                *_others(profile, binary, exploration.compiled.resources.spill_bytes),
            )
            if badges:
                found[key] = badges
    return found


_NOTHING = LineProfile(0, ())


def _widths(profile: LineProfile, possible: int) -> Iterator[Badge]:
    for kind, mark in _WIDTHS.items():
        sizes = [(instruction.bytes, instruction, count) for instruction, count in profile.of(kind)]
        if not sizes:
            continue
        narrow, wide = min(size for size, _, _ in sizes), max(size for size, _, _ in sizes)
        width = f"{wide} B" if narrow == wide else f"{narrow}-{wide} B"
        tip = f"each thread {_VERBS[kind]} {width.replace('B', 'bytes')} at a time: {_listed(profile, kind)}"
        alarm = 0 < wide < min(possible, WIDEST_BYTES)
        if alarm:
            tip += f"; {min(possible, WIDEST_BYTES)} would fit, {_CONDITION}"
        yield Badge(f"{mark} {width}" if wide else mark, tip, alarm)


def _units(profile: LineProfile, *, is_slow_dot: bool) -> Iterator[Badge]:
    for unit in dict.fromkeys(instruction.unit for instruction, _ in profile.of(Kind.TENSOR)):
        yield Badge(unit, f"on the tensor cores: {_listed(profile, Kind.TENSOR)}")
    if is_slow_dot:
        tip = "this dot did not reach the tensor cores: it is computed by ordinary multiplications and additions"
        yield Badge("no tensor cores", tip, alarm=True)


def _others(profile: LineProfile, binary: LineProfile, spill_bytes: int | None) -> Iterator[Badge]:
    if profile.count(Kind.BULK_COPY):
        yield Badge("TMA", f"copied by the tensor memory accelerator: {_listed(profile, Kind.BULK_COPY)}")
    if profile.count(Kind.ATOMIC):
        yield Badge(MARKS[Access.ATOMIC], f"atomic: {_listed(profile, Kind.ATOMIC)}")
    if profile.count(Kind.BARRIER):
        yield Badge("bar", f"waits at a barrier: {_listed(profile, Kind.BARRIER)}")
    spilling = binary if binary.instructions else profile
    spills = spilling.count(Kind.SPILL)
    if spills and spill_bytes == 0:
        yield Badge(f"stack {spills}", f"on the stack, in local memory: {_listed(spilling, Kind.SPILL)}")
    elif spills:
        tip = f"{plural(spills, 'instruction')} for spilled registers or a stack, in local memory: "
        yield Badge(f"spill {spills}", tip + _listed(spilling, Kind.SPILL), alarm=True)


def _listed(profile: LineProfile, kind: Kind) -> str:
    return ", ".join(_times(instruction, count) for instruction, count in profile.of(kind))


def _times(instruction: Instruction, count: int) -> str:
    return f"{count} {instruction.mnemonic}" if count > 1 else instruction.mnemonic


def _possible_bytes(exploration: Exploration) -> dict[LineKey, int]:
    """Return, per line, how many bytes of its smallest access fall to one thread, rounded down to a power of two."""
    compiled = exploration.compiled
    found: dict[LineKey, int] = {}
    for operation in compiled.graph.operations:
        key = key_of(place_of(operation.location))
        if key is not None and operation.name in {"tt.load", "tt.store"}:
            share = moved_bytes(compiled.graph, operation) // compiled.resources.threads
            size = 1 << (share.bit_length() - 1) if share else 0
            found[key] = min(found.get(key, size), size)
    return found


def _slow_dots(exploration: Exploration, machine: Stage) -> frozenset[LineKey]:
    """Return the lines of dots without an instruction of the tensor cores; none where such stand on other lines."""
    operations = exploration.compiled.graph.operations
    dots = {key_of(place_of(operation.location)) for operation in operations if operation.name in _DOTS}
    fast = {key for key, profile in machine.profiles.items() if profile.count(Kind.TENSOR)}
    return frozenset(key for key in dots - fast if key is not None) if fast <= dots else frozenset()
