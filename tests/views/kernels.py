"""Kernels whose graphs are hard to draw: attention forward and backward, and branches of all kinds."""

import triton
import triton.language as tl


@triton.jit
def attention_forward(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    scale,
    stride_h,
    stride_m,
    L,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    start = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1)
    rows = start + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, D)
    base = head * stride_h
    q = tl.load(q_ptr + base + rows[:, None] * stride_m + cols[None, :], mask=rows[:, None] < L, other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    norm = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    end = start + BLOCK_M if CAUSAL else L
    for n in range(0, end, BLOCK_N):
        keys = n + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + base + keys[:, None] * stride_m + cols[None, :], mask=keys[:, None] < L, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        valid = keys[None, :] < L
        if CAUSAL:
            valid = valid & (rows[:, None] >= keys[None, :])
        s = tl.where(valid, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        norm = norm * alpha + tl.sum(p, 1)
        v = tl.load(v_ptr + base + keys[:, None] * stride_m + cols[None, :], mask=keys[:, None] < L, other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(tl.float16), v)
        m = m_new
    tl.store(
        out_ptr + base + rows[:, None] * stride_m + cols[None, :],
        (acc / norm[:, None]).to(tl.float16),
        mask=rows[:, None] < L,
    )
    tl.store(lse_ptr + head * L + rows, m + tl.log(norm), mask=rows < L)


@triton.jit
def _dkdv(
    dk,
    dv,
    k,
    v,
    q_ptr,
    do_ptr,
    lse_ptr,
    delta_ptr,
    base,
    row_base,
    stride_m,
    scale,
    first,
    keys,
    cols,
    L,
    BLOCK_M: tl.constexpr,
):
    for m in range(first, L, BLOCK_M):
        rows = m + tl.arange(0, BLOCK_M)
        inside = rows < L
        q = tl.load(q_ptr + base + rows[:, None] * stride_m + cols[None, :], mask=inside[:, None], other=0.0)
        do = tl.load(do_ptr + base + rows[:, None] * stride_m + cols[None, :], mask=inside[:, None], other=0.0)
        lse = tl.load(lse_ptr + row_base + rows, mask=inside, other=0.0)
        delta = tl.load(delta_ptr + row_base + rows, mask=inside, other=0.0)
        s = tl.dot(k, tl.trans(q)) * scale
        p = tl.exp(s - lse[None, :])
        p = tl.where((rows[None, :] >= keys[:, None]) & inside[None, :], p, 0.0)
        dv += tl.dot(p.to(tl.float16), do)
        dp = tl.dot(v, tl.trans(do))
        ds = p * (dp - delta[None, :])
        dk += tl.dot(ds.to(tl.float16), q)
    return dk, dv


@triton.jit
def _dq(dq, q, do, lse, delta, k_ptr, v_ptr, base, stride_m, scale, end, rows, cols, L, BLOCK_N: tl.constexpr):
    for n in range(0, end, BLOCK_N):
        keys = n + tl.arange(0, BLOCK_N)
        inside = keys < L
        k = tl.load(k_ptr + base + keys[:, None] * stride_m + cols[None, :], mask=inside[:, None], other=0.0)
        v = tl.load(v_ptr + base + keys[:, None] * stride_m + cols[None, :], mask=inside[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        p = tl.exp(s - lse[:, None])
        p = tl.where((rows[:, None] >= keys[None, :]) & inside[None, :], p, 0.0)
        dp = tl.dot(do, tl.trans(v))
        ds = p * (dp - delta[:, None])
        dq += tl.dot(ds.to(tl.float16), k)
    return dq


@triton.jit
def attention_backward(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    dq_ptr,
    dk_ptr,
    dv_ptr,
    lse_ptr,
    delta_ptr,
    scale,
    stride_h,
    stride_m,
    L,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    INNER: tl.constexpr,
):
    start = tl.program_id(0) * BLOCK
    head = tl.program_id(1)
    base = head * stride_h
    row_base = head * L
    rows = start + tl.arange(0, BLOCK)
    cols = tl.arange(0, D)
    inside = rows < L
    block = base + rows[:, None] * stride_m + cols[None, :]
    k = tl.load(k_ptr + block, mask=inside[:, None], other=0.0)
    v = tl.load(v_ptr + block, mask=inside[:, None], other=0.0)
    dk = tl.zeros((BLOCK, D), tl.float32)
    dv = tl.zeros((BLOCK, D), tl.float32)
    dk, dv = _dkdv(
        dk, dv, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, base, row_base, stride_m, scale, start, rows, cols, L, INNER
    )
    tl.store(dv_ptr + block, dv.to(tl.float16), mask=inside[:, None])
    tl.store(dk_ptr + block, (dk * scale).to(tl.float16), mask=inside[:, None])
    q = tl.load(q_ptr + block, mask=inside[:, None], other=0.0)
    do = tl.load(do_ptr + block, mask=inside[:, None], other=0.0)
    lse = tl.load(lse_ptr + row_base + rows, mask=inside, other=0.0)
    delta = tl.load(delta_ptr + row_base + rows, mask=inside, other=0.0)
    dq = tl.zeros((BLOCK, D), tl.float32)
    dq = _dq(dq, q, do, lse, delta, k_ptr, v_ptr, base, stride_m, scale, start + BLOCK, rows, cols, L, INNER)
    tl.store(dq_ptr + block, (dq * scale).to(tl.float16), mask=inside[:, None])


@triton.jit(noinline=True)
def _first(program, size):
    return program * size


@triton.jit
def branches(x_ptr, out_ptr, spare_ptr, n, flag, BLOCK: tl.constexpr):
    offs = _first(tl.program_id(0), BLOCK) + tl.arange(0, BLOCK)
    if n == 0:
        return
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    if flag > 0:
        x = x * 2.0
        tl.store(spare_ptr + offs, x, mask=offs < n)
    else:
        x = x - 1.0
    steps = 0
    while steps < flag:
        x = x * 0.5
        steps += 2
    tl.atomic_add(out_ptr + offs, x, mask=offs < n)


@triton.jit
def unrolled(x_ptr, out_ptr, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    for step in tl.static_range(STEPS):
        x = x * x + step
        x = tl.where(x > 3.0, x - 1.0, x + 1.0)
    tl.store(out_ptr + offs, x)


@triton.jit
def through_an_integer(x_ptr, out_ptr, table_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    target = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    tl.store(target + offs, tl.load(x_ptr + offs))
    tl.store(out_ptr + offs, 1.0)
