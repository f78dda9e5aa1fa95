"""An autotuned kernel with its arguments on one device, as the benchmarks tune it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

Grid = Callable[[dict[str, Any]], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Workload:
    """An autotuned kernel with its arguments; ``expected`` gives by torch what it is to leave in some of them."""

    kernel: Any
    arguments: tuple[Any, ...]
    grid: Grid
    expected: Callable[[], Mapping[str, torch.Tensor]]

    def error(self) -> float:
        """Return how far an output is from what is expected, as a share of the largest value; after a launch."""
        named = dict(zip(self.kernel.arg_names, self.arguments, strict=False))
        return max(_distance(getattr(named[name], "base", named[name]), to) for name, to in self.expected().items())


Build = Callable[[str, bool], Workload]
"""Makes a workload on a device by its type; a small one runs on the CPU within seconds."""


def _distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    off = (found.float() - wanted.float()).abs().max() / wanted.float().abs().max().clamp(min=1e-6)
    return float(off.nan_to_num(torch.inf))
