"""What integers, addresses and conditions of a kernel are: affine forms, each with the interval of its terms.

Arithmetic is that of the integers. Where a result may not fit its type, it wraps, and counts as any value of the type
(https://mlir.llvm.org/docs/Dialects/ArithOps/). Numbers are the bits read as signed; what reads them as unsigned is
followed where that is the same number.

What a value is that a loop carries from round to round, is a guess, and a round that shows it to hold: it does if the
values before the loop fit it, and if a round that starts with any values that fit it yields such values again, by
induction over the rounds. That is shown of all guesses in one round.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kernellab.ir.affine import (
    INTERVALS,
    NOTHING,
    Condition,
    Constants,
    Facts,
    Form,
    HeldCondition,
    Interval,
    Known,
    Number,
    OpaqueCondition,
    Truth,
    bounds_of,
    hull,
    is_in,
    limits,
    term_of,
)
from kernellab.ir.graph import Graph, Operation

_WIDTH = re.compile(r"i(\d+)$")


@dataclass(slots=True)
class Values:
    """The values of one graph, as far as they are known. ``context`` are the conditions of the region that is run."""

    graph: Graph
    known: dict[int, Known] = field(default_factory=dict)
    ranges: dict[int, Interval] = field(default_factory=dict)
    context: frozenset[Condition] = frozenset()
    constants: Constants = field(init=False)

    def __post_init__(self) -> None:
        self.constants = Constants(self.graph)

    def number(self, value: int) -> Number | None:
        """Return an integer or address; any of its type if nothing is known, None for others."""
        found = self.known.get(value)
        if isinstance(found, Number):
            return found
        width = self.width(value)
        return None if width is None else self.within(value, limits(width))

    def truth(self, value: int) -> Truth:
        """Return a condition; if nothing is known, an opaque one."""
        found = self.known.get(value)
        return found if isinstance(found, Truth) else Truth(self.itself(value))

    def itself(self, value: int) -> Facts:
        """Return the fact that a condition is true, in no other terms."""
        term = value, tuple(range(len(self.graph.values[value].shape)))
        return frozenset({HeldCondition(OpaqueCondition(term))})

    def numbers(self, operation: Operation) -> tuple[Number, Number] | None:
        """Return the two numbers that an operation reads, None where one is an address or is not followed."""
        left, right = (self.number(each) for each in operation.operands)
        if left is None or right is None or left.base is not None or right.base is not None:
            return None
        return left, right

    def within(self, value: int, interval: Interval, given: frozenset[Condition] = frozenset()) -> Number:
        """Return a value with a known interval and nothing else."""
        self.ranges[value] = interval
        return Number(term_of(value, len(self.graph.values[value].shape)), given)

    def fit_to_type(self, value: int, form: Form, given: frozenset[Condition]) -> Number | None:
        """Return a value that is ``form`` unless that does not fit its type."""
        width = self.width(value)
        if width is None:
            return None
        fits = any(is_in(bounds_of(form, self.ranges, known), limits(width)) for known in ((), self.context))
        return Number(form, given) if fits else self.within(value, limits(width))

    def bounds(self, form: Form) -> Interval:
        """Return an interval that holds every value of a form in the region that is run."""
        return bounds_of(form, self.ranges, self.context)

    def width(self, value: int) -> int | None:
        """Return the bits of an integer of two bits and more, None for anything else."""
        element = self.graph.values[value].element
        match = _WIDTH.match(element)
        width = 64 if element == "index" else int(match[1]) if match else None
        return width if width is not None and width > 1 else None

    def compute(self, operation: Operation) -> None:
        """Work out the results of an operation without regions that touches no memory."""
        is_truth = bool(operation.results) and self.graph.values[operation.results[0]].element == "i1"
        rule = (_LOGIC.get(operation.name) if is_truth else None) or _RULES.get(operation.name)
        for result in operation.results:
            self.known[result] = None
        if rule is not None:
            self.known[operation.results[0]] = rule(self, operation)
        elif operation.name in INTERVALS:
            self.known[operation.results[0]] = self._by_intervals(operation)

    def _by_intervals(self, operation: Operation) -> Known:
        result, read = operation.results[0], self.numbers(operation)
        width = self.width(result)
        if read is None or width is None:
            return None
        left, right = read
        bounds = self.bounds(left.form), self.bounds(right.form)
        found = INTERVALS[operation.name](*bounds)
        if found is None or not is_in(found, limits(width)):
            return self.within(result, limits(width))
        given = left.given | right.given
        if operation.name in _REMAINDERS and bounds[0][0] >= 0 and bounds[0][1] < bounds[1][0]:
            return Number(left.form, given)
        return self.within(result, found, given)


def _constant(values: Values, operation: Operation) -> Known:
    number, result = values.constants.integer(operation.results[0]), operation.results[0]
    if number is None:
        return None
    if values.width(result) is not None:
        return Number(Form((), number))
    if values.graph.values[result].element != "i1":
        return None
    # True asks for nothing; false is 1 <= 0.
    never = frozenset({HeldCondition(Form((), 1))})
    return Truth(NOTHING, never) if number else Truth(never, NOTHING)


def _sum(values: Values, operation: Operation) -> Known:
    factor, read = 1 if operation.name == "arith.addi" else -1, values.numbers(operation)
    if read is None:
        return None
    left, right = read
    return values.fit_to_type(operation.results[0], left.form.plus(right.form, factor), left.given | right.given)


def _product(values: Values, operation: Operation) -> Known:
    read = values.numbers(operation)
    if read is None:
        return None
    for one, other in (read, read[::-1]):
        if not other.form.terms:
            form = one.form.times(other.form.constant)
            return values.fit_to_type(operation.results[0], form, one.given | other.given)
    return values._by_intervals(operation)


def _shifted_left(values: Values, operation: Operation) -> Known:
    left, right = (values.number(each) for each in operation.operands)
    if left is None or right is None or left.base is not None or right.form.terms:
        return None
    if not 0 <= right.form.constant < 64:
        return None
    form = left.form.times(1 << right.form.constant)
    return values.fit_to_type(operation.results[0], form, left.given | right.given)


def _offset(values: Values, operation: Operation) -> Known:
    base, distance = (values.number(each) for each in operation.operands)
    size = values.graph.values[operation.operands[0]].pointee_bytes
    if base is None or distance is None or size is None or base.base is None or distance.base is not None:
        return None
    return Number(base.form.plus(distance.form, size), base.given | distance.given, base.base)


def _same(values: Values, operation: Operation) -> Known:
    return values.known.get(operation.operands[0]) or values.number(operation.operands[0])


def _zero_extended(values: Values, operation: Operation) -> Known:
    source, result = operation.operands[0], operation.results[0]
    width, number = values.width(source), values.number(source)
    if width is None or number is None:
        return values.within(result, (0, 1)) if values.graph.values[source].element == "i1" else None
    if values.bounds(number.form)[0] >= 0:
        return number
    return values.within(result, (0, (1 << width) - 1))


def _sign_extended(values: Values, operation: Operation) -> Known:
    if values.graph.values[operation.operands[0]].element == "i1":
        return values.within(operation.results[0], (-1, 0))
    return values.number(operation.operands[0])


def _truncate(values: Values, operation: Operation) -> Known:
    number = values.number(operation.operands[0])
    return None if number is None else values.fit_to_type(operation.results[0], number.form, number.given)


def _permute(values: Values, operation: Operation, place: Callable[[int], int]) -> Known:
    found = _same(values, operation)
    return None if found is None else found.moved(place)


def _expand_dims(values: Values, operation: Operation) -> Known:
    axis = int(operation.attribute("axis", "0").split(" ")[0])
    return _permute(values, operation, lambda dim: dim + (dim >= axis))


def _transpose(values: Values, operation: Operation) -> Known:
    order = [int(each) for each in re.findall(r"\d+", operation.attribute("order").partition(":")[2])]
    rank = len(values.graph.values[operation.results[0]].shape)
    return _permute(values, operation, order.index) if sorted(order) == list(range(rank)) else None


def _mixed_lanes(values: Values, operation: Operation) -> Known:
    """Return the interval of a value whose lanes change places: the one of all lanes."""
    result, found = operation.results[0], list[Interval]()
    for operand in operation.operands:
        number = values.number(operand)
        if number is None or number.given or number.base is not None:
            return None
        found.append(values.bounds(number.form))
    return values.within(result, (min(low for low, _ in found), max(high for _, high in found)))


def _range(values: Values, operation: Operation) -> Known:
    start, end = (int(operation.attribute(name).split(" ")[0]) for name in ("start", "end"))
    return values.within(operation.results[0], (start, end - 1))


def _comparison(values: Values, operation: Operation) -> Known:
    read, predicate = values.numbers(operation), operation.attribute("predicate")
    if read is None:
        return None
    left, right = read
    if predicate.startswith("u") and min(values.bounds(left.form)[0], values.bounds(right.form)[0]) < 0:
        return None
    given = left.given | right.given
    above = left.form.plus(right.form, -1)  # left - right
    below = above.times(-1)
    more, less = above.plus(Form((), 1)), below.plus(Form((), 1))
    made = {"lt": ([more], [below]), "le": ([above], [less]), "gt": ([less], [above]), "ge": ([below], [more])}
    found = made.get(predicate[-2:])
    if predicate == "eq":
        found = [above, below], []
    if predicate == "ne":
        equal = frozenset(HeldCondition(each.reduced(), given) for each in (above, below))
        return Truth(values.itself(operation.results[0]), equal)
    if found is None:
        return None
    true, false = (frozenset(HeldCondition(each.reduced(), given) for each in forms) for forms in found)
    return Truth(true, false)


def _both(values: Values, operation: Operation) -> Known:
    one, other = (values.truth(each) for each in operation.operands)
    return Truth(one.when_true | other.when_true)


def _either(values: Values, operation: Operation) -> Known:
    one, other = (values.truth(each) for each in operation.operands)
    return Truth(values.itself(operation.results[0]), one.when_false | other.when_false)


def _negation(values: Values, operation: Operation) -> Known:
    if values.constants.integer(operation.operands[1]) != 1:
        return None
    return values.truth(operation.operands[0]).inverse


def _selection(values: Values, operation: Operation) -> Known:
    condition, *operands = operation.operands
    result = operation.results[0]
    if values.width(result) is None and not values.graph.values[result].is_pointer:
        return None
    truth = values.truth(condition)
    parts, before = list[tuple[Interval, Number]](), values.context
    for facts, operand in zip((truth.when_true, truth.when_false), operands, strict=True):
        number = values.number(operand)
        if number is None:
            return None
        # In lanes without what a fact is given, the result is given more than holds there.
        values.context = before | {fact.condition for fact in facts}
        parts.append((values.bounds(number.form), number))
        values.context = before
    return join_values(values, result, parts, _given_of(truth))


def _given_of(truth: Truth) -> frozenset[Condition]:
    return frozenset().union(*(fact.given for fact in truth.when_true | truth.when_false))


def join_values(
    values: Values, result: int, parts: list[tuple[Interval, Number]], given: frozenset[Condition] = frozenset()
) -> Number | None:
    """Return a value that is one of two, or None where they are addresses in different memory."""
    (one, first), (other, second) = parts
    given = given | first.given | second.given
    if first.base != second.base:
        return None
    if first.form == second.form:
        return Number(first.form, given, first.base)
    found = values.within(result, hull(one, other), given)
    return Number(found.form, given, first.base)


_REMAINDERS = frozenset({"arith.remsi", "arith.remui"})
_LOGIC: Mapping[str, Callable[[Values, Operation], Known]] = MappingProxyType(
    {"arith.andi": _both, "arith.ori": _either, "arith.xori": _negation}
)
_RULES: Mapping[str, Callable[[Values, Operation], Known]] = MappingProxyType(
    {
        "arith.constant": _constant,
        "arith.addi": _sum,
        "arith.subi": _sum,
        "arith.muli": _product,
        "arith.shli": _shifted_left,
        "arith.extsi": _sign_extended,
        "arith.extui": _zero_extended,
        "arith.trunci": _truncate,
        "arith.index_cast": _truncate,
        "arith.cmpi": _comparison,
        "arith.select": _selection,
        "tt.addptr": _offset,
        "tt.bitcast": lambda values, operation: _same(values, operation) if _keeps(values, operation) else None,
        "tt.splat": _same,
        "tt.broadcast": _same,
        "ttg.convert_layout": _same,
        "tt.expand_dims": _expand_dims,
        "tt.trans": _transpose,
        "tt.reshape": _mixed_lanes,
        "tt.unsplat": _mixed_lanes,
        "tt.join": _mixed_lanes,
        "tt.cat": _mixed_lanes,
        "tt.make_range": _range,
    }
)


def _keeps(values: Values, operation: Operation) -> bool:
    """Return whether a bit cast keeps an address an address, or an integer an integer."""
    source, result = values.graph.values[operation.operands[0]], values.graph.values[operation.results[0]]
    return source.is_pointer == result.is_pointer and (source.is_pointer or source.element == result.element)


Seen = tuple[Interval, Number]
"""The interval of a number where it was made, and the number."""


@dataclass(slots=True)
class Carried:
    """A value that a loop carries: its start plus ``step`` per iteration, else within ``interval``.

    With neither, nothing is known of it. A guess is dropped once a round shows that it does not hold.
    """

    start: Seen | None
    step: int | None = None
    interval: Interval | None = None
    is_first: bool = True

    def number(self, values: Values, value: int, turn: int) -> Known:
        """Return the value in the iteration with a number from 0 on."""
        if self.start is None:
            return None
        bounds, start = self.start
        if self.is_first:  # any number, to see what a round adds to it
            found = values.within(value, bounds)
            return Number(found.form, start.given, start.base)
        if self.step is not None:
            form = start.form.plus(Form((((turn, ()), self.step),)))
            if start.base is not None:
                return Number(form, start.given, start.base)
            return values.fit_to_type(value, form, start.given)
        if self.interval is not None:
            return Number(values.within(value, self.interval).form, base=start.base)
        return None

    def holds(self, values: Values, value: int, seen: Seen | None, *, may_widen: bool) -> bool:
        """Check the value of an iteration against this guess; widen the guess where it does not fit."""
        if self.start is None:
            return True
        before = values.known[value]
        interval, start = self.start
        same_memory = seen is not None and isinstance(before, Number) and seen[1].base == before.base
        added = None
        if seen is not None and isinstance(before, Number) and same_memory and seen[1].given <= before.given:
            difference = seen[1].form.plus(before.form, -1)
            added = None if difference.terms else difference.constant
        if self.is_first:
            self.is_first, self.step = False, added
            self.interval = interval if added is None and same_memory and not start.given else None
            return False
        if self.step is not None:
            if added == self.step:
                return True
            self.step, self.interval = None, interval if same_memory and not start.given else None
            return False
        if self.interval is None:
            return True
        if seen is not None and same_memory and not seen[1].given:
            wider = hull(self.interval, seen[0])
            if wider == self.interval:
                return True
            self.interval = wider if may_widen else None
            return False
        self.interval = None
        return False
