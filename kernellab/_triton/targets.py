"""Targets of the project as Triton's own, and back: a module that the GPU worker imports without the compiler."""

from __future__ import annotations

from typing import Any

from triton.backends.compiler import GPUTarget

from kernellab.target import Target


def gpu_target(target: Target) -> Any:
    """A target as Triton's own `GPUTarget`."""
    return GPUTarget(target.backend, target.arch, target.warp_size)


def target_of(gpu: Any) -> Target:
    """The project's `Target` of a Triton target."""
    return Target(gpu.backend, gpu.arch, gpu.warp_size)
