"""Kernels by id, name and version, with the history of their launches: side table, listing, recorded launches.

What reads the store alone loads no Triton: `launches_from_store`, `listing` and `versions`. The rest is loaded when it
is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kernellab.registry.launches_from_store import (
    RecordedVersion,
    grid_text,
    latest_launch,
    recorded_grid,
    recorded_version,
    regenerated_arguments,
    regenerated_inputs,
    values_of,
)
from kernellab.registry.listing import Listing, LoadedVersion, VersionRow, config_words, define, texts_of
from kernellab.registry.versions import kept_version, version_digest

if TYPE_CHECKING:
    from kernellab.registry.kernels import Registry as Registry
    from kernellab.registry.kernels import Session as Session
    from kernellab.registry.kernels import keep as keep
    from kernellab.registry.kernels import launched_version as launched_version
    from kernellab.registry.kernels import remember as remember
    from kernellab.registry.launches_to_store import argument_of as argument_of
    from kernellab.registry.launches_to_store import recorded_launch_of as recorded_launch_of
    from kernellab.registry.launches_to_store import result_of as result_of

_LOADS_TRITON = {
    **dict.fromkeys(("Registry", "Session", "keep", "launched_version", "remember"), "kernels"),
    **dict.fromkeys(("argument_of", "recorded_launch_of", "result_of"), "launches_to_store"),
}


def __getattr__(name: str) -> Any:
    """Load what needs Triton when it is asked for."""
    if name in _LOADS_TRITON:
        return getattr(importlib.import_module(f"{__name__}.{_LOADS_TRITON[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
