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
_SHARED_BYTES = 1024  # hosts divide the memory of an SM by it


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
        call = _call_of(kernel, args, meta, grid)
        if not is_warmup:
            self._take(call)
        return _CompiledStandIn(call, self._take)

    def _take(self, call: LaunchCall) -> None:
        if self.collected is not None:
            self.collected.append(call)
        else:
            others, self.others = self.others, ()
            self.record(replace(call, others=others))

    def run_first_config(self, tuner: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        """Take the place of `Autotuner.run`."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configs = list(tuner.prune_configs(meta)) if len(tuner.configs) > 1 else tuner.configs
        if not configs:
            raise LaunchError(f"The pruning functions of {tuner.base_fn.__name__} keep no config.")
        tuner.best_config = config = configs[0]
        hooks = (tuner.user_defined_pre_hook, tuner.user_defined_post_hook, *(c.pre_hook for c in tuner.configs))
        if not any(hooks):
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
    bound = dict(zip(names, args, strict=False))
    if twice := [name for name in bound if name in meta]:
        raise LaunchError(f"{kernel.__name__} got two values for {twice[0]}.")
    known = {p.name: p.default for p in kernel.params if p.has_default} | bound | meta
    if missing := [name for name in names if name not in known]:
        raise LaunchError(f"{kernel.__name__} lacks a value for its parameter {missing[0]}.")
    arguments = {name: known[name] for name in names}
    options = {name: value for name, value in meta.items() if name not in names}
    return LaunchCall(kernel, arguments, options, grid)


class _CompiledStandIn(SimpleNamespace):
    """Stands in for a `CompiledKernel`, with made-up resources; ``kernel[grid](*args)`` launches it."""

    def __init__(self, call: LaunchCall, take: Callable[[LaunchCall], None]) -> None:
        name = call.kernel.__name__
        metadata = SimpleNamespace(shared=_SHARED_BYTES, num_warps=4, num_stages=3, num_ctas=1, name=name)
        super().__init__(**_UNKNOWN_NUMBERS, metadata=metadata, name=name, asm={}, function=0, module=0)
        self._call, self._take = call, take

    def _init_handles(self) -> None:
        """Load nothing."""

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """Return the function that launches with this grid; it takes the arguments by position, constexprs as well.

        Constexprs and options are those of the compile, as Triton ignores others.
        """
        compiled = self._call
        parameters = compiled.kernel.params

        def launch(*args: Any, stream: Any = None) -> None:
            bound = dict(zip((parameter.name for parameter in parameters), args, strict=False))
            missing = [p.name for p in parameters if not p.is_constexpr and p.name not in bound]
            if missing or len(args) > len(parameters):
                expected = f"{len(parameters)} arguments by position"
                raise LaunchError(f"{self.name} got {len(args)} arguments as a compiled kernel; it takes {expected}.")
            constants = {p.name: compiled.arguments[p.name] for p in parameters if p.is_constexpr}
            self._take(replace(compiled, arguments={**bound, **constants}, grid=grid))

        return launch
