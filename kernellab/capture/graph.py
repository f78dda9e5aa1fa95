"""A program as a graph of torch.fx, which runs and which other tools of torch read.

A launch is a node that calls `kernellab.capture.launching.launch` with the id of its kernel, the id of its constant
arguments, its grid and its other arguments: ids are all that a graph can hold of a kernel. What they stand for is in
the side table, the module ``side_table`` of the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch.fx.passes.shape_prop import TensorMetadata

from kernellab.capture import launching
from kernellab.capture.tape import COPY, LAUNCH, WINDOW, Addresses, Descriptor, Ref, Step, Tape, Value, with_refs

_OWN: dict[str, Callable[..., Any]] = {WINDOW: launching.window, COPY: launching.layout_copy}
SIDE_TABLE = "side_table"


def graph_of(tape: Tape, table: launching.SideTable) -> torch.fx.GraphModule:
    """Return the module that runs a program; its ``meta`` on nodes tells kernel, ids, grid and what is changed."""
    root = torch.nn.Module()
    graph = torch.fx.Graph()
    nodes: dict[int, Any] = {}
    for index in tape.inputs:
        nodes[index] = _described(graph.placeholder(tape.values[index].name), tape.values[index])
    if tape.launches:
        root.add_module(SIDE_TABLE, table)
    for index, tensor in tape.constants:
        name = tape.values[index].name
        root.register_buffer(name, tensor)
        kept = graph.create_node("get_attr", name)
        # Each run has a copy of its own, which its steps may change.
        nodes[index] = _described(graph.call_function(launching.layout_copy, (kept,)), tape.values[index])
    held = graph.create_node("get_attr", SIDE_TABLE) if tape.launches else None
    for step in tape.steps:
        _add(graph, nodes, held, tape, step)
    graph.output({name: nodes[index] for name, index in zip(tape.output_names, tape.outputs, strict=True)})
    graph.lint()
    return torch.fx.GraphModule(root, graph, class_name="Program")


def _add(graph: torch.fx.Graph, nodes: dict[int, Any], table: Any, tape: Tape, step: Step) -> None:
    node = _called(graph, nodes, table, step)
    node.meta["mutates"] = tuple(tape.values[index].name for index in step.mutated)
    node.meta["place"] = step.place
    if step.use is not None:
        use = step.use
        node.name = _fresh(graph, use.kernel.partition("@")[0], node)
        node.meta.update(kernel=use.kernel, kernel_id=use.kernel_id, constants_id=use.constants_id)
        node.meta.update(launch_id=use.launch_id, grid=use.grid)
    if not step.several:
        for index in step.results:
            if index >= 0:
                node.name = _fresh(graph, tape.values[index].name, node)
                nodes[index] = _described(node, tape.values[index])
                _require_shape(graph, nodes[index], tape.values[index], step)
        return
    for position, index in enumerate(step.results):
        if index >= 0:
            member = graph.call_function(operator.getitem, (node, position))
            member.name = _fresh(graph, tape.values[index].name, member)
            nodes[index] = _described(member, tape.values[index])
            _require_shape(graph, member, tape.values[index], step)


def _require_shape(graph: torch.fx.Graph, node: torch.fx.Node, value: Value, step: Step) -> None:
    if step.has_open_shape:
        graph.call_function(launching.require_shape, (node, value.layout.shape, step.words))


def _called(graph: torch.fx.Graph, nodes: dict[int, Any], table: Any, step: Step) -> torch.fx.Node:
    def given(value: Any) -> Any:
        return _with_descriptors(graph, with_refs(value, nodes), value, nodes)

    if step.operation == LAUNCH:
        assert step.use is not None
        arguments = {name: given(value) for name, value in step.kwargs}
        called = (table, step.use.kernel_id, step.use.constants_id, step.use.grid, arguments)
        if step.functional:
            return graph.call_function(launching.launch_functional, (*called, [nodes[i] for i in step.mutated]))
        return graph.call_function(launching.launch, called)
    args, kwargs = tuple(map(given, step.args)), {name: given(value) for name, value in step.kwargs}
    if step.operation == WINDOW and args[4] is not None:
        args = (*args[:4], getattr(torch, args[4]))
    target: Callable[..., Any] = _OWN.get(step.operation) or operation_named(step.operation)
    return graph.call_function(target, args, kwargs)


def operation_named(name: str) -> Any:
    """Return the operation of torch that ``aten.mm.default`` names."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _with_descriptors(graph: torch.fx.Graph, replaced: Any, value: Any, nodes: dict[int, Any]) -> Any:
    """Return an argument with each descriptor or address as a node of its own, which a graph cannot hold as a value."""
    if isinstance(value, Descriptor):
        given = (nodes[value.base.index], value.shape, value.strides, value.block_shape, value.padding)
        return graph.call_function(launching.descriptor, given)
    if isinstance(value, Addresses):
        return graph.call_function(launching.addressed, (replaced.table, list(replaced.entries)))
    if isinstance(value, tuple) and not isinstance(value, Ref):
        members = [_with_descriptors(graph, r, v, nodes) for r, v in zip(replaced, value, strict=True)]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    return replaced


def _described(node: torch.fx.Node, value: Value) -> torch.fx.Node:
    layout = value.layout
    node.meta["tensor_meta"] = TensorMetadata(
        torch.Size(layout.shape), getattr(torch, layout.dtype), False, layout.stride, None, False, {}
    )
    return node


def _fresh(graph: torch.fx.Graph, wanted: str, node: torch.fx.Node) -> str:
    taken = {other.name for other in graph.nodes if other is not node}
    return wanted if wanted not in taken else next(n for i in range(1, 10**6) if (n := f"{wanted}_{i}") not in taken)
