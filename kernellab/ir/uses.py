"""Who makes and who uses each value, across regions, branches and calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kernellab.ir.graph import Graph, Operation

_CONTROL_OPERANDS = {"scf.for": 3, "scf.if": 1}


@dataclass(slots=True)
class Uses:
    """The dataflow of a graph.

    ``copies`` leads from a value to the values that it becomes by being passed on: a loop's initial value to the
    argument of its body, a yielded value to a result, an operand of a call to the callee's argument.
    """

    graph: Graph
    users: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    copies: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    origins: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for operation in self.graph.operations:
            for operand in operation.operands:
                self.users[operand].append(operation.index)
            self._pass_in(operation)
            if operation.successors:
                self._pass_on(operation)
        for operation in self.graph.operations:
            callee = self.graph.callee(operation)
            if callee is not None:
                self._copy(operation.operands, callee.arguments)
                for block in self.graph.regions[callee.region].blocks:
                    self._copy(self._end(block).operands, operation.results)

    def forward(self, values: Iterable[int]) -> set[int]:
        """Return every operation that some value reaches."""
        found: set[int] = set()
        seen: set[int] = set()
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            waiting += self.copies[value]
            for index in self.users[value]:
                found.add(index)
                if not self.graph.operations[index].regions and self.graph.operations[index].name != "tt.call":
                    waiting += self.graph.operations[index].results
        return found

    def backward(self, operations: Iterable[int]) -> set[int]:
        """Return every operation that leads to one of ``operations``, these and what decides about them included."""
        found: set[int] = set()
        waiting = list(operations)
        seen: set[int] = set()
        while waiting:
            index = waiting.pop()
            if index in found:
                continue
            found.add(index)
            operation = self.graph.operations[index]
            owner = self.graph.regions[self.graph.blocks[operation.block].region].owner
            if owner is not None:
                waiting.append(owner)
            waiting += self._makers(self.deciding(operation), seen)
        return found

    def leading_to(self, values: Iterable[int]) -> set[int]:
        """Return every operation that leads to one of ``values``, what decides about them included."""
        return self.backward(self._makers(list(values), set()))

    def deciding(self, operation: Operation) -> Sequence[int]:
        """Return the operands that an operation itself reads; a loop or branch reads its bounds or condition."""
        if operation.name == "scf.while":
            return self._end(self.graph.regions[operation.regions[0]].blocks[0]).operands[:1]
        return operation.operands[: _CONTROL_OPERANDS.get(operation.name, len(operation.operands))]

    def _makers(self, values: Sequence[int], seen: set[int]) -> list[int]:
        makers: list[int] = []
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            waiting += self.origins[value]
            maker = self.graph.values[value].operation
            if maker is not None:
                makers.append(maker)
        return makers

    def _end(self, block: int) -> Operation:
        return self.graph.operations[self.graph.blocks[block].operations[-1]]

    def _copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        for source, target in zip(sources, targets, strict=False):
            self.copies[source].append(target)
            self.origins[target].append(source)

    def _pass_in(self, operation: Operation) -> None:
        """Note how values enter and leave the regions of an operation."""
        if operation.regions:
            _RULES.get(operation.name, Uses._pass_through)(self, operation)

    def _blocks(self, operation: Operation) -> list[int]:
        return [block for region in operation.regions for block in self.graph.regions[region].blocks]

    def _pass_for(self, operation: Operation) -> None:
        (block,) = self._blocks(operation)
        arguments = self.graph.blocks[block].arguments
        yielded = self._end(block).operands
        for bound in operation.operands[:3]:
            self._copy([bound], arguments[:1])
        for sources in (operation.operands[3:], yielded):
            self._copy(sources, arguments[1:])
            self._copy(sources, operation.results)

    def _pass_while(self, operation: Operation) -> None:
        before, after = self._blocks(operation)
        passed = self._end(before).operands[1:]
        self._copy(operation.operands, self.graph.blocks[before].arguments)
        self._copy(self._end(after).operands, self.graph.blocks[before].arguments)
        self._copy(passed, self.graph.blocks[after].arguments)
        self._copy(passed, operation.results)

    def _pass_if(self, operation: Operation) -> None:
        for block in self._blocks(operation):
            self._copy(self._end(block).operands, operation.results)

    def _pass_through(self, operation: Operation) -> None:
        """Note that any operand may become any argument of a region, and any yielded value any result."""
        for block in self._blocks(operation):
            for operand in operation.operands:
                arguments = self.graph.blocks[block].arguments
                self._copy([operand] * len(arguments), arguments)
            for yielded in self._end(block).operands:
                self._copy([yielded] * len(operation.results), operation.results)

    def _pass_on(self, branch: Operation) -> None:
        first = 1 if branch.name == "cf.cond_br" else 0
        for successor in branch.successors:
            arguments = self.graph.blocks[successor].arguments
            self._copy(branch.operands[first : first + len(arguments)], arguments)
            first += len(arguments)


_RULES: dict[str, Callable[[Uses, Operation], None]] = {
    "scf.for": Uses._pass_for,
    "scf.while": Uses._pass_while,
    "scf.if": Uses._pass_if,
}
