"""Honest candidates of sums, counts and products of vectors, in one kernel or several."""

from tests.judge.honest.head import HEAD

SUM_TWO_STAGE = (
    HEAD
    + """
@triton.jit
def partial_sums(x, partial, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(partial + pid, tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))


@triton.jit
def final_sum(partial, out, count, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(partial + i, mask=i < count, other=0.0)))


def solve(x):
    blocks = triton.cdiv(x.numel(), 256)
    partial = torch.empty(blocks, dtype=torch.float32, device=x.device)
    out = torch.empty((), dtype=x.dtype, device=x.device)
    partial_sums[(blocks,)](x, partial, x.numel(), BLOCK=256)
    final_sum[(1,)](partial, out, blocks, BLOCK=triton.next_power_of_2(max(blocks, 1)))
    return out
"""
)

SUM_ATOMIC = (
    HEAD
    + """
@triton.jit
def add_up(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0), sem="relaxed")


def solve(x):
    out = torch.zeros(1, dtype=torch.float32, device=x.device)
    if x.numel() > 0:
        add_up[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out[0]
"""
)

SUM_REVERSED = (
    HEAD
    + """
@triton.jit
def add_up(x, out, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    blocks = tl.cdiv(n, BLOCK)
    for k in range(blocks):
        i = (blocks - 1 - k) * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out, tl.sum(total, axis=0))


def solve(x):
    out = torch.empty([], device=x.device)
    add_up[1, 1, 1](x, out, x.numel(), BLOCK=512)
    return out
"""
)

SUM_KAHAN = (
    HEAD
    + """
@triton.jit
def add_up(x, out, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    lost = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        y = tl.load(x + i, mask=i < n, other=0.0) - lost
        t = total + y
        lost = (t - total) - y
        total = t
    tl.store(out, tl.sum(total))


def solve(x):
    out = torch.empty(1, dtype=x.dtype, device=x.device)
    add_up[(1,)](x, out, x.shape[0], BLOCK=64)
    return out.squeeze(0)
"""
)

SUM_TREE = (
    HEAD
    + """
@triton.jit
def halve(x, out, n, m, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    low = tl.load(x + i, mask=i < m, other=0.0)
    high = tl.load(x + i + m, mask=i + m < n, other=0.0)
    tl.store(out + i, low + high, mask=i < m)


def solve(x):
    n = x.numel()
    if n == 0:
        return torch.zeros((), dtype=x.dtype, device=x.device)
    source = x
    while True:
        m = (n + 1) // 2
        out = torch.empty(m, dtype=x.dtype, device=x.device)
        halve[(triton.cdiv(m, 512),)](source, out, n, m, BLOCK=512)
        if m == 1:
            return out.reshape(())
        source, n = out, m
"""
)

SUM_LAST_BLOCK = (
    HEAD
    + """
@triton.jit
def add_up(x, partial, counter, out, n, BLOCKS: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(partial + pid, tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))
    tl.debug_barrier()
    arrived = tl.atomic_add(counter, 1, sem="acq_rel")
    if arrived == BLOCKS - 1:
        j = tl.arange(0, PADDED)
        tl.store(out, tl.sum(tl.load(partial + j, mask=j < BLOCKS, other=0.0), axis=0))


def solve(x):
    blocks = max(1, triton.cdiv(x.numel(), 256))
    partial = torch.empty(blocks, device=x.device)
    counter = torch.zeros(1, dtype=torch.int32, device=x.device)
    out = torch.empty((), device=x.device)
    padded = triton.next_power_of_2(blocks)
    add_up[(blocks,)](x, partial, counter, out, x.numel(), BLOCKS=blocks, BLOCK=256, PADDED=padded)
    return out
"""
)

NORM = (
    HEAD
    + """
def zero_total(nargs):
    nargs["total"].zero_()


@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w, pre_hook=zero_total) for b, w in ((256, 2), (512, 4))], key=["n"]
)
@triton.jit
def squares(x, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.atomic_add(total, tl.sum(v * v, axis=0))


@triton.jit
def divide(x, total, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * tl.rsqrt(tl.load(total) + 1e-6), mask=i < n)


def solve(x):
    total = torch.empty(1, device=x.device)
    out = torch.empty_like(x)
    squares[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, total, x.numel())
    divide[(triton.cdiv(x.numel(), 1024),)](x, total, out, x.numel(), BLOCK=1024)
    return out
"""
)

DOT_DOUBLE = (
    HEAD
    + """
@triton.jit
def dot(x, y, out, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float64)
    for start in tl.range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x + i, mask=i < n, other=0.0) * tl.load(y + i, mask=i < n, other=0.0)
    tl.store(out, tl.sum(total))


def solve(x, y):
    out = torch.empty((), dtype=torch.float64, device=x.device)
    dot[(1,)](x, y, out, x.numel(), BLOCK=128)
    return out
"""
)

COUNTS = (
    HEAD
    + """
@triton.jit
def either(a, b):
    return a | b


@triton.jit
def both(a, b):
    return a & b


@triton.jit
def count(flags, values, some, every, total, filled, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < n
    f = tl.load(flags + row * n + i, mask=mask, other=0).to(tl.int1)
    tl.store(some + row, tl.reduce(f.to(tl.int32), 0, either) != 0)
    tl.store(every + row, tl.reduce((f | ~mask).to(tl.int32), 0, both) != 0)
    v = tl.load(values + row * n + i, mask=mask, other=0)
    tl.store(total + row, tl.sum(v.to(tl.int64), 0))
    tl.store(filled + row, tl.sum((v != 0).to(tl.int32), 0))


def solve(flags, values):
    m, n = flags.shape
    some, every = (torch.empty(m, dtype=torch.bool, device=flags.device) for _ in range(2))
    total = torch.empty(m, dtype=torch.int64, device=flags.device)
    filled = torch.empty(m, dtype=torch.int32, device=flags.device)
    count[(m,)](flags, values, some, every, total, filled, n, BLOCK=triton.next_power_of_2(n))
    return some, every, total, filled
"""
)

COLUMN_SUM = (
    HEAD
    + """
@triton.jit
def column_sum(x, out, m, n, stride_m, stride_n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    v = tl.load(x + rows[:, None] * stride_m + columns[None, :] * stride_n, mask=mask, other=0.0)
    tl.atomic_add(out + columns, tl.sum(v, axis=0), mask=columns < n)


def solve(x):
    m, n = x.shape
    out = torch.zeros(n, dtype=x.dtype, device=x.device)
    column_sum[triton.cdiv(m, 16), triton.cdiv(n, 16)](x, out, m, n, *x.stride(), ROWS=16, COLUMNS=16)
    return out
"""
)

SCATTER_ADD = (
    HEAD
    + """
@triton.jit
def scatter(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(index + i, mask=i < n, other=0), tl.load(x + i, mask=i < n), mask=i < n)


def solve(x, index, bins):
    out = torch.zeros(bins, dtype=x.dtype, device=x.device)
    scatter[(triton.cdiv(x.numel(), 64),)](x, index, out, x.numel(), BLOCK=64)
    return out
"""
)

SEGMENT_SUM = (
    HEAD
    + """
@triton.jit
def segment_sum(x, starts, out, BLOCK: tl.constexpr):
    segment = tl.program_id(0)
    begin, end = tl.load(starts + segment), tl.load(starts + segment + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(begin, end, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x + i, mask=i < end, other=0.0)
    tl.store(out + segment, tl.sum(total, 0))


def solve(x, starts):
    out = torch.empty(starts.shape[0] - 1, device=x.device)
    segment_sum[(out.shape[0],)](x, starts, out, BLOCK=16)
    return out
"""
)

HISTOGRAM = (
    HEAD
    + """
@triton.jit
def count(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + i, mask=i < n, other=0), 16, mask=i < n)
    tl.atomic_add(out + tl.arange(0, 16), counts)


def solve(x):
    out = torch.zeros(16, dtype=torch.int32, device=x.device)
    count[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out
"""
)

COLUMN_SUM_BY_LOCKS = (
    HEAD
    + """
@triton.jit
def partial(x, out, locks, counts, m, n, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    lock_id = row % GROUP
    locks += lock_id
    counts += lock_id
    out = out + lock_id * n + cols
    v = tl.load(x + row * n + cols, mask=mask, other=0)
    while tl.atomic_cas(locks, 0, 1) == 1:
        pass
    count = tl.load(counts)
    if count == 0:
        tl.atomic_xchg(counts, 1)
    else:
        v += tl.load(out, mask=mask)
    tl.store(out, v, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(locks, 0)


@triton.jit
def final(parts, out, m, n, BM: tl.constexpr, BN: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, m, BM):
        rows = i + tl.arange(0, BM)
        mask = (rows[:, None] < m) & (cols[None, :] < n)
        acc += tl.load(parts + rows[:, None] * n + cols[None, :], mask=mask, other=0.)
    tl.store(out + cols, tl.sum(acc, axis=0), mask=cols < n)


def solve(x):
    M, N = x.shape
    GROUP = 4
    locks = torch.zeros(2 * GROUP, dtype=torch.int32, device=x.device)
    parts = torch.empty((GROUP, N), dtype=x.dtype, device=x.device)
    out = torch.empty((N,), dtype=x.dtype, device=x.device)
    partial[(M,)](x, parts, locks, locks[GROUP:], M, N, GROUP=GROUP, BLOCK=triton.next_power_of_2(N))
    final[(triton.cdiv(N, 32),)](parts, out, min(GROUP, M), N, BM=4, BN=32)
    return out
"""
)

CANDIDATES = (
    ("column_sum_by_locks", "spec_column_sum.py", COLUMN_SUM_BY_LOCKS),
    ("sum_two_stage", "spec_total.py", SUM_TWO_STAGE),
    ("sum_atomic", "spec_total.py", SUM_ATOMIC),
    ("sum_reversed", "spec_total.py", SUM_REVERSED),
    ("sum_kahan", "spec_total.py", SUM_KAHAN),
    ("sum_tree", "spec_total.py", SUM_TREE),
    ("sum_last_block", "spec_total.py", SUM_LAST_BLOCK),
    ("norm", "spec_norm.py", NORM),
    ("dot_double", "spec_dot_double.py", DOT_DOUBLE),
    ("counts", "spec_counts.py", COUNTS),
    ("column_sum", "spec_column_sum.py", COLUMN_SUM),
    ("scatter_add", "spec_scatter_add.py", SCATTER_ADD),
    ("segment_sum", "spec_segment_sum.py", SEGMENT_SUM),
    ("histogram", "spec_histogram.py", HISTOGRAM),
)
