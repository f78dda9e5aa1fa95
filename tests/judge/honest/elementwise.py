"""Honest candidates that compute each element by itself."""

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"

ADD_TUTORIAL = """
import torch

import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def add_kernel(x_ptr,  # *Pointer* to first input vector.
               y_ptr,  # *Pointer* to second input vector.
               output_ptr,  # *Pointer* to output vector.
               n_elements,  # Size of the vector.
               BLOCK_SIZE: tl.constexpr,  # Number of elements each program should process.
               ):
    pid = tl.program_id(axis=0)  # We use a 1D launch grid so axis is 0.
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    output = x + y
    tl.store(output_ptr + offsets, output, mask=mask)


def add(x: torch.Tensor, y: torch.Tensor):
    output = torch.empty_like(x)
    assert x.device == DEVICE and y.device == DEVICE and output.device == DEVICE
    n_elements = output.numel()
    grid = lambda meta: (triton.cdiv(n_elements, meta['BLOCK_SIZE']), )
    add_kernel[grid](x, y, output, n_elements, BLOCK_SIZE=1024)
    return output


def solve(x, y):
    return add(x, y)
"""

ADD_ON_CUDA = (
    HEAD
    + """
@triton.jit
def add(x, y, out, n: tl.int32, BLOCK: tl.constexpr = 512):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


def solve(x, y):
    assert x.is_cuda and y.is_cuda, "expected CUDA tensors"
    assert x.is_contiguous() and y.is_contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device="cuda")
    if out.numel() == 0:
        return out
    with torch.cuda.device(x.device):
        add[(triton.cdiv(out.numel(), 512), 1, 1)](x, y, out, out.numel(), num_warps=8)
    return out
"""
)

ADD_AUTOTUNED_OUT = (
    HEAD
    + """
configs = [
    triton.Config({"BLOCK": block}, num_warps=warps, num_stages=stages)
    for block in (128, 256, 512)
    for warps, stages in ((2, 2), (4, 3))
]


@triton.autotune(configs=configs, key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + i, tl.load(x + i) + tl.load(y + i))
    else:
        mask = i < n
        tl.store(out + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)


def solve(x, y, out):
    n = out.numel()
    add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
"""
)

ADD_PERSISTENT = (
    HEAD
    + """
from functools import partial

NUM_SMS = torch.cuda.get_device_properties("cuda").multi_processor_count


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    start = tl.program_id(0)
    step = tl.num_programs(0)
    for block in tl.range(start, tl.cdiv(n, BLOCK), step, num_stages=2):
        i = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def grid_of(n, meta):
    return (min(NUM_SMS, max(1, triton.cdiv(n, meta["BLOCK"]))),)


def solve(x, y):
    out = x.new_empty(x.size())
    add[partial(grid_of, x.numel())](x, y, out, x.numel(), BLOCK=64)
    return out
"""
)

ADD_FACTORY = (
    HEAD
    + """
CONFIGS = {"small": {"BLOCK": 64, "num_warps": 1}, "large": {"BLOCK": 1024, "num_warps": 8}}


def make_kernel(sign):
    SIGN: tl.constexpr = tl.constexpr(sign)

    @triton.jit
    def combine(x, y, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = i < n
        tl.store(out + i, tl.load(x + i, mask=mask) + SIGN * tl.load(y + i, mask=mask), mask=mask)

    return combine


class Adder:
    def __init__(self):
        self.kernel = make_kernel(1)

    def __call__(self, x, y):
        config = CONFIGS["small" if x.numel() < 1000 else "large"]
        out = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(x.numel(), config["BLOCK"]),)
        self.kernel[grid](x, y, out, x.numel(), **config)
        return out


adder = Adder()


def solve(**inputs):
    return adder(inputs["x"], inputs["y"])
"""
)

SCALE_IN_PLACE = (
    HEAD
    + """
@triton.jit
def scale(x, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


def solve(x, factor):
    scale[(triton.cdiv(x.numel(), 256),)](x, factor, x.numel(), BLOCK=256)
"""
)

SCALE_RESTORED = (
    HEAD
    + """
@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256}, num_warps=8)],
    key=["n"],
    restore_value=["x"],
)
@triton.jit
def scale(x, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


def solve(x, factor):
    scale[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, factor, x.numel())
    return x
"""
)

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

DROPOUT_MASK = (
    HEAD
    + """
@triton.jit
def _dropout(x_ptr, x_keep_ptr, output_ptr, n_elements, p, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    x_keep = tl.load(x_keep_ptr + offsets, mask=mask)
    output = tl.where(x_keep, x / (1 - p), 0.0)
    tl.store(output_ptr + offsets, output, mask=mask)


def solve(x, keep, p):
    output = torch.empty_like(x)
    assert x.is_contiguous()
    grid = lambda meta: (triton.cdiv(x.numel(), meta['BLOCK_SIZE']), )
    _dropout[grid](x, keep, output, x.numel(), p, BLOCK_SIZE=1024)
    return output
"""
)

DROPOUT_SEED = (
    HEAD
    + """
@triton.jit
def _seeded_dropout(x_ptr, output_ptr, n_elements, p, seed, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    random = tl.rand(seed, offsets)
    x_keep = random > p
    output = tl.where(x_keep, x / (1 - p), 0.0)
    tl.store(output_ptr + offsets, output, mask=mask)


def solve(x, p, seed):
    output = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta['BLOCK_SIZE']), )
    _seeded_dropout[grid](x, output, x.numel(), p, seed, BLOCK_SIZE=256)
    return output
"""
)

CLAMP = (
    HEAD
    + """
@triton.jit
def clamp(x, out, low, high, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    if low is not None:
        value = tl.maximum(value, low, propagate_nan=tl.PropagateNan.ALL)
    if high is not None:
        value = tl.minimum(value, high, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + i, value, mask=i < n)


def solve(x, low, high):
    out = torch.empty_like(x)
    clamp[(triton.cdiv(x.numel(), 128),)](x, out, low, high, x.numel(), BLOCK=128)
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

IS_CLOSE = (
    HEAD
    + """
@triton.jit
def compare(x, y, greater, unordered, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    a, b = tl.load(x + i, mask=mask), tl.load(y + i, mask=mask)
    tl.store(greater + i, a >= b, mask=mask)
    tl.store(unordered + i, (a != a) | (b != b), mask=mask)


def solve(x, y):
    greater = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    unordered = torch.empty_like(greater)
    compare[(triton.cdiv(x.numel(), 256),)](x, y, greater, unordered, x.numel(), BLOCK=256)
    return greater, unordered
"""
)

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

CANDIDATES = (
    ("add_tutorial", "spec_add.py", ADD_TUTORIAL),
    ("add_on_cuda", "spec_add.py", ADD_ON_CUDA),
    ("add_autotuned_out", "spec_add_out.py", ADD_AUTOTUNED_OUT),
    ("add_persistent", "spec_add.py", ADD_PERSISTENT),
    ("add_factory", "spec_add.py", ADD_FACTORY),
    ("scale_in_place", "spec_scale_in_place.py", SCALE_IN_PLACE),
    ("scale_restored", "spec_scale_in_place.py", SCALE_RESTORED),
    ("gelu_erf", "spec_gelu.py", GELU_ERF),
    ("gelu_erf_math", "spec_gelu.py", GELU_ERF_MATH),
    ("gelu_tanh", "spec_gelu_tanh.py", GELU_TANH),
    ("gelu_tanh_libdevice", "spec_gelu_tanh.py", GELU_TANH_LIBDEVICE),
    ("swiglu", "spec_swiglu.py", SWIGLU),
    ("rope", "spec_rope.py", ROPE),
    ("dropout_mask", "spec_dropout_mask.py", DROPOUT_MASK),
    ("dropout_seed", "spec_dropout_seed.py", DROPOUT_SEED),
    ("clamp", "spec_clamp.py", CLAMP),
    ("activation", "spec_activation.py", ACTIVATION),
    ("is_close", "spec_is_close.py", IS_CLOSE),
    ("quantize_rows", "spec_quantize_rows.py", QUANTIZE_ROWS),
    ("bits", "spec_bits.py", BITS),
    ("cast", "spec_cast.py", CAST),
    ("fp8_cast", "spec_fp8_cast.py", FP8_CAST),
    ("fp8_dequant", "spec_fp8_dequant.py", FP8_DEQUANT),
)
