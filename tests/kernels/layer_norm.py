"""Layer norm over rows: forward, and backward with the gradients of weight and bias summed by atomics."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.kernels.case import Case, dtype_name, random

EPS = 1e-5


@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, stride, columns, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    x = tl.load(x_ptr + row * stride + offsets, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(inside, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    weight = tl.load(weight_ptr + offsets, mask=inside)
    bias = tl.load(bias_ptr + offsets, mask=inside)
    tl.store(out_ptr + row * stride + offsets, centred * rstd * weight + bias, mask=inside)


@triton.jit
def layer_norm_backward_kernel(
    grad_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    grad_x_ptr,
    grad_weight_ptr,
    grad_bias_ptr,
    stride,
    columns,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    grad = tl.load(grad_ptr + row * stride + offsets, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * stride + offsets, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    normal = tl.where(inside, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
    scaled = grad * weight
    along_normal = tl.sum(scaled * normal, axis=0) / columns
    grad_x = (scaled - tl.sum(scaled, axis=0) / columns - normal * along_normal) * rstd
    tl.store(grad_x_ptr + row * stride + offsets, grad_x, mask=inside)
    tl.atomic_add(grad_weight_ptr + offsets, grad * normal, mask=inside, sem="relaxed")
    tl.atomic_add(grad_bias_ptr + offsets, grad, mask=inside, sem="relaxed")


def layer_norm_case(dtype: torch.dtype, rows: int = 6, columns: int = 100) -> Case:
    x, weight, bias = _inputs(dtype, rows, columns)
    mean, rstd = _statistics(x)
    out = torch.nn.functional.layer_norm(x.float(), (columns,), weight.float(), bias.float(), EPS)
    return Case(
        name=f"layer_norm-{dtype_name(dtype)}",
        kernel=layer_norm_kernel,
        grid=(rows,),
        arguments={
            "x_ptr": x,
            "weight_ptr": weight,
            "bias_ptr": bias,
            "out_ptr": torch.zeros_like(x),
            "mean_ptr": torch.zeros(rows),
            "rstd_ptr": torch.zeros(rows),
            "stride": x.stride(0),
            "columns": columns,
            "eps": EPS,
        },
        meta={"BLOCK": triton.next_power_of_2(columns)},
        expected={"out_ptr": out.to(dtype), "mean_ptr": mean, "rstd_ptr": rstd},
        reads=frozenset({"x_ptr", "weight_ptr", "bias_ptr"}),
        writes=frozenset({"out_ptr", "mean_ptr", "rstd_ptr"}),
    )


def layer_norm_backward_case(dtype: torch.dtype, rows: int = 6, columns: int = 100) -> Case:
    x, weight, bias = _inputs(dtype, rows, columns)
    grad = random(rows, columns, dtype=dtype, seed=3)
    mean, rstd = _statistics(x)
    grad_x, grad_weight, grad_bias = _gradients(grad, x, weight, bias)
    return Case(
        name=f"layer_norm_backward-{dtype_name(dtype)}",
        kernel=layer_norm_backward_kernel,
        grid=(rows,),
        arguments={
            "grad_ptr": grad,
            "x_ptr": x,
            "weight_ptr": weight,
            "mean_ptr": mean,
            "rstd_ptr": rstd,
            "grad_x_ptr": torch.zeros_like(x),
            "grad_weight_ptr": torch.zeros(columns),
            "grad_bias_ptr": torch.zeros(columns),
            "stride": x.stride(0),
            "columns": columns,
        },
        meta={"BLOCK": triton.next_power_of_2(columns)},
        expected={"grad_x_ptr": grad_x.to(dtype), "grad_weight_ptr": grad_weight, "grad_bias_ptr": grad_bias},
        reads=frozenset({"grad_ptr", "x_ptr", "weight_ptr", "mean_ptr", "rstd_ptr"}),
        writes=frozenset({"grad_x_ptr"}),
        atomics=frozenset({"grad_weight_ptr", "grad_bias_ptr"}),
    )


def _inputs(dtype: torch.dtype, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = random(rows, columns, dtype=dtype)
    return x, random(columns, dtype=dtype, seed=1), random(columns, dtype=dtype, seed=2)


def _statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.float()
    return x.mean(1), (x.var(1, unbiased=False) + EPS).rsqrt()


def _gradients(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    inputs = [tensor.float().requires_grad_() for tensor in (x, weight, bias)]
    out = torch.nn.functional.layer_norm(inputs[0], (x.shape[1],), inputs[1], inputs[2], EPS)
    return torch.autograd.grad(out, inputs, grad.float())
