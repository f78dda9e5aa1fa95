"""Dispatches that are written down: what tuning kernels over sizes would return, on devices that need not be there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import triton
import triton.language as tl

from kernellab._triton.kernel import jit_function
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.dispatch import Cost, Dispatch, Extent, MeasuredCase, Rule, Term
from kernellab.tune.dispatch.result import Regret
from kernellab.tune.result import Row


@triton.jit
def scale_rows(x_ptr, out_ptr, factor, rows, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, COLUMNS, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * COLUMNS + offsets, mask=offsets < COLUMNS)
        tl.store(out_ptr + row * COLUMNS + offsets, x * factor, mask=offsets < COLUMNS)


def config(block: int, warps: int = 4) -> Config:
    return Config.of({"BLOCK": block, "num_warps": warps})


SMALL, LARGE = config(64), config(256, 8)


def rule(names: Sequence[str], known: Mapping[tuple[int, ...], int]) -> Rule:
    costs = tuple(
        Cost(each, (Extent(names[0]),), 4, (weight, weight / 100)) for each, weight in ((SMALL, 1.0), (LARGE, 2.0))
    )
    terms = (Term("launch"), Term("wave", (names[-1],)))
    return Rule(tuple(names), terms, costs, 132, known)


def dispatch_of(
    function: Any,
    grid: Any,
    arguments: Callable[..., Mapping[str, Any]] | None,
    known: Mapping[tuple[int, ...], int],
    names: Sequence[str],
    *,
    device: str = "NVIDIA H200",
    target: str = "cuda:90",
    triton: str = "3.6.0",
    **more: Any,
) -> Dispatch:
    """Return a dispatch whose rule picks the second of two configs where ``known`` says so, as measured on a device."""
    made = rule(names, known)
    cases, regrets = [], []
    for number, (key, place) in enumerate(known.items()):
        sizes, chosen = dict(zip(names, key, strict=True)), made.configs[place]
        row = Row(chosen, Status.OK, time_ms=0.5, shared_bytes=1024 * (place + 1))
        cases.append(MeasuredCase(number, sizes, (row,)))
        regrets.append(Regret(sizes, chosen, chosen, 0.5, 0.5, 1.0, None))
    name = function if isinstance(function, str) else jit_function(function).__name__
    facts = {"device": device, "target": target, "triton": triton, "driver": "550.1"}
    originals = tuple(each.to_triton() for each in made.configs)
    own = None if isinstance(function, str) else function
    given = {"function": own, "grid": grid, "arguments": arguments, "provenance": facts, **more}
    return Dispatch(name, made, tuple(cases), tuple(regrets), originals, **given)
