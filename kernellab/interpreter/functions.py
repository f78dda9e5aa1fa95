"""Functions on whole blocks in numpy: ``tl.reduce``, ``tl.associative_scan`` and the math libraries.

Triton's interpreter reduces and scans element by element. Functions of CUDA's and AMD's libdevice are covered as far as
numpy and the standard library compute them. CUDA Math API: the names are ``__nv_`` + the C name, with ``f`` for
float32; AMD's are ``__ocml_`` + name + ``_f32``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import re
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream
from triton.runtime.interpreter import InterpretedFunction

from kernellab.interpreter.faults import UnsupportedOperation
from kernellab.interpreter.values import Array, add_taint, holds_payloads, plain, wrap

T = TypeVar("T")

_standard = tl.standard


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: bool = False, **ignored: Any) -> Any:
    """Reduce a tensor, or a tuple of equal shapes, along ``axis``, or over all elements if it is None."""
    axis, keep_dims = plain(axis), bool(plain(keep_dims))
    tensors = input if isinstance(input, tuple | tl.tuple) else (input,)
    blocks, batch = _arrays(tensors), _batch_axes()
    rank, flat = blocks[0].ndim - batch, axis is None
    if flat:
        blocks, axis = [block.reshape(*block.shape[:batch], -1) for block in blocks], 0
    axis = _normalised_axis(axis, blocks[0].ndim - batch) + batch
    results = _reduce_blocks(blocks, [tensor.dtype for tensor in tensors], axis, combine_fn)
    if keep_dims:
        results = [r.reshape(*r.shape[:batch], *(1,) * rank) if flat else np.expand_dims(r, axis) for r in results]
    return _outputs(results, input, tensors, lambda lanes: lanes.any() if flat else lanes.any(axis, keepdims=keep_dims))


def associative_scan(input: Any, axis: Any, combine_fn: Any, reverse: bool = False, **ignored: Any) -> Any:
    """Scan along ``axis``; with ``reverse``, from its end."""
    tensors = input if isinstance(input, tuple | tl.tuple) else (input,)
    axis = _normalised_axis(plain(axis), len(tensors[0].shape)) + _batch_axes()
    forward = (*(slice(None),) * axis, slice(None, None, -1 if plain(reverse) else 1))
    blocks = [block[forward] for block in _arrays(tensors)]
    scanned = _scan_blocks(blocks, [tensor.dtype for tensor in tensors], axis, combine_fn)
    results = [np.ascontiguousarray(block[forward]) for block in scanned]
    return _outputs(results, input, tensors, lambda lanes: np.logical_or.accumulate(lanes[forward], axis)[forward])


def _outputs(results: list[Array], input: Any, tensors: Any, combine_lanes: Callable[[Array], Any]) -> Any:
    """Return results as tensors, one or a tuple as the input; ``combine_lanes`` maps undefined lanes to theirs."""
    outputs = tuple(_tensor(result, tensor.dtype) for result, tensor in zip(results, tensors, strict=True))
    for handle in (tensor.handle for tensor in tensors if tensor.handle.undefined is not None):
        _require_one_program("a reduction of undefined values")
        lanes = combine_lanes(np.broadcast_to(handle.undefined.lanes, handle.data.shape))
        for output in outputs:
            add_taint(output.handle, handle.undefined, lanes)
    return outputs if isinstance(input, tuple | tl.tuple) else outputs[0]


def map_elementwise(scalar_fn: Any, *arguments: Any, pack: int = 1, **ignored: Any) -> Any:
    """Call ``scalar_fn`` on the elements in turn, ``pack`` of each argument at a time."""
    _require_one_program("tl.map_elementwise")
    pack = plain(pack)
    arguments = tuple(a if isinstance(a, tl.tensor) else upstream.interpreter_semantic.to_tensor(a) for a in arguments)
    blocks = np.broadcast_arrays(*(_array(argument) for argument in arguments))
    shape = blocks[0].shape
    columns = [block.reshape(-1, pack) for block in blocks]
    calls = []
    for row in range(len(columns[0])):
        scalars = [_tensor(c[row, k], a.dtype) for c, a in zip(columns, arguments, strict=True) for k in range(pack)]
        returned = scalar_fn(*scalars)
        calls.append(returned if isinstance(returned, tuple | tl.tuple) else (returned,))
    outputs = [_pack_outputs([call[i : i + pack] for call in calls], shape) for i in range(0, len(calls[0]), pack)]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _pack_outputs(rows: list[Any], shape: tuple[int, ...]) -> Any:
    first = rows[0][0]
    dtype = first.dtype if isinstance(first, tl.tensor) else upstream.interpreter_semantic.to_tensor(first).dtype
    values = [_array(item).item() if isinstance(item, tl.tensor) else plain(item) for row in rows for item in row]
    return _tensor(wrap(np.array(values), dtype).data.reshape(shape), dtype)


def _batch_axes() -> int:
    """The leading axes of each block that number programs: 1 while a batch of programs runs, else 0."""
    axes: int = upstream.interpreter_builder.batch_axes
    return axes


def _require_one_program(what: str) -> None:
    if _batch_axes():
        raise UnsupportedOperation(f"{what} of several programs at once")


def _arrays(tensors: Any) -> list[Array]:
    """Return the blocks of some tensors; in a batch, with the same programs."""
    blocks = [_array(tensor) for tensor in tensors]
    return blocks if len(blocks) == 1 or not _batch_axes() else list(np.broadcast_arrays(*blocks))


def _array(tensor: Any) -> Array:
    """Return the block of a tensor; a scalar's has no axes."""
    if not isinstance(tensor, tl.tensor):
        raise TypeError(f"expected a tensor, got {type(tensor).__name__}")
    data: Array = tensor.handle.data
    return data if tensor.shape else data.reshape(data.shape[:-1])


def _tensor(values: Any, dtype: Any) -> Any:
    values = np.asarray(values)
    scalar, sizes = dtype.scalar, values.shape[_batch_axes() :]
    if not sizes:
        return tl.tensor(wrap(values.reshape(*values.shape, 1), scalar), scalar)
    return tl.tensor(wrap(values, scalar), tl.block_type(scalar, list(sizes)))


def _normalised_axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for a block of rank {rank}")
    return axis % rank


def _reduce_blocks(blocks: list[Array], dtypes: list[Any], axis: int, combine_fn: Any) -> list[Array]:
    is_real = not holds_payloads(dtypes[0].scalar)
    fast = _of_standard(combine_fn, _FAST_REDUCTIONS) if is_real else None
    if fast is not None and len(blocks) == 1:
        return [fast(blocks[0], axis)]
    pick = _of_standard(combine_fn, _INDEX_REDUCTIONS) if is_real else None
    if pick is not None and len(blocks) == 2:
        where = np.expand_dims(pick(blocks[0], axis=axis), axis)  # the first wins a tie
        return [np.take_along_axis(block, where, axis).squeeze(axis) for block in blocks]
    if _has_branches(combine_fn):
        return [np.take(block, -1, axis) for block in _scan_serially(blocks, dtypes, axis, combine_fn)]
    while blocks[0].shape[axis] > 1:
        left = [_part(block, axis, 0, None, 2) for block in blocks]
        right = [_part(block, axis, 1, None, 2) for block in blocks]
        blocks = _combine(combine_fn, left, right, dtypes)
    return [np.take(block, 0, axis) for block in blocks]


def _scan_blocks(blocks: list[Array], dtypes: list[Any], axis: int, combine_fn: Any) -> list[Array]:
    fast = None if holds_payloads(dtypes[0].scalar) else _of_standard(combine_fn, _FAST_SCANS)
    if fast is not None and len(blocks) == 1:
        return [fast(blocks[0], axis)]
    if _has_branches(combine_fn):
        return _scan_serially(blocks, dtypes, axis, combine_fn)
    distance, size = 1, blocks[0].shape[axis]
    while distance < size:
        # Block shapes must stay powers of two, so the first elements are combined too; the result is discarded.
        heads = [_part(block, axis, 0, distance) for block in blocks]
        earlier = [
            np.concatenate([head, _part(block, axis, 0, size - distance)], axis)
            for head, block in zip(heads, blocks, strict=True)
        ]
        combined = _combine(combine_fn, earlier, blocks, dtypes)
        blocks = [
            np.concatenate([head, _part(block, axis, distance, None)], axis)
            for head, block in zip(heads, combined, strict=True)
        ]
        distance *= 2
    return blocks


def _part(block: Array, axis: int, start: int, stop: int | None, step: int = 1) -> Array:
    return block[(slice(None),) * axis + (slice(start, stop, step),)]


def _combine(combine_fn: Any, left: list[Array], right: list[Array], dtypes: list[Any]) -> list[Array]:
    arguments = [_tensor(block, dtype) for block, dtype in zip((*left, *right), (*dtypes, *dtypes), strict=True)]
    returned = combine_fn(*arguments)
    results = returned if isinstance(returned, tuple | tl.tuple) else (returned,)
    return [
        np.broadcast_to(_array(r) if isinstance(r, tl.tensor) else np.asarray(plain(r)), block.shape).astype(
            block.dtype
        )
        for r, block in zip(results, left, strict=True)
    ]


def _scan_serially(blocks: list[Array], dtypes: list[Any], axis: int, combine_fn: Any) -> list[Array]:
    """Scan scalar by scalar, so that an ``if`` in the combine function decides for one element."""
    _require_one_program("a scan with a branch")
    results = [np.moveaxis(block, axis, 0).copy() for block in blocks]
    for position in range(1, len(results[0])):
        for lane in np.ndindex(results[0].shape[1:]):
            left = [result[(position - 1, *lane)] for result in results]
            right = [result[(position, *lane)] for result in results]
            for result, value in zip(results, _combine(combine_fn, left, right, dtypes), strict=True):
                result[(position, *lane)] = value
    return [np.moveaxis(result, 0, axis) for result in results]


def kept_on_function(make: Callable[[Any], T]) -> Callable[[Any], T]:
    """Return a cache of ``make`` for functions of kernels, whose entries are attributes and end with their function.

    A kernel and what is made of it refer to each other: in a dict, such as Triton's own, both would stay for good.
    """
    name = f"_kernellab_{make.__name__}"

    def kept(function: Any) -> T:
        attributes = vars(function)
        if name not in attributes:
            attributes[name] = make(function)
        return cast(T, attributes[name])

    return kept


@kept_on_function
def _has_branches(combine_fn: Any) -> bool:
    """Whether a combine function may branch on the value of an element."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(combine_fn.fn)))
    except (OSError, TypeError, SyntaxError):
        return True
    return any(isinstance(node, ast.If | ast.IfExp | ast.While | ast.BoolOp) for node in ast.walk(tree))


def _ignore_nan(pick: Callable[..., Array], worst: float) -> Callable[..., Array]:
    def pick_number(values: Array, axis: int) -> Array:
        if values.dtype.kind == "f":
            values = np.where(np.isnan(values), values.dtype.type(worst), values)
        return pick(values, axis=axis)

    return pick_number


Reductions = dict[str, Callable[..., Array]]


def _of_standard(combine_fn: Any, functions: Reductions) -> Callable[..., Array] | None:
    """The function for a combine function of Triton's own, by name: a forked worker has imported these anew."""
    name = getattr(combine_fn, "__name__", "")
    return functions.get(name) if getattr(_standard, name, None) is combine_fn else None


_FAST_REDUCTIONS: Reductions = {
    "_sum_combine": np.sum,
    "_xor_combine": np.bitwise_xor.reduce,
    "_or_combine": np.bitwise_or.reduce,
    "_elementwise_max": np.fmax.reduce,
    "_elementwise_min": np.fmin.reduce,
}
_FAST_SCANS: Reductions = {"_sum_combine": np.cumsum, "_prod_combine": np.cumprod}
_argmax, _argmin = _ignore_nan(np.argmax, -np.inf), _ignore_nan(np.argmin, np.inf)
_INDEX_REDUCTIONS: Reductions = {
    f"_{name}_combine_tie_break_{side}": pick
    for name, pick in (("argmax", _argmax), ("argmin", _argmin))
    for side in ("left", "fast")
}


External = Callable[..., Array]


def _vectorise(function: Callable[..., float]) -> External:
    """Turn a function of Python floats into one of arrays, computed in float64."""

    def evaluate(*values: float) -> float:
        try:
            return function(*map(float, values))
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    vectorised = np.vectorize(evaluate, otypes=[np.float64])
    return lambda *arrays: vectorised(*arrays).astype(arrays[0].dtype)


def _compute_in_double(function: Callable[..., Array]) -> External:
    return lambda *arrays: function(*(array.astype(np.float64) for array in arrays)).astype(arrays[0].dtype)


def _flag(function: Callable[..., Array]) -> External:
    return lambda array: function(array).astype(np.int32)


def _leading_zeros(values: Array) -> Array:
    bits = values.itemsize * 8
    unsigned = values.view(f"u{values.itemsize}")
    zeros: Array = np.vectorize(lambda v: bits - int(v).bit_length(), otypes=[np.int32])(unsigned)
    return zeros


_NUMPY_NAMES = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh sqrt cbrt floor ceil trunc rint fmod hypot "
    "copysign nextafter ldexp abs fmax fmin divide asin=arcsin acos=arccos atan=arctan atan2=arctan2 asinh=arcsinh "
    "acosh=arccosh atanh=arctanh pow=power fabs=abs max=maximum min=minimum umax=maximum umin=minimum nearbyint=rint "
    "fdivide=divide div=divide mul=multiply add=add sub=subtract"
)
_FUNCTIONS: dict[str, External] = {
    **{name.split("=")[0]: getattr(np, name.split("=")[-1]) for name in _NUMPY_NAMES.split()},
    **{name: _flag(getattr(np, name)) for name in ("isnan", "isinf", "signbit")},
    "finite": _flag(np.isfinite),
    "isfinited": _flag(np.isfinite),
    "powi": lambda x, n: np.power(x.astype(np.float64), n).astype(x.dtype),
    "round": _compute_in_double(lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
    "exp10": _compute_in_double(lambda x: np.power(10.0, x)),
    "rsqrt": _compute_in_double(lambda x: 1 / np.sqrt(x)),
    "rcbrt": _compute_in_double(lambda x: 1 / np.cbrt(x)),
    "fma": _compute_in_double(lambda x, y, z: x * y + z),
    "fdim": _compute_in_double(lambda x, y: np.where(x > y, x - y, 0.0)),
    "sinpi": _compute_in_double(lambda x: np.sin(np.pi * x)),
    "cospi": _compute_in_double(lambda x: np.cos(np.pi * x)),
    "saturate": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0, 1).astype(x.dtype),
    "remainder": _vectorise(math.remainder),
    "erf": _vectorise(math.erf),
    "erfc": _vectorise(math.erfc),
    "tgamma": _vectorise(math.gamma),
    "lgamma": _vectorise(math.lgamma),
    "popc": lambda x: np.bitwise_count(x.view(f"u{x.itemsize}")).astype(np.int32),
    "clz": _leading_zeros,
    "mulhi": lambda x, y: (x.astype(np.int64) * y.astype(np.int64) >> 32).astype(x.dtype),
    "umulhi": lambda x, y: (x.astype(np.uint64) * y.astype(np.uint64) >> np.uint64(32)).astype(x.dtype),
    "float_as_int": lambda x: x.view(np.int32),
    "int_as_float": lambda x: x.view(np.float32),
    "ilogb": lambda x: (np.frexp(x)[1] - 1).astype(np.int32),
    "rcp": lambda x: (1 / x).astype(x.dtype),
}
_INTEGER_SUFFIX = {"popcll": "popc", "clzll": "clz", "llmax": "max", "llmin": "min", "llabs": "abs"}


def external_function(symbol: str) -> External | None:
    """Return the numpy equivalent of a library function, or None if there is none."""
    amd = re.fullmatch(r"__ocml_(\w+)_f(?:16|32|64)", symbol)
    if amd:
        return _FUNCTIONS.get(amd[1])
    if not symbol.startswith("__nv_"):
        return None
    name = symbol.removeprefix("__nv_")
    to_nearest = re.fullmatch("[df]?(div|mul|add|sub|sqrt|rcp|fma)_rn", name)
    plain = to_nearest[1] if to_nearest else _INTEGER_SUFFIX.get(name, name.removeprefix("fast_"))
    return _FUNCTIONS.get(plain) or _FUNCTIONS.get(plain.removesuffix("f"))


_WRITTEN_IN_TRITON = ("triton.language.standard", "triton.language.random")


def interpret_standard_functions() -> None:
    """Import the language's functions written in Triton, such as ``tl.sum``, anew if they are compiled ones.

    They are interpreted where ``TRITON_INTERPRET=1`` stands when their modules are imported, else compiled. A worker
    that a server forked has them from the server, which also forks workers that compile. Methods of tensors follow.
    """
    if isinstance(tl.cdiv, InterpretedFunction):
        return
    for name in _WRITTEN_IN_TRITON:
        members = vars(importlib.reload(importlib.import_module(name)))
        functions = {name: member for name, member in members.items() if isinstance(member, InterpretedFunction)}
        vars(tl).update({name: function for name, function in functions.items() if name in vars(tl)})
