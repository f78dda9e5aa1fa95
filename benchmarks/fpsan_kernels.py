"""Kernels of one operation each, which Triton's floating-point sanitizer and the algebra are compared by.

Each kernel computes one block in one program; ``OPERATION`` chooses what it computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.language.extra import libdevice

LANES = 64
SIDE = 32
ARITHMETIC = (
    *("add", "sub", "mul", "div", "neg", "mod", "fma", "mul_add", "abs", "maximum", "minimum", "clamp", "where"),
    *("constants", "less", "less_equal", "equal", "not_equal"),
)
FUNCTIONS = (
    *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "floor", "ceil", "sigmoid"),
    *("fdiv", "tanh", "pow", "pow_of_integer", "masked_exp"),
)
REDUCTIONS = ("sum", "max", "min", "cumsum", "cumprod", "softmax", "sort", "argmax")
INTEGERS = ("from_int32", "from_uint32", "from_int8", "to_int32", "bitcast")
ATOMICS = ("atomic_xchg", "atomic_cas", "atomic_add", "atomic_max", "atomic_min")

_EVEN = "the inverse of an even payload is multiplicative"
_ORDER = "comparisons are of payloads, as minimum and maximum are; the sanitizer compares floats"
_ROUNDING = "the correctly rounded root and the plain one are the same"
DEPARTURES = {
    **dict.fromkeys(("div", "div_rn", "fdiv", "sigmoid", "softmax"), _EVEN),
    **dict.fromkeys(("less", "less_equal", "sort", "argmax"), _ORDER),
    "rsqrt": "rsqrt(x) is 1 / sqrt(x); the sanitizer has a tag",
    "sqrt_rn": _ROUNDING,
    "masked_exp": "minus infinity lies outside the payloads, and its exponential is 0",
    "atomic_add": "a sum of payloads; the sanitizer leaves the addition of floats",
    **dict.fromkeys(("atomic_max", "atomic_min"), "of payloads; the sanitizer compares bit patterns"),
}
"""Operations that the algebra defines in another way than the sanitizer, with the reason or the difference."""


@triton.jit
def arithmetic(x, y, z, out, OPERATION: tl.constexpr, LANES: tl.constexpr):  # noqa: C901, PLR0912
    lanes = tl.arange(0, LANES)
    a, b, c = tl.load(x + lanes), tl.load(y + lanes), tl.load(z + lanes)
    if OPERATION == "add":
        result = a + b
    elif OPERATION == "sub":
        result = a - b
    elif OPERATION == "mul":
        result = a * b
    elif OPERATION == "div":
        result = a / b
    elif OPERATION == "neg":
        result = -a
    elif OPERATION == "mod":
        result = a % b
    elif OPERATION == "fma":
        result = tl.fma(a, b, c)
    elif OPERATION == "mul_add":
        result = a * b + c
    elif OPERATION == "abs":
        result = tl.abs(a)
    elif OPERATION == "maximum":
        result = tl.maximum(a, b)
    elif OPERATION == "minimum":
        result = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif OPERATION == "clamp":
        result = tl.clamp(a, b, c)
    elif OPERATION == "where":
        result = tl.where(lanes % 3 == 0, a, b)
    elif OPERATION == "constants":
        result = a * 2.5 + 0.1
    elif OPERATION == "less":
        result = tl.where(a < b, c, a)
    elif OPERATION == "less_equal":
        result = tl.where(a <= b, c, a)
    elif OPERATION == "equal":
        result = tl.where(a == b, c, a)
    elif OPERATION == "not_equal":
        result = tl.where(a != b, c, a)
    tl.store(out + lanes, result)


@triton.jit
def function(x, y, z, out, OPERATION: tl.constexpr, LANES: tl.constexpr):  # noqa: C901, PLR0912
    lanes = tl.arange(0, LANES)
    a, b = tl.load(x + lanes), tl.load(y + lanes)
    if OPERATION == "exp":
        result = tl.exp(a)
    elif OPERATION == "exp2":
        result = tl.exp2(a)
    elif OPERATION == "log":
        result = tl.log(a)
    elif OPERATION == "log2":
        result = tl.log2(a)
    elif OPERATION == "sqrt":
        result = tl.sqrt(a)
    elif OPERATION == "sqrt_rn":
        result = tl.sqrt_rn(a)
    elif OPERATION == "rsqrt":
        result = tl.rsqrt(a)
    elif OPERATION == "sin":
        result = tl.sin(a)
    elif OPERATION == "cos":
        result = tl.cos(a)
    elif OPERATION == "erf":
        result = tl.erf(a)
    elif OPERATION == "floor":
        result = tl.floor(a)
    elif OPERATION == "ceil":
        result = tl.ceil(a)
    elif OPERATION == "sigmoid":
        result = tl.sigmoid(a)
    elif OPERATION == "fdiv":
        result = tl.fdiv(a, b)
    elif OPERATION == "tanh":
        result = libdevice.tanh(a)
    elif OPERATION == "pow":
        result = libdevice.pow(a, b)
    elif OPERATION == "pow_of_integer":
        result = libdevice.pow(a, lanes * 99999 - 12345)
    elif OPERATION == "div_rn":
        result = tl.div_rn(a, b)
    elif OPERATION == "masked_exp":
        result = tl.exp(tl.where(lanes < 9, a, -float("inf")))
    tl.store(out + lanes, result)


@triton.jit
def integers(x, y, z, out, OPERATION: tl.constexpr, LANES: tl.constexpr):
    lanes = tl.arange(0, LANES)
    a = tl.load(x + lanes)
    if OPERATION == "from_int32":
        result = (lanes * 1234567 - 7654321).to(tl.float32) * a
    elif OPERATION == "from_uint32":
        result = (lanes * 123456789).to(tl.uint32).to(tl.float32) * a
    elif OPERATION == "from_int8":
        result = lanes.to(tl.int8).to(tl.float32) * a
    elif OPERATION == "to_int32":
        result = a.to(tl.int32).to(tl.float32)
    elif OPERATION == "bitcast":
        result = (a.to(tl.int32, bitcast=True) ^ 5).to(tl.float32, bitcast=True)
    tl.store(out + lanes, result)


@triton.jit
def cast(x, y, z, out, OPERATION: tl.constexpr, LANES: tl.constexpr):
    lanes = tl.arange(0, LANES)
    tl.store(out + lanes, tl.load(x + lanes).to(out.dtype.element_ty))


@triton.jit
def reduction(x, y, z, out, OPERATION: tl.constexpr, LANES: tl.constexpr):
    lanes = tl.arange(0, LANES)
    a = tl.load(x + lanes)
    if OPERATION == "sum":
        result = tl.sum(a, 0) + tl.zeros((LANES,), a.dtype)
    elif OPERATION == "max":
        result = tl.max(a, 0) + tl.zeros((LANES,), a.dtype)
    elif OPERATION == "min":
        result = tl.min(a, 0) + tl.zeros((LANES,), a.dtype)
    elif OPERATION == "cumsum":
        result = tl.cumsum(a, 0)
    elif OPERATION == "cumprod":
        result = tl.cumprod(a, 0, reverse=True)
    elif OPERATION == "softmax":
        result = tl.exp(a - tl.max(a, 0)) / tl.sum(tl.exp(a - tl.max(a, 0)), 0)
    elif OPERATION == "sort":
        result = tl.sort(a)
    elif OPERATION == "argmax":
        result = tl.argmax(a, 0) + a
    tl.store(out + lanes, result)


@triton.jit
def atomic(x, y, z, out, OPERATION: tl.constexpr, LANES: tl.constexpr):
    lanes = tl.arange(0, LANES)
    a, b = tl.load(x + lanes), tl.load(y + lanes)
    tl.store(out + lanes, tl.load(z + lanes))
    if OPERATION == "atomic_add":
        tl.atomic_add(out + lanes, a)
    elif OPERATION == "atomic_max":
        tl.atomic_max(out + lanes, a)
    elif OPERATION == "atomic_min":
        tl.atomic_min(out + lanes, a)
    elif OPERATION == "atomic_xchg":
        tl.store(out + lanes, tl.atomic_xchg(out + lanes, a) + b)
    elif OPERATION == "atomic_cas":
        expected = tl.where(lanes % 2 == 0, tl.load(z + lanes), b)
        tl.atomic_cas(out + lanes, expected, a)


@triton.jit
def product(x, y, z, out, OPERATION: tl.constexpr, SIDE: tl.constexpr):
    rows = tl.arange(0, SIDE)
    places = rows[:, None] * SIDE + rows[None, :]
    accumulator = tl.load(z + places).to(out.dtype.element_ty)
    left, right = tl.load(x + places), tl.load(y + places)
    tl.store(out + places, tl.dot(left, right, accumulator, out_dtype=out.dtype.element_ty))


@triton.jit
def scaled_product(x, y, z, out, LEFT: tl.constexpr, RIGHT: tl.constexpr, SIDE: tl.constexpr):
    left_k: tl.constexpr = SIDE if LEFT == "e2m1" else 2 * SIDE
    right_k: tl.constexpr = SIDE if RIGHT == "e2m1" else 2 * SIDE
    rows, groups = tl.arange(0, SIDE), tl.arange(0, 2)
    left = tl.load(x + rows[:, None] * left_k + tl.arange(0, left_k)[None, :])
    right = tl.load(y + tl.arange(0, right_k)[:, None] * SIDE + rows[None, :])
    scales = tl.load(z + rows[:, None] * 2 + groups[None, :])
    other_scales = tl.load(z + 2 * SIDE + rows[:, None] * 2 + groups[None, :])
    result = tl.dot_scaled(left, scales, LEFT, right, other_scales, RIGHT)
    tl.store(out + rows[:, None] * SIDE + rows[None, :], result)


@dataclass(frozen=True)
class Case:
    """A kernel, what it computes, and the types of its operands and its output as Triton names them.

    ``formats`` are those of the two operands of ``tl.dot_scaled``.
    """

    kernel: Any
    operation: str
    dtype: str
    out: str
    formats: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        if self.formats is not None:
            return f"{self.operation} {' * '.join(self.formats)}"
        return f"{self.operation} {self.dtype}" + (f" -> {self.out}" if self.out != self.dtype else "")

    @property
    def dtypes(self) -> tuple[str, str, str]:
        """The types of the three operands."""
        if self.formats is None:
            return (self.dtype,) * 3
        left, right = (SCALED_DTYPES.get(name, name) for name in self.formats)
        return left, right, "u8"

    @property
    def elements(self) -> int:
        """The elements of each operand, some of which a kernel leaves out."""
        return 2 * SIDE * SIDE if self.kernel in (product, scaled_product) else LANES

    @property
    def meta(self) -> dict[str, Any]:
        if self.formats is not None:
            return {"LEFT": self.formats[0], "RIGHT": self.formats[1], "SIDE": SIDE}
        return {"OPERATION": self.operation, **({"SIDE": SIDE} if self.kernel is product else {"LANES": LANES})}


SCALED_DTYPES = {"e2m1": "u8", "e4m3": "fp8e4nv", "e5m2": "fp8e5"}
SCALED = (("e4m3", "e5m2"), ("e2m1", "e4m3"), ("bf16", "e2m1"), ("e5m2", "fp16"), ("fp16", "e2m1"), ("e2m1", "e2m1"))
FLOATS = ("fp64", "fp32", "fp16", "bf16", "fp8e5", "fp8e4nv")
CASES = (
    *(Case(arithmetic, name, dtype, dtype) for name in ARITHMETIC for dtype in FLOATS[:4]),
    *(Case(function, name, dtype, dtype) for name in FUNCTIONS for dtype in FLOATS[:2]),
    *(Case(function, name, "fp32", "fp32") for name in ("div_rn", "sqrt_rn")),
    *(Case(atomic, name, "fp32", "fp32") for name in ATOMICS),
    *(Case(integers, name, "fp32", "fp32") for name in INTEGERS),
    *(Case(cast, "cast", source, target) for source in FLOATS for target in FLOATS if source != target),
    *(Case(reduction, name, "fp32", "fp32") for name in REDUCTIONS),
    *(Case(reduction, name, "fp16", "fp16") for name in ("sum", "max", "cumsum")),
    *(Case(product, "dot", dtype, "fp32") for dtype in FLOATS[1:]),
    Case(product, "dot", "fp64", "fp64"),
    Case(product, "dot", "fp16", "fp16"),
    *(Case(scaled_product, "dot_scaled", "", "fp32", formats) for formats in SCALED),
)
"""The operations that are compared bit by bit, those of `DEPARTURES` among them."""

DTYPES: dict[str, tuple[str, Any]] = {
    "fp64": ("float64", np.uint64),
    "fp32": ("float32", np.uint32),
    "fp16": ("float16", np.uint16),
    "bf16": ("bfloat16", np.uint16),
    "fp8e5": ("float8_e5m2", np.uint8),
    "fp8e4nv": ("float8_e4m3fn", np.uint8),
    "u8": ("uint8", np.uint8),
}
"""The names of torch for Triton's types, and the unsigned integers of their widths."""
