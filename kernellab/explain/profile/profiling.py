"""The profile of a call: its launch, compiled, sampled where there is a GPU and it lets us; else why not.

What is explained is a call, too, and a file can make its launch again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernellab._triton.kernel import Kernel
from kernellab.errors import KernellabError, UsageError
from kernellab.explain.profile.counters import counters_of
from kernellab.explain.profile.result import Counters, Profile
from kernellab.explain.profile.sampling import Refused, Sampler, profile_of
from kernellab.export.module import module_text
from kernellab.launch.calls import require_grid, require_kernel, require_launchable
from kernellab.launch.recording import LaunchRecord
from kernellab.launch.runtime import Runtime
from kernellab.measure.config import NO_CONFIG
from kernellab.measure.launches import Implementation, Launches, implementation_of
from kernellab.measure.provenance import can_time
from kernellab.registry import RecordedVersion, Registry, made_inputs, recorded_version, values_of
from kernellab.registry.kernels import launch_of, result_of
from kernellab.store import Version
from kernellab.target import Target, device_name

BestConfig = Callable[[Launches], Any]


@dataclass(frozen=True, slots=True)
class AskedLaunch:
    """A call of a kernel that is to be looked at for a target, in a lab that has this runtime and side table.

    ``bind`` returns the drop-in kernel, ``best`` the `triton.Config` that an autotuned one runs with on the GPU.
    ``kernel`` may be name, ``name@version`` or id of a kept one, which stand for its latest recorded launch.
    """

    runtime: Runtime
    kernels: Registry
    bind: Callable[[Kernel], Any]
    best: BestConfig
    target: Target
    kernel: Any
    grid: Any
    args: tuple[Any, ...]
    meta: Mapping[str, Any]

    @property
    def has_gpu(self) -> bool:
        """Whether this machine has the GPU that it is compiled for."""
        return can_time(self.runtime, self.target)

    def implementation(self) -> Implementation:
        """Return the launch that the call makes, compiled; of an autotuned kernel without a GPU, the first config.

        Raises:
            UsageError, LaunchError: the call does not fit the kernel.
            CompileError: it does not compile.
        """
        from kernellab._triton.kernel import declared

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
        require_launchable(launch.grid, launches.name, self.target)
        with self.runtime.compiling(launches.name):
            return implementation_of(launches, config, self.runtime.compiler.compile(launch.job))

    def _recorded(self, key: str | int) -> AskedLaunch:
        """Return the latest recorded launch of a kept kernel, on arguments like those that it had.

        Raises:
            UnknownName, UsageError: there is no such kernel, or no launch of it that can be made again.
        """
        from kernellab._triton.kernel import jit_function

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


_NO_GPU = "There is no GPU that runs {target}, so nothing can be sampled; on a machine with one, the same call samples."


def profiled(call: AskedLaunch, timeout_s: float, *, counters: bool = False) -> Profile:
    """Return the profile of a call; with ``counters``, also what Nsight Compute counts, or a note on why it cannot.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel.
        KernellabError: it does not compile, or fails while it runs.
    """
    implementation = call.implementation()
    if not call.has_gpu:
        return unsampled(implementation, call.target)
    found = sampled(call, implementation, timeout_s)
    return with_counters(found, call, implementation, timeout_s) if counters else found


def unsampled(implementation: Implementation, target: Target) -> Profile:
    """Return the profile of a launch where there is no GPU: the sentence that says so."""
    launch, compiled = implementation.launch, implementation.kernel
    grid = (1, 1, 1) if launch is None else launch.grid
    return Profile(compiled.kernel, str(target), "", grid, refused=_NO_GPU.format(target=target), compiled=compiled)


def sampled(call: AskedLaunch, implementation: Implementation, timeout_s: float) -> Profile:
    """Sample the launch of a call on the current GPU, in a worker of its own.

    Raises:
        KernellabError: the launch fails.
    """
    import torch  # only where there is a GPU

    device, trials = torch.cuda.current_device(), call.runtime.trials
    assert trials is not None, "there is a GPU"
    return profile_of(implementation, Sampler(device, timeout_s, trials), device_name(device))


def with_counters(profile: Profile, call: AskedLaunch, implementation: Implementation, timeout_s: float) -> Profile:
    """Return a profile with what Nsight Compute counts of the launch, or a note on why it cannot."""
    with tempfile.TemporaryDirectory(prefix="kernellab-counters-") as folder:
        try:
            found = counted(call, implementation, Path(folder), timeout_s)
        except Refused as exc:
            return replace(profile, notes=(*profile.notes, f"{exc}"))
    return replace(profile, counters=found)
