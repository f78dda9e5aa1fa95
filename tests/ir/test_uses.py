"""The slice of an argument, and what the memory operations of a slice move."""

from __future__ import annotations

from pathlib import Path

import pytest
import triton
import triton.language as tl

from kernellab.errors import UsageError
from kernellab.ir.effects import Effects, access_bytes, effects_of
from kernellab.ir.graph import Graph
from kernellab.ir.uses import argument_slice
from tests.ir.conftest import graphs_of_case
from tests.ir.expected import expect

LINES = [line.strip() for line in Path(__file__).read_text().splitlines()]


@expect()
@triton.jit
def example(x, y, half, out, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    apart = tl.load(half + offs)
    tl.store(out + offs, apart.to(tl.float32))
    total = tl.load(x + offs)
    for i in range(n):
        total += tl.load(x + i + offs)
    for i in range(0, 8, 2):
        tl.atomic_add(y + i, tl.sum(total))


@expect()
@triton.jit
def waits(x, y, n):
    if n > 4:
        tl.store(y, tl.load(x))


def names(graph, operations):
    return sorted(graph.operations[each].name for each in operations)


def slice_of(graph: Graph, argument: str, effects: Effects | None = None) -> frozenset[int]:
    return argument_slice(graph, argument, None if effects is None else effects.touching(argument)).operations


def test_slice_holds_what_leads_from_and_to_an_argument() -> None:
    graph = graphs_of_case(example)[1]
    effects = effects_of(graph)
    apart = slice_of(graph, "out", effects)
    assert {"tt.load", "tt.store", "arith.extf"} <= set(names(graph, apart))
    assert "tt.atomic_rmw" not in names(graph, apart)
    together = slice_of(graph, "y", effects)
    assert names(graph, together).count("tt.load") == 2
    assert "tt.store" not in names(graph, together)


def test_slice_holds_the_loop_and_what_bounds_it() -> None:
    graph = graphs_of_case(example)[1]
    assert "scf.for" in names(graph, slice_of(graph, "y", effects_of(graph)))
    assert "scf.for" in names(graph, slice_of(graph, "n", effects_of(graph)))


def test_slice_holds_the_condition_of_a_branch() -> None:
    graph = graphs_of_case(waits)[1]
    assert {"scf.if", "arith.cmpi", "tt.load", "tt.store"} <= set(names(graph, slice_of(graph, "y")))


def test_slice_of_an_unknown_argument_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="expected one of x, y, half"):
        slice_of(graphs_of_case(example)[1], "z")


def test_a_memory_operation_moves_all_its_lanes_and_any_other_nothing() -> None:
    graph = graphs_of_case(example)[1]
    moved = {
        LINES[operation.location.line - 1]: access_bytes(graph, operation)
        for operation in graph.operations
        if operation.location.line is not None and operation.name in {"tt.load", "tt.store", "tt.atomic_rmw"}
    }
    assert moved == {
        "apart = tl.load(half + offs)": 16 * 2,
        "tl.store(out + offs, apart.to(tl.float32))": 16 * 4,
        "total = tl.load(x + offs)": 16 * 4,
        "total += tl.load(x + i + offs)": 16 * 4,
        "tl.atomic_add(y + i, tl.sum(total))": 4,
    }
    assert {access_bytes(graph, each) for each in graph.operations if each.name.startswith("arith.")} == {0}
