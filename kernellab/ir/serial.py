"""A graph as JSON and back.

The schema is ``{"schema": 1, "functions": [...], "operations": [...], ...}`` with one array per element of a tuple of
`Graph`, its fields in the order of the dataclass, without the index that its position gives. Locations and types
are kept once, in tables of their own, and referred to by position.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kernellab.errors import UsageError
from kernellab.ir.graph import Block, Function, Graph, Location, Operation, Region, Value

SCHEMA = 1

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True)
class _Table(Generic[T]):
    """Distinct rows and their positions."""

    row_of: Callable[[T], list[Any]]
    positions: dict[T, int] = field(default_factory=dict)
    rows: list[list[Any]] = field(default_factory=list)

    def position(self, item: T) -> int:
        if item not in self.positions:
            row = self.row_of(item)
            self.positions[item] = len(self.rows)
            self.rows.append(row)
        return self.positions[item]


def graph_to_json(graph: Graph) -> str:
    """Return a graph as canonical JSON: the same graph gives the same text."""
    locations: _Table[Location] = _Table(lambda each: _location_row(each, locations))
    document = {
        "schema": SCHEMA,
        "functions": [
            [each.name, each.region, each.arguments, each.parameters, each.is_kernel, each.noinline]
            for each in graph.functions
        ],
        "operations": [
            [
                *[each.name, each.operands, each.results, each.regions, each.successors, each.attributes],
                *[locations.position(each.location), each.block],
            ]
            for each in graph.operations
        ],
        "values": [
            [
                *[each.type, each.shape, each.element, each.is_pointer, each.name],
                *[locations.position(each.location), each.operation, each.block],
            ]
            for each in graph.values
        ],
        "blocks": [[each.region, each.arguments, each.operations, each.successors] for each in graph.blocks],
        "regions": [[each.owner, each.blocks] for each in graph.regions],
        "locations": locations.rows,
    }
    return json.dumps(document, separators=(",", ":"))


def _location_row(location: Location, table: _Table[Location]) -> list[Any]:
    caller = None if location.caller is None else table.position(location.caller)
    return [location.file, location.line, location.column, location.name, caller]


def graph_from_json(text: str) -> Graph:
    """Return the graph that `graph_to_json` wrote.

    Raises:
        UsageError: the text is no such graph, or one of another schema.
    """
    try:
        document = json.loads(text)
        schema = document["schema"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError("The text is no graph; expected JSON that graph_to_json wrote.") from error
    if schema != SCHEMA:
        raise UsageError(f"The graph has schema {schema!r}; expected {SCHEMA}. Build it again with this version.")
    locations: list[Location] = []
    for file, line, column, name, caller in document["locations"]:
        locations.append(Location(file, line, column, name, None if caller is None else locations[caller]))
    return Graph(
        functions=tuple(_function(row) for row in document["functions"]),
        operations=tuple(_operation(index, row, locations) for index, row in enumerate(document["operations"])),
        values=tuple(_value(index, row, locations) for index, row in enumerate(document["values"])),
        blocks=tuple(
            Block(index, region, tuple(arguments), tuple(operations), tuple(successors))
            for index, (region, arguments, operations, successors) in enumerate(document["blocks"])
        ),
        regions=tuple(Region(index, owner, tuple(blocks)) for index, (owner, blocks) in enumerate(document["regions"])),
    )


def _function(row: list[Any]) -> Function:
    name, region, arguments, parameters, is_kernel, noinline = row
    return Function(name, region, tuple(arguments), tuple(parameters), is_kernel, noinline)


def _operation(index: int, row: list[Any], locations: list[Location]) -> Operation:
    name, operands, results, regions, successors, attributes, location, block = row
    return Operation(
        index,
        name,
        tuple(operands),
        tuple(results),
        tuple(regions),
        tuple(successors),
        tuple((key, value) for key, value in attributes),
        locations[location],
        block,
    )


def _value(index: int, row: list[Any], locations: list[Location]) -> Value:
    kind, shape, element, is_pointer, name, location, operation, block = row
    return Value(index, kind, tuple(shape), element, is_pointer, name, locations[location], operation, block)
