"""The annotated source as an HTML table: number, operations, text, accesses."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from kernellab.ir.effects import Access
from kernellab.views.access import Touch
from kernellab.views.badge import badge
from kernellab.views.source import SourceLine
from kernellab.views.wording import bytes_words

_DARKEST = 0.42


def source_table(lines: tuple[SourceLine, ...]) -> str:
    """Return the table; hovering over a line shows the operations that it became."""
    rows = "\n".join(_row(line, gap=gap) for line, gap in _with_gaps(lines))
    return f'<div class="kl-scroll"><table class="kl-source"><tbody>\n{rows}\n</tbody></table></div>'


def _with_gaps(lines: tuple[SourceLine, ...]) -> Iterator[tuple[SourceLine, bool]]:
    """Yield each line, and whether lines that are not shown, or another file, lie before it."""
    before: SourceLine | None = None
    for line in lines:
        yield line, before is not None and (line.file != before.file or line.number != before.number + 1)
        before = line


def _row(line: SourceLine, *, gap: bool) -> str:
    title = f' title="{escape(line.ttir)}"' if line.ttir else ""
    heat = f' style="background:rgba(224,108,18,{line.heat * _DARKEST:.2f})"' if line.operations else ""
    count = str(line.operations) if line.operations else ""
    cells = (
        f'<td class="kl-no">{line.number}</td><td class="kl-ops"{heat}>{count}</td>'
        f'<td class="kl-by">{_badges(line.touch, line.bytes)}</td><td>{escape(line.text) or " "}</td>'
    )
    above = f'<tr><td class="kl-no">⋮</td><td></td><td></td><td>{escape(line.file)}</td></tr>\n' if gap else ""
    return f"{above}<tr{title}>{cells}</tr>"


def _badges(touch: Touch | None, moved: int) -> str:
    if touch is None:
        return ""
    parts = [badge(kind, ", ".join(touch.arguments[kind])) for kind in Access if kind in touch.arguments]
    if touch.unknown:
        parts.append(f'<span class="kl-badge kl-unknown"><b>?</b> {escape(touch.unknown)}</span>')
    size = f'<span class="kl-dim">{bytes_words(moved)}</span>' if moved else ""
    return "".join(parts) + size
