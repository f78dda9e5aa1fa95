"""The slice of an argument, and the operations and traffic of each source line."""

from __future__ import annotations

from pathlib import Path

import pytest
import triton
import triton.language as tl

from kernellab.errors import UsageError
from kernellab.ir.effects import Access, effects_of
from kernellab.ir.slices import LineOperations, operations_by_line, slice_of
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


def at(lines: tuple[LineOperations, ...], text: str) -> LineOperations:
    return next(each for each in lines if each.line == LINES.index(text) + 1)


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


def test_every_operation_belongs_to_one_line() -> None:
    for graph in graphs_of_case(example):
        lines = operations_by_line(graph)
        assert sorted(each for line in lines for each in line.operations) == list(range(len(graph.operations)))


def test_lines_count_the_bytes_of_one_program() -> None:
    graph = graphs_of_case(example)[1]
    lines = operations_by_line(graph, effects_of(graph))
    assert at(lines, "apart = tl.load(half + offs)").bytes_per_program == 16 * 2
    assert at(lines, "total = tl.load(x + offs)").bytes_per_program == 16 * 4
    assert at(lines, "tl.store(out + offs, apart.to(tl.float32))").bytes_per_program == 16 * 4
    assert at(lines, "total += tl.load(x + i + offs)").bytes_per_program is None
    (atomic,) = at(lines, "tl.atomic_add(y + i, tl.sum(total))").traffic
    assert (atomic.access, atomic.bytes_each, atomic.times) == (Access.ATOMIC, 8, 4)


def test_lines_name_the_arguments_that_they_touch() -> None:
    graph = graphs_of_case(example)[1]
    lines = operations_by_line(graph, effects_of(graph))
    assert at(lines, "total += tl.load(x + i + offs)").arguments == {"x"}
    assert at(lines, "offs = tl.arange(0, B)").arguments == frozenset()


def test_inlined_library_code_counts_for_the_line_that_calls_it() -> None:
    graph = graphs_of_case(example)[1]
    lines = operations_by_line(graph, effects_of(graph))
    call = at(lines, "tl.atomic_add(y + i, tl.sum(total))")
    assert "tt.reduce" in names(graph, call.operations)
    assert {each.file for each in lines if each.line is not None} == {__file__}
