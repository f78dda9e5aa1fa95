"""Ten functions that launch kernels between operations of torch, as people write them, to measure programs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

Inputs = dict[str, torch.Tensor]


@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    row = tl.program_id(0) * columns
    x = tl.load(x_ptr + row + offsets, mask=mask, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(x * x, axis=0) / columns + eps)
    w = tl.load(w_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + row + offsets, x * scale * w, mask=mask)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, scale, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    row = tl.program_id(0) * columns
    x = tl.load(x_ptr + row + offsets, mask=mask, other=-float("inf")).to(tl.float32) * scale
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row + offsets, powers / tl.sum(powers, axis=0), mask=mask)


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=mask)


@triton.jit
def silu_mul_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    gate = tl.load(gate_ptr + offsets, mask=mask).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, gate * tl.sigmoid(gate) * up, mask=mask)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * factor, mask=mask)


@triton.jit
def rotary_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, heads, HALF: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, HALF)
    position = row // heads
    cos, sin = tl.load(cos_ptr + position * HALF + offsets), tl.load(sin_ptr + position * HALF + offsets)
    first = tl.load(x_ptr + row * 2 * HALF + offsets)
    second = tl.load(x_ptr + row * 2 * HALF + HALF + offsets)
    tl.store(out_ptr + row * 2 * HALF + offsets, first * cos - second * sin)
    tl.store(out_ptr + row * 2 * HALF + HALF + offsets, second * cos + first * sin)


@triton.jit
def adam_kernel(p_ptr, g_ptr, m_ptr, v_ptr, n, rate, beta1, beta2, eps, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(g_ptr + offsets, mask=mask)
    m = beta1 * tl.load(m_ptr + offsets, mask=mask) + (1 - beta1) * g
    v = beta2 * tl.load(v_ptr + offsets, mask=mask) + (1 - beta2) * g * g
    p = tl.load(p_ptr + offsets, mask=mask) - rate * m / (tl.sqrt(v) + eps)
    tl.store(m_ptr + offsets, m, mask=mask)
    tl.store(v_ptr + offsets, v, mask=mask)
    tl.store(p_ptr + offsets, p, mask=mask)


@triton.jit
def cross_entropy_kernel(x_ptr, label_ptr, loss_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf")).to(tl.float32)
    largest = tl.max(x, axis=0)
    picked = tl.load(x_ptr + row * columns + tl.load(label_ptr + row)).to(tl.float32)
    tl.store(loss_ptr + row, tl.log(tl.sum(tl.exp(x - largest), axis=0)) + largest - picked)


KERNELS = {
    kernel.__name__.removesuffix("_kernel"): kernel
    for kernel in (
        *(rms_norm_kernel, softmax_kernel, gelu_kernel, silu_mul_kernel, add_kernel),
        *(scale_kernel, rotary_kernel, adam_kernel, cross_entropy_kernel),
    )
}
CHANGED = {"adam": ("p_ptr", "m_ptr", "v_ptr"), "cross_entropy": ("loss_ptr",)}  # the others write ``out_ptr``
BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Model:
    """A function of kernels by name and inputs, which returns tensors; ``make`` gives inputs for a device and a scale.

    A scale of 1 is for the CPU, where a kernel is interpreted; on a GPU, one of 16 or more keeps that busy.
    """

    name: str
    make: Callable[[str, int], Inputs]
    body: Callable[..., Any]


def blocks(tensor: torch.Tensor) -> tuple[int]:
    """Return the grid that goes over all elements."""
    return ((tensor.numel() + BLOCK - 1) // BLOCK,)


def row_block(columns: int) -> int:
    """Return the block that holds a row."""
    return triton.next_power_of_2(columns)  # type: ignore[no-any-return]


def normed(k: Mapping[str, Any], x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return x over the root of its mean square in each row."""
    out, columns = torch.empty_like(x), x.shape[-1]
    k["rms_norm"][(x.numel() // columns,)](x, w, out, columns, 1e-6, BLOCK=row_block(columns))
    return out


def added(k: Mapping[str, Any], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the sum of two tensors."""
    out = torch.empty_like(x)
    k["add"][blocks(x)](x, y, out, x.numel(), BLOCK=BLOCK)
    return out


def attended(k: Mapping[str, Any], q: torch.Tensor, keys: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return attention of (heads, rows, width) tensors as (rows, heads * width)."""
    scores = q @ keys.transpose(1, 2)
    weights, columns = torch.empty_like(scores), scores.shape[-1]
    k["softmax"][(scores.numel() // columns,)](scores, weights, columns, q.shape[-1] ** -0.5, BLOCK=row_block(columns))
    del scores
    heads = weights @ v
    del weights
    return heads.transpose(0, 1).reshape(q.shape[1], -1)


def mlp(k: Mapping[str, Any], x: Any, up: Any, down: Any) -> Any:
    """Two products with a GELU between them."""
    hidden = x @ up
    active = torch.empty_like(hidden)
    k["gelu"][blocks(hidden)](hidden, active, hidden.numel(), BLOCK=BLOCK)
    del hidden
    return active @ down


def swiglu(k: Mapping[str, Any], x: Any, gate: Any, up: Any, down: Any) -> Any:
    """The gated form of it."""
    gated, raised = x @ gate, x @ up
    active = torch.empty_like(gated)
    k["silu_mul"][blocks(gated)](gated, raised, active, gated.numel(), BLOCK=BLOCK)
    del gated, raised
    return active @ down


def residual_norm(k: Mapping[str, Any], x: Any, residual: Any, w: Any) -> Any:
    """The sum with a residual, and that normed."""
    total = added(k, x, residual)
    return total, normed(k, total, w)


def attention(k: Mapping[str, Any], q: Any, keys: Any, v: Any, out: Any) -> Any:
    """Attention from parts, and the projection after it."""
    return attended(k, q, keys, v) @ out


def transformer_block(
    k: Mapping[str, Any], x: Any, first: Any, second: Any, qkv: Any, out: Any, gate: Any, up: Any, down: Any
) -> Any:
    """A block of a transformer: norm, attention, norm, gated products, with residuals."""
    rows, width = x.shape
    heads = max(1, width // 64)
    parts = (normed(k, x, first) @ qkv).view(rows, 3, heads, width // heads).permute(1, 2, 0, 3).contiguous()
    attentive = attended(k, parts[0], parts[1], parts[2])
    del parts
    x = added(k, x, attentive @ out)
    del attentive
    return added(k, x, swiglu(k, normed(k, x, second), gate, up, down))


def expert_gate(k: Mapping[str, Any], x: Any, w: Any) -> Any:
    """The gate of a mixture of experts: which two experts each row goes to, with weights that add up to one."""
    logits = x @ w
    chances, columns = torch.empty_like(logits), logits.shape[-1]
    k["softmax"][(logits.shape[0],)](logits, chances, columns, 1.0, BLOCK=row_block(columns))
    del logits
    weights, experts = torch.topk(chances, 2)
    del chances
    return weights / weights.sum(-1, keepdim=True), experts


def optimizer_step(k: Mapping[str, Any], p: Any, g: Any, m: Any, v: Any, norm: Any) -> Any:
    """A step of Adam, the gradients scaled to a norm before."""
    scaled = torch.empty_like(g)
    k["scale"][blocks(g)](g, scaled, g.numel(), 0.5, BLOCK=BLOCK)
    k["adam"][blocks(p)](p, scaled, m, v, p.numel(), 1e-3, 0.9, 0.99, 1e-8, BLOCK=BLOCK)
    return norm + 1


def rotary_cache(k: Mapping[str, Any], x: Any, w: Any, cos: Any, sin: Any, cache: Any) -> Any:
    """Queries and keys turned by their position; the keys go to a cache."""
    rows, half = cos.shape
    both = (x @ w).view(rows, 2, -1)
    q, keys = both[:, 0].contiguous(), both[:, 1].contiguous()
    del both
    heads = q.shape[1] // (2 * half)
    turned, turned_keys = torch.empty_like(q), torch.empty_like(keys)
    k["rotary"][(rows * heads,)](q, cos, sin, turned, heads, HALF=half)
    del q
    k["rotary"][(rows * heads,)](keys, cos, sin, turned_keys, heads, HALF=half)
    cache[:rows].copy_(turned_keys)
    return turned


def chain(k: Mapping[str, Any], x: Any) -> Any:
    """Four launches, each into a buffer of its own."""
    for _ in range(4):
        out = torch.empty_like(x)
        k["scale"][blocks(x)](x, out, x.numel(), 1.5, BLOCK=BLOCK)
        x = out
    return x


def loss(k: Mapping[str, Any], x: Any, w: Any, labels: Any) -> Any:
    """The cross entropy of a linear classifier, and its mean."""
    logits = x @ w
    losses = x.new_empty(logits.shape[0])
    k["cross_entropy"][(logits.shape[0],)](logits, labels, losses, logits.shape[1], BLOCK=row_block(logits.shape[1]))
    return losses.mean()


def _floats(**shapes: tuple[int, ...]) -> Callable[[str, int], Inputs]:
    """Return what makes tensors of shapes given in units of the scale; numbers below 8 are as they are."""

    def make(device: str, scale: int) -> Inputs:
        torch.manual_seed(0)
        sizes = {name: tuple(n * scale if n >= 8 else n for n in shape) for name, shape in shapes.items()}
        return {n: torch.randn(shape, device=device) / max(1, shape[0]) ** 0.5 for n, shape in sizes.items()}

    return make


def _stepping(device: str, scale: int) -> Inputs:
    torch.manual_seed(0)
    made = {name: torch.rand(64 * scale, 32 * scale, device=device) for name in ("p", "g", "m", "v")}
    return {**made, "norm": torch.ones((), device=device)}


def _labelled(device: str, scale: int) -> Inputs:
    made = _floats(x=(64, 32), w=(32, 96))(device, scale)
    return {**made, "labels": torch.randint(0, 96 * scale, (64 * scale,), device=device)}


def _attending(device: str, scale: int) -> Inputs:
    heads, width = 2 * max(1, scale // 4), 16 * min(scale, 4)
    sizes = dict.fromkeys(("q", "keys", "v"), (heads, 32 * scale, width)) | {"out": (heads * width, 32 * scale)}
    torch.manual_seed(0)
    return {name: torch.randn(shape, device=device) * 0.1 for name, shape in sizes.items()}


def _turning(device: str, scale: int) -> Inputs:
    made = _floats(x=(32, 32), w=(32, 64), cache=(64, 32))(device, scale)
    half = 16
    angles = torch.rand(32 * scale, half, device=device)
    return {**made, "cos": angles.cos(), "sin": angles.sin()}


MODELS = (
    Model("MLP", _floats(x=(64, 32), up=(32, 128), down=(128, 32)), mlp),
    Model("gated MLP", _floats(x=(64, 32), gate=(32, 88), up=(32, 88), down=(88, 32)), swiglu),
    Model("residual and norm", _floats(x=(64, 32), residual=(64, 32), w=(32,)), residual_norm),
    Model("attention from parts", _attending, attention),
    Model(
        "transformer block",
        _floats(
            x=(64, 64),
            first=(64,),
            second=(64,),
            qkv=(64, 192),
            out=(64, 64),
            gate=(64, 176),
            up=(64, 176),
            down=(176, 64),
        ),
        transformer_block,
    ),
    Model("gate of experts", _floats(x=(64, 32), w=(32, 8)), expert_gate),
    Model("step of Adam", _stepping, optimizer_step),
    Model("rotary and cache", _turning, rotary_cache),
    Model("chain of launches", _floats(x=(64, 32)), chain),
    Model("cross entropy", _labelled, loss),
)
