"""Honest candidates of variances and normalisations."""

from tests.judge.honest.head import HEAD

WELFORD = (
    HEAD
    + """
@triton.jit
def welford(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    count = count_a + count_b
    delta = mean_b - mean_a
    share = tl.where(count == 0, 0.0, count_b / count)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * count_a * share, count


@triton.jit
def statistics(x, mean, var, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    count = tl.where(i < n, 1.0, 0.0)
    average, m2, total = tl.reduce((v, tl.zeros_like(v), count), axis=0, combine_fn=welford)
    tl.store(mean + row, average)
    tl.store(var + row, m2 / total)


def solve(x):
    mean, var = x.new_empty(x.shape[0]), x.new_empty(x.shape[0])
    statistics[(x.shape[0],)](x, mean, var, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return {"mean": mean, "var": var}
"""
)

TWO_PASS_VARIANCE = (
    HEAD
    + """
@triton.jit
def statistics(x, mean, var, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < n
    v = tl.load(x + row * n + i, mask=mask, other=0.0)
    average = tl.sum(v, 0) / n
    centred = tl.where(mask, v - average, 0.0)
    tl.store(mean + row, average)
    tl.store(var + row, tl.sum(centred * centred, 0) / n)


def solve(x):
    rows, n = x.shape
    both = torch.empty((2, rows), device=x.device)
    statistics[(rows,)](x, both[0], both[1], n, BLOCK=triton.next_power_of_2(n))
    return dict(mean=both[0], var=both[1])
"""
)

LAYER_NORM = (
    HEAD
    + """
@triton.jit
def _layer_norm_fwd_fused(X, Y, W, B, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    mean = 0
    _mean = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        a = tl.load(X + cols, mask=cols < N, other=0.).to(tl.float32)
        _mean += a
    mean = tl.sum(_mean, axis=0) / N
    _var = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.)
        _var += x * x
    var = tl.sum(_var, axis=0) / N
    rstd = 1 / tl.sqrt(var + eps)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        w = tl.load(W + cols, mask=mask)
        b = tl.load(B + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.).to(tl.float32)
        x_hat = (x - mean) * rstd
        y = x_hat * w + b
        tl.store(Y + cols, y, mask=mask)


def solve(x, weight, bias, eps):
    y = torch.empty_like(x)
    x_arg = x.reshape(-1, x.shape[-1])
    M, N = x_arg.shape
    MAX_FUSED_SIZE = 65536 // x.element_size()
    BLOCK_SIZE = min(MAX_FUSED_SIZE, triton.next_power_of_2(N), 128)
    num_warps = min(max(BLOCK_SIZE // 256, 1), 8)
    _layer_norm_fwd_fused[(M, )](x_arg, y, weight, bias, x_arg.stride(0), N, eps, BLOCK_SIZE=BLOCK_SIZE,
                                 num_warps=num_warps, num_ctas=1)
    return y
"""
)

LAYER_NORM_BACKWARD = (
    HEAD
    + """
@triton.jit
def _layer_norm_bwd_dx_fused(DX, DY, DW, DB, X, W, Mean, Rstd, Lock, stride, N, GROUP_SIZE_M: tl.constexpr,
                             BLOCK_SIZE_N: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE_N)
    mask = cols < N
    X += row * stride
    DY += row * stride
    DX += row * stride
    lock_id = row % GROUP_SIZE_M
    Lock += lock_id
    Count = Lock + GROUP_SIZE_M
    DW = DW + lock_id * N + cols
    DB = DB + lock_id * N + cols
    x = tl.load(X + cols, mask=mask, other=0).to(tl.float32)
    dy = tl.load(DY + cols, mask=mask, other=0).to(tl.float32)
    w = tl.load(W + cols, mask=mask).to(tl.float32)
    mean = tl.load(Mean + row)
    rstd = tl.load(Rstd + row)
    xhat = (x - mean) * rstd
    wdy = w * dy
    xhat = tl.where(mask, xhat, 0.)
    wdy = tl.where(mask, wdy, 0.)
    c1 = tl.sum(xhat * wdy, axis=0) / N
    c2 = tl.sum(wdy, axis=0) / N
    dx = (wdy - (xhat * c1 + c2)) * rstd
    tl.store(DX + cols, dx, mask=mask)
    partial_dw = (dy * xhat).to(w.dtype)
    partial_db = (dy).to(w.dtype)
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    count = tl.load(Count)
    # First store doesn't accumulate
    if count == 0:
        tl.atomic_xchg(Count, 1)
    else:
        partial_dw += tl.load(DW, mask=mask)
        partial_db += tl.load(DB, mask=mask)
    tl.store(DW, partial_dw, mask=mask)
    tl.store(DB, partial_db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(Lock, 0)


@triton.jit
def _layer_norm_bwd_dwdb(DW, DB, FINAL_DW, FINAL_DB, M, N, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr):
    pid = tl.program_id(0)
    cols = pid * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    dw = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    db = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for i in range(0, M, BLOCK_SIZE_M):
        rows = i + tl.arange(0, BLOCK_SIZE_M)
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        offs = rows[:, None] * N + cols[None, :]
        dw += tl.load(DW + offs, mask=mask, other=0.)
        db += tl.load(DB + offs, mask=mask, other=0.)
    sum_dw = tl.sum(dw, axis=0)
    sum_db = tl.sum(db, axis=0)
    tl.store(FINAL_DW + cols, sum_dw, mask=cols < N)
    tl.store(FINAL_DB + cols, sum_db, mask=cols < N)


def solve(dy, x, weight, mean, rstd):
    N = weight.shape[0]
    GROUP_SIZE_M = 4
    locks = torch.zeros(2 * GROUP_SIZE_M, dtype=torch.int32, device=weight.device)
    _dw = torch.zeros((GROUP_SIZE_M, N), dtype=x.dtype, device=weight.device)
    _db = torch.zeros((GROUP_SIZE_M, N), dtype=x.dtype, device=weight.device)
    dw = torch.empty((N, ), dtype=weight.dtype, device=weight.device)
    db = torch.empty((N, ), dtype=weight.dtype, device=weight.device)
    dx = torch.empty_like(dy)
    x_arg = x.reshape(-1, x.shape[-1])
    M, N = x_arg.shape
    _layer_norm_bwd_dx_fused[(M, )](
        dx, dy, _dw, _db, x, weight, mean, rstd, locks, x_arg.stride(0), N,
        BLOCK_SIZE_N=triton.next_power_of_2(N), GROUP_SIZE_M=GROUP_SIZE_M, num_warps=4)
    grid = lambda meta: [triton.cdiv(N, meta['BLOCK_SIZE_N'])]
    _layer_norm_bwd_dwdb[grid](_dw, _db, dw, db, min(GROUP_SIZE_M, M), N, BLOCK_SIZE_M=32, BLOCK_SIZE_N=128, num_ctas=1)
    return dx, dw, db
"""
)

RMS_NORM = (
    HEAD
    + """
@triton.jit
def rms_norm(x, weight, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    w = tl.load(weight + i, mask=i < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / n + eps)
    tl.store(out + row * n + i, (v * scale * w).to(out.dtype.element_ty), mask=i < n)


def solve(x, weight):
    out = torch.empty_like(x)
    n = x.shape[-1]
    rms_norm[(x.numel() // n,)](x, weight, out, n, 1e-6, BLOCK=triton.next_power_of_2(n))
    return out
"""
)

BATCH_NORM = (
    HEAD
    + """
@triton.jit
def statistics(x, mean, var, running_mean, running_var, momentum, batch, length, sb, sc, BLOCK: tl.constexpr):
    c = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, batch * length, BLOCK):
        i = k + tl.arange(0, BLOCK)
        total += tl.load(x + (i // length) * sb + c * sc + i % length, mask=i < batch * length, other=0.0)
    average = tl.sum(total, 0) / (batch * length)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, batch * length, BLOCK):
        i = k + tl.arange(0, BLOCK)
        v = tl.load(x + (i // length) * sb + c * sc + i % length, mask=i < batch * length, other=0.0)
        d = tl.where(i < batch * length, v - average, 0.0)
        total += d * d
    variance = tl.sum(total, 0) / (batch * length)
    tl.store(mean + c, average)
    tl.store(var + c, variance)
    tl.store(running_mean + c, tl.load(running_mean + c) * (1 - momentum) + average * momentum)
    tl.store(running_var + c, tl.load(running_var + c) * (1 - momentum) + variance * momentum)


@triton.jit
def normalize(x, y, mean, var, channels, length, BLOCK: tl.constexpr):
    b, c = tl.program_id(0), tl.program_id(1)
    base = (b * channels + c) * length
    i = tl.arange(0, BLOCK)
    v = tl.load(x + base + i, mask=i < length)
    tl.store(y + base + i, (v - tl.load(mean + c)) / tl.sqrt(tl.load(var + c) + 1e-5), mask=i < length)


def solve(x, running_mean, running_var, momentum):
    batch, channels, length = x.shape
    mean = torch.empty(channels, device=x.device)
    var = torch.empty_like(mean)
    y = torch.empty_like(x)
    statistics[(channels,)](
        x, mean, var, running_mean, running_var, momentum, batch, length, x.stride(0), x.stride(1), BLOCK=64
    )
    normalize[(batch, channels)](x, y, mean, var, channels, length, BLOCK=triton.next_power_of_2(length))
    return y, mean, var
"""
)

RUNNING_STATS = (
    HEAD
    + """
@triton.jit
def update(x, running_mean, count, m, n, BLOCK: tl.constexpr):
    column = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    average = tl.sum(tl.load(x + i * n + column, mask=i < m, other=0.0), axis=0) / m
    tl.store(running_mean + column, 0.9 * tl.load(running_mean + column) + 0.1 * average)
    if column == 0:
        tl.store(count, tl.load(count) + m)


def solve(x, running_mean, count):
    m, n = x.shape
    update[(n,)](x, running_mean, count, m, n, BLOCK=triton.next_power_of_2(m))
"""
)

GROUP_NORM = (
    HEAD
    + """
@triton.jit
def group_norm(x, weight, out, space, PER_GROUP: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    group = pid % GROUPS
    count = PER_GROUP * space
    i = tl.arange(0, BLOCK)
    mask = i < count
    v = tl.load(x + pid * count + i, mask=mask, other=0.0)
    mean = tl.sum(v, 0) / count
    d = tl.where(mask, v - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(d * d, 0) / count + 1e-5)
    w = tl.load(weight + group * PER_GROUP + i // space, mask=mask)
    tl.store(out + pid * count + i, d * rstd * w, mask=mask)


def solve(x, weight, groups):
    batch, channels, space = x.shape
    per_group = channels // groups
    out = torch.empty_like(x)
    block = triton.next_power_of_2(per_group * space)
    group_norm[(batch * groups,)](x, weight, out, space, per_group, groups, block)
    return out
"""
)

CANDIDATES = (
    ("welford", "spec_mean_var.py", WELFORD),
    ("two_pass_variance", "spec_mean_var.py", TWO_PASS_VARIANCE),
    ("layer_norm", "spec_layer_norm.py", LAYER_NORM),
    ("layer_norm_backward", "spec_layer_norm_backward.py", LAYER_NORM_BACKWARD),
    ("rms_norm", "spec_rms_norm.py", RMS_NORM),
    ("batch_norm", "spec_batch_norm.py", BATCH_NORM),
    ("running_stats", "spec_running_stats.py", RUNNING_STATS),
    ("group_norm", "spec_group_norm.py", GROUP_NORM),
)
