"""Values that common-subexpression elimination shares between lines are no dataflow from one line to the other."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import kernellab
from kernellab.views.graph import diagram_of


@triton.jit
def normalise(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + columns)
    mean = tl.sum(x, axis=0) / n
    variance = tl.sum(x * x, axis=0) / n
    tl.store(out_ptr + row * n + columns, (x - mean) * tl.rsqrt(variance))


@triton.jit
def squares(out_ptr, BLOCK: tl.constexpr):
    i = 2 * tl.arange(0, BLOCK)
    j = 3 * tl.arange(0, BLOCK)
    tl.store(out_ptr + i, j)


def arrows(lab: kernellab.Lab, kernel: object, *args: object) -> set[tuple[str, str]]:
    """Return the arrows between boxes by the names of arguments and the first name of each line."""
    compiled = lab.compile(kernel, *args, BLOCK=64)
    diagram = diagram_of(compiled.graph, compiled.effects, view="source")
    words = {node.id: node.lines[0].split("  ")[-1].split(" ")[0].partition("(")[0] for node in diagram.nodes}
    return {(words[edge.tail], words[edge.head]) for edge in diagram.edges}


def test_a_product_that_two_lines_write_leads_from_its_factors_to_both(lab: kernellab.Lab) -> None:
    x = torch.zeros(640)
    found = arrows(lab, normalise, x, x.clone(), 7)
    assert {("row", "x"), ("row", "tl.store"), ("n", "tl.store"), ("n", "mean"), ("n", "variance")} <= found
    assert ("mean", "variance") not in found
    assert ("x", "tl.store") in found  # x itself, which the line names


def test_a_range_that_two_lines_write_leads_from_neither_to_the_other(lab: kernellab.Lab) -> None:
    found = arrows(lab, squares, torch.zeros(128, dtype=torch.int32))
    assert found == {("out_ptr", "tl.store"), ("i", "tl.store"), ("j", "tl.store")}
