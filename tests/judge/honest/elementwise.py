"""Honest candidates that compute each element by itself: additions, scalings, masks."""

from tests.judge.honest.head import HEAD

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

STRIDED_ADD = (
    HEAD
    + """
@triton.jit
def fma(x, y, b, out, m, n, sxm, sxn, sym, syn, sbm, sbn, M: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    j = tl.program_id(1) * N + tl.arange(0, N)[None, :]
    mask = (i < m) & (j < n)
    product = tl.load(y + i * sym + j * syn, mask=mask) * tl.load(b + i * sbm + j * sbn, mask=mask)
    tl.store(out + i * n + j, tl.load(x + i * sxm + j * sxn, mask=mask) + product, mask=mask)


def solve(x, y, bias):
    m, n = x.shape
    out = torch.empty((m, n), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(m, 16), triton.cdiv(n, 16))
    fma[grid](x, y, bias, out, m, n, *x.stride(), *y.stride(), *bias.stride(), M=16, N=16)
    return out
"""
)

SQUARE = (
    HEAD
    + """
@triton.jit
def square(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, v * v + 1, mask=i < n)


def solve(x):
    out = torch.empty_like(x)
    if x.numel():
        square[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), BLOCK=32)
    return out
"""
)

POLYNOMIAL = (
    HEAD
    + """
@triton.jit(noinline=True)
def step(total, x, coefficient):
    return total * x + coefficient


@triton.jit
def polynomial(x, out, coefficients, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    total = step(v * 0, v, coefficients[0])
    total = step(total, v, coefficients[1])
    total = step(total, v, coefficients[2])
    tl.store(out + i, total, mask=i < n)


def solve(x, a, b, c):
    out = torch.empty_like(x)
    polynomial[(triton.cdiv(x.numel(), 256),)](x, out, (a, b, c), x.numel(), BLOCK=256)
    return out
"""
)

ADAM = (
    HEAD
    + """
@triton.jit
def adam(p, g, m, v, lr, c1, c2, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    grad = tl.load(g + i, mask=mask)
    first = 0.9 * tl.load(m + i, mask=mask) + 0.1 * grad
    second = 0.99 * tl.load(v + i, mask=mask) + 0.01 * grad * grad
    new = tl.load(p + i, mask=mask) - lr * (first / c1) / (tl.sqrt(second / c2) + 1e-8)
    tl.store(p + i, new, mask=mask)
    tl.store(m + i, first, mask=mask)
    tl.store(v + i, second, mask=mask)


def solve(p, g, m, v, lr, step):
    adam[(triton.cdiv(p.numel(), 128),)](p, g, m, v, lr, 1 - 0.9**step, 1 - 0.99**step, p.numel(), BLOCK=128)
"""
)

LERP = (
    HEAD
    + """
@triton.jit
def lerp(a, b, w, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y, t = tl.load(a + i, mask=i < n), tl.load(b + i, mask=i < n), tl.load(w + i, mask=i < n)
    tl.store(out + i, x + t * (y - x), mask=i < n)


def solve(start, end, weight):
    out = torch.empty_like(start)
    lerp[(triton.cdiv(start.numel(), 128),)](start, end, weight, out, start.numel(), BLOCK=128)
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
    ("dropout_mask", "spec_dropout_mask.py", DROPOUT_MASK),
    ("dropout_seed", "spec_dropout_seed.py", DROPOUT_SEED),
    ("clamp", "spec_clamp.py", CLAMP),
    ("is_close", "spec_is_close.py", IS_CLOSE),
    ("strided_add", "spec_strided_add.py", STRIDED_ADD),
    ("square_any_shape", "spec_square_any_shape.py", SQUARE),
    ("polynomial", "spec_polynomial.py", POLYNOMIAL),
    ("adam", "spec_adam.py", ADAM),
    ("lerp_double", "spec_lerp_double.py", LERP),
)
