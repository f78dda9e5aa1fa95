"""Rules for the ATen operations: how each propagates the errors of its operands, and what it rounds itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils._pytree import tree_map

from kernellab.checking.bounded_tensor import (
    BoundedTensor,
    UntrackableOperation,
    bounded_tensor,
    operands,
    run_exact,
    unit_among,
    values_of,
)
from kernellab.checking.summation import running_sum_error, sum_error
from kernellab.checking.tolerance import (
    CONFIDENCE,
    FLOAT8,
    FLOAT32,
    TF32,
    accumulator_of,
    gamma,
    narrow_of,
    share_of_largest,
)

Rule = Callable[[Any, Any, Any], Any]

_FLOAT8_STEPS, _FLOAT8_SUM = 32, 2.0**-13  # terms added at once, and the bits that Hopper's tensor cores keep of a sum


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Elementwise operations that round nothing: they return one of their operands, or an exact value.
_CHOOSING = _names(
    "neg abs maximum minimum fmax fmin clamp clamp_min clamp_max relu where floor ceil round trunc sign sgn "
    "copysign eq ne lt le gt ge logical_and logical_or logical_xor logical_not bitwise_and bitwise_or "
    "bitwise_xor bitwise_not isnan isinf isfinite fill masked_fill nan_to_num threshold hardtanh heaviside "
    "positive signbit"
)
_ADDING = frozenset({"add", "sub", "rsub"})
_MULTIPLYING = frozenset({"mul", "div", "true_divide", "sqrt", "rsqrt", "reciprocal", "square"})
# A relative error of the argument's logarithm becomes one of the result: exp(x) of a rounded x is off by |x| units.
_EXPONENTIAL = frozenset({"exp", "exp2", "pow"})
# These are computed through others, as tanh through exp, and so are inaccurate where they are much smaller than 1.
_OTHERS = _names(
    "log log2 log10 log1p expm1 sigmoid tanh erf erfc erfinv sin cos tan asin acos atan atan2 sinh cosh asinh "
    "acosh atanh lgamma digamma fmod remainder floor_divide"
)
_ELEMENTWISE = _CHOOSING | _ADDING | _MULTIPLYING | _EXPONENTIAL | _OTHERS
_ULPS = 4  # of an approximate division, square root or exponential: 2 by the PTX manual, 2 for the code around them
_LOST_IN_ONE_PASS = 2.0**-10
_MOVING = _names(
    "clone cat stack index index_select gather flip roll tril triu repeat constant_pad_nd scatter index_put "
    "slice_scatter select_scatter diagonal_scatter masked_select embedding take slice_backward select_backward "
    "repeat_interleave index_copy unfold_backward"
)
_EXTREMES = frozenset({"amax", "amin", "max", "min", "sort", "topk", "cummax", "cummin", "kthvalue", "median"})
_COUNTING = frozenset({"bincount", "histc"})


def rule_of(func: Any, args: Any, kwargs: Any) -> Rule | None:
    """Return the rule of an operation; None for one that is bounded through its parts.

    Raises:
        UntrackableOperation: its operands are complex.
    """
    inputs = list(operands((args, kwargs)))
    if any(operand.value.is_complex() for operand in inputs):
        raise UntrackableOperation("complex numbers")
    has_errors = any(operand.errors.flat is not None for operand in inputs)
    name = _name_of(func)
    if not (has_errors or any(operand.value.is_floating_point() for operand in inputs)):
        return run_exact
    if func.is_view or name.startswith("new_") or name.endswith("_like") or name in {"_unsafe_view", "lift_fresh"}:
        return run_exact
    if name == "index_put" and len(args) > 3 and args[3]:
        return _bound_scatter
    if name in _RULES:
        return _RULES[name]
    if not has_errors and name in _CHOOSING | _MOVING | _EXTREMES | _COUNTING:
        return run_exact
    if name in _ELEMENTWISE:
        return _bound_elementwise
    if name in _MOVING:
        return _move_errors
    if name in _EXTREMES:
        return _bound_extremes
    return _bound_unknown if parts_of(func) is None else None


def parts_of(func: Any) -> Any:
    """Return the function that computes an operation by others; None where there is none."""
    parts = COMPOSITIONS.get(_name_of(func)) or decomposition_table.get(func)
    if parts is None and func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return func.decompose
    return parts


def _name_of(func: Any) -> str:
    return str(func._schema.name.rpartition("::")[2])


def _finite(error: torch.Tensor) -> torch.Tensor:
    """Replace infinities and NaN by 0: infinite values are either right or wrong, without an error."""
    return error.nan_to_num(0.0, 0.0, 0.0)


def _magnitude(operand: BoundedTensor) -> torch.Tensor:
    return operand.value.double().abs()


def _error_or_zeros(operand: BoundedTensor) -> torch.Tensor:
    return torch.zeros_like(_magnitude(operand)) if operand.error is None else operand.error


def _bound_elementwise(func: Any, args: Any, kwargs: Any) -> Any:
    """Shift each operand by its error, one after the other: exact to first order for monotone functions."""
    flat = values_of(args)
    value = func(*flat, **kwargs)
    unit = unit_among((args, kwargs))
    error = _rounding(_name_of(func), value, flat, kwargs, unit) if value.is_floating_point() else None
    for index, operand in enumerate(args):
        own = operand.error if isinstance(operand, BoundedTensor) else None
        if own is None:
            continue
        held = operand.value
        others = [held ^ (own > 0)] if held.dtype == torch.bool else [(held + d).to(held.dtype) for d in (own, -own)]
        shifts = []
        for other in others:
            result = func(*flat[:index], other, *flat[index + 1 :], **kwargs)
            is_logical = result.dtype == torch.bool
            shifts.append(
                (result != value).double() if is_logical else _finite((result.double() - value.double()).abs())
            )
        largest = torch.stack(shifts).amax(0)
        error = largest if error is None else error + largest
    return bounded_tensor(value, None if error is None else _finite(error), unit)


def _rounding(name: str, value: torch.Tensor, flat: Any, kwargs: Any, unit: float) -> torch.Tensor | None:
    """Return the rounding error of an elementwise operation itself."""
    if name in _CHOOSING:
        return None
    size = value.double().abs()
    if name in _ADDING:
        one, two = (
            abs(operand.double()) if isinstance(operand, torch.Tensor) else abs(operand) for operand in flat[:2]
        )
        alpha = abs(kwargs.get("alpha", flat[2] if len(flat) > 2 else 1))
        wide = (alpha * one + two if name == "rsub" else one + alpha * two) * accumulator_of(unit)
    elif name in _MULTIPLYING:
        wide = size * accumulator_of(unit) * _ULPS
    elif name in _EXPONENTIAL:
        logarithm = _finite(size.log().abs())
        wide = size * (_ULPS + 2 * logarithm) * accumulator_of(unit)
    else:
        wide = (1 + size) * accumulator_of(unit) * _ULPS
    error: torch.Tensor = wide + size * narrow_of(unit)
    return error


def _bound_sum(func: Any, args: Any, kwargs: Any) -> Any:
    """Bound a sum, a mean or a cumulative sum, over the orders in which kernels add.

    ``tl.sum`` adds float16 as float16, in a tree: its root rounds most, each level below less.
    """
    operand, rest, name = args[0], args[1:], _name_of(func)
    value = func(operand.value, *values_of(rest), **kwargs)

    def over(tensor: torch.Tensor) -> torch.Tensor:
        return func(tensor, *rest, **kwargs)  # type: ignore[no-any-return]

    error = None if operand.error is None else over(operand.error)
    unit, size = operand.errors.unit, operand.value.double()
    if not value.is_floating_point():
        return bounded_tensor(value, error, unit)
    terms = operand.value.numel() / max(value.numel(), 1) if name == "mean" else 1
    squares = over(size * size) / terms
    if name == "cumsum":
        own = running_sum_error(size, rest[0], accumulator_of(unit))
    else:
        dims = rest[0] if rest else kwargs.get("dim")
        own = sum_error(size, _dims(dims), accumulator_of(unit)).reshape(value.shape) / terms
    own = own + narrow_of(unit) * (2 * value.double().abs() + 4 * squares.sqrt())
    return bounded_tensor(value, _finite(own if error is None else own + error), unit)


def _dims(dims: Any) -> list[int]:
    return [dims] if isinstance(dims, int) else list(dims or ())


def _bound_variance(func: Any, args: Any, kwargs: Any) -> Any:
    """Bound a variance, taken in one pass (from the mean of squares) or in two.

    The difference of squares loses all digits where the mean is large: it may be off by a thousandth beyond two passes.
    """
    operand, name = args[0], _name_of(func)
    options = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | kwargs
    result = func(operand.value, *args[1:], **kwargs)
    spread = result[0] if isinstance(result, tuple) else result
    dims, keepdim = _dims(options.get("dim")) or list(range(operand.value.dim())), options.get("keepdim", False)
    correction = options.get("correction", options.get("unbiased", 1))
    unit, size = operand.errors.unit, operand.value.double()
    mean = size.mean(dims, keepdim=True)
    variance, squares = spread.double(), (size * size).mean(dims, keepdim=keepdim)
    if name.startswith("std"):
        variance = variance * variance
    terms = size.numel() / max(spread.numel(), 1)
    share = terms / max(terms - float(1 if correction is None else correction), 1)
    accumulator, average = accumulator_of(unit), size.mean(dims, keepdim=keepdim).abs()
    error = sum_error(size * size, dims, accumulator).reshape(spread.shape) + 0.0
    error = error + 2 * average * sum_error(size, dims, accumulator).reshape(spread.shape)
    error = error / terms + _ULPS * accumulator * squares
    centred = (size - mean) * (size - mean)
    in_two = sum_error(centred, dims, accumulator).reshape(spread.shape) / terms + _ULPS * accumulator * variance
    error = torch.minimum(error, in_two + _LOST_IN_ONE_PASS * variance + (accumulator * average) ** 2 * _ULPS)
    error = error + narrow_of(unit) * 2 * (variance + (variance * squares).sqrt())
    if operand.error is not None:
        error = error + 2 * ((size - mean).abs() * operand.error).mean(dims, keepdim=keepdim)
    error = error * share
    if name.startswith("std"):
        error = (variance + error).sqrt() - variance.sqrt()
    tensor = bounded_tensor(spread, _finite(error), unit)
    if not isinstance(result, tuple):
        return tensor
    return tensor, _bound_sum(torch.ops.aten.mean.dim, (operand, dims, keepdim), {})


def _bound_product(func: Any, args: Any, kwargs: Any) -> Any:
    """Bound a matrix product or a convolution: sums of products that are exact themselves.

    The sum of magnitudes is bounded by that of squares, √n·√Σ(ab)². Truncation to TF32 makes all operands smaller: it
    changes the result by a share of itself; the rest of its errors have random signs.
    """
    one, two = args[0], args[1]
    is_product = _name_of(func) != "convolution"
    rest = args[2:] if is_product else (None, *args[3:])
    terms = one.value.shape[-1] if is_product else two.value[0].numel()

    def apply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return func(left, right, *rest, **kwargs)  # type: ignore[no-any-return]

    value, unit = apply(one.value, two.value), unit_among((one, two))
    if not value.is_floating_point():
        return bounded_tensor(value, None, unit)
    left, right = one.value.double(), two.value.double()
    size, spread = value.double().abs(), apply(left * left, right * right).sqrt()
    error = gamma(terms, accumulator_of(unit)) * math.sqrt(terms) * spread + narrow_of(unit) * size
    if unit == FLOAT32:
        error = error + TF32 * (2 * size + CONFIDENCE / math.sqrt(2) * spread)  # Hoeffding, each off by half of it
    if unit >= FLOAT8:
        steps = math.ceil(terms / _FLOAT8_STEPS)
        error = error + steps * _FLOAT8_SUM * (size + CONFIDENCE * spread)
    for own, other, is_left in ((one, two, True), (two, one, False)):
        if own.error is not None:
            # a computed operand may be rounded to float8, which only a dot takes
            moved, fixed = own.error + unit * _magnitude(own) * (unit >= FLOAT8), _magnitude(other)
            error = error + (apply(moved, fixed) if is_left else apply(fixed, moved))
    product = bounded_tensor(value, _finite(error), unit)
    if is_product or args[2] is None:
        return product
    bias = run_exact(torch.ops.aten.view.default, (args[2], [-1, *[1] * (value.dim() - 2)]), {})
    return _bound_elementwise(torch.ops.aten.add.Tensor, (product, bias), {})


def _bound_scatter(func: Any, args: Any, kwargs: Any) -> Any:
    """Bound additions to indexed places, with repeated indices."""
    target, source = args[0], next(argument for argument in reversed(args) if isinstance(argument, BoundedTensor))
    value, unit = func(*values_of(args), **kwargs), unit_among(args)

    def apply(held: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        inputs = [
            held if argument is target else added if argument is source else values_of(argument) for argument in args
        ]
        return func(*inputs, **kwargs)  # type: ignore[no-any-return]

    if not value.is_floating_point():
        return bounded_tensor(value, None, unit)
    terms = source.value.numel() / max(value.numel(), 1) + math.sqrt(source.value.numel())
    dtype = value.dtype
    sizes = apply(_magnitude(target).to(dtype), _magnitude(source).to(dtype)).double()
    error = sizes * gamma(terms, accumulator_of(unit)) + narrow_of(unit) * 2 * value.double().abs()
    if target.error is not None or source.error is not None:
        error = error + apply(*(_error_or_zeros(argument).to(dtype) for argument in (target, source))).double()
    return bounded_tensor(value, _finite(error), unit)


def _move_errors(func: Any, args: Any, kwargs: Any) -> Any:
    """Move the errors along with the values."""
    name = _name_of(func)
    value = func(*values_of(args), **values_of(kwargs))

    def error_of(argument: Any) -> Any:
        if not isinstance(argument, BoundedTensor):
            return argument
        if argument.error is None and not argument.value.is_floating_point() and name != "cat":
            return argument.value
        return _error_or_zeros(argument)

    errors = list(tree_map(error_of, args))
    if name in {"constant_pad_nd", "scatter"}:
        errors = [
            0.0 if isinstance(argument, int | float) and i >= 2 else argument for i, argument in enumerate(errors)
        ]
    return bounded_tensor(value, func(*errors, **tree_map(error_of, kwargs)), unit_among((args, kwargs)))


def _bound_extremes(func: Any, args: Any, kwargs: Any) -> Any:
    """Bound extremes and sorted values by the greatest error among the operands."""
    operand = args[0]
    result, unit = func(operand.value, *values_of(args[1:]), **kwargs), operand.errors.unit
    own = operand.error
    assert own is not None, "exact operands have exact extremes"
    largest = own.amax() if own.numel() else own.sum()
    return tree_map(
        lambda part: bounded_tensor(part, largest.expand(part.shape) if part.is_floating_point() else None, unit),
        tuple(result) if isinstance(result, tuple) else result,
    )


def _bound_conversion(func: Any, args: Any, kwargs: Any) -> Any:
    """Bound a conversion: it rounds to a shorter format, and jumps for integers."""
    operand = args[0]
    value = func(operand.value, *args[1:], **kwargs)
    unit = operand.errors.unit
    if operand.error is None and (not operand.value.is_floating_point() or not value.is_floating_point()):
        return bounded_tensor(value, None, unit)
    if value.is_floating_point():
        tensor = bounded_tensor(torch.empty_like(value), None, 0.0)
        tensor.write(operand.value, None if operand.error is None else operand.error.to(value.device), unit)
        return tensor
    return _bound_elementwise(func, args, kwargs)


def _bound_unknown(func: Any, args: Any, kwargs: Any) -> Any:
    inputs = list(operands((args, kwargs)))
    unit = unit_among((args, kwargs))
    terms = sum(operand.value.numel() for operand in inputs)
    share = max(gamma(terms, accumulator_of(unit)) + narrow_of(unit), share_of_largest(unit or FLOAT32))
    for operand in inputs:
        if operand.error is not None and operand.value.numel():
            share += float(operand.error.max()) / max(float(_finite(_magnitude(operand)).max()), 1e-300)

    def with_bound(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if not value.is_floating_point() or not value.numel():
            return bounded_tensor(value, None, unit)
        scale = _finite(value.double().abs()).max()
        return bounded_tensor(value, (share * scale).expand(value.shape), unit)

    return tree_map(with_bound, func(*values_of(args), **values_of(kwargs)))


_RULES: dict[str, Rule] = {
    "sum": _bound_sum,
    "mean": _bound_sum,
    "cumsum": _bound_sum,
    "var": _bound_variance,
    "std": _bound_variance,
    "var_mean": _bound_variance,
    "std_mean": _bound_variance,
    "mm": _bound_product,
    "bmm": _bound_product,
    "convolution": _bound_product,
    "index_add": _bound_scatter,
    "scatter_add": _bound_scatter,
    "_to_copy": _bound_conversion,
    "convert_element_type": _bound_conversion,
    "empty_strided": run_exact,
}


Tensor = torch.Tensor


def _softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    powers = (x - _finite_max(x, dim)).exp()
    return powers / powers.sum(dim, keepdim=True)


def _log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    shifted = x - _finite_max(x, dim)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


def _logsumexp(x: Tensor, dim: list[int], keepdim: bool = False) -> Tensor:
    largest = x.amax(dim, keepdim=True)
    result = (x - largest).exp().sum(dim, keepdim=True).log() + largest
    return result if keepdim else result.reshape(x.amax(dim).shape)


def _finite_max(x: Tensor, dim: int) -> Tensor:
    return x.amax(dim, keepdim=True) if x.dim() and x.numel() else x


def _gelu(x: Tensor, *, approximate: str = "none") -> Any:
    if approximate == "none":
        return 0.5 * x * (1 + (x * 0.5**0.5).erf())
    return 0.5 * x * (1 + (0.7978845608028654 * (x + 0.044715 * x * x * x)).tanh())


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(-len(shape), 0))
    mean = x.mean(dims, keepdim=True)
    scale = (x.var(dims, correction=0, keepdim=True) + eps).rsqrt()
    result = (x - mean) * scale
    result = result if weight is None else result * weight
    return result if bias is None else result + bias, mean, scale


def _rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    dims = list(range(-len(shape), 0))
    scale = ((x * x).mean(dims, keepdim=True) + (torch.finfo(x.dtype).eps if eps is None else eps)).rsqrt()
    result = x * scale
    return result if weight is None else result * weight, scale


COMPOSITIONS: Mapping[str, Callable[..., Any]] = {
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "silu": lambda x: x / (1 + (-x).exp()),
    "gelu": _gelu,
    "baddbmm": lambda held, one, two, *, beta=1, alpha=1: beta * held + alpha * torch.ops.aten.bmm(one, two),
    "native_layer_norm": _layer_norm,
    "_fused_rms_norm": _rms_norm,
}
