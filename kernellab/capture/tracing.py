"""The launches of a program's graph where torch traces through that: `torch.compile`, `make_fx`, `torch.export`.

A launch is that of the bound kernel, which knows tracers (see `kernellab._triton.tracing`). dynamo reads code and does
not run it, so it cannot look into the side table; what stands here is what it reads in place of the two functions that
the graph calls.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernellab._triton.tracing import DescriptorParts, held_in_dynamo, is_traced, knows_descriptors, while_tracing
from kernellab.capture.tuned_launch import grid_for
from kernellab.errors import UsageError

LaunchGrid = tuple[int, int, int] | tuple[tuple[int, tuple[int, int, int]], ...]


def launch_in_dynamo(
    table: Any, kernel_id: int, constants_id: int, grid: LaunchGrid, arguments: dict[str, Any]
) -> None:
    """Stand for `kernellab.capture.graph.launch`."""
    table.bring_up_to_date()
    constants = table.constants[constants_id]
    if not isinstance(grid[0], tuple | list):
        table.kernels[kernel_id][grid](**arguments, **constants)
    else:
        configs = [(table.constants[supplied], each) for supplied, each in grid]
        table.tuned[kernel_id][grid_for(configs)](**arguments, **constants)


def launch_functional_in_dynamo(
    table: Any,
    kernel_id: int,
    constants_id: int,
    grid: LaunchGrid,
    arguments: dict[str, Any],
    changed: list[torch.Tensor],
) -> Any:
    """Stand for `kernellab.capture.graph.launch_functional`."""
    return _functional_in_graph(table.side_table_number(), kernel_id, constants_id, grid, arguments, changed)


def descriptor_in_dynamo(
    base: torch.Tensor, shape: Sequence[int], strides: Sequence[int], block_shape: Sequence[int], padding: str
) -> Any:
    """Stand for `kernellab.capture.graph.descriptor`; dynamo knows those of a whole tensor."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    if knows_descriptors():
        if tuple(base.shape) != tuple(shape) or tuple(base.stride()) != tuple(strides) or padding != "zero":
            raise UsageError("torch.compile takes descriptors of whole tensors, padded with zeros, alone.")
        return TensorDescriptor.from_tensor(base, list(block_shape))
    return DescriptorParts(base, list(shape), list(strides), list(block_shape), padding)


def window_in_dynamo(
    base: torch.Tensor, shape: Sequence[int], stride: Sequence[int], offset: int = 0, dtype: torch.dtype | None = None
) -> Any:
    """Stand for `kernellab.capture.graph.window`: dynamo does not know where a tensor begins in its storage."""
    _allow_layouts()
    return _window_in_graph(base, shape, stride, offset, dtype)


def layout_copy_in_dynamo(tensor: torch.Tensor) -> Any:
    """Stand for `kernellab.capture.graph.layout_copy`, for the same reason."""
    _allow_layouts()
    return _layout_copy_in_graph(tensor)


def require_shape_in_dynamo(tensor: torch.Tensor, shape: Sequence[int], what: str) -> None:
    """Stand for `kernellab.capture.graph.require_shape`: data decides the shape, so only a run can ask it."""
    for size, wanted in zip(tensor.shape, shape, strict=True):
        torch._check(size == wanted)  # type: ignore[no-untyped-call]


def require_guard_in_dynamo(holds: Any, words: str) -> None:
    """Stand for `kernellab.capture.size_nodes.require_guard`, also for sizes that data decides."""
    torch._check(holds)  # type: ignore[no-untyped-call]


def require_read_in_dynamo(*given: Any) -> None:
    """Stand for `kernellab.capture.graph.require_read`."""
    *_, place = given
    raise RuntimeError(  # of Python's own, as dynamo knows no others
        f"{place} reads values of a tensor, and the program holds for those alone, which torch.compile cannot ask."
    )


def is_open(size: Any) -> bool:
    """Tell whether torch traces a number that data decides, so that no question for it has an answer yet."""
    return isinstance(size, torch.SymInt | torch.SymBool) and not size.node.has_hint()


def ask_in_runs(holds: Any, words: str) -> None:
    """Add to what torch traces that a condition on sizes holds; each run asks it, and fails with these words."""
    if is_open(holds):
        torch._check(holds)  # type: ignore[no-untyped-call]
    if isinstance(holds, torch.SymBool):
        torch.ops.aten._assert_scalar.default(holds, words)
    elif not holds:
        raise UsageError(words)


@while_tracing
def _allow_layouts() -> bool:
    for function in (_window_in_graph, _layout_copy_in_graph):
        torch.compiler.allow_in_graph(function)  # type: ignore[no-untyped-call]
    return True


def _window_in_graph(*given: Any) -> torch.Tensor:
    from kernellab.capture.graph import window

    return window(*given)


def _layout_copy_in_graph(tensor: torch.Tensor) -> torch.Tensor:
    from kernellab.capture.graph import layout_copy

    return tensor.clone() if is_cloned(tensor) else layout_copy(tensor)


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors lie in one storage; tensors without contents have no addresses that would tell."""
    if one is other:
        return True
    if is_traced((one, other), {}):
        return bool(torch._C._is_alias_of(one, other))  # type: ignore[attr-defined]
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def is_cloned(tensor: torch.Tensor) -> bool:
    """Tell whether a copy is made by ``clone``: where torch traces, whose functionalisation knows no views of copies.

    It keeps the strides where no elements share a place and none lies between them.
    """
    return is_traced((tensor,), {}) and torch.ops.aten.is_non_overlapping_and_dense(tensor)


def prepare_for_dynamo(table: Any) -> None:
    """Give a side table the functions that dynamo calls while it traces; it passes no objects to such functions."""
    held = weakref.ref(table)

    def bring_up_to_date() -> int:
        """Put all kernels as they were recorded, and their constants, into plain dictionaries, which dynamo reads."""
        found: Any = held()
        for kernel_id, constants_id, grid in found.launched:
            found.constants[constants_id] = held_in_dynamo(found.registry.constants(constants_id))
            if isinstance(grid[0], int):
                found.kernel(kernel_id)
                continue
            found.tuned[kernel_id] = found.registry[kernel_id]
            found.constants |= {supplied: found.registry.constants(supplied) for supplied, _ in grid}
        return len(found.launched)

    def number() -> int:
        """Return the number of the table in that of torch, which does not keep it alive."""
        from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

        torch.compiler.allow_in_graph(_functional_in_graph)  # type: ignore[no-untyped-call]
        return int(kernel_side_table.add_constant_args({"table": held}))

    table.bring_up_to_date = while_tracing(bring_up_to_date)
    table.side_table_number = while_tracing(number)


def _functional_in_graph(
    number: int,
    kernel_id: int,
    constants_id: int,
    grid: LaunchGrid,
    arguments: Mapping[str, Any],
    changed: Sequence[torch.Tensor],
) -> Any:
    """Launch a kernel on copies: a node of dynamo's graph, which torch traces through later on."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    from kernellab.capture.graph import launch_functional

    table = kernel_side_table.get_constant_args(number)["table"]()
    given = {n: value.built() if isinstance(value, DescriptorParts) else value for n, value in arguments.items()}
    return launch_functional(table, kernel_id, constants_id, grid, given, changed)
