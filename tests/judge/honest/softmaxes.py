"""Honest candidates of softmax and what is made of it."""

from tests.judge.honest.head import HEAD

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

CANDIDATES = (
    ("softmax_tutorial", "spec_softmax.py", SOFTMAX_TUTORIAL),
    ("softmax_persistent", "spec_softmax.py", SOFTMAX_PERSISTENT),
    ("softmax_online", "spec_softmax.py", SOFTMAX_ONLINE),
    ("softmax_exp2", "spec_softmax.py", SOFTMAX_EXP2),
    ("log_softmax", "spec_log_softmax.py", LOG_SOFTMAX),
    ("logsumexp", "spec_logsumexp.py", LOGSUMEXP),
    ("cross_entropy", "spec_cross_entropy.py", CROSS_ENTROPY),
    ("cross_entropy_backward", "spec_cross_entropy_backward.py", CROSS_ENTROPY_BACKWARD),
)
