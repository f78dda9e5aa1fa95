"""Planted bottlenecks: a slow kernel, its mend, and the cause that an explanation has to find first."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kernellab.explain.causes import Cause

Inputs = dict[str, Any]
MARK = "# planted"
_MOST = 1 << 16


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A launch on some inputs: the grid follows from them, as do arguments that the kernel calls otherwise."""

    kernel: Any
    grid: Callable[[Mapping[str, Any]], tuple[int, ...]]
    meta: Mapping[str, Any] = field(default_factory=dict)
    arguments: Callable[[Mapping[str, Any]], Inputs] = dict

    def of(self, inputs: Mapping[str, Any]) -> tuple[tuple[int, ...], Inputs]:
        """Return the grid and all arguments by name."""
        return self.grid(inputs), {**self.arguments(inputs), **self.meta}

    def lines(self) -> tuple[int, ...]:
        """Return the lines of the kernel that are marked as to blame."""
        text, first = inspect.getsourcelines(self.kernel.fn)
        return tuple(first + number for number, line in enumerate(text) if MARK in line)


@dataclass(frozen=True, slots=True)
class Planted:
    """A pair. ``causes`` are those that count as found, the planted one first.

    ``inputs`` makes the arguments, small ones for a check on the CPU or large ones, on a device; ``outputs`` names
    those that both leave equal. The fixed launch does ``work`` times what the slow one does.
    """

    name: str
    causes: tuple[Cause, ...]
    slow: KernelCall
    fixed: KernelCall
    inputs: Callable[[bool, str], Inputs]
    outputs: tuple[str, ...]
    work: Callable[[Mapping[str, Any]], float] = lambda inputs: 1.0
    tolerance: float = 1e-3


@dataclass(frozen=True, slots=True)
class WellTuned:
    """A kernel that leaves little to gain, and what its outputs are to hold."""

    name: str
    call: KernelCall
    inputs: Callable[[bool, str], Inputs]
    expected: Callable[[Mapping[str, Any]], Mapping[str, torch.Tensor]]
    tolerance: float = 1e-3


def random(*shape: int, device: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Return numbers from -1 to 1; many of them on the CPU are memory that nobody touches."""
    if device == "cpu" and math.prod(shape) > _MOST:
        return torch.zeros(*shape, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    if device == "cpu":
        return (torch.rand(*shape, generator=generator) * 2 - 1).to(dtype)
    return (torch.rand(*shape, device=device) * 2 - 1).to(dtype)


def cdiv(a: int, b: int) -> int:
    return -(-a // b)
