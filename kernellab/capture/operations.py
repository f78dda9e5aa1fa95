"""What an operation of torch was given, as its schema says, and how tensors lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kernellab.capture.tape import Layout
from kernellab.errors import UsageError

_PLAIN = torch.Tensor.__torch_dispatch__

# These change arguments that their schema does not mark, if the argument ``training`` is true.
_UNMARKED = {
    "aten.native_batch_norm.default": ("running_mean", "running_var"),
    "aten.cudnn_batch_norm.default": ("running_mean", "running_var"),
    "aten.miopen_batch_norm.default": ("running_mean", "running_var"),
}


def layout_of(tensor: Any) -> Layout:
    """Return how a tensor lies in its storage.

    Raises:
        UsageError: it is sparse, quantized, or a tensor of another kind.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized or type(tensor).__torch_dispatch__ is not _PLAIN:
        kind = type(tensor).__name__ if tensor.layout is torch.strided else str(tensor.layout)
        raise UsageError(f"A {kind} tensor takes part in the block; a program can hold plain strided tensors only.")
    dtype = str(tensor.dtype).removeprefix("torch.")
    layout = tuple(tensor.shape), tuple(tensor.stride())
    return Layout(dtype, tensor.element_size(), *layout, tensor.storage_offset(), str(tensor.device))


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors among nested arguments."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for member in value:
            yield from tensors_in(member)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def version_of(tensor: Any) -> int | None:
    """Return the version counter of a tensor, which grows when it is changed; one of inference mode has none."""
    return None if tensor.is_inference() else int(tensor._version)


def versions_of(given: Any) -> dict[int, int]:
    """Return the version counters of the tensors among nested arguments."""
    return {id(t): version for t in tensors_in(given) if (version := version_of(t)) is not None}


def is_of_torch(operation: str) -> bool:
    """Tell whether an operation is one of torch itself, by its name such as ``aten.mm.default``."""
    return operation.partition(".")[0] in {"aten", "prims", "prim"}


def has_open_shape(func: Any, dtypes: Sequence[str]) -> bool:
    """Tell whether values may decide on the shape of a result; ``dtypes`` are those of all arguments but the first.

    For an index they do if it is a mask; of operations that are not torch's own, nothing is known.
    """
    if not is_of_torch(str(func)):
        return True
    is_index = func is torch.ops.aten.index.Tensor
    return torch.Tag.dynamic_output_shape in func.tags and (not is_index or bool({"bool", "uint8"} & set(dtypes)))


def written_in(func: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """Yield the arguments that an operation changes, by its schema."""
    unmarked = _UNMARKED.get(str(func), ())
    for position, parameter in enumerate(func._schema.arguments):
        info = parameter.alias_info
        if (info is not None and info.is_write) or parameter.name in unmarked:
            yield args[position] if position < len(args) else kwargs.get(parameter.name)


def given_for(func: Any, args: Any, kwargs: Any, name: str) -> Any:
    """Return what an operation was given for a parameter, or its default; None where it has no such parameter."""
    for position, parameter in enumerate(func._schema.arguments):
        if parameter.name == name:
            default = parameter.default_value if parameter.has_default_value() else None
            return args[position] if position < len(args) else kwargs.get(name, default)
    return None


def with_dtype(func: Any, kwargs: dict[str, Any], outputs: list[Any]) -> dict[str, Any]:
    """Return the options of an operation that makes a tensor from nothing, with the dtype that was the default."""
    names = {parameter.name for parameter in func._schema.arguments}
    tensors = any("Tensor" in str(parameter.type) for parameter in func._schema.arguments)
    if "dtype" in names and not tensors and kwargs.get("dtype") is None and isinstance(outputs[0], torch.Tensor):
        return {**kwargs, "dtype": outputs[0].dtype}
    return kwargs
