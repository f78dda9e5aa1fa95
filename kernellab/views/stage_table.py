"""A stage as HTML: its text beside the numbers of the source lines that it comes from."""

from __future__ import annotations

from html import escape
from itertools import groupby

from kernellab.ir.graph import Location
from kernellab.ir.lines import StageLine
from kernellab.ir.places import short_file
from kernellab.views.places import SourceText


def stage_table(lines: tuple[StageLine, ...], source: SourceText) -> str:
    """Return two columns that scroll together; hovering over a line shows its source line.

    The numbers cannot be selected, so that the text can be copied as it is.
    """
    numbers = "\n".join(_number(line.place, source) for line in lines)
    runs = []
    for place, run in groupby(lines, key=lambda line: line.place):
        text = escape("\n".join(line.text for line in run))
        title = ": ".join(part for part in (source.words(place), source.line(place)) if part)
        runs.append(f'<span title="{escape(title)}">{text}</span>' if title else text)
    body = "\n".join(runs)
    # HTML drops a newline that follows <pre>, so one is given to drop.
    columns = f'<pre class="kl-pre kl-lines">\n{numbers}</pre><pre class="kl-pre">\n{body}</pre>'
    return f'<div class="kl-stage">{columns}</div>'


def _number(place: Location, source: SourceText) -> str:
    if place.line is None:
        return ""
    return str(place.line) if source.is_own(place) else f"{escape(short_file(place.file))}:{place.line}"
