"""The causes that an explanation may name, and the finding of one.

A rule returns a finding for its cause. The tables below say which causes follow from others, which the model of time
underestimates, and which stall reasons of a profile support one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kernellab.errors import three_digits
from kernellab.explain.facts import Facts
from kernellab.explain.profile import Stall


class Cause(StrEnum):
    """Why a launch is slower than it could be."""

    UNCOALESCED = "uncoalesced access"
    NARROW = "narrow access"
    REREAD = "repeated loads"
    ORDER = "program order"
    TILES = "tiles too small"
    CONFLICTS = "bank conflicts"
    SPILLS = "register spills"
    FEW_PROGRAMS = "grid too small"
    LAST_WAVE = "partial last wave"
    NO_PIPELINE = "loads not pipelined"
    OCCUPANCY = "low occupancy"
    SMALL_BLOCK = "block too small"
    SHARED_LOADS = "same loads in every program"
    MASKED = "masked lanes"
    NO_TENSOR_CORES = "no tensor cores"
    WIDE_OPERANDS = "operands wider than their data"
    ARITHMETIC = "slow arithmetic"
    REDUCTION = "reduction in every iteration"
    ATOMICS = "contended atomics"
    LAUNCH = "launch overhead"


@dataclass(frozen=True, slots=True)
class PerformanceFinding:
    """One change that would make a launch faster.

    ``line`` is one of the kernel's file, None where no line is the cause. ``evidence`` holds figures by name. ``fixed``
    are the facts of the launch after the change, ``least_fixed`` those after the smallest effect that it may have, None
    where that is the same. ``gain`` is the least and the largest estimated speedup, which follow from them; 2 is half
    the time.
    """

    cause: Cause
    line: int | None
    text: str
    evidence: Mapping[str, float]
    fixed: Facts = field(repr=False)
    least_fixed: Facts | None = field(default=None, repr=False)
    gain: tuple[float, float] = (1.0, 1.0)


def figure_text(value: float) -> str:
    """Format a number with four digits; from 1000 on as a whole number: ``262,144``."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def count_text(count: float) -> str:
    """Format a count for reading: ``640``, ``4,096``, ``16.8 M``."""
    for scale, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= max(1e4, scale):
            return f"{three_digits(count / scale)} {unit}"
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def bytes_text(size_bytes: float) -> str:
    """Format a size for reading: ``32 KiB``, ``2.3 MiB``."""
    for scale, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= scale:
            number = size_bytes / scale
            return f"{number:.2g} {unit}" if number < 100 else f"{number:,.0f} {unit}"
    return f"{size_bytes:.0f} B"


def joined_text(words: Iterable[object]) -> str:
    """Join distinct words: ``x, y and z``."""
    *most, last = dict.fromkeys(map(str, words))
    return f"{', '.join(most)} and {last}" if most else last


def lines_text(lines: Iterable[int | None]) -> str:
    """Name lines of the kernel's file: ``line 5``, ``lines 5 and 6``; code of other files is ``a helper``."""
    numbers = sorted({line for line in lines if line is not None})
    return f"line{'s' * (len(numbers) > 1)} {joined_text(numbers)}" if numbers else "a helper"


def sentence(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


# The model of time underestimates these, so that unexplained time is likely theirs.
UNDERSTATED = {
    *(Cause.SPILLS, Cause.NO_PIPELINE, Cause.TILES, Cause.NO_TENSOR_CORES, Cause.WIDE_OPERANDS, Cause.REDUCTION),
    *(Cause.OCCUPANCY, Cause.SMALL_BLOCK, Cause.ATOMICS, Cause.UNCOALESCED),
}

# Root causes, each with the causes that only follow from it.
CONSEQUENCES: Mapping[Cause, set[Cause]] = {
    Cause.UNCOALESCED: {Cause.NARROW, Cause.NO_PIPELINE, Cause.OCCUPANCY, Cause.ORDER, Cause.CONFLICTS},
    Cause.FEW_PROGRAMS: {Cause.NO_PIPELINE, Cause.REDUCTION, Cause.NARROW, Cause.OCCUPANCY},
    Cause.NO_TENSOR_CORES: {Cause.NO_PIPELINE, Cause.TILES, Cause.WIDE_OPERANDS, Cause.ARITHMETIC, Cause.CONFLICTS},
    Cause.REDUCTION: {Cause.NO_PIPELINE},
    Cause.SHARED_LOADS: {Cause.NO_PIPELINE, Cause.REREAD, Cause.ORDER},
    Cause.SPILLS: {Cause.OCCUPANCY, Cause.NARROW, Cause.NO_PIPELINE},
    Cause.SMALL_BLOCK: {Cause.OCCUPANCY, Cause.NARROW},
    Cause.LAUNCH: {Cause.FEW_PROGRAMS, Cause.NARROW, Cause.NO_PIPELINE},
    Cause.ATOMICS: {Cause.NARROW},
    Cause.WIDE_OPERANDS: {Cause.NO_PIPELINE, Cause.CONFLICTS},
}

# The stall reasons whose samples support a cause.
STALLS: Mapping[Cause, tuple[Stall, ...]] = {
    **dict.fromkeys(
        (Cause.UNCOALESCED, Cause.NARROW, Cause.REREAD, Cause.SHARED_LOADS, Cause.ORDER, Cause.SPILLS),
        (Stall.MEMORY, Stall.MEMORY_QUEUE),
    ),
    Cause.NO_PIPELINE: (Stall.MEMORY,),
    Cause.CONFLICTS: (Stall.SHARED, Stall.SHARED_QUEUE),
    Cause.REDUCTION: (Stall.BARRIER, Stall.SHARED),
    **dict.fromkeys((Cause.ARITHMETIC, Cause.NO_TENSOR_CORES), (Stall.PIPE, Stall.RESULT, Stall.ISSUING, Stall.TURN)),
}
