"""The session of a lab, which the verbs below `kernellab.lab` take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernellab._triton.kernel import Kernel
from kernellab.compile.cache import Compiler
from kernellab.launch.runtime import Runtime
from kernellab.registry.kernels import Registry
from kernellab.target import Target


@dataclass(frozen=True, slots=True)
class Session:
    """The runtime with its workers, the registry with its store, and the target of one call to a lab.

    ``model`` names the device that times are predicted for (`kernellab.explain.devices`); "" is the target's first.
    """

    runtime: Runtime
    kernels: Registry
    target: Target
    model: str = ""

    @property
    def compiler(self) -> Compiler:
        """The compiler, over its pool of workers."""
        return self.runtime.compiler

    def bind(self, kernel: Kernel) -> Any:
        """Return the drop-in kernel that launches through the lab."""
        return self.kernels.bind(kernel)
