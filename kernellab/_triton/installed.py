"""Values that an installed module holds: a closure imports them in place of their text."""

from __future__ import annotations

import sys
from typing import Any

from kernellab.source import Import, is_installed


def installed_import(named: Any, value: Any) -> Import | None:
    """The import of ``value`` where an installed module holds it under its own name, else None."""
    return attribute_import(getattr(named, "__module__", None), getattr(named, "__qualname__", None), value)


def attribute_import(module: Any, qualname: Any, value: Any) -> Import | None:
    """The import of ``value`` where it is an installed module's attribute, or wrapped by one, else None."""
    if not isinstance(module, str) or not isinstance(qualname, str) or not is_installed(module):
        return None
    current: Any = sys.modules.get(module)
    for part in qualname.split("."):
        current = getattr(current, part, None)
    while current is not None and current is not value and hasattr(current, "fn"):
        current = current.fn
    return Import(module, qualname, str(getattr(value, "cache_key", ""))) if current is value else None


def global_import(python: Any, name: str) -> Import | None:
    """The import of a global of an installed package's function, for a value that cannot be captured."""
    module = sys.modules.get(python.__module__ or "")
    if module is None or not is_installed(module.__name__) or vars(module) is not python.__globals__:
        return None
    return Import(module.__name__, name) if name in vars(module) else None


def is_of_triton(module: str) -> bool:
    """Whether a module is one of Triton's own, which are the same in each process."""
    return module.partition(".")[0] == "triton"
