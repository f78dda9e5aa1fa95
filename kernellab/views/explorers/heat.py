"""Where the time goes, as a column beside the source of the explorer and one beside its machine code."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from kernellab.explain.profile import LineSamples, Profile, Reasons, Stall, merged
from kernellab.ir.graph import short_file
from kernellab.views.explorers.exploration import LineKey

_ADDRESS = re.compile(r"/\*([0-9a-f]{4,})\*/")
_BLANK = " " * 7
_NAMED = 3
_LEAST_SHARE = 0.0005


@dataclass(frozen=True, slots=True)
class HeatMark:
    """The share of the samples that a line has, from 0 to 1, and the sentence behind it."""

    share: float
    tip: str


@dataclass(frozen=True, slots=True)
class Heat:
    """The marks of source lines, and the shares of instructions by their address."""

    lines: Mapping[LineKey, HeatMark]
    instructions: Mapping[int, float]

    def cell(self, key: LineKey) -> str:
        """Return the cell of a source line."""
        mark = self.lines.get(key)
        if mark is None:
            return "<b></b>"
        heat = f"--heat:{math.sqrt(mark.share):.2f}"
        return f'<b style="{heat}" title="{escape(mark.tip)}">{percent(mark.share)}</b>'

    def marked(self, line: str) -> str:
        """Return a line of machine code with the share of its instruction before it."""
        address = _ADDRESS.search(line)
        share = self.instructions.get(int(address[1], 16), 0.0) if address else 0.0
        return f"{percent(share):>6} {line}" if share >= _LEAST_SHARE else f"{_BLANK}{line}"


def heat_of(profile: Profile) -> Heat | None:
    """Return the heat of a profile; None where it has no samples."""
    if not profile.samples:
        return None
    found: dict[LineKey, list[LineSamples]] = {}
    for line in profile.lines:
        if line.line is not None:
            found.setdefault((short_file(line.file), line.line), []).append(line)
    marks = {key: _mark(lines) for key, lines in found.items()}
    total = profile.samples
    return Heat(marks, {each.address: each.samples / total for each in profile.instructions})


def _mark(lines: list[LineSamples]) -> HeatMark:
    """Return the mark of a source line, which may have been inlined through several calls."""
    share = sum(line.share.value for line in lines)
    first = lines[0].share
    bounds = f" ({percent(first.low)} to {percent(first.high)})" if len(lines) == 1 else ""
    return HeatMark(
        share, f"{percent(share)}{bounds} of the samples: {reasons_words(merged(x.reasons for x in lines))}"
    )


def reasons_words(reasons: Reasons) -> str:
    """Return ``waits for memory 80 %, issues 12 %``."""
    total = sum(reasons.values())
    ordered = sorted(reasons.items(), key=lambda pair: (pair[0] is Stall.OTHER, -pair[1]))
    return ", ".join(f"{stall} {count / total:.0%}".replace("%", " %") for stall, count in ordered[:_NAMED] if count)


def percent(share: float) -> str:
    """Return ``4.2 %``, or ``42 %``."""
    return f"{share:.1%}".replace("%", " %") if share < 0.0995 else f"{share:.0%}".replace("%", " %")
