"""Softmax over the rows of a matrix, in one pass, with a fixed number of programs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.kernels.case import Case, dtype_name, random


@triton.jit
def softmax_kernel(x_ptr, out_ptr, x_stride, out_stride, rows, columns, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * x_stride + offsets, mask=inside, other=-float("inf")).to(tl.float32)
        numerator = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * out_stride + offsets, numerator / tl.sum(numerator, axis=0), mask=inside)


def softmax_case(dtype: torch.dtype, rows: int = 10, columns: int = 100, programs: int = 4) -> Case:
    x = random(rows, columns, dtype=dtype)
    return Case(
        name=f"softmax-{dtype_name(dtype)}",
        kernel=softmax_kernel,
        grid=(programs,),
        arguments={
            "x_ptr": x,
            "out_ptr": torch.zeros_like(x),
            "x_stride": x.stride(0),
            "out_stride": x.stride(0),
            "rows": rows,
            "columns": columns,
        },
        meta={"BLOCK": triton.next_power_of_2(columns)},
        expected={"out_ptr": torch.softmax(x.float(), dim=1).to(dtype)},
        reads=frozenset({"x_ptr"}),
        writes=frozenset({"out_ptr"}),
    )
