"""How each argument of a launch takes part in its key, and what the key must be kept apart by."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from enum import Enum
from typing import Any

import triton.language as tl
from triton._C.libtriton import native_specialize_impl
from triton.runtime.driver import driver as drivers
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from kernellab._triton.launcher.chain import Chain, supplied_by
from kernellab._triton.launcher.code import Kind, Slot

_PLAIN = (int, bool, str, type(None))


def layout_type(value: Any) -> type:
    """Return the type by which a launch function is chosen."""
    import torch

    return torch.Tensor if type(value) is torch.nn.Parameter else type(value)


def slots_of(chain: Chain, values: tuple[Any, ...]) -> tuple[Slot, ...] | None:
    """Return how each parameter takes part in the key; None where an argument has a type without launch functions."""
    keys = () if chain.tuner is None else tuple(chain.tuner.keys)
    slots = []
    for parameter, value in zip(chain.function.params, values, strict=True):
        kind = _kind(chain, parameter, value)
        if kind is None or (parameter.name in keys and kind in {Kind.TENSOR, Kind.NATIVE}):
            return None
        slots.append(Slot(parameter.name, kind, parameter.has_default, parameter.name in keys))
    return tuple(slots)


def _kind(chain: Chain, parameter: Any, value: Any) -> Kind | None:
    import torch

    supplied = supplied_by(chain)
    if parameter.name in supplied:
        return supplied[parameter.name]
    if parameter.is_constexpr:
        return Kind.CONSTANT if type(value) in _PLAIN else Kind.RICH_CONSTANT
    if layout_type(value) is torch.Tensor:
        target = chain.function.device_caches[drivers.active.get_current_device()][2]
        return Kind.TENSOR if target.backend == "cuda" else Kind.NATIVE
    kinds = {int: Kind.INTEGER, float: Kind.TYPED, bool: Kind.TYPED, type(None): Kind.TYPED}
    native = {tuple: Kind.NATIVE, TensorDescriptor: Kind.NATIVE}
    return kinds.get(type(value)) or native.get(type(value))


def constant_feature(value: Any) -> Any:
    """Return a key of a constant that equals another one's only if the two compile alike.

    Python has ``1 == 1.0 == True`` and ``0.0 == -0.0``, so the type takes part, and floats go by their digits.

    Raises:
        TypeError: constants of this type have no key.
    """
    import torch

    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is tl.dtype:
        return kind, value.name
    if kind is tl.constexpr:
        return kind, constant_feature(value.value)
    if isinstance(value, JITFunction):
        return id(value), value, value.cache_key
    if isinstance(value, Enum) or kind is torch.dtype:
        return kind, value  # one object per value
    if isinstance(value, tuple):
        return kind, tuple(map(constant_feature, value))
    if dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return kind, *(constant_feature(getattr(value, each.name)) for each in dataclasses.fields(kind))
    raise TypeError(f"a constant of type {kind.__qualname__}")


def leaves(value: Any) -> Iterator[Any]:
    """Yield the members of nested tuples and lists."""
    if isinstance(value, tuple | list):
        for member in value:
            yield from leaves(member)
    else:
        yield value


def has_own_text(value: Any) -> bool:
    """Tell whether the text of a value, as part of Triton's key, is that of no other value."""
    if type(value) is tl.constexpr:
        return type(value.value) in {int, bool, float, type(None)}
    return type(value) in {*_PLAIN, float, bytes, tl.dtype} or isinstance(value, JITFunction)


def argument_feature(backend: type, value: Any) -> Any:
    """Return the key of a tuple, a descriptor, or a tensor of a target without a shorter one."""
    import torch

    kind = type(value)
    if kind is tuple:
        return kind, tuple(argument_feature(backend, member) for member in value)
    if kind is TensorDescriptor:
        return native_specialize_impl(backend, value, False, True, True), value.base.dtype
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return native_specialize_impl(backend, value, False, True, True), value.dtype
    if kind in {int, float, bool, type(None)}:
        return kind, native_specialize_impl(backend, value, False, True, True)
    raise TypeError(f"an argument of type {kind.__qualname__}")


def is_plain(value: Any) -> bool:
    """Tell whether a value cannot change in place, and is told from others of its type by ``==``."""
    return type(value) in {*_PLAIN, float, tl.dtype} or (type(value) is tl.constexpr and is_plain(value.value))
