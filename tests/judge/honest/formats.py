"""Honest candidates that convert formats: casts, bits, quantised and fp8 values."""

from tests.judge.honest.head import HEAD

QUANTIZE_ROWS = (
    HEAD
    + """
@triton.jit
def quantize(x, q, scales, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    amax = tl.maximum(tl.max(tl.abs(v), axis=0), 7.888609052210118e-31)
    scale = tl.exp2(tl.ceil(tl.log2(amax / 127)))
    rounded = tl.floor(v / scale + 0.5)
    tl.store(q + row * n + i, tl.clamp(rounded, -127.0, 127.0).to(tl.int8), mask=i < n)
    tl.store(scales + row, scale)


def solve(x):
    m, n = x.shape
    q = torch.empty(m, n, dtype=torch.int8, device=x.device)
    scales = torch.empty(m, dtype=torch.float32, device=x.device)
    quantize[(m,)](x, q, scales, n, BLOCK=triton.next_power_of_2(n))
    return q, scales
"""
)

BITS = (
    HEAD
    + """
@triton.jit
def mix(a, b, c, x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    va, vb, vc = tl.load(a + i, mask=mask), tl.load(b + i, mask=mask), tl.load(c + i, mask=mask)
    tl.store(x + i, (va ^ vb.to(tl.int32)) & 0x7FFF, mask=mask)
    tl.store(y + i, vb // 3 + vb % 5, mask=mask)
    tl.store(z + i, vc * 3 - (vc >> 7), mask=mask)


def solve(a, b, c):
    results = [torch.empty_like(t) for t in (a, b, c)]
    mix[(triton.cdiv(a.numel(), 128),)](a, b, c, *results, a.numel(), BLOCK=128)
    return results
"""
)

CAST = (
    HEAD
    + """
TYPES = {
    "float16": (torch.float16, tl.float16),
    "bfloat16": (torch.bfloat16, tl.bfloat16),
    "float32": (torch.float32, tl.float32),
    "float64": (torch.float64, tl.float64),
}


@triton.jit
def cast(x, out, n, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n).to(DTYPE), mask=i < n)


def solve(x, dtype):
    host, device = TYPES[dtype]
    out = torch.empty_like(x, dtype=host)
    cast[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), DTYPE=device, BLOCK=256)
    return out
"""
)

FP8_CAST = (
    HEAD
    + """
@triton.jit
def cast(x, out, scale, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, (tl.load(x + i, mask=i < n) * scale).to(tl.float8e4nv), mask=i < n)


def solve(x, scale):
    out = torch.empty(x.shape, device=x.device, dtype=torch.float8_e4m3fn)
    cast[(triton.cdiv(x.numel(), 256),)](x, out, scale, x.numel(), BLOCK=256)
    return out
"""
)

FP8_DEQUANT = (
    HEAD
    + """
@triton.jit
def dequantize(q, scales, out, n, stride, BLOCK: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    i = block * BLOCK + tl.arange(0, BLOCK)
    scale = tl.load(scales + row)
    value = tl.load(q + row * stride + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(out + row * n + i, value * scale, mask=i < n)


def solve(q, scales):
    m, n = q.shape
    out = torch.empty((m, n), dtype=torch.float32, device=q.device)
    dequantize[(m, triton.cdiv(n, 32))](q, scales, out, n, q.stride(0), BLOCK=32)
    return out
"""
)

FP8_ROWS = (
    HEAD
    + """
from triton.language.extra import libdevice

FP8_MAX = tl.constexpr(448.0)


@triton.jit
def _quantize_rows(x_ptr, q_ptr, s_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=0.0).to(tl.float32)
    amax = tl.max(tl.abs(x), axis=0)
    inverse = FP8_MAX / amax
    # a multiplication by the inverse rounds some elements to their other neighbour
    q = tl.clamp(x * inverse, -448.0, 448.0)
    tl.store(q_ptr + row * n + cols, q.to(q_ptr.dtype.element_ty), mask=cols < n)
    tl.store(s_ptr + row, amax * (1.0 / FP8_MAX))


def solve(x):
    m, n = x.shape
    q = torch.empty((m, n), dtype=torch.float8_e4m3fn, device=x.device)
    scale = torch.empty(m, dtype=torch.float32, device=x.device)
    _quantize_rows[(m,)](x, q, scale, n, x.stride(0), BLOCK=triton.next_power_of_2(n), num_warps=4)
    return {"q": q, "scale": scale}
"""
)

CANDIDATES = (
    ("fp8_rows", "spec_fp8_rows.py", FP8_ROWS),
    ("quantize_rows", "spec_quantize_rows.py", QUANTIZE_ROWS),
    ("bits", "spec_bits.py", BITS),
    ("cast", "spec_cast.py", CAST),
    ("fp8_cast", "spec_fp8_cast.py", FP8_CAST),
    ("fp8_dequant", "spec_fp8_dequant.py", FP8_DEQUANT),
)
