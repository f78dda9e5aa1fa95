"""Functions of torch in the algebra of `kernellab.interpreter.algebra`: tensors that hold payloads.

Operations that only move elements run on the payloads as they are. Those with a rule compute as a kernel does that
widens float16 and bfloat16 to float32 first. Any other raises an error that names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from kernellab.errors import UsageError
from kernellab.interpreter import algebra
from kernellab.interpreter.algebra import FORMATS, FloatFormat, Payload
from kernellab.launch.arguments import TRITON_NAMES
from kernellab.launch.poison import bits_of

_NAMES = {getattr(torch, name): short for name, short in TRITON_NAMES.items() if short in FORMATS}
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class PayloadTensor(torch.Tensor):
    """A tensor of floats as payloads: ``payload`` has int64 elements in the same shape."""

    payload: torch.Tensor

    @staticmethod
    def __new__(cls, payload: torch.Tensor, dtype: torch.dtype) -> PayloadTensor:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, payload.shape, strides=payload.stride(), storage_offset=payload.storage_offset(), dtype=dtype
        )
        tensor.payload = payload
        return tensor

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"<payloads of {tuple(self.shape)}, {self.dtype}>"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Evaluate an operation of torch in the algebra.

        Raises:
            UsageError: it has no rule.
        """
        return _evaluate(func, tuple(args), dict(kwargs or {}))


def in_algebra(function: Callable[[Mapping[str, Any]], Any], arguments: Mapping[str, Any]) -> Any:
    """Call a function with the float tensors among arguments as payloads; return its tensors as bit patterns.

    Raises:
        UsageError: the function uses an operation that the algebra does not know.
    """
    embedded = {name: _payload_tensor(value) if _is_float(value) else value for name, value in arguments.items()}
    with torch.no_grad(), np.errstate(all="ignore"):
        return tree_map(
            lambda value: bit_patterns(value) if isinstance(value, PayloadTensor) else value, function(embedded)
        )


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _NAMES


def _payload_tensor(tensor: torch.Tensor) -> PayloadTensor:
    bits = np.asarray(bits_of(tensor.contiguous().reshape(-1)))
    payload = algebra.embed(bits.view(_UNSIGNED[bits.itemsize]), format_of(tensor.dtype))
    return PayloadTensor(torch.from_numpy(payload).reshape(tensor.shape), tensor.dtype)


def bit_patterns(tensor: PayloadTensor) -> torch.Tensor:
    """Return the tensor of floats with the bit patterns of the payloads."""
    bits = algebra.unembed(tensor.payload.contiguous().numpy(), format_of(tensor.dtype))
    signed = bits.view(f"i{bits.itemsize}") if bits.itemsize > 1 else bits
    return torch.from_numpy(np.ascontiguousarray(signed)).view(tensor.dtype).reshape(tensor.shape)


def format_of(dtype: torch.dtype) -> FloatFormat:
    """Return the format of payloads of a dtype of torch."""
    return FORMATS[_NAMES[dtype]]


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype that torch computes in."""
    return torch.float32 if dtype in {torch.float16, torch.bfloat16} else dtype


def _payload_in(value: Any, dtype: torch.dtype) -> Payload:
    """An operand as payloads of a dtype: a tensor of payloads, a plain tensor or a number."""
    if isinstance(value, PayloadTensor):
        return algebra.cast(value.payload.numpy(), format_of(value.dtype), format_of(dtype))
    numbers = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64)
    return _payload_tensor(numbers.to(dtype)).payload.numpy()


def _tensor(payload: Payload, source: torch.dtype, dtype: torch.dtype) -> PayloadTensor:
    data = np.ascontiguousarray(algebra.cast(np.asarray(payload), format_of(source), format_of(dtype)))
    return PayloadTensor(torch.from_numpy(data).reshape(np.shape(payload)), dtype)


def _result_dtype(*operands: Any) -> torch.dtype:
    """The promoted dtype of operands, by the rules of torch."""
    stand_ins = [
        torch.empty(value.shape, dtype=value.dtype, device="meta") if isinstance(value, torch.Tensor) else value
        for value in operands
    ]
    dtype = torch.result_type(stand_ins[0], stand_ins[-1])
    return dtype if dtype in _NAMES else torch.get_default_dtype()


def _elementwise(function: Callable[..., Payload], *operands: Any) -> PayloadTensor:
    dtype = _result_dtype(*operands)
    wide = _wide(dtype)
    payloads = [_payload_in(operand, wide) for operand in operands]
    return _tensor(function(*payloads, format=format_of(wide)), wide, dtype)


def _add(function: Callable[..., Payload], x: Any, y: Any, *, alpha: Any = 1) -> PayloadTensor:
    return _elementwise(function, x, y if alpha == 1 else _elementwise(algebra.multiply, y, alpha))


def _divide(x: Any, y: Any, *, rounding_mode: Any = None) -> PayloadTensor:
    if rounding_mode is not None:
        raise _unknown_operation(f"a division that rounds to {rounding_mode}")
    return _elementwise(algebra.divide, x, y)


def _elementwise_order(function: Callable[..., Any], *operands: Any) -> PayloadTensor:
    def without_format(*payloads: Payload, format: FloatFormat) -> Payload:
        result: Payload = function(*payloads)
        return result

    return _elementwise(without_format, *operands)


def _compare(function: Callable[..., Any], x: Any, y: Any) -> torch.Tensor:
    dtype = _result_dtype(x, y)
    return torch.from_numpy(np.asarray(function(_payload_in(x, dtype), _payload_in(y, dtype))))


def _power(x: Any, exponent: Any) -> PayloadTensor:
    if exponent in {0.5, -0.5}:
        return _elementwise(algebra.sqrt if exponent > 0 else algebra.rsqrt, x)
    if isinstance(exponent, torch.Tensor) or exponent != int(exponent) or not 1 <= abs(exponent) <= 64:
        raise _unknown_operation(f"a power of {exponent}")
    result = x
    for _ in range(abs(int(exponent)) - 1):
        result = _elementwise(algebra.multiply, result, x)
    return result if exponent > 0 else _elementwise(algebra.inverse, result)


def _axes(x: torch.Tensor, dim: Any) -> tuple[int, ...]:
    dims = range(x.dim()) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    return tuple(axis % max(x.dim(), 1) for axis in dims)


def _sum_of(x: Any, dim: Any, dtype: torch.dtype, *, keepdim: bool) -> Payload:
    return algebra.total(_payload_in(x, dtype), _axes(x, dim), format_of(dtype), keepdims=keepdim)


def _reduce(
    total: Callable[..., Payload], x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> PayloadTensor:
    target = dtype or x.dtype
    return _tensor(total(x, dim, _wide(target), keepdim=keepdim), _wide(target), target)


def _mean_of(x: Any, dim: Any, dtype: torch.dtype, *, keepdim: bool, fewer: float = 0) -> Payload:
    count = math.prod(x.shape[axis] for axis in _axes(x, dim)) - fewer
    total = _sum_of(x, dim, dtype, keepdim=keepdim)
    return algebra.divide(total, _payload_in(float(count), dtype), format_of(dtype))


def _mean_and_differences(x: Any, dim: Any, wide: torch.dtype) -> tuple[Payload, Payload]:
    """The mean along axes, which stay, and the differences from it."""
    mean = _mean_of(x, dim, wide, keepdim=True)
    return mean, algebra.subtract(_payload_in(x, wide), mean, format_of(wide))


def _variance_of(x: Any, dim: Any, wide: torch.dtype, correction: float, *, keepdim: bool) -> Payload:
    _, centred = _mean_and_differences(x, dim, wide)
    return _mean_square(centred, dim, wide, keepdim=keepdim, fewer=correction)


def _mean_square(payload: Payload, dim: Any, wide: torch.dtype, *, keepdim: bool, fewer: float = 0) -> Payload:
    squares = PayloadTensor(torch.from_numpy(algebra.multiply(payload, payload, format_of(wide))), wide)
    return _mean_of(squares, dim, wide, keepdim=keepdim, fewer=fewer)


def _variance(x: Any, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> PayloadTensor:
    wide = _wide(x.dtype)
    result = _variance_of(x, dim, wide, 1 if correction is None else correction, keepdim=keepdim)
    return _tensor(result, wide, x.dtype)


def _extreme(pick: Callable[..., Any], x: Any, dim: Any = None, keepdim: bool = False) -> PayloadTensor:
    return _tensor(pick(x.payload.numpy(), axis=_axes(x, dim), keepdims=keepdim), x.dtype, x.dtype)


def _cumulative_sum(x: Any, dim: int, *, dtype: Any = None) -> PayloadTensor:
    target = dtype or x.dtype
    sums = np.cumsum(_payload_in(x, _wide(target)), axis=dim)
    return _tensor(algebra.canonical(sums, format_of(_wide(target))), _wide(target), target)


def _matrix_product(a: Any, b: Any) -> PayloadTensor:
    wide = _wide(a.dtype)
    format, zero = format_of(wide), np.zeros((), np.int64)
    return _tensor(algebra.dot(_payload_in(a, wide), _payload_in(b, wide), zero, format), wide, a.dtype)


def _matrix_product_and_sum(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> PayloadTensor:
    wide = _wide(a.dtype)
    product = _matrix_product(_to(a, wide), _to(b, wide))
    return _to(_add(algebra.add, _elementwise(algebra.multiply, product, alpha), c, alpha=beta), a.dtype)


def _to(x: Any, dtype: torch.dtype) -> PayloadTensor:
    return _tensor(_payload_in(x, dtype), dtype, dtype)


def _exponentials(x: Any, dim: int, wide: torch.dtype) -> tuple[Payload, Payload, Payload]:
    """The elements minus the largest along an axis, their exponentials, and the sums of these, which stay."""
    format, payload = format_of(wide), _payload_in(x, wide)
    shifted = algebra.subtract(payload, payload.max(axis=dim, keepdims=True), format)
    exponentials = algebra.exp(shifted, format)
    return shifted, exponentials, algebra.total(exponentials, (dim,), format, keepdims=True)


def _softmax(x: Any, dim: int, half_to_float: bool = False) -> PayloadTensor:
    wide = _wide(x.dtype)
    _, exponentials, total = _exponentials(x, dim, wide)
    target = torch.float32 if half_to_float else x.dtype
    return _tensor(algebra.divide(exponentials, total, format_of(wide)), wide, target)


def _log_softmax(x: Any, dim: int, half_to_float: bool = False) -> PayloadTensor:
    wide = _wide(x.dtype)
    shifted, _, total = _exponentials(x, dim, wide)
    logarithm = algebra.log(total, format_of(wide))
    return _tensor(algebra.subtract(shifted, logarithm, format_of(wide)), wide, x.dtype)


def _normalize(centred: Payload, rstd: Payload, weight: Any, bias: Any, wide: torch.dtype) -> Payload:
    format = format_of(wide)
    result = algebra.multiply(centred, rstd, format)
    if weight is not None:
        result = algebra.multiply(result, _payload_in(weight, wide), format)
    return result if bias is None else algebra.add(result, _payload_in(bias, wide), format)


def _layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[PayloadTensor, ...]:
    wide, dim = _wide(x.dtype), list(range(-len(shape), 0))
    mean, centred = _mean_and_differences(x, dim, wide)
    variance = _variance_of(x, dim, wide, 0, keepdim=True)
    rstd = algebra.rsqrt(algebra.add(variance, _payload_in(eps, wide), format_of(wide)), format_of(wide))
    result = _normalize(centred, rstd, weight, bias, wide)
    return _tensor(result, wide, x.dtype), _tensor(mean, wide, wide), _tensor(rstd, wide, wide)


def _rms_norm(x: Any, shape: Any, weight: Any, eps: float | None) -> tuple[PayloadTensor, ...]:
    wide, dim = _wide(x.dtype), list(range(-len(shape), 0))
    payload, format = _payload_in(x, wide), format_of(wide)
    epsilon = _payload_in(torch.finfo(x.dtype).eps if eps is None else eps, wide)
    rstd = algebra.rsqrt(algebra.add(_mean_square(payload, dim, wide, keepdim=True), epsilon, format), format)
    return _tensor(_normalize(payload, rstd, weight, None, wide), wide, x.dtype), _tensor(rstd, wide, wide)


def _sigmoid(x: Any) -> PayloadTensor:
    def sigmoid(payload: Payload, format: FloatFormat) -> Payload:
        one = np.ones((), np.int64)
        return algebra.divide(
            one, algebra.add(one, algebra.exp(algebra.negate(payload, format), format), format), format
        )

    return _elementwise(sigmoid, x)


def _silu(x: Any) -> PayloadTensor:
    wide = _wide(x.dtype)
    return _to(_elementwise(algebra.multiply, _to(x, wide), _sigmoid(_to(x, wide))), x.dtype)


def _clamp(x: Any, low: Any = None, high: Any = None) -> PayloadTensor:
    result = x if low is None else _elementwise_order(np.maximum, x, low)
    return result if high is None else _elementwise_order(np.minimum, result, high)


def _where(condition: Any, x: Any, y: Any) -> PayloadTensor:
    dtype = _result_dtype(x, y)
    return _tensor(np.where(condition.numpy(), _payload_in(x, dtype), _payload_in(y, dtype)), dtype, dtype)


def _copy_to(x: Any, *, dtype: Any = None, **options: Any) -> Any:
    """Convert to another dtype; integers take part as their numbers."""
    if dtype is None or dtype == x.dtype:
        return PayloadTensor(x.payload.clone(), x.dtype)
    if dtype not in _NAMES:
        raise _unknown_operation("a cast from float to integer")
    return _to(x, dtype)


def _copy_into(x: Any, value: Any, non_blocking: bool = False) -> Any:
    x.payload.copy_(torch.from_numpy(np.ascontiguousarray(_payload_in(value, x.dtype))))
    return x


def _fill(x: Any, value: Any) -> Any:
    return _copy_into(x, _payload_tensor(torch.as_tensor(value, dtype=x.dtype)).expand(x.shape))


_RULES: dict[str, Callable[..., Any]] = {
    "add": partial(_add, algebra.add),
    "sub": partial(_add, algebra.subtract),
    "rsub": lambda x, y, alpha=1: _add(algebra.subtract, y, x, alpha=alpha),
    "mul": partial(_elementwise, algebra.multiply),
    "div": _divide,
    "fmod": partial(_elementwise, algebra.remainder),
    "pow": _power,
    "maximum": partial(_elementwise_order, np.maximum),
    "minimum": partial(_elementwise_order, np.minimum),
    "relu": lambda x: _elementwise_order(np.maximum, x, 0.0),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda x, high: _clamp(x, None, high),
    "where": _where,
    "masked_fill": lambda x, mask, value: _to(_where(mask, _to(value, x.dtype), x), x.dtype),
    **{
        name: partial(_compare, function)
        for name, function in (
            *(("eq", np.equal), ("ne", np.not_equal), ("lt", np.less)),
            *(("le", np.less_equal), ("gt", np.greater), ("ge", np.greater_equal)),
        )
    },
    **{
        name: partial(_elementwise, getattr(algebra, function))
        for name, function in (
            *((name, name) for name in ("exp", "exp2", "sin", "cos", "sqrt", "rsqrt", "log")),
            *(("neg", "negate"), ("abs", "absolute"), ("reciprocal", "inverse")),
        )
    },
    **{name: partial(_elementwise, partial(algebra.tag, operation=name)) for name in ("log2", "erf", "floor", "ceil")},
    "sigmoid": _sigmoid,
    "silu": _silu,
    "sum": partial(_reduce, _sum_of),
    "mean": partial(_reduce, _mean_of),
    "var": _variance,
    "amax": partial(_extreme, np.max),
    "amin": partial(_extreme, np.min),
    "cumsum": _cumulative_sum,
    "mm": _matrix_product,
    "bmm": _matrix_product,
    "mv": _matrix_product,
    "dot": _matrix_product,
    "addmm": _matrix_product_and_sum,
    "baddbmm": _matrix_product_and_sum,
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "native_layer_norm": _layer_norm,
    "_fused_rms_norm": _rms_norm,
    "_to_copy": _copy_to,
    "copy_": _copy_into,
    "fill_": _fill,
    "zero_": lambda x: _fill(x, 0.0),
}
_MOVE_NAMES = (
    "view _unsafe_view _reshape_alias reshape t transpose permute expand unsqueeze squeeze as_strided alias detach"
    " clone slice select narrow diagonal split split_with_sizes unbind unfold index gather index_select embedding cat"
    " take_along_dim stack repeat flip roll tril triu constant_pad_nd zeros_like empty_like new_zeros new_empty"
)
_MOVES = frozenset(_MOVE_NAMES.split())


def _evaluate(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = func.overloadpacket.__name__
    if func.namespace == "aten" and name in _RULES:
        return _RULES[name](*args, **kwargs)
    if func.namespace == "aten" and name in _MOVES and kwargs.get("dtype") in {None, _dtype_among(args)}:
        return _move_elements(func, args, kwargs)
    in_place = name.removesuffix("_")
    if func.namespace == "aten" and in_place != name and in_place in _RULES and isinstance(args[0], PayloadTensor):
        return _copy_into(args[0], _RULES[in_place](*args, **kwargs))
    raise _unknown_operation(str(func))


def _move_elements(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation that moves elements on payloads; plain float tensors among its operands are embedded."""
    dtype = _dtype_among(args)
    options = {name: value for name, value in kwargs.items() if name not in {"dtype", "layout", "device", "pin_memory"}}

    def payload(value: Any) -> Any:
        if isinstance(value, PayloadTensor):
            return value.payload
        return _payload_tensor(value.to(dtype)).payload if _is_float(value) else value

    result = func(*tree_map(payload, args), **options)
    return tree_map(lambda value: PayloadTensor(value, dtype) if isinstance(value, torch.Tensor) else value, result)


def _dtype_among(args: Any) -> torch.dtype:
    return next(value.dtype for value in tree_leaves(args) if isinstance(value, PayloadTensor))


def _unknown_operation(operation: str) -> UsageError:
    return UsageError(
        f"The algebra does not know {operation}. It knows sums, products, matmul, means, softmax, norms, exponentials "
        "and moves of elements; write the reference with these, or compare with a kernel."
    )
