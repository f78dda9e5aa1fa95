"""The arguments of a launch again, made from data over memory of this process: the counterpart of `boarding`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernellab._triton.artifact import descriptor
from kernellab.gpu.flight import Memory, Tables
from kernellab.memory import Moves, move_addresses, moved_address, words_of
from kernellab.packed import ArgumentSpec, DescriptorSpec, ScalarSpec, TensorSpec, TupleSpec


def moves_of(memories: Sequence[Memory], tensors: Sequence[Any]) -> Moves:
    """Return where memories of another process lie in this one, as ``tensors`` of bytes."""
    pairs = zip(memories, tensors, strict=True)
    return tuple((memory.address, memory.size_bytes, tensor.data_ptr()) for memory, tensor in pairs if memory.address)


def move_tables(tables: Tables, tensors: Sequence[Any], moves: Moves) -> None:
    """Let the addresses in tables, which are copies, point to where ``moves`` says."""
    before, moved_to = -1, 0
    for storage, begin, end in sorted((v.storage, v.offset_bytes, v.offset_bytes + v.span_bytes) for v in tables.views):
        start = max(begin, moved_to) if storage == before else begin
        if start < end:  # what two views share is moved once
            move_addresses(words_of(tensors[storage][start:end]), moves)
        before, moved_to = storage, max(start, end)


def with_moved_numbers(name: str, spec: ArgumentSpec, tables: Tables, moves: Moves) -> ArgumentSpec:
    """Return an argument with the numbers in it that are addresses pointing to where ``moves`` says."""
    if isinstance(spec, TupleSpec):
        items = (with_moved_numbers(f"{name}[{i}]", item, tables, moves) for i, item in enumerate(spec.items))
        return replace(spec, items=tuple(items))
    if isinstance(spec, ScalarSpec) and name in tables.numbers and isinstance(spec.value, int):
        return ScalarSpec(moved_address(spec.value, moves))
    return spec


def argument_of(spec: ArgumentSpec, memories: Sequence[Any]) -> Any:
    """Return what a spec stands for; ``memories`` are tensors of bytes, one per storage."""
    match spec:
        case TensorSpec():
            return tensor_of(spec, memories[spec.storage])
        case DescriptorSpec():
            more = {"round_f32_to_tf32": True} if spec.round_f32_to_tf32 else {}
            base = tensor_of(spec.base, memories[spec.base.storage])
            return descriptor(base, spec.shape, spec.strides, spec.block_shape, spec.padding, **more)
        case TupleSpec():
            return tuple(argument_of(item, memories) for item in spec.items)
        case ScalarSpec():
            return spec.value
    return None


def tensor_of(spec: TensorSpec, memory: Any) -> Any:
    """Return the view of ``memory`` that a spec describes."""
    import torch  # most processes never ask

    dtype = getattr(torch, spec.dtype)
    view = torch.empty(0, dtype=dtype, device=memory.device)
    offset = memory.storage_offset() + spec.offset_bytes
    if offset % spec.itemsize:  # a storage that starts inside an element; only the address matters to the kernel
        return memory[spec.offset_bytes :]
    return view.set_(memory.untyped_storage(), offset // spec.itemsize, spec.shape, spec.strides)
