from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.compile.types import Compiled
from kernellab.errors import UsageError
from kernellab.ir.graph import Graph
from kernellab.views.graph import diagram_of, svg
from kernellab.views.graph.diagram import (
    MISSING,
    ArrowKind,
    BoxKind,
    Diagram,
    Edge,
    Node,
    lay_out,
    program_engine,
    to_dot,
    wasm_engine,
)
from kernellab.views.graph.drawing import draw_tree, picture
from tests.alone import run_with_lab
from tests.views.reports import launches

Kernels = Callable[[str], Compiled]
SVG = "{http://www.w3.org/2000/svg}"


def nodes_of(diagram: Diagram, kind: BoxKind) -> list[str]:
    return [node.lines[0] for node in diagram.nodes if node.kind is kind]


def node_with(diagram: Diagram, text: str) -> Node:
    return next(node for node in diagram.nodes if any(text in line for line in node.lines))


def edge_between(diagram: Diagram, tail: Node, head: Node) -> Edge | None:
    return next((edge for edge in diagram.edges if (edge.tail, edge.head) == (tail.id, head.id)), None)


def test_only_the_whole_of_an_expression_has_the_name_of_its_variable(compiled: Kernels) -> None:
    nodes = diagram_of(compiled("add").graph, view="operations").nodes
    assert [node.lines[0] for node in nodes if node.lines[-1].startswith("x ")] == ["load"]


@triton.jit
def scaled(x, out, width):
    i = tl.arange(0, 64)
    loaded = tl.load(x + i)
    scale = 1 / tl.sqrt(tl.sum(loaded * loaded) / width + 1e-6)
    tl.store(out + i, loaded * scale)


def test_an_expression_around_a_call_names_its_last_operation_alone(lab: kernellab.Lab) -> None:
    graph = lab.compile(scaled, torch.ones(64), torch.ones(64), 3.5).graph
    nodes = diagram_of(graph, view="operations").nodes
    assert [node.lines[0] for node in nodes if node.lines[-1].startswith("scale ")] == ["divf 1"]


@triton.jit
def unrolled(x, out):
    i = tl.arange(0, 16)
    acc = tl.zeros((16,), tl.float32)
    for k in tl.static_range(3):
        acc = acc * 2 + tl.load(x + i + k * 16)
    tl.store(out + i, acc)


def test_the_whole_of_each_unrolled_round_has_the_name_of_its_variable(lab: kernellab.Lab) -> None:
    graph = lab.compile(unrolled, torch.ones(48), torch.ones(16)).graph
    nodes = diagram_of(graph, view="operations").nodes
    assert [node.lines[0].split()[0] for node in nodes if node.lines[-1].startswith("acc ")] == [*["addf"] * 3, "store"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(launches()))
@pytest.mark.parametrize("view", ["operations", "source"])
def test_every_view_is_well_formed_and_needs_no_network(compiled: Kernels, name: str, view: str) -> None:
    if (name, view) == ("unrolled", "operations"):
        pytest.skip("has more operations than anybody would draw")
    picture = svg(compiled(name).graph, compiled(name).effects, view=view)
    root = ElementTree.fromstring(picture)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title") is not None
    assert root.find(f"{SVG}desc") is not None
    assert "<script" not in picture
    assert set(re.findall(r"https?://[^\"<]*", picture)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", ["softmax", "branches"])
def test_repeated_drawing_is_byte_identical(compiled: Kernels, name: str) -> None:
    graph, effects = compiled(name).graph, compiled(name).effects
    assert svg(graph, effects) == svg(graph, effects)


def test_pictures_of_one_page_share_no_ids(compiled: Kernels) -> None:
    assert " id=" not in svg(compiled("add").graph, compiled("add").effects)


def test_loads_and_stores_name_their_argument_and_have_kinds_of_their_own(compiled: Kernels) -> None:
    diagram = diagram_of(compiled("add").graph, compiled("add").effects, view="operations")
    assert sorted(nodes_of(diagram, BoxKind.READ)) == ["load x_ptr", "load y_ptr"]
    assert nodes_of(diagram, BoxKind.WRITE) == ["store out_ptr"]


def test_an_atomic_is_told_from_a_store(compiled: Kernels) -> None:
    diagram = diagram_of(compiled("histogram").graph, compiled("histogram").effects, view="operations")
    assert nodes_of(diagram, BoxKind.WRITE) == []
    assert [title.split()[-1] for title in nodes_of(diagram, BoxKind.ATOMIC)] == ["counts_ptr"]


def test_kinds_differ_in_shape_not_only_in_colour(compiled: Kernels) -> None:
    picture = svg(compiled("branches").graph, compiled("branches").effects, view="operations")
    outlines = {}
    for node in re.findall(r'<g data-node="[^"]*".*?</g>', picture, re.DOTALL):
        text = re.search(r"<text[^>]*>([^\s<]+)", node)
        path = re.search(r'<path d="([^"]*)"', node)
        assert text
        assert path
        outlines[text[1]] = re.sub(r"[-\d. ]+", "", path[1])
    assert len({outlines["x_ptr"], outlines["load"], outlines["atomic_rmw"]}) == 3


def test_without_effects_the_operation_alone_marks_memory_accesses(compiled: Kernels) -> None:
    diagram = diagram_of(compiled("add").graph, view="operations")
    assert nodes_of(diagram, BoxKind.READ) == ["load", "load"]
    assert nodes_of(diagram, BoxKind.WRITE) == ["store"]


def test_a_store_through_an_unknown_pointer_is_marked_unsure(compiled: Kernels) -> None:
    diagram = diagram_of(compiled("unknown").graph, compiled("unknown").effects, view="operations")
    assert [node.lines[0] for node in diagram.nodes if node.unsure] == ["store ?"]
    assert "derives from no argument" in node_with(diagram, "store ?").tip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matmul", "forward", "backward"])
def test_source_view_has_one_box_per_line_and_frame(compiled: Kernels, name: str) -> None:
    diagram = diagram_of(compiled(name).graph, compiled(name).effects, view="source")
    placed = [(node.source_line, node.cluster) for node in diagram.nodes if node.source_line is not None]
    assert len(placed) == len(set(placed))
    assert len(diagram.nodes) < 60


def test_source_view_shows_source_text_of_helpers_and_names_what_a_line_reads(compiled: Kernels) -> None:
    diagram = diagram_of(compiled("backward").graph, compiled("backward").effects, view="source")
    load = node_with(diagram, "do = tl.load(do_ptr + base")
    assert load.kind is BoxKind.READ
    assert "reads do_ptr" in load.lines[1]
    assert load.cluster is not None


def test_library_code_counts_as_the_line_that_calls_it(compiled: Kernels) -> None:
    diagram = diagram_of(compiled("softmax").graph, compiled("softmax").effects, view="source")
    assert not [node for node in diagram.nodes if "standard.py" in node.lines[0]]


def test_given_text_wins_over_the_file(compiled: Kernels) -> None:
    load = next(op for op in compiled("add").graph.operations if op.name == "tt.load")
    diagram = diagram_of(compiled("add").graph, view="source", text={load.location.line or 0: "x = marvellous(x_ptr)"})
    assert node_with(diagram, "marvellous").kind is BoxKind.READ


def test_a_value_carried_by_a_loop_leads_back_into_it(compiled: Kernels) -> None:
    diagram = diagram_of(compiled("matmul").graph, compiled("matmul").effects, view="operations")
    dot = node_with(diagram, "dot")
    carried = [edge for edge in diagram.edges if edge.tail == dot.id and edge.back]
    assert len(carried) == 1
    head = next(node for node in diagram.nodes if node.id == carried[0].head)
    assert head.cluster == dot.cluster
    assert head.lines[0].startswith("total")


def test_what_leaves_a_loop_is_no_back_edge(compiled: Kernels) -> None:
    diagram = diagram_of(compiled("branches").graph, compiled("branches").effects, view="source")
    halved, atomic = node_with(diagram, "x = x * 0.5"), node_with(diagram, "tl.atomic_add")
    edge = edge_between(diagram, halved, atomic)
    assert edge is not None
    assert not edge.back


def test_a_condition_leads_to_what_it_decides(compiled: Kernels) -> None:
    diagram = diagram_of(compiled("branches").graph, compiled("branches").effects, view="source")
    edge = edge_between(diagram, node_with(diagram, "if flag > 0"), node_with(diagram, "x = x * 2.0"))
    assert edge is not None
    assert edge.flow is ArrowKind.CONTROL
    early = edge_between(diagram, node_with(diagram, "if n == 0"), node_with(diagram, "tl.load(x_ptr"))
    assert early is not None


def test_a_reduction_is_one_box_that_passes_its_result_on(compiled: Kernels) -> None:
    diagram = diagram_of(compiled("softmax").graph, compiled("softmax").effects, view="operations")
    total = node_with(diagram, "reduce addf")
    assert [edge for edge in diagram.edges if edge.tail == total.id]
    assert [edge for edge in diagram.edges if edge.head == total.id]


@pytest.mark.slow
def test_large_graphs_are_drawn_by_source_line(compiled: Kernels) -> None:
    graph = compiled("unrolled").graph
    assert len(graph.operations) > 1000
    assert "by source line" in diagram_of(graph).title
    assert len(diagram_of(graph).nodes) < 20
    assert "by source line" in diagram_of(compiled("matmul").graph).title
    assert "Operations of" in diagram_of(compiled("add").graph).title


def test_slice_of_an_argument_leaves_out_what_is_apart_from_it(compiled: Kernels) -> None:
    graph, effects = compiled("matmul").graph, compiled("matmul").effects
    part = diagram_of(graph, effects, view="operations", argument="a_ptr")
    assert {"load a_ptr", "dot", "store c_ptr"} <= {node.lines[0] for node in part.nodes}
    assert "load b_ptr" not in {node.lines[0] for node in part.nodes}
    assert svg(graph, effects, argument="a_ptr") != svg(graph, effects)


@pytest.mark.parametrize(("option", "value"), [("view", "sideways"), ("argument", "nonsense")])
def test_unknown_view_or_argument_is_refused_with_the_choices(compiled: Kernels, option: str, value: str) -> None:
    with pytest.raises(UsageError, match=rf"{option}.*{value}.*expected one of"):
        svg(compiled("add").graph, **{option: value})


def test_hostile_names_are_escaped(compiled: Kernels) -> None:
    graph = renamed(compiled("add").graph, '<script>alert("&")</script>')
    picture = svg(graph, compiled("add").effects)
    ElementTree.fromstring(picture)
    assert "<script" not in picture
    assert "&lt;script&gt;" in picture


def renamed(graph: Graph, name: str) -> Graph:
    kernel = replace(graph.kernel, name=name, parameters=(name, *graph.kernel.parameters[1:]))
    return replace(graph, functions=tuple(kernel if each.is_kernel else each for each in graph.functions))


def test_an_engine_that_fails_gives_way_to_the_next(compiled: Kernels) -> None:
    dot = to_dot(diagram_of(compiled("add").graph))
    expected = lay_out(dot)
    calls: list[str] = []

    def broken(text: str) -> None:
        calls.append(text)

    assert lay_out(dot, (broken,)) is None
    assert calls == [dot]
    assert lay_out(dot, (broken, wasm_engine)) == expected
    assert expected is not None


@pytest.mark.slow
def test_threads_may_draw_at_once(compiled: Kernels) -> None:
    graphs = [compiled(name).graph for name in ("add", "softmax", "matmul", "forward")] * 3
    alone = [svg(graph) for graph in graphs]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(svg, graphs)) == alone


def test_the_program_dot_is_optional() -> None:
    layout = program_engine("digraph g { a -> b }")
    assert layout is None or b"objects" in layout


@pytest.mark.slow
def test_the_machine_code_of_the_engine_is_kept_and_where_it_cannot_be_graphs_are_laid_out_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "from kernellab.views.graph.diagram import lay_out, wasm_engine\n"
        "print(sorted(lay_out('digraph g { a -> b }', (wasm_engine,)).nodes))"
    )
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(place))
        done = run_with_lab(text, folder=tmp_path)
        assert done.stdout == "['a', 'b']\n", done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 100_000]


def test_without_an_engine_the_picture_is_a_list_that_says_what_to_install(compiled: Kernels) -> None:
    diagram = diagram_of(compiled("add").graph)
    missing = picture(diagram, engines=(lambda dot: None,))
    assert MISSING in "".join(ElementTree.fromstring(missing).itertext())
    assert "out_ptr" in missing
    assert MISSING not in picture(diagram)


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz's program dot")
def test_the_program_dot_draws_what_the_package_draws(compiled: Kernels) -> None:
    diagram = diagram_of(compiled("matmul").graph, compiled("matmul").effects, view="source")
    found = [ElementTree.fromstring(picture(diagram, engines=(engine,))) for engine in (wasm_engine, program_engine)]
    boxes = [[each.get("data-node") for each in root.iter() if each.get("data-node")] for root in found]
    arrows = [[each.get("data-edge") for each in root.iter() if each.get("data-edge")] for root in found]
    assert boxes[0] == boxes[1] == [node.id for node in diagram.nodes]
    assert arrows[0] == arrows[1]


def test_without_an_engine_the_graph_is_an_indented_list(compiled: Kernels) -> None:
    diagram = diagram_of(compiled("matmul").graph, compiled("matmul").effects, view="source")
    picture = draw_tree(diagram)
    text = "\n".join("".join(row.itertext()) for row in ElementTree.fromstring(picture).iter(f"{SVG}text"))
    assert "c_ptr" in text
    assert "△" in text
    assert "←" in text


@pytest.mark.slow
def test_a_program_that_drew_a_graph_ends_without_a_word() -> None:
    program = "from kernellab.views.graph.diagram import warm; warm()"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
