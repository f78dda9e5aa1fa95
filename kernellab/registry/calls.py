"""Calls of verbs: the kernel and arguments that they mean, also of a kept kernel alone, and their compile."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeGuard

from kernellab._triton.kernel import Kernel, autotune_settings, jit_function, pass_by_position
from kernellab.errors import UsageError
from kernellab.launch.calls import UserCall, grid_for_launch, require_launchable
from kernellab.registry.kernels import Session
from kernellab.registry.launches_from_store import (
    latest_launch,
    recorded_grid,
    regenerated_inputs,
    values_of,
)
from kernellab.store import RecordedLaunch, Version
from kernellab.timing.config import NO_CONFIG
from kernellab.timing.launches import Implementation, Launches, implementation_of
from kernellab.timing.provenance import can_time


def call_in(
    session: Session, verb: str, kernel: Kernel | str | int, grid: Any, args: tuple[Any, ...], meta: Mapping[str, Any]
) -> UserCall:
    """Return the call of a verb with its bound kernel; of a stored kernel alone, its latest recorded launch.

    Raises:
        UnknownName, UsageError, LaunchError: there is no such kernel, grid or recorded launch.
    """
    if is_recorded_call(kernel, grid, args, meta):
        return recorded_call(session, kernel)
    launched: Kernel = session.kernels[kernel] if isinstance(kernel, str | int) else kernel
    grid = grid_for_launch(f"lab.{verb}", launched, grid, args, meta)
    return UserCall(session.bind(launched), grid, args, meta)


def is_recorded_call(kernel: Any, grid: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> TypeGuard[str | int]:
    """Whether a verb got a stored kernel alone, and so takes its latest recorded launch on new arguments."""
    return isinstance(kernel, str | int) and grid is None and not args and not meta


def recorded_call(session: Session, key: str | int) -> UserCall:
    """Return the latest recorded launch of a stored kernel, on new arguments of the recorded shapes.

    Raises:
        UnknownName, UsageError: there is no such kernel, or no launch of it that can be repeated.
    """
    version = session.kernels.version(key)
    launch = latest_launch(session.kernels.store, version)
    if launch is None or launch.grid is None:
        raise UsageError(f"No launch of {version.label} is known; launch it, or give one: kernel, grid, arguments.")
    return call_of_launch(session, version, launch, "cuda" if has_gpu(session) else "cpu")


def call_of_launch(
    session: Session,
    version: Version,
    launch: RecordedLaunch,
    device: str,
    config: Mapping[str, Any] = MappingProxyType({}),
    *,
    fills_floats: bool = True,
) -> UserCall:
    """Return the call of a recorded launch on new arguments, with the values of ``config`` in place of its own.

    With a config, the grid is that of the grid function, where its text is known. Without ``fills_floats``,
    floating-point tensors have any contents.

    Raises:
        UsageError: an argument or a constexpr cannot be made again.
    """
    arguments = regenerated_inputs(launch, device, fills_floats=fills_floats)
    values = {**values_of(launch), **{name: value for name, value in config.items() if value is not None}}
    grid: Any = launch.grid
    if config and (formula := recorded_grid(session.kernels.store, version)) is not None:
        grid = formula.grid_for({**arguments, **values})
    return UserCall(jit_function(session.kernels[version.id]), grid, (), {**arguments, **values})


def has_gpu(session: Session) -> bool:
    """Whether this machine has a GPU of the target."""
    return can_time(session.runtime, session.target)


def compile_call(session: Session, call: UserCall, *, takes_best: bool = True) -> Implementation:
    """Compile a call for the target; of an autotuned kernel the best config on a GPU, else its first.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel.
        CompileError: it does not compile.
    """
    launches = Launches(call.kernel, call.grid, call.args, call.meta, session.target)
    configs = autotune_settings(call.kernel).configs
    config, original = NO_CONFIG, None
    if configs:
        original = configs[0]
        if takes_best and has_gpu(session):
            args, meta = pass_by_position(call.kernel, call.args, call.meta, {"grid", "warmup"})
            options = {**meta, "grid": call.grid}
            original = session.runtime.best_config(call.kernel, args, options)
        config = launches.effective(original)
    launch = launches.of(config, original)
    require_launchable(launch.grid, launches.name, session.target)
    with session.runtime.compiling(launches.name):
        return implementation_of(launches, config, session.compiler.compile(launch.job))
