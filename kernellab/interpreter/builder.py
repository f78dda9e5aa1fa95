"""The operations of the interpreter that differ from Triton's own: arithmetic, casts and shapes.

Triton's ``InterpreterBuilder`` computes on bf16 and fp8 as if they were integers; here such blocks hold float32 values
that their type can represent, and every operation rounds its result. 32-bit integer arithmetic tracks the lanes
that overflowed, until the value reaches a pointer.

Device queries are emulated: launch options come from the launch, program n runs on SM n modulo their number,
and clocks return nanoseconds of this machine, so they grow but measure the interpreter.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from kernellab.interpreter.faults import InterpretedCheckError, UnsupportedOperation, current_line
from kernellab.interpreter.values import (
    ARITHMETIC,
    Array,
    Bounds,
    Handle,
    Taint,
    add_operand_taints,
    add_taint,
    bounds_of,
    clear_decided_lanes,
    is_low_precision,
    join_taints,
    mark_undefined,
    numpy_dtype,
    raw_dtype,
    round_to_type,
    select_taint,
    to_bits,
    to_values,
    wrap,
)
from kernellab.target import MULTIPROCESSORS

_INT32 = np.dtype(np.int32)
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_BOOL = np.dtype(bool)

Operation = Callable[..., Array]

# The registers of PTX, https://docs.nvidia.com/cuda/parallel-thread-execution/#special-registers, and AMD's counter.
_MOVE = re.compile(r"mov\.[ub](?:32|64)\s+\$0\s*,\s*%(\w+)\s*;?")
_AMD_COUNTERS = ("s_memrealtime", "MSG_RTN_GET_REALTIME")
_CLOCKS = frozenset({"globaltimer", "globaltimer_lo", "clock", "clock64"})


class DeviceOptions(upstream.InterpreterOptions):  # type: ignore[misc]
    """The options of a launch, as Triton's language asks the builder for them.

    ``warps`` per program are None if unknown.
    """

    def __init__(self, warps: int | None = None, multiprocessors: int = MULTIPROCESSORS) -> None:
        # device_assert is checked; overflow is found here, at a fraction of the cost of Triton's 64-bit shadow sums.
        # tl.dot always computes in float32; the compiler checks which precisions a target has.
        precisions = tuple(name.lower() for name in upstream._ir.INPUT_PRECISION.__members__)
        super().__init__(debug=True, sanitize_overflow=False, arch="", allowed_dot_input_precisions=precisions)
        object.__setattr__(self, "warps", warps)
        object.__setattr__(self, "multiprocessors", multiprocessors)

    @property
    def num_warps(self) -> int:
        """The warps of a program.

        Raises:
            UnsupportedOperation: the options of the launch are not known.
        """
        if self.warps is None:
            raise UnsupportedOperation("num_warps and num_threads here, where the options of the launch are not known")
        return int(self.warps)


def register_value(assembly: str, program: int, multiprocessors: int) -> int:
    """Return the special register that inline assembly reads, for a program by its number.

    Raises:
        UnsupportedOperation: the assembly does anything else.
    """
    move = _MOVE.fullmatch(assembly.strip())
    register = move[1] if move else ""
    if register in _CLOCKS or any(word in assembly for word in _AMD_COUNTERS):
        return time.monotonic_ns()
    if register in {"smid", "nsmid"}:
        return program % multiprocessors if register == "smid" else multiprocessors
    raise UnsupportedOperation("inline assembly")


def _constant(dtype: Any) -> Callable[..., Handle]:
    return lambda builder, value: wrap(np.array([value], np.float32), dtype)


def _elementwise_method(op: Operation, *marks: Callable[[Handle, Handle, Handle], Handle]) -> Callable[..., Handle]:
    """Return a method that applies a numpy function of two arrays and then marks lanes of the result."""

    def create(builder: ArithmeticBuilder, lhs: Handle, rhs: Handle) -> Handle:
        result = builder.binary_op(lhs, rhs, op)
        for mark in marks:
            result = mark(result, lhs, rhs)
        return result

    return create


def rearranging_method(move: Callable[..., Array]) -> Callable[..., Handle]:
    """Return a method that moves the elements of a block, with their bounds and taints."""

    def create(builder: ArithmeticBuilder, arg: Handle, *options: Any) -> Handle:
        result = Handle(move(arg.data, *options), arg.dtype.scalar)
        result.bounds = arg.bounds
        if arg.wrapped is not None or arg.undefined is not None:
            result.wrapped, result.undefined = (
                taint and taint.at(move(np.broadcast_to(taint.lanes, arg.data.shape), *options))
                for taint in (arg.wrapped, arg.undefined)
            )
        return result

    return create


def _mark_quotients(result: Handle, lhs: Handle, rhs: Handle) -> Handle:
    """Mark the lanes without a quotient: https://llvm.org/docs/LangRef.html#sdiv-instruction."""
    low, high = bounds_of(rhs)
    if low <= 0 <= high and not rhs.data.all():
        result = mark_undefined(result, rhs.data == 0, "an integer divided by zero")
    if low <= -1 <= high and (lanes := (rhs.data == -1) & (lhs.data == np.iinfo(lhs.data.dtype).min)).any():
        result = mark_undefined(result, lanes, "the least integer divided by -1")
    return result


def _mark_shifts(result: Handle, lhs: Handle, rhs: Handle) -> Handle:
    """Mark lanes shifted by their width or more: https://llvm.org/docs/LangRef.html#shl-instruction."""
    low, high = bounds_of(rhs)
    bits = 8 * result.data.itemsize
    if low < 0 or high >= bits:
        lanes = (rhs.data < 0) | (rhs.data >= bits)
        if lanes.any():
            return mark_undefined(result, lanes, f"an integer of {bits} bits shifted by more than {bits - 1}")
    return result


def _mark_overflow(op: Operation, bounds: Callable[[Bounds, Bounds], Bounds]) -> Callable[..., Handle]:
    """Return a function that marks lanes of a 32-bit result that overflowed; ``bounds`` are those of the result."""

    def mark(result: Handle, lhs: Handle, rhs: Handle) -> Handle:
        if lhs.data.dtype == _INT32 == rhs.data.dtype:
            low, high = bounds(bounds_of(lhs), bounds_of(rhs))
            if low >= _INT32_MIN and high <= _INT32_MAX:
                result.bounds = (low, high)
            else:
                lanes = op(lhs.data.astype(np.int64), rhs.data.astype(np.int64)) != result.data
                if lanes.any():
                    result.wrapped = Taint(lanes, current_line(), "a 32-bit offset overflowed")
                    return result
        if lhs.wrapped is not None or rhs.wrapped is not None:
            result.wrapped = join_taints(lhs.wrapped, rhs.wrapped, result.data.shape)
        return result

    return mark


def _product_bounds(a: Bounds, b: Bounds) -> Bounds:
    corners = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return min(corners), max(corners)


def _shift_signed(left: Array, right: Array) -> Array:
    """Arithmetic shift right, of unsigned integers too."""
    signed = upstream._get_signed_np_dtype(left.dtype)
    shifted: Array = np.right_shift(left.astype(signed), right.astype(signed))
    return shifted


def _high_product(left: Array, right: Array) -> Array:
    """Return the high half of an unsigned product; signed operands are reinterpreted bitwise."""
    bits = 8 * left.itemsize
    one, other = (operand.view(f"u{operand.itemsize}") for operand in (left, right))
    if bits == 64:
        high = upstream.np_umulhi_u64(one, other)
    else:
        high = one.astype(np.uint64) * other.astype(np.uint64) >> np.uint64(bits)
    product: Array = high.astype(one.dtype).view(left.dtype)
    return product


_ONE_BIT_SUMS = frozenset({np.add, np.subtract, np.multiply})
_mark_sums = _mark_overflow(np.add, lambda a, b: (a[0] + b[0], a[1] + b[1]))
_mark_differences = _mark_overflow(np.subtract, lambda a, b: (a[0] - b[1], a[1] - b[0]))
_mark_products = _mark_overflow(np.multiply, _product_bounds)


def _require_true(condition: Handle, failure: str, message: str = "") -> None:
    """Raise `InterpretedCheckError` with the number of false lanes, if there are any."""
    if not condition:
        size = condition.data.size
        lanes = "" if size == 1 else f" in {size - int(condition.data.sum())} of {size} lanes"
        raise InterpretedCheckError(f"{failure}{lanes}{f': {message}' if message else ''}")


class ArithmeticBuilder(upstream.InterpreterBuilder):  # type: ignore[misc]
    """Arithmetic, casts and shape operations. `CheckedBuilder` adds memory."""

    def __init__(self) -> None:
        super().__init__()
        self.options = DeviceOptions()
        self.low_precision_used: set[str] = set()
        self.reads_device_registers = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("create_"):
            raise UnsupportedOperation(f"{name.removeprefix('create_')} operations")
        raise AttributeError(name)

    def get_all_ones_value(self, type: Any) -> Handle:
        """Return the integer with all bits set. Triton 3.6 writes -1, which numpy refuses for unsigned types."""
        dtype = type.scalar
        return Handle(np.invert(np.zeros(1, numpy_dtype(dtype))), dtype)

    get_bf16 = _constant(tl.bfloat16)
    get_fp8e4nv = _constant(tl.float8e4nv)
    get_fp8e5 = _constant(tl.float8e5)

    # casts

    def cast_impl(self, src: Handle, dst_type: Any) -> Handle:
        """Convert to another type, rounding to the nearest."""
        return self.create_fp_to_fp(src, dst_type, None)

    def create_fp_to_fp(self, src: Handle, dst_type: Any, rounding_mode: Any) -> Handle:
        """Convert to another type; ``rounding_mode`` may ask for rounding towards zero."""
        toward_zero = rounding_mode is not None and rounding_mode == upstream._ir.ROUNDING_MODE.RTZ
        return add_operand_taints(_convert(src, dst_type.scalar, toward_zero=toward_zero), src)

    def create_bitcast(self, src: Handle, dst_type: Any) -> Handle:
        """Return the same bits as elements of another type of the same width."""
        bits = to_bits(src.data, src.dtype.scalar).view(raw_dtype(dst_type.scalar))
        result = Handle(to_values(bits, dst_type.scalar), dst_type.scalar)
        result.undefined = src.undefined
        return result

    # elementwise operations

    def binary_op(self, lhs: Handle, rhs: Handle, op: Operation) -> Handle:
        """Apply a numpy function of two arrays; comparisons give a block of ``int1``."""
        left, right = lhs.data, rhs.data
        if left.dtype == _BOOL and right.dtype == _BOOL and op in _ONE_BIT_SUMS:
            result = Handle((op(left.astype(np.int8), right.astype(np.int8)) & 1).astype(bool), tl.int1)
        else:
            output = op(left, right)
            result = Handle(output, tl.int1) if output.dtype == _BOOL else wrap(output, lhs.dtype.scalar)
        if lhs.undefined is not None or rhs.undefined is not None:
            result.undefined = join_taints(lhs.undefined, rhs.undefined, result.data.shape)
        return result

    def ternary_op(self, *operands: Any) -> Handle:
        """Apply a numpy function, which stands last, to operands; the result has the type of the last of these."""
        *handles, op = operands
        result = wrap(op(*(handle.data for handle in handles)), handles[-1].dtype.scalar)
        return add_operand_taints(result, *handles)

    unary_op = ternary_op

    def create_select(self, cond: Handle, lhs: Handle, rhs: Handle) -> Handle:
        """Select lane by lane, each lane with its taint."""
        result = Handle(np.where(cond.data, lhs.data, rhs.data), rhs.dtype.scalar)
        if lhs.wrapped is not None or rhs.wrapped is not None:
            result.wrapped = select_taint(cond, lhs.wrapped, rhs.wrapped)
        if lhs.undefined is not None or rhs.undefined is not None:
            result.undefined = select_taint(cond, lhs.undefined, rhs.undefined)
        return result if cond.undefined is None else add_operand_taints(result, cond)

    def create_idiv(self, lhs: Handle, rhs: Handle) -> Handle:
        """Divide integers, towards zero."""
        result: Handle = super().create_idiv(lhs, rhs)
        return _mark_quotients(add_operand_taints(result, lhs, rhs), lhs, rhs)

    create_srem = create_urem = _elementwise_method(np.fmod, _mark_quotients)
    create_shl = _elementwise_method(np.left_shift, _mark_shifts)
    create_lshr = _elementwise_method(np.right_shift, _mark_shifts)
    create_ashr = _elementwise_method(_shift_signed, _mark_shifts)
    create_add = _elementwise_method(np.add, _mark_sums)
    create_sub = _elementwise_method(np.subtract, _mark_differences)
    create_mul = _elementwise_method(np.multiply, _mark_products, clear_decided_lanes)
    create_and = _elementwise_method(np.bitwise_and, clear_decided_lanes)
    create_or = _elementwise_method(np.bitwise_or, partial(clear_decided_lanes, all_ones=True))
    create_maxnumf = _elementwise_method(np.fmax)  # NaN only where both are
    create_minnumf = _elementwise_method(np.fmin)
    create_umulhi = _elementwise_method(_high_product)

    def create_fabs(self, arg: Handle) -> Handle:
        """Clear the sign."""
        return self.unary_op(arg, np.abs)

    def create_fma(self, x: Handle, y: Handle, z: Handle) -> Handle:
        """Multiply and add, rounded once: the product of two float32 numbers is exact in float64."""
        exact = np.multiply(x.data, y.data, dtype=np.float64) + z.data
        return add_operand_taints(wrap(exact, z.dtype.scalar), x, y, z)

    def create_clampf(self, arg: Handle, lo: Handle, hi: Handle, propagate_nans: Any) -> Handle:
        """Clamp to ``lo`` and ``hi``; ``propagate_nans`` decides whether NaN stays or becomes ``lo``."""
        if propagate_nans == upstream._ir.PROPAGATE_NAN.NONE:
            return self.binary_op(self.binary_op(arg, lo, np.fmax), hi, np.fmin)
        return self.ternary_op(arg, lo, hi, np.clip)

    # linear algebra and counting

    def create_dot(self, a: Handle, b: Handle, d: Handle, input_precision: Any, max_num_imprecise_acc: Any) -> Handle:
        """Multiply blocks of (..., M, K) and (..., K, N), accumulate in float32 for fp16, and add ``d``."""
        compute = np.float32 if d.data.dtype == np.float16 else d.data.dtype
        product = np.matmul(a.data, b.data, dtype=compute)
        result = wrap(product + d.data, d.dtype.scalar)
        for operand, axis in ((a, -1), (b, -2)):
            if operand.undefined is not None:
                lanes: Array = np.logical_or.reduce(operand.undefined.lanes, axis, keepdims=True)
                result = add_taint(result, operand.undefined, lanes)
        return add_operand_taints(result, d)

    def create_histogram(self, data: Handle, bins: int, mask: Handle | None) -> Handle:
        """Count values; those outside 0 to bins - 1 are dropped, as on a GPU."""
        values = data.data
        valid = (values >= 0) & (values < bins)
        if mask is not None:
            valid &= mask.data
        counts = Handle(np.bincount(values[valid].astype(np.int64), minlength=bins).astype(np.int32), tl.int32)
        if data.undefined is not None and (data.undefined.lanes & (True if mask is None else mask.data)).any():
            counts = add_taint(counts, data.undefined, np.ones(counts.data.shape, bool))
        return counts

    def create_gather(self, src: Handle, indices: Handle, axis: int) -> Handle:
        """Take elements along an axis by index."""
        size = src.data.shape[axis]
        strays = (indices.data < 0) | (indices.data >= size)
        places = np.clip(indices.data, 0, size - 1)
        result = Handle(np.take_along_axis(src.data, places, axis=axis), src.dtype.scalar)
        if src.undefined is not None:
            lanes = np.take_along_axis(np.broadcast_to(src.undefined.lanes, src.data.shape), places, axis=axis)
            result = add_taint(result, src.undefined, lanes)
        if strays.any():
            result = mark_undefined(result, strays, f"tl.gather with an index outside of 0 to {size - 1}")
        return add_operand_taints(result, indices)

    # shapes

    def create_make_range(self, ret_ty: Any, start: int, stop: int) -> Handle:
        """Return the integers from ``start`` to ``stop`` - 1, with their bounds."""
        result = Handle(np.arange(start, stop, dtype=np.int32), tl.int32)
        result.bounds = (start, stop - 1)
        return result

    create_reshape = rearranging_method(lambda data, shape, allow_reorder: data.reshape(shape))
    create_trans = rearranging_method(np.transpose)
    create_expand_dims = rearranging_method(np.expand_dims)
    create_broadcast = rearranging_method(np.broadcast_to)
    create_unsplat = rearranging_method(lambda data: data.ravel()[:1].copy())
    _fill = rearranging_method(lambda data, shape: np.full(shape, data.item(), data.dtype))

    def create_splat(self, ret_ty: Any, arg: Handle) -> Handle:
        """Fill a block with a scalar."""
        return self._fill(arg, ret_ty.shape)

    # pointers

    def create_addptr(self, ptr: Handle, offset: Handle) -> Handle:
        """Advance pointers by ``offset`` elements, modulo 2**64."""
        itemsize = raw_dtype(ptr.get_element_ty()).itemsize
        steps = offset.data.astype(np.uint64)
        result = Handle(ptr.data + (steps * np.uint64(itemsize) if itemsize > 1 else steps), ptr.dtype)
        if ptr.wrapped is not None or offset.wrapped is not None:
            result.wrapped = join_taints(ptr.wrapped, offset.wrapped, result.data.shape)
        return add_operand_taints(result, ptr, offset)

    # checks

    def create_assert(self, condition: Handle, message: str) -> None:
        """Check a ``tl.device_assert``."""
        _require_true(condition, "device_assert failed", message)

    def create_assume(self, condition: Handle) -> None:
        """Check a ``tl.assume``, which a GPU does not check."""
        _require_true(condition, "tl.assume does not hold")

    def create_grid_dependency_wait(self) -> None:
        """Do nothing: no other kernel runs."""

    create_grid_dependency_launch_dependents = create_grid_dependency_wait


def _convert(src: Handle, dtype: Any, *, toward_zero: bool) -> Handle:
    if is_low_precision(dtype.name):
        return Handle(round_to_type(src.data, dtype.name, toward_zero=toward_zero), dtype)
    target_dtype = numpy_dtype(dtype)
    if dtype.is_fp16() and toward_zero and not ARITHMETIC.is_wide:
        return Handle(_half_toward_zero(src.data), dtype)
    if src.data.dtype.kind == "f" and target_dtype.kind in "iu":
        return Handle(_float_to_int(src.data, target_dtype), dtype)
    result = Handle(src.data.astype(target_dtype), dtype)
    if target_dtype.kind == "i" and src.data.dtype.kind == "i" and target_dtype.itemsize >= src.data.dtype.itemsize:
        result.bounds, result.wrapped = src.bounds, src.wrapped
    return result


def _half_toward_zero(values: Array) -> Array:
    nearest = values.astype(np.float16)
    beyond = np.abs(nearest.astype(np.float64)) > np.abs(values.astype(np.float64))
    return np.where(beyond, np.nextafter(nearest, np.float16(0)), nearest)


def _float_to_int(values: Array, target_dtype: Any) -> Array:
    """Convert towards zero as NVIDIA GPUs do; numpy leaves values out of range undefined.

    ``cvt`` saturates to at least 16 bits; an 8-bit result is the low byte. NaN becomes 0, in 64 bits or from float64
    the highest bit alone. For ``uint8``, a value out of range is undefined: packed elements take each other's bits.
    PTX ISA, "cvt", https://docs.nvidia.com/cuda/parallel-thread-execution/.
    """
    if target_dtype.itemsize == 1:
        return _float_to_int(values, np.dtype(f"{target_dtype.kind}2")).astype(target_dtype)
    limits = np.iinfo(target_dtype)
    wide = values.astype(np.float64)
    inside = (wide > float(limits.min) - 1) & (wide < float(limits.max) + (target_dtype.itemsize < 8))
    converted = np.where(inside, wide, 0).astype(target_dtype)
    if inside.all():
        return converted
    is_highest = target_dtype.itemsize == 8 or values.dtype == np.float64
    nan_result = (limits.min or limits.max // 2 + 1) if is_highest else 0
    outside = [np.where(wide > 0, limits.max, limits.min).astype(target_dtype), np.array(nan_result, target_dtype)]
    return np.where(inside, converted, np.where(np.isnan(wide), outside[1], outside[0]))
