"""Honest candidates of scans and recurrences."""

from tests.judge.honest.head import HEAD

CUMSUM_BLOCKS = (
    HEAD
    + """
@triton.jit
def block_sums(x, sums, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(sums + pid, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))


@triton.jit
def scan_sums(sums, blocks, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(sums + i, mask=i < blocks, other=0.0)
    tl.store(sums + i, tl.cumsum(v, 0) - v, mask=i < blocks)


@triton.jit
def scan_blocks(x, sums, out, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out + i, tl.cumsum(v, 0) + tl.load(sums + pid), mask=i < n)


def solve(x):
    n = x.numel()
    blocks = triton.cdiv(n, 256)
    sums = torch.empty(blocks, device=x.device)
    out = torch.empty_like(x)
    block_sums[(blocks,)](x, sums, n, BLOCK=256)
    scan_sums[(1,)](sums, blocks, BLOCK=triton.next_power_of_2(blocks))
    scan_blocks[(blocks,)](x, sums, out, n, BLOCK=256)
    return out
"""
)

CUMSUM_CARRIED = (
    HEAD
    + """
@triton.jit
def add(a, b):
    return a + b


@triton.jit
def scan(x, out, n, BLOCK: tl.constexpr):
    carry = 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + i, mask=i < n, other=0.0)
        s = tl.associative_scan(v, 0, add)
        tl.store(out + i, s + carry, mask=i < n)
        carry += tl.sum(v, 0)


def solve(x):
    out = torch.empty_like(x)
    scan[(1,)](x, out, x.numel(), BLOCK=512)
    return out
"""
)

RECURRENCE = (
    HEAD
    + """
@triton.jit
def compose(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@triton.jit
def recurrence(decay, x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    a = tl.load(decay + row * n + i, mask=i < n, other=0.0)
    b = tl.load(x + row * n + i, mask=i < n, other=0.0)
    _, h = tl.associative_scan((a, b), axis=0, combine_fn=compose)
    tl.store(out + row * n + i, h, mask=i < n)


def solve(decay, x):
    out = torch.empty_like(x)
    recurrence[(x.shape[0],)](decay, x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""
)

RECURRENCE_LOOP = (
    HEAD
    + """
@triton.jit
def recurrence(decay, x, out, m, n, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    h = tl.zeros((ROWS,), tl.float32)
    t = 0
    while t < n:
        h = tl.load(decay + rows * n + t, mask=rows < m) * h + tl.load(x + rows * n + t, mask=rows < m)
        tl.store(out + rows * n + t, h, mask=rows < m)
        t += 1


def solve(decay, x):
    out = torch.empty_like(x)
    recurrence[(triton.cdiv(x.shape[0], 2),)](decay, x, out, *x.shape, ROWS=2)
    return out
"""
)

SCALED_CUMSUM = (
    HEAD
    + """
@triton.jit
def scale_all(x, out, scale, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * scale, mask=i < n)


def solve(x, scale):
    sums = torch.cumsum(x.contiguous(), dim=1)
    out = torch.empty_like(sums)
    scale_all[(triton.cdiv(sums.numel(), 128),)](sums, out, scale, sums.numel(), BLOCK=128)
    return out
"""
)

CANDIDATES = (
    ("cumsum_blocks", "spec_cumsum.py", CUMSUM_BLOCKS),
    ("cumsum_carried", "spec_cumsum.py", CUMSUM_CARRIED),
    ("recurrence", "spec_recurrence.py", RECURRENCE),
    ("recurrence_loop", "spec_recurrence.py", RECURRENCE_LOOP),
    ("scaled_cumsum", "spec_scaled_cumsum.py", SCALED_CUMSUM),
)
