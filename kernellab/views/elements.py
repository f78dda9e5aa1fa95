"""Common parts of all views: numbers and sentences in words; pages, style sheets, pieces of HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from kernellab.errors import share_text, three_digits, time_text
from kernellab.explain.model import Bottleneck
from kernellab.ir.operations import Access
from kernellab.views.palette import fill_in

if TYPE_CHECKING:
    from kernellab.compile.types import Compiled
    from kernellab.explain.prediction import Prediction
    from kernellab.ir.effects import Effects, UnknownEffect
    from kernellab.launch.recorded_values import RecordedValue

PAST = {Access.READ: "read", Access.WRITE: "written", Access.ATOMIC: "atomic"}
MARKS = {Access.READ: "▽", Access.WRITE: "△", Access.ATOMIC: "⬡"}
_KIB = 1024
Item = TypeVar("Item")
Key = TypeVar("Key")
_CODE = re.compile(r"``?([^`\n]+)``?")


@dataclass(frozen=True, slots=True)
class Fact:
    """One number of the card with its name; ``alarm`` where it calls for attention, ``share`` from 0 to 1 as a bar."""

    name: str
    value: str
    detail: str = ""
    alarm: bool = False
    share: float | None = None


def predicted_words(time_ms: float, low_ms: float, high_ms: float) -> str:
    """Return a predicted time with its interval: ``37 us (28 us to 47 us)``."""
    time, low, high = (time_text(ms / 1e3) for ms in (time_ms, low_ms, high_ms))
    return f"{time} ({low} to {high})"


def prediction_sentence(prediction: Prediction) -> str:
    """Return ``Predicted 37 us (28 us to 47 us) on H200, limited by HBM; 80 % of the roofline.``

    The share is left out of launches that overhead limits: the roofline bound includes it, so all of them are near.
    """
    time = predicted_words(prediction.time_ms, prediction.low_ms, prediction.high_ms)
    is_overhead = prediction.bound == Bottleneck.LAUNCH
    share = "" if is_overhead else f"; {share_text(prediction.share)} of the roofline"
    return f"Predicted {time} on {prediction.device}, limited by {prediction.bound}{share}."


def bytes_words(count: int) -> str:
    """Return a size: whole KiB where it is so, bytes otherwise."""
    if count >= _KIB and count % _KIB == 0:
        return f"{count // _KIB:,} KiB"
    return f"{count:,} B"


def size_words(count: int) -> str:
    """Return the size of a text with three digits at most: ``812 B``, ``38.7 kB``, ``1.87 MB``."""
    for scale, unit in ((1_000_000, "MB"), (1000, "kB")):
        if count >= scale * 0.9995:
            return f"{three_digits(count / scale)} {unit}"
    return f"{count} B"


def shorten(text: str, limit: int) -> str:
    """Return the text, cut with an ellipsis where it is longer than ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def lines_words(lines: tuple[int, ...]) -> str:
    """Return ``line 8`` or ``lines 8, 9``; "" where the lines are not known."""
    known = sorted(set(lines))
    if not known:
        return ""
    return f"line{'s' if len(known) > 1 else ''} {', '.join(map(str, known))}"


def compile_words(compiled: Compiled) -> str:
    """Return the compile time, or ``compiled earlier``."""
    return "compiled earlier" if compiled.from_cache else f"compiled in {time_text(compiled.seconds)}"


def compile_tips(compiled: Compiled) -> dict[str, str]:
    """Return the tooltip of `compile_words`: the time of each stage, where it is known."""
    times = ", ".join(f"{name} {time_text(seconds)}" for name, seconds in compiled.stage_seconds.items())
    return {compile_words(compiled): times} if times else {}


def grid_words(grid: tuple[int, int, int]) -> str:
    """Return the grid without trailing ones: ``1,024`` or ``8 x 4``."""
    x, y, z = grid
    sizes = [x] if (y, z) == (1, 1) else [x, y] if z == 1 else [x, y, z]
    return " x ".join(f"{size:,}" for size in sizes)


def sites_words(effects: Effects, argument: str, kind: Access) -> str:
    """Return a line for each operation that accesses an argument in this way, for a tooltip."""
    lines = dict[str, None]()
    for site in effects.sites:
        if (site.argument, site.kind) == (argument, kind):
            where = f"line {site.line}: " if site.line is not None else ""
            how = ["masked"] * site.masked + ["in a branch or loop that may not be entered"] * site.conditional
            lines[where + ", ".join([site.operation, *how])] = None
    return "\n".join(lines)


def accesses_words(lines: Mapping[Access, tuple[int, ...]]) -> str:
    """Return ``read (line 8), written (line 9)``; "" where there are no accesses."""
    accesses = [(PAST[kind], lines_words(lines[kind])) for kind in Access if kind in lines]
    return ", ".join(f"{done} ({where})" if where else done for done, where in accesses)


def unknown_words(effect: UnknownEffect) -> str:
    """Return a sentence on an effect that the analysis could not pin to an argument."""
    what = {None: "touches", Access.READ: "reads", Access.WRITE: "writes", Access.ATOMIC: "updates"}[effect.kind]
    place = f" in line {effect.line}" if effect.line is not None else ""
    if effect.through:
        pointers = ", ".join(sorted(effect.through))
        return f"{effect.operation}{place} {what} memory through the pointers in {pointers}; the launch resolves them"
    return f"{effect.operation}{place} {what} unknown memory: {effect.reason}"


def value_name(value: RecordedValue) -> str:
    """Return the variable of a value, or the access with its argument: ``store out``."""
    return value.name or f"{value.kind.value} {value.argument or ''}".strip()


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by their key, in their order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def longest_times(times_s: Mapping[Item, float], least_s: float) -> list[tuple[Item, float]]:
    """Return the times of more than ``least_s`` seconds, the longest first; one at least."""
    longest = sorted(times_s.items(), key=lambda pair: -pair[1])
    return [(name, seconds) for name, seconds in longest if seconds > least_s] or longest[:1]


def runs_of(items: Sequence[object]) -> list[range]:
    """Return the places of each run of equal neighbours."""
    starts = [at for at, item in enumerate(items) if at == 0 or item != items[at - 1]]
    return [range(first, end) for first, end in pairwise([*starts, len(items)])]


def spans_words(spans: Iterable[tuple[int, int]]) -> str:
    """Return ranges of indices, an axis each: ``0 to 15, 3``."""
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in spans)


@cache
def file_text(package: str | None, name: str) -> str:
    """Return the text of a file that lies in a package."""
    assert package is not None
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


@cache
def style_sheet(package: str | None, name: str) -> str:
    """Return a style sheet that lies in a package, minified, in the colours of the palette."""
    return fill_in(minify(file_text(package, name)))


def style(package: str | None, name: str) -> str:
    """Return a style sheet that lies in a package as an element."""
    return f"<style>{style_sheet(package, name)}</style>"


def minify(text: str) -> str:
    """Return a style sheet without comments and without needless white space."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"\s+", " ", text)
    return re.sub(r" ?([{};,]) ?", r"\1", text).replace(";}", "}").replace(": ", ":").strip()


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
{style}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def html_page(title: str, style: str, body: str) -> str:
    """Return the whole file; ``title`` is text, ``style`` a style sheet and ``body`` HTML."""
    return _PAGE.format(title=escape(title), style=style.strip(), body=body)


def text_html(text: str) -> str:
    """Return a text as HTML; what stands between backticks is code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def dim(text: str) -> str:
    """Return text of little weight."""
    return f'<span class="kl-dim">{escape(text)}</span>'


def title(tip: str) -> str:
    """Return the attribute of a tooltip; "" without text."""
    return f' title="{escape(tip)}"' if tip else ""


def code_line(text: str) -> str:
    """Return a line of source, indented by no-break spaces: on code hosts, which drop style sheets, these stay.

    Browsers copy them as plain ones.
    """
    line = text.expandtabs(4)
    bare = line.lstrip(" ")
    return "\u00a0" * (len(line) - len(bare)) + escape(bare)


def badge(kind: Access, text: str, *, word: str = "", tip: str = "") -> str:
    """Return the mark of an access; shape and word differ, not only the colour."""
    head = f"{MARKS[kind]} {word}".rstrip()
    return f'<span class="kl-badge kl-{kind}"{title(tip)}><b>{head}</b>{" " if text else ""}{escape(text)}</span>'


def share_bar(share: float, style: str = "") -> str:
    """Return a bar for a share from 0 to 1; ``style`` are further CSS classes."""
    return f'<span class="{f"kl-bar {style}".strip()}"><i style="width:{share:.0%}"></i></span>'


def number(value: float | None, pattern: str) -> str:
    """Return a number in a pattern of `format`; "" where it is not known."""
    return "" if value is None else format(value, pattern)


def interval(low: float | None, high: float | None) -> str:
    """Return ``1.01 - 1.03``; "" where it is not known."""
    return "" if low is None or high is None else f"{low:.4g} - {high:.4g}"


def rough_number(value: float | None) -> str:
    """Return an estimate with three digits at most; "" where it is not known."""
    return "" if value is None else three_digits(value)


def rough_interval(low: float | None, high: float | None) -> str:
    """Return ``0.00373 - 0.00619``, for an estimate; "" where it is not known."""
    return "" if low is None or high is None else f"{three_digits(low)} - {three_digits(high)}"
