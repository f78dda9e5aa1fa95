"""Which line of one kernel is which of another: an alignment of their texts, and of the values recorded in them."""

from __future__ import annotations

import ast
import difflib
from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kernellab.inside.values import Values
from kernellab.launch.recorded_values import RecordedValue

_FileLine = tuple[str | None, int]


@dataclass(frozen=True, slots=True)
class ValuePair:
    """A value of one kernel and its counterpart in the other.

    One of them is None where a line that both have ran more often, or a branch was taken, on one side alone.
    """

    left: RecordedValue | None
    right: RecordedValue | None


def line_pairs(left: Values, right: Values) -> dict[_FileLine, _FileLine]:
    """The lines of the left kernel and its helpers, each with its counterpart in the right one.

    Equal lines are paired in order; of changed ones, those that stand at the same place of blocks of equal length, and
    else those that assign the same names.
    """
    pairs: dict[_FileLine, _FileLine] = {}
    for one, other in zip(left.texts, right.texts, strict=False):
        pairs |= {
            (one[0], one[1] + here): (other[0], other[1] + there)
            for here, there in _aligned_lines(_statements(one[2]), _statements(other[2]))
        }
    return pairs


def value_pairs(left: Values, right: Values) -> list[ValuePair]:
    """The values of both kernels that stand at the same place of their flow, in the left one's order.

    A place is the line, the iteration, the calls that led to it, what it is a value of, and its number there; its name
    counts where both lines give values to the same names. Values of
    lines without a counterpart are left out; of the others, one without a partner stands where it was computed.
    """
    lines = line_pairs(left, right)
    one, other = _names_by_line(left), _names_by_line(right)
    by_name = {there for here, there in lines.items() if one[here] == other[there]}
    partners = defaultdict[tuple[object, ...], deque[RecordedValue]](deque)
    for value in right.values:
        place = _place(value, (value.file, value.line), [(value.file, line) for line in value.calls], by_name)
        partners[place].append(value)
    pairs = []
    for value in left.values:
        there = lines.get((value.file, value.line))
        if there is not None:
            calls = [lines.get((left.file, line), (right.file, line)) for line in value.calls]
            waiting = partners.get(_place(value, there, calls, by_name))
            pairs.append(ValuePair(value, waiting.popleft() if waiting else None))
    return _with_extra_values(pairs, right, set(lines.values()))


def _with_extra_values(pairs: list[ValuePair], right: Values, lines: set[_FileLine]) -> list[ValuePair]:
    """Add the values of the right side without a partner, each after the pair of the value before it."""
    after = defaultdict[int, list[ValuePair]](list)
    numbers = {id(pair.right): number for number, pair in enumerate(pairs) if pair.right is not None}
    latest = -1
    for value in right.values:
        if id(value) in numbers:
            latest = numbers[id(value)]
        elif (value.file, value.line) in lines:
            after[latest].append(ValuePair(None, value))
    return [*after[-1], *(part for number, pair in enumerate(pairs) for part in (pair, *after[number]))]


def _names_by_line(values: Values) -> defaultdict[_FileLine, set[str]]:
    names = defaultdict[_FileLine, set[str]](set)
    for value in values.values:
        if value.name is not None:
            names[value.file, value.line].add(value.name)
    return names


def _place(
    value: RecordedValue, line: _FileLine, calls: list[_FileLine], by_name: Collection[_FileLine]
) -> tuple[object, ...]:
    kind = "store" if value.kind.is_store else "load" if value.name is None else "value"
    name = value.name if line in by_name else None
    lines = tuple(number for _, number in calls)
    return (line[1], kind, name, value.program, value.iteration, lines)


def _statements(text: str) -> list[str]:
    """The lines of a text as they count for a comparison: without comments and space."""
    return [" ".join(line.split("#", 1)[0].split()) for line in text.splitlines()]


def _aligned_lines(left: list[str], right: list[str]) -> Iterator[tuple[int, int]]:
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for kind, left_start, left_end, right_start, right_end in matcher.get_opcodes():
        here, there = range(left_start, left_end), range(right_start, right_end)
        if len(here) == len(there):
            yield from zip(here, there, strict=True)
        elif kind == "replace":
            yield from _same_targets(left, here, right, there)


def _same_targets(left: list[str], here: range, right: list[str], there: range) -> Iterator[tuple[int, int]]:
    """Pair the changed lines that begin alike: that assign the same name, or store to the same pointer."""
    free = list(there)
    for line in here:
        key = _target(left[line])
        partner = next((other for other in free if key and _target(right[other]) == key), None)
        if partner is not None:
            free.remove(partner)
            yield line, partner


def _target(statement: str) -> str:
    """The names that a statement assigns, or the call that it is; "" for one that is neither."""
    try:
        tree = ast.parse(statement)
    except SyntaxError:
        return statement.split("(", 1)[0]
    match tree.body:
        case [ast.Assign(targets=[target])] | [ast.AugAssign(target=target)]:
            return ast.unparse(target)
        case [ast.Expr(value=ast.Call() as call)]:
            return f"{ast.unparse(call.func)}({ast.unparse(call.args[0]) if call.args else ''}"
    return ""
