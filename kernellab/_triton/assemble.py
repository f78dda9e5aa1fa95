"""Joining the walk over a module with its printed form into an immutable `Graph`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kernellab._triton.decorators import argument_names
from kernellab._triton.printed import PrintedModule, PrintedOperation, attributes_of
from kernellab.errors import CompileError
from kernellab.ir.graph import Block, Function, Graph, Location, Operation, Region, Value

_TENSOR = re.compile(r"tensor<((?:\d+x)*)(.+?)(?:, #.*)?>$")
_DESCRIPTOR = re.compile(r"!tt\.tensordesc<(?:tensor<)?((?:\d+x)*)([^,>]+)")
_POINTEE = re.compile(r"!tt\.ptr<(tensor<.*>)(?:, \d+)?>$")


@dataclass(frozen=True, slots=True)
class RawOperation:
    """An operation of the walk. Values and regions are named by their addresses."""

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    regions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RawBlock:
    """A block of the walk; ``operations`` are positions in the list of the walk."""

    region: int
    arguments: tuple[int, ...]
    argument_locations: tuple[str, ...]
    operations: list[int]


@dataclass(frozen=True, slots=True)
class RawModule:
    """All operations of a module, inner ones before their owner; the blocks of a region stand in their order."""

    operations: list[RawOperation]
    blocks: list[RawBlock]
    types: dict[int, str]


def assemble(raw: RawModule, printed: PrintedModule, parameters: Sequence[tuple[str, str]] | None) -> Graph:
    """Return the graph of a module.

    Raises:
        CompileError: the walk and the printed form disagree.
    """
    assembly = _Assembly(raw, printed)
    functions = [each for each in raw.operations if each.name == "tt.func"]
    return assembly.graph(functions, parameters)


def parsed_type(text: str) -> tuple[tuple[int, ...], str, bool]:
    """Return shape, element type and whether it is an address, of a printed type.

    The shape of a pointer to a tensor, and of a descriptor, is that of the tensor that one access moves.
    """
    pointee = _POINTEE.match(text)
    match = _DESCRIPTOR.match(text) or _TENSOR.match(pointee[1] if pointee else text)
    shape = tuple(int(each) for each in match[1].split("x") if each) if match else ()
    element = match[2] if match else text
    return shape, element, "!tt.ptr" in text or text.startswith("!tt.tensordesc")


@dataclass(slots=True)
class _Assembly:
    """The growing tuples of a graph; it is filled in the order of the print."""

    raw: RawModule
    printed: PrintedModule
    operations: list[Operation | None] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    blocks: list[Block | None] = field(default_factory=list)
    regions: list[Region | None] = field(default_factory=list)
    _blocks_of: dict[int, list[RawBlock]] = field(default_factory=dict)
    _value_of: dict[int, int] = field(default_factory=dict)
    _types: dict[str, tuple[tuple[int, ...], str, bool]] = field(default_factory=dict)
    _fixups: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    _position: int = 0

    def graph(self, functions: list[RawOperation], parameters: Sequence[tuple[str, str]] | None) -> Graph:
        for block in self.raw.blocks:
            self._blocks_of.setdefault(block.region, []).append(block)
        found = tuple(self._function(each, parameters) for each in functions)
        if self._position != len(self.printed.operations):
            name = self.printed.operations[self._position].name
            raise CompileError(f"TTIR: the printed module has an operation {name!r} that the walk did not meet.")
        for index, operands in self._fixups:
            operation = self.operations[index]
            assert operation is not None
            self.operations[index] = replace(operation, operands=tuple(self._value_of[each] for each in operands))
        return Graph(
            functions=found,
            operations=tuple(each for each in self.operations if each is not None),
            values=tuple(self.values),
            blocks=tuple(each for each in self.blocks if each is not None),
            regions=tuple(each for each in self.regions if each is not None),
        )

    def _next_printed(self, operation: RawOperation, depth: int) -> PrintedOperation | None:
        """Return the printed form of an operation, or None for a terminator that the print leaves out."""
        if self._position < len(self.printed.operations):
            candidate = self.printed.operations[self._position]
            if candidate.name == operation.name and candidate.depth == depth:
                self._position += 1
                return candidate
        if not operation.operands and not operation.results and not operation.regions:
            return None
        raise CompileError(f"TTIR: operation {operation.name!r} is not where the printed module has it.")

    def _function(self, raw: RawOperation, parameters: Sequence[tuple[str, str]] | None) -> Function:
        printed = self._next_printed(raw, 1)
        assert printed is not None
        attributes = dict(attributes_of(printed))
        region = self._region(raw.regions[0], None, printed, 0, 2)
        arguments = self._entry_arguments(region)
        is_kernel = "private" not in printed.text.partition("@")[0]
        names = argument_names([self.values[each] for each in arguments], parameters if is_kernel else None)
        for argument, name in zip(arguments, names, strict=True):
            self.values[argument] = replace(self.values[argument], name=name)
        return Function(
            name=attributes["sym_name"],
            region=region,
            arguments=arguments,
            parameters=names,
            is_kernel=is_kernel,
            noinline="noinline = true" in printed.text,
        )

    def _entry_arguments(self, region: int) -> tuple[int, ...]:
        """Return the arguments of the entry block; a function that is only declared has none."""
        found = self.regions[region]
        entry = self.blocks[found.blocks[0]] if found is not None and found.blocks else None
        return entry.arguments if entry is not None else ()

    def _region(self, key: int, owner: int | None, printed: PrintedOperation | None, position: int, depth: int) -> int:
        index = len(self.regions)
        self.regions.append(None)
        raw_blocks = self._blocks_of.get(key, [])
        labels = self._labels(raw_blocks, printed, position)
        indices: list[int] = []
        by_label: dict[str, int] = {}
        pending: list[tuple[int, PrintedOperation]] = []
        for raw_block, label in zip(raw_blocks, labels, strict=True):
            indices.append(self._block(raw_block, index, depth, pending))
            by_label[label] = indices[-1]
        for operation_index, text in pending:
            self._connect(operation_index, tuple(by_label[label] for label in text.successors))
        self.regions[index] = Region(index, owner, tuple(indices))
        return index

    @staticmethod
    def _labels(raw_blocks: list[RawBlock], printed: PrintedOperation | None, position: int) -> list[str]:
        """Return the label of every block; the entry block may be printed without one."""
        if not raw_blocks:
            return []
        headers = printed.labels[position] if printed is not None and position < len(printed.labels) else []
        missing = len(raw_blocks) - len(headers)
        if missing not in {0, 1}:
            raise CompileError(f"TTIR: a region has {len(raw_blocks)} blocks but prints {len(headers)} labels.")
        return [""] * missing + headers

    def _block(self, raw: RawBlock, region: int, depth: int, pending: list[tuple[int, PrintedOperation]]) -> int:
        index = len(self.blocks)
        self.blocks.append(None)
        locations = [self.printed.locations.resolve(text) for text in raw.argument_locations]
        arguments = tuple(
            self._value(key, location, None, index) for key, location in zip(raw.arguments, locations, strict=True)
        )
        operations = tuple(self._operation(self.raw.operations[each], index, depth, pending) for each in raw.operations)
        self.blocks[index] = Block(index, region, arguments, operations, ())
        return index

    def _operation(self, raw: RawOperation, block: int, depth: int, pending: list[tuple[int, PrintedOperation]]) -> int:
        index = len(self.operations)
        self.operations.append(None)
        printed = self._next_printed(raw, depth)
        location = self.printed.location(printed) if printed else Location()
        results = tuple(self._value(key, location, index, block) for key in raw.results)
        regions = tuple(
            self._region(key, index, printed, position, depth + 1) for position, key in enumerate(raw.regions)
        )
        self.operations[index] = Operation(
            index=index,
            name=raw.name,
            operands=self._operands(index, raw.operands),
            results=results,
            regions=regions,
            successors=(),
            attributes=attributes_of(printed) if printed else (),
            location=location,
            block=block,
        )
        if printed is not None and printed.name.startswith("cf."):
            pending.append((index, printed))
        return index

    def _operands(self, index: int, keys: tuple[int, ...]) -> tuple[int, ...]:
        """Return the indices of operands; one that a later block defines is filled in at the end."""
        try:
            return tuple([self._value_of[key] for key in keys])
        except KeyError:
            self._fixups.append((index, keys))
            return ()

    def _connect(self, index: int, successors: tuple[int, ...]) -> None:
        operation = self.operations[index]
        assert operation is not None
        block = self.blocks[operation.block]
        assert block is not None
        self.operations[index] = replace(operation, successors=successors)
        self.blocks[block.index] = replace(block, successors=successors)

    def _value(self, key: int, location: Location, operation: int | None, block: int) -> int:
        index = len(self.values)
        text = self.raw.types[key]
        parsed = self._types.get(text)
        if parsed is None:
            parsed = self._types[text] = parsed_type(text)
        shape, element, is_pointer = parsed
        self.values.append(Value(index, text, shape, element, is_pointer, location.name, location, operation, block))
        self._value_of[key] = index
        return index
