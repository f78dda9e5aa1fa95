"""What integers, addresses and conditions of a kernel are: affine forms, each with the interval of its terms.

Arithmetic is that of the integers. Where a result may not fit its type, it wraps, and counts as any value of the type
(https://mlir.llvm.org/docs/Dialects/ArithOps/). Numbers are the bits read as signed; what reads them as unsigned is
followed where that is the same number. Intervals of products, quotients and so on are those of interval arithmetic
(Moore, Kearfott and Cloud, *Introduction to Interval Analysis*, chapter 2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kernellab.ir.affine import Condition, Facts, Form, HeldCondition, Interval, OpaqueCondition, bounds_of, term_of
from kernellab.ir.constants import Constants
from kernellab.ir.graph import Graph, Operation

_WIDTH = re.compile(r"i(\d+)$")
_POINTEE = re.compile(r"!tt\.ptr<[a-z]*(\d+)")
NOTHING: Facts = frozenset()


@dataclass(frozen=True, slots=True)
class Number:
    """What an integer is in those lanes where all conditions in ``given`` hold.

    With a ``base``, the number of an argument, it is an address: ``form`` bytes behind the one that was passed.
    """

    form: Form
    given: frozenset[Condition] = frozenset()
    base: int | None = None


@dataclass(frozen=True, slots=True)
class Truth:
    """What a condition says: it is true just where all of ``when_true`` hold; where it is false, ``when_false`` do."""

    when_true: Facts
    when_false: Facts = NOTHING

    @property
    def needed(self) -> frozenset[Condition]:
        """Conditions that together make it true."""
        return frozenset().union(*({fact.condition} | fact.given for fact in self.when_true))

    @property
    def inverse(self) -> Truth | None:
        """The opposite of a single inequality."""
        sides = (self.when_true, self.when_false)
        is_single = all(len(side) == 1 and isinstance(next(iter(side)).condition, Form) for side in sides)
        return Truth(self.when_false, self.when_true) if is_single else None


Known = Number | Truth | None
"""None stands for what is not followed: floating point, an address that is lost."""


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
        """Return what an integer or an address is; any value of its type where nothing is known, None for others."""
        found = self.known.get(value)
        if isinstance(found, Number):
            return found
        width = self.width(value)
        return None if width is None else self.within(value, limits(width))

    def truth(self, value: int) -> Truth:
        """Return what a condition says; where nothing is known, that it is true."""
        found = self.known.get(value)
        return (
            found if isinstance(found, Truth) else Truth(frozenset({HeldCondition(OpaqueCondition(self._term(value)))}))
        )

    def within(self, value: int, interval: Interval, given: frozenset[Condition] = frozenset()) -> Number:
        """Return a value of which its interval alone is known."""
        self.ranges[value] = interval
        return Number(term_of(value, len(self.graph.values[value].shape)), given)

    def fitted(self, value: int, form: Form, given: frozenset[Condition]) -> Number | None:
        """Return a value that is ``form`` unless that does not fit its type."""
        width = self.width(value)
        if width is None:
            return None
        fits = any(_is_in(bounds_of(form, self.ranges, known), limits(width)) for known in ((), self.context))
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

    def pointee_bytes(self, value: int) -> int | None:
        """Return the bytes of what an address points to, None where it is a tensor or nothing known."""
        match = _POINTEE.match(self.graph.values[value].element)
        return None if match is None else max(1, int(match[1]) // 8)

    def _term(self, value: int) -> tuple[int, tuple[int, ...]]:
        return value, tuple(range(len(self.graph.values[value].shape)))

    def compute(self, operation: Operation) -> None:
        """Work out the results of an operation without regions that touches no memory."""
        rule = _RULES.get(operation.name)
        for result in operation.results:
            self.known[result] = None
        if rule is not None:
            self.known[operation.results[0]] = rule(self, operation)
        elif operation.name in _INTERVALS:
            self.known[operation.results[0]] = self._by_intervals(operation)

    def _by_intervals(self, operation: Operation) -> Known:
        result = operation.results[0]
        left, right = (self.number(each) for each in operation.operands)
        width = self.width(result)
        if left is None or right is None or width is None or left.base is not None or right.base is not None:
            return None
        bounds = self.bounds(left.form), self.bounds(right.form)
        found = _INTERVALS[operation.name](*bounds)
        if found is None or not _is_in(found, limits(width)):
            return self.within(result, limits(width))
        given = left.given | right.given
        if operation.name in _REMAINDERS and bounds[0][0] >= 0 and bounds[0][1] < bounds[1][0]:
            return Number(left.form, given)
        return self.within(result, found, given)


def limits(width: int) -> Interval:
    """Return the least and the greatest signed integer of so many bits."""
    return -(1 << (width - 1)), (1 << (width - 1)) - 1


def _is_in(inner: Interval, outer: Interval) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def hull(one: Interval, other: Interval) -> Interval:
    """Return the least interval that holds two."""
    return min(one[0], other[0]), max(one[1], other[1])


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
    factor = 1 if operation.name == "arith.addi" else -1
    left, right = (values.number(each) for each in operation.operands)
    if left is None or right is None or left.base is not None or right.base is not None:
        return None
    return values.fitted(operation.results[0], left.form.plus(right.form, factor), left.given | right.given)


def _product(values: Values, operation: Operation) -> Known:
    left, right = (values.number(each) for each in operation.operands)
    if left is None or right is None or left.base is not None or right.base is not None:
        return None
    for one, other in ((left, right), (right, left)):
        if not other.form.terms:
            form = one.form.times(other.form.constant)
            return values.fitted(operation.results[0], form, left.given | right.given)
    return values._by_intervals(operation)


def _shifted_left(values: Values, operation: Operation) -> Known:
    left, right = (values.number(each) for each in operation.operands)
    if left is None or right is None or left.base is not None or right.form.terms:
        return None
    if not 0 <= right.form.constant < 64:
        return None
    form = left.form.times(1 << right.form.constant)
    return values.fitted(operation.results[0], form, left.given | right.given)


def _offset(values: Values, operation: Operation) -> Known:
    base, distance = (values.number(each) for each in operation.operands)
    size = values.pointee_bytes(operation.operands[0])
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


def _truncated(values: Values, operation: Operation) -> Known:
    number = values.number(operation.operands[0])
    return None if number is None else values.fitted(operation.results[0], number.form, number.given)


def _moved(known: Known, place: Callable[[int], int]) -> Known:
    if isinstance(known, Truth):
        true, false = (frozenset(f.moved(place) for f in facts) for facts in (known.when_true, known.when_false))
        return Truth(true, false)
    if isinstance(known, Number):
        given = frozenset(each.moved(place) for each in known.given)
        return Number(known.form.moved(place), given, known.base)
    return None


def _expanded(values: Values, operation: Operation) -> Known:
    axis = int(operation.attribute("axis", "0").split(" ")[0])
    return _moved(_same(values, operation), lambda dim: dim + (dim >= axis))


def _transposed(values: Values, operation: Operation) -> Known:
    order = [int(each) for each in re.findall(r"\d+", operation.attribute("order").partition(":")[2])]
    rank = len(values.graph.values[operation.results[0]].shape)
    return _moved(_same(values, operation), order.index) if sorted(order) == list(range(rank)) else None


def _mixed_lanes(values: Values, operation: Operation) -> Known:
    """Return what is known where lanes change their places: the interval that all of them share."""
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


def _compared(values: Values, operation: Operation) -> Known:
    left, right = (values.number(each) for each in operation.operands)
    predicate = operation.attribute("predicate")
    if left is None or right is None or left.base is not None or right.base is not None:
        return None
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
        own = HeldCondition(OpaqueCondition(values._term(operation.results[0])))
        return Truth(frozenset({own}), frozenset(HeldCondition(each.reduced(), given) for each in (above, below)))
    if found is None:
        return None
    true, false = (frozenset(HeldCondition(each.reduced(), given) for each in forms) for forms in found)
    return Truth(true, false)


def _both(values: Values, operation: Operation) -> Known:
    if values.graph.values[operation.results[0]].element != "i1":
        return values._by_intervals(operation)
    one, other = (values.truth(each) for each in operation.operands)
    return Truth(one.when_true | other.when_true)


def _either(values: Values, operation: Operation) -> Known:
    if values.graph.values[operation.results[0]].element != "i1":
        return values._by_intervals(operation)
    one, other = (values.truth(each) for each in operation.operands)
    own = HeldCondition(OpaqueCondition(values._term(operation.results[0])))
    return Truth(frozenset({own}), one.when_false | other.when_false)


def _flipped(values: Values, operation: Operation) -> Known:
    if values.graph.values[operation.results[0]].element != "i1":
        return values._by_intervals(operation)
    if values.constants.integer(operation.operands[1]) != 1:
        return None
    return values.truth(operation.operands[0]).inverse


def _selected(values: Values, operation: Operation) -> Known:
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
    return joined(values, result, parts, _given_of(truth))


def _given_of(truth: Truth) -> frozenset[Condition]:
    return frozenset().union(*(fact.given for fact in truth.when_true | truth.when_false))


def joined(
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


_Pair = Callable[[Interval, Interval], Interval | None]


def _corners(rule: Callable[[int, int], int]) -> _Pair:
    def of(one: Interval, other: Interval) -> Interval:
        found = [rule(a, b) for a in one for b in other]
        return min(found), max(found)

    return of


def _divided(rule: Callable[[int, int], int]) -> _Pair:
    corners = _corners(rule)
    return lambda one, other: corners(one, other) if other[0] > 0 else None


def _shifted_right(one: Interval, other: Interval) -> Interval | None:
    return _corners(lambda a, b: a >> b)(one, other) if other[0] >= 0 and other[1] < 64 else None


def _remainder(one: Interval, other: Interval) -> Interval | None:
    most = other[1] - 1
    return (max(-most, min(one[0], 0)), min(most, max(one[1], 0))) if other[0] > 0 else None


def _unsigned_remainder(one: Interval, other: Interval) -> Interval | None:
    return (0, other[1] - 1) if other[0] > 0 else None


def _masked(one: Interval, other: Interval) -> Interval | None:
    above = [high for low, high in (one, other) if low >= 0]
    return (0, min(above)) if above else None


def _merged_bits(one: Interval, other: Interval) -> Interval | None:
    return (0, (1 << max(one[1], other[1]).bit_length()) - 1) if min(one[0], other[0]) >= 0 else None


def _unsigned(rule: _Pair) -> _Pair:
    return lambda one, other: rule(one, other) if min(one[0], other[0]) >= 0 else None


def _truncated_quotient(a: int, b: int) -> int:
    return a // b if a >= 0 else -(-a // b)


_REMAINDERS = frozenset({"arith.remsi", "arith.remui"})
_INTERVALS: Mapping[str, _Pair] = MappingProxyType(
    {
        "arith.muli": _corners(lambda a, b: a * b),
        "arith.divsi": _divided(_truncated_quotient),
        "arith.floordivsi": _divided(lambda a, b: a // b),
        "arith.ceildivsi": _divided(lambda a, b: -(-a // b)),
        "arith.divui": _unsigned(_divided(lambda a, b: a // b)),
        "arith.remsi": _remainder,
        "arith.remui": _unsigned_remainder,
        "arith.andi": _masked,
        "arith.ori": _merged_bits,
        "arith.xori": _merged_bits,
        "arith.shrsi": _shifted_right,
        "arith.shrui": _unsigned(_shifted_right),
        "arith.minsi": _corners(min),
        "arith.maxsi": _corners(max),
        "arith.minui": _unsigned(_corners(min)),
        "arith.maxui": _unsigned(_corners(max)),
    }
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
        "arith.trunci": _truncated,
        "arith.index_cast": _truncated,
        "arith.cmpi": _compared,
        "arith.andi": _both,
        "arith.ori": _either,
        "arith.xori": _flipped,
        "arith.select": _selected,
        "tt.addptr": _offset,
        "tt.bitcast": lambda values, operation: _same(values, operation) if _keeps(values, operation) else None,
        "tt.splat": _same,
        "tt.broadcast": _same,
        "ttg.convert_layout": _same,
        "tt.expand_dims": _expanded,
        "tt.trans": _transposed,
        "tt.reshape": _mixed_lanes,
        "tt.unsplat": _mixed_lanes,
        "tt.join": _mixed_lanes,
        "tt.cat": _mixed_lanes,
        "tt.make_range": _range,
    }
)


def _keeps(values: Values, operation: Operation) -> bool:
    """Tell whether a cast of bits leaves an address an address, or an integer an integer."""
    source, result = values.graph.values[operation.operands[0]], values.graph.values[operation.results[0]]
    return source.is_pointer == result.is_pointer and (source.is_pointer or source.element == result.element)
