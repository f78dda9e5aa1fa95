"""Honest candidates of activation functions and of rotary embeddings."""

from tests.judge.honest.head import HEAD

GELU_ERF = (
    HEAD
    + """
from triton.language.extra import libdevice


@triton.jit
def gelu(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    result = 0.5 * value * (1.0 + libdevice.erf(value * 0.7071067811865476))
    tl.store(out + i, result.to(out.dtype.element_ty), mask=i < n)


def solve(x):
    out = torch.empty_like(x)
    gelu[(triton.cdiv(x.numel(), 256),)](x.view(-1), out.view(-1), x.numel(), BLOCK=256)
    return out
"""
)

GELU_ERF_MATH = (
    HEAD
    + """
@triton.jit
def _half_erf(value):
    return 0.5 * (1.0 + tl.math.erf(value * 0.70710678))


@triton.jit
def gelu(x, out, rows, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + i, mask=i < columns)
    tl.store(out + row * stride + i, value * _half_erf(value), mask=i < columns)


def solve(x):
    rows, columns = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    gelu[(rows,)](x, out, rows, columns, x.stride(0), BLOCK=triton.next_power_of_2(columns))
    return out
"""
)

GELU_TANH = (
    HEAD
    + """
import math

SQRT_2_OVER_PI = tl.constexpr(math.sqrt(2 / math.pi))


@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def gelu(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    inner = SQRT_2_OVER_PI * (v + 0.044715 * v * v * v)
    tl.store(out + i, (0.5 * v * (1 + tanh(inner))).to(x.dtype.element_ty), mask=i < n)


def solve(x):
    out = torch.empty_like(x)
    block = 512 if x.dtype == torch.float32 else 1024
    gelu[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out
"""
)

GELU_TANH_LIBDEVICE = (
    HEAD
    + """
from triton.language.extra import libdevice


@triton.jit
def gelu(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(out + i, 0.5 * v * (1.0 + libdevice.tanh(0.7978845608028654 * v * (1.0 + 0.044715 * v * v))), mask=i < n)


def solve(x):
    out = torch.empty_like(x)
    gelu[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out
"""
)

SWIGLU = (
    HEAD
    + """
@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu(x, out, stride_x, stride_out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * stride_x
    out += row * stride_out
    i = tl.arange(0, BLOCK)
    mask = i < n
    gate = tl.load(x + i, mask=mask, other=0).to(tl.float32)
    up = tl.load(x + n + i, mask=mask, other=0)
    tl.store(out + i, silu(gate).cast(up.dtype) * up, mask=mask)


def solve(x):
    n = x.shape[-1] // 2
    flat = x.view(-1, 2 * n)
    out = torch.empty((*x.shape[:-1], n), dtype=x.dtype, device=x.device)
    swiglu[(flat.shape[0],)](flat, out, flat.stride(-2), out.stride(-2), n=n, BLOCK=triton.next_power_of_2(n))
    return out
"""
)

ROPE = (
    HEAD
    + """
@triton.jit
def rope(x, cos, sin, out, length, heads, HALF: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    position = (pid // heads) % length
    i = tl.arange(0, BLOCK)
    mask = i < HALF
    c = tl.load(cos + position * HALF + i, mask=mask)
    s = tl.load(sin + position * HALF + i, mask=mask)
    base = pid * 2 * HALF
    first = tl.load(x + base + i, mask=mask)
    second = tl.load(x + base + HALF + i, mask=mask)
    tl.store(out + base + i, first * c - second * s, mask=mask)
    tl.store(out + base + HALF + i, second * c + first * s, mask=mask)


def solve(x, cos, sin):
    batch, length, heads, dim = x.shape
    out = torch.empty_like(x)
    half = dim // 2
    rope[(batch * length * heads,)](x, cos, sin, out, length, heads, HALF=half, BLOCK=triton.next_power_of_2(half))
    return out
"""
)

ACTIVATION = (
    HEAD
    + """
@triton.jit
def activate(x, out, n, slope, KIND: tl.constexpr, INVERTED: tl.constexpr, BLOCK: tl.constexpr):
    tl.static_assert(KIND == "relu" or KIND == "leaky")
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    if INVERTED:
        v = -v
    if KIND == "relu":
        v = tl.maximum(v, 0.0)
    else:
        v = tl.where(v > 0, v, v * slope)
    tl.store(out + i, v, mask=i < n)


def solve(x, kind, inverted, slope=0.01):
    if kind not in ("relu", "leaky"):
        raise ValueError(f"unknown activation {kind!r}")
    out = torch.empty_like(x)
    activate[(triton.cdiv(len(x), 64),)](x, out, len(x), slope, KIND=kind, INVERTED=inverted, BLOCK=64)
    return out
"""
)

ROPE_INTERLEAVED = (
    HEAD
    + """
@triton.jit
def rot(x, c, s, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * 2 * n + tl.arange(0, 2 * BLOCK), mask=tl.arange(0, 2 * BLOCK) < 2 * n, other=0.0)
    a, b = tl.split(tl.reshape(v, (BLOCK, 2)))
    cos, sin = tl.load(c + i, mask=i < n, other=1.0), tl.load(s + i, mask=i < n, other=0.0)
    out = tl.interleave(a * cos - b * sin, a * sin + b * cos)
    j = tl.arange(0, 2 * BLOCK)
    tl.store(y + row * 2 * n + j, out, mask=j < 2 * n)


def solve(x, cos, sin):
    y = torch.empty_like(x)
    n = x.shape[-1] // 2
    rot[(x.shape[0],)](x, cos, sin, y, n, BLOCK=triton.next_power_of_2(n))
    return y
"""
)

CANDIDATES = (
    ("rope_interleaved", "spec_rope_pairs.py", ROPE_INTERLEAVED),
    ("gelu_erf", "spec_gelu.py", GELU_ERF),
    ("gelu_erf_math", "spec_gelu.py", GELU_ERF_MATH),
    ("gelu_tanh", "spec_gelu_tanh.py", GELU_TANH),
    ("gelu_tanh_libdevice", "spec_gelu_tanh.py", GELU_TANH_LIBDEVICE),
    ("swiglu", "spec_swiglu.py", SWIGLU),
    ("rope", "spec_rope.py", ROPE),
    ("activation", "spec_activation.py", ACTIVATION),
)
