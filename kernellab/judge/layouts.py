"""Layouts of a candidate's inputs in memory, and the memory between and around their elements.

A specification names the layouts that a candidate must serve beyond those of its ``inputs()``. Elements, shape and
dtype stay; strides and the first address change. Memory between the elements belongs to none of them: it holds another
pattern in each run, and a candidate may not write it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernellab.judge.verdict import AS_SPECIFIED

_PADDING = 16  # elements between two rows: those of 16-bit formats and wider stay aligned to 16 bytes


def _pad_rows(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.ndim < 2:
        return tensor
    *rows, columns = tensor.shape
    return torch.zeros(*rows, columns + _PADDING, dtype=tensor.dtype)[..., :columns].copy_(tensor)


def _spread_columns(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.ndim:
        return tensor
    *rows, columns = tensor.shape
    return torch.zeros(*rows, 2 * columns, dtype=tensor.dtype)[..., ::2].copy_(tensor)


def _transpose(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.ndim < 2:
        return tensor
    *others, rows, columns = tensor.shape
    return torch.empty(*others, columns, rows, dtype=tensor.dtype).transpose(-1, -2).copy_(tensor)


def _offset(tensor: torch.Tensor) -> torch.Tensor:
    memory = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype)
    return memory[1:].view(tensor.shape).copy_(tensor)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor),
    "padded": _pad_rows,
    "strided": _spread_columns,
    "transposed": _transpose,
    "offset": _offset,
}
"""The layouts that a specification may name, with what makes a tensor have one.

``contiguous``: row by row without gaps. ``padded``: a slice of a matrix of longer rows. ``strided``: every second
element of rows of twice the length. ``transposed``: the last two axes swapped in memory. ``offset``: contiguous, from
the second element of its memory on, so that the address is not a multiple of 16 bytes.
"""


def with_layout(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """Return a CPU tensor in a layout; itself where that changes neither strides nor offset, or elements share memory.

    Strides of axes with one element do not count.
    """
    shares_memory = any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    if layout == AS_SPECIFIED or not tensor.numel() or shares_memory:
        return tensor
    changed = LAYOUTS[layout](tensor)
    return tensor if _places(changed) == _places(tensor) else changed


def _places(tensor: torch.Tensor) -> tuple[object, ...]:
    steps = tuple(step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)
    return (tensor.storage_offset(), *steps)


@dataclass(frozen=True, slots=True)
class Gaps:
    """The memory of an input between and around its elements: a mask of its bytes, and what these held."""

    name: str
    strides: tuple[int, ...]
    memory: torch.Tensor
    is_gap: torch.Tensor
    content: torch.Tensor

    @property
    def is_written(self) -> bool:
        """Whether a byte there is another than when it was filled."""
        return not torch.equal(self.memory[self.is_gap], self.content)


def fill_gaps(inputs: Mapping[str, Any], byte: int) -> list[Gaps]:
    """Fill the memory between the elements of inputs with a byte; return these parts of memory.

    Of a boolean tensor, the lowest bit of the byte counts. Each input has a storage of its own.
    """
    gaps = []
    for name, tensor in inputs.items():
        if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().nbytes() > tensor.numel() * tensor.itemsize:
            memory = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
            is_gap = _gap_mask(tensor, memory)
            memory[is_gap] = byte & 1 if tensor.dtype == torch.bool else byte
            gaps.append(Gaps(name, tuple(tensor.stride()), memory, is_gap, memory[is_gap]))
    return gaps


def _gap_mask(tensor: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """Return the mask of the bytes of a tensor's memory that are in none of its elements."""
    places = torch.full((1,), int(tensor.storage_offset()), device=tensor.device)
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        places = (places[:, None] + torch.arange(size, device=tensor.device) * step).flatten()
    is_gap = torch.ones(memory.numel() // tensor.itemsize, dtype=torch.bool, device=tensor.device)
    is_gap[places] = False  # elements may share memory, so this is not a fill of a view
    return is_gap.repeat_interleave(tensor.itemsize)
