"""Right candidates for the specifications, which cheats are made from by a change of their text."""

from __future__ import annotations

from tests.judge.cheats.cheat import HEAD

SOFTMAX = f"""{HEAD}

@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + row * n + offsets, mask=offsets < n, other=-float("inf"))
    value = value - tl.max(value, 0)
    power = tl.exp(value)
    tl.store(out + row * n + offsets, power / tl.sum(power, 0), mask=offsets < n)


def solve(x):
    out = torch.empty_like(x)
    softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""

SUM = f"""{HEAD}

@triton.jit
def row_sum(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * n + offsets, mask=offsets < n, other=0.0)
    tl.store(out + row, tl.sum(total, 0))


def solve(x):
    m, n = x.shape
    out = torch.empty(m, device=x.device)
    row_sum[(m,)](x, out, n, BLOCK=128)
    return out
"""

VARIANCE = f"""{HEAD}

@triton.jit
def variance(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + row * n + offsets, mask=offsets < n, other=0.0)
    mean = tl.sum(value, 0) / n
    apart = tl.where(offsets < n, value - mean, 0.0)
    tl.store(out + row, tl.sum(apart * apart, 0) / n)


def solve(x):
    m, n = x.shape
    out = torch.empty(m, device=x.device)
    variance[(m,)](x, out, n, BLOCK=triton.next_power_of_2(n))
    return out
"""

MATMUL = f"""{HEAD}

@triton.jit
def matmul(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        inner = start + tl.arange(0, K)
        left = tl.load(a + rows[:, None] * k + inner, mask=(rows[:, None] < m) & (inner < k), other=0.0)
        right = tl.load(b + inner[:, None] * n + columns, mask=(inner[:, None] < k) & (columns < n), other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(out + rows[:, None] * n + columns, total, mask=(rows[:, None] < m) & (columns < n))


def solve(a, b):
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty(m, n, device=a.device)
    matmul[(triton.cdiv(m, 16), triton.cdiv(n, 16))](a, b, out, m, n, k, M=16, N=16, K=32)
    return out
"""

SCALE = f"""{HEAD}

@triton.jit
def scale(x, y, out, factor, n, step, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets * step, mask=mask)
    tl.store(out + offsets, value * factor + tl.load(y + offsets, mask=mask), mask=mask)


def solve(x, y, factor):
    n = x.numel()
    out = torch.empty(n, device=x.device)
    scale[(triton.cdiv(n, 256),)](x, y, out, factor, n, x.stride(0), BLOCK=256)
    return out
"""

NORM = f"""{HEAD}

@triton.jit
def norm(x, weight, bias, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + row * n + offsets, mask=mask, other=0.0)
    apart = tl.where(mask, value - tl.sum(value, 0) / n, 0.0)
    scale = 1 / tl.sqrt(tl.sum(apart * apart, 0) / n + eps)
    result = apart * scale * tl.load(weight + offsets, mask=mask) + tl.load(bias + offsets, mask=mask)
    tl.store(out + row * n + offsets, result, mask=mask)


def solve(x, weight, bias, eps):
    out = torch.empty_like(x)
    norm[(x.shape[0],)](x, weight, bias, out, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""

MEAN_NORM = f"""{HEAD}

@triton.jit
def mean_norm(x, weight, bias, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + row * n + offsets, mask=mask, other=0.0)
    apart = tl.where(mask, value - tl.sum(value, 0) / n, 0.0)
    scale = 1 / tl.sqrt(tl.sum(apart * apart, 0) / n + 1e-5)
    result = apart * scale * tl.load(weight + offsets, mask=mask, other=0.0)
    result += tl.load(bias + offsets, mask=mask, other=0.0)
    tl.store(out + row, tl.sum(result, 0) / n)


def solve(x, weight, bias):
    m, n = x.shape
    out = torch.empty(m, device=x.device)
    mean_norm[(m,)](x, weight, bias, out, n, BLOCK=triton.next_power_of_2(n))
    return out
"""

GATHER = f"""{HEAD}

@triton.jit
def gather(table, index, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    source = tl.load(index + row)
    value = tl.load(table + source * columns + offsets, mask=mask)
    tl.store(out + row * columns + offsets, value, mask=mask)


def solve(table, index):
    count, columns = index.numel(), table.shape[1]
    out = torch.empty(count, columns, device=table.device)
    gather[(count,)](table, index, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out
"""

FILL = f"""{HEAD}

@triton.jit
def fill(x, out, sign, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask)
    tl.store(out + offsets, value * 2, mask=mask)
    tl.store(sign + offsets, (value > 0).to(tl.int32), mask=mask)


def solve(x, out, sign):
    n = x.numel()
    fill[(triton.cdiv(n, 128),)](x, out, sign, n, BLOCK=128)
"""

TORCH = f"""{HEAD}

def solve(x):
    return x / (1 + x.abs().amax(1, keepdim=True))
"""

RIGHT = {
    "softmax": SOFTMAX,
    "sum": SUM,
    "variance": VARIANCE,
    "matmul": MATMUL,
    "scale": SCALE,
    "norm": NORM,
    "mean_norm": MEAN_NORM,
    "gather": GATHER,
    "fill": FILL,
    "torch": TORCH,
}
"""The right candidate for each specification, by its name."""
