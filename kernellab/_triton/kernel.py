"""What the lab takes for a kernel, as types: `kernellab._triton.objects.is_kernel` tells whether a value is one."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, Protocol


class JitParameter(Protocol):
    """A parameter of a jit function. ``annotation_type`` is the Triton type that it is annotated with, or ""."""

    name: str
    num: int
    is_constexpr: bool
    has_default: bool
    default: Any
    annotation_type: str


class Kernel(Protocol):
    """A jit function, or one with autotuning and heuristics around it; ``fn`` is what each is around."""

    fn: Any
    arg_names: Sequence[str]

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Return what launches the kernel over a grid."""

    def run(self, *args: Any, grid: Any, warmup: bool, **meta: Any) -> Any:
        """Launch the kernel, or with ``warmup`` only compile it; return Triton's handle."""


class JitKernel(Kernel, Protocol):
    """A jit function itself: it alone has parameters, and what compiles it."""

    __name__: str
    params: Sequence[JitParameter]
    pre_run_hooks: MutableSequence[Any]


class Bound(Kernel, Protocol):
    """A kernel bound to a lab, which its ``runtime`` belongs to; ``front`` is what ``kernel[grid]`` calls."""

    front: Any
    launcher: Any
    runtime: Any


class BoundJit(JitKernel, Bound, Protocol):
    """A jit function bound to a lab, as its runtime sees it; see `kernellab._triton.bound.BoundKernel`."""

    told: set[str]
    launched_as: Kernel

    def resolve(self, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        """Return Triton's handle of what a launch will run."""

    def call_hooks(self, args: tuple[Any, ...], meta: dict[str, Any]) -> None:
        """Call the hooks that Triton calls before a launch."""

    def load(self, handle: Any) -> None:
        """Load a compiled kernel on the current device."""

    def launch_with_triton(
        self, args: tuple[Any, ...], meta: dict[str, Any], grid: Any, warmup: bool, are_hooks_called: bool = False
    ) -> Any:
        """Let Triton launch, or only compile; it calls the kernel's hooks unless that was done."""
