"""Tuning: searches, the pipeline from configs to a winner, what it leaves behind, and one decision for all sizes."""

import importlib
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from kernellab.timing.config import Config, Space
    from kernellab.tune import workloads
    from kernellab.tune.search import Search

__all__ = ["Config", "Search", "Space", "workloads"]

SearchName = Literal["exhaustive", "random", "descent", "optuna", "predicted"]
SEARCHES: tuple[SearchName, ...] = get_args(SearchName)
_MODULES = {"Config": "kernellab.timing.config", "Space": "kernellab.timing.config", "Search": "kernellab.tune.search"}


def __getattr__(name: str) -> Any:
    """Import what needs Triton only when it is asked for: magics take the names of the searches alone."""
    if name == "workloads":
        return importlib.import_module("kernellab.tune.workloads")
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'kernellab.tune' has no attribute {name!r}")
