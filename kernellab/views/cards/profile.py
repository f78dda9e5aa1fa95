"""A profile as a card: what the warps were about, the leading lines, and the explorer with its heat."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from kernellab.errors import plural
from kernellab.explain.profile import Counters, LineSamples, Profile, calls_text
from kernellab.ir.graph import short_file
from kernellab.views.elements import (
    Table,
    details,
    framed,
    grid_words,
    header,
    message,
    seconds_words,
    section,
    warning,
)
from kernellab.views.explorers.explorer import explorer_html
from kernellab.views.explorers.heat import heat_of, percent, reasons_words

_LINES = 12
_ALIGNED = {"line": "left", "mostly": "left", "called from": "left"}
_COLOURS = ("#e06c12", "#3b82c4", "#3f9a57", "#9060c0", "#c0a020", "#8a8f98")


def profile_html(profile: Profile, *, uid: str = "") -> str:
    """Return the card; ``uid`` has to differ between the cards of one page."""
    parts = [*_notes_html(profile)]
    if profile.samples:
        parts += [_bar(profile), _table(profile).html(_ALIGNED)]
    heat = heat_of(profile)
    if profile.compiled is not None and heat is not None:
        explorer = explorer_html(profile.compiled, opened="sass", uid=f"profile {uid}", heat=heat)
        parts.append(details("Source and stages", explorer, "the share of the samples beside each line", is_open=True))
    return framed(section(header(profile.kernel, words(profile)), *parts))


def profile_text(profile: Profile) -> str:
    """Return the same as lines for a terminal."""
    lines = ["  ".join([profile.kernel, *words(profile)]), *_sentences(profile)]
    if profile.samples:
        lines += [reasons_words(profile.reasons), *_table(profile).text()]
    return "\n".join(lines)


def words(profile: Profile) -> list[str]:
    """Return the facts beside the name."""
    if not profile.samples:
        return [profile.target, profile.device or "no GPU", f"grid {grid_words(profile.grid)}"]
    many = f"{profile.samples:,} samples of {plural(profile.launches, 'launch')}"
    return [profile.device, f"grid {grid_words(profile.grid)}", many, f"in {seconds_words(profile.seconds)}"]


def _sentences(profile: Profile) -> Iterator[str]:
    if profile.refused:
        yield profile.refused
    if profile.counters is not None:
        yield counters_words(profile.counters)
    yield from profile.notes


def _notes_html(profile: Profile) -> Iterator[str]:
    if profile.refused:
        yield warning(profile.refused)
    if profile.counters is not None:
        yield message("kl-note", counters_words(profile.counters))
    for note in profile.notes:
        yield message("kl-note", note)


def counters_words(counters: Counters) -> str:
    """Return what was counted as a sentence: the shares of what the hardware can do."""
    named = {"DRAM": counters.dram, "L2": counters.l2, "tensor cores": counters.tensor}
    named["multiprocessors"] = counters.multiprocessor
    shares = [f"{name} {percent(share)}" for name, share in named.items() if share is not None]
    return f"Counted: of what they can do, {', '.join(shares)}." if shares else "The counters said nothing."


def _bar(profile: Profile) -> str:
    """Return what the warps were about as one bar."""
    total, parts = profile.samples, []
    for index, (stall, count) in enumerate(profile.reasons.items()):
        share = count / total
        if share >= 0.01:
            colour = _COLOURS[min(index, len(_COLOURS) - 1)]
            tip = f"{stall}, {percent(share)}: {stall.about}"
            label = f"{stall} {percent(share)}" if share > 0.08 else ""
            style = f"flex:{share:.4f} 1 0;background:{colour};color:#fff;padding:1px 5px;overflow:hidden"
            parts.append(f'<span style="{style};white-space:nowrap" title="{escape(tip)}">{escape(label)}</span>')
    style = "display:flex;gap:1px;margin:6px 0;border-radius:4px;overflow:hidden;font-size:11px"
    return f'<div style="{style}">{"".join(parts)}</div>'


def _table(profile: Profile) -> Table:
    head = ("line", "share", "between", "mostly", "called from")
    shown = [line for line in profile.lines[:_LINES] if line.samples]
    tips = [reasons_words(line.reasons) for line in shown]
    return Table(head, [_row(line) for line in shown], tips).filled()


def _row(line: LineSamples) -> tuple[str, ...]:
    place = "not known" if line.line is None else f"{short_file(line.file)}:{line.line}"
    bounds = f"{percent(line.share.low)} - {percent(line.share.high)}"
    calls = calls_text(tuple((short_file(file), number) for file, number in line.calls))
    return (place, percent(line.share.value), bounds, "" if line.main is None else str(line.main), calls)
