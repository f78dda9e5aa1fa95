"""Kernels defined under ``TRITON_INTERPRET=1``, which are functions of Triton's own interpreter."""

from __future__ import annotations

import ast
import gc
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import triton.language as tl
from triton.runtime.autotuner import Autotuner, Heuristics

from kernellab.errors import UsageError


def is_interpreted(value: object) -> bool:
    """Whether a kernel was defined under ``TRITON_INTERPRET=1``, as a function of Triton's own interpreter."""
    while issubclass(type(value), Autotuner | Heuristics):  # without asking the value, which may be anything
        value = value.fn  # type: ignore[attr-defined]
    return _is_interpreted_function(value)


def _is_interpreted_function(value: object) -> bool:
    return type(value).__name__ == "InterpretedFunction" and type(value).__module__ == "triton.runtime.interpreter"


def require_compiled(value: Any) -> None:
    """Raise `UsageError` for a kernel that was defined under ``TRITON_INTERPRET=1``."""
    if is_interpreted(value):
        while not _is_interpreted_function(value):
            value = value.fn
        raise UsageError(
            f"{value.__name__} was defined while TRITON_INTERPRET=1 was set, and is a function of Triton's own "
            "interpreter, which neither compiles nor checks. Define or import it again now that there is a lab, or "
            "start without the variable: without a GPU, launches run on the CPU."
        )


def require_names_compiled(text: str, namespace: Mapping[str, Any]) -> None:
    """Raise `UsageError` for a text that uses kernels defined under ``TRITON_INTERPRET=1`` without defining them."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
        return  # running the text raises it
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in own:
            require_compiled(namespace.get(node.id))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in own:
            module = namespace.get(node.value.id)
            require_compiled(vars(module).get(node.attr) if type(module) is ModuleType and module is not tl else None)


def finish_interpreted_imports() -> list[str]:
    """The names of the functions defined under ``TRITON_INTERPRET=1``, without Triton's own.

    Where Triton's own were, Triton's late imports have to happen under the variable, too: Gluon is imported here.
    """
    if _is_interpreted_function(tl.standard.sum):
        import triton.experimental.gluon  # noqa: F401
    functions = [value.fn for value in gc.get_objects() if _is_interpreted_function(value)]
    return sorted({f.__name__ for f in functions if not f.__module__.startswith(("triton.", "kernellab."))})
