"""The parts of operations that kernels are most often compared with; torch knows those of others, and loads slowly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Tensor = torch.Tensor


def _softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    powers = (x - _finite_max(x, dim)).exp()
    return powers / powers.sum(dim, keepdim=True)


def _log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    shifted = x - _finite_max(x, dim)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


def _logsumexp(x: Tensor, dim: list[int], keepdim: bool = False) -> Tensor:
    largest = x.amax(dim, keepdim=True)
    found = (x - largest).exp().sum(dim, keepdim=True).log() + largest
    return found if keepdim else found.reshape(x.amax(dim).shape)


def _finite_max(x: Tensor, dim: int) -> Tensor:
    return x.amax(dim, keepdim=True) if x.dim() and x.numel() else x


def _silu(x: Tensor) -> Tensor:
    return x / (1 + (-x).exp())


def _gelu(x: Tensor, *, approximate: str = "none") -> Any:
    if approximate == "none":
        return 0.5 * x * (1 + (x * 0.5**0.5).erf())
    return 0.5 * x * (1 + (0.7978845608028654 * (x + 0.044715 * x * x * x)).tanh())


def _addmm(held: Tensor, one: Tensor, two: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    return beta * held + alpha * torch.ops.aten.mm(one, two)


def _baddbmm(held: Tensor, one: Tensor, two: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    return beta * held + alpha * torch.ops.aten.bmm(one, two)


def _product_sum(one: Tensor, two: Tensor) -> Tensor:
    return (one * two).sum(-1)


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(-len(shape), 0))
    mean = x.mean(dims, keepdim=True)
    scale = (x.var(dims, correction=0, keepdim=True) + eps).rsqrt()
    found = (x - mean) * scale
    found = found if weight is None else found * weight
    return found if bias is None else found + bias, mean, scale


def _rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    dims = list(range(-len(shape), 0))
    scale = ((x * x).mean(dims, keepdim=True) + (torch.finfo(x.dtype).eps if eps is None else eps)).rsqrt()
    found = x * scale
    return found if weight is None else found * weight, scale


COMPOSITIONS: Mapping[str, Callable[..., Any]] = {
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "silu": _silu,
    "gelu": _gelu,
    "addmm": _addmm,
    "baddbmm": _baddbmm,
    "mv": _product_sum,
    "dot": _product_sum,
    "native_layer_norm": _layer_norm,
    "_fused_rms_norm": _rms_norm,
}
