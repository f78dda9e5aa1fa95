"""Tuning: searches, the pipeline from configs to a winner, what it leaves behind, and one decision for all sizes."""

import importlib
from typing import TYPE_CHECKING, Any

from kernellab.timing.config import Config, Space

if TYPE_CHECKING:
    from kernellab.tune import workloads
    from kernellab.tune.search import Search

__all__ = ["Config", "Search", "Space", "workloads"]


def __getattr__(name: str) -> Any:
    """Import what most tunings do not need only when it is asked for."""
    if name == "workloads":
        return importlib.import_module("kernellab.tune.workloads")
    if name == "Search":
        return importlib.import_module("kernellab.tune.search").Search
    raise AttributeError(f"module 'kernellab.tune' has no attribute {name!r}")
