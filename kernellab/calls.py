"""What a call of a lab's verb names: a kernel, its arguments, and the launches that its decorators make of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernellab.errors import UsageError


def require_kernel(kernel: Any) -> None:
    """Raise `UsageError` for what is not a Triton kernel."""
    from kernellab._triton.objects import is_kernel

    if not is_kernel(kernel):
        raise UsageError(f"{kernel!r} is not a Triton kernel; pass a function decorated with @triton.jit.")


def require_grid(grid: Any, what: str) -> None:
    """Raise `UsageError` for what cannot be a grid: mostly the first argument of the kernel, where the grid is missing.

    ``what`` is the call: ``lab.tune``.
    """
    if not callable(grid) and not isinstance(grid, int | tuple | list):
        raise UsageError(
            f"The grid is missing: {what} got a {type(grid).__name__} in its place. Pass it after the kernel, "
            f"{what}(kernel, grid, ...), as a tuple such as (64,) or a function of the kernel's parameters by name."
        )


def variants_of(kernel: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the function and options of a plain kernel, or of every config of an autotuned one."""
    from kernellab._triton.decorators import variants

    require_kernel(kernel)
    return variants(kernel, args, meta)


def named_arguments(function: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given arguments by parameter name."""
    by_name = {name: value for name, value in meta.items() if name in function.arg_names}
    return {**dict(zip(function.arg_names, args, strict=False)), **by_name}


def addresses_of(arguments: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Return the argument names and addresses of all memory among the arguments."""
    from kernellab.memory import memory_of

    return [(name, tensor.data_ptr()) for name, tensor in memory_of(arguments).items()]
