"""The values of a torch function in float64, with a bound on the error of a kernel for each element.

A running error analysis (Higham, *Accuracy and Stability*, section 3.3): while the function runs, every ATen operation
also bounds the error of its result, from the errors of its operands and its own rounding. The errors are those of a
kernel that computes the same on the formats of the arguments: it may round each result to the coarsest of them, adds up
in float32 at least, and may multiply float32 in TF32. See `tolerance` for the roundoffs.

Operations without a rule are decomposed, as torch decomposes them for its compiler, until each part has one. The rest
count as one sum over all of their operands, relative to the largest element of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from kernellab.checking.bounded_tensor import BoundedTensor, Errors, UntrackableOperation, bounded_tensor
from kernellab.checking.comparison import ExpectedValue
from kernellab.checking.error_rules import parts_of, rule_of
from kernellab.checking.tolerance import CONFIDENCE, FLOAT32, accumulator_of, share_of_largest, unit_of


class OperationMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode for which torch does not import all of its compiler, to keep that from tracing it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Origins:
    """The tensors that a kernel reads, too: those with memory at an address in ``exact``, None for all.

    Others were computed before, in an unknown way: they have the default tolerance of their format, or of ``coarsest``
    where that is the coarser one, as float64 says nothing about a kernel that computes in float32.
    """

    exact: Container[int] | None = None
    coarsest: float = 0.0

    @classmethod
    def of_launch(cls, tensors: Iterable[torch.Tensor]) -> Origins:
        """Return the origins for a launch on these tensors, which computes in float32, or in float64 if one has it."""
        held = list(tensors)
        finest = min((unit_of(tensor.dtype) for tensor in held if tensor.is_floating_point()), default=0.0)
        return cls({tensor.untyped_storage().data_ptr() for tensor in held}, min(finest, FLOAT32))

    def is_exact(self, tensor: torch.Tensor) -> bool:
        """Whether a kernel reads the very values of a tensor."""
        if self.exact is None or not unit_of(tensor.dtype):
            return True
        return tensor.untyped_storage().data_ptr() in self.exact

    def wrap(self, tensor: torch.Tensor, value: torch.Tensor) -> BoundedTensor:
        """Return the value of a tensor, which may be a copy of it, with its errors."""
        if self.is_exact(tensor):
            return BoundedTensor(value, Errors(None, unit_of(tensor.dtype)))
        unit = max(unit_of(tensor.dtype), self.coarsest)
        with _disable_current_modes():
            largest = value.abs().nan_to_num(0, 0, 0).max().double() if value.numel() else torch.zeros(())
            allowed = share_of_largest(unit) * largest.to(value.device)
            return bounded_tensor(value, allowed.expand(value.shape), unit)


class Tracking(OperationMode):
    """Tracks errors through all operations, those on plain tensors (constants, intermediates) included.

    With ``widens``, floating-point values are float64, whatever format the function asks for.
    """

    def __init__(self, widens: bool, origins: Origins) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.widens = widens
        self.origins = origins

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default and not isinstance(args[0], BoundedTensor):
            return func(*args)  # `Tensor.numpy` takes its memory, and a wrapper has none
        is_constant = func is torch.ops.aten.lift_fresh.default  # of `torch.tensor` in the function
        args, kwargs = tree_map(partial(self._operand, is_constant=is_constant), (args, kwargs or {}))
        if not self.widens:
            return _dispatch(func, args, kwargs)
        args, kwargs = tree_map(_wide, (args, kwargs))
        if func is torch.ops.aten._to_copy.default and "dtype" in kwargs:
            return _convert(args[0], **kwargs)
        wide = {
            n: torch.float64 if isinstance(v, torch.dtype) and v.is_floating_point else v for n, v in kwargs.items()
        }
        return tree_map(_wide, _dispatch(func, args, wide))

    def _operand(self, value: Any, *, is_constant: bool) -> Any:
        """Wrap an operand with its errors: a constant is exact, and has the roundoff of its format."""
        if not isinstance(value, torch.Tensor) or isinstance(value, BoundedTensor):
            return value
        if not is_constant and not self.origins.is_exact(value):
            return self.origins.wrap(value, value.detach())
        unit = 0.0 if value.dtype == torch.float64 else unit_of(value.dtype)
        return BoundedTensor(value, Errors(None, unit))


def _wide(value: Any) -> Any:
    if not isinstance(value, BoundedTensor) or not value.value.is_floating_point() or value.element_size() == 8:
        return value
    return bounded_tensor(value.value.double(), value.error, value.errors.unit)


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


def evaluate_with_bounds(
    call: Callable[[Callable[[Any], Any]], Any], *, widens: bool, origins: Origins = Origins()
) -> Any:
    """Evaluate ``call`` with error bounds; its tensors are returned as `ExpectedValue`.

    ``call`` takes a function that converts an argument's tensor to a tracked one: with ``widens`` in float64. Without,
    values are as inexact as those of a kernel, and the bounds are doubled.

    Raises:
        UntrackableOperation: a value leaves torch on the way. Errors of the function come through.
    """

    def tracked_tensor(tensor: torch.Tensor) -> BoundedTensor:
        own = tensor.detach()
        own = own.to(torch.float64, copy=True) if widens and own.is_floating_point() else own.clone()
        own = own.value if isinstance(own, BoundedTensor) else own  # it is called where all operations are tracked
        return origins.wrap(tensor, own)

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

    with sdpa_kernel([SDPBackend.MATH]), Tracking(widens, origins):
        result = call(tracked_tensor)
    if isinstance(result, Mapping):
        return {name: expected_value(value) for name, value in result.items()}
    return tuple(map(expected_value, result)) if isinstance(result, tuple | list) else expected_value(result)


def _dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operation on tracked operands."""
    if func._schema.is_mutable:
        return _in_place(func, args, kwargs)
    if func is torch.ops.aten._local_scalar_dense.default:
        error = args[0].error
        if error is not None and bool((error > 0).any()):
            raise UntrackableOperation("a computed number leaves torch")
        return args[0].value.item()
    rule = rule_of(func, args, kwargs)
    if rule is not None:
        return rule(func, args, kwargs)
    with Tracking(False, Origins()):
        return parts_of(func)(*args, **kwargs)


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
