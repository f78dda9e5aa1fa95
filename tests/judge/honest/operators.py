"""Honest candidates behind operators of torch, autograd functions, and functions that make kernels."""

# The texts of candidates are long lines.
# ruff: noqa: E501

from tests.judge.honest.head import HEAD

ADD_AS_CUSTOM_OP = (
    HEAD
    + """
from torch import Tensor


@triton.jit
def add_kernel(in_ptr0, in_ptr1, out_ptr, n_elements, BLOCK_SIZE: "tl.constexpr"):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    tl.store(out_ptr + offsets, tl.load(in_ptr0 + offsets, mask=mask) + tl.load(in_ptr1 + offsets, mask=mask), mask=mask)


@torch.library.custom_op("mylib::add", mutates_args=())
def add(x: Tensor, y: Tensor) -> Tensor:
    output = torch.empty_like(x)
    n_elements = output.numel()
    add_kernel[(triton.cdiv(n_elements, 16),)](x, y, output, n_elements, BLOCK_SIZE=16)
    return output


@add.register_fake
def _(x, y):
    return torch.empty_like(x)


def solve(x, y):
    return torch.ops.mylib.add(x, y)
"""
)

ADD_AS_TRITON_OP = (
    HEAD
    + """
from torch.library import triton_op, wrap_triton


@triton.jit
def add_kernel(a, b, o, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(o + offsets, tl.load(a + offsets, mask=mask) + tl.load(b + offsets, mask=mask), mask=mask)


@triton_op("mylib2::add", mutates_args={})
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(add_kernel)[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK_SIZE=64)
    return out


def solve(x, y):
    return add(x, y)
"""
)

SOFTMAX_NESTED_KERNEL = """
from functools import lru_cache, partial

import torch
import triton
import triton.language as tl


@lru_cache
def make_kernel(use_exp2: bool):
    LOG2E = tl.constexpr(1.4426950408889634)
    FLAG = tl.constexpr(use_exp2)

    @triton.jit
    def kernel(x, y, n, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        i = tl.arange(0, BLOCK)
        v = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
        v = v - tl.max(v, 0)
        if FLAG:
            e = tl.exp2(v * LOG2E)
        else:
            e = tl.exp(v)
        tl.store(y + row * n + i, e / tl.sum(e, 0), mask=i < n)

    return kernel


def solve(x):
    m, n = x.shape
    y = torch.empty_like(x)
    launch = partial(make_kernel(True)[(m,)], BLOCK=triton.next_power_of_2(n), num_warps=4)
    launch(x, y, n)
    return y
"""

SWIGLU_PACKED = (
    HEAD
    + """
from torch.amp import custom_fwd


@triton.jit(repr=lambda specialization: f"swiglu_{specialization.constants['BLOCK']}")
def _swiglu(gate, up, out, stride_g, stride_u, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + row * stride_g + i, mask=i < n, other=0.0).to(tl.float32)
    u = tl.load(up + row * stride_u + i, mask=i < n, other=0.0)
    tl.store(out + row * n + i, g * tl.sigmoid(g) * u, mask=i < n)


class SwiGLU(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cuda")
    def forward(ctx, packed):
        gate, up = packed.chunk(2, dim=-1)
        *batch, n = gate.shape
        gate2, up2 = gate.reshape(-1, n) if gate.is_contiguous() else gate.view(-1, n), up.view(-1, n)
        out = gate2.new_empty(gate2.shape)
        _swiglu[(gate2.shape[0], triton.cdiv(n, 32))](gate2, up2, out, gate2.stride(0), up2.stride(0), n, BLOCK=32)
        return out.unflatten(0, batch)


def solve(x):
    return SwiGLU.apply(x)
"""
)

ROPE_IN_PLACE = (
    HEAD
    + '''
ROPE_GROUP_SIZE: int = 4


def _rope_embedding(Q, Q_row_stride, cos, cos_row_stride, sin, sin_row_stride, seqlen, head_dim: tl.constexpr,
                    n_heads: tl.constexpr, BACKWARD_PASS: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """
    Calculates the RoPE Embedding quickly
    RoPE is Q * cos + rotate_half(Q) * sin
    """
    ROPE_GROUP_SIZE = 4
    row_position = tl.program_id(0)
    group_head_position = tl.program_id(1)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    half_head_dim = head_dim // 2
    mask = col_offsets < half_head_dim

    sin1 = tl.load(sin + (row_position % seqlen) * sin_row_stride + half_head_dim * 0 + col_offsets, mask=mask, other=0)
    cos1 = tl.load(cos + (row_position % seqlen) * cos_row_stride + half_head_dim * 0 + col_offsets, mask=mask, other=0)

    if BACKWARD_PASS:
        sin1 = -sin1

    head_start = group_head_position * ROPE_GROUP_SIZE
    head_end = min((head_start + ROPE_GROUP_SIZE), n_heads)
    for k in range(head_start, head_end):
        offs_q1 = row_position * Q_row_stride + k * head_dim + col_offsets
        offs_q2 = row_position * Q_row_stride + k * head_dim + col_offsets + half_head_dim
        Q1 = tl.load(Q + offs_q1, mask=mask, other=0).to(sin1.dtype)
        Q2 = tl.load(Q + offs_q2, mask=mask, other=0).to(sin1.dtype)
        tl.store(Q + offs_q1, Q1 * cos1 - Q2 * sin1, mask=mask)
        tl.store(Q + offs_q2, Q2 * cos1 + Q1 * sin1, mask=mask)


_rope_embedding = triton.jit(_rope_embedding)
_rope_embedding = triton.heuristics(
    {
        "BACKWARD_PASS": lambda args: bool(args["BACKWARD_PASS"]),
    }
)(_rope_embedding)


def solve(Q, cos, sin):
    cos, sin = cos.squeeze(), sin.squeeze()
    batch, seq_len, n_heads, head_dim = Q.shape
    Q = Q.view(batch * seq_len, n_heads * head_dim)
    n_rows, n_cols = Q.shape
    assert seq_len <= cos.shape[0]
    BLOCK_SIZE, num_warps = triton.next_power_of_2(head_dim // 2), 4
    div, mod = divmod(n_heads, ROPE_GROUP_SIZE)
    n_groups = div + (mod != 0)
    _rope_embedding[(n_rows, n_groups)](
        Q, Q.stride(0), cos, cos.stride(0), sin, sin.stride(0), seq_len, head_dim, n_heads,
        BACKWARD_PASS=False, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps,
    )
    return Q.view(batch, seq_len, n_heads, head_dim)
'''
)

CANDIDATES = (
    ("add_as_custom_op", "spec_add.py", ADD_AS_CUSTOM_OP),
    ("add_as_triton_op", "spec_add.py", ADD_AS_TRITON_OP),
    ("softmax_nested_kernel", "spec_softmax.py", SOFTMAX_NESTED_KERNEL),
    ("swiglu_packed", "spec_swiglu_packed.py", SWIGLU_PACKED),
    ("rope_in_place", "spec_rope_in_place.py", ROPE_IN_PLACE),
)
