"""Candidates that copy by torch around their kernels: clones to work in, casts, layouts that a kernel wants."""

# The texts of candidates are long lines.
# ruff: noqa: E501

from tests.judge.honest.head import HEAD

GELU_OF_A_CLONE = (
    HEAD
    + """
@triton.jit
def _gelu_(x_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(x_ptr + offsets, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=mask)
def gelu_(x):
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)
    _gelu_[grid](x, n, BLOCK_SIZE=1024)
    return x
def solve(x):
    out = x.clone()
    return gelu_(out)
"""
)

SWIGLU_WITH_CASTS = (
    HEAD
    + """
@triton.jit
def _silu_mul(g, u, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    gv = tl.load(g + i, mask=m); uv = tl.load(u + i, mask=m)
    tl.store(o + i, (gv * tl.sigmoid(gv)).to(tl.bfloat16).to(tl.float32) * uv, mask=m)
def solve(x):
    gate, up = x.chunk(2, dim=-1)
    gate, up = gate.to(torch.float32).contiguous(), up.to(torch.float32).contiguous()
    out = torch.empty_like(gate)
    _silu_mul[(triton.cdiv(gate.numel(), 512),)](gate, up, out, gate.numel(), BLOCK=512)
    return out.to(x.dtype)
"""
)

MATMUL_OF_A_TRANSPOSED_COPY = (
    HEAD
    + """
@triton.autotune(configs=[triton.Config({"BM": 16, "BN": 16, "BK": 16}, num_warps=2, num_stages=2), triton.Config({"BM": 32, "BN": 16, "BK": 32}, num_warps=4)], key=["M", "N", "K"])
@triton.jit
def mm(A, Bt, C, M, N, K, sam, sak, sbn, sbk, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM); rn = pn * BN + tl.arange(0, BN); rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, tl.cdiv(K, BK)):
        a = tl.load(A + rm[:, None] * sam + (k * BK + rk)[None, :] * sak, mask=(rm[:, None] < M) & ((k * BK + rk)[None, :] < K), other=0.0)
        b = tl.load(Bt + rn[:, None] * sbn + (k * BK + rk)[None, :] * sbk, mask=(rn[:, None] < N) & ((k * BK + rk)[None, :] < K), other=0.0)
        acc += tl.dot(a, tl.trans(b))
    tl.store(C + rm[:, None] * scm + rn[None, :] * scn, acc.to(C.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))
def solve(a, b):
    assert a.shape[1] == b.shape[0], f"{a.shape} x {b.shape}"
    bt = b.t().contiguous()
    M, K = a.shape
    N = bt.size(0)
    c = a.new_empty((M, N))
    grid = lambda META: (triton.cdiv(M, META["BM"]), triton.cdiv(N, META["BN"]))
    with torch.cuda.device(a.device):
        mm[grid](a, bt, c, M, N, K, *a.stride(), *bt.stride(), *c.stride())
    return c
"""
)

EMBEDDING_WITH_NARROW_INDICES = (
    HEAD
    + """
@triton.jit
def emb(idx, tab, o, D, B: tl.constexpr):
    r = tl.program_id(0)
    j = tl.load(idx + r)
    for d in range(0, D, B):
        c = d + tl.arange(0, B)
        tl.store(o + r * D + c, tl.load(tab + j * D + c, mask=c < D), mask=c < D)
def solve(table, index):
    index = index.to(torch.int32)
    out = torch.empty((*index.shape, table.shape[1]), dtype=table.dtype, device=table.device)
    emb[(index.numel(),)](index.view(-1), table, out, table.shape[1], B=32)
    return out
"""
)

RMS_NORM_WITH_CASTS = (
    HEAD
    + """
@triton.jit
def k(x, w, o, n, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B); m = c < n
    v = tl.load(x + r * n + c, mask=m, other=0.)
    rs = tl.math.rsqrt(tl.sum(v * v) / n + 1e-6)
    tl.store(o + r * n + c, (v * rs), mask=m)
@triton.jit
def scale(o, w, y, n, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B); m = c < n
    tl.store(y + r * n + c, tl.load(o + r * n + c, mask=m).to(y.dtype.element_ty) * tl.load(w + c, mask=m), mask=m)
def solve(x, weight):
    xf = x.float()
    n = x.shape[-1]
    buf = torch.empty_like(xf)
    k[(x.shape[0],)](xf, weight, buf, n, B=triton.next_power_of_2(n))
    y = torch.zeros_like(x)
    scale[(x.shape[0],)](buf, weight, y, n, B=triton.next_power_of_2(n))
    return y
"""
)

CANDIDATES = (
    ("gelu_of_a_clone", "spec_gelu.py", GELU_OF_A_CLONE),
    ("swiglu_with_casts", "spec_swiglu.py", SWIGLU_WITH_CASTS),
    ("matmul_of_a_transposed_copy", "spec_matmul.py", MATMUL_OF_A_TRANSPOSED_COPY),
    ("embedding_with_narrow_indices", "spec_embedding.py", EMBEDDING_WITH_NARROW_INDICES),
    ("rms_norm_with_casts", "spec_rms_norm.py", RMS_NORM_WITH_CASTS),
)
