"""What a value can be, seen as an address: an algebra of the arguments that it derives from.

A value is a set of alternatives, the values that it may have in some run. An alternative is

- a linear form over the addresses of the kernel's arguments, whose constant part is not kept: ``x`` is
  ``((0, 1),)``, and a plain number ``()``; so that ``y + (x - y)`` is an address in ``x``, and nothing else;
- or `OpaqueAddress`: a value that derives from addresses, or from memory, in a way that cannot be followed.

An offset keeps an address inside the memory of its argument; no other assumption is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product

from kernellab.ir.constants import Constants, Sums
from kernellab.ir.graph import Graph, Operation
from kernellab.ir.operations import MEMORY, Flow, flow_of
from kernellab.ir.uses import Uses

MAX_ALTERNATIVES = 512
MAX_COEFFICIENT = 64

Linear = tuple[tuple[int, int], ...]
"""Pairs of argument and coefficient, sorted, without zeros."""


@dataclass(frozen=True, slots=True)
class OpaqueAddress:
    """A value that cannot be followed: made by ``operation`` for ``reason``, from the addresses of ``arguments``.

    One that ``absorbs`` stands for more alternatives than are kept, and takes in whatever is joined to it.
    """

    operation: int
    reason: str
    arguments: frozenset[int] = frozenset()
    absorbs: bool = False


Alternative = Linear | OpaqueAddress
Alternatives = frozenset[Alternative]

NUMBER: Alternatives = frozenset({()})
"""A value that is not an address."""

UNDEFINED: Alternatives = frozenset()
"""A value that no run has: poison, or one that is not reached."""


def address_of(argument: int) -> Alternatives:
    """Return the alternatives of a pointer that was passed as ``argument``."""
    return frozenset({((argument, 1),)})


def argument_in(alternative: Alternative) -> int | None:
    """Return the argument that an address points into, or None."""
    if isinstance(alternative, tuple) and len(alternative) == 1 and alternative[0][1] == 1:
        return alternative[0][0]
    return None


def arguments_of(values: Iterable[Alternatives]) -> frozenset[int]:
    """Return every argument that some alternative derives from."""
    arguments: set[int] = set()
    for value in values:
        for address in value:
            if isinstance(address, OpaqueAddress):
                arguments.update(address.arguments)
            else:
                arguments.update(argument for argument, _ in address)
    return frozenset(arguments)


def union(values: Iterable[Alternatives], operation: int) -> Alternatives:
    """Return every alternative of all values, or one opaque value where they grow beyond all bounds.

    ``operation`` is named as the place where the bound was passed.
    """
    joined: Alternatives = frozenset().union(*values)
    absorbing = [address for address in joined if isinstance(address, OpaqueAddress) and address.absorbs]
    if len(joined) <= MAX_ALTERNATIVES and not absorbing:
        return joined
    reason = f"it may be more than {MAX_ALTERNATIVES} different addresses"
    first = min((address.operation for address in absorbing), default=operation)
    return frozenset({OpaqueAddress(first, reason, arguments_of([joined]), absorbs=True)})


def combine(
    left: Alternatives, right: Alternatives, rule: Callable[[Linear, Linear], Alternative], operation: int
) -> Alternatives:
    """Return ``rule`` of every pair of alternatives; an opaque one stays what it is."""
    if left == NUMBER == right:
        return NUMBER
    combined: set[Alternative] = set()
    for one, other in product(left, right):
        if isinstance(one, OpaqueAddress):
            combined.add(one)
        elif isinstance(other, OpaqueAddress):
            combined.add(other)
        else:
            combined.add(rule(one, other))
    return union([frozenset(combined)], operation)


def scaled_sum(left: Linear, right: Linear, factor: int, operation: int) -> Alternative:
    """Return ``left + factor * right``, opaque where a coefficient grows beyond all use."""
    if not right:
        return left
    total = dict(left)
    for argument, coefficient in right:
        total[argument] = total.get(argument, 0) + factor * coefficient
    if any(abs(coefficient) > MAX_COEFFICIENT for coefficient in total.values()):
        return OpaqueAddress(operation, "it is a multiple of an address", frozenset(total))
    return tuple(sorted((argument, coefficient) for argument, coefficient in total.items() if coefficient))


def opaque_result(values: Iterable[Alternatives], operation: int, reason: str) -> Alternatives:
    """Return the result of a non-linear rule: a number, or an opaque value.

    Opaque operands stay what they are, so that a report names the operation where the trace was lost.
    """
    operands = list(values)
    if any(not value for value in operands):
        return UNDEFINED
    opaque = {alternative for value in operands for alternative in value if isinstance(alternative, OpaqueAddress)}
    linear = [frozenset(a for a in value if not isinstance(a, OpaqueAddress)) for value in operands]
    alternatives: Alternatives = frozenset(opaque)
    if any(form != () for value in linear for form in value):
        alternatives |= frozenset({OpaqueAddress(operation, reason, arguments_of(linear))})
    if all(() in value for value in operands):
        alternatives |= NUMBER
    return alternatives


_FOLLOWED: dict[Flow | None, slice] = {
    Flow.COPY: slice(None),
    Flow.FIRST: slice(1),
    Flow.OFFSET: slice(1),
    Flow.SELECT: slice(1, 3),
    Flow.ADD: slice(None),
    Flow.SUBTRACT: slice(None),
    Flow.BITS: slice(None),
    Flow.MASK: slice(None),
}
"""The operands that may be the address which the result is, or lies next to."""

_WIDE = re.compile(r"!tt\.ptr|[a-z]*64$")
_LEAST_ADDRESS = 1 << 32


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of the address of one operation.

    ``roots`` are the arguments whose values are such addresses: numbers, or tensors that hold them. ``is_nested`` says
    that addresses lie in the memory behind these addresses, too, and ``is_lost`` that it is computed from loaded values
    or numbers in a way that cannot be followed.
    """

    roots: frozenset[int] = frozenset()
    is_nested: bool = False
    is_lost: bool = False


@dataclass(slots=True)
class Origins:
    """The origins of the addresses of a graph. ``targets`` are what each access goes to, by operation.

    A value is followed backwards over all its alternatives, whatever calls hand in, so that ``roots`` may be too many
    and never too few.
    """

    graph: Graph
    targets: Mapping[int, Iterable[Alternative]]
    uses: Uses = field(init=False)
    constants: Constants = field(init=False)

    def __post_init__(self) -> None:
        self.uses = Uses(self.graph)
        self.constants = Constants(self.graph)

    def of(self, operation: Operation) -> Origin:
        """Return the origin of the address that an access goes to."""
        parameters = {value: i for i, value in enumerate(self.graph.kernel.arguments)}
        roots: dict[int, bool] = {}  # whether a value of it is as wide as an address
        is_nested = False
        waiting, seen = [operation.operands[0]], set[int]()
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            waiting += self.uses.origins[value]
            if value in parameters and not self.graph.values[value].is_pointer:
                roots[parameters[value]] = roots.get(parameters[value], False) or self._is_wide(value)
            maker = self.graph.maker(value)
            if maker is None:
                continue
            if maker.name in MEMORY:
                for target in self.targets.get(maker.index, ()):
                    held_by = argument_in(target)
                    if held_by is not None:
                        roots[held_by] = roots.get(held_by, False) or self._is_wide(value)
                    elif self._is_wide(value):
                        is_nested = True
                        waiting.append(maker.operands[0])
            else:
                flow = Flow.COPY if maker.name == "tt.split" else flow_of(maker.name)
                waiting += maker.operands[_FOLLOWED.get(flow, slice(0))]
        wide = frozenset(root for root, is_wide in roots.items() if is_wide)
        origins = wide or frozenset(roots)
        return Origin(origins, is_nested, is_lost=not origins and self._is_computed(operation.operands[0]))

    def _is_computed(self, address: int) -> bool:
        """Whether ``address`` derives from a loaded value, a wide number or a constant address."""
        leading = [self.graph.operations[index] for index in self.uses.leading_to([address])]
        read = {value for operation in leading for value in operation.operands}
        numbers = [v for v in self.graph.kernel.arguments if v in read and not self.graph.values[v].is_pointer]
        return (
            any(operation.name in MEMORY and operation.results for operation in leading)
            or any(self._is_wide(value) for value in numbers)
            or any(
                (self.constants.integer(v) or 0) >= _LEAST_ADDRESS for operation in leading for v in operation.results
            )
        )

    def _is_wide(self, value: int) -> bool:
        return _WIDE.match(self.graph.values[value].element) is not None


SMALL_NUMBER = 1 << 20
"""A number below this is an index or a tag, even when it was cut out of an address."""

_BITS = re.compile(r"[a-z]*?(\d+)")

State = Callable[[int], Alternatives]
"""What a value can be, as far as the analysis has come."""


@dataclass(slots=True)
class Rules:
    """The rules for one graph. Each takes an operation and its operands' alternatives, and gives the results'."""

    constants: Constants
    sums: Sums = field(init=False)

    def __post_init__(self) -> None:
        self.sums = Sums(self.constants)

    def results(
        self, flow: Flow, operation: Operation, operands: Sequence[Alternatives], state: State
    ) -> list[Alternatives]:
        """Return the alternatives of each result of ``operation``."""
        if flow in _ARITHMETIC:
            return [self._sum(flow, operation, operands, state)]
        return [self._result(flow, operation, operands)] * len(operation.results)

    def _result(self, flow: Flow, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        match flow:
            case Flow.NUMBER:
                return NUMBER
            case Flow.UNDEFINED:
                return UNDEFINED
            case Flow.COPY:
                return operands[0] if len(operands) == 1 else union(operands, operation.index)
            case Flow.FIRST:
                return operands[0]
            case Flow.SELECT:
                condition = self.constants.integer(operation.operands[0])
                return union(operands[1:], operation.index) if condition is None else operands[1 if condition else 2]
            case Flow.BITS:
                return _merged_bits(operation, operands)
            case Flow.MASK:
                return NUMBER if self._is_cut(operation) else _merged_bits(operation, operands)
            case Flow.REMAINDER if operands[1] == NUMBER:
                return NUMBER
            case Flow.TRUNCATE if self._is_narrow(operation):
                return NUMBER
        return opaque_result(operands, operation.index, f"{operation.name} makes it from an address")

    def _sum(self, flow: Flow, operation: Operation, operands: Sequence[Alternatives], state: State) -> Alternatives:
        """Return the sum of an operation's terms; where one operand is not an address, the terms need not be known."""
        left, right = operands
        if left == NUMBER == right or (right == NUMBER and flow in _KEEPS_FIRST):
            return left
        terms = self.sums.of(operation.results[0])
        if operation.results[0] in terms:
            return opaque_result(operands, operation.index, f"{operation.name} makes it from an address")
        total, index = NUMBER, operation.index
        for value, factor in terms.items():
            add = partial(scaled_sum, factor=factor, operation=index)
            total = combine(total, state(value), add, index)
        return total

    def _is_cut(self, operation: Operation) -> bool:
        """Whether a mask leaves a small number."""
        known = [self.constants.integer(constant) for constant in operation.operands]
        return any(constant is not None and 0 <= constant < SMALL_NUMBER for constant in known)

    def _is_narrow(self, operation: Operation) -> bool:
        """Whether a result has too few bits for an address."""
        bits = _BITS.match(self.constants.graph.values[operation.results[0]].element)
        return bits is not None and int(bits[1]) < 32


def _merged_bits(operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
    """Return the only address of two operands; bits of two addresses cannot be separated."""

    def merge(one: Linear, other: Linear) -> Alternative:
        if one and other:
            arguments = frozenset(argument for argument, _ in one + other)
            return OpaqueAddress(operation.index, "it has the bits of two addresses", arguments)
        return one or other

    return combine(operands[0], operands[1], merge, operation.index)


_ARITHMETIC = frozenset({Flow.ADD, Flow.SUBTRACT, Flow.MULTIPLY, Flow.SHIFT_LEFT, Flow.OFFSET})
_KEEPS_FIRST = frozenset({Flow.ADD, Flow.SUBTRACT, Flow.OFFSET})
