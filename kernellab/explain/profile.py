"""A profile: the samples of a launch by source line and by instruction, and its hardware counters.

Proton samples the program counter: how often on each line, and for which stall reason. Its file is a tree of frames as
JSON. The samples of a kernel hang below a frame with its name, in one frame ``FILE:LINE@FUNCTION`` for each row of the
binary's line table.
https://github.com/triton-lang/triton/tree/main/third_party/proton
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, pairwise
from math import sqrt
from typing import Any

from kernellab.compile.types import Compiled
from kernellab.display import Drawable
from kernellab.errors import RunError
from kernellab.explain.proton import instruction_address
from kernellab.ir.graph import Location, calls_of
from kernellab.ir.instructions import instruction_of
from kernellab.ir.lines import StageLine
from kernellab.workers.forks_and_interrupts import import_uninterrupted


class Stall(StrEnum):
    """The state of a sampled warp: its stall reason in a user's words, and a sentence ``about`` it for a tooltip."""

    about: str

    def __new__(cls, words: str, about: str) -> Stall:
        stall = str.__new__(cls, words)
        stall._value_, stall.about = words, about
        return stall

    MEMORY = "waits for memory", "a value from global or local memory has not arrived (long scoreboard)"
    MEMORY_QUEUE = (
        "queue to memory full",
        "more global memory accesses are in flight than the LSU takes (LG throttle)",
    )
    STORES = "waits for its stores", "the warp is done and its stores are not out yet (drain)"
    SHARED = (
        "waits for shared memory",
        "a value from shared memory, or of exp, sin and the like, has not arrived (short scoreboard)",
    )
    SHARED_QUEUE = (
        "queue to shared memory full",
        "more shared memory accesses are in flight than the unit takes (MIO throttle)",
    )
    BARRIER = "waits for a barrier", "other warps of the program have not reached the barrier yet"
    FENCE = "waits for a memory fence", "memory has to be in order first (membar)"
    PIPE = "pipe busy", "the arithmetic unit, or the tensor core, takes no more (math pipe throttle)"
    RESULT = "waits for a result", "the instruction before takes a fixed number of cycles (wait)"
    INSTRUCTION = "no instruction ready", "the instruction has not been fetched: much code, or a jump"
    CONSTANT = "waits for a constant", "an argument or constant is not in its cache (IMC miss)"
    BRANCH = "waits for a branch", "the target of a jump is being computed"
    TURN = "ready, another warp issued", "the scheduler chose another warp, so it had work (not selected)"
    ISSUING = "issues", "an instruction is being issued"
    OTHER = "other", "something else"


_STALLS = {
    "long_scoreboard": Stall.MEMORY,
    "tex_throttle": Stall.MEMORY_QUEUE,
    "lg_throttle": Stall.MEMORY_QUEUE,
    "drain": Stall.STORES,
    "short_scoreboard": Stall.SHARED,
    "mio_throttle": Stall.SHARED_QUEUE,
    "barrier": Stall.BARRIER,
    "membar": Stall.FENCE,
    "math_pipe_throttle": Stall.PIPE,
    "wait": Stall.RESULT,
    "no_instruction": Stall.INSTRUCTION,
    "imc_miss": Stall.CONSTANT,
    "branch_resolving": Stall.BRANCH,
    "not_selected": Stall.TURN,
    "selected": Stall.ISSUING,
}
_STALLED = "stalled_"
_FRAME = re.compile(r"(.*):(\d+)@(.*)")

Reasons = Mapping[Stall, int]


Calls = tuple[tuple[str, int], ...]
Place = tuple[str | None, int | None]
"""File and line of a row of a binary's line table; None where it has none for it."""

SamplingSession = Mapping[Place, Reasons]
"""The samples of one session, by lines of the binary's table, which may stand for instructions."""


def samples_of(text: str, function: str) -> SamplingSession:
    """Return the samples of a kernel, by its name in the binary, from the text of a ``.hatchet`` file.

    Proton counts each sample under its reason, and in ``num_samples`` once more where nothing was issued; the
    reasons alone are counted here.

    Raises:
        RunError: the text is not such a file.
    """
    samples: dict[Place, Counter[Stall]] = {}
    for name, metrics, within in _frames(text):
        match = _FRAME.fullmatch(name)
        is_own = match[3] == function if match else function in (name, *within)
        reasons: Counter[Stall] = Counter()
        for metric, count in metrics.items() if is_own else ():
            if metric.startswith(_STALLED) and count:
                reasons[_STALLS.get(metric.removeprefix(_STALLED).lower(), Stall.OTHER)] += int(count)
        if reasons:
            samples.setdefault((match[1], int(match[2])) if match else (None, None), Counter()).update(reasons)
    return samples


def _frames(text: str) -> Iterator[tuple[str, Mapping[str, Any], tuple[str, ...]]]:
    """Yield each frame with its metrics and the names of the frames around it."""
    try:
        waiting: list[tuple[Any, tuple[str, ...]]] = [(node, ()) for node in json.loads(text) if "frame" in node]
        while waiting:
            node, within = waiting.pop()
            name = str(node["frame"]["name"])
            yield name, node["metrics"], within
            waiting += [(child, (*within, name)) for child in node["children"]]
    except (ValueError, KeyError, TypeError) as exc:
        raise RunError(f"The samples cannot be read: {type(exc).__name__}: {exc}.") from exc


def sum_reasons(reasons: Iterable[Reasons]) -> Reasons:
    """Return the sum of samples by stall reason, most first."""
    total: Counter[Stall] = Counter()
    for counts in reasons:
        total.update(counts)
    return dict(total.most_common())


@dataclass(frozen=True, slots=True)
class Share:
    """A line's share of all samples, from 0 to 1, with its confidence bounds."""

    value: float
    low: float
    high: float


_WIDTH = 2.576  # of a normal distribution, for 99 %


def share_of(counts: Sequence[int], totals: Sequence[int]) -> Share:
    """Return the share of a line with ``counts`` of ``totals`` samples, one pair per session.

    Samples of one session are not independent, since its warps wait together. So the bounds follow from the variance
    between sessions, and are at least as wide as those of independent samples.
    """
    total = sum(totals)
    if total == 0:
        return Share(0.0, 0.0, 1.0)
    value = sum(counts) / total
    independent = value * (1 - value) / total
    shares = [count / whole for count, whole in zip(counts, totals, strict=True) if whole]
    spread = 0.0
    if len(shares) > 1:
        mean = sum(shares) / len(shares)
        spread = sum((share - mean) ** 2 for share in shares) / (len(shares) - 1) / len(shares)
    half = _WIDTH * sqrt(max(independent, spread)) + 0.5 / total
    return Share(value, max(0.0, value - half), min(1.0, value + half))


_LEADING = 3
_LEVEL = 0.02


def are_distinct(shares: Sequence[Share]) -> bool:
    """Whether the leading lines are distinct from the next: their bounds do not overlap, or all are level.

    Two are level where the bounds of both lie within `_LEVEL` of each other.
    """
    ordered = sorted(shares, key=lambda share: -share.value)
    for first, second in pairwise(ordered[: _LEADING + 1]):
        if first.low < second.high and max(first.high, second.high) - min(first.low, second.low) > _LEVEL:
            return False
    return True


_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*$")
_SECTION = re.compile(r"//-+\s+\.text\.(\S+)")


@dataclass(frozen=True, slots=True)
class InstructionSamples:
    """The samples of one instruction, at ``address`` of the kernel's code, in bytes.

    ``calls`` are the call sites of inlined code, from the inside out.
    """

    address: int
    text: str
    file: str | None
    line: int | None
    reasons: Reasons
    calls: Calls = ()

    @property
    def samples(self) -> int:
        """The number of samples, of all stall reasons."""
        return sum(self.reasons.values())

    @property
    def main(self) -> Stall | None:
        """The most frequent stall reason; None without samples."""
        return max(self.reasons, key=lambda stall: self.reasons[stall], default=None)


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
        """The most frequent stall reason, other than a busy scheduler; None without samples."""
        waiting = {stall: count for stall, count in self.reasons.items() if stall is not Stall.TURN}
        return max(waiting, key=lambda stall: waiting[stall], default=None)


@dataclass(frozen=True, slots=True)
class Counters:
    """Hardware counters of a launch, as shares of the peak rates, from 0 to 1; None if not known.

    ``dram_bytes`` are reads and writes; ``seconds`` is the time while counting.
    """

    dram: float | None = None
    l2: float | None = None
    tensor: float | None = None
    multiprocessor: float | None = None
    dram_bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Profile(Drawable):
    """The samples and counters of a launch.

    ``lines`` and ``instructions`` are sorted by samples; ``instructions`` is empty where only lines are known. They
    come from ``sessions`` with ``launches`` launches in all. Without samples, ``refused`` says why in a sentence, with
    a remedy, and ``notes`` hold the findings of an explanation. ``compiled`` is the sampled kernel.
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
        """The samples of the kernel by stall reason, most first."""
        return sum_reasons(line.reasons for line in self.lines)

    @property
    def frame(self) -> Any:
        """A row per source line and one per instruction, as a DataFrame.

        Columns: ``file``, ``line``, ``called_from``, ``address`` and ``instruction`` (none for a line), ``samples``,
        ``share`` of all samples, ``low`` and ``high`` (none for an instruction), ``reason``, the main one in words, and
        a column for each reason that occurs, with its samples.
        """
        pd = import_uninterrupted("pandas")

        stalls = list(self.reasons)
        names = ["file", "line", "called_from", "address", "instruction", "samples", "share", "low", "high", "reason"]
        total = max(self.samples, 1)
        rows = [
            *(_row(row, stalls, None, "", (row.share.value, row.share.low, row.share.high)) for row in self.lines),
            *(_row(i, stalls, i.address, i.text, (i.samples / total, None, None)) for i in self.instructions),
        ]
        frame = pd.DataFrame(rows, columns=[*names, *map(str, stalls)])
        frame = frame.astype({"line": "Int64", "address": "Int64"})
        frame.attrs |= {"kernel": self.kernel, "target": self.target, "device": self.device, "refused": self.refused}
        return frame


def _row(
    samples: LineSamples | InstructionSamples,
    stalls: Sequence[Stall],
    address: int | None,
    text: str,
    shares: tuple[float | None, ...],
) -> list[Any]:
    place = [samples.file, samples.line, calls_text(samples.calls), address, text]
    counts = [samples.reasons.get(stall, 0) for stall in stalls]
    return [*place, samples.samples, *shares, str(samples.main or ""), *counts]


def calls_text(calls: Calls) -> str:
    """Return the call sites of inlined code as text, from the inside out: ``In[3]:12, In[3]:20``."""
    return ", ".join(f"{file}:{line}" for file, line in calls)


_LinePlace = tuple[str | None, int | None, Calls]


def samples_by_place(
    sessions: Sequence[SamplingSession], sass: Sequence[StageLine], kernel: str, *, by_instruction: bool
) -> tuple[tuple[LineSamples, ...], tuple[InstructionSamples, ...]]:
    """Return the samples of sessions by source line and, where the line table numbers instructions, by instruction.

    ``sass`` is the machine code of the kernel, each line with its place. Code that is inlined through different calls
    counts as different lines.
    """
    if not by_instruction:
        return _line_samples(sessions, lambda place: (*place, ())), ()
    code = instructions_of(sass, kernel)

    def place_of_address(address: int | None) -> _LinePlace:
        place = Location() if address is None or address not in code else code[address][1]
        calls = ((call.file or "", call.line) for call in calls_of(place) if call.line is not None)
        return place.file, place.line, tuple(calls)

    def address_of(place: Place) -> int | None:
        return None if place[1] is None else instruction_address(place[1])

    parts: dict[int, list[Reasons]] = {}
    for place, reasons in chain.from_iterable(session.items() for session in sessions):
        if (address := address_of(place)) is not None:
            parts.setdefault(address, []).append(reasons)
    instructions = []
    for address, all_reasons in parts.items():
        text, (file, line, calls) = code[address][0] if address in code else "", place_of_address(address)
        instructions.append(InstructionSamples(address, text, file, line, sum_reasons(all_reasons), calls))
    instructions.sort(key=lambda instruction: -instruction.samples)
    return _line_samples(sessions, lambda place: place_of_address(address_of(place))), tuple(instructions)


def instructions_of(sass: Sequence[StageLine], kernel: str) -> Mapping[int, tuple[str, Location]]:
    """Return the instructions of a kernel, text and place, by their address in bytes."""
    instructions: dict[int, tuple[str, Location]] = {}
    is_own = True
    for line in sass:
        section = _SECTION.match(line.text)
        if section:
            is_own = section[1] == kernel
        match = _INSTRUCTION.match(line.text) if is_own else None
        if match and instruction_of("sass", line.text) is not None:
            instructions[int(match[1], 16)] = (" ".join(match[2].split()), line.place)
    return instructions


def _line_samples(
    sessions: Sequence[SamplingSession], line_of: Callable[[Place], _LinePlace]
) -> tuple[LineSamples, ...]:
    """Return the samples by source line, with their share in each session."""
    totals = [sum(sum(reasons.values()) for reasons in session.values()) for session in sessions]
    counts: dict[_LinePlace, list[int]] = {}
    parts: dict[_LinePlace, list[Reasons]] = {}
    for number, session in enumerate(sessions):
        for place, reasons in session.items():
            line = line_of(place)
            counts.setdefault(line, [0] * len(sessions))[number] += sum(reasons.values())
            parts.setdefault(line, []).append(reasons)
    lines = [
        LineSamples(file, line, sum(counted), share_of(counted, totals), sum_reasons(parts[file, line, calls]), calls)
        for (file, line, calls), counted in counts.items()
    ]
    return tuple(sorted(lines, key=lambda line: -line.samples))
