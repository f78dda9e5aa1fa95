"""How a captured program shows: as a picture, as text, and where it cannot be shown."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import torch

import kernellab
from kernellab.capture.program import Program
from kernellab.views.cards.program import AT_MOST, program_card, program_diagram
from kernellab.views.graph.diagram import ArrowKind, BoxKind, Diagram
from kernellab.views.graph.drawing import picture
from tests import samples
from tests.capture import kernels
from tests.labs import lab_fixture

pytestmark = pytest.mark.slow
lab = lab_fixture()


@pytest.fixture(scope="module")
def attention(lab: kernellab.Lab) -> Program:
    attend = kernels.attention(lab)
    q, k, v, weight, bias = kernels.inputs().values()
    with lab.capture() as program:
        out = attend(q, k, v, weight, bias)
    assert out.dim() == 2
    return program


def titles(diagram: Diagram, kind: BoxKind) -> list[str]:
    return [box.lines[0] for box in diagram.nodes if box.kind is kind]


def leads(diagram: Diagram, tail: str, head: str) -> list[bool]:
    """Return the arrows between boxes of these titles: whether each is a change."""
    named = {box.id: box.lines[0] for box in diagram.nodes}
    return [a.flow is ArrowKind.CHANGE for a in diagram.edges if (named[a.tail], named[a.head]) == (tail, head)]


def test_kernels_tensors_and_changes_are_drawn(attention: Program) -> None:
    diagram = program_diagram(attention.tape)
    assert titles(diagram, BoxKind.ARGUMENT) == ["q", "k", "v", "weight", "bias"]
    assert titles(diagram, BoxKind.OUTPUT) == ["out"]
    assert titles(diagram, BoxKind.KERNEL)[:2] == ["scores_kernel@1", "row_max_kernel@1"]
    assert leads(diagram, "scores_kernel@1", "scores") == [True]
    assert leads(diagram, "scores", "row_max_kernel@1") == [False]
    assert leads(diagram, "weights", "values_kernel@1") == [False]
    assert leads(diagram, "add_bias_kernel@1", "out") == [True]
    shapes = {box.lines for box in diagram.nodes}
    assert ("scores", "f32[3, 48, 40]") in shapes
    assert not any("empty" in title for title in titles(diagram, BoxKind.COMPUTE))


def test_a_tensor_that_changes_is_drawn_after_each_change(lab: kernellab.Lab) -> None:
    scale = lab.bind(samples.scale_kernel)
    x = torch.rand(100)
    with lab.capture() as program:
        before = x.sum()
        scale[(1,)](x, x, 100, BLOCK=128)
        row = x[:50]
        after = row.sum()
    assert before != after
    diagram = program_diagram(program.tape)
    boxes = [box for box in diagram.nodes if box.lines[0] == "x"]
    assert [box.kind for box in boxes] == [BoxKind.ARGUMENT, BoxKind.OUTPUT]
    tails = {arrow.head: arrow.tail for arrow in diagram.edges}
    (view,) = [box.id for box in diagram.nodes if box.lines[0] == "row"]
    assert tails[view] == boxes[1].id, "the view is one of what the kernel wrote"


def test_the_picture_is_well_formed_and_has_no_colour_of_a_theme(attention: Program) -> None:
    svg = picture(program_diagram(attention.tape))
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    (changes,) = [group for group in root.iter() if group.get("stroke-dasharray")]
    assert len(changes) == 5, "each launch changes one tensor"
    assert 'fill="currentColor"' in svg
    assert not re.search(r'fill="(black|white|#000|#fff)', svg)


def test_a_functional_program_has_no_changes(attention: Program) -> None:
    diagram = program_diagram(attention.functionalise().tape)
    assert not any(arrow.flow is ArrowKind.CHANGE for arrow in diagram.edges)
    assert titles(diagram, BoxKind.OUTPUT) == ["out"]


def test_the_text_lists_steps_memory_and_what_changes(attention: Program) -> None:
    text = program_card(attention).text()
    plan = attention.plan
    assert "5 inputs, 5 launches" in text
    assert f"{plan.peak_bytes / 1e3:.3g} kB planned" in text
    assert "scores_kernel@1[3, 3, 1](q, k, *scores)" in text
    assert text.endswith("return out")


def test_a_long_program_shows_its_kernels_alone(lab: kernellab.Lab) -> None:
    scale = lab.bind(samples.scale_kernel)
    x = torch.rand(10)
    with lab.capture() as program:
        y = x
        for _ in range(AT_MOST):
            y = y + 1
        out = torch.empty_like(y)
        scale[(1,)](y, out, 10, BLOCK=16)
    diagram = program_diagram(program.only("out").tape)
    assert diagram.is_contracted
    assert leads(diagram, "x", "scale_kernel@1") == [False]
    assert leads(diagram, "scale_kernel@1", "out") == [False]
    assert "program.frame lists every step" in program_card(program).html()


def test_an_incomplete_program_says_why(lab: kernellab.Lab) -> None:
    with pytest.raises(ZeroDivisionError), lab.capture() as program:
        torch.ones(1).mul_(1 / 0)
    assert "incomplete" in program_card(program).text()
    assert "ZeroDivisionError" in program_card(program).html()
    assert "<svg" not in program_card(program).html()


def test_an_empty_program_shows(lab: kernellab.Lab) -> None:
    with lab.capture() as program:
        pass
    assert "0 launches" in program_card(program).text()
    assert "return nothing" in program_card(program).text()
    assert "<svg" in program_card(program).html()
