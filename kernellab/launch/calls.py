"""Calls of kernels: as the user writes them, what they lack, and what Triton raises for them in the user's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernellab._triton.interpreted import require_compiled
from kernellab._triton.kernel import (
    JitKernel,
    Kernel,
    is_kernel,
    jit_function,
    parameter_names,
    require_one_tuner,
    variants,
)
from kernellab._triton.specialize import argument_error, launch_problem, option_error, require_options, tensor_problem
from kernellab.errors import KernellabError, LaunchError, UsageError, value_text
from kernellab.launch.arguments import memory_of, require_memory
from kernellab.launch.grids import MAX_GRID, require_grid
from kernellab.target import Target


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call ``kernel[grid](*args, **meta)`` by the user. A magic may name the kernel by a label."""

    kernel: Kernel
    grid: Any
    args: tuple[Any, ...]
    meta: Mapping[str, Any]


def require_kernel(kernel: Kernel) -> None:
    """Raise `UsageError` unless the value is a Triton kernel with one autotuner at most."""
    require_compiled(kernel)
    if not is_kernel(kernel):
        raise UsageError(f"{value_text(kernel)} is not a Triton kernel; pass a function decorated with @triton.jit.")
    require_one_tuner(kernel)


def require_launch(
    what: str, kernel: Kernel, grid: Any, args: tuple[Any, ...] = (), meta: Mapping[str, Any] | None = None
) -> None:
    """Refuse a launch without kernel or grid, or with tensors that no kernel takes. ``what`` is the call.

    Raises:
        UsageError, LaunchError: it says which.
    """
    require_kernel(kernel)
    require_grid(grid, what)
    arguments = {**dict(zip(parameter_names(kernel), args, strict=False)), **(meta or {})}
    name = jit_function(kernel).__name__
    if (problem := tensor_problem(name, arguments)) is not None:
        raise LaunchError(problem, kernel=name)
    for argument, tensor in memory_of(arguments).items():
        require_memory(argument, tensor)


def variants_of(kernel: Kernel, args: tuple[Any, ...], meta: Mapping[str, Any]) -> Iterator[Any]:
    """The function and options of a plain kernel, or of every config of an autotuned one."""
    require_kernel(kernel)
    return variants(kernel, args, meta)


def named_arguments(function: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by parameter name."""
    by_name = {name: value for name, value in meta.items() if name in function.arg_names}
    return {**dict(zip(function.arg_names, args, strict=False)), **by_name}


def launch_error(
    kernel: JitKernel, args: tuple[Any, ...], meta: Mapping[str, Any], exc: Exception, target: Target
) -> KernellabError | None:
    """The lab's error for an exception of a launch, or None if the exception is clear by itself."""
    try:
        require_options(kernel.__name__, {name: meta[name] for name in meta if name not in kernel.arg_names})
    except UsageError as error:
        return error
    problem = launch_problem(kernel, args, meta)
    if problem is not None:
        return LaunchError(problem, kernel=kernel.__name__)
    if "annot be accessed from Triton" in str(exc):
        return LaunchError(
            _wrong_device(kernel, named_arguments(kernel, args, meta)), kernel=kernel.__name__, detail=str(exc)
        )
    if isinstance(exc, TypeError | OverflowError):
        return argument_error(kernel, args, meta, exc)
    if "Triton Error [CUDA]: invalid argument" in str(exc):
        return LaunchError(
            f"CUDA refuses to launch {kernel.__name__}: a grid has at most "
            f"{' x '.join(map(str, MAX_GRID))} programs, and numbers at most 64 bits.",
            kernel=kernel.__name__,
            detail=str(exc),
        )
    if isinstance(exc, KeyError | AssertionError | ValueError):
        return option_error(kernel, meta, exc, target)
    return None


def _wrong_device(kernel: JitKernel, arguments: Mapping[str, Any]) -> str:
    on_cpu = [name for name, value in arguments.items() if getattr(getattr(value, "device", None), "type", "") == "cpu"]
    if not on_cpu:
        return f"An argument of {kernel.__name__} is an address that this GPU cannot reach, or was freed."
    names, verb = ", ".join(on_cpu), "is" if len(on_cpu) == 1 else "are"
    hint = "use .to('cuda'), or launch on the CPU by %%triton --interpret"
    return f"{names} of {kernel.__name__} {verb} on the CPU and the kernel runs on a GPU; {hint}."
