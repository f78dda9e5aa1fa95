"""The table of a kernel's arguments: type, shape or value, specialization, accesses, and what a run changed."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from html import escape

from kernellab.compile.argument_values import ArgumentValue
from kernellab.errors import plural
from kernellab.ir.effects import Effects
from kernellab.ir.operations import Access
from kernellab.views import elements
from kernellab.views.blocks import html_table
from kernellab.views.elements import badge, dim, shorten
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

    For instance: ``1,000 is not divisible by 16: loads of 2 bytes (lines 7, 12), 16 if it were``.
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
    return f"{_divisor_words(argument.value)}: {', '.join(parts)}; {widest} if it were"


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
    if argument.changed is None or argument.elements is None or (is_only_read and not argument.changed):
        return ""
    return changes_words(argument.changed, argument.elements)


def changes_words(changed: int, total: int | None) -> str:
    """Return ``3 elements changed, 5 same as before``; a store of the value that was there counts as no change."""
    if not changed:
        return "same values as before"
    count = plural(changed, "element")
    if total is None:
        return f"{count} changed"
    rest = total - changed
    return f"{count} changed, {rest:,} same as before" if rest else f"{'all ' * (changed > 1)}{count} changed"
