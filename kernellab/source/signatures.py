"""What the names in a signature stood for at the definition: Python evaluates defaults and annotations only then."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

_DEFINED: WeakKeyDictionary[FunctionType, Mapping[str, Any]] = WeakKeyDictionary()


def signature_names(node: ast.FunctionDef | ast.Lambda) -> set[str]:
    """Return the names in the defaults and annotations of a function."""
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    parts = [*node.args.defaults, *(d for d in node.args.kw_defaults if d), *(a.annotation for a in arguments)]
    return {n.id for part in parts if part is not None for n in ast.walk(part) if isinstance(n, ast.Name)}


def signature_values(
    function: FunctionType, node: ast.FunctionDef | ast.Lambda, scope: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return what those names stand for in ``scope``; once asked, which is soon after the definition, it stays so."""
    if function not in _DEFINED:
        _DEFINED[function] = {name: scope[name] for name in sorted(signature_names(node)) if name in scope}
    return _DEFINED[function]
