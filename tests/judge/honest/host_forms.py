"""Honest candidates whose host code is written as libraries write it: classes, decorators, streams, settings."""

from tests.judge.honest.head import HEAD

GELU_AUTOGRAD = (
    HEAD
    + """
import math


@triton.jit
def _gelu_fwd(X, Y, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + offs, mask=offs < N).to(tl.float32)
    y = 0.5 * x * (1 + tl.math.erf(x * 0.7071067811865476))
    tl.store(Y + offs, y.to(Y.dtype.element_ty), mask=offs < N)


def calculate_settings(n):
    MAX_FUSED_SIZE = 65536
    BLOCK_SIZE = triton.next_power_of_2(n)
    if BLOCK_SIZE > MAX_FUSED_SIZE:
        raise RuntimeError(f"n = {n} exceeds the maximum CUDA blocksize = {MAX_FUSED_SIZE}.")
    num_warps = 4
    if BLOCK_SIZE >= 32768:
        num_warps = 32
    elif BLOCK_SIZE >= 2048:
        num_warps = 8
    return BLOCK_SIZE, num_warps


class GELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        shape = x.shape
        x = x.view(-1)
        y = torch.empty_like(x)
        BLOCK, num_warps = calculate_settings(x.numel())
        with torch.cuda.device(x.device):
            _gelu_fwd[(1,)](x, y, x.numel(), BLOCK=BLOCK, num_warps=num_warps)
        ctx.save_for_backward(x)
        return y.view(*shape)

    @staticmethod
    def backward(ctx, dy):
        raise NotImplementedError


def solve(x):
    return GELU.apply(x)
"""
)

GELU_MODULE = (
    HEAD
    + """
import torch.nn as nn
import torch.nn.functional as F


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    block_start = tl.program_id(0) * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x * 0.5 * (1.0 + tl.erf(x / 1.4142135623730951)), mask=mask)


def triton_gelu(x: torch.Tensor):
    assert x.is_cuda, "Tensors must be on CUDA."
    x = x.contiguous()
    out = torch.empty_like(x)
    n_elements = x.numel()
    BLOCK_SIZE = 128
    grid = lambda meta: ((n_elements + meta["BLOCK_SIZE"] - 1) // meta["BLOCK_SIZE"],)
    gelu_kernel[grid](x, out, n_elements, BLOCK_SIZE=BLOCK_SIZE)
    return out


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()

    def forward(self, x):
        return triton_gelu(x)


model = ModelNew()


@torch.no_grad()
def solve(x):
    return model(x)
"""
)

SOFTMAX_HEURISTICS = (
    HEAD
    + """
@triton.heuristics({
    "BLOCK": lambda args: triton.next_power_of_2(args["N"]),
    "num_warps": lambda args: 4 if args["N"] <= 2048 else 8,
})
@triton.jit
def _softmax(X, Y, stride_x, stride_y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride_x + cols, mask=cols < N, other=float("-inf")).to(tl.float32)
    x = x - tl.max(x, axis=0)
    num = tl.exp(x)
    tl.store(Y + row * stride_y + cols, num / tl.sum(num, axis=0), mask=cols < N)


def solve(x):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    x_arg = x.reshape(-1, x.shape[-1])
    M, N = x_arg.shape
    _softmax[(M,)](x_arg, y, x_arg.stride(0), y.stride(0), N)
    return y
"""
)

SOFTMAX_WARMED_UP = (
    HEAD
    + """
@triton.jit
def softmax_kernel(out, x, stride, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + cols, mask=cols < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + cols, e / tl.sum(e, 0), mask=cols < n)


def solve(x):
    m, n = x.shape
    out = torch.empty_like(x)
    BLOCK = triton.next_power_of_2(n)
    kernel = softmax_kernel.warmup(out, x, x.stride(0), n, BLOCK=BLOCK, num_warps=4, grid=(1,))
    kernel._init_handles()
    assert kernel.n_regs > 0 and kernel.metadata.shared >= 0
    softmax_kernel[(m, 1, 1)](out, x, x.stride(0), n, BLOCK=BLOCK, num_warps=4)
    return out
"""
)

SCALE_RESTORED_VIEW = (
    HEAD
    + """
@triton.autotune(
    configs=[triton.Config(kwargs={"BLOCK_SIZE": b}) for b in (64, 128, 1024)],
    key=["n_elements"],
    restore_value=["x_ptr"],
)
@triton.jit
def mul_(x_ptr, factor, n_elements, BLOCK_SIZE: tl.constexpr):
    offs = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offs < n_elements
    tl.store(x_ptr + offs, tl.load(x_ptr + offs, mask=mask) * factor, mask=mask)


def solve(x, factor):
    flat = x.view(-1)
    n = flat.shape[0]
    mul_[lambda META: (triton.cdiv(n, META["BLOCK_SIZE"]),)](x_ptr=flat, factor=factor, n_elements=n)
    return x
"""
)

ADD_ON_A_STREAM = (
    HEAD
    + """
@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


side = torch.cuda.Stream()


def solve(x, y):
    out = torch.empty_like(x)
    start = torch.cuda.Event(enable_timing=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        add[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), 128)
    torch.cuda.current_stream().wait_stream(side)
    return out
"""
)

SOFTMAX_OF_A_LIBRARY = '''
import logging
import math
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

import torch
import triton
import triton.language as tl

from triton.language.extra import libdevice

logger = logging.getLogger(__name__)
_CONFIG: Dict[str, Any] = {"num_warps": 4}


@dataclass(frozen=True)
class LaunchConfig:
    block: int
    num_warps: int = 4
    num_stages: Optional[int] = 2

    def as_kwargs(self) -> Dict[str, Any]:
        return {"BLOCK": self.block, "num_warps": self.num_warps, "num_stages": self.num_stages}


@triton.jit
def _combine(m1, d1, m2, d2):
    m = tl.maximum(m1, m2)
    return m, d1 * tl.exp(m1 - m) + d2 * tl.exp(m2 - m)


@triton.jit
def online_softmax(x_ptr, y_ptr, n_cols, row_stride: tl.int64, BLOCK: tl.constexpr):
    """Online softmax with a two-valued reduction."""
    tl.static_assert(BLOCK >= 1, "block must be positive")
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.num_programs(0):
        return
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * row_stride + cols, mask=mask, other=-3.0e38,
                cache_modifier=".cg", eviction_policy="evict_first").to(tl.float32)
    ones = tl.where(mask, 1.0, 0.0)
    m, d = tl.reduce((x, ones), 0, _combine)
    tl.device_assert(d > 0, "empty row")
    y = libdevice.exp(x - m) / d
    tl.store(y_ptr + row * n_cols + cols, y.to(y_ptr.type.element_ty), mask=mask, eviction_policy="evict_last")


def _launch(x: torch.Tensor, y: torch.Tensor, config: LaunchConfig) -> None:
    rows, cols = x.shape
    logger.debug("launch %s", config)
    online_softmax[(rows,)](x, y, cols, x.stride(0), **config.as_kwargs())


def solve(x: torch.Tensor) -> Tuple[torch.Tensor]:
    if x.device.type != "cuda":
        raise ValueError(f"expected a CUDA tensor, got {x.device}")
    y = torch.zeros_like(x)
    torch.cuda.synchronize()
    stream = torch.cuda.current_stream()
    _launch(x, y, LaunchConfig(block=max(16, 2 ** math.ceil(math.log2(max(x.size(-1), 1))))))
    stream.synchronize()
    return (y,)
'''

LAYER_NORM_OF_A_CLASS = (
    HEAD
    + """
import os
import functools
import warnings
from contextlib import contextmanager

if os.environ.get("TRITON_INTERPRET", "0") == "1":
    warnings.warn("interpreting")
USE_FAST = os.getenv("USE_FAST_LN", "1") == "1"


def get_num_warps(block: int) -> int:
    return {True: 8, False: 4}[block > 1024]


def contiguous(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        args = [a.contiguous() if isinstance(a, torch.Tensor) else a for a in args]
        kwargs = {k: v.contiguous() if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
        return fn(*args, **kwargs)
    return wrapper


@contextmanager
def device_guard(x):
    with torch.cuda.device(x.device.index):
        yield


class LayerNorm:
    eps: float = 1e-5

    @staticmethod
    @triton.jit
    def kernel(X, W, B, Y, MEAN, RSTD, stride, N, eps, BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr = True):
        row = tl.program_id(0)
        X += row * stride
        Y += row * stride
        cols = tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(X + cols, mask=mask, other=0.).to(tl.float32)
        mean = tl.sum(x, axis=0) / N
        xc = tl.where(mask, x - mean, 0.)
        var = tl.sum(xc * xc, axis=0) / N
        rstd = 1 / tl.sqrt(var + eps)
        tl.store(MEAN + row, mean)
        tl.store(RSTD + row, rstd)
        y = xc * rstd * tl.load(W + cols, mask=mask)
        if HAS_BIAS:
            y += tl.load(B + cols, mask=mask)
        tl.store(Y + cols, y, mask=mask)

    @classmethod
    @contiguous
    def forward(cls, x, weight, bias=None, eps=None):
        raise NotImplementedError


@contiguous
def layer_norm(x, weight, bias=None, eps=1e-5):
    M, N = x.shape
    y = torch.empty_like(x)
    mean, rstd = (torch.empty((M,), dtype=torch.float32, device=x.device) for _ in range(2))
    BLOCK = min(65536 // x.element_size(), triton.next_power_of_2(N))
    if N > BLOCK:
        raise RuntimeError("This layer norm doesn't support feature dim >= 64KB.")
    num_warps = min(max(BLOCK // 256, 1), 8)
    with device_guard(x):
        LayerNorm.kernel[(M,)](x, weight, bias, y, mean, rstd, x.stride(0), N, eps,
                               BLOCK=BLOCK, num_warps=num_warps, num_ctas=1)
    return {"y": y, "mean": mean, "rstd": rstd}


def solve(**kwargs):
    return layer_norm(kwargs["x"], kwargs["weight"], bias=kwargs["bias"])
"""
)

ADD_BY_RUN = (
    HEAD
    + """
def _kernel(x_ptr, y_ptr, o_ptr, n, BLOCK: "tl.constexpr"):
    pid = tl.program_id(axis=0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    m = offs < n
    tl.store(o_ptr + offs, tl.load(x_ptr + offs, mask=m, other=0.0) + tl.load(y_ptr + offs, mask=m, other=0.0), mask=m)


jitted = triton.jit(_kernel, do_not_specialize=["n"], debug=False)


def solve(x: torch.Tensor, y: torch.Tensor):
    assert x.shape == y.shape and x.dtype == y.dtype
    assert x.data_ptr() % 16 == 0 or not x.numel()
    out = torch.empty(x.numel(), dtype=x.dtype, device=x.device).view(x.shape)
    n = out.numel()
    if n > 0:
        grid = (triton.cdiv(n, 256),)
        jitted.run(x, y, out, n, BLOCK=256, grid=grid, warmup=False)
    return out
"""
)

CANDIDATES = (
    ("gelu_autograd", "spec_gelu.py", GELU_AUTOGRAD),
    ("gelu_module", "spec_gelu.py", GELU_MODULE),
    ("softmax_heuristics", "spec_softmax.py", SOFTMAX_HEURISTICS),
    ("softmax_warmed_up", "spec_softmax.py", SOFTMAX_WARMED_UP),
    ("scale_restored_view", "spec_scale_in_place.py", SCALE_RESTORED_VIEW),
    ("add_on_a_stream", "spec_add.py", ADD_ON_A_STREAM),
    ("softmax_of_a_library", "spec_softmax.py", SOFTMAX_OF_A_LIBRARY),
    ("layer_norm_of_a_class", "spec_layer_norm_outs.py", LAYER_NORM_OF_A_CLASS),
    ("add_by_run", "spec_add.py", ADD_BY_RUN),
)
