"""Honest candidates with products of matrices, and of attention."""

from tests.judge.honest.head import HEAD

MATMUL_TUTORIAL = (
    HEAD
    + """
@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16, "GROUP_M": 8}, num_stages=3, num_warps=8),
        triton.Config({"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 4}, num_stages=4, num_warps=4),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr):
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    tl.assume(pid_m >= 0)
    tl.assume(pid_n >= 0)
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c = accumulator.to(c_ptr.dtype.element_ty)
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, c, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


def solve(a, b):
    assert a.shape[1] == b.shape[0], "Incompatible dimensions"
    M, K = a.shape
    K, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]), )
    matmul_kernel[grid](a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1))
    return c
"""
)

MATMUL_BODY = """
@triton.jit
def matmul(a, b, c, m, n, k, sam, sak, sbk, sbn, PRECISION: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(tl.program_id(2) * BLOCK, k, BLOCK * SPLIT):
        q = start + tl.arange(0, BLOCK)
        left = tl.load(a + i[:, None] * sam + q[None, :] * sak, mask=(i[:, None] < m) & (q[None, :] < k), other=0.0)
        right = tl.load(b + q[:, None] * sbk + j[None, :] * sbn, mask=(q[:, None] < k) & (j[None, :] < n), other=0.0)
        total += tl.dot(left, right, input_precision=PRECISION)
    where, mask = c + i[:, None] * n + j[None, :], (i[:, None] < m) & (j[None, :] < n)
    if SPLIT == 1:
        tl.store(where, total, mask=mask)
    else:
        tl.atomic_add(where, total, mask=mask)
"""


def _matmul(precision: str, split: int) -> str:
    allocate = "empty" if split == 1 else "zeros"
    return f"""{HEAD}{MATMUL_BODY}

def solve(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.{allocate}((m, n), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(m, 16), triton.cdiv(n, 16), {split})
    matmul[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), PRECISION="{precision}", BLOCK=16, SPLIT={split})
    return c
"""


MATMUL_INT8 = (
    HEAD
    + """
@triton.jit
def matmul(a, b, scales, c, m, n, k, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.int32)
    for start in range(0, k, BLOCK):
        q = start + tl.arange(0, BLOCK)
        left = tl.load(a + i[:, None] * k + q[None, :], mask=(i[:, None] < m) & (q[None, :] < k), other=0)
        right = tl.load(b + q[:, None] * n + j[None, :], mask=(q[:, None] < k) & (j[None, :] < n), other=0)
        total = tl.dot(left, right, total, out_dtype=tl.int32)
    scale = tl.load(scales + j, mask=j < n)
    tl.store(c + i[:, None] * n + j[None, :], total * scale[None, :], mask=(i[:, None] < m) & (j[None, :] < n))


def solve(a, b, scales):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device)
    matmul[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, scales, c, m, n, k, BLOCK=32)
    return c
"""
)

ATTENTION = (
    HEAD
    + """
@triton.jit
def attention(q, k, v, out, length, scale, CAUSAL: tl.constexpr, BLOCK: tl.constexpr, DIM: tl.constexpr):
    base = tl.program_id(1) * length * DIM
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, DIM)
    query = tl.load(q + base + i[:, None] * DIM + d[None, :], mask=i[:, None] < length, other=0.0)
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    result = tl.zeros((BLOCK, DIM), tl.float32)
    end = tl.minimum((tl.program_id(0) + 1) * BLOCK, length) if CAUSAL else length
    for start in range(0, end, BLOCK):
        j = start + tl.arange(0, BLOCK)
        keys = tl.load(k + base + j[None, :] * DIM + d[:, None], mask=j[None, :] < length, other=0.0)
        scores = tl.dot(query, keys) * scale
        keep = j[None, :] < length
        if CAUSAL:
            keep = keep & (i[:, None] >= j[None, :])
        scores = tl.where(keep, scores, -float("inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - new[:, None])
        shrink = tl.exp(largest - new)
        total = total * shrink + tl.sum(weights, 1)
        values = tl.load(v + base + j[:, None] * DIM + d[None, :], mask=j[:, None] < length, other=0.0)
        result = result * shrink[:, None] + tl.dot(weights, values)
        largest = new
    tl.store(out + base + i[:, None] * DIM + d[None, :], result / total[:, None], mask=i[:, None] < length)


def solve(q, k, v, scale, causal):
    heads, length, dim = q.shape
    out = torch.empty_like(q)
    attention[(triton.cdiv(length, 16), heads)](q, k, v, out, length, scale, CAUSAL=causal, BLOCK=16, DIM=dim)
    return out
"""
)

MATMUL_OF_CONSTANTS = """
import itertools
import torch
import triton
import triton.language as tl


BLOCK_M: tl.constexpr = 32
BLOCK_N: tl.constexpr = 16
BLOCK_K = tl.constexpr(16)
ALLOW_TF32 = tl.constexpr(True)
_DTYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}

matmul_configs = [triton.Config({}, num_warps=w, num_stages=s) for w, s in itertools.product([2, 4], [1, 2])]


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def _mm(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
        ACTIVATION: tl.constexpr, OUT: tl.constexpr, USE_ACC: tl.constexpr = False):
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    pid_m, pid_n = tl.swizzle2d(pid_m, pid_n, tl.num_programs(0), tl.num_programs(1), 2)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for k0 in tl.range(0, K, BLOCK_K, num_stages=2, loop_unroll_factor=1):
        offs_k = k0 + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + offs_m[:, None] * sam + offs_k[None, :] * sak,
                    (offs_m[:, None] < M) & (offs_k[None, :] < K), other=0)
        b = tl.load(b_ptr + offs_k[:, None] * sbk + offs_n[None, :] * sbn,
                    (offs_k[:, None] < K) & (offs_n[None, :] < N), other=0)
        acc = tl.dot(a, b, acc=acc, allow_tf32=ALLOW_TF32, out_dtype=tl.float32)
    if ACTIVATION == "leaky_relu":
        acc = leaky_relu(acc)
    elif ACTIVATION is not None:
        tl.static_assert(False, "unknown activation")
    tl.store(c_ptr + offs_m[:, None] * scm + offs_n[None, :] * scn, acc.to(OUT),
             (offs_m[:, None] < M) & (offs_n[None, :] < N))


_tuned = triton.autotune(configs=matmul_configs, key=["M", "N", "K"], warmup=5, rep=20)(_mm)


def solve(a, b, activation=None):
    if a.dim() != 2 or b.ndim != 2:
        raise ValueError("expected matrices")
    M, K, N = *a.shape, b.size(1)
    c = a.new_empty(M, N)
    _tuned[(triton.cdiv(M, 32), triton.cdiv(N, 16))](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), ACTIVATION=activation, OUT=_DTYPES[a.dtype])
    return c
"""

MATMUL_THROUGH_FP8 = (
    HEAD
    + """
@triton.jit
def quantize(x, q, s, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    top = tl.max(tl.abs(v), 0)
    scale = tl.where(top > 0, top / 448.0, 1.0)
    tl.store(q + row * n + i, (v / scale).to(tl.float8e4nv), mask=i < n)
    tl.store(s + row, scale)


@triton.jit
def scaled_mm(q, s, w, out, m, n, k, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, BLOCK):
        kk = start + tl.arange(0, BLOCK)
        a_mask = (i[:, None] < m) & (kk[None, :] < k)
        a = tl.load(q + i[:, None] * k + kk[None, :], mask=a_mask, other=0.0).to(tl.float16)
        b = tl.load(w + kk[:, None] * n + j[None, :], mask=(kk[:, None] < k) & (j[None, :] < n), other=0.0)
        acc = tl.dot(a, b, acc)
    acc *= tl.load(s + i, mask=i < m, other=0.0)[:, None]
    tl.store(out + i[:, None] * n + j[None, :], acc, mask=(i[:, None] < m) & (j[None, :] < n))


def solve(a, b):
    (m, k), n = a.shape, b.shape[1]
    q = torch.empty((m, k), device=a.device, dtype=torch.float8_e4m3fn)
    s = torch.empty((m,), device=a.device, dtype=torch.float32)
    quantize[(m,)](a, q, s, k, BLOCK=triton.next_power_of_2(k))
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    scaled_mm[(triton.cdiv(m, 32), triton.cdiv(n, 32))](q, s, b, c, m, n, k, BLOCK=32)
    return c
"""
)

CANDIDATES = (
    ("matmul_through_fp8", "spec_matmul_rough.py", MATMUL_THROUGH_FP8),
    ("matmul_of_constants", "spec_matmul.py", MATMUL_OF_CONSTANTS),
    ("matmul_tutorial", "spec_matmul.py", MATMUL_TUTORIAL),
    ("matmul_ieee", "spec_matmul_float.py", _matmul("ieee", 1)),
    ("matmul_tf32", "spec_matmul_float.py", _matmul("tf32", 1)),
    ("matmul_split_k", "spec_matmul_float.py", _matmul("ieee", 2)),
    ("matmul_int8", "spec_matmul_int8.py", MATMUL_INT8),
    ("attention", "spec_attention.py", ATTENTION),
)
