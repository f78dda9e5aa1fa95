"""The operations of the interpreter while a launch is evaluated in the algebra of `kernellab.interpreter.algebra`.

A block of floats holds payloads then: a load embeds bit patterns, and a store unembeds. Integers, masks, shapes and
memory stay as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import triton.language as tl

from kernellab.interpreter import algebra
from kernellab.interpreter.access import CheckedBuilder
from kernellab.interpreter.algebra import FloatFormat, Payload
from kernellab.interpreter.faults import UnsupportedOperation
from kernellab.interpreter.scaled_operands import scaled_payload
from kernellab.interpreter.values import (
    ARITHMETIC,
    Array,
    Handle,
    add_operand_taints,
    format_of,
    from_payload,
    holds_payloads,
    wrap,
)

_COMPARISONS = frozenset({np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal})
_ORDERED = {np.minimum: np.minimum, np.maximum: np.maximum, np.fmin: np.minimum, np.fmax: np.maximum}

Elementwise = Callable[..., Payload]


@contextmanager
def algebra_of(builder: CheckedBuilder, is_on: bool) -> Iterator[set[str]]:
    """Evaluate floats in the algebra inside a with statement, if ``is_on``; yields the operations not modelled."""
    unmodelled: set[str] = set()
    if not is_on:
        yield unmodelled
        return
    ARITHMETIC.is_algebra = True
    for name, method in _methods(unmodelled).items():
        setattr(builder, name, partial(method, builder))
    try:
        yield unmodelled
    finally:
        ARITHMETIC.is_algebra = False
        for name in _methods(unmodelled):
            builder.__dict__.pop(name, None)  # the end of a recording removes some, too


def _methods(unmodelled: set[str]) -> dict[str, Callable[..., Any]]:
    """The methods of the builder that take the place of its own."""
    elementwise: dict[str, Elementwise] = {
        "fadd": algebra.add,
        "fsub": algebra.subtract,
        "fmul": algebra.multiply,
        "fdiv": algebra.divide,
        "precise_divf": algebra.divide,
        "approx_divf": algebra.divide,
        "frem": algebra.remainder,
        "fneg": algebra.negate,
        "fabs": algebra.absolute,
        "fma": algebra.multiply_add,
        "exp": algebra.exp,
        "exp2": algebra.exp2,
        "sin": algebra.sin,
        "cos": algebra.cos,
        "sqrt": algebra.sqrt,
        "precise_sqrt": algebra.sqrt,
        "rsqrt": algebra.rsqrt,
    }
    tags = {name: partial(algebra.tag, operation=name) for name in ("log", "log2", "erf", "floor", "ceil")}
    constants = (("fp16", tl.float16), ("bf16", tl.bfloat16), ("fp32", tl.float32), ("fp64", tl.float64))
    fp8 = (("fp8e4nv", tl.float8e4nv), ("fp8e5", tl.float8e5))
    return {
        **{f"create_{name}": partial(_elementwise, function) for name, function in (elementwise | tags).items()},
        **{f"get_{name}": partial(_constant, dtype) for name, dtype in (*constants, *fp8)},
        "binary_op": _binary_op,
        "ternary_op": _other_op,
        "unary_op": _other_op,
        "create_clampf": _clamp,
        "cast_impl": partial(_cast, unmodelled),
        "create_fp_to_fp": lambda builder, src, dst_type, rounding: _cast(unmodelled, builder, src, dst_type),
        "create_bitcast": partial(_bitcast, unmodelled),
        "create_dot": partial(_dot, unmodelled),
        "create_dot_scaled": partial(_dot_scaled, unmodelled),
        "create_extern_elementwise": _external,
    }


def _elementwise(function: Elementwise, builder: CheckedBuilder, *operands: Handle) -> Handle:
    dtype = operands[-1].dtype.scalar
    result = Handle(function(*(operand.data for operand in operands), format=format_of(dtype)), dtype)
    return add_operand_taints(result, *operands)


def _constant(dtype: Any, builder: CheckedBuilder, value: float) -> Handle:
    return wrap(np.array([value], np.float64), dtype)


def _binary_op(builder: CheckedBuilder, lhs: Handle, rhs: Handle, op: Any) -> Handle:
    """Compare payloads as signed integers, or take the smaller or larger one."""
    if not holds_payloads(lhs.dtype.scalar):
        return CheckedBuilder.binary_op(builder, lhs, rhs, op)
    if op not in _COMPARISONS and op not in _ORDERED:
        raise UnsupportedOperation(f"{op.__name__} of floats in the algebra")
    output: Array = _ORDERED.get(op, op)(lhs.data, rhs.data)
    return add_operand_taints(Handle(output, tl.int1 if op in _COMPARISONS else lhs.dtype.scalar), lhs, rhs)


def _other_op(builder: CheckedBuilder, *operands: Any) -> Handle:
    *handles, op = operands
    if any(holds_payloads(handle.dtype.scalar) for handle in handles):
        raise UnsupportedOperation(f"{getattr(op, '__name__', 'this operation')} of floats in the algebra")
    return CheckedBuilder.ternary_op(builder, *operands)


def _clamp(builder: CheckedBuilder, arg: Handle, lo: Handle, hi: Handle, propagate_nans: Any) -> Handle:
    return _binary_op(builder, _binary_op(builder, arg, lo, np.maximum), hi, np.minimum)


def _cast(unmodelled: set[str], builder: CheckedBuilder, src: Handle, dst_type: Any) -> Handle:
    """Cast payloads to payloads by the rule for widths; a float to an integer, and back, by their numbers."""
    source, target = src.dtype.scalar, dst_type.scalar
    if holds_payloads(source) and holds_payloads(target):
        data = algebra.cast(src.data, format_of(source), format_of(target))
        return add_operand_taints(Handle(data, target), src)
    if holds_payloads(target):
        return add_operand_taints(wrap(src.data.astype(np.float64), target), src)
    if holds_payloads(source):
        unmodelled.add("a cast from float to integer")
    return CheckedBuilder.create_fp_to_fp(builder, _as_numbers(src), dst_type, None)


def _as_numbers(block: Handle) -> Handle:
    """A block of payloads as real numbers; any other as it is."""
    dtype = block.dtype.scalar
    if not holds_payloads(dtype):
        return block
    return add_operand_taints(Handle(from_payload(block.data, dtype), dtype), block)


def _bitcast(unmodelled: set[str], builder: CheckedBuilder, src: Handle, dst_type: Any) -> Handle:
    if holds_payloads(src.dtype.scalar) != holds_payloads(dst_type.scalar) and not _moves_bits():
        unmodelled.add("a bitcast between float and integer")
    return CheckedBuilder.create_bitcast(builder, src, dst_type)


def _moves_bits() -> bool:
    """Whether Triton itself casts bits: ``tl.flip`` and ``tl.sort`` of what they move, ``tl.dot_scaled`` of bytes."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == tl.standard.__file__ or frame.f_code.co_name == "_bitcast_to_fp_type":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _dot(
    unmodelled: set[str], builder: CheckedBuilder, a: Handle, b: Handle, d: Handle, precision: Any, imprecise: Any
) -> Handle:
    """Multiply blocks and add the accumulator, in its width."""
    accumulator = d.dtype.scalar
    if not holds_payloads(accumulator):
        return CheckedBuilder.create_dot(builder, a, b, d, precision, imprecise)
    format = format_of(accumulator)
    left, right = (algebra.cast(operand.data, format_of(operand.dtype.scalar), format) for operand in (a, b))
    if algebra.is_infinite(left, format).any() or algebra.is_infinite(right, format).any():
        unmodelled.add("an infinity in tl.dot")
    taints = Handle(np.zeros(d.data.shape, np.int64), tl.int64)
    for operand, axis in ((a, -1), (b, -2)):
        if operand.undefined is not None:
            lanes: Array = np.logical_or.reduce(operand.undefined.lanes, axis, keepdims=True)
            taint = operand.undefined
            taints.undefined = type(taint)(np.broadcast_to(lanes, d.data.shape), taint.place, taint.cause)
    return add_operand_taints(Handle(algebra.dot(left, right, d.data, format), accumulator), d, taints)


def _dot_scaled(unmodelled: set[str], builder: CheckedBuilder, *operands: Any) -> Handle:
    """Multiply scaled blocks of payloads of fp16, where one of them has that type, or else of bf16."""
    *pairs, _fast_math, lhs_k_pack, rhs_k_pack, accumulator = operands
    (left, left_scale, _), (right, right_scale, _) = pairs[:3], pairs[3:]
    dtype = tl.float16 if tl.float16 in {left.dtype.scalar, right.dtype.scalar} else tl.bfloat16
    sides = ((left, left_scale, lhs_k_pack, False), (right, right_scale, rhs_k_pack, True))
    first, second = (
        scaled_payload(
            value.data,
            _format_or_none(value),
            None if scale is None else scale.data,
            None if scale is None else _format_or_none(scale),
            format_of(dtype),
            k_pack=k_pack,
            is_rhs=is_rhs,
        )
        for value, scale, k_pack, is_rhs in sides
    )
    return _dot(unmodelled, builder, Handle(first, dtype), Handle(second, dtype), accumulator, None, None)


def _format_or_none(value: Handle) -> FloatFormat | None:
    return format_of(value.dtype.scalar) if holds_payloads(value.dtype.scalar) else None


def _external(
    builder: CheckedBuilder, library: str, path: str, symbol: str, arguments: list[Handle], kind: Any, is_pure: bool
) -> Handle:
    """Tag a function of a library whose result is a float; others are computed on integers."""
    result = kind.scalar
    if not is_pure and holds_payloads(result):
        raise UnsupportedOperation(f"the external function {symbol}, which is not pure, in the algebra")
    if holds_payloads(result):
        data = algebra.external(symbol, [argument.data for argument in arguments], format_of(result))
        shape = np.broadcast_shapes(*(argument.data.shape for argument in arguments))
        return add_operand_taints(Handle(np.broadcast_to(data, shape), result), *arguments)
    numbers = [_as_numbers(argument) for argument in arguments]
    return CheckedBuilder.create_extern_elementwise(builder, library, path, symbol, numbers, kind, is_pure)
