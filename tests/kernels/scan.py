"""Scans along rows: a running sum that carries from block to block, and a linear recurrence."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.kernels.case import Case, dtype_name, random


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride
    carry = tl.zeros((), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        inside = offsets < columns
        x = tl.load(x_ptr + row + offsets, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_ptr + row + offsets, tl.cumsum(x, axis=0) + carry, mask=inside)
        carry += tl.sum(x, axis=0)


@triton.jit
def after(decay, addend, next_decay, next_addend):
    """Return the step h -> d*h + a that does first one step and then the next."""
    return decay * next_decay, addend * next_decay + next_addend


@triton.jit
def recurrence_kernel(decay_ptr, addend_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    row = tl.program_id(0) * stride
    decay = tl.load(decay_ptr + row + offsets, mask=inside, other=1.0).to(tl.float32)
    addend = tl.load(addend_ptr + row + offsets, mask=inside, other=0.0).to(tl.float32)
    _, state = tl.associative_scan((decay, addend), 0, after)
    tl.store(out_ptr + row + offsets, state, mask=inside)


def cumsum_case(dtype: torch.dtype, rows: int = 3, columns: int = 100, block: int = 32) -> Case:
    x = random(rows, columns, dtype=dtype)
    return Case(
        name=f"cumsum-{dtype_name(dtype)}",
        kernel=cumsum_kernel,
        grid=(rows,),
        arguments={"x_ptr": x, "out_ptr": torch.zeros_like(x), "stride": x.stride(0), "columns": columns},
        meta={"BLOCK": block},
        expected={"out_ptr": x.float().cumsum(1).to(dtype)},
        reads=frozenset({"x_ptr"}),
        writes=frozenset({"out_ptr"}),
    )


def recurrence_case(dtype: torch.dtype, rows: int = 3, columns: int = 20) -> Case:
    decay, addend = random(rows, columns, dtype=dtype).sigmoid(), random(rows, columns, dtype=dtype, seed=1)
    state, states = torch.zeros(rows), []
    for column in range(columns):
        state = decay[:, column].float() * state + addend[:, column].float()
        states.append(state)
    return Case(
        name=f"recurrence-{dtype_name(dtype)}",
        kernel=recurrence_kernel,
        grid=(rows,),
        arguments={
            "decay_ptr": decay,
            "addend_ptr": addend,
            "out_ptr": torch.zeros_like(addend),
            "stride": decay.stride(0),
            "columns": columns,
        },
        meta={"BLOCK": triton.next_power_of_2(columns)},
        expected={"out_ptr": torch.stack(states, dim=1).to(dtype)},
        reads=frozenset({"decay_ptr", "addend_ptr"}),
        writes=frozenset({"out_ptr"}),
    )
