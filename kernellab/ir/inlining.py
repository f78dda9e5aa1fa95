"""A graph with the helpers of its kernel in the places of their calls.

Then each operation stands once for each way to it, so that two compiles of one kernel can be compared operation by
operation. Helpers that branch between blocks, and those that the module lacks, stay calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kernellab.ir.graph import Block, Function, Graph, Operation, Region, Value

_DEEPEST = 32  # calls inside calls


def inline_calls(graph: Graph) -> Graph:
    """Return a graph of the kernel alone, with the operations of its helpers in the places of their calls."""
    copy = _Copy(graph)
    region = copy.region(graph.kernel.region, None)
    kernel = replace(graph.kernel, region=region, arguments=copy.copies_of(graph.kernel.arguments))
    kept = copy.functions_called()
    return Graph(
        (kernel, *kept),
        tuple(filter(None, copy.operations)),
        tuple(copy.values),
        tuple(filter(None, copy.blocks)),
        tuple(filter(None, copy.regions)),
    )


@dataclass(slots=True)
class _Copy:
    """The new graph so far. ``names`` leads from a value of the old graph to that of the new one.

    An operation, block or region has its place before it is complete, since what it owns comes after it.
    """

    graph: Graph
    operations: list[Operation | None] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    blocks: list[Block | None] = field(default_factory=list)
    regions: list[Region | None] = field(default_factory=list)
    names: dict[int, int] = field(default_factory=dict)
    depth: int = 0
    _called: dict[str, None] = field(default_factory=dict)

    def copies_of(self, values: Iterable[int]) -> tuple[int, ...]:
        """Return the values of the new graph for those of the old one."""
        return tuple(self.names[value] for value in values)

    def functions_called(self) -> list[Function]:
        """Copy the functions that are still called, and return them."""
        copied: list[Function] = []
        while len(copied) < len(self._called):
            name = list(self._called)[len(copied)]
            function = next(candidate for candidate in self.graph.functions if candidate.name == name)
            region = self.region(function.region, None)
            copied.append(replace(function, region=region, arguments=self.copies_of(function.arguments)))
        return copied

    def region(self, index: int, owner: int | None) -> int:
        """Copy a region with all that it holds; return its place."""
        place = len(self.regions)
        self.regions.append(None)
        old = self.graph.regions[index].blocks
        blocks = {block: len(self.blocks) + offset for offset, block in enumerate(old)}
        self.blocks += [None] * len(old)
        for block in old:
            arguments = tuple(self._value(value, None, blocks[block]) for value in self.graph.blocks[block].arguments)
            self.blocks[blocks[block]] = Block(blocks[block], place, arguments, (), ())
        for block in old:
            inside: list[int] = []
            self._body(block, blocks[block], inside, blocks)
            successors = tuple(blocks[successor] for successor in self.graph.blocks[block].successors)
            copied = self.blocks[blocks[block]]
            assert copied is not None, "its place was taken above"
            self.blocks[blocks[block]] = replace(copied, operations=tuple(inside), successors=successors)
        self.regions[place] = Region(place, owner, tuple(blocks.values()))
        return place

    def _body(self, block: int, target: int, inside: list[int], blocks: dict[int, int]) -> None:
        """Copy the operations of a block to the end of ``inside``, which is of the block ``target``."""
        for operation in (self.graph.operations[index] for index in self.graph.blocks[block].operations):
            helper = self._helper(operation)
            if helper is not None:
                self._inline(helper, operation, target, inside)
                continue
            if operation.name == "tt.call" and (callee := self.graph.callee(operation)) is not None:
                self._called.setdefault(callee.name)
            inside.append(self._operation(operation, target, blocks))

    def _helper(self, operation: Operation) -> Function | None:
        """Return the function that replaces a call, or None. What follows a return is never reached."""
        callee = self.graph.callee(operation)
        if callee is None or self.depth >= _DEEPEST:
            return None
        return None if self.graph.blocks[self.graph.regions[callee.region].blocks[0]].successors else callee

    def _inline(self, helper: Function, call: Operation, target: int, inside: list[int]) -> None:
        """Replace a call by the body of its helper; returned values become the results of the call."""
        body = self.graph.regions[helper.region].blocks[0]
        passed = self.copies_of(call.operands)
        self.names.update(zip(helper.arguments, passed, strict=True))
        *_, end = (self.graph.operations[index] for index in self.graph.blocks[body].operations)
        self.depth += 1
        self._body(body, target, inside, {})
        self.depth -= 1
        inside.pop()  # the return, which is the last operation
        self.operations.pop()
        self.names.update(zip(call.results, self.copies_of(end.operands), strict=True))

    def _operation(self, operation: Operation, block: int, blocks: dict[int, int]) -> int:
        place = len(self.operations)
        self.operations.append(None)
        results = tuple(self._value(value, place, block) for value in operation.results)
        self.operations[place] = replace(
            operation,
            index=place,
            operands=self.copies_of(operation.operands),
            results=results,
            regions=tuple(self.region(region, place) for region in operation.regions),
            successors=tuple(blocks[successor] for successor in operation.successors),
            block=block,
        )
        return place

    def _value(self, value: int, operation: int | None, block: int) -> int:
        """Copy a value; return its place."""
        place = self.names[value] = len(self.values)
        self.values.append(replace(self.graph.values[value], index=place, operation=operation, block=block))
        return place
