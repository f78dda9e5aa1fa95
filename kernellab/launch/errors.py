"""What Triton and CUDA raise at a launch, in the user's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernellab._triton.kernel import JitKernel
from kernellab.errors import KernellabError, LaunchError
from kernellab.launch.grid import MAX_GRID
from kernellab.target import Target


def launch_error(
    kernel: JitKernel,
    arguments: Mapping[str, Any],
    args: tuple[Any, ...],
    meta: dict[str, Any],
    exc: Exception,
    target: Target,
) -> KernellabError | None:
    """Return the error for an exception of a launch, or None where it says all by itself.

    ``arguments`` are those bound by name, ``args`` and ``meta`` what the user gave.
    """
    from kernellab._triton.specialize import argument_error, launch_problem, option_error

    problem = launch_problem(kernel, args, meta)
    if problem is not None:
        return LaunchError(problem, kernel=kernel.__name__)
    if "annot be accessed from Triton" in str(exc):
        return LaunchError(_wrong_device(kernel, arguments), kernel=kernel.__name__, detail=str(exc))
    if "Triton Error [CUDA]: invalid argument" in str(exc) or isinstance(exc, OverflowError):
        return LaunchError(
            f"CUDA refuses to launch {kernel.__name__}: a grid has at most "
            f"{' x '.join(map(str, MAX_GRID))} programs, and numbers at most 64 bits.",
            kernel=kernel.__name__,
            detail=str(exc),
        )
    if isinstance(exc, KeyError | AssertionError | ValueError):
        return option_error(kernel, meta, exc, target)
    if isinstance(exc, TypeError):
        return argument_error(kernel, args, meta, exc)
    return None


def _wrong_device(kernel: JitKernel, arguments: Mapping[str, Any]) -> str:
    on_cpu = [name for name, value in arguments.items() if getattr(getattr(value, "device", None), "type", "") == "cpu"]
    if not on_cpu:
        return f"An argument of {kernel.__name__} is an address that this GPU cannot reach, or was freed."
    names, verb = ", ".join(on_cpu), "is" if len(on_cpu) == 1 else "are"
    hint = "use .to('cuda'), or launch on the CPU by %%triton --interpret"
    return f"{names} of {kernel.__name__} {verb} on the CPU and the kernel runs on a GPU; {hint}."
