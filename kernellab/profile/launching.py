"""What is profiled and explained: a call of a kernel as one launch, compiled; and a file that makes it again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernellab._triton.kernel import Kernel
from kernellab.errors import KernellabError, UsageError
from kernellab.export.module import module_text
from kernellab.launch.calls import require_grid, require_kernel
from kernellab.launch.recording import LaunchRecord
from kernellab.launch.runtime import Runtime
from kernellab.measure.config import NO_CONFIG
from kernellab.measure.implementations import Implementation, implementation_of
from kernellab.measure.launches import Launches
from kernellab.measure.provenance import can_time
from kernellab.profile.counters import counters_of
from kernellab.profile.result import Counters
from kernellab.profile.sampling import Refused
from kernellab.registry import RecordedVersion, Registry, made_inputs, recorded_version, values_of
from kernellab.registry.launch_log import launch_of, result_of
from kernellab.store import Version
from kernellab.target import Target

BestConfig = Callable[[Launches], Any]


@dataclass(frozen=True, slots=True)
class AskedLaunch:
    """A call of a kernel that is to be looked at, in a lab that has this runtime and side table.

    ``bind`` returns the drop-in kernel, ``best`` the `triton.Config` that an autotuned one runs with on the GPU.
    ``kernel`` may be name, ``name@version`` or id of a kept one, which stand for its latest recorded launch.
    """

    runtime: Runtime
    kernels: Registry
    bind: Callable[[Kernel], Any]
    best: BestConfig
    kernel: Any
    grid: Any
    args: tuple[Any, ...]
    meta: Mapping[str, Any]

    @property
    def has_gpu(self) -> bool:
        """Whether this machine has the GPU that it is compiled for."""
        return can_time(self.runtime)

    @property
    def target(self) -> Target:
        """What it is compiled for."""
        return self.runtime.target

    def implementation(self) -> Implementation:
        """Return the launch that the call makes, compiled; of an autotuned kernel without a GPU, the first config.

        Raises:
            UsageError, LaunchError: the call does not fit the kernel.
            CompileError: it does not compile.
        """
        from kernellab._triton.decorators import declared

        if isinstance(self.kernel, str | int):
            return self._recorded(self.kernel).implementation()
        require_kernel(self.kernel)
        require_grid(self.grid, "The call")
        bound = self.bind(self.kernel)
        launches = Launches(bound, self.grid, self.args, self.meta, self.target)
        configs = declared(bound).configs
        config = NO_CONFIG
        if configs:
            config = launches.effective(self.best(launches) if self.has_gpu else configs[0])
        launch = launches.of(config)
        with self.runtime.compiling(launches.name):
            return implementation_of(launches, config, self.runtime.compiler.compile(launch.job))

    def _recorded(self, key: str | int) -> AskedLaunch:
        """Return the latest recorded launch of a kept kernel, on arguments like those that it had.

        Raises:
            UnknownName, UsageError: there is no such kernel, or no launch of it that can be made again.
        """
        from kernellab._triton.objects import jit_function

        version = self.kernels.version(key)
        launch = recorded_version(self.kernels.store, version).launch
        if launch is None or launch.grid is None:
            raise UsageError(f"No launch of {version.label} is known; launch it, or give one: kernel, grid, arguments.")
        arguments = made_inputs(launch, "cuda" if self.has_gpu else "cpu")
        meta = {**arguments, **values_of(launch)}
        return replace(self, kernel=jit_function(self.kernels[version.id]), grid=launch.grid, args=(), meta=meta)


def counted(call: AskedLaunch, implementation: Implementation, folder: Path, timeout_s: float) -> Counters:
    """Return what Nsight Compute counts of a launch, made again by a file in ``folder``.

    Raises:
        Refused: it cannot be made again, or nothing can be counted.
    """
    path = folder / "reproducer.py"
    try:
        path.write_text(reproducer_text(call.kernels, call.kernel, implementation), encoding="utf-8")
    except KernellabError as exc:
        raise Refused(f"The launch cannot be made again in another process: {exc.message}") from exc
    return counters_of(path, implementation.kernel.kernel, timeout_s)


def reproducer_text(kernels: Registry, kernel: Kernel, implementation: Implementation) -> str:
    """Return a module that makes a launch again, on inputs of the same shapes; nothing of it is kept.

    Raises:
        UsageError: an argument cannot be written down.
    """
    launch, compiled = implementation.launch, implementation.kernel
    assert launch is not None, "a function of the user is no kernel"
    record = LaunchRecord(launch.function, compiled, launch.arguments, kernel, launch.grid, given_grid=launch.grid)
    closure = launch.job.closure
    version = Version(0, closure.name, 1, closure.digest, closure, time.time())
    return module_text(RecordedVersion(version, (launch_of(kernels, record),), result_of(compiled)))
