"""What the scalars of a kernel determine for all programs of its grid: their values, and how often each operation runs.

Loop bounds and conditions that derive from constants, scalar arguments, the program id and the grid are evaluated for
all programs at once. What derives from memory is not known, and neither is then how often something runs.

A value is a numpy array of 64-bit integers: of shape () where all programs agree, else one element per program. None
stands for what is not known: memory, floating point, tensors. https://mlir.llvm.org/docs/Dialects/ArithOps/
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from kernellab.ir.constants import integer_of
from kernellab.ir.graph import Function, Graph, Location, Operation, reachable

Integers = npt.NDArray[np.int64]
Known = Integers | None

_AXES = {"x": 0, "y": 1, "z": 2}


def integers(value: int) -> Integers:
    """Return a number that all programs agree on."""
    return np.asarray(value, dtype=np.int64)


def literal(operation: Operation) -> Known:
    """Return the value of an ``arith.constant``, None where it is not a scalar integer."""
    text = operation.attribute("value")
    number = None if text.startswith("dense") else integer_of(text)
    return integers(number) if number is not None and -(2**63) <= number < 2**63 else None


def scalars_of(graph: Graph, arguments: Mapping[str, Any]) -> list[Known]:
    """Return the integer arguments of a launch by parameter.

    A descriptor stands for several parameters of its name, none of them known.
    """
    names = graph.kernel.parameters
    values = [arguments.get(name) if names.count(name) == 1 else None for name in names]
    return [integers(int(v)) if isinstance(v, int) and abs(v) < 2**63 else None for v in values]


def axis_of(operation: Operation) -> int:
    """Return the axis, from 0 to 2, that ``tt.get_program_id`` or ``tt.get_num_programs`` asks for."""
    return _AXES[operation.attribute("axis", "x")]


def apply_operation(operation: Operation, operands: list[Known], element: str) -> Known:
    """Return the result of a scalar operation, wrapped to its type ``element``; None where it is not known."""
    if operation.name == "arith.select":
        condition, yes, no = operands
        return None if condition is None else select(condition, yes, no)
    rule = _RULES.get(operation.name)
    if operation.name == "arith.cmpi":
        rule = _comparison(dict(operation.attributes).get("predicate", ""))
    known = [operand for operand in operands if operand is not None]
    if rule is None or len(known) < len(operands):
        return None
    with np.errstate(all="ignore"):
        result = rule(*known)
    return None if result is None else _wrap(result, element)


def select(condition: Integers, yes: Known, no: Known) -> Known:
    """Return ``yes`` where the condition holds and ``no`` elsewhere; what no program asks for need not be known."""
    if yes is None or no is None:
        if yes is not None and bool(np.all(condition)):
            return yes
        return no if no is not None and not bool(np.any(condition)) else None
    chosen: Integers = np.where(condition != 0, yes, no)
    return chosen


def _wrap(value: npt.NDArray[np.int64 | np.bool_], element: str) -> Known:
    """Return the value as an integer of its type; index and i64 have 64 bits."""
    if element == "i1":
        return (value.astype(np.int64) & 1).astype(np.int64)
    if element in {"i64", "index"}:
        return value.astype(np.int64)
    kinds: dict[str, type[np.signedinteger]] = {"i8": np.int8, "i16": np.int16, "i32": np.int32}
    return value.astype(np.int64).astype(kinds[element]).astype(np.int64) if element in kinds else None


def _truncating_division(a: Integers, b: Integers) -> Integers:
    """Divide as C does, towards zero."""
    quotient: Integers = (a - np.fmod(a, b)) // np.where(b == 0, 1, b)
    return quotient


def _if_positive(rule: Callable[..., Integers]) -> Callable[..., Known]:
    """Compute an unsigned operation where it agrees with the signed one: on numbers that are not negative."""
    return lambda *operands: rule(*operands) if all(bool(np.all(operand >= 0)) for operand in operands) else None


def _comparison(predicate: str) -> Callable[..., Known]:
    """Return the rule of a predicate of ``arith.cmpi``: ``eq``, ``slt``, ``uge``, ..."""
    compare: Callable[..., Integers] = getattr(operator, predicate[-2:])
    return _if_positive(compare) if predicate.startswith("u") else compare


_RULES: Mapping[str, Callable[..., Known]] = MappingProxyType(
    {
        "arith.addi": np.add,
        "arith.subi": np.subtract,
        "arith.muli": np.multiply,
        "arith.divsi": _truncating_division,
        "arith.floordivsi": np.floor_divide,
        "arith.ceildivsi": lambda a, b: -(-a // b),
        "arith.remsi": np.fmod,
        "arith.divui": _if_positive(np.floor_divide),
        "arith.ceildivui": _if_positive(lambda a, b: -(-a // b)),
        "arith.remui": _if_positive(np.fmod),
        "arith.andi": np.bitwise_and,
        "arith.ori": np.bitwise_or,
        "arith.xori": np.bitwise_xor,
        "arith.shli": np.left_shift,
        "arith.shrsi": np.right_shift,
        "arith.shrui": _if_positive(np.right_shift),
        "arith.minsi": np.minimum,
        "arith.maxsi": np.maximum,
        "arith.minui": _if_positive(np.minimum),
        "arith.maxui": _if_positive(np.maximum),
        **dict.fromkeys(("arith.extsi", "arith.trunci", "arith.index_cast", "arith.bitcast"), np.positive),
        **dict.fromkeys(("arith.extui", "arith.index_castui"), _if_positive(np.positive)),
    }
)


_MOST_PROGRAMS = 1 << 17
_MOST_STEPS = 60_000  # operations; an array of a thousand elements counts for one more
_MOST_CALLS = 32

Grid3 = tuple[int, int, int]
Weight = Integers | str
"""How often each program runs something; a text says why that is not known."""


class CannotFollow(Exception):
    """A kernel calls what cannot be followed; the text says where."""


@dataclass(slots=True)
class Programs:
    """All programs of a launch, evaluated over scalars.

    ``visit`` is called for each operation with how often each program runs it. The ids of more than ``most_programs``
    programs are not known. ``by_rounds`` follows loops round by
    round, so that what changes from one to the next is known; else the body of a loop is run once for all rounds.
    """

    graph: Graph
    grid: Grid3
    by_rounds: bool
    visit: Callable[[Operation, Weight], None]
    values: dict[int, Known] = field(default_factory=dict)
    most_programs: int = _MOST_PROGRAMS
    steps: float = 0.0
    depth: int = 0

    @property
    def programs(self) -> int:
        """The number of programs of the grid."""
        return math.prod(self.grid)

    def call(self, function: Function, operands: list[Known], weight: Weight) -> list[Known]:
        """Run a function, block by block in an order in which each comes after those that lead to it."""
        blocks = self.graph.regions[function.region].blocks
        reached = reachable(blocks[:1], lambda block: self.graph.blocks[block].successors)
        waiting = Counter(successor for block in reached for successor in self.graph.blocks[block].successors)
        entered: dict[int, tuple[Weight, list[Known]]] = {blocks[0]: (weight, operands)}
        ready, results = [blocks[0]], list[Known]()
        while ready:
            block = ready.pop()
            weight, values = entered[block]
            end = self.block(block, values, weight)
            if end.name == "tt.return":
                results = _join_values(results, [self.values.get(operand) for operand in end.operands], weight)
            for successor, leaving, passed in self._edges(end, weight):
                entered[successor] = _merge_edge(entered.get(successor), leaving, passed)
                waiting[successor] -= 1
                if not waiting[successor]:
                    ready.append(successor)
        for block in [index for index, count in waiting.items() if count > 0]:
            self.block(block, [], f"it is part of a cycle of branches{_at(end.location)}")
        return results

    def block(self, block: int, arguments: list[Known], weight: Weight) -> Operation:
        """Run the operations of a block; return the one that ends it."""
        owned = self.graph.blocks[block]
        self.values.update(zip_longest(owned.arguments, arguments[: len(owned.arguments)]))
        for index in owned.operations:
            operation = self.graph.operations[index]
            size = 0 if isinstance(weight, str) else weight.size
            self.steps += 1 + size / 1000
            self._run(operation, weight)
        return operation

    def _run(self, operation: Operation, weight: Weight) -> None:
        name = operation.name
        if name == "arith.constant":
            self._set(operation, [literal(operation)])
        elif name in {"tt.get_program_id", "tt.get_num_programs"}:
            self._set(operation, [self._place(operation)])
        elif name in _CONTROL:
            _CONTROL[name](self, operation, weight)
        elif name.startswith("arith.") and len(operation.results) == 1:
            result = self.graph.values[operation.results[0]]
            known = None if result.shape else apply_operation(operation, self._operands(operation), result.element)
            self._set(operation, [known])
        self.visit(operation, weight)

    def runs(self, weight: Integers) -> int:
        """Return the number of executions of an operation by all programs."""
        return int(weight.sum()) if weight.shape else int(weight) * self.programs

    def _place(self, operation: Operation) -> Known:
        axis = axis_of(operation)
        if operation.name == "tt.get_num_programs" or self.grid[axis] == 1:
            return integers(self.grid[axis] if operation.name == "tt.get_num_programs" else 0)
        if self.programs > self.most_programs:
            return None
        return np.arange(self.programs, dtype=np.int64) // math.prod(self.grid[:axis]) % self.grid[axis]

    def _operands(self, operation: Operation) -> list[Known]:
        return [self.values.get(operand) for operand in operation.operands]

    def _set(self, operation: Operation, facts: list[Known]) -> None:
        self.values.update(zip(operation.results, facts, strict=False))

    def _edges(self, end: Operation, weight: Weight) -> list[tuple[int, Weight, list[Known]]]:
        """Yield the successors of a block, with counts and passed values."""
        operands = self._operands(end)
        if end.name != "cf.cond_br":
            return [(successor, weight, operands) for successor in end.successors]
        condition, passed = operands[0], operands[1:]
        yes, no = end.successors
        count = len(self.graph.blocks[yes].arguments)
        entering, left = _split(weight, condition, end)
        return [(yes, entering, passed[:count]), (no, left, passed[count:])]

    def _bodies(self, operation: Operation) -> list[int]:
        """Return the block of each region that has one."""
        regions = (self.graph.regions[index] for index in operation.regions)
        return [region.blocks[0] for region in regions if region.blocks]

    def _if(self, operation: Operation, weight: Weight) -> None:
        condition = self._operands(operation)[0]
        ends: list[list[Known]] = [[], []]
        ways = zip(self._bodies(operation), _split(weight, condition, operation), strict=False)
        for way, (block, part) in enumerate(ways):
            if isinstance(part, str) or bool(part.any()):
                ends[way] = self._operands(self.block(block, [], part))
        unknown: list[Known] = [None] * len(operation.results)
        pairs = zip(*(end or unknown for end in ends), strict=True)
        self._set(operation, unknown if condition is None else [select(condition, *pair) for pair in pairs])

    def _for(self, operation: Operation, weight: Weight) -> None:
        start, stop, step, *carried = self._operands(operation)
        (block,) = self._bodies(operation)
        if start is None or stop is None or step is None or bool(np.any(step <= 0)) or isinstance(weight, str):
            reason = weight if isinstance(weight, str) else f"a bound of the loop{_at(operation.location)} is not known"
            self.block(block, [], reason)
            self._set(operation, [None] * len(carried))
            return
        rounds = np.maximum(0, -((start - stop) // step))
        if not self.by_rounds:
            self.block(block, [], weight * rounds)
            self._set(operation, [None] * len(carried))
            return
        for number in range(int(rounds.max(initial=0))):
            if self.steps > _MOST_STEPS:
                self.block(block, [], f"the loop{_at(operation.location)} is too long to be followed round by round")
                carried = [None] * len(carried)
                break
            active = rounds > number
            end = self.block(block, [start + number * step, *carried], np.where(active, weight, 0))
            carried = [select(active.astype(np.int64), *p) for p in zip(self._operands(end), carried, strict=True)]
        self._set(operation, carried)

    def _while(self, operation: Operation, weight: Weight) -> None:
        before, after = self._bodies(operation)
        carried, results = self._operands(operation), list[Known]()
        while True:
            end = self.block(before, carried, weight)
            condition, *passed = self._operands(end)
            if not self.by_rounds or isinstance(weight, str) or condition is None or self.steps > _MOST_STEPS:
                unknown = f"how long the loop{_at(operation.location)} runs is not known"
                reason = weight if isinstance(weight, str) else unknown
                self.block(after, [], reason)
                self.block(before, [], reason)
                self._set(operation, [None] * len(operation.results))
                return
            going, leaving = _split(weight, condition, operation)
            results = _join_values(results, passed, leaving)
            weight = going
            if isinstance(weight, str) or not bool(weight.any()):
                self._set(operation, results)
                return
            carried = self._operands(self.block(after, passed, weight))

    def _call(self, operation: Operation, weight: Weight) -> None:
        function = self.graph.callee(operation)
        if function is None or self.depth == _MOST_CALLS:
            raise CannotFollow(f"the function called{_at(operation.location)} cannot be followed")
        self.depth += 1
        self._set(operation, self.call(function, self._operands(operation), weight))
        self.depth -= 1


def _split(weight: Weight, condition: Known, operation: Operation) -> tuple[Weight, Weight]:
    """Return the number of runs of each side of a branch."""
    if isinstance(weight, str):
        return weight, weight
    if condition is None:
        reason = f"the condition of the branch{_at(operation.location)} is not known"
        return reason, reason
    return np.where(condition != 0, weight, 0), np.where(condition != 0, 0, weight)


def _merge_edge(
    before: tuple[Weight, list[Known]] | None, weight: Weight, values: list[Known]
) -> tuple[Weight, list[Known]]:
    """Add one incoming edge to the count and the values of a block."""
    if before is None:
        return weight, values
    total, held = before
    joined = _join_values(held, values, weight)
    if isinstance(total, str) or isinstance(weight, str):
        return total if isinstance(total, str) else weight, [None] * len(joined)
    return total + weight, joined


def _join_values(held: list[Known], values: list[Known], weight: Weight) -> list[Known]:
    """Return the values of the programs that come this way, and what the others held."""
    if not held:
        return values
    if isinstance(weight, str):
        return [None] * len(held)
    comes = (weight > 0).astype(np.int64)
    return [select(comes, new, old) for new, old in zip(values, held, strict=True)]


def _at(location: Location) -> str:
    return "" if location.line is None else f" in line {location.line}"


_CONTROL: Mapping[str, Callable[[Programs, Operation, Weight], None]] = MappingProxyType(
    {"scf.if": Programs._if, "scf.for": Programs._for, "scf.while": Programs._while, "tt.call": Programs._call}
)
