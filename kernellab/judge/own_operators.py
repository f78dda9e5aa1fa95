"""Operators that a candidate defines by `torch.library`: in its process, plain functions.

torch would show a call of such an operator as one operation of the candidate's own, which no judge runs. As a function,
its allocations, views and launches are recorded one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class OwnOperator:
    """An operator as the function that defines it; what is registered for autograd, vmap or tracing is ignored.

    ``default`` is the operator itself, as of one with a single overload.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "operator")
        self.default = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith(("register_", "set_")):
            raise AttributeError(name)
        return _ignore_registration


def _ignore_registration(*args: Any, **options: Any) -> Any:
    """Take the place of a method that registers a function: called with one, or used as a decorator."""
    functions = [value for value in args if callable(value)]
    return functions[0] if functions else lambda function: function


def define_own_operators_as_functions() -> None:
    """Replace the functions of `torch.library` that define operators, for the rest of this process."""

    def operator(name: str, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        if function is None:
            return lambda later: operator(name, later, **options)
        own = OwnOperator(function)
        namespace, _, short = name.partition("::")
        setattr(getattr(torch.ops, namespace), short.partition(".")[0], own)
        return own

    for name in ("custom_op", "triton_op"):
        setattr(torch.library, name, operator)
    for name in ("register_fake", "register_kernel", "register_autograd", "register_vmap"):
        setattr(torch.library, name, _ignore_registration)
    torch.library.wrap_triton = lambda kernel: kernel
