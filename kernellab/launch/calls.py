"""Calls of kernels as the user writes them: grid and arguments, what they lack, and what Triton raises for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kernellab._triton.grid_functions import GridArguments
from kernellab._triton.interpreted import require_compiled
from kernellab._triton.kernel import (
    JitKernel,
    Kernel,
    constexpr_value,
    is_kernel,
    jit_function,
    parameter_names,
    require_one_tuner,
    variants,
)
from kernellab._triton.specialize import argument_error, launch_problem, option_error, require_options, tensor_problem
from kernellab.errors import KernellabError, LaunchError, UsageError, value_text
from kernellab.launch.arguments import memory_of, require_memory
from kernellab.target import Target

Grid3 = tuple[int, int, int]
MAX_GRID: Grid3 = (2**31 - 1, 65535, 65535)  # of CUDA


def evaluated_grid(kernel: JitKernel, grid: Any, arguments: Mapping[str, Any]) -> Grid3:
    """The three extents of the user's grid for the arguments of a launch; see `checked_grid`.

    Raises:
        LaunchError: it is not a grid, or a function that cannot be called with the arguments by name.
        Exception: whatever the user's function raises, as it is.
    """
    __tracebackhide__ = True
    if not is_grid_function(grid):
        return checked_grid(grid, kernel.__name__)
    try:
        extents = grid(GridArguments(arguments))
    except TypeError as exc:
        if exc.__traceback__ is not None and exc.__traceback__.tb_next is not None:
            raise
        # Python did not even enter it.
        raise LaunchError(
            f"The grid function of {kernel.__name__} is called with the arguments by name, as one dict, "
            f'and {exc}; write it as lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),).',
            kernel=kernel.__name__,
        ) from exc
    if isinstance(extents, int):  # as Triton, which takes len(grid)
        raise LaunchError(
            f"The grid function of {kernel.__name__} returned {extents}; it must return a tuple such as (n,).",
            kernel=kernel.__name__,
        )
    return checked_grid(extents, kernel.__name__)


def checked_grid(grid: Any, name: str) -> Grid3:
    """A grid of one to three extents as three.

    Raises:
        LaunchError: it has another form, or an extent is negative.
    """
    extents = (grid,) if isinstance(grid, int) else grid
    if not isinstance(extents, tuple | list) or not 1 <= len(extents) <= 3:
        raise LaunchError(
            f"The grid of {name} is {value_text(grid)}; expected one to three integers, such as (64,).", kernel=name
        )
    try:
        counts = tuple(extent.__index__() for extent in extents)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # the latter of tensors
        raise LaunchError(
            f"The grid of {name} is {value_text(grid)}; its extents must be integers, as triton.cdiv(n, BLOCK) gives.",
            kernel=name,
        ) from None
    if max(counts) >= 2**63:
        raise LaunchError(f"The grid of {name} has an extent of more than 64 bits; no device has as many.", kernel=name)
    if min(counts) < 0:
        raise LaunchError(f"The grid of {name} is {value_text(grid)}; an extent cannot be negative.", kernel=name)
    return (*counts, 1, 1)[:3]


def require_launchable(grid: Grid3, name: str, target: Target) -> None:
    """Refuse a grid that the interpreter could run and no device of the target can.

    Raises:
        LaunchError: an extent is beyond what CUDA launches.
    """
    if target.backend == "cuda" and any(extent > limit for extent, limit in zip(grid, MAX_GRID, strict=True)):
        at_most = " x ".join(f"{limit:,}" for limit in MAX_GRID)
        raise LaunchError(
            f"The grid of {name} is {grid}, and CUDA launches at most {at_most} programs; "
            "put the largest extent first, or let each program do more.",
            kernel=name,
        )


def require_grid(grid: Any, what: str) -> None:
    """Raise `UsageError` for an impossible grid: mostly the kernel's first argument, where the grid is missing.

    ``what`` is the call: ``lab.tune``.
    """
    if not is_grid_function(grid) and not isinstance(grid, int | tuple | list):
        got = value_text(grid) if grid is None or isinstance(grid, str | float) else f"a {type(grid).__name__}"
        raise UsageError(
            f"The grid is missing: {what} got {got} instead. Pass it after the kernel, "
            f"{what}(kernel, grid, ...), as a tuple such as (64,) or a function of the kernel's parameters by name."
        )


def is_grid_function(grid: object) -> bool:
    """Whether a grid is a function of the arguments, and neither a kernel nor a constant."""
    return callable(grid) and not is_kernel(grid) and constexpr_value(grid) is grid


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


def grid_for_launch(what: str, kernel: Kernel, grid: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> Any:
    """The grid of a verb's launch as Triton takes it: of an integer, which verbs take as well, a tuple.

    ``what`` is the call.

    Raises:
        UsageError, LaunchError: kernel or grid are missing, or a tensor is none that a kernel takes.
    """
    require_kernel(kernel)
    require_grid(grid, what)
    arguments = {**dict(zip(parameter_names(kernel), args, strict=False)), **meta}
    name = jit_function(kernel).__name__
    if (problem := tensor_problem(name, arguments)) is not None:
        raise LaunchError(problem, kernel=name)
    for argument, tensor in memory_of(arguments).items():
        require_memory(argument, tensor)
    return (grid,) if isinstance(grid, int) and grid >= 0 else grid


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
    error_of = partial(LaunchError, kernel=kernel.__name__, detail=str(exc))
    if "annot be accessed from Triton" in str(exc):
        return error_of(_wrong_device(kernel, named_arguments(kernel, args, meta)))
    if "no allocator was set" in str(exc):
        return error_of(
            f"{kernel.__name__} needs memory of Triton's allocator, as for descriptors that a kernel makes, and none "
            "is set; call triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, "
            "device='cuda')) before."
        )
    if isinstance(exc, TypeError | OverflowError):
        return argument_error(kernel, args, meta, exc)
    if "Triton Error [CUDA]: invalid argument" in str(exc):
        return error_of(
            f"CUDA refuses to launch {kernel.__name__}: a grid has at most "
            f"{' x '.join(map(str, MAX_GRID))} programs, and numbers at most 64 bits."
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
