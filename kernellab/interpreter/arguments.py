"""The arguments of a launch as what an interpreted kernel expects."""

from __future__ import annotations

import inspect
import re
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream
from triton.runtime.jit import _normalize_ty

from kernellab.errors import LaunchError
from kernellab.interpreter.regions import MemoryRegion
from kernellab.interpreter.values import Handle, numpy_dtype
from kernellab.launch.arguments import (
    ArgumentSpec,
    DescriptorSpec,
    DtypeSpec,
    Launch,
    ScalarSpec,
    TensorSpec,
    TupleSpec,
    tensors_of,
)


def kernel_arguments(
    python: Any, launch: Launch, regions: Mapping[int, MemoryRegion], constants: Mapping[str, object]
) -> dict[str, Any]:
    """Return the arguments of a kernel by name. ``constants`` are values of constexprs, as they are."""
    pointers = {region.name: region for region in regions.values()}
    signature = inspect.signature(python)
    specs = dict(launch.arguments)
    values: dict[str, Any] = {}
    for name, spec in launch.arguments:
        if name in signature.parameters:
            parameter = signature.parameters[name]
            if tensors_of(name, spec) and is_constexpr(parameter):
                raise LaunchError(f"{name} is a tl.constexpr parameter of {python.__name__} and got a tensor.")
            values[name] = _constant(spec) if is_constexpr(parameter) else _value(name, spec, parameter, pointers)
    values |= {name: value for name, value in constants.items() if name in signature.parameters}
    for name, parameter in signature.parameters.items():
        if name in values or name in specs:
            continue
        if parameter.default is inspect.Parameter.empty:
            raise LaunchError(f"{python.__name__} lacks a value for its parameter {name}.")
        default = parameter.default.value if isinstance(parameter.default, tl.constexpr) else parameter.default
        values[name] = default if is_constexpr(parameter) else _value(name, ScalarSpec(default), parameter, pointers)
    return values


def is_constexpr(parameter: inspect.Parameter) -> bool:
    """Tell whether a parameter is annotated as ``tl.constexpr``."""
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return False
    return "constexpr" in str(annotation if isinstance(annotation, str) else _normalize_ty(annotation))


def _constant(spec: ArgumentSpec) -> Any:
    if isinstance(spec, ScalarSpec):
        return spec.value
    if isinstance(spec, DtypeSpec):
        return tl.dtype(spec.name)
    assert isinstance(spec, TupleSpec)
    return _tuple(spec, [_constant(item) for item in spec.items])


def _value(name: str, spec: ArgumentSpec, parameter: inspect.Parameter, pointers: Mapping[str, MemoryRegion]) -> Any:
    if isinstance(spec, TensorSpec):
        return _pointer(spec, pointers[name])
    if isinstance(spec, DescriptorSpec):
        return _descriptor(spec, pointers[name])
    if isinstance(spec, TupleSpec):
        items = enumerate(spec.items)
        return _tuple(spec, [_value(f"{name}[{i}]", item, parameter, pointers) for i, item in items])
    if isinstance(spec, ScalarSpec) and isinstance(spec.value, int | float):
        return scalar(spec.value, parameter.annotation)
    return _constant(spec)


def _tuple(spec: TupleSpec, items: list[Any]) -> Any:
    if spec.fields is None:
        return tuple(items)
    return namedtuple(spec.type_name, spec.fields)(*items)


def _pointer(spec: TensorSpec, region: MemoryRegion) -> Any:
    dtype = tl.str_to_ty(f"*{spec.dtype}", None)
    return tl.tensor(Handle(np.array([region.start], np.uint64), dtype), dtype)


def scalar(value: float, annotation: Any = inspect.Parameter.empty) -> Any:
    """Return a run-time number as a kernel sees it: of its annotated type, else bool, i32, i64, u64 or fp32."""
    name = _annotated(annotation)
    if name is None:
        name = _default_type(value)
    dtype = tl.str_to_ty(name, None)
    return tl.tensor(Handle(np.array([value]).astype(numpy_dtype(dtype)), dtype), dtype)


def _annotated(annotation: Any) -> str | None:
    if annotation is inspect.Parameter.empty:
        return None
    name = str(annotation if isinstance(annotation, str) else _normalize_ty(annotation)).removeprefix("tl.")
    short = re.sub(r"^[a-z]+(?=\d)", lambda kind: _SHORT.get(kind[0], kind[0]), name)
    return short if short in _TYPES else None


def _default_type(value: float) -> str:
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, float):
        return "fp32"
    if -(2**31) <= value < 2**31:
        return "i32"
    if -(2**63) <= value < 2**63:
        return "i64"
    if value < 2**64:
        return "u64"
    raise LaunchError(f"The integer {value} does not fit into 64 bits.")


_TYPES = frozenset(["i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "fp16", "bf16", "fp32", "fp64"])
_SHORT = {"int": "i", "uint": "u", "float": "fp", "bfloat": "bf"}


def _descriptor(spec: DescriptorSpec, region: MemoryRegion) -> Any:
    strides = [scalar(stride) for stride in spec.strides[:-1]]
    descriptor = upstream.interpreter_semantic.make_tensor_descriptor(
        base=_pointer(spec.base, region),
        shape=[scalar(size) for size in spec.shape],
        strides=[*strides, tl.constexpr(spec.strides[-1])],
        block_shape=[tl.constexpr(size) for size in spec.block_shape],
        padding_option=spec.padding,
    )
    descriptor.handle.round_f32_to_tf32 = spec.round_f32_to_tf32
    return descriptor
