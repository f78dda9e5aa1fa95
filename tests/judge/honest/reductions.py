"""Honest candidates that reduce, scan, sort and normalize."""

from tests.judge.honest.elementwise import HEAD

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

SOFTMAX_TUTORIAL = """
import torch

import triton
import triton.language as tl
from triton.runtime import driver

DEVICE = triton.runtime.driver.active.get_active_torch_device()


def is_hip():
    return triton.runtime.driver.active.get_current_target().backend == "hip"


def is_cdna():
    return is_hip() and triton.runtime.driver.active.get_current_target().arch in ('gfx940', 'gfx941', 'gfx942',
                                                                                   'gfx90a', 'gfx908')


@triton.jit
def softmax_kernel(output_ptr, input_ptr, input_row_stride, output_row_stride, n_rows, n_cols, BLOCK_SIZE: tl.constexpr,
                   num_stages: tl.constexpr):
    # starting row of the program
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row_idx in tl.range(row_start, n_rows, row_step, num_stages=num_stages):
        row_start_ptr = input_ptr + row_idx * input_row_stride
        col_offsets = tl.arange(0, BLOCK_SIZE)
        input_ptrs = row_start_ptr + col_offsets
        mask = col_offsets < n_cols
        row = tl.load(input_ptrs, mask=mask, other=-float('inf'))
        row_minus_max = row - tl.max(row, axis=0)
        numerator = tl.exp(row_minus_max)
        denominator = tl.sum(numerator, axis=0)
        softmax_output = numerator / denominator
        output_row_start_ptr = output_ptr + row_idx * output_row_stride
        output_ptrs = output_row_start_ptr + col_offsets
        tl.store(output_ptrs, softmax_output, mask=mask)


properties = driver.active.utils.get_device_properties(DEVICE.index)
NUM_SM = properties["multiprocessor_count"]
NUM_REGS = properties["max_num_regs"]
SIZE_SMEM = properties["max_shared_mem"]
WARP_SIZE = properties["warpSize"]
target = triton.runtime.driver.active.get_current_target()
kernels = {}


def softmax(x):
    n_rows, n_cols = x.shape
    BLOCK_SIZE = triton.next_power_of_2(n_cols)
    num_warps = 8
    num_stages = 4 if SIZE_SMEM > 200000 else 2
    y = torch.empty_like(x)
    kernel = softmax_kernel.warmup(y, x, x.stride(0), y.stride(0), n_rows, n_cols, BLOCK_SIZE=BLOCK_SIZE,
                                   num_stages=num_stages, num_warps=num_warps, grid=(1, ))
    kernel._init_handles()
    n_regs = kernel.n_regs
    size_smem = kernel.metadata.shared
    if is_hip():
        NUM_GPRS = NUM_REGS
        if is_cdna():
            NUM_GPRS = NUM_REGS * 2
        MAX_NUM_THREADS = properties["max_threads_per_sm"]
        max_num_waves = MAX_NUM_THREADS // WARP_SIZE
        occupancy = min(NUM_GPRS // WARP_SIZE // n_regs, max_num_waves) // num_warps
    else:
        occupancy = NUM_REGS // (n_regs * WARP_SIZE * num_warps)
    occupancy = min(occupancy, SIZE_SMEM // size_smem)
    num_programs = NUM_SM * occupancy
    num_programs = min(num_programs, n_rows)
    kernel[(num_programs, 1, 1)](y, x, x.stride(0), y.stride(0), n_rows, n_cols, BLOCK_SIZE, num_stages)
    return y


def solve(x):
    return softmax(x)
"""

SOFTMAX_PERSISTENT = (
    HEAD
    + """
@triton.jit
def softmax_kernel(out, x, stride_x, stride_out, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        i = tl.arange(0, BLOCK)
        v = tl.load(x + row * stride_x + i, mask=i < columns, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(out + row * stride_out + i, e / tl.sum(e, axis=0), mask=i < columns)


def solve(x):
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    out = torch.empty_like(x)
    kernel = softmax_kernel.warmup(
        out, x, x.stride(0), out.stride(0), rows, columns, BLOCK=block, STAGES=2, num_warps=4, grid=(1,)
    )
    properties = torch.cuda.get_device_properties(x.device)
    kernel._init_handles()
    occupancy = properties.regs_per_multiprocessor // (kernel.n_regs * properties.warp_size * 4)
    if kernel.metadata.shared:
        occupancy = min(occupancy, properties.shared_memory_per_multiprocessor // kernel.metadata.shared)
    programs = min(properties.multi_processor_count * occupancy, rows)
    softmax_kernel[(programs,)](out, x, x.stride(0), out.stride(0), rows, columns, BLOCK=block, STAGES=2, num_warps=4)
    return out
"""
)

SOFTMAX_ONLINE = (
    HEAD
    + """
@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * n
    out += row * n
    largest = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + i, mask=i < n, other=-float("inf"))
        new = tl.maximum(largest, tl.max(v, axis=0))
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(v - new), axis=0)
        largest = new
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + i, mask=i < n, other=-float("inf"))
        tl.store(out + i, tl.exp(v - largest) / total, mask=i < n)


def solve(x):
    out = torch.empty_like(x)
    softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=64, num_warps=2, num_stages=3)
    return out
"""
)

SOFTMAX_EXP2 = (
    HEAD
    + """
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def softmax(x, out, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    where = rows[:, None] * n + columns[None, :]
    mask = (rows < m)[:, None] & (columns < n)[None, :]
    v = tl.load(x + where, mask=mask, other=-1e30)
    v = (v - tl.max(v, axis=1, keep_dims=True)) * LOG2E
    e = tl.where(mask, tl.exp2(v), 0.0)
    total = tl.sum(e, axis=1, keep_dims=True)
    tl.store(out + where, e * (1.0 / tl.where(total == 0, 1.0, total)), mask=mask)


def solve(x):
    m, n = x.shape
    out = torch.full_like(x, float("nan"))
    softmax[(triton.cdiv(m, 4),)](x, out, m, n, ROWS=4, COLUMNS=triton.next_power_of_2(n))
    return out
"""
)

LOG_SOFTMAX = (
    HEAD
    + """
@triton.jit
def log_softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=float("-inf")).to(tl.float32)
    v = v - tl.max(v, 0)
    tl.store(out + row * n + i, v - tl.log(tl.sum(tl.exp(v), 0)), mask=i < n)


def solve(x):
    out = torch.empty_like(x)
    log_softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""
)

LOGSUMEXP = (
    HEAD
    + """
@triton.jit
def combine(m1, s1, m2, s2):
    m = tl.maximum(m1, m2)
    return m, s1 * tl.exp(m1 - m) + s2 * tl.exp(m2 - m)


@triton.jit
def logsumexp(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-1e30)
    ones = tl.where(i < n, 1.0, 0.0)
    m, s = tl.reduce((v, ones), 0, combine)
    tl.store(out + row, m + tl.log(s))


def solve(x):
    out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
    logsumexp[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""
)

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

ARGMAX = (
    HEAD
    + """
@triton.jit
def argmax(x, values, places, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    largest, place = tl.max(v, axis=0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(values + row, largest)
    tl.store(places + row, place)


def solve(x):
    m, n = x.shape
    values = torch.empty(m, dtype=x.dtype, device=x.device)
    places = torch.empty(m, dtype=torch.long, device=x.device)
    argmax[(m,)](x, values, places, n, BLOCK=triton.next_power_of_2(n))
    return values, places
"""
)

TOP_K_ITERATIVE = (
    HEAD
    + """
@triton.jit
def top_k(x, out, n, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    for k in tl.static_range(K):
        place = tl.argmax(v, axis=0)
        tl.store(out + row * K + k, tl.max(v, axis=0))
        v = tl.where(i == place, -float("inf"), v)


def solve(x, k):
    out = torch.empty((x.shape[0], k), dtype=x.dtype, device=x.device)
    top_k[(x.shape[0],)](x, out, x.shape[1], K=k, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
"""
)

TOP_K = (
    HEAD
    + """
@triton.jit
def top_k(x, out, n, k: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    tl.store(out + row * k + tl.arange(0, k), tl.topk(v, k))


def solve(x, k):
    out = x.new_empty((x.size(0), k))
    top_k[(x.size(0),)](x, out, x.size(1), k, BLOCK=max(k, triton.next_power_of_2(x.size(1))))
    return out
"""
)

SORT = (
    HEAD
    + """
@triton.jit
def sort_rows(x, keys, out, out_keys, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=float("inf"))
    tl.store(out + row * n + i, tl.sort(v), mask=i < n)
    k = tl.load(keys + row * n + i, mask=i < n, other=-2147483648)
    tl.store(out_keys + row * n + i, tl.sort(k, descending=True), mask=i < n)


def solve(x, keys):
    out, out_keys = torch.empty_like(x), torch.empty_like(keys)
    sort_rows[(x.shape[0],)](x, keys, out, out_keys, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return [out, out_keys]
"""
)

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

CROSS_ENTROPY = (
    HEAD
    + """
@triton.jit
def cross_entropy(logits, target, loss, n, ignore_index, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(target + row)
    if label == ignore_index:
        tl.store(loss + row, 0.0)
        return
    i = tl.arange(0, BLOCK)
    v = tl.load(logits + row * n + i, mask=i < n, other=-float("inf"))
    largest = tl.max(v, 0)
    lse = largest + tl.log(tl.sum(tl.exp(v - largest), 0))
    tl.store(loss + row, lse - tl.load(logits + row * n + label))


def solve(logits, target, ignore_index):
    loss = torch.empty(logits.shape[0], device=logits.device)
    cross_entropy[(logits.shape[0],)](
        logits, target, loss, logits.shape[1], ignore_index, BLOCK=triton.next_power_of_2(logits.shape[1])
    )
    return loss
"""
)

CROSS_ENTROPY_BACKWARD = (
    HEAD
    + """
IGNORED: tl.constexpr = -100


@triton.jit
def backward(logits, target, grad, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(target + row)
    i = tl.arange(0, BLOCK)
    v = tl.load(logits + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    d = e / tl.sum(e, 0)
    d = tl.where(i == label, d - 1.0, d) * tl.load(grad + row)
    tl.store(logits + row * n + i, tl.where(label == IGNORED, 0.0, d), mask=i < n)


def solve(logits, target, grad):
    m, n = logits.shape
    backward[(m,)](logits, target, grad, n, BLOCK=triton.next_power_of_2(n))
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

CANDIDATES = (
    ("sum_two_stage", "spec_total.py", SUM_TWO_STAGE),
    ("sum_atomic", "spec_total.py", SUM_ATOMIC),
    ("sum_reversed", "spec_total.py", SUM_REVERSED),
    ("sum_kahan", "spec_total.py", SUM_KAHAN),
    ("sum_tree", "spec_total.py", SUM_TREE),
    ("sum_last_block", "spec_total.py", SUM_LAST_BLOCK),
    ("softmax_tutorial", "spec_softmax.py", SOFTMAX_TUTORIAL),
    ("softmax_persistent", "spec_softmax.py", SOFTMAX_PERSISTENT),
    ("softmax_online", "spec_softmax.py", SOFTMAX_ONLINE),
    ("softmax_exp2", "spec_softmax.py", SOFTMAX_EXP2),
    ("log_softmax", "spec_log_softmax.py", LOG_SOFTMAX),
    ("logsumexp", "spec_logsumexp.py", LOGSUMEXP),
    ("welford", "spec_mean_var.py", WELFORD),
    ("two_pass_variance", "spec_mean_var.py", TWO_PASS_VARIANCE),
    ("layer_norm", "spec_layer_norm.py", LAYER_NORM),
    ("layer_norm_backward", "spec_layer_norm_backward.py", LAYER_NORM_BACKWARD),
    ("rms_norm", "spec_rms_norm.py", RMS_NORM),
    ("batch_norm", "spec_batch_norm.py", BATCH_NORM),
    ("running_stats", "spec_running_stats.py", RUNNING_STATS),
    ("argmax", "spec_argmax.py", ARGMAX),
    ("top_k_iterative", "spec_top_k.py", TOP_K_ITERATIVE),
    ("top_k", "spec_top_k.py", TOP_K),
    ("sort", "spec_sort.py", SORT),
    ("cumsum_blocks", "spec_cumsum.py", CUMSUM_BLOCKS),
    ("cumsum_carried", "spec_cumsum.py", CUMSUM_CARRIED),
    ("recurrence", "spec_recurrence.py", RECURRENCE),
    ("recurrence_loop", "spec_recurrence.py", RECURRENCE_LOOP),
    ("norm", "spec_norm.py", NORM),
    ("cross_entropy", "spec_cross_entropy.py", CROSS_ENTROPY),
    ("cross_entropy_backward", "spec_cross_entropy_backward.py", CROSS_ENTROPY_BACKWARD),
    ("dot_double", "spec_dot_double.py", DOT_DOUBLE),
    ("counts", "spec_counts.py", COUNTS),
    ("group_norm", "spec_group_norm.py", GROUP_NORM),
    ("column_sum", "spec_column_sum.py", COLUMN_SUM),
)
