"""The arguments of a kernel in a card: type, value, accesses, what a run changed, and how a check of them failed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from kernellab.checking.comparison import (
    EDGES,
    Check,
    ErrorHistogram,
    WorstElement,
    matching_text,
    number_text,
    pair_texts,
)
from kernellab.compile.argument_values import ArgumentValue
from kernellab.errors import plural
from kernellab.ir.effects import Effects
from kernellab.ir.operations import Access
from kernellab.views import elements
from kernellab.views.blocks import WARNING, Message, Table, html_table
from kernellab.views.elements import badge, dim, lines_words, number, shorten, spans_words
from kernellab.views.graph.drawing import svg_element
from kernellab.views.palette import BAD, GOOD, GREY
from kernellab.views.report import ArgumentReport

_COLUMN_LIMITS = (24, 26, 34, 18)  # name, type, shape or value, specialization; the rest wraps
_DIVISOR = 16
_WORDS = {Access.READ: "loads", Access.WRITE: "stores"}


def argument_lines(arguments: Sequence[ArgumentReport], effects: Effects, width: int) -> list[str]:
    """Return a line for each argument, its accesses wrapped in the last column, and a note below it."""
    lines = list[str]()
    rows = [tuple(map(shorten, _texts(row), _COLUMN_LIMITS)) for row in arguments]
    shown = [column for column in range(len(_COLUMN_LIMITS)) if any(row[column] for row in rows)]
    widths = {column: max(len(row[column]) for row in rows) for column in shown}
    left = sum(widths.values()) + 2 * len(widths)
    for row, argument in zip(rows, arguments, strict=True):
        head = "".join(row[column].ljust(widths[column] + 2) for column in shown)
        words = elements.accesses_words(argument.lines or {}) or untouched_words(argument, effects)
        effect = "; ".join(filter(None, (words, changed_words(argument), narrow_words(argument))))
        first, *rest = textwrap.wrap(effect, max(width - left, width // 3)) or [""]
        lines += [(head + first).rstrip(), *(" " * left + line for line in rest)]
    return lines


def argument_table(arguments: Sequence[ArgumentReport], effects: Effects) -> str:
    """Return the table; a column that is empty for all arguments is left out."""
    texts = [_texts(argument) for argument in arguments]
    has = {title: any(row[at] for row in texts) for at, title in ((2, "shape or value"), (3, "specialization"))}
    has["specialization"] |= any(argument.narrow for argument in arguments)
    has["access"] = any(argument.lines is not None for argument in arguments)
    has["after the run"] = any(argument.changed is not None for argument in arguments)
    shown = [title for title, is_shown in has.items() if is_shown]
    head = [f'<th scope="col">{title}</th>' for title in ("argument", "type", *shown)]
    table = html_table([_argument_row(argument, effects, shown) for argument in arguments], head)
    return f'<div class="kl-scroll">{table}</div>'


def _argument_row(argument: ArgumentReport, effects: Effects, shown: Sequence[str]) -> str:
    name, kind, value, specialization = map(escape, _texts(argument))
    cost = narrow_words(argument)
    note = f'<span class="kl-cost">{escape(cost)}</span>' if cost else ""
    done = accesses(effects, argument.name, argument.lines or {}) or dim(untouched_words(argument, effects))
    cells = {
        "shape or value": f'<td class="kl-type">{value}</td>',
        "specialization": f'<td class="kl-dim">{specialization or note}</td>',
        "access": f"<td>{done}{note if specialization else ''}</td>",
        "after the run": f"<td>{escape(changed_words(argument))}</td>",
    }
    if argument.lines is None and note:  # of a scalar, what follows is empty
        rest = len([title for title in shown if title != "shape or value"])
        shown = [title for title in shown if title == "shape or value"]
        cells["shape or value"] += f'<td colspan="{rest}">{note}</td>'
    plain = ' class="kl-plain"' if argument.lines is None else ""
    row = "".join(cells[title] for title in shown)
    return f'<tr{plain}><th scope="row">{name}</th><td class="kl-type">{kind}</td>{row}</tr>'


def _texts(argument: ArgumentReport) -> tuple[str, str, str, str]:
    """Return name, type, shape or value, and specialization; that of a constexpr is its value."""
    value, specialization = value_words(argument.value), argument.specialization
    if argument.type == "constexpr":
        value, specialization = value or specialization, ""
    return argument.name, argument.type, value, specialization


def value_words(value: ArgumentValue | None) -> str:
    """Return the shape of a tensor, with strides where it is not contiguous, or the value of a scalar."""
    if value is None:
        return ""
    if value.shape is None:
        return "" if value.value is None else f"{value.value:,}" if type(value.value) is int else repr(value.value)
    strides = "" if value.is_contiguous else f", strides {value.strides}"
    return f"{value.shape}{strides}"


def narrow_words(argument: ArgumentReport) -> str:
    """Describe the narrow accesses of an argument that is not divisible by 16; "" without any.

    For instance: ``1,000 is not divisible by 16: loads of 2 bytes (lines 7, 12); 16 if it and stride were``.
    """
    if not argument.narrow:
        return ""
    groups: dict[tuple[Access, int], list[int]] = {}
    for access in argument.narrow:
        groups.setdefault((access.kind, access.width_bytes), []).extend([access.line] if access.line else [])
    parts = []
    for (kind, width), lines in groups.items():
        where = f" ({elements.lines_words(tuple(lines))})" if lines else ""
        parts.append(f"{_WORDS[kind]} of {plural(width, 'byte')}{where}")
    widest = max(access.possible_bytes for access in argument.narrow)
    all_of = ["it", *dict.fromkeys(name for access in argument.narrow for name in access.also)]
    return f"{_divisor_words(argument.value)}: {', '.join(parts)}; {widest} if {' and '.join(all_of)} were"


def _divisor_words(value: ArgumentValue | None) -> str:
    if value is None or value.value is None:
        return "not known to be divisible by 16" if value is None else "address not divisible by 16"
    if isinstance(value.value, int) and value.value % _DIVISOR == 0:
        return f"{value.value:,} is not specialized as divisible by 16"
    return f"{value.value:,} is not divisible by 16"


def accesses(effects: Effects, argument: str, lines: Mapping[Access, tuple[int, ...]]) -> str:
    """Return the marks of the accesses of an argument, with their source lines; "" where there are none."""
    tips = {kind: elements.sites_words(effects, argument, kind) for kind in Access if kind in lines}
    return "".join(
        badge(kind, elements.lines_words(lines[kind]), word=elements.PAST[kind], tip=tip) for kind, tip in tips.items()
    )


def untouched_words(argument: ArgumentReport, effects: Effects) -> str:
    """Return ``untouched`` or ``not known`` for memory without known accesses; "" for other arguments."""
    if argument.lines is None:
        return ""
    return "not known" if effects.unknown else "untouched"


def changed_words(argument: ArgumentReport) -> str:
    """Return the number of changed elements of an argument in words; "" where it was only read."""
    is_only_read = argument.lines is not None and set(argument.lines) <= {Access.READ}
    total = None if argument.value is None else argument.value.elements
    if argument.changed is None or total is None or (is_only_read and not argument.changed):
        return ""
    return changes_words(argument.changed, total)


def changes_words(changed: int, total: int | None) -> str:
    """Return ``3 elements changed, 5 same as before``; a store of the value that was there counts as no change."""
    if not changed:
        return "same values as before"
    count = plural(changed, "element")
    if total is None:
        return f"{count} changed"
    rest = total - changed
    return f"{count} changed, {rest:,} same as before" if rest else f"{'all ' * (changed > 1)}{count} changed"


_CELL_PX = 7
_LEAST_OPACITY = 0.25  # a single wrong element among many must still be seen
_BAR_PX, _GAP_PX, _HEIGHT_PX, _LABEL_PX = 34, 6, 64, 14
_LEAST_BAR = 0.04
_LEAST_RED_PX = 3.0
_SCALES = ((1_000_000, "M"), (1000, "k"))


def check_picture(check: Check) -> str:
    """Return the picture of an output that differs, with captions, as HTML; "" where there is nothing to show."""
    parts = [_with_caption(heat_svg(check), heat_words(check))] if check.heat else []
    detail = check.detail
    if detail is not None and detail.histogram is not None:
        words = f"Elements by error, in ulp of {detail.histogram.dtype}. Red: outside tolerance; log scale."
        parts.append(_with_caption(histogram_svg(check.argument, detail.histogram), words))
    if detail is not None and detail.worst:
        table, words = worst_table(detail.worst).html(), worst_words(check.argument, detail.worst)
        parts.append(_with_caption(table, words, is_above=True))
    return f'<div class="kl-check">{"".join(parts)}</div>' if parts else ""


def check_lines(check: Check) -> Iterator[str]:
    """Yield the histogram and the worst elements of an output that differs as lines for a terminal."""
    if check.detail is None:
        return
    histogram = check.detail.histogram
    if histogram is not None:
        bins = ", ".join(_bin_text(*counts) for counts in _bins(histogram))
        yield f"elements by error, in ulp of {histogram.dtype}: {bins}"
    if check.detail.worst:
        yield f"{worst_words(check.argument, check.detail.worst)}:"
        yield from (f"  {line}" for line in worst_table(check.detail.worst).lines())


def heat_svg(check: Check) -> str:
    """Return a map of the mismatches of a matrix; redder cells have more of them."""
    rows, columns = len(check.heat), len(check.heat[0])
    width, height = columns * _CELL_PX, rows * _CELL_PX
    cells = [f'<rect width="{width}" height="{height}" fill="{GREY}" fill-opacity=".12" stroke="{GREY}"/>']
    for y, row in enumerate(check.heat):
        for x, share in enumerate(row):
            if share:
                opacity = _LEAST_OPACITY + (1 - _LEAST_OPACITY) * share
                place = f'x="{x * _CELL_PX}" y="{y * _CELL_PX}" width="{_CELL_PX}" height="{_CELL_PX}"'
                cells.append(f'<rect {place} fill="{BAD}" fill-opacity="{opacity:.2f}"/>')
    title = f"Where {check.argument} differs from {check.expression}"
    return svg_element(title, f"{check.mismatched:,} of {check.elements:,} elements differ", width, height, cells)


def heat_words(check: Check) -> str:
    """Return the caption of the map: what its red cells are, and how many elements one stands for."""
    rows, columns = len(check.heat), len(check.heat[0])
    count = -(-check.elements // (rows * columns))
    one = "is one element" if count == 1 else f"stands for about {count:,} elements, the redder the more of them differ"
    return f"Where {check.argument} differs from {check.expression}: row 0 is at the top, and a cell {one}."


def histogram_svg(argument: str, histogram: ErrorHistogram) -> str:
    """Return a bar for each range of errors, on a scale that grows with the number of digits of the count."""
    bins = list(_bins(histogram))
    most = max(count for _, _, _, count in bins)
    parts = []
    for at, (label, right, wrong, count) in enumerate(bins):
        left = at * (_BAR_PX + _GAP_PX)
        digits = count.bit_length() / max(most.bit_length(), 1)
        height = max(digits, _LEAST_BAR) * _HEIGHT_PX if count else 0.0
        beyond = min(height, max(height * wrong / count, _LEAST_RED_PX)) if wrong else 0.0
        top = _LABEL_PX + _HEIGHT_PX - height
        for y, tall, colour in ((top, beyond, BAD), (top + beyond, height - beyond, GOOD)):
            if tall:
                box = f'x="{left}" y="{y:.1f}" width="{_BAR_PX}" height="{tall:.1f}"'
                parts.append(f'<rect {box} fill="{colour}"><title>{wrong:,} wrong, {right:,} right</title></rect>')
        middle = left + _BAR_PX / 2
        if count:
            scale, unit = next((pair for pair in _SCALES if count >= 10 * pair[0]), (1, ""))
            parts.append(_text(middle, top - 3, f"{count / scale:,.0f}{unit}"))
        parts.append(_text(middle, _LABEL_PX + _HEIGHT_PX + 12, label))
    width, base = len(bins) * (_BAR_PX + _GAP_PX) - _GAP_PX, _LABEL_PX + _HEIGHT_PX
    parts.append(f'<path d="M0 {base}H{width}" stroke="{GREY}" fill="none"/>')
    description = ", ".join(_bin_text(*counts) for counts in bins)
    return svg_element(f"Errors of {argument} in ulp", description, width, base + _LABEL_PX + 2, parts)


def worst_words(argument: str, worst: tuple[WorstElement, ...]) -> str:
    """Return the caption of the table of the worst elements."""
    by_program = any(element.program is not None for element in worst)
    return f"Worst element of {argument} per program" if by_program else f"Worst elements of {argument}"


def worst_table(worst: tuple[WorstElement, ...]) -> Table:
    """Return a row for each of the worst elements; what is not known of any has no column."""
    by_program = any(element.program is not None for element in worst)
    head = ("program", "tile", "wrong in it", "worst element", "value", "expected", "error (ulp)")
    rows = []
    for element in worst:
        program = "none wrote it" if element.program is None else str(element.program)
        index = f"[{', '.join(map(str, element.index))}]" if element.index else "the value"
        unwritten = "not written", number_text(element.expected)
        pair = unwritten if element.got is None else pair_texts(element.got, element.expected)
        values = *pair, number(element.ulps, ",.3g")
        owner = (program, f"{element.wrong:,}") if by_program else ("", "")
        tile = f"[{spans_words(element.tile)}]" if element.tile else ""
        rows.append((owner[0], tile, owner[1], index, *values))
    return Table(head, rows, left=("program", "tile", "worst element")).without_empty_columns()


def _with_caption(picture: str, words: str, *, is_above: bool = False) -> str:
    caption = f'<p class="kl-caption">{escape(words)}</p>'
    parts = caption + picture if is_above else picture + caption
    return f'<div class="kl-figure">{parts}</div>'


def _bins(histogram: ErrorHistogram) -> Iterator[tuple[str, int, int, int]]:
    """Yield name, right, wrong and all of each bin, from the first to the last that holds any."""
    names = [*(f"≤{_edge(edge)}" for edge in EDGES), f">{_edge(EDGES[-1])}", "inf, nan"]
    counts = list(zip(names, histogram.right, histogram.wrong, strict=True))
    filled = [at for at, (_, right, wrong) in enumerate(counts) if right + wrong]
    for name, right, wrong in counts[filled[0] : filled[-1] + 1] if filled else ():
        yield name, right, wrong, right + wrong


def _bin_text(name: str, right: int, wrong: int, count: int) -> str:
    """Return a bin in words: ``≤64: 12 (3 wrong)``."""
    return f"{name}: {count:,}" + (f" ({wrong:,} wrong)" if wrong and right else " wrong" if wrong else "")


def _edge(edge: float) -> str:
    exponent = edge.hex().partition("p")[2]
    return "½" if edge < 1 else f"{edge:.0f}" if edge <= 1024 else f"2^{int(exponent)}"


def _text(x: float, y: float, words: str) -> str:
    place = f'x="{x:g}" y="{y:.1f}" text-anchor="middle" font-size="9.5" fill="currentColor"'
    return f"<text {place}>{escape(words)}</text>"


def check_messages(checks: Sequence[Check], stores: Mapping[str, Sequence[int]]) -> Iterator[Message]:
    """Yield a message for each output that differs, and one for those that match a reference.

    A match within a coarse tolerance is a warning. ``stores`` are the source lines that write each output.
    """
    equal: dict[str, list[Check]] = {}
    for check in checks:
        if check.equal:
            equal.setdefault(check.expression, []).append(check)
        else:
            yield Message(_differing_words(check, tuple(stores.get(check.argument, ()))), "kl-alert")
    for group in equal.values():
        style = WARNING if any(check.is_coarse for check in group) else "kl-note kl-good"
        yield Message(matching_text(group), style)


def _differing_words(check: Check, lines: tuple[int, ...]) -> str:
    """Return the worst error, its tolerance, and the wrong elements: their number, place and storing lines."""
    count = f"{check.mismatched:,} of {check.elements:,} elements"
    if check.never_written == check.mismatched:
        parts = [f"{count} wrong, all of them never written"]
    else:
        never = f" ({check.never_written:,} of them never written)" if check.never_written else ""
        stored = f", stored in {lines_words(lines)}" if lines else ""
        parts = [*_error_words(check), f"{count} wrong{never}{stored}"]
    if check.extent and 1 < check.mismatched < check.elements:
        parts.append(f"all in [{spans_words(check.extent)}]")
    if check.detail is None or not check.detail.worst:  # else a table has them
        parts += map(str, check.differences)
    cause = f". {check.cause}" if check.cause else ""
    return f"{check.argument} differs from {check.expression}: {'; '.join(parts)}{cause}"


def _error_words(check: Check) -> list[str]:
    """Return the error of the worst element and its tolerance, and the max error where another element has it."""
    if check.worst is None:
        return [f"max error {check.max_error:.3g}"]
    error = abs(check.worst.got - check.worst.expected)
    at = f"{error:.3g} at {check.worst.place}, tolerance {check.worst.allowed:.2g}"
    if f"{error:.3g}" == f"{check.max_error:.3g}":
        return [f"max error {at}"]
    return [f"error {at}", f"max error {check.max_error:.3g}"]
