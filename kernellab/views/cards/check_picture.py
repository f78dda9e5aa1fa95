"""Where and by how much an output differs from its reference: a map, a histogram of errors, the worst elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from kernellab.checking.comparison import EDGES, Check, ErrorHistogram, WorstElement, error_text, number_text
from kernellab.views.blocks import Table
from kernellab.views.elements import lines_words, number, spans_words
from kernellab.views.graph.drawing import svg_element
from kernellab.views.palette import BAD, GOOD, GREY

_CELL_PX = 7
_LEAST_OPACITY = 0.25  # a single wrong element among many must still be seen
_BAR_PX, _GAP_PX, _HEIGHT_PX, _LABEL_PX = 34, 6, 64, 14
_LEAST_BAR = 0.04
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
        bins = ", ".join(f"{label}: {count:,}" for label, _, _, count in _bins(histogram))
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
        beyond = height * wrong / count if count else 0.0
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
    description = ", ".join(f"{label}: {count:,}" for label, _, _, count in bins)
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
        values = number_text(element.got), number_text(element.expected), number(element.ulps, ",.3g")
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


def _edge(edge: float) -> str:
    exponent = edge.hex().partition("p")[2]
    return "½" if edge < 1 else f"{edge:.0f}" if edge <= 1024 else f"2^{int(exponent)}"


def _text(x: float, y: float, words: str) -> str:
    place = f'x="{x:g}" y="{y:.1f}" text-anchor="middle" font-size="9.5" fill="currentColor"'
    return f"<text {place}>{escape(words)}</text>"


def check_words(checks: Sequence[Check], stores: Mapping[str, Sequence[int]]) -> Iterator[tuple[bool, str]]:
    """Yield a verdict and its sentence for each output that differs, and one for those that match a reference.

    ``stores`` are the source lines that write each output.
    """
    equal: dict[str, list[Check]] = {}
    for check in checks:
        if check.equal:
            equal.setdefault(check.expression, []).append(check)
        else:
            yield False, _differing_words(check, tuple(stores.get(check.argument, ())))
    for expression, group in equal.items():
        outputs, verb = ", ".join(check.argument for check in group), "matches" if len(group) == 1 else "match"
        yield True, f"{outputs} {verb} {expression}; {error_text(group)}"


def _differing_words(check: Check, lines: tuple[int, ...]) -> str:
    """Return the worst error, its tolerance, and the wrong elements: their number, place and storing lines."""
    count = f"{check.mismatched:,} of {check.elements:,} elements"
    if check.never_written == check.mismatched:
        parts = [f"{count} were never written"]
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
