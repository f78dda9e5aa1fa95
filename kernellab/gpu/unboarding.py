"""The arguments of a launch again, made from data over memory of this process: the counterpart of `boarding`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernellab._triton.artifact import descriptor
from kernellab.packed import ArgumentSpec, DescriptorSpec, ScalarSpec, TensorSpec, TupleSpec


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
