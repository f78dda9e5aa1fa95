"""What an operation of torch was given, as its schema says, and how tensors lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from kernellab.capture.tape import Layout
from kernellab.errors import UsageError

_PLAIN = torch.Tensor.__torch_dispatch__


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


def versions_of(given: Any) -> dict[int, int]:
    """Return the version counters of the tensors among nested arguments, which grow when one is changed."""
    return {id(t): t._version for t in tensors_in(given) if not t.is_inference()}


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
