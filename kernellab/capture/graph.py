"""A program as a graph of torch.fx, which runs and which other tools of torch read.

A launch is a node that calls `kernellab.capture.graph.launch` with the id of its kernel, the id of its constant
arguments, its grid and its other arguments: ids are all that a graph can hold of a kernel. What they stand for is in
the side table, the module ``side_table`` of the graph.

Where torch traces through the graph (`torch.compile`, `make_fx`, `torch.export`), a launch is that of the bound kernel,
which knows tracers (see `kernellab._triton.tracing`). dynamo reads code and does not run it, so it cannot look into the
side table; the functions named ``..._in_dynamo`` are what it reads in place of those that the graph calls.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch.fx.passes.shape_prop import TensorMetadata

from kernellab._triton.kernel import Bound, jit_function
from kernellab._triton.tracing import DescriptorParts, held_in_dynamo, while_tracing
from kernellab.capture.node_functions import (
    copies_by_clone,
    descriptor,
    layout_copy,
    on_device_of,
    read_number,
    require_read,
    require_shape,
    share_memory,
    table_with_addresses,
    window,
)
from kernellab.capture.program_sizes import SizeNodes, number_read
from kernellab.capture.size import Number, Size
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
    map_nested,
    with_refs,
)
from kernellab.capture.tracked_tensors import is_descriptor
from kernellab.errors import KernellabError, UsageError
from kernellab.launch.calls import Grid3
from kernellab.launch.marks import mark_launch
from kernellab.registry import Registry

SIDE_TABLE = "side_table"
LaunchGrid = tuple[int, int, int] | tuple[tuple[int, tuple[int, int, int]], ...]


def graph_of(tape: Tape, table: SideTable) -> torch.fx.GraphModule:
    """Return the module that runs a program; the ``meta`` of a node has kernel, ids, grid and mutated values."""
    root = torch.nn.Module()
    graph = torch.fx.Graph()
    nodes: dict[int, Any] = {}
    for index in tape.inputs:
        nodes[index] = _with_metadata(graph.placeholder(tape.values[index].name), tape.values[index])
    if tape.launches:
        root.add_module(SIDE_TABLE, table)
        tuned = (step.use for step in tape.launches if step.use is not None and step.use.complete)
        table.changes |= {use.tuning.constants_id: use.mutated for use in tuned if use.tuning is not None}
        table.launch_ids |= {(step.use.kernel_id, *_constants_and_grid(step.use)) for step in tape.launches if step.use}
    for index, tensor in tape.constants:
        name = tape.values[index].name
        root.register_buffer(name, tensor)
        constant_node = graph.create_node("get_attr", name)
        # Each run has a copy of its own, which its steps may change.
        own_copy = graph.call_function(torch.ops.aten.lift_fresh_copy.default, (constant_node,))
        nodes[index] = _with_metadata(own_copy, tape.values[index])
    table_node = graph.create_node("get_attr", SIDE_TABLE) if tape.launches else None
    building = _Building(graph, tape, nodes, SizeNodes(graph, tape, nodes), table_node)
    for step in tape.steps:
        _add(building, step)
    graph.output({name: nodes[index] for name, index in zip(tape.output_names, tape.outputs, strict=True)})
    graph.lint()
    return torch.fx.GraphModule(root, graph, class_name="Program")


@dataclass(frozen=True, slots=True)
class _Building:
    """The state while a graph is built: nodes of values, sizes, the side table, and the descriptors so far."""

    graph: torch.fx.Graph
    tape: Tape
    nodes: dict[int, Any]
    sizes: SizeNodes
    table: Any
    descriptors: dict[TapeDescriptor, Any] = field(default_factory=dict)


def _add(building: _Building, step: Step) -> None:
    graph, tape, nodes, sizes = building.graph, building.tape, building.nodes, building.sizes
    node = _step_node(building, step)
    node.meta["mutates"] = tuple(tape.names(step.mutated))
    node.meta["place"] = step.place
    if step.use is not None:
        use = step.use
        node._rename(use.kernel.partition("@")[0])
        node.meta.update(kernel=use.kernel, kernel_id=use.kernel_id, constants_id=use.constants_id)
        node.meta.update(launch_id=use.launch_id, grid=tuple(map(int, use.grid)))
    for position, index in enumerate(step.results):
        if index >= 0:
            value = tape.values[index]
            result_node = graph.call_function(operator.getitem, (node, position)) if step.several else node
            result_node._rename(value.name)
            nodes[index] = _with_metadata(result_node, value)
    sizes.take_number(step, node)
    if step.has_dynamic_shape:
        sizes.measure_results(step)
        for index in step.results:
            if index >= 0:
                shape = sizes.with_nodes(tape.values[index].layout.shape)
                graph.call_function(require_shape, (nodes[index], shape, step.words))


def _step_node(building: _Building, step: Step) -> torch.fx.Node:
    graph, nodes, sizes, descriptors = building.graph, building.nodes, building.sizes, building.descriptors

    def part_node(part: Any) -> Any:
        """Return a descriptor or an address as a node, since a graph holds no such value; equal descriptors are one."""
        replaced = with_refs(part, nodes)
        if isinstance(part, TapeDescriptor):
            layout = (sizes.with_nodes(part.shape), sizes.with_nodes(part.strides), part.block_shape, part.padding)
            if part not in descriptors:
                descriptors[part] = graph.call_function(descriptor, (replaced.base, *layout))
            return descriptors[part]
        if isinstance(part, Addresses):
            return graph.call_function(table_with_addresses, (replaced.table, list(replaced.entries)))
        return sizes.node(part) if isinstance(part, Size | Number) else replaced

    def argument_node(value: Any) -> Any:
        # The code of a graph cannot import the class of a named tuple, so that is a node of its own.
        return map_nested(value, part_node, lambda cls, members: graph.call_function(cls, tuple(members)))

    if step.operation == LAUNCH:
        assert step.use is not None
        ids_and_grid = step.use.kernel_id, *argument_node(_constants_and_grid(step.use))
        launch_arguments = (building.table, *ids_and_grid, argument_node(dict(step.kwargs)))
        if step.functional:
            return graph.call_function(launch_functional, (*launch_arguments, [nodes[i] for i in step.mutated]))
        return graph.call_function(launch, launch_arguments)
    if step.operation == READ:
        return _read_node(building, step)
    args, kwargs = argument_node(step.args), argument_node(dict(step.kwargs))
    if step.operation == WINDOW and args[4] is not None:
        args = (*args[:4], getattr(torch, args[4]))
    own: dict[str, Callable[..., Any]] = {WINDOW: window, COPY: layout_copy}
    target = own.get(step.operation) or operation_named(step.operation)
    return graph.call_function(target, args, kwargs)


def _read_node(building: _Building, step: Step) -> torch.fx.Node:
    """Return the node of a read: it gives a number that the program takes over, or requires the recorded value."""
    *tensors, recorded = with_refs(step.args, building.nodes)
    if number_read(step) is None:
        return building.graph.call_function(require_read, (*tensors, recorded, step.place))
    return building.graph.call_function(read_number, (*tensors, step.place))


def _constants_and_grid(use: KernelUse) -> tuple[int, Any]:
    """Return the id of the constants of a launch and its grid, or for an autotuned kernel the grid of each config."""
    if use.tuning is None:
        return use.constants_id, use.grid
    return use.tuning.constants_id, tuple((config.supplied_id, config.grid) for config in use.tuning.configs)


def operation_named(name: str) -> Any:
    """Return the operation with a name such as ``aten.mm.default``; raise `UsageError` if it is gone."""
    operation: Any = torch.ops
    try:
        for part in name.split("."):
            operation = getattr(operation, part)
    except AttributeError as exc:
        raise UsageError(
            f"The program calls {name}, an operator that is not registered any more; define it again."
        ) from exc
    return operation


def _with_metadata(node: torch.fx.Node, value: TapeValue) -> torch.fx.Node:
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


class SideTable(torch.nn.Module):
    """The kernels and constant arguments behind the ids in a graph.

    ``kernels`` has the launched functions by id; for an autotuned kernel, the function under the tuner. ``launch_ids``
    are the ids and grids of the launches of its graph. ``constants``, and ``tuned`` with the autotuned kernels, are
    filled when dynamo reads the graph. ``changes`` are the arguments that autotuned launches change, by the ids of
    their constants.
    """

    def __init__(self, registry: Registry, kernels: Mapping[int, Any]) -> None:
        super().__init__()
        self.registry = registry
        self.kernels = dict(kernels)
        self.launch_ids: set[tuple[int, int, Any]] = set()
        self.constants: dict[int, dict[str, Any]] = {}
        self.tuned: dict[int, Any] = {}
        self.changes: dict[int, frozenset[str]] = {}
        self._known_changes: set[tuple[int, str]] = set()
        prepare_for_dynamo(self)
        self._captures: dict[int, Any] = {}

    def kernel(self, number: int) -> Any:
        """Return a kernel as it was recorded, even if a helper or a value that it captures has changed."""
        kernel = self.kernels[number]
        if kernel.captures() is not self._captures.get(number):
            kernel = self.kernels[number] = jit_function(self.registry[number])
            self._captures[number] = kernel.captures()
        return kernel

    def require_known_changes(self, kernel: Bound, constants_id: int, handle: Any) -> None:
        """Raise `KernellabError` if the config that a launch chose changes more than the one that was recorded.

        The steps of a program, and what a functional one copies, follow from what that changed.
        """
        key = constants_id, str(getattr(handle, "hash", ""))
        if key in self._known_changes or constants_id not in self.changes:
            return
        effects = kernel.runtime.effects_of(handle)
        others = set() if effects is None else effects.mutated - self.changes[constants_id]
        if others:
            raise KernellabError(
                f"{jit_function(kernel).__name__} was launched with a config that changes {', '.join(sorted(others))}, "
                "which the config of the recording does not; capture the program again with this one, or give all "
                "configs the same effects."
            )
        self._known_changes.add(key)

    def __deepcopy__(self, memo: dict[int, Any]) -> SideTable:
        """Return the table itself: a copy of a graph launches the same kernels."""
        return self

    def extra_repr(self) -> str:
        """Return the kernels with their ids, for the text of the module."""
        return ", ".join(f"{number}: {kernel.__name__}" for number, kernel in self.kernels.items())


def prepare_for_dynamo(table: Any) -> None:
    """Give a side table the functions that dynamo calls while it traces; it passes no objects to such functions."""
    table_ref = weakref.ref(table)

    def bring_up_to_date() -> int:
        """Put all kernels as recorded, and their constants, into plain dictionaries, which dynamo can read."""
        side_table: Any = table_ref()
        for kernel_id, constants_id, grid in side_table.launch_ids:
            side_table.constants[constants_id] = held_in_dynamo(side_table.registry.constants(constants_id))
            if isinstance(grid[0], int):
                side_table.kernel(kernel_id)
                continue
            side_table.tuned[kernel_id] = side_table.registry[kernel_id]
            side_table.constants |= {supplied: side_table.registry.constants(supplied) for supplied, _ in grid}
        return len(side_table.launch_ids)

    def number() -> int:
        """Return the number of the table in that of torch, which does not keep it alive."""
        from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

        torch.compiler.allow_in_graph(_functional_in_graph)  # type: ignore[no-untyped-call]
        return int(kernel_side_table.add_constant_args({"table": table_ref}))

    table.bring_up_to_date = while_tracing(bring_up_to_date)
    table.side_table_number = while_tracing(number)


@torch.fx.has_side_effect
def launch(table: SideTable, kernel_id: int, constants_id: int, grid: LaunchGrid, arguments: Mapping[str, Any]) -> None:
    """Launch a kernel of the side table on these arguments and the constant ones of that id.

    Of an autotuned kernel the grid is a pair for each config: the id of what it sets, and the grid that it has.
    """
    constants = table.registry.constants(constants_id)
    with mark_launch(table.kernels[kernel_id].__name__), on_device_of(arguments):
        if not isinstance(grid[0], tuple | list):
            table.kernel(kernel_id)[grid](**arguments, **constants)
        else:
            configs = [(table.registry.constants(supplied), config_grid) for supplied, config_grid in grid]
            kernel = table.registry[kernel_id]
            handle = kernel[grid_for(configs)](**arguments, **constants)
            table.require_known_changes(kernel, constants_id, handle)


def launch_in_dynamo(
    table: Any, kernel_id: int, constants_id: int, grid: LaunchGrid, arguments: dict[str, Any]
) -> None:
    """Stand for `kernellab.capture.graph.launch`."""
    table.bring_up_to_date()
    constants = table.constants[constants_id]
    if not isinstance(grid[0], tuple | list):
        table.kernels[kernel_id][grid](**arguments, **constants)
    else:
        configs = [(table.constants[supplied], config_grid) for supplied, config_grid in grid]
        table.tuned[kernel_id][grid_for(configs)](**arguments, **constants)


def grid_for(configs: Sequence[tuple[Mapping[str, Any], Grid3]]) -> Grid3 | Callable[[Mapping[str, Any]], Grid3]:
    """Return the grid of a launch; where configs have different grids, as a function of the arguments by name."""
    first = configs[0][1]
    if all(type(extent) is int for _, grid in configs for extent in grid) and all(grid == first for _, grid in configs):
        return first

    def grid_of(meta: Mapping[str, Any]) -> Grid3:
        for supplied, grid in configs:
            if all(meta[name] == value for name, value in supplied.items()):
                return grid
        chosen = ", ".join(f"{name}={meta[name]}" for name in configs[0][0])
        raise KernellabError(f"The program has no grid for {chosen}, which it was not recorded with; capture it again.")

    return grid_of


def launch_functional(
    table: SideTable,
    kernel_id: int,
    constants_id: int,
    grid: LaunchGrid,
    arguments: Mapping[str, Any],
    changed: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Launch a kernel on copies of ``changed``, and of all arguments in their memory; return those copies."""
    copies = [tensor.clone() if copies_by_clone(tensor) else layout_copy(tensor) for tensor in changed]
    pairs = list(zip(changed, copies, strict=True))
    launch(table, kernel_id, constants_id, grid, _move_arguments(dict(arguments), pairs))
    return tuple(copies)


def launch_functional_in_dynamo(table: Any, *launch_arguments: Any) -> Any:
    """Stand for `kernellab.capture.graph.launch_functional`."""
    return _functional_in_graph(table.side_table_number(), *launch_arguments)


def _functional_in_graph(
    number: int, kernel_id: int, constants_id: int, grid: LaunchGrid, arguments: Mapping[str, Any], changed: Any
) -> Any:
    """Launch a kernel on copies: a node of dynamo's graph, which torch traces through later on."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    table = kernel_side_table.get_constant_args(number)["table"]()
    plain = {n: value.descriptor() if isinstance(value, DescriptorParts) else value for n, value in arguments.items()}
    return launch_functional(table, kernel_id, constants_id, grid, plain, changed)


def _move_arguments(value: Any, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """Return arguments with the memory of each first tensor replaced by that of the second; one object stays one."""
    new_by_id: dict[int, Any] = {}

    def move_part(part: Any) -> Any:
        if id(part) not in new_by_id:
            new_by_id[id(part)] = _move_part(part, pairs)
        return new_by_id[id(part)]

    return map_nested(value, move_part)


def _move_part(value: Any, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    if is_descriptor(value):
        padding = getattr(value, "padding", "zero")
        return descriptor(_move_part(value.base, pairs), value.shape, value.strides, value.block_shape, padding)
    if not isinstance(value, torch.Tensor):
        return value
    for old, new in pairs:
        if share_memory(value, old):
            begin = int(old.storage_offset()) * old.element_size() // value.element_size()
            return window(new, value.shape, value.stride(), int(value.storage_offset()) - begin, value.dtype)
    return value


launch._torchdynamo_inline = launch_in_dynamo  # type: ignore[attr-defined]
launch_functional._torchdynamo_inline = launch_functional_in_dynamo  # type: ignore[attr-defined]
