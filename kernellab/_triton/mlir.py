"""Builds a `Graph` from Triton's live MLIR bindings and the printed form of a module.

The walk over the bindings gives operations with operands, results, blocks and regions, identified by their
addresses; `kernellab._triton.printed` adds attributes, branch successors and locations. The two are matched in the
order of the print, and any disagreement is an error, never a guess.

Arguments have the names of the kernel's signature. A tuple member is an argument of its own. A host descriptor has
further integer arguments, its shape and strides; where a target lacks descriptors, the ttir stage turns it into a
pointer and may add an argument or two (padding) to each. All arguments of a descriptor have the descriptor's name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab._triton.printed import PrintedModule, PrintedOperation, attributes_of, read_printed
from kernellab.errors import CompileError, plural
from kernellab.ir.graph import Block, Function, Graph, Location, Operation, Region, Value

Parameters = Sequence[tuple[str, str]]
_Pending = list[tuple[int, PrintedOperation]]

_LOCATION = re.compile(r"loc\((.*)\)")
_MEMBER = re.compile(r"\.(\d+)")
_DESCRIPTOR_PART = re.compile(r"\.[A-Za-z]\w*(?:\.\d+)?$")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(.+?)(?:, #.*)?>$")
_DESCRIPTOR = re.compile(r"!tt\.tensordesc<(?:tensor<)?((?:\d+x)*)([^,>]+)")
_POINTEE = re.compile(r"!tt\.ptr<(tensor<.*>)(?:, \d+)?>$")


def graph_of_module(module: Any, context: Any, parameters: Parameters | None = None, text: str | None = None) -> Graph:
    """The graph of a live Triton module, raw or after the ttir stage.

    ``parameters`` are the name and type of every run-time parameter of the kernel, tuples flattened (see
    `flattened_parameters`). Without them, the names are taken from the module's own locations, where Triton writes
    the last variable that an argument was assigned to.
    ``context`` is the MLIR context that the module lives in; the caller keeps it alive. ``text`` is the printed module,
    where it was printed before.
    """
    walk = _Walk()
    module.walk(walk.visit)
    return _Assembly(walk, read_printed(str(module) if text is None else text)).graph(parameters)


def flattened_parameters(signature: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Name and type of every run-time parameter of a signature, tuple members as ``name[i]``.

    ``signature`` maps each parameter to its type as Triton writes it: ``*fp32``, ``i32``, ``constexpr``, a tuple of
    types for a tuple, ``tensordesc<fp16[16, 32]>`` for a host descriptor. Constexpr ones are left out.
    """
    flattened: list[tuple[str, str]] = []

    def add(name: str, kind: Any) -> None:
        if isinstance(kind, tuple | list):
            for index, member in enumerate(kind):
                add(f"{name}[{index}]", member)
        elif kind != "constexpr":
            flattened.append((name, str(kind)))

    for name, kind in signature.items():
        add(name, kind)
    return tuple(flattened)


@dataclass(frozen=True, slots=True)
class _RawOperation:
    """An operation of the walk. Values and regions are identified by their addresses."""

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    regions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _RawBlock:
    """A block of the walk; ``operations`` are positions in the list of the walk."""

    region: int
    arguments: tuple[int, ...]
    argument_locations: tuple[str, ...]
    operations: list[int]


@dataclass(slots=True)
class _Walk:
    """The callback of a module walk; it copies the data of each operation and keeps no binding object.

    It is called for all operations of the module, inner ones before their owner, blocks of a region in order.
    """

    operations: list[_RawOperation] = field(default_factory=list)
    blocks: dict[int, _RawBlock] = field(default_factory=dict)
    types: dict[int, str] = field(default_factory=dict)

    def visit(self, operation: Any) -> None:
        name = operation.get_name()
        if name == "builtin.module":
            return
        block = operation.get_block()
        key = block.id()
        if key not in self.blocks:
            self.blocks[key] = self._block(block)
        self.blocks[key].operations.append(len(self.operations))
        self.operations.append(
            _RawOperation(
                name,
                tuple(operation.get_operand(i).id() for i in range(operation.get_num_operands())),
                tuple(self._value(operation.get_result(i)) for i in range(operation.get_num_results())),
                tuple(operation.get_region(i).id() for i in range(operation.get_num_regions())),
            )
        )

    def _value(self, value: Any) -> int:
        key: int = value.id()
        self.types[key] = str(value.get_type())
        return key

    def _block(self, block: Any) -> _RawBlock:
        arguments = [block.get_argument(i) for i in range(block.get_num_arguments())]
        located = [_LOCATION.fullmatch(str(argument.get_loc())) for argument in arguments]
        locations = tuple(match[1] if match else "unknown" for match in located)
        return _RawBlock(block.get_parent().id(), tuple(map(self._value, arguments)), locations, [])


def _parse_type(text: str) -> tuple[tuple[int, ...], str, bool]:
    """Shape and element type of a printed type, and whether it is an address.

    The shape of a pointer to a tensor, and of a descriptor, is that of the tensor that one access moves.
    """
    pointee = _POINTEE.match(text)
    match = _DESCRIPTOR.match(text) or _TENSOR.match(pointee[1] if pointee else text)
    shape = tuple(int(size) for size in match[1].split("x") if size) if match else ()
    element = match[2] if match else text
    return shape, element, "!tt.ptr" in text or text.startswith("!tt.tensordesc")


@dataclass(slots=True)
class _Assembly:
    """A graph under construction, filled in the order of the print."""

    walked: _Walk
    printed: PrintedModule
    operations: list[Operation | None] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    blocks: list[Block | None] = field(default_factory=list)
    regions: list[Region | None] = field(default_factory=list)
    _blocks_of: dict[int, list[_RawBlock]] = field(default_factory=dict)
    _value_of: dict[int, int] = field(default_factory=dict)
    _types: dict[str, tuple[tuple[int, ...], str, bool]] = field(default_factory=dict)
    _fixups: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    _position: int = 0

    def graph(self, parameters: Parameters | None) -> Graph:
        """The graph of the module; raises `CompileError` where the walk and the printed form disagree."""
        for block in self.walked.blocks.values():
            self._blocks_of.setdefault(block.region, []).append(block)
        functions = tuple(self._function(o, parameters) for o in self.walked.operations if o.name == "tt.func")
        if self._position != len(self.printed.operations):
            name = self.printed.operations[self._position].name
            raise CompileError(f"TTIR: the printed module has an operation {name!r} that the walk did not meet.")
        for index, operands in self._fixups:
            operation = self.operations[index]
            assert operation is not None
            self.operations[index] = replace(operation, operands=tuple(self._value_of[o] for o in operands))
        return Graph(
            functions=functions,
            operations=tuple(operation for operation in self.operations if operation is not None),
            values=tuple(self.values),
            blocks=tuple(block for block in self.blocks if block is not None),
            regions=tuple(region for region in self.regions if region is not None),
        )

    def _next_printed(self, operation: _RawOperation, depth: int) -> PrintedOperation | None:
        """The printed form of an operation, or None for a terminator that the print leaves out."""
        if self._position < len(self.printed.operations):
            candidate = self.printed.operations[self._position]
            if candidate.name == operation.name and candidate.depth == depth:
                self._position += 1
                return candidate
        if not operation.operands and not operation.results and not operation.regions:
            return None
        raise CompileError(f"TTIR: operation {operation.name!r} is not where the printed module has it.")

    def _function(self, raw: _RawOperation, parameters: Parameters | None) -> Function:
        printed = self._next_printed(raw, 1)
        assert printed is not None
        attributes = dict(attributes_of(printed))
        region = self._region(raw.regions[0], None, printed, 0, 2)
        body = self.regions[region]
        entry = self.blocks[body.blocks[0]] if body is not None and body.blocks else None
        arguments = () if entry is None else entry.arguments  # a function that is only declared has none
        is_kernel = "private" not in printed.text.partition("@")[0]
        names = _argument_names([self.values[argument] for argument in arguments], parameters if is_kernel else None)
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

    def _region(self, key: int, owner: int | None, printed: PrintedOperation | None, position: int, depth: int) -> int:
        index = len(self.regions)
        self.regions.append(None)
        raw_blocks = self._blocks_of.get(key, [])
        labels = self._labels(raw_blocks, printed, position)
        indices: list[int] = []
        by_label: dict[str, int] = {}
        pending: _Pending = []
        for raw_block, label in zip(raw_blocks, labels, strict=True):
            indices.append(self._block(raw_block, index, depth, pending))
            by_label[label] = indices[-1]
        for operation_index, text in pending:
            operation = self.operations[operation_index]
            assert operation is not None
            block = self.blocks[operation.block]
            assert block is not None
            successors = tuple(by_label[label] for label in text.successors)
            self.operations[operation_index] = replace(operation, successors=successors)
            self.blocks[block.index] = replace(block, successors=successors)
        self.regions[index] = Region(index, owner, tuple(indices))
        return index

    @staticmethod
    def _labels(raw_blocks: list[_RawBlock], printed: PrintedOperation | None, position: int) -> list[str]:
        """The label of every block; the entry block may be printed without one."""
        if not raw_blocks:
            return []
        headers = printed.labels[position] if printed is not None and position < len(printed.labels) else []
        missing = len(raw_blocks) - len(headers)
        if missing not in {0, 1}:
            raise CompileError(f"TTIR: a region has {len(raw_blocks)} blocks but prints {len(headers)} labels.")
        return [""] * missing + headers

    def _block(self, raw: _RawBlock, region: int, depth: int, pending: _Pending) -> int:
        index = len(self.blocks)
        self.blocks.append(None)
        places = map(self.printed.locations.resolve, raw.argument_locations)
        arguments = tuple(self._value(key, at, None, index) for key, at in zip(raw.arguments, places, strict=True))
        operations = tuple(self._operation(self.walked.operations[i], index, depth, pending) for i in raw.operations)
        self.blocks[index] = Block(index, region, arguments, operations, ())
        return index

    def _with_partitions(self, raw: _RawOperation) -> _RawOperation:
        """A `ttg.warp_specialize` with the regions of its partitions, which MLIR keeps in an operation inside.

        From 3.7 on its captured values are operands of that inner operation.
        """
        if raw.name != "ttg.warp_specialize":
            return raw
        (block,) = self._blocks_of[raw.regions[1]]
        inner = self.walked.operations[block.operations[-1]]
        return replace(raw, operands=raw.operands or inner.operands, regions=(raw.regions[0], *inner.regions))

    def _operation(self, raw: _RawOperation, block: int, depth: int, pending: _Pending) -> int:
        raw = self._with_partitions(raw)
        index = len(self.operations)
        self.operations.append(None)
        printed = self._next_printed(raw, depth)
        location = self.printed.location(printed) if printed else Location()
        results = tuple(self._value(key, location, index, block) for key in raw.results)
        regions = tuple(self._region(key, index, printed, i, depth + 1) for i, key in enumerate(raw.regions))
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
        """The indices of operands; one that a later block defines is filled in at the end."""
        try:
            return tuple([self._value_of[key] for key in keys])
        except KeyError:
            self._fixups.append((index, keys))
            return ()

    def _value(self, key: int, location: Location, operation: int | None, block: int) -> int:
        index = len(self.values)
        text = self.walked.types[key]
        parsed = self._types.get(text)
        if parsed is None:
            parsed = self._types[text] = _parse_type(text)
        shape, element, is_pointer = parsed
        self.values.append(Value(index, text, shape, element, is_pointer, location.name, location, operation, block))
        self._value_of[key] = index
        return index


def _argument_names(arguments: Sequence[Value], parameters: Parameters | None) -> tuple[str, ...]:
    """The parameter of each argument of a function; raises `CompileError` where ``parameters`` do not fit."""
    if parameters is None:
        return _names_from_locations(arguments)
    descriptors = [kind for _, kind in parameters if kind.startswith("tensordesc")]
    extra = len(arguments) - len(parameters) - sum(2 * _rank(kind) for kind in descriptors)
    added = extra // len(descriptors) if descriptors else 0
    names: list[str] = []
    for name, kind in parameters:
        count = 1 + (2 * _rank(kind) + added if kind.startswith("tensordesc") else 0)
        names += [name] * count
    if len(names) != len(arguments):
        raise CompileError(
            f"TTIR: the kernel has {plural(len(arguments), 'argument')}; its signature accounts for {len(names)}."
        )
    return tuple(names)


def _rank(kind: str) -> int:
    """The rank of a descriptor type such as ``tensordesc<fp16[16, 32]>``."""
    shape = kind[kind.index("[") + 1 : kind.index("]")]
    return shape.count(",") + 1 if shape.strip() else 0


def _names_from_locations(arguments: Sequence[Value]) -> tuple[str, ...]:
    """Name arguments by the locations of their values.

    From 3.8 on these are ``outs.1`` for the member of a tuple and ``desc.shape.0`` for a size of a descriptor. Before,
    every argument has the name of its parameter: several of one name are members of a tuple, or a descriptor with its
    shape and strides.
    """
    written = [value.name or f"arg{position}" for position, value in enumerate(arguments)]
    first = dict(reversed(list(zip(written, arguments, strict=True))))
    count = Counter(written)
    seen: Counter[str] = Counter()
    names: list[str] = []
    for name in written:
        plain = _MEMBER.sub(r"[\1]", _DESCRIPTOR_PART.sub("", name))
        is_member = count[name] > 1 and plain == name and not first[name].type.startswith("!tt.tensordesc")
        names.append(f"{name}[{seen[name]}]" if is_member else plain)
        seen[name] += 1
    return tuple(names)
