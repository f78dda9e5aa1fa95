"""A program as a graph of torch.fx, which runs and which other tools of torch read.

A launch is a node that calls `kernellab.capture.graph.launch` with the id of its kernel, the id of its constant
arguments, its grid and its other arguments: ids are all that a graph can hold of a kernel. What they stand for is in
the side table, the module ``side_table`` of the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch.fx.passes.shape_prop import TensorMetadata

from kernellab._triton.kernel import jit_function
from kernellab._triton.tracing import is_traced
from kernellab.capture.devices import on_device_of
from kernellab.capture.size import Size
from kernellab.capture.size_nodes import SizeNodes
from kernellab.capture.tape import (
    COPY,
    LAUNCH,
    READ,
    WINDOW,
    Addresses,
    KernelUse,
    Step,
    Tape,
    TapeDescriptor,
    TapeValue,
    mapped,
    with_refs,
)
from kernellab.capture.torch_calls import contents_of
from kernellab.capture.tracing import (
    LaunchGrid,
    ask_in_runs,
    descriptor_in_dynamo,
    is_cloned,
    is_open,
    launch_functional_in_dynamo,
    launch_in_dynamo,
    layout_copy_in_dynamo,
    prepare_for_dynamo,
    require_read_in_dynamo,
    require_shape_in_dynamo,
    share_memory,
    window_in_dynamo,
)
from kernellab.capture.tuned_launch import grid_for, require_changes
from kernellab.errors import UsageError
from kernellab.launch.recording import marked
from kernellab.registry import Registry

SIDE_TABLE = "side_table"


def graph_of(tape: Tape, table: SideTable) -> torch.fx.GraphModule:
    """Return the module that runs a program; its ``meta`` on nodes tells kernel, ids, grid and what is changed."""
    root = torch.nn.Module()
    graph = torch.fx.Graph()
    nodes: dict[int, Any] = {}
    for index in tape.inputs:
        nodes[index] = _described(graph.placeholder(tape.values[index].name), tape.values[index])
    if tape.launches:
        root.add_module(SIDE_TABLE, table)
        tuned = (step.use for step in tape.launches if step.use is not None and step.use.complete)
        table.changes |= {use.tuning.constants_id: use.mutated for use in tuned if use.tuning is not None}
        table.launched |= {(step.use.kernel_id, *_constants_and_grid(step.use)) for step in tape.launches if step.use}
    for index, tensor in tape.constants:
        name = tape.values[index].name
        root.register_buffer(name, tensor)
        kept = graph.create_node("get_attr", name)
        # Each run has a copy of its own, which its steps may change.
        nodes[index] = _described(
            graph.call_function(torch.ops.aten.lift_fresh_copy.default, (kept,)), tape.values[index]
        )
    held = graph.create_node("get_attr", SIDE_TABLE) if tape.launches else None
    building = _Building(graph, tape, nodes, SizeNodes(graph, tape, nodes), held)
    for step in tape.steps:
        _add(building, step)
    graph.output({name: nodes[index] for name, index in zip(tape.output_names, tape.outputs, strict=True)})
    graph.lint()
    return torch.fx.GraphModule(root, graph, class_name="Program")


@dataclass(frozen=True, slots=True)
class _Building:
    """A graph that is built: the nodes of values and sizes, of the side table, and of the descriptors so far."""

    graph: torch.fx.Graph
    tape: Tape
    nodes: dict[int, Any]
    sizes: SizeNodes
    table: Any
    descriptors: dict[TapeDescriptor, Any] = field(default_factory=dict)


def _add(building: _Building, step: Step) -> None:
    graph, tape, nodes, sizes = building.graph, building.tape, building.nodes, building.sizes
    node = _called(building, step)
    node.meta["mutates"] = tuple(tape.values[index].name for index in step.mutated)
    node.meta["place"] = step.place
    if step.use is not None:
        use = step.use
        node.name = _fresh(graph, use.kernel.partition("@")[0], node)
        node.meta.update(kernel=use.kernel, kernel_id=use.kernel_id, constants_id=use.constants_id)
        node.meta.update(launch_id=use.launch_id, grid=tuple(map(int, use.grid)))
    for position, index in enumerate(step.results):
        if index >= 0:
            value = tape.values[index]
            made = graph.call_function(operator.getitem, (node, position)) if step.several else node
            made.name = _fresh(graph, value.name, made)
            nodes[index] = _described(made, value)
    if step.has_open_shape:
        sizes.made(step, nodes)
        for index in step.results:
            if index >= 0:
                shape = sizes.given(tape.values[index].layout.shape)
                graph.call_function(require_shape, (nodes[index], shape, step.words))


def _called(building: _Building, step: Step) -> torch.fx.Node:
    graph, nodes, sizes, descriptors = building.graph, building.nodes, building.sizes, building.descriptors

    def part_given(part: Any) -> Any:
        """Return a descriptor or an address as a node of its own, which a graph cannot hold as a value.

        One descriptor of several arguments or launches is one node.
        """
        replaced = with_refs(part, nodes)
        if isinstance(part, TapeDescriptor):
            layout = (sizes.given(part.shape), sizes.given(part.strides), part.block_shape, part.padding)
            if part not in descriptors:
                descriptors[part] = graph.call_function(descriptor, (replaced.base, *layout))
            return descriptors[part]
        if isinstance(part, Addresses):
            return graph.call_function(addressed, (replaced.table, list(replaced.entries)))
        return sizes.node(part) if isinstance(part, Size) else replaced

    def given(value: Any) -> Any:
        return mapped(value, part_given)

    if step.operation == LAUNCH:
        assert step.use is not None
        arguments = {name: given(value) for name, value in step.kwargs}
        called = (building.table, step.use.kernel_id, *given(_constants_and_grid(step.use)), arguments)
        if step.functional:
            return graph.call_function(launch_functional, (*called, [nodes[i] for i in step.mutated]))
        return graph.call_function(launch, called)
    args, kwargs = tuple(map(given, step.args)), {name: given(value) for name, value in step.kwargs}
    if step.operation == WINDOW and args[4] is not None:
        args = (*args[:4], getattr(torch, args[4]))
    if step.operation == READ:
        return graph.call_function(require_read, (*args, step.place))
    own: dict[str, Callable[..., Any]] = {WINDOW: window, COPY: layout_copy}
    target = own.get(step.operation) or operation_named(step.operation)
    return graph.call_function(target, args, kwargs)


def _constants_and_grid(use: KernelUse) -> tuple[int, Any]:
    """Return the id of the constants of a launch and its grid, or for an autotuned kernel the grid of each config."""
    if use.tuning is None:
        return use.constants_id, use.grid
    return use.tuning.constants_id, tuple((each.supplied_id, each.grid) for each in use.tuning.configs)


def operation_named(name: str) -> Any:
    """Return the operation of torch that ``aten.mm.default`` names.

    Raises:
        UsageError: nothing of that name is registered any more.
    """
    found: Any = torch.ops
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as exc:
        raise UsageError(
            f"The program calls {name}, an operator that is not registered any more; define it again."
        ) from exc
    return found


def _described(node: torch.fx.Node, value: TapeValue) -> torch.fx.Node:
    layout = value.layout
    node.meta["tensor_meta"] = TensorMetadata(
        torch.Size(map(int, layout.shape)),
        getattr(torch, layout.dtype),
        requires_grad=False,
        stride=tuple(map(int, layout.stride)),
        memory_format=None,
        is_quantized=False,
        qparams={},
    )
    return node


def _fresh(graph: torch.fx.Graph, wanted: str, node: torch.fx.Node) -> str:
    taken = {other.name for other in graph.nodes if other is not node}
    return wanted if wanted not in taken else next(n for i in range(1, 10**6) if (n := f"{wanted}_{i}") not in taken)


class SideTable(torch.nn.Module):
    """The kernels and constant arguments that the ids of a graph's launches stand for.

    ``kernels`` gives what was launched by id: for an autotuned kernel, the function under the tuner. ``launched`` are
    the ids and grids of the launches of its graph; ``constants`` and ``tuned``, autotuned kernels by their ids, are
    filled where dynamo reads the graph. ``changes`` are the arguments that autotuned launches change, by the ids of
    their constants.
    """

    def __init__(self, registry: Registry, kernels: Mapping[int, Any]) -> None:
        super().__init__()
        self.registry = registry
        self.kernels = dict(kernels)
        self.launched: set[tuple[int, int, Any]] = set()
        self.constants: dict[int, dict[str, Any]] = {}
        self.tuned: dict[int, Any] = {}
        self.changes: dict[int, frozenset[str]] = {}
        self._known_changes: set[tuple[int, str]] = set()
        prepare_for_dynamo(self)
        self._captures: dict[int, Any] = {}

    def kernel(self, number: int) -> Any:
        """Return a kernel as it was recorded, also where a helper or a value that it captures is another now."""
        kernel = self.kernels[number]
        if kernel.captures() is not self._captures.get(number):
            kernel = self.kernels[number] = jit_function(self.registry[number])
            self._captures[number] = kernel.captures()
        return kernel

    def require_known_changes(self, kernel: Any, constants_id: int, handle: Any) -> None:
        """Raise `KernellabError` if the config that a launch chose changes more than the one that was recorded."""
        key = constants_id, str(getattr(handle, "hash", ""))
        if key not in self._known_changes and constants_id in self.changes:
            require_changes(kernel, handle, self.changes[constants_id])
            self._known_changes.add(key)

    def __deepcopy__(self, memo: dict[int, Any]) -> SideTable:
        """Return the table itself: a copy of a graph launches the same kernels."""
        return self

    def extra_repr(self) -> str:
        """Return the kernels with their ids, for the text of the module."""
        return ", ".join(f"{number}: {kernel.__name__}" for number, kernel in self.kernels.items())


@torch.fx.has_side_effect
def launch(
    table: SideTable,
    kernel_id: int,
    constants_id: int,
    grid: LaunchGrid,
    arguments: Mapping[str, Any],
) -> None:
    """Launch a kernel of the side table on these arguments and the constant ones of that id.

    Of an autotuned kernel the grid is a pair for each config: the id of what it sets, and the grid that it has.
    """
    constants = table.registry.constants(constants_id)
    with marked(table.kernels[kernel_id].__name__), on_device_of(arguments):
        if not isinstance(grid[0], tuple | list):
            table.kernel(kernel_id)[grid](**arguments, **constants)
        else:
            configs = [(table.registry.constants(supplied), each) for supplied, each in grid]
            kernel = table.registry[kernel_id]
            handle = kernel[grid_for(configs)](**arguments, **constants)
            table.require_known_changes(kernel, constants_id, handle)


def launch_functional(
    table: SideTable,
    kernel_id: int,
    constants_id: int,
    grid: LaunchGrid,
    arguments: Mapping[str, Any],
    changed: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Launch a kernel on copies of ``changed``, and of all arguments in their memory; return those copies."""
    copies = [tensor.clone() if is_cloned(tensor) else layout_copy(tensor) for tensor in changed]
    pairs = list(zip(changed, copies, strict=True))
    launch(table, kernel_id, constants_id, grid, _moved(dict(arguments), pairs))
    return tuple(copies)


launch._torchdynamo_inline = launch_in_dynamo  # type: ignore[attr-defined]
launch_functional._torchdynamo_inline = launch_functional_in_dynamo  # type: ignore[attr-defined]


def window(
    base: torch.Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    offset: int = 0,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return a view of the memory of ``base``; ``offset`` counts elements of ``dtype`` from its first element."""
    if dtype is None or dtype == base.dtype:
        return base.as_strided(shape, stride, base.storage_offset() + offset)
    if 0 in shape:
        return torch.empty_strided(shape, stride, dtype=dtype, device=base.device)
    first = base.storage_offset() * base.dtype.itemsize // dtype.itemsize
    words = max(1, dtype.itemsize // base.dtype.itemsize)
    other = base.as_strided((words,), (1,), base.storage_offset()).view(dtype)  # tracers know no storages
    return other.as_strided(shape, stride, first + offset)


@torch.fx.has_side_effect
def require_shape(tensor: torch.Tensor, shape: Sequence[int], what: str) -> None:
    """Raise `UsageError` for a result of another shape than the recorded one; traced, each run asks that."""
    found, wanted = tuple(tensor.shape), tuple(shape)
    if len(found) == len(wanted) and any(map(is_open, (*found, *wanted))):
        for size, other in zip(found, wanted, strict=True):
            if size is not other:
                ask_in_runs(size == other, f"{what} gives another shape than {wanted}, which it was recorded with")
    elif problem := shape_problem(what, found, wanted):
        raise UsageError(problem)


@torch.fx.has_side_effect
def require_read(*given: Any) -> None:
    """Raise `UsageError` where Python would read other values than in the recording; see `read_problem`."""
    *tensors, _, place = given
    if is_traced(tuple(tensors), {}):
        raise UsageError(
            f"{place} reads values of a tensor, and the program holds for those alone, which torch's tracers cannot "
            "ask. Compute with the tensor in place of its value (torch.where instead of a branch), or run the program "
            "as it is."
        )
    if problem := read_problem(*given):
        raise UsageError(problem)


def read_problem(*given: Any) -> str:
    """Return what is wrong where Python would read other values than the recorded ones, which come last but the place.

    Of one tensor, its value or a list of its values is read, or as a text its contents; of two, whether they are equal.
    """
    *tensors, recorded, place = given
    if len(tensors) == 2:
        found: object = torch.equal(*tensors)
    elif isinstance(recorded, str):
        found = contents_of(tensors[0])
    else:
        found = tensors[0].tolist() if isinstance(recorded, list) else tensors[0].item()
    if repr(found) == repr(recorded):
        return ""
    return (
        f"{place} reads {found!r:.40} of a tensor for this data; it read {recorded!r:.40} when the program was "
        "recorded, and what Python made of that is fixed. Capture it again with such data, or compute with the tensor "
        "in place of its value (torch.where instead of a branch)."
    )


def shape_problem(what: str, found: tuple[int, ...], recorded: tuple[int, ...]) -> str:
    """Return what is wrong with the shape that an operation gave for other data, or ""."""
    if found == recorded:
        return ""
    return (
        f"{what} gives the shape {found} for this data; the program was recorded with {recorded}, and its other steps "
        "hold for that alone. Capture it again with such data."
    )


def layout_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the strides of ``tensor``, what lies between its elements included."""
    if tensor.numel() == 0:
        return tensor.clone()
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.as_strided((span,), (1,), tensor.storage_offset()).clone()
    return flat.as_strided(tensor.shape, tensor.stride(), 0)


def addressed(table: torch.Tensor | None, entries: Sequence[tuple[int, torch.Tensor, int]]) -> Any:
    """Return a copy of a table with addresses in tensors, a number of bytes from their start, at some of its words.

    Without a table, return the only address.
    """
    if table is None:
        return entries[0][1].data_ptr() + entries[0][2]
    copy = layout_copy(table)
    words = copy.as_strided((copy.untyped_storage().nbytes() // copy.element_size(),), (1,), 0).view(torch.int64)
    for position, tensor, offset in entries:
        words[position] = tensor.data_ptr() + offset
    return copy


def descriptor(
    base: torch.Tensor, shape: Sequence[int], strides: Sequence[int], block_shape: Sequence[int], padding: str
) -> Any:
    """Return a tensor descriptor over ``base``."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    options = {} if padding == "zero" else {"padding": padding}
    return TensorDescriptor(base, list(shape), list(strides), list(block_shape), **options)


require_shape._torchdynamo_inline = require_shape_in_dynamo  # type: ignore[attr-defined]
require_read._torchdynamo_inline = require_read_in_dynamo  # type: ignore[attr-defined]
descriptor._torchdynamo_inline = descriptor_in_dynamo  # type: ignore[attr-defined]
layout_copy._torchdynamo_inline = layout_copy_in_dynamo  # type: ignore[attr-defined]
window._torchdynamo_inline = window_in_dynamo  # type: ignore[attr-defined]


def _moved(value: Any, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """Return arguments with the memory of each first tensor replaced by that of the second; one stays one."""
    made: dict[int, Any] = {}

    def moved(part: Any) -> Any:
        if id(part) not in made:
            made[id(part)] = _part_moved(part, pairs)
        return made[id(part)]

    return mapped(value, moved)


def _part_moved(value: Any, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    if hasattr(value, "block_shape") and isinstance(getattr(value, "base", None), torch.Tensor):
        padding = getattr(value, "padding", "zero")
        return descriptor(_part_moved(value.base, pairs), value.shape, value.strides, value.block_shape, padding)
    if not isinstance(value, torch.Tensor):
        return value
    for old, new in pairs:
        if share_memory(value, old):
            begin = int(old.storage_offset()) * old.element_size() // value.element_size()
            return window(new, value.shape, value.stride(), int(value.storage_offset()) - begin, value.dtype)
    return value
