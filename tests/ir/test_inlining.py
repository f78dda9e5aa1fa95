"""Helpers in the places of their calls: each operation stands once for each way to it."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.compile.types import compile_job
from kernellab.ir.graph import Graph
from kernellab.ir.inlining import inline_calls
from kernellab.ir.programs import Programs, integers, scalars_of
from kernellab.target import parse_target
from tests.labs import lab_fixture

pytestmark = pytest.mark.slow  # each compiles a kernel
X = torch.zeros(64)
lab = lab_fixture("cuda:90")


@triton.jit
def twice(x):
    return x + x


@triton.jit
def four_times(x):
    return twice(twice(x))


@triton.jit
def sign(x):
    if x < 0:
        return -1
    return 1


@triton.jit
def with_helpers(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    for _ in range(n):
        x = four_times(x)
    tl.store(x_ptr + i, twice(x), mask=i < n)


@triton.jit
def with_branch(x_ptr, n):
    tl.store(x_ptr, sign(n) + 0.0)


def raw_graph(lab: kernellab.Lab, kernel: object, *args: object, **meta: int) -> Graph:
    return lab.compiler.raw_graph(compile_job(kernel, parse_target("cuda:90"), args, meta))


def names(graph: Graph) -> list[str]:
    return [operation.name for operation in graph.operations]


def test_a_helper_stands_in_the_place_of_each_of_its_calls(lab: kernellab.Lab) -> None:
    raw = raw_graph(lab, with_helpers, X, 40, BLOCK=16)
    graph = inline_calls(raw)
    assert "tt.call" in names(raw)
    assert "tt.call" not in names(graph)
    assert len(graph.functions) == 1
    assert (names(raw).count("arith.addf"), names(graph).count("arith.addf")) == (1, 3)
    loop = next(operation for operation in graph.operations if operation.name == "scf.for")
    inside = [o for o in graph.operations if o.name == "arith.addf" and loop in graph.owners(o.block)]
    assert len(inside) == 2
    assert inside[1].operands == (inside[0].results[0],) * 2


def test_indices_are_places_and_each_use_follows_its_value(lab: kernellab.Lab) -> None:
    graph = inline_calls(raw_graph(lab, with_helpers, X, 40, BLOCK=16))
    for part in (graph.operations, graph.values, graph.blocks, graph.regions):
        assert [each.index for each in part] == list(range(len(part)))
    for operation in graph.operations:
        assert operation.index in graph.blocks[operation.block].operations
        assert all(graph.values[result].operation == operation.index for result in operation.results)
        makers = [graph.maker(operand) for operand in operation.operands]
        assert all(maker is None or maker.index < operation.index for maker in makers)


def test_a_helper_with_branches_stays_a_call(lab: kernellab.Lab) -> None:
    graph = inline_calls(raw_graph(lab, with_branch, X, 5))
    (call,) = (operation for operation in graph.operations if operation.name == "tt.call")
    callee = graph.callee(call)
    assert callee is not None
    assert len(graph.regions[callee.region].blocks) > 1


def test_programs_compute_the_same_in_both_graphs(lab: kernellab.Lab) -> None:
    raw = raw_graph(lab, with_helpers, X, 40, BLOCK=16)
    rounds = []
    for graph in (raw, inline_calls(raw)):
        additions: list[int] = []

        def visit(operation: object, weight: object, additions: list[int] = additions) -> None:
            if getattr(operation, "name", "") == "arith.addf":
                additions.append(int(weight))  # type: ignore[call-overload]

        programs = Programs(graph, (3, 1, 1), by_rounds=False, visit=visit)
        programs.call(graph.kernel, scalars_of(graph, {"x_ptr": X, "n": 40}), integers(1))
        rounds.append(sorted(additions))
    assert rounds == [[1, 40, 40]] * 2
