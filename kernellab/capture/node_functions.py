"""Functions that the nodes of a program's graph call, but for launches: views, copies, and checks in a run.

dynamo reads code and does not run it; where it cannot read that of a function, one named ``..._in_dynamo`` stands in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx

from kernellab._triton.tracing import DescriptorParts, is_traced, knows_descriptors, while_tracing
from kernellab.capture.size import guard_problem
from kernellab.capture.tape import members_of
from kernellab.capture.tracked_tensors import contents_of
from kernellab.errors import UsageError


def window(
    base: torch.Tensor, shape: Sequence[int], stride: Sequence[int], offset: int = 0, dtype: torch.dtype | None = None
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


def window_in_dynamo(
    base: torch.Tensor, shape: Sequence[int], stride: Sequence[int], offset: int = 0, dtype: torch.dtype | None = None
) -> Any:
    """Stand for `window`: dynamo does not know where a tensor begins in its storage."""
    _allow_layouts()
    return _window_in_graph(base, shape, stride, offset, dtype)


def layout_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the strides of ``tensor``, what lies between its elements included."""
    if tensor.numel() == 0:
        return tensor.clone()
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.as_strided((span,), (1,), tensor.storage_offset()).clone()
    return flat.as_strided(tensor.shape, tensor.stride(), 0)


def layout_copy_in_dynamo(tensor: torch.Tensor) -> Any:
    """Stand for `layout_copy`, for the same reason."""
    _allow_layouts()
    return _layout_copy_in_graph(tensor)


@while_tracing
def _allow_layouts() -> bool:
    for function in (_window_in_graph, _layout_copy_in_graph):
        torch.compiler.allow_in_graph(function)  # type: ignore[no-untyped-call]
    return True


def _window_in_graph(*given: Any) -> torch.Tensor:
    return window(*given)


def _layout_copy_in_graph(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone() if copies_by_clone(tensor) else layout_copy(tensor)


def table_with_addresses(table: torch.Tensor | None, entries: Sequence[tuple[int, torch.Tensor, int]]) -> Any:
    """Return a copy of a table with addresses of tensors at some of its words; without a table, the only address."""
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


def descriptor_in_dynamo(
    base: torch.Tensor, shape: Sequence[int], strides: Sequence[int], block_shape: Sequence[int], padding: str
) -> Any:
    """Stand for `descriptor`; dynamo knows those of a whole tensor."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    if knows_descriptors():
        if tuple(base.shape) != tuple(shape) or tuple(base.stride()) != tuple(strides) or padding != "zero":
            raise UsageError("torch.compile takes descriptors of whole tensors, padded with zeros, alone.")
        return TensorDescriptor.from_tensor(base, list(block_shape))
    return DescriptorParts(base, list(shape), list(strides), list(block_shape), padding)


@torch.fx.has_side_effect
def require_shape(tensor: torch.Tensor, shape: Sequence[int], what: str) -> None:
    """Raise `UsageError` for a result of another shape than the recorded one; a trace gets the check for each run."""
    current, wanted = tuple(tensor.shape), tuple(shape)
    if len(current) == len(wanted) and any(map(is_data_dependent, (*current, *wanted))):
        for size, other in zip(current, wanted, strict=True):
            if size is not other:
                check_in_runs(size == other, f"{what} gives another shape than {wanted}, which it was recorded with")
    elif problem := shape_problem(what, current, wanted):
        raise UsageError(problem)


def require_shape_in_dynamo(tensor: torch.Tensor, shape: Sequence[int], what: str) -> None:
    """Stand for `require_shape`: data decides the shape, so only a run can check it."""
    for size, wanted in zip(tensor.shape, shape, strict=True):
        torch._check(size == wanted)  # type: ignore[no-untyped-call]


def shape_problem(what: str, shape: tuple[int, ...], recorded: tuple[int, ...]) -> str:
    """Return the problem where an operation gives another shape than the recorded one, or ""."""
    if shape == recorded:
        return ""
    return (
        f"{what} gives the shape {shape} for this data; the program was recorded with {recorded}, and its other steps "
        "hold for that alone. Capture it again with such data."
    )


class ChangedValueError(UsageError):
    """Raised where a run meets other data than a program holds for: another value that Python reads, a failed guard."""


@torch.fx.has_side_effect
def require_read(*given: Any) -> None:
    """Raise `UsageError` where Python would read other values than in the recording; see `read_problem`."""
    *tensors, _, place = given
    _refuse_traced_read(tensors, place)
    if problem := read_problem(*given):
        raise ChangedValueError(problem)


def _refuse_traced_read(tensors: Sequence[Any], place: str) -> None:
    if is_traced(tuple(tensors), {}):
        raise UsageError(
            f"{place} reads values of a tensor, and the program is valid for those values only, which torch's tracers "
            "cannot check. Compute with the tensor instead of its value (torch.where instead of a branch), or run the "
            "program as it is."
        )


@torch.fx.has_side_effect
def read_number(tensor: torch.Tensor, place: str) -> int | float:
    """Return the number that a tensor holds in this run."""
    _refuse_traced_read([tensor], place)
    number: int | float = tensor.item()
    return number


def require_read_in_dynamo(*given: Any) -> None:
    """Stand for `require_read`."""
    *_, place = given
    raise RuntimeError(  # of Python's own, as dynamo knows no others
        f"{place} reads values of a tensor, and the program is valid for those values only, which torch.compile cannot "
        "check."
    )


def read_problem(*given: Any) -> str:
    """Return the problem where Python would read other values than the recorded ones, or "".

    ``given`` are the tensors, the recorded value and the place. Of one tensor, the recorded value is its value, a list
    of its values, or as a text the hash of its contents; of two, whether they are equal.
    """
    *tensors, recorded, place = given
    if len(tensors) == 2:
        current: object = torch.equal(*tensors)
    elif isinstance(recorded, str):
        current = contents_of(tensors[0])
    else:
        current = tensors[0].tolist() if isinstance(recorded, list) else tensors[0].item()
    if repr(current) == repr(recorded):
        return ""
    return (
        f"{place} reads {current!r:.40} of a tensor for this data; it read {recorded!r:.40} when the program was "
        "recorded, and what Python computed from it is fixed. Capture it again with such data, or compute with the "
        "tensor instead of its value (torch.where instead of a branch)."
    )


@torch.fx.has_side_effect
def require_guard(holds: Any, words: str) -> None:
    """Raise `UsageError` where a guard does not hold; a trace gets the check of data-dependent sizes for each run."""
    if is_data_dependent(holds):
        check_in_runs(holds, guard_problem(words))
    elif not holds:
        raise ChangedValueError(guard_problem(words))


def require_guard_in_dynamo(holds: Any, words: str) -> None:
    """Stand for `require_guard`, also for data-dependent sizes."""
    torch._check(holds)  # type: ignore[no-untyped-call]


def is_data_dependent(size: Any) -> bool:
    """Whether a traced number depends on data, so that its value is unknown while torch traces."""
    return isinstance(size, torch.SymInt | torch.SymBool) and not size.node.has_hint()


def check_in_runs(holds: Any, words: str) -> None:
    """Add a condition on sizes to a trace; each run checks it, and fails with these words."""
    if is_data_dependent(holds):
        torch._check(holds)  # type: ignore[no-untyped-call]
    if isinstance(holds, torch.SymBool):
        torch.ops.aten._assert_scalar.default(holds, words)
    elif not holds:
        raise UsageError(words)


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors lie in one storage."""
    if one is other:
        return True
    if is_traced((one, other), {}):
        return bool(torch._C._is_alias_of(one, other))  # type: ignore[attr-defined]
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def copies_by_clone(tensor: torch.Tensor) -> bool:
    """Whether to copy a tensor by ``clone``: while torch traces, as its functionalisation knows no views of copies.

    It keeps the strides of a tensor that is dense and has no two elements at one place.
    """
    return is_traced((tensor,), {}) and torch.ops.aten.is_non_overlapping_and_dense(tensor)


@contextmanager
def on_device_of(arguments: object) -> Iterator[None]:
    """Launch on the device of the first tensor inside a with statement.

    Where others lie on other GPUs, the streams of both wait for each other, before and after.
    """
    tensors = [getattr(member, "base", member) for member in members_of(arguments)]
    devices = list(dict.fromkeys(t.device for t in tensors if isinstance(t, torch.Tensor) and t.is_cuda))
    if not devices or is_traced(tuple(tensors), {}):
        yield
        return
    with torch.cuda.device(devices[0]):
        wait_for(devices[:1], devices[1:])
        yield
        wait_for(devices[1:], devices[:1])


def wait_for(waiting: Sequence[Any], others: Sequence[Any]) -> None:
    """Make the current streams of devices wait for the current streams of others."""
    for device in waiting:
        for other in others:
            torch.cuda.current_stream(device).wait_stream(torch.cuda.current_stream(other))


window._torchdynamo_inline = window_in_dynamo  # type: ignore[attr-defined]
layout_copy._torchdynamo_inline = layout_copy_in_dynamo  # type: ignore[attr-defined]
descriptor._torchdynamo_inline = descriptor_in_dynamo  # type: ignore[attr-defined]
require_shape._torchdynamo_inline = require_shape_in_dynamo  # type: ignore[attr-defined]
read_number._torchdynamo_inline = require_read_in_dynamo  # type: ignore[attr-defined]
require_read._torchdynamo_inline = require_read_in_dynamo  # type: ignore[attr-defined]
require_guard._torchdynamo_inline = require_guard_in_dynamo  # type: ignore[attr-defined]
