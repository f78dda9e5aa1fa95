"""Honest candidates of what follows the order of elements: largest ones, sorts, rows by index."""

from tests.judge.honest.head import HEAD

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

EMBEDDING = (
    HEAD
    + """
@triton.jit
def embed(table, index, out, dim, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    row = tl.load(index + pid)
    d = tl.arange(0, BLOCK)
    tl.store(out + pid * dim + d, tl.load(table + row * dim + d, mask=d < dim), mask=d < dim)


def solve(table, index):
    out = table.new_empty((index.numel(), table.shape[1]))
    embed[(index.numel(),)](table, index, out, table.shape[1], BLOCK=triton.next_power_of_2(table.shape[1]))
    return out
"""
)

TRANSPOSE = (
    HEAD
    + """
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def transpose(x, out, m, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + i[:, None] * n + j[None, :], mask=(i[:, None] < m) & (j[None, :] < n))
    tl.store(out + j[:, None] * m + i[None, :], tl.trans(tile), mask=(j[:, None] < n) & (i[None, :] < m))


def solve(x):
    m, n = x.shape
    out = torch.empty((n, m), dtype=x.dtype, device=x.device)
    transpose[(triton.cdiv(m, 16), triton.cdiv(n, 16))](x, out, m, n, BLOCK=16)
    return out
"""
)

GATHER_ROWS = (
    HEAD
    + """
@triton.jit
def gather_kernel(src_ptr, idx_ptr, out_ptr, m, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    offs = rows[:, None] * n + cols[None, :]
    mask = (rows[:, None] < m) & (cols[None, :] < n)
    src = tl.load(src_ptr + offs, mask=mask, other=0.0)
    idx = tl.load(idx_ptr + offs, mask=mask, other=0).to(tl.int32)
    tl.store(out_ptr + offs, tl.gather(src, idx, axis=1), mask=mask)


def solve(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    assert x.is_contiguous() and index.is_contiguous()
    m, n = x.shape
    out = torch.empty_like(x)
    gather_kernel[(triton.cdiv(m, 4),)](x, index, out, m, n, ROWS=4, COLS=triton.next_power_of_2(n))
    return out
"""
)

CANDIDATES = (
    ("gather_rows", "spec_gather_rows.py", GATHER_ROWS),
    ("argmax", "spec_argmax.py", ARGMAX),
    ("top_k_iterative", "spec_top_k.py", TOP_K_ITERATIVE),
    ("top_k", "spec_top_k.py", TOP_K),
    ("sort", "spec_sort.py", SORT),
    ("embedding", "spec_embedding.py", EMBEDDING),
    ("transpose", "spec_transpose.py", TRANSPOSE),
)
