"""A profile: where the samples of a launch fell, by source line and by instruction, and what the counters said."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernellab.compile.types import Compiled
from kernellab.display import Shown
from kernellab.explain.profile.line_table import instruction_address
from kernellab.explain.profile.samples import FrameSamples, Reasons, Share, Stall, merged, share_of
from kernellab.ir.graph import Location, calls_of
from kernellab.ir.instructions import instruction_of
from kernellab.ir.lines import StageLine
from kernellab.workers.forks_and_interrupts import imported_whole

_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*$")
_SECTION = re.compile(r"//-+\s+\.text\.(\S+)")
Calls = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class InstructionSamples:
    """The samples of one instruction, at ``address`` of the kernel's code, in bytes.

    ``calls`` are the places that called the function which it was inlined from, from the inside out.
    """

    address: int
    text: str
    file: str | None
    line: int | None
    reasons: Reasons
    calls: Calls = ()

    @property
    def samples(self) -> int:
        """How often a warp was seen at it."""
        return sum(self.reasons.values())


@dataclass(frozen=True, slots=True)
class LineSamples:
    """The samples of a source line; ``share`` is that of the kernel's, with bounds. ``calls`` as for an instruction."""

    file: str | None
    line: int | None
    samples: int
    share: Share
    reasons: Reasons
    calls: Calls = ()

    @property
    def main(self) -> Stall | None:
        """What its warps did most often, other than waiting for their turn; None without samples."""
        waiting = {stall: count for stall, count in self.reasons.items() if stall is not Stall.TURN}
        return max(waiting, key=lambda stall: waiting[stall], default=None)


@dataclass(frozen=True, slots=True)
class Counters:
    """What the hardware counted of one launch, as shares of what it can do at best, from 0 to 1; None if not known.

    ``dram_bytes`` were read and written; ``seconds`` is the time under the counters, whose clocks are fixed.
    """

    dram: float | None = None
    l2: float | None = None
    tensor: float | None = None
    multiprocessor: float | None = None
    dram_bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Profile(Shown):
    """Where the time of a launch goes.

    ``lines`` and ``instructions`` come with most samples first; ``instructions`` is empty where only lines are known.
    ``sessions`` of ``launches`` launches in all brought them. Where sampling is refused, there are no samples, and
    ``refused`` says why in a sentence, with the remedy; ``notes`` then hold what is known without. ``compiled`` is the
    kernel that was sampled.
    """

    kernel: str
    target: str
    device: str
    grid: tuple[int, int, int]
    lines: tuple[LineSamples, ...] = ()
    instructions: tuple[InstructionSamples, ...] = ()
    launches: int = 0
    sessions: int = 0
    seconds: float = 0.0
    counters: Counters | None = None
    refused: str = ""
    notes: tuple[str, ...] = ()
    compiled: Compiled | None = field(default=None, repr=False, compare=False)

    @property
    def samples(self) -> int:
        """All samples of the kernel."""
        return sum(line.samples for line in self.lines)

    @property
    def reasons(self) -> Reasons:
        """What its warps were about, most often first."""
        return merged(line.reasons for line in self.lines)

    @property
    def frame(self) -> Any:
        """A row per source line and one per instruction, as a DataFrame.

        Columns: ``file``, ``line``, ``called_from``, ``address`` and ``instruction`` (none for a line), ``samples``,
        ``share`` of all samples, ``low`` and ``high`` (none for an instruction), ``reason``, the main one in words, and
        a column for each reason that occurs, with its samples.
        """
        imported_whole("pandas")
        import pandas as pd  # keeps `import kernellab` light

        stalls = list(self.reasons)
        names = ["file", "line", "called_from", "address", "instruction", "samples", "share", "low", "high", "reason"]
        rows = [
            *(_line_row(line, stalls) for line in self.lines),
            *(_instruction_row(each, stalls, self.samples) for each in self.instructions),
        ]
        found = pd.DataFrame(rows, columns=[*names, *map(str, stalls)])
        found = found.astype({"line": "Int64", "address": "Int64"})
        found.attrs |= {"kernel": self.kernel, "target": self.target, "device": self.device, "refused": self.refused}
        return found


def _line_row(line: LineSamples, stalls: Sequence[Stall]) -> list[Any]:
    share = line.share
    main = "" if line.main is None else str(line.main)
    known = [line.file, line.line, calls_text(line.calls), None, "", line.samples, share.value, share.low, share.high]
    return [*known, main, *(line.reasons.get(stall, 0) for stall in stalls)]


def _instruction_row(each: InstructionSamples, stalls: Sequence[Stall], total: int) -> list[Any]:
    share = each.samples / total if total else 0.0
    main = max(each.reasons, key=lambda stall: each.reasons[stall], default="")
    known = [each.file, each.line, calls_text(each.calls), each.address, each.text, each.samples, share, None, None]
    return [*known, str(main), *(each.reasons.get(stall, 0) for stall in stalls)]


def calls_text(calls: Calls) -> str:
    """Return the places that called, from the inside out: ``In[3]:12, In[3]:20``."""
    return ", ".join(f"{file}:{line}" for file, line in calls)


@dataclass(frozen=True, slots=True)
class SamplingSession:
    """The samples of one session, by lines of the binary's table, which may stand for instructions."""

    samples: tuple[FrameSamples, ...]


def joined(
    sessions: Sequence[SamplingSession], sass: Sequence[StageLine], kernel: str, *, by_instruction: bool
) -> tuple[tuple[LineSamples, ...], tuple[InstructionSamples, ...]]:
    """Return the samples of sessions by source line and, where the lines of the binary number them, by instruction.

    ``sass`` is the machine code of the kernel, each line with its place. Instructions that were inlined from one line
    through different calls count for one line each.
    """
    if not by_instruction:
        return _of_lines(sessions), ()
    code = instructions_of(sass, kernel)
    places: dict[int, tuple[str | None, int | None, Calls]] = {}
    found = []
    for address, reasons in _by_address(sessions).items():
        text, place = code.get(address, ("", Location()))
        places[address] = (place.file, place.line, _calls(place))
        found.append(InstructionSamples(address, text, place.file, place.line, reasons, _calls(place)))
    found.sort(key=lambda each: -each.samples)
    return _of_instructions(sessions, places), tuple(found)


def instructions_of(sass: Sequence[StageLine], kernel: str) -> Mapping[int, tuple[str, Location]]:
    """Return the instructions of a kernel, as text with its place, by their address in bytes."""
    found: dict[int, tuple[str, Location]] = {}
    is_own = True
    for line in sass:
        section = _SECTION.match(line.text)
        if section:
            is_own = section[1] == kernel
        match = _INSTRUCTION.match(line.text) if is_own else None
        if match and instruction_of("sass", line.text) is not None:
            found[int(match[1], 16)] = (" ".join(match[2].split()), line.place)
    return found


def _calls(place: Location) -> Calls:
    return tuple((call.file or "", call.line) for call in calls_of(place) if call.line is not None)


def _by_address(sessions: Sequence[SamplingSession]) -> dict[int, Reasons]:
    parts: dict[int, list[Reasons]] = {}
    for session in sessions:
        for frame in session.samples:
            if frame.line is not None:
                parts.setdefault(instruction_address(frame.line), []).append(frame.reasons)
    return {address: merged(reasons) for address, reasons in parts.items()}


def _of_instructions(
    sessions: Sequence[SamplingSession], places: Mapping[int, tuple[str | None, int | None, Calls]]
) -> tuple[LineSamples, ...]:
    unknown: tuple[str | None, int | None, Calls] = (None, None, ())

    def key(frame: FrameSamples) -> tuple[str | None, int | None, Calls]:
        return unknown if frame.line is None else places[instruction_address(frame.line)]

    return _counted(sessions, key)


def _of_lines(sessions: Sequence[SamplingSession]) -> tuple[LineSamples, ...]:
    return _counted(sessions, lambda frame: (frame.file, frame.line, ()))


def _counted(sessions: Sequence[SamplingSession], key: Any) -> tuple[LineSamples, ...]:
    """Return the lines that samples belong to by their ``key``, with their share in each session."""
    totals = [sum(frame.samples for frame in session.samples) for session in sessions]
    counts: dict[Any, list[int]] = {}
    reasons: dict[Any, list[Reasons]] = {}
    for number, session in enumerate(sessions):
        for frame in session.samples:
            place = key(frame)
            counts.setdefault(place, [0] * len(sessions))[number] += frame.samples
            reasons.setdefault(place, []).append(frame.reasons)
    lines = [
        LineSamples(file, line, sum(found), share_of(found, totals), merged(reasons[file, line, calls]), calls)
        for (file, line, calls), found in counts.items()
    ]
    return tuple(sorted(lines, key=lambda line: -line.samples))
