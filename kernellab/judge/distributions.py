"""Inputs for a judge: those of the specification, and the same with other contents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernellab.judge.replay import copy_of
from kernellab.judge.verdict import AS_SPECIFIED

IN_RING = "in a ring"
_NARROW = frozenset(
    {torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}
)

Change = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def _normal(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(values.shape, generator=generator, dtype=torch.float64)


def _uniform(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(values.shape, generator=generator, dtype=torch.float64) * 2 - 1


def _large(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _normal(values, generator) * 100


def _tiny(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _normal(values, generator) * 1e-4


def _subnormal(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _normal(values, generator) * 1e-40


def _integers(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return (_normal(values, generator) * 4).round()


def _ascending(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _normal(values, generator).flatten().sort().values.reshape(values.shape)


def _constant(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.full(values.shape, float(_normal(torch.empty(()), generator)), dtype=torch.float64)


def _with_zeros(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    kept = torch.rand(values.shape, generator=generator) < 0.5
    return _normal(values, generator) * kept


def _all_magnitudes(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return values from 1e-10 to 1e10: few terms dominate a sum, and narrower formats overflow."""
    exponents = torch.rand(values.shape, generator=generator, dtype=torch.float64) * 20 - 10
    return _normal(values, generator) * 10**exponents


def _nonfinite(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    drawn = _normal(values, generator).flatten()
    for special in (float("inf"), float("-inf"), float("nan")):
        if drawn.numel():
            drawn[int(torch.randint(drawn.numel(), (), generator=generator))] = special
    return drawn.reshape(values.shape)


CHANGES: dict[str, Change] = {
    "normal": _normal,
    "uniform": _uniform,
    "large": _large,
    "tiny": _tiny,
    "subnormal": _subnormal,
    "integers": _integers,
    "sorted": _ascending,
    "repeated": _constant,
    "with zeros": _with_zeros,
    "all magnitudes": _all_magnitudes,
    "with inf and nan": _nonfinite,
}
NONFINITE = "with inf and nan"


def redraw(inputs: Mapping[str, Any], distribution: str, seed: int, only: str | None = None) -> dict[str, Any]:
    """Return inputs with the contents of floating-point tensors drawn from a distribution; with ``only``, of one.

    A tensor without negative values stays so, as a variance does. Strides, offset and dtype stay. Other tensors and
    values are shared, and so is a tensor whose elements share memory.
    """
    if distribution in {AS_SPECIFIED, IN_RING}:
        return dict(inputs)
    generator = torch.Generator().manual_seed(seed)
    return {
        name: _redraw(value, CHANGES[distribution], generator)
        if is_floating(value) and (only is None or name == only)
        else value
        for name, value in inputs.items()
    }


def is_floating(value: Any) -> bool:
    """Whether an input is a floating-point tensor with elements, each in memory of its own."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return False
    return all(step or size == 1 for size, step in zip(value.shape, value.stride(), strict=True))


def _redraw(tensor: torch.Tensor, change: Change, generator: torch.Generator) -> torch.Tensor:
    wide = tensor.to(torch.float64)
    drawn = change(wide, generator)
    if tensor.numel() > 1 and float(wide.nan_to_num().min()) >= 0.0:
        drawn = drawn.abs()
    if tensor.dtype in _NARROW and change is _large:
        drawn = drawn / 8
    elif tensor.dtype in _NARROW and change is _all_magnitudes:
        drawn = drawn.sign() * drawn.abs() ** 0.2
    new = copy_of(tensor)
    new.copy_(drawn.to(tensor.dtype))
    return new
