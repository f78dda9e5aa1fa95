"""Operators that the user registered with torch, as functions that a module brings along.

`torch.library.custom_op` and `triton_op` keep the function that they were made of: a module defines it and calls it. An
operator whose definition is not known, or names what cannot be taken along, is refused, so that no module calls what is
not registered where it runs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from kernellab._triton.closure import value_closure_of
from kernellab._triton.kernel import is_kernel
from kernellab.capture.tape import Step
from kernellab.capture.torch_calls import is_of_torch
from kernellab.errors import UsageError
from kernellab.source import Binding, Closure, lost

_REGISTERED = re.compile(r"registered at (\S+\.py):\d+")
_CALLED = re.compile(r"\bops\.(\w+)\.(\w+)")


def user_operators(steps: Iterable[Step], device: str) -> dict[str, tuple[Closure, Binding]]:
    """Return the operators that steps call and torch does not have, by name: a closure and what in it they are.

    ``device`` is the type of device that their implementations are for.

    Raises:
        UsageError: one cannot be brought along.
    """
    found: dict[str, tuple[Closure, Binding]] = {}
    for step in steps:
        if "." not in step.operation or step.operation in found:
            continue
        if not is_of_torch(step.operation):
            found[step.operation] = _definition(step, device)
        elif why := why_not_of_torch(step.operation):
            raise UsageError(_refusal(step, why))
    return found


def why_not_of_torch(operation: str) -> str:
    """Return what of an operation in torch's own namespaces is not torch's, or ""."""
    name, _, overload = operation.replace(".", "::", 1).partition(".")
    full = name if overload in {"", "default"} else f"{name}.{overload}"
    own = Path(torch.__file__).parent
    files = _REGISTERED.findall(torch._C._dispatch_dump(full))
    other = next((file for file in files if not Path(file).is_relative_to(own)), None)
    return "" if other is None else f"which {other} has registered or changed"


def _definition(step: Step, device: str) -> tuple[Closure, Binding]:
    """Return the function of an operator.

    Raises:
        UsageError: it is not known, or cannot be taken along whole.
    """
    from torch._library.custom_ops import OPDEFS  # private to torch, and where it keeps what operators are made of

    namespace, name, *overload = step.operation.split(".")
    operator = OPDEFS.get(f"{namespace}::{name}")
    if operator is None or overload != ["default"]:
        raise UsageError(_refusal(step, "whose definition is not known"))
    function = _function(operator, device)
    if own := _parts_of_lab(function):
        raise UsageError(_refusal(step, f"which uses {own}"))
    try:
        taken = value_closure_of(function)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        taken = None  # an object that it uses breaks where it is looked into
    if taken is None:
        raise UsageError(_refusal(step, "whose source, or that of what it uses, cannot be found"))
    for why in _missing(taken[0]):
        raise UsageError(_refusal(step, why))
    return taken


def _parts_of_lab(function: Any) -> str:
    """Return what of the lab itself a function uses, which a module does without, or ""."""
    used = inspect.getclosurevars(function)
    for name, value in {**used.globals, **used.nonlocals}.items():
        if type(value).__module__.startswith("kernellab.") and not is_kernel(value):
            return f"{name}, a {type(value).__name__}"
    return ""


def _function(operator: Any, device: str) -> Any:
    """Return what an operator runs on a device: what was registered for that, else what it was made of."""
    wrapped = [operator._backend_fns[kind] for kind in (device, None) if kind in operator._backend_fns]
    inner = (inspect.getclosurevars(inspect.unwrap(function)).nonlocals.get("fn") for function in wrapped)
    return inspect.unwrap(next((function for function in inner if function is not None), operator._init_fn))


def _missing(closure: Closure) -> Iterator[str]:
    """Yield what the functions of an operator use that would be missing in a module."""
    for function in closure.functions:
        for name, binding in function.bindings:
            if (found := lost(binding)) is not None:
                yield f"which uses {name}, a {found.type}"
        for namespace, name in _CALLED.findall(function.text):
            if not is_of_torch(f"{namespace}.{name}"):
                yield f"which calls torch.ops.{namespace}.{name}"


def _refusal(step: Step, why: str) -> str:
    return (
        f"The program calls {step.words}, an operator {why}, and that a module cannot bring along. Make it by "
        "torch.library.custom_op or triton_op of a function whose source, kernels and helpers are Python, or call its "
        "parts in the block in its place."
    )
