"""The values of a torch function in float64, with a bound on the error of a kernel for each element.

A running error analysis (Higham, *Accuracy and Stability*, section 3.3): while the function runs, every ATen operation
also bounds the error of its result, from the errors of its operands and its own rounding. The errors are those of a
kernel that computes the same on the formats of the arguments: it may round each result to the coarsest of them, adds up
in float32 at least, and may multiply float32 in TF32. See `tolerance` for the roundoffs.

Operations without a rule are decomposed, as torch decomposes them for its compiler, until each part has one. The rest
count as one sum over all of their operands, relative to the largest element of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

from kernellab.checking.comparison import ExpectedValue
from kernellab.checking.tolerance import CONFIDENCE, accumulator_of, share_of_largest, unit_of


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
        return _dispatch(func, args, kwargs or {})

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse to export memory: a wrapper has none.

        Raises:
            Untracked: always.
        """
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


class Tracking(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tracks errors through all operations, those on plain tensors (constants, intermediates) included.

    With ``widens``, floating-point values are float64, whatever format the function asks for.
    """

    def __init__(self, widens: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.widens = widens

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports all of its compiler, to keep that from tracing this

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default and not isinstance(args[0], BoundedTensor):
            return func(*args)  # `Tensor.numpy` takes its memory, and a wrapper has none
        args, kwargs = tree_map(_tracked_operand, args), tree_map(_tracked_operand, kwargs or {})
        if not self.widens:
            return _dispatch(func, args, kwargs)
        args, kwargs = tree_map(_wide, args), tree_map(_wide, kwargs)
        if func is torch.ops.aten._to_copy.default and "dtype" in kwargs:
            return _convert(args[0], **kwargs)
        return tree_map(_wide, _dispatch(func, args, tree_map(_wide_dtype, kwargs)))


def _wide(value: Any) -> Any:
    if not isinstance(value, BoundedTensor) or not value.value.is_floating_point() or value.element_size() == 8:
        return value
    return bounded_tensor(value.value.double(), value.error, value.errors.unit)


def _wide_dtype(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def _convert(operand: BoundedTensor, dtype: torch.dtype, **kwargs: Any) -> Any:
    """Convert to a narrower format: the value stays in float64, the error grows by a rounding to that format."""
    if not dtype.is_floating_point:
        return _dispatch(torch.ops.aten._to_copy.default, (operand,), {"dtype": dtype, **kwargs})
    options = {name: option for name, option in kwargs.items() if name == "device"}
    value = operand.value.to(torch.float64, copy=True, **options)
    error, unit = operand.error, unit_of(dtype)
    if unit > max(operand.errors.unit, unit_of(torch.float32)) or (error is not None and unit > operand.errors.unit):
        rounded = value.abs().nan_to_num(0, 0, 0) * unit
        error = rounded if error is None else error.to(rounded.device) + rounded
    return bounded_tensor(value, error, max(unit if error is not None else 0.0, operand.errors.unit))


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


def evaluate_with_bounds(
    call: Callable[[Callable[[Any], Any]], Any], *, widens: bool, exact: Container[int] | None = None
) -> Any:
    """Evaluate ``call`` with error bounds; its tensors are returned as `ExpectedValue`.

    ``call`` takes a function that converts an argument's tensor to a tracked one: with ``widens`` in float64. Without,
    values are as inexact as those of a kernel, and the bounds are doubled. ``exact`` are the addresses of memories that
    the kernel reads, too, None for all; tensors elsewhere were computed in an unknown way, and have the default
    tolerance of their format.

    Raises:
        Untracked: a value leaves torch on the way. Errors of the function come through.
    """

    def tracked_tensor(tensor: torch.Tensor) -> BoundedTensor:
        own = tensor.detach()
        own = own.to(torch.float64, copy=True) if widens and own.is_floating_point() else own.clone()
        own = own.value if isinstance(own, BoundedTensor) else own  # it is called where all operations are tracked
        unit = unit_of(tensor.dtype)
        if not unit or exact is None or tensor.untyped_storage().data_ptr() in exact:
            return BoundedTensor(own, Errors(None, unit))
        with _disable_current_modes():
            largest = (
                own.abs().nan_to_num(0, 0, 0).max().double() if own.numel() else own.new_zeros((), dtype=torch.float64)
            )
            return bounded_tensor(own, (share_of_largest(unit) * largest).expand(own.shape), unit)

    def expected_value(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if not isinstance(value, BoundedTensor):
            return ExpectedValue(value.detach(), None, unit_of(value.dtype))
        error = value.error
        if error is None:
            error = torch.zeros(value.shape, dtype=torch.float64, device=value.device)
        else:  # a kernel may compute in another order, as in a scan instead of a loop
            accumulator = accumulator_of(value.errors.unit)
            error = error + CONFIDENCE * accumulator * value.value.detach().double().abs().nan_to_num(0, 0, 0)
        is_rough = not widens or value.errors.unit == unit_of(torch.float64)
        return ExpectedValue(value.value.detach(), error * 2 if is_rough else error)

    with sdpa_kernel([SDPBackend.MATH]), Tracking(widens):
        result = call(tracked_tensor)
    return _map_values(result, expected_value)


def _map_values(result: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(result, Mapping):
        return {name: function(value) for name, value in result.items()}
    return tuple(map(function, result)) if isinstance(result, tuple | list) else function(result)


def operands(args: Any) -> Iterator[BoundedTensor]:
    """Yield the tensors among the arguments of an operation."""
    yield from (value for value in tree_flatten(args)[0] if isinstance(value, BoundedTensor))


def unit_among(args: Any) -> float:
    """Return the roundoff of the coarsest operand of an operation."""
    return max((operand.errors.unit for operand in operands(args)), default=0.0)


def values_of(args: Any) -> Any:
    """Return the arguments of an operation without their errors."""
    return tree_map(lambda each: each.value if isinstance(each, BoundedTensor) else each, args)


def _dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    from kernellab.checking.error_rules import rule_of  # the rules are written in terms of this module

    args, kwargs = tree_map(_tracked_operand, args), tree_map(_tracked_operand, kwargs)
    if func._schema.is_mutable:
        return _in_place(func, args, kwargs)
    if func is torch.ops.aten._local_scalar_dense.default:
        return _scalar(args[0])
    return (rule_of(func, args, kwargs) or run_exact)(func, args, kwargs)


def _tracked_operand(value: Any) -> Any:
    """Wrap an operand with its errors: a constant is exact, and has the roundoff of its format."""
    if not isinstance(value, torch.Tensor) or isinstance(value, BoundedTensor):
        return value
    unit = 0.0 if value.dtype == torch.float64 else unit_of(value.dtype)
    return BoundedTensor(value, Errors(None, unit))


def _scalar(operand: BoundedTensor) -> Any:
    error = operand.error
    if error is not None and bool((error > 0).any()):
        raise UntrackableOperation("a computed number leaves torch")
    return operand.value.item()


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


def _in_place(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an in-place operation as its functional form, and write the result to the first operand."""
    name = func._schema.name.removeprefix("aten::")
    target = args[0] if args else None
    if not name.endswith("_") or not isinstance(target, BoundedTensor):
        raise UntrackableOperation(f"{func} writes to an operand")
    result = args[1] if name == "copy_" else None
    if result is None:
        result = _dispatch(getattr(getattr(torch.ops.aten, name[:-1]), func._overloadname), args, kwargs)
    if not isinstance(result, BoundedTensor):
        raise UntrackableOperation(f"{func} writes to an operand")
    target.write(result.value, result.error, result.errors.unit)
    return target
