"""Bounds on the rounding error of floating-point sums, over the orders in which kernels add.

A kernel adds up to `LONGEST_CHAIN` terms one after the other, and more in blocks: in lanes, trees, programs, atomics.
Each addition rounds its partial sum, so the bound follows from the partial sums (Higham, *Accuracy and Stability of
Numerical Algorithms*, section 4.2): in the order of memory, of shuffled terms, and of 32 lanes. Roundings spread as
uniform numbers do, with a deviation of 1/√3 of the largest, and λ deviations are allowed. Equal terms, such as
constants, round equally: their accumulated rounding is computed, and counts twice. Integers add up exactly as long as
the accumulator holds the sum of their magnitudes.
"""

from __future__ import annotations

import math

import torch

from kernellab.checking.tolerance import CONFIDENCE, LONGEST_CHAIN

_LANES = 32
_CHUNK = 1 << 22


def sum_error(terms: torch.Tensor, dims: list[int], unit: float) -> torch.Tensor:
    """Bound the error of a sum over some dimensions, in an accumulator of roundoff ``unit``; empty ``dims`` are all."""
    reduced = {dim % terms.dim() for dim in dims or range(terms.dim())} if terms.dim() else set()
    kept = [dim for dim in range(terms.dim()) if dim not in reduced]
    shape = [terms.shape[dim] for dim in kept]
    rows = terms.permute(*kept, *sorted(reduced)).reshape(math.prod(shape), -1) if terms.numel() else terms.new_empty(0)
    if not rows.numel():
        return terms.new_zeros(shape, dtype=torch.float64)
    step = max(1, _CHUNK // rows.shape[1])
    return torch.cat([_row_errors(part.double(), unit) for part in torch.split(rows, step)]).reshape(shape)


def running_sum_error(terms: torch.Tensor, dim: int, unit: float) -> torch.Tensor:
    """Bound the errors of a cumulative sum along a dimension."""
    if not terms.numel() or not terms.dim():
        return torch.zeros_like(terms, dtype=torch.float64)
    rows = terms.double().movedim(dim, -1)
    return _chain_errors(rows, rows.abs().cumsum(-1), unit, running=True).movedim(-1, dim)


def _row_errors(rows: torch.Tensor, unit: float) -> torch.Tensor:
    """Bound the sum of each row; long rows are added in lanes, or as blocks of consecutive terms."""
    magnitudes = rows.abs().sum(-1)
    count = rows.shape[-1]
    if count <= LONGEST_CHAIN:
        return _chain_errors(rows, magnitudes, unit)
    lanes = 1 << math.ceil(math.log2(count / LONGEST_CHAIN))
    parts = torch.nn.functional.pad(rows, (0, -count % lanes)).reshape(len(rows), -1, lanes)
    drift = _roundings(parts, parts.cumsum(1), unit).sum(2).cumsum(1).abs().amax(1)
    return torch.maximum(_chain_errors(parts.sum(-1), magnitudes, unit), 2 * drift)


def _chain_errors(terms: torch.Tensor, magnitudes: torch.Tensor, unit: float, *, running: bool = False) -> torch.Tensor:
    """Bound the sum of each row of terms, or with ``running`` its cumulative sums."""
    over = torch.cumsum if running else torch.sum
    count = terms.shape[-1]
    counts = torch.arange(1, count + 1, device=terms.device) if running else terms.new_tensor(count)
    partial = terms.cumsum(-1)
    total = partial if running else partial[..., -1]
    in_order = over(partial * partial, -1)
    shuffled = counts / 3 * (over(terms * terms, -1) + total * total)
    spread = (torch.maximum(in_order, shuffled) * (LONGEST_CHAIN / counts).clamp(max=1)).sqrt() / math.sqrt(3)
    lanes = (counts.clamp(max=LONGEST_CHAIN).sqrt() / _LANES).clamp(min=1) / 3 * magnitudes
    drift = _roundings(terms, partial, unit).cumsum(-1).abs()
    drift = drift.cummax(-1).values if running else drift.amax(-1)
    bound = CONFIDENCE * torch.maximum(spread, lanes) * unit + 2 * drift
    bound = torch.minimum(bound, counts * unit * magnitudes)  # each addition rounds once
    are_integers = (terms == terms.round()).all(-1, keepdim=running)
    return bound.masked_fill(are_integers & (magnitudes * unit <= 1), 0.0)  # which no partial sum rounds


def _roundings(terms: torch.Tensor, partial: torch.Tensor, unit: float) -> torch.Tensor:
    """Return the rounding of each addition to the partial sum before it."""
    last_place = 2 * unit * torch.exp2(torch.maximum(partial.abs(), terms.abs()).clamp(min=1e-300).log2().floor())
    return (terms / last_place).round() * last_place - terms
