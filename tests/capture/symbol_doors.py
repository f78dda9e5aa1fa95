"""Launches that take a number which follows from a size or from data, at each door where a launch takes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

import kernellab

Function = Callable[[torch.Tensor], torch.Tensor]
Door = tuple[str, str]


@triton.jit
def add_argument(x_ptr, out_ptr, n, value, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    if value:
        x = x * 10
    tl.store(out_ptr + offsets, x + value, mask=offsets < n)


@triton.jit
def add_constant(x_ptr, out_ptr, n, VALUE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    if VALUE > 0:
        x = x * 10
    tl.store(out_ptr + offsets, x + VALUE, mask=offsets < n)


@triton.jit
def add_member(pair, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(pair[0] + offsets, mask=offsets < n) + pair[1], mask=offsets < n)


@triton.jit
def add_programs(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x + tl.num_programs(0), mask=offsets < n)


KINDS: dict[str, Callable[[Any], Any]] = {
    "int": lambda n: n // 2 + 1,
    "float": lambda n: n * 0.5,
    "bool": lambda n: n % 2 == 0,
    "comparison": lambda n: n > 7,
}
CONFIGS = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})]
SIZES = (5, 7, 8, 9, 12)


def data(n: int) -> torch.Tensor:
    return torch.arange(1.0, n + 1)


def doors(lab: kernellab.Lab, *, reads: bool = True) -> dict[Door, Function]:
    """Return functions of a tensor by door and kind of number; those that read a tensor's contents on request."""
    found = _options(lab) | _grids(lab)
    for kind, number in KINDS.items():
        found |= _launches(lab, kind, number, lambda x: x.shape[0], "")
        found |= _decided(lab, kind, number)
    if reads:
        found |= _launches(lab, "float", lambda n: n * 0.5, lambda x: x.max().item(), "read ")
        found |= _launches(lab, "bool", lambda n: n > 7, lambda x: x.max().item(), "read ")
    return found


def _launches(lab: kernellab.Lab, kind: str, number: Any, source: Any, prefix: str) -> dict[Door, Function]:
    argument, constant, member = map(lab.bind, (add_argument, add_constant, add_member))

    def as_argument(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        argument[(1,)](x, out, x.shape[0], number(source(x)), BLOCK=16)
        return out

    def as_constexpr(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        constant[(1,)](x, out, x.shape[0], number(source(x)), BLOCK=16)
        return out

    def as_keyword(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        constant[(1,)](x, out, x.shape[0], BLOCK=16, VALUE=number(source(x)))
        return out

    def as_member(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        member[(1,)]((x, number(source(x))), out, x.shape[0], BLOCK=16)
        return out

    named = {"argument": as_argument, "constexpr": as_constexpr, "keyword": as_keyword, "member": as_member}
    return {(prefix + name, kind): function for name, function in named.items()}


def _decided(lab: kernellab.Lab, kind: str, number: Any) -> dict[Door, Function]:
    heuristic = triton.heuristics({"VALUE": lambda arguments: number(arguments["n"])})(add_constant)
    plain, tuned = lab.bind(heuristic), lab.bind(triton.autotune(configs=CONFIGS, key=["n"])(heuristic))

    def by_heuristic(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        plain[(1,)](x, out, x.shape[0], BLOCK=16)
        return out

    def by_inner_heuristic(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(x.shape[0], meta["BLOCK"]),)](x, out, x.shape[0])
        return out

    return {("heuristic", kind): by_heuristic, ("heuristic under a tuner", kind): by_inner_heuristic}


def _grids(lab: kernellab.Lab) -> dict[Door, Function]:
    kernel = lab.bind(add_programs)
    grids: dict[Door, Callable[[Any], Any]] = {
        ("grid", "int"): lambda n: (triton.cdiv(n, 4),),
        ("grid", "comparison"): lambda n: (3 + (n > 7),),
        ("grid", "bool"): lambda n: (5 if n % 2 == 0 else 3,),
        ("grid function", "int"): lambda n: lambda meta: (triton.cdiv(n, meta["BLOCK"]),),
        ("grid function", "float"): lambda n: lambda meta: (int(n * 0.25) + 1,),
        ("grid of an argument", "int"): lambda n: lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),),
    }

    def launched_on(grid: Any) -> Function:
        def function(x: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            kernel[grid(x.shape[0])](x, out, x.shape[0], BLOCK=4)
            return out

        return function

    return {door: launched_on(grid) for door, grid in grids.items()}


def _options(lab: kernellab.Lab) -> dict[Door, Function]:
    kernel = lab.bind(add_argument)

    def warps(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel[(1,)](x, out, x.shape[0], 1, BLOCK=16, num_warps=(x.shape[0] // 8) * 3 + 1)
        return out

    def fused(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel[(1,)](x, out, x.shape[0], 1, BLOCK=16, enable_fp_fusion=x.shape[0] % 2 == 0)
        return out

    return {("option", "int"): warps, ("option", "bool"): fused}
