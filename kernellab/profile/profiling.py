"""The profile of a call: sampled where there is a GPU and it lets us, else a sentence that says why not."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from kernellab.launch.run import device_name
from kernellab.measure.implementations import Implementation
from kernellab.profile.launching import AskedLaunch, counted
from kernellab.profile.result import Profile
from kernellab.profile.sampling import Refused, Sampler, profile_of
from kernellab.target import Target

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
    found = sampled(implementation, timeout_s)
    return with_counters(found, call, implementation, timeout_s) if counters else found


def unsampled(implementation: Implementation, target: Target) -> Profile:
    """Return the profile of a launch where there is no GPU: the sentence that says so."""
    launch, compiled = implementation.launch, implementation.kernel
    grid = (1, 1, 1) if launch is None else launch.grid
    return Profile(compiled.kernel, str(target), "", grid, refused=_NO_GPU.format(target=target), compiled=compiled)


def sampled(implementation: Implementation, timeout_s: float) -> Profile:
    """Sample a launch on the current GPU, in a worker of its own.

    Raises:
        KernellabError: the launch fails.
    """
    import torch  # only where there is a GPU

    device = torch.cuda.current_device()
    return profile_of(implementation, Sampler(device, timeout_s), device_name(device))


def with_counters(profile: Profile, call: AskedLaunch, implementation: Implementation, timeout_s: float) -> Profile:
    """Return a profile with what Nsight Compute counts of the launch, or a note on why it cannot."""
    with tempfile.TemporaryDirectory(prefix="kernellab-counters-") as folder:
        try:
            found = counted(call, implementation, Path(folder), timeout_s)
        except Refused as exc:
            return replace(profile, notes=(*profile.notes, f"{exc}"))
    return replace(profile, counters=found)
