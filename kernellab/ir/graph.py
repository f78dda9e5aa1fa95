"""The dataflow graph of a kernel's TTIR, as immutable data, in MLIR's own words.

A module holds functions; a function has one region; a region holds blocks; a block holds operations, which may own
regions in turn. A value is the result of an operation or the argument of a block. Everything is named by its index
in the tuples of `Graph`, counted in the order of the printed IR, so that identity is stable from run to run.
See https://mlir.llvm.org/docs/LangRef/ for the terms.

As JSON, a graph is ``{"schema": 1, "functions": [...], "operations": [...], ...}`` with one array per element of a
tuple of `Graph`, its fields in the order of the dataclass, without the index that its position gives. Locations are
kept once, in a table of their own, and referred to by position.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

from kernellab.display import Drawable
from kernellab.errors import UsageError


@dataclass(frozen=True, slots=True)
class Location:
    """The source location of an operation or value.

    ``line`` counts from 1 and ``column`` as Triton gives it; ``name`` is the Python variable that a value was
    assigned to. Of an operation that was inlined from a helper, these are the place in the helper, and ``caller`` is
    the place that called it. Each is None where the IR does not say.
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    name: str | None = None
    caller: Location | None = None


_POINTEE_BITS = re.compile(r"!tt\.ptr<[a-z]*(\d+)")
_LIBRARY = ("triton/language/", "triton\\language\\", "triton/experimental/", "triton\\experimental\\")


def place_of(location: Location) -> Location:
    """Return the innermost place of a chain of calls that is not inside Triton's own library."""
    place = location
    while place.caller is not None and (place.line is None or is_library(place.file)):
        place = place.caller
    return place


def calls_of(place: Location) -> Iterator[Location]:
    """Yield the places outside Triton's library that called a place, from the inside out."""
    caller = place.caller
    while caller is not None:
        if caller.line is not None and not is_library(caller.file):
            yield caller
        caller = caller.caller


def is_library(file: str | None) -> bool:
    """Whether a file belongs to Triton's library of kernel functions."""
    return file is not None and any(part in file for part in _LIBRARY)


@lru_cache(maxsize=1024)
def short_file(file: str | None) -> str:
    """Return a file's name without its folders; ``In[5]`` stays as it is."""
    return (file or "").replace("\\", "/").rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value. ``type`` is its printed MLIR type, ``shape`` is () for a scalar.

    ``element`` is the printed element type (``f32``, ``!tt.ptr<f32>``, ...); ``is_pointer`` says whether it is an
    address, that is a pointer, a tensor of pointers, a pointer to a tensor or a tensor descriptor.
    ``operation`` is the index of the operation that defines it, or None for the argument of ``block``.
    """

    index: int
    type: str
    shape: tuple[int, ...]
    element: str
    is_pointer: bool
    name: str | None
    location: Location
    operation: int | None
    block: int

    @property
    def pointee_bytes(self) -> int | None:
        """The bytes of what an address points to, None where that has no size of its own, and of no address."""
        bits = _POINTEE_BITS.match(self.element)
        return None if bits is None else max(1, int(bits[1]) // 8)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. ``operands``, ``results``, ``regions`` and ``block`` are indices into the `Graph`.

    ``attributes`` are printed name and value pairs, sorted by name; ``successors`` are block indices.
    """

    index: int
    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    regions: tuple[int, ...]
    successors: tuple[int, ...]
    attributes: tuple[tuple[str, str], ...]
    location: Location
    block: int

    def attribute(self, name: str, default: str = "") -> str:
        """Return an attribute as it is printed, or ``default`` where the operation has none of that name."""
        return dict(self.attributes).get(name, default)


@dataclass(frozen=True, slots=True)
class Block:
    """A straight run of operations. ``arguments`` are value indices, ``successors`` block indices."""

    index: int
    region: int
    arguments: tuple[int, ...]
    operations: tuple[int, ...]
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """The blocks that an operation or a function owns. ``owner`` is None for the region of a function."""

    index: int
    owner: int | None
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """One ``tt.func``: the kernel itself, or a helper that was not inlined.

    ``arguments`` are the values of its entry block. ``parameters`` names them as the kernel's signature does, with
    ``outs[1]`` for the member of a tuple; an argument that stands for no parameter of its own (a shape or a stride
    that a host descriptor brings along) has the name of the descriptor.
    """

    name: str
    region: int
    arguments: tuple[int, ...]
    parameters: tuple[str, ...]
    is_kernel: bool
    noinline: bool


@dataclass(frozen=True, slots=True)
class Graph(Drawable):
    """A whole module. Element i of each tuple has the index i."""

    functions: tuple[Function, ...]
    operations: tuple[Operation, ...]
    values: tuple[Value, ...]
    blocks: tuple[Block, ...]
    regions: tuple[Region, ...]

    @property
    def kernel(self) -> Function:
        """The function that is launched."""
        return next(function for function in self.functions if function.is_kernel)

    def maker(self, value: int) -> Operation | None:
        """Return the operation that a value is a result of, or None for the argument of a block."""
        index = self.values[value].operation
        return None if index is None else self.operations[index]

    def callee(self, operation: Operation) -> Function | None:
        """Return the function that a call goes to, or None where the module lacks it; no other operation calls."""
        name = operation.attribute("callee") if operation.name == "tt.call" else ""
        return next((function for function in self.functions if function.name == name), None)

    def bodies(self, operation: Operation) -> list[Block]:
        """Return the blocks of the regions of an operation, in order."""
        return [self.blocks[block] for region in operation.regions for block in self.regions[region].blocks]

    def end(self, block: Block) -> Operation:
        """Return the operation that ends a block."""
        return self.operations[block.operations[-1]]

    def owners(self, block: int) -> Iterator[Operation]:
        """Yield the operations around a block, innermost first."""
        owner = self.regions[self.blocks[block].region].owner
        while owner is not None:
            yield self.operations[owner]
            owner = self.regions[self.blocks[self.operations[owner].block].region].owner


def main_file(graph: Graph) -> str | None:
    """Return the file that the kernel itself stands in, by the locations of its arguments and operations."""
    arguments = (graph.values[value].location for value in graph.kernel.arguments)
    operations = (place_of(operation.location) for operation in graph.operations)
    return next((place.file for place in chain(arguments, operations) if place.file is not None), None)


def reachable(
    starts: Iterable[int], following: Callable[[int], Iterable[int]], seen: set[int] | None = None
) -> list[int]:
    """Return the values, blocks or operations that some lead to, themselves included.

    What was ``seen`` before is left out, with all that it alone leads to; what is returned is added to it.
    """
    seen = set() if seen is None else seen
    reached: list[int] = []
    waiting = list(starts)
    while waiting:
        index = waiting.pop()
        if index not in seen:
            seen.add(index)
            reached.append(index)
            waiting += following(index)
    return reached


FOR_BOUNDS = 3  # scf.for: lower bound, upper bound and step stand before the initial values

Join = tuple[int, int, bool]
"""A value, another one that it may be, and whether it gets that from the iteration of a loop before."""


def joins(graph: Graph, operation: Operation) -> Iterator[Join]:
    """Yield the values that an operation passes on: into its regions, out of them, to another block.

    A loop counts as entered, so that its results come from its body alone. An operation with regions that is not known
    may hand any operand to any block argument.
    """
    ways = _JOINS.get(operation.name, _branch_joins if operation.successors else _region_joins)
    for sources, targets, is_back in ways(graph, operation):
        yield from ((target, source, is_back) for source, target in zip(sources, targets, strict=False))


_Ways = Iterator[tuple[Sequence[int], Sequence[int], bool]]
"""Values, what they are passed on to one by one, and whether that is the next iteration of a loop."""


def _for_joins(graph: Graph, operation: Operation) -> _Ways:
    block = graph.bodies(operation)[0]
    carried, yielded = block.arguments[1:], graph.end(block).operands
    yield operation.operands[FOR_BOUNDS:], carried, False
    yield yielded, carried, True
    yield yielded, operation.results, False


def _while_joins(graph: Graph, operation: Operation) -> _Ways:
    before, after = graph.bodies(operation)[:2]
    going_on = graph.end(before).operands[1:]  # scf.condition: the flag, then what both sides get
    yield operation.operands, before.arguments, False
    yield graph.end(after).operands, before.arguments, True
    yield going_on, after.arguments, False
    yield going_on, operation.results, False


def _specialize_joins(graph: Graph, operation: Operation) -> _Ways:
    """Yield the captured operands of partitions, and the results of the default warps."""
    default, *partitions = (graph.regions[region].blocks for region in operation.regions)
    for blocks in partitions:
        yield operation.operands, graph.blocks[blocks[0]].arguments, False
    yield graph.end(graph.blocks[default[-1]]).operands, operation.results, False


def _branch_joins(graph: Graph, operation: Operation) -> _Ways:
    rest = operation.operands[1:] if operation.name == "cf.cond_br" else operation.operands
    for successor in operation.successors:
        targets = graph.blocks[successor].arguments
        yield rest, targets, successor <= operation.block
        rest = rest[len(targets) :]


def _region_joins(graph: Graph, operation: Operation) -> _Ways:
    for block in graph.bodies(operation):
        for target in block.arguments:
            yield operation.operands, [target] * len(operation.operands), False
        if block.operations:
            yield graph.end(block).operands, operation.results, False


_JOINS = {"scf.for": _for_joins, "scf.while": _while_joins, "ttg.warp_specialize": _specialize_joins}

SCHEMA = 1


@dataclass(slots=True)
class LocationRows:
    """Locations as rows of JSON, each once; a caller is the position of its row."""

    rows: list[list[Any]] = field(default_factory=list)
    _positions: dict[Location, int] = field(default_factory=dict)

    def position(self, location: Location) -> int:
        """Return the position of a location's row, which is added at first."""
        if location not in self._positions:
            caller = None if location.caller is None else self.position(location.caller)
            self._positions[location] = len(self.rows)
            self.rows.append([location.file, location.line, location.column, location.name, caller])
        return self._positions[location]


def locations_of_rows(rows: Iterable[Sequence[Any]]) -> list[Location]:
    """Return the locations that `LocationRows` wrote, by position."""
    locations: list[Location] = []
    for file, line, column, name, caller in rows:
        locations.append(Location(file, line, column, name, None if caller is None else locations[caller]))
    return locations


class StoredGraph:
    """A graph as JSON that is read when it is first asked for: it takes much longer to read than effects.

    A graph that is there already can stand for its text.
    """

    def __init__(self, source: str | Graph) -> None:
        self._source = source

    @property
    def graph(self) -> Graph:
        """The graph; several threads that ask at once may read it each."""
        source = self._source
        if isinstance(source, str):
            self._source = source = graph_from_json(source)
        return source


def graph_to_json(graph: Graph) -> str:
    """Return a graph as canonical JSON: the same graph gives the same text."""
    locations = LocationRows()

    def table(records: Sequence[Any]) -> list[Any]:
        names = [each.name for record in records[:1] for each in fields(record) if each.name != "index"]
        return list(map(attrgetter(*names), records)) if records else []

    tables = {attribute.name: table(getattr(graph, attribute.name)) for attribute in fields(graph)}
    # Locations are written last, when all others have put theirs there.
    document = {"schema": SCHEMA, **tables, "locations": locations.rows}
    return json.dumps(document, separators=(",", ":"), default=locations.position)


def graph_from_json(text: str) -> Graph:
    """Return the graph that `graph_to_json` wrote.

    Raises:
        UsageError: the text is not such a graph, or one of another schema.
    """
    try:
        document = json.loads(text)
        schema = document["schema"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError("The text is not a graph; expected JSON that graph_to_json wrote.") from error
    if schema != SCHEMA:
        raise UsageError(f"The graph has schema {schema!r}; expected {SCHEMA}. Build it again with this version.")
    locations = locations_of_rows(document["locations"])
    return Graph(
        functions=tuple(
            Function(name, region, tuple(arguments), tuple(parameters), *flags)
            for name, region, arguments, parameters, *flags in document["functions"]
        ),
        operations=tuple(
            Operation(
                i, name, tuple(a), tuple(r), tuple(g), tuple(s), tuple(map(tuple, attributes)), locations[at], block
            )
            for i, (name, a, r, g, s, attributes, at, block) in enumerate(document["operations"])
        ),
        values=tuple(
            Value(i, kind, tuple(shape), element, is_pointer, name, locations[at], operation, block)
            for i, (kind, shape, element, is_pointer, name, at, operation, block) in enumerate(document["values"])
        ),
        blocks=tuple(
            Block(i, region, tuple(a), tuple(o), tuple(s)) for i, (region, a, o, s) in enumerate(document["blocks"])
        ),
        regions=tuple(Region(i, owner, tuple(blocks)) for i, (owner, blocks) in enumerate(document["regions"])),
    )
