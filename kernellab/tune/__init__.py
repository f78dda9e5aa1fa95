"""Tuning: searches, the pipeline from configs to a winner, what it leaves behind, and one decision for all sizes.

`Space` and the generators of `workloads` give configs, `grids` the grids that go with them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from kernellab.timing.config import Config, Space

if TYPE_CHECKING:
    from kernellab.tune import grids, workloads
    from kernellab.tune.search import Search

__all__ = ["Config", "Search", "Space", "grids", "workloads"]


def __getattr__(name: str) -> Any:
    """Import what most tunings do not need only when it is asked for."""
    if name in {"grids", "workloads"}:
        return importlib.import_module(f"kernellab.tune.{name}")
    if name == "Search":
        return importlib.import_module("kernellab.tune.search").Search
    raise AttributeError(f"module 'kernellab.tune' has no attribute {name!r}")
