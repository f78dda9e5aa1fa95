"""Tensors that carry a bound on the error of each element, and the exact operations on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from kernellab.checking.tolerance import unit_of


class UntrackableOperation(Exception):
    """An operation through which errors cannot be tracked."""


@dataclass(slots=True)
class Errors:
    """The errors of all elements of one storage, which its views share: None while they are exact.

    ``unit`` is the roundoff of the coarsest format that they come from, 0 for constants.
    """

    flat: Any = None
    unit: float = 0.0


class BoundedTensor(torch.Tensor):
    """A tensor with a bound on the error of each element; views of one storage share its errors."""

    value: torch.Tensor
    errors: Errors

    @staticmethod
    def __new__(cls, value: torch.Tensor, errors: Errors) -> BoundedTensor:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            value.shape,
            strides=value.stride(),
            storage_offset=value.storage_offset(),
            dtype=value.dtype,
            device=value.device,
        )
        tensor.value, tensor.errors = value, errors
        return tensor

    @property
    def error(self) -> torch.Tensor | None:
        """The bounds of the elements, None where all are exact."""
        if self.errors.flat is None:
            return None
        value = self.value
        return torch.as_strided(self.errors.flat, value.size(), value.stride(), value.storage_offset())

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise UntrackableOperation(f"{func} runs where nothing is tracked")

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse to export memory by an `UntrackableOperation`: a wrapper has none."""
        raise UntrackableOperation("the memory of a value is taken")

    def write(self, value: torch.Tensor, error: torch.Tensor | None, unit: float) -> None:
        """Overwrite the elements in place, rounded to the format of this tensor."""
        rounding = unit_of(self.dtype)
        if value.dtype.is_floating_point and rounding > unit_of(value.dtype):
            rounded = value.double().abs().nan_to_num(0, 0, 0) * rounding
            error = rounded if error is None else error + rounded
        self.value.copy_(value)
        self.errors.unit = max(self.errors.unit, unit)
        if self.errors.flat is None and error is not None:
            self.errors.flat = _room_for_errors(self.value)
        errors = self.error
        if errors is not None:
            errors.zero_() if error is None else errors.copy_(error)


def bounded_tensor(value: torch.Tensor, error: torch.Tensor | None, unit: float) -> BoundedTensor:
    """Return a tensor with errors of its own, which must be finite and not negative."""
    errors = Errors(None, unit)
    tensor = BoundedTensor(value, errors)
    if error is not None:
        errors.flat = _room_for_errors(value)
        bounds = tensor.error
        assert bounds is not None, "there is room for errors now"
        bounds.copy_(error)
    return tensor


def _room_for_errors(value: torch.Tensor) -> torch.Tensor:
    elements = value.untyped_storage().nbytes() // max(value.element_size(), 1)
    return torch.zeros(elements, dtype=torch.float64, device=value.device)


def operands(args: Any) -> Iterator[BoundedTensor]:
    """Yield the tensors among the arguments of an operation."""
    yield from (value for value in tree_leaves(args) if isinstance(value, BoundedTensor))


def unit_among(args: Any) -> float:
    """Return the roundoff of the coarsest operand of an operation."""
    return max((operand.errors.unit for operand in operands(args)), default=0.0)


def values_of(args: Any) -> Any:
    """Return the arguments of an operation without their errors."""
    return tree_map(lambda value: value.value if isinstance(value, BoundedTensor) else value, args)


def run_exact(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operation without rounding: one on exact operands, or a view."""
    shared = {operand.value.untyped_storage()._cdata: operand for operand in operands((args, kwargs))}
    unit = unit_among((args, kwargs))

    def wrap(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        base = shared.get(value.untyped_storage()._cdata)
        if base is None:
            return BoundedTensor(value, Errors(None, unit))
        if base.value.dtype != value.dtype:
            raise UntrackableOperation("the bits of a value are taken")
        return BoundedTensor(value, base.errors)

    return tree_map(wrap, func(*values_of(args), **values_of(kwargs)))
