"""The explorer: the source of a compiled kernel next to its stages, linked line by line; the heat of its lines."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from itertools import groupby

from kernellab._triton.tiles import layouts_in
from kernellab.compile import ASSEMBLIES, MLIR_STAGES
from kernellab.compile.types import Compiled
from kernellab.errors import plural, share_text, time_text
from kernellab.explain.profile import Profile, Reasons, Stall, sum_reasons
from kernellab.ir.graph import calls_of, main_file, short_file
from kernellab.ir.instructions import instruction_of
from kernellab.views.elements import code_line, file_text, group_by, html_page, size_words, style_sheet
from kernellab.views.explorers.exploration import (
    Badge,
    Exploration,
    LineKey,
    SourceLine,
    Stage,
    badges_of,
    explore,
    key_of,
)
from kernellab.views.graph import GraphPictures, View, graph_pane, graph_script
from kernellab.views.graph.dataflow import SourceText
from kernellab.views.graph.diagram import Node
from kernellab.views.layouts import MOST_TILES, TilesPane
from kernellab.views.palette import SERIES, fill_in


def explorer_html(
    compiled: Compiled,
    text: SourceText | None = None,
    *,
    opened: str | None = None,
    sass: bool = True,
    uid: str = "",
    graph: bool = False,
    heat: Heat | None = None,
    tiles: int = 0,
) -> str:
    """Return the explorer of a compiled kernel as one ``<div>`` with its style sheet.

    ``text`` is that of the kernel; without it the file is read. ``opened`` is the stage that shows first. ``uid``
    differs between the explorers of one page. With ``graph``, the graph by source line stands below, linked with the
    lines. ``heat`` adds shares of time to the source and to SASS, ``tiles`` a pane with so many layouts below TTGIR.
    """
    explorer = Rendering(explore(compiled, text, sass=sass), opened, uid, heat, tiles)
    if not graph:
        return explorer.html()
    pictures = explorer.pictures()
    shown = pictures.draw(View.SOURCE, pictures.collapsed_at_first(View.SOURCE))
    return explorer.html(graph_pane(shown.svg, shown.diagram.title))


# Of a line, its background counts; of a box in the graph, its outline.
_CHOSEN = fill_in("background:rgba($mark,.26);box-shadow:inset 3px 0 $mark;stroke:$mark;stroke-width:3.5px")
_HOVERED = fill_in("background:rgba($blue,.2);stroke:$mark")
_NEAR = fill_in("background:rgba($blue,.1)")
_UNSTYLED = 'style="display:none"'  # hides where a page drops style sheets, which overrule it


class Rendering:
    """One rendering. Source lines are numbered in the order in which they show; classes and ids use these numbers."""

    def __init__(
        self, exploration: Exploration, opened: str | None, uid: str, heat: Heat | None = None, tiles: int = 0
    ) -> None:
        self.exploration = exploration
        self.heat = heat
        digest = hashlib.sha256(f"{exploration.compiled.digest} {uid}".encode()).hexdigest()
        self.uid = f"x{digest[:6]}"
        self.lines = [line for function in exploration.source for line in function]
        self.numbers: dict[LineKey, int] = {line.key: number for number, line in enumerate(self.lines)}
        self.home = short_file(main_file(exploration.compiled.graph))
        names, compiled = [stage.name for stage in exploration.stages], exploration.compiled
        default = next((name for name in names if name in ASSEMBLIES), names[-1] if names else "")
        self.opened = names.index(opened if opened in names else default) if names else 0
        self._tiles: TilesPane | None = None
        if tiles and "ttgir" in names:
            layouts = layouts_in(compiled.kernel, str(compiled.target), compiled.stages["ttgir"])
            self._tiles = TilesPane(layouts, tiles, self.uid, self.numbers) if layouts.values else None

    def pictures(self) -> GraphPictures:
        """The pictures of the graph; their boxes share the classes of source lines."""
        compiled = self.exploration.compiled
        text = {line.key[1]: line.text for line in self.lines if line.key[0] == self.home and line.text}

        def style(node: Node) -> str:
            number = self.numbers.get((node.file or self.home, node.source_line or 0))
            return "" if number is None else f"k{number}"

        return GraphPictures(compiled.graph, compiled.effects, text, style)

    def html(self, graph: str = "") -> str:
        """Return the explorer, with the pane of a graph at its foot."""
        rows = {
            stage.name: {self.numbers[key] for place in stage.places.values() if (key := key_of(place)) in self.numbers}
            for stage in self.exploration.stages
        }
        parts = [
            f'<div class="kx" id="{self.uid}">',
            f"<style>{style_sheet(__package__, 'explorer.css')}{self._rules()}</style>",
            f'<div class="kx-tabs">{"".join(self._tabs())}</div>',
            _times(self.exploration.compiled),
            '<div class="kx-panes">',
            f'<div class="kx-source" tabindex="-1">{self._source(rows)}</div>',
            *(self._stage(index, stage) for index, stage in enumerate(self.exploration.stages)),
            f"</div>{self._tiles.html() if self._tiles is not None else ''}{graph}</div>",
        ]
        return "\n".join(parts)

    def _rules(self) -> str:
        """Return the rules that light, for the line under the pointer and the checked one, all that belongs to it."""
        root, numbers = f"#{self.uid}", self.numbers.values()
        places = (place for stage in self.exploration.stages for place in stage.places.values())
        callers = {key_of(call) for place in places for call in calls_of(place)}
        calls = sorted(self.numbers[key] for key in callers if key in self.numbers)
        hover = ",".join(f"{root}:has(.k{n}:hover) .k{n}" for n in numbers)
        chosen = ",".join(f"{root}:has(.r{n}:checked) .k{n}" for n in numbers)
        near = ",".join(f"{root}:has(.k{n}:hover) .c{n},{root}:has(.c{n}:hover) .s.k{n}" for n in calls)
        links = ((near, _NEAR), (hover, _HOVERED), (chosen, _CHOSEN))
        rules = [f"{selector}{{{style}}}" for selector, style in links if selector]
        for index, stage in enumerate(self.exploration.stages):
            opened = f"{root}:has(.kx-tab{index}:checked)"
            rules.append(f"{opened} .kx-p{index}{{display:block!important}}")
            rules.append(f"{opened} .kx-code .p{index}{{display:block}}")
            if stage.name == "ttgir" and self._tiles is not None:
                rules.append(self._tiles.rules(index))
        return "".join(rules)

    def drawn_values(self) -> tuple[str, ...]:
        """Return the values of TTGIR that have a drawn layout."""
        return () if self._tiles is None else self._tiles.drawn_values()

    def _tabs(self) -> Iterator[str]:
        for index, stage in enumerate(self.exploration.stages):
            checked = " checked" if index == self.opened else ""
            count = "" if stage.instructions is None else f"{stage.instructions:,}"
            size = "…" if stage.is_pending else count
            yield (
                f' <label><input type="radio" name="{self.uid}-tab" class="kx-tab{index}"{checked} {_UNSTYLED}>'
                f"<b>{stage.name.upper()}</b> <span>{size}</span></label>"
            )

    def _source(self, rows: Mapping[str, set[int]]) -> str:
        badges = badges_of(self.exploration)
        parts: list[str] = []
        file = ""
        for function in self.exploration.source:
            name = function[0].key[0]
            if parts or name != file:
                parts.append(f'<div class="kx-file">{escape(name)}</div>' if name != file else "<hr>")
            file = name
            body = "".join(self._source_line(line, badges.get(line.key, ()), rows) for line in function)
            parts.append(f'<div class="kx-code">{body}</div>')
        return "".join(parts)

    def _source_line(self, line: SourceLine, badges: tuple[Badge, ...], rows: Mapping[str, set[int]]) -> str:
        number = self.numbers[line.key]
        counts = "".join(
            f'<label class="p{index}" for="{self.uid}-{index}-{number}">{stage.count(line.key)}</label>'
            for index, stage in enumerate(self.exploration.stages)
            if number in rows[stage.name]
        )
        button = ""
        if counts:
            button = f'<input type="radio" name="{self.uid}" class="r{number}" id="{self.uid}-s{number}">'
        marks = ""
        for badge in badges:
            alarm = ' class="kx-alarm"' if badge.alarm else ""
            marks += f'<em{alarm} title="{escape(badge.tip)}">{escape(badge.text)}</em>'
        marks = f"<s {_UNSTYLED}>{marks}</s>" if badges else ""
        other = "" if line.key[0] == self.home else f' data-file="{escape(line.key[0])}"'
        heat = "" if self.heat is None else self.heat.cell(line.key)
        return (
            f'<div class="s k{number}"{other}><i>{line.key[1]}</i><u {_UNSTYLED}>{button}{counts}</u>{heat}'
            f" <code>{marks}{code_line(line.text) or ' '}</code></div>"
        )

    def _stage(self, index: int, stage: Stage) -> str:
        seen: set[int] = set()
        runs = []
        for run in fit_stage(stage):
            lines = run.lines if self.heat is None or stage.name != "sass" else map(self.heat.with_share, run.lines)
            text = escape("\n".join(lines)) + "\n"  # which shows only where labels are no blocks
            if run.key is None or run.key not in self.numbers:
                runs.append(f"<span>{text}</span>")
                continue
            number = self.numbers[run.key]
            if number not in seen:
                seen.add(number)
                name = f'name="{self.uid}" class="r{number}" id="{self.uid}-{index}-{number}"'
                runs.append(f'<input type="radio" {name} {_UNSTYLED}>')
            calls = "".join(f" c{self.numbers[call]}" for call in run.calls if call in self.numbers)
            runs.append(
                f'<label class="k{number}{calls}" for="{self.uid}-s{number}" data-n="{run.key[1]}">{text}</label>'
            )
        facts = escape(_facts(stage))
        content = f"<p>{facts}</p><pre>{''.join(runs)}</pre>"
        if index != self.opened:  # where a page drops styles, one stage is enough; see `kernellab.views.figures.raster`
            return f'<div class="kx-stage kx-p{index}" {_UNSTYLED}><rp>{content}</rp></div>'
        return f'<div class="kx-stage kx-p{index}">{content}</div>'


def _facts(stage: Stage) -> str:
    if stage.is_pending:
        return "is being disassembled"
    word = "operation" if stage.name in MLIR_STAGES else "instruction"
    facts = [] if stage.instructions is None else [plural(stage.instructions, word)]
    facts += [plural(len(stage.lines), "line"), size_words(stage.bytes)]
    if stage.seconds is not None:
        facts.append(f"made in {time_text(stage.seconds)}")
    return " · ".join(facts)


def _times(compiled: Compiled) -> str:
    """Return the compile time by stage: a bar, and below it each stage with its share of the bar in its colour."""
    times, total = compiled.stage_seconds, sum(compiled.stage_seconds.values())
    if not total:
        return ""
    hues = {name: SERIES[place % len(SERIES)] for place, name in enumerate(times)}
    slices = "".join(f'<i style="flex:{times[name] / total:.4f} 1 0;background:{hues[name]}"></i>' for name in times)
    labels = "".join(
        f'<span style="border-color:{hues[name]}">{escape(name)} {time_text(times[name])}</span> ' for name in times
    )
    return f'<div class="kx-times" title="compile time by stage"><div>{slices}</div>{labels}</div>'


_STYLE = """
body { margin: 8px; }
.kx.kx { max-width: none; }
@media (min-width: 721px) { .kx.kx.kx .kx-panes { height: calc(58vh - 40px); } }
"""
_SCRIPT = """<script type="module">
{script}
document.querySelectorAll(".kx").forEach(root => enhance(root, graphPane(root.querySelector(".kg"))));
</script>"""


@cache
def explorer_script() -> str:
    """Return the script: an ES module that exports ``enhance(root, graph)`` and ``graphPane(root)``."""
    return "\n".join([graph_script(), file_text("kernellab.views", "tiles.js"), file_text(__package__, "explorer.js")])


def page_script() -> str:
    """Return the element that adds search, keys and linked scrolling to the explorers of a page."""
    return _SCRIPT.format(script=explorer_script())


def explorer_page(compiled: Compiled, *, opened: str | None = None) -> str:
    """Return one HTML file with the graph, search, keys and linked scrolling, which opens without a network."""
    body = explorer_html(compiled, opened=opened, graph=True, tiles=MOST_TILES)
    title = f"{compiled.kernel} for {compiled.target}"
    return html_page(title, _STYLE, f"{body}\n{page_script()}")


STAGE_BYTES_AT_MOST = 100_000
_LINE_AT_MOST = 220
_KEPT = (None, 120, 40, 16, 6, 2)  # lines of a run, from the least folding to the most
_NAMED = 4
_RUN_BYTES = 60  # of the HTML around a run
_SASS_GAP = re.compile(r"^\s*(/\*[0-9a-f]{4,}\*/)\s+")


@dataclass(frozen=True, slots=True)
class LineGroup:
    """Successive lines of one source line, ``key``, inlined through ``calls``, innermost first."""

    lines: tuple[str, ...]
    key: LineKey | None
    calls: tuple[LineKey, ...]


def fit_stage(stage: Stage) -> tuple[LineGroup, ...]:
    """Return the runs of a stage, folded to stay below `STAGE_BYTES_AT_MOST` if possible.

    Every run keeps its first lines, so that every source line can still be followed to what it became.
    """
    places = {}
    for name, place in stage.places.items():
        calls = dict.fromkeys(key for call in calls_of(place) if (key := key_of(call)) is not None)
        places[name] = key_of(place), tuple(calls)
    groups = groupby(stage.lines, key=lambda line: places[id(line.place)])
    runs = [LineGroup(tuple(_shorten_line(stage.name, line.text) for line in group), *key) for key, group in groups]

    def size(run: LineGroup, kept: int | None) -> int:
        return _RUN_BYTES + sum(map(len, run.lines[:kept])) + len(run.lines[:kept])

    kept = next((kept for kept in _KEPT if sum(size(run, kept) for run in runs) < STAGE_BYTES_AT_MOST), _KEPT[-1])
    if kept is None:
        return tuple(runs)
    return tuple(
        replace(run, lines=(*run.lines[:kept], f"    … {_folded_words(stage.name, run.lines[kept:])}"))
        if len(run.lines) > kept + 2
        else run
        for run in runs
    )


def _shorten_line(name: str, line: str) -> str:
    line = _SASS_GAP.sub(r"\1 ", line) if name == "sass" else line
    rest = len(line) - _LINE_AT_MOST
    return line if rest <= 0 else f"{line[:_LINE_AT_MOST]} … {rest:,} more characters"


def _folded_words(name: str, lines: Iterable[str]) -> str:
    lines_left = [instruction_of(name, f" {line}") for line in lines]
    counts = Counter(instruction.mnemonic for instruction in lines_left if instruction is not None)
    most = ", ".join(f"{count} {mnemonic}" for mnemonic, count in counts.most_common(_NAMED))
    rest = ", ..." if len(counts) > _NAMED else ""
    return f"{plural(len(lines_left), 'more line')}{': ' if most else ''}{most}{rest}"


_ADDRESS = re.compile(r"/\*([0-9a-f]{4,})\*/")
_BLANK = " " * 7
_REASONS = 3
_LEAST_SHARE = 0.0005


@dataclass(frozen=True, slots=True)
class Heat:
    """The share of the samples, from 0 to 1, of source lines with a tooltip, and of instructions by their address."""

    lines: Mapping[LineKey, tuple[float, str]]
    instructions: Mapping[int, float]

    def cell(self, key: LineKey) -> str:
        """Return the cell of a source line."""
        if key not in self.lines:
            return "<b></b>"
        share, tip = self.lines[key]
        return f'<b style="--heat:{math.sqrt(share):.2f}" title="{escape(tip)}">{share_text(share)}</b>'

    def with_share(self, line: str) -> str:
        """Return a line of machine code with the share of its instruction before it."""
        address = _ADDRESS.search(line)
        share = self.instructions.get(int(address[1], 16), 0.0) if address else 0.0
        return f"{share_text(share):>6} {line}" if share >= _LEAST_SHARE else f"{_BLANK}{line}"


def heat_of(profile: Profile) -> Heat | None:
    """Return the heat of a profile; None where it has no samples."""
    if not profile.samples:
        return None
    known = (line for line in profile.lines if line.line is not None)
    lines_of = group_by(known, lambda line: (short_file(line.file), line.line or 0))
    marks = {}
    for key, lines in lines_of.items():  # several where it was inlined through several calls
        share, first = sum(line.share.value for line in lines), lines[0].share
        bounds = f" ({share_text(first.low)} to {share_text(first.high)})" if len(lines) == 1 else ""
        reasons = reasons_words(sum_reasons(line.reasons for line in lines))
        marks[key] = share, f"{share_text(share)}{bounds} of the samples: {reasons}"
    return Heat(marks, {sample.address: sample.samples / profile.samples for sample in profile.instructions})


def reasons_words(reasons: Reasons) -> str:
    """Return ``waits for memory 80 %, issues 12 %``."""
    total = sum(reasons.values())
    ordered = sorted(reasons.items(), key=lambda pair: (pair[0] is Stall.OTHER, -pair[1]))
    return ", ".join(f"{stall} {count / total:.0%}".replace("%", " %") for stall, count in ordered[:_REASONS] if count)
