"""Launches of Triton kernels recorded instead of made, for a process that runs none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kernellab.errors import LaunchError

_UNKNOWN_NUMBERS = {"n_regs": 32, "n_spills": 0, "n_max_threads": 1024}


@dataclass(frozen=True, slots=True)
class LaunchCall:
    """A launch of a jit function: every argument by name, its options, and the user's grid.

    ``others`` are arguments and options under the other configs of an autotuned kernel.
    """

    kernel: JITFunction
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]
    grid: Any
    others: tuple[LaunchCall, ...] = ()


@contextmanager
def record_launches(record: Callable[[LaunchCall], None]) -> Iterator[None]:
    """Pass each launch inside a with statement to ``record``, in place of compiling and launching.

    A launch returns a stand-in for Triton's `CompiledKernel`, with made-up resources. An autotuned kernel takes the
    first config that its pruning functions keep; the launches of the others are in ``others``, unless a hook of the
    user prepares them.
    """
    before = JITFunction.run, Autotuner.run
    launches = _Launches(record)
    JITFunction.run = lambda kernel, /, *args, **meta: launches.run(kernel, args, meta)
    Autotuner.run = lambda tuner, /, *args, **meta: launches.run_first_config(tuner, args, meta)
    try:
        yield
    finally:
        JITFunction.run, Autotuner.run = before


@dataclass(slots=True)
class _Launches:
    """Takes the launches of jit functions and of autotuners.

    ``collected`` are the launches of the other configs while these are collected, None where a launch is recorded;
    ``others`` are those of the launch that comes next.
    """

    record: Callable[[LaunchCall], None]
    collected: list[LaunchCall] | None = None
    others: tuple[LaunchCall, ...] = ()

    def run(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        """Take the place of `JITFunction.run`."""
        grid, is_warmup = meta.pop("grid", None), meta.pop("warmup", False)
        for hook in kernel.pre_run_hooks:
            hook(*args, **meta)
        if not is_warmup:
            call = _call_of(kernel, args, meta, grid)
            if self.collected is not None:
                self.collected.append(call)
            else:
                others, self.others = self.others, ()
                self.record(replace(call, others=others))
        return _compiled_stand_in(kernel.__name__)

    def run_first_config(self, tuner: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        """Take the place of `Autotuner.run`."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configs = list(tuner.prune_configs(meta)) if len(tuner.configs) > 1 else tuner.configs
        if not configs:
            raise LaunchError(f"The pruning functions of {tuner.base_fn.__name__} keep no config.")
        tuner.best_config = config = configs[0]
        if not _has_hooks(tuner):
            self._collect(tuner, args, meta, configs[1:])
        for name in tuner.reset_to_zero:
            tuner.nargs.get(name, meta.get(name)).zero_()
        if config.pre_hook is not None:
            config.pre_hook({**tuner.nargs, **meta, **config.all_kwargs()})
        try:
            return tuner.fn.run(*args, **meta, **config.all_kwargs())
        finally:
            tuner.nargs = None

    def _collect(self, tuner: Any, args: tuple[Any, ...], meta: dict[str, Any], configs: Sequence[Any]) -> None:
        self.collected = []
        try:
            for config in configs:
                tuner.fn.run(*args, **meta, **config.all_kwargs())
        finally:
            self.others, self.collected = tuple(self.collected), None


def _call_of(kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: Any) -> LaunchCall:
    names = kernel.arg_names
    if len(args) > len(names):
        raise LaunchError(f"{kernel.__name__} takes {len(names)} arguments and got {len(args)}.")
    given = dict(zip(names, args, strict=False))
    twice = [name for name in given if name in meta]
    if twice:
        raise LaunchError(f"{kernel.__name__} got two values for {twice[0]}.")
    given |= {name: value for name, value in meta.items() if name in names}
    arguments = {}
    for parameter in kernel.params:
        if parameter.name in given:
            arguments[parameter.name] = given[parameter.name]
        elif parameter.has_default:
            arguments[parameter.name] = parameter.default
        else:
            raise LaunchError(f"{kernel.__name__} lacks a value for its parameter {parameter.name}.")
    options = {name: value for name, value in meta.items() if name not in names}
    return LaunchCall(kernel, arguments, options, grid)


def _has_hooks(tuner: Any) -> bool:
    hooks = tuner.user_defined_pre_hook, tuner.user_defined_post_hook, *(config.pre_hook for config in tuner.configs)
    return any(hooks)


def _compiled_stand_in(name: str) -> Any:
    metadata = SimpleNamespace(shared=0, num_warps=4, num_stages=3, num_ctas=1, name=name)
    return SimpleNamespace(
        **_UNKNOWN_NUMBERS, metadata=metadata, name=name, asm={}, _init_handles=lambda: None, function=0, module=0
    )
