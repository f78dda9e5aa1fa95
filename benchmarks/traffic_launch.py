"""A launch whose traffic is compared with hardware counters, and what its arguments are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TrafficLaunch:
    """A launch; its arguments lie on the CPU, see `on_device`."""

    name: str
    kernel: Any
    grid: tuple[int, ...]
    arguments: Arguments = field(repr=False)
    meta: dict[str, Any] = field(default_factory=dict)


def on_device(argument: Any, device: str) -> Any:
    """Return an argument on a device; views keep their offsets and strides."""
    if isinstance(argument, TensorDescriptor):
        base = on_device(argument.base, device)
        return TensorDescriptor(base, argument.shape, argument.strides, argument.block_shape)
    if not isinstance(argument, torch.Tensor):
        return argument
    whole = argument.new_empty(0).set_(argument.untyped_storage())
    return whole.to(device).as_strided(argument.shape, argument.stride(), argument.storage_offset())


def filled(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, high: int = 100) -> torch.Tensor:
    """Return small whole numbers, the same everywhere."""
    generator = torch.Generator().manual_seed(sum(shape) + high)
    return torch.randint(0, high, shape, generator=generator).to(dtype)


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return zeros."""
    return torch.zeros(shape, dtype=dtype)


def permuted(n: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """Return the numbers from 0 to n - 1 in another order."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(n)).to(dtype)
