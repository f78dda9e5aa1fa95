"""Samples of the program counter, as Proton writes them: how many on each line, and what the warps waited for.

A file of Proton is a tree of frames as JSON. The samples of a kernel hang below a frame with its name, one frame
``FILE:LINE@FUNCTION`` for each line that the line table of its binary gives them.
https://github.com/triton-lang/triton/tree/main/third_party/proton
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import sqrt
from typing import Any

from kernellab.errors import RunError


class Stall(StrEnum):
    """What a warp is about when it is sampled, in a user's words."""

    MEMORY = "waits for memory"
    MEMORY_QUEUE = "queue to memory full"
    STORES = "waits for its stores"
    SHARED = "waits for shared memory"
    SHARED_QUEUE = "queue to shared memory full"
    BARRIER = "waits for a barrier"
    FENCE = "waits for a memory fence"
    PIPE = "pipe busy"
    RESULT = "waits for a result"
    INSTRUCTION = "no instruction ready"
    CONSTANT = "waits for a constant"
    BRANCH = "waits for a branch"
    TURN = "ready, another warp issued"
    ISSUING = "issues"
    OTHER = "other"

    @property
    def about(self) -> str:
        """A sentence on what that is, for a tip."""
        return _ABOUT[self]


_ABOUT = {
    Stall.MEMORY: "a value from global or local memory has not arrived (long scoreboard)",
    Stall.MEMORY_QUEUE: "more accesses to global memory are under way than the unit takes (LG throttle)",
    Stall.STORES: "the warp is done and its stores are not out yet (drain)",
    Stall.SHARED: "a value from shared memory, or of exp, sin and the like, has not arrived (short scoreboard)",
    Stall.SHARED_QUEUE: "more accesses to shared memory are under way than the unit takes (MIO throttle)",
    Stall.BARRIER: "other warps of the program have not reached the barrier yet",
    Stall.FENCE: "memory has to be in order first (membar)",
    Stall.PIPE: "the arithmetic unit, or the tensor core, takes no more (math pipe throttle)",
    Stall.RESULT: "the instruction before takes a fixed number of cycles (wait)",
    Stall.INSTRUCTION: "the instruction has not been fetched: much code, or a jump",
    Stall.CONSTANT: "an argument or constant is not in its cache (IMC miss)",
    Stall.BRANCH: "the target of a jump is being worked out",
    Stall.TURN: "the scheduler chose another warp, so it had work (not selected)",
    Stall.ISSUING: "an instruction is being issued",
    Stall.OTHER: "something else",
}
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


@dataclass(frozen=True, slots=True)
class FrameSamples:
    """The samples of one line of a binary's line table; ``file`` and ``line`` are None where it has none for them."""

    function: str
    file: str | None
    line: int | None
    reasons: Reasons

    @property
    def samples(self) -> int:
        """How often a warp was seen there, whatever it did."""
        return sum(self.reasons.values())


def samples_of(text: str, function: str) -> tuple[FrameSamples, ...]:
    """Return the samples of a kernel, by its name in the binary, from the text of a ``.hatchet`` file.

    Proton counts each sample under its reason, and in ``num_samples`` once more where nothing was issued at all; the
    reasons alone are counted here.

    Raises:
        RunError: the text is no such file.
    """
    found: dict[tuple[str | None, int | None], Counter[Stall]] = {}
    for name, metrics, within in _nodes(text):
        place = _place_of(name, within, function)
        reasons = _reasons(metrics)
        if place is not None and reasons:
            found.setdefault(place, Counter()).update(reasons)
    return tuple(FrameSamples(function, file, line, dict(reasons)) for (file, line), reasons in found.items())


def _place_of(name: str, within: Sequence[str], function: str) -> tuple[str | None, int | None] | None:
    """Return file and line of a frame of a kernel; None for a frame of anything else."""
    match = _FRAME.fullmatch(name)
    if match is not None:
        return (match[1], int(match[2])) if match[3] == function else None
    return (None, None) if function in (name, *within) else None


def _nodes(text: str) -> Iterator[tuple[str, Mapping[str, Any], tuple[str, ...]]]:
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


def _reasons(metrics: Mapping[str, Any]) -> Counter[Stall]:
    found: Counter[Stall] = Counter()
    for name, value in metrics.items():
        if name.startswith(_STALLED) and value:
            found[_STALLS.get(name.removeprefix(_STALLED).lower(), Stall.OTHER)] += int(value)
    return found


def merged(reasons: Iterable[Reasons]) -> Reasons:
    """Return the sum of samples by reason, most first."""
    total: Counter[Stall] = Counter()
    for each in reasons:
        total.update(each)
    return dict(total.most_common())


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of the samples fall on a line, from 0 to 1, and between which bounds that lies."""

    value: float
    low: float
    high: float


_WIDTH = 2.576  # of a normal distribution, for 99 %


def share_of(counts: Sequence[int], totals: Sequence[int]) -> Share:
    """Return the share of a line in sessions that brought ``counts`` of ``totals`` samples.

    Samples of one session depend on each other, since its warps wait together. So the bounds follow from how much the
    sessions differ, and are no closer than independent samples would have them.
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


def are_apart(shares: Sequence[Share]) -> bool:
    """Tell whether the leading lines are told from those after them: by their bounds, or since they are level.

    Two are level where the bounds of both lie within `_LEVEL` of each other.
    """
    ordered = sorted(shares, key=lambda share: -share.value)
    for first, second in pairwise(ordered[: _LEADING + 1]):
        if first.low < second.high and max(first.high, second.high) - min(first.low, second.low) > _LEVEL:
            return False
    return True
