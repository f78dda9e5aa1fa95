"""Calls of torch repeated on fake tensors of symbolic shapes, to compare with the recorded operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernellab.capture.tape import Ref, TensorLayout, map_nested, members_of
from kernellab.capture.tracked_tensors import is_descriptor

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_SLICES = frozenset({"aten.slice.Tensor", "aten.alias.default"})
_SILENT = frozenset({"prim.device.default", "aten.lift_fresh.default"})


class FakeMismatch(Exception):
    """Raised where operations on fake tensors differ from the recorded ones."""


@dataclass(frozen=True, slots=True)
class SymbolicLayout:
    """The shape, strides and offset of a tensor, in integers that may be symbolic."""

    shape: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: Any

    @property
    def numbers(self) -> tuple[Any, ...]:
        """Shape, strides and offset in one."""
        return (*self.shape, *self.stride, self.offset)

    def with_numbers(self, change: Callable[[Any], Any]) -> SymbolicLayout:
        """Return the layout with ``change`` applied to each number."""
        return SymbolicLayout(tuple(map(change, self.shape)), tuple(map(change, self.stride)), change(self.offset))


@dataclass(frozen=True, slots=True)
class FakeCall:
    """An operation on fake tensors: its arguments without tensors, and the layouts of its results.

    With ``is_identity``, its result has the layout of its tensor: torch leaves such slices out where it knows sizes.
    """

    operation: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[SymbolicLayout | None, ...]
    is_identity: bool = False


class FakeCalls(TorchDispatchMode):
    """Records operations on fake tensors, without keeping the tensors: their last use may decide what torch does next.

    Unless it ``gives_plain`` sizes, which fixes them, it raises `FakeMismatch` where C++ code asks for plain ones.
    """

    def __init__(self, *, gives_plain: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.gives_plain = gives_plain
        self.calls: list[FakeCall] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.size.default and not self.gives_plain:
            raise FakeMismatch("an operation asks for plain sizes")
        result = func(*args, **kwargs)
        is_data = torch.Tag.data_dependent_output in func.tags and not isinstance(result, torch.Tensor)
        is_relaid = torch.Tag.inplace_view in func.tags
        if str(func) not in _SILENT and not is_data and not is_relaid:
            outputs = list(result) if isinstance(result, list | tuple) else [result]
            layouts = tuple(layout_of_fake(o) if isinstance(o, torch.Tensor) else None for o in outputs)
            is_identity = str(func) in _SLICES and _numbers_of(layout_of_fake(args[0])) == _numbers_of(
                layout_of_fake(result)
            )
            self.calls.append(
                FakeCall(str(func), without_tensors(tuple(args)), without_tensors(dict(kwargs)), layouts, is_identity)
            )
        return result


class _Fake:
    """The placeholder of a fake tensor in the arguments of a call."""


def without_tensors(value: Any) -> Any:
    """Return nested arguments without their tensors."""
    return map_nested(value, lambda part: _Fake if isinstance(part, torch.Tensor) else part)


def gives_numbers(func: Any, result: Any) -> bool:
    """Whether a call returns integers or booleans that may depend on sizes; flags of a tensor do not."""
    is_flag = getattr(func, "__name__", "") == "__get__" and isinstance(result, bool)
    return not is_flag and any(isinstance(part, int | torch.SymInt | torch.SymBool) for part in members_of(result))


def plain_value(value: Any) -> Any:
    """Return the recorded number of a symbolic one; anything else as it is."""
    if isinstance(value, SYMBOLIC):
        return value.node.hint
    if not is_descriptor(value):
        return value
    numbers = [[plain_value(number) for number in part] for part in (value.shape, value.strides, value.block_shape)]
    padding = getattr(value, "padding", "zero")
    return type(value)(value.base, *numbers, **({} if padding == "zero" else {"padding": padding}))


def _numbers_of(layout: SymbolicLayout) -> list[Any]:
    return [expression_of(number) for number in layout.numbers]


def layout_of_fake(tensor: Any) -> SymbolicLayout:
    """Return the layout of a fake tensor."""
    return SymbolicLayout(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())


def symbols_of(value: Any) -> set[Any]:
    """Return the free symbols in nested arguments, those in the layouts of fake tensors included."""
    symbols: set[Any] = set()
    for part in members_of(value):
        if isinstance(part, SYMBOLIC):
            symbols |= part.node.expr.free_symbols
        elif isinstance(part, torch.Tensor):
            symbols |= symbols_of(layout_of_fake(part).numbers)
    return symbols


def expression_of(value: Any) -> Any:
    """Return a number as an expression."""
    return value.node.expr if isinstance(value, SYMBOLIC) else sympy.Integer(value)


def plain_layout(layout: TensorLayout) -> SymbolicLayout:
    """Return a layout of plain numbers."""
    return SymbolicLayout(layout.shape, layout.stride, 0)


def symbolic_argument(recorded_value: Any, fake: Any) -> Any:
    """Return a recorded argument with the symbolic numbers of the fake call; `FakeMismatch` where more differs."""
    if isinstance(recorded_value, list | tuple) and isinstance(fake, list | tuple):
        if len(recorded_value) != len(fake):
            raise FakeMismatch("an argument is longer")
        return type(recorded_value)(symbolic_argument(a, b) for a, b in zip(recorded_value, fake, strict=True))
    if isinstance(fake, torch.SymInt) or (isinstance(fake, torch.SymFloat) and isinstance(recorded_value, float)):
        if fake.node.hint != recorded_value:
            raise FakeMismatch(f"{fake} is not {recorded_value}")
        return fake
    if isinstance(fake, SYMBOLIC) or (fake is _Fake) != isinstance(recorded_value, Ref):
        raise FakeMismatch(f"{fake} is not {recorded_value}")
    if isinstance(recorded_value, int | float) and recorded_value != fake:
        raise FakeMismatch(f"{fake} is not {recorded_value}")
    return recorded_value
