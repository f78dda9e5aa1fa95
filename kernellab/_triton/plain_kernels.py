"""Kernels that no lab has bound: watched as they are defined, and launched through a lab.

A cell may define a kernel in a function, a class or a loop, and launch it before the statement ends; or launch one of
another module. Triton has no hook before a launch. So while there is a watcher, Triton's methods that make and launch
kernels are replaced by ones that call the watchers first. No kernel is changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from kernellab._triton.bound import is_bound
from kernellab._triton.kernel import Bound, Kernel, decorators_of, jit_function
from kernellab.workers.forks_and_interrupts import rlock

_LAUNCHES = ((JITFunction, "run"), (Heuristics, "run"), (Autotuner, "run"), (Autotuner, "warmup"))
_KINDS = (JITFunction, Heuristics, Autotuner)


@dataclass(frozen=True, slots=True, eq=False)
class LaunchWatcher:
    """``bound_kernel`` returns the kernel to launch for a plain one, or None; ``on_new_kernel`` gets each new one."""

    bound_kernel: Callable[[Kernel], Bound | None]
    on_new_kernel: Callable[[Kernel], None]


@dataclass(slots=True)
class _WatcherRegistry:
    """The watchers, and Triton's own methods, which are replaced while there is a watcher."""

    watchers: tuple[LaunchWatcher, ...] = ()
    methods: dict[tuple[type, str], Any] = field(default_factory=dict)
    lock: Any = field(default_factory=rlock)

    def add(self, watcher: LaunchWatcher) -> None:
        """Add a watcher; the first one replaces Triton's methods."""
        with self.lock:
            if not self.watchers:
                self.methods = {(kind, name): getattr(kind, name) for kind, name in _LAUNCHES}
                self.methods |= {(kind, "__init__"): kind.__init__ for kind in _KINDS}
                for (kind, name), method in self.methods.items():
                    replacement = _reporting_init(method) if name == "__init__" else _redirecting_launch(method, name)
                    setattr(kind, name, replacement)
            self.watchers = (*self.watchers, watcher)

    def remove(self, watcher: LaunchWatcher) -> None:
        """Remove a watcher; the last one restores Triton's methods."""
        with self.lock:
            self.watchers = tuple(other for other in self.watchers if other is not watcher)
            if not self.watchers:
                for (kind, name), method in self.methods.items():
                    setattr(kind, name, method)


_REGISTRY = _WatcherRegistry()


@contextmanager
def watch_plain_kernels(watcher: LaunchWatcher) -> Iterator[None]:
    """Call ``watcher`` for plain kernels defined and launched inside a with statement, by any thread."""
    _REGISTRY.add(watcher)
    try:
        yield
    finally:
        _REGISTRY.remove(watcher)


def _reporting_init(method: Any) -> Any:
    @functools.wraps(method)
    def make(kernel: Any, *args: Any, **options: Any) -> None:
        method(kernel, *args, **options)
        for watcher in _REGISTRY.watchers if _is_whole(kernel) else ():
            watcher.on_new_kernel(kernel)

    return make


def _redirecting_launch(method: Any, name: str) -> Any:
    @functools.wraps(method)
    def launch(kernel: Any, *args: Any, **meta: Any) -> Any:
        __tracebackhide__ = True
        bound = None
        if _is_whole(kernel) and not is_bound(kernel):
            twins = (watcher.bound_kernel(kernel) for watcher in _REGISTRY.watchers)
            bound = next((twin for twin in twins if twin is not None), None)
        if bound is None:
            return method(kernel, *args, **meta)
        try:
            return _launch_bound(bound, name, args, meta)
        finally:
            _leave_choice(bound, kernel)

    launch._torchdynamo_disable = True  # type: ignore[attr-defined]  # it is not code for a graph
    return launch


def _is_whole(kernel: Any) -> bool:
    """Whether a kernel consists of Triton's own classes alone, without a wrapper of a library between them."""
    while isinstance(kernel, Autotuner | Heuristics):
        kernel = kernel.fn
    return isinstance(kernel, JITFunction)


def _launch_bound(bound: Any, name: str, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
    """Launch a bound kernel with the arguments of a plain one's ``run`` or ``warmup``."""
    __tracebackhide__ = True
    if name == "warmup":
        return bound.warmup(*args, **meta)
    if meta.pop("warmup", False):
        return bound.run(*args, warmup=True, **meta)
    return bound[meta.pop("grid")](*args, **meta)


def _leave_choice(bound: Any, kernel: Any) -> None:
    """Copy ``best_config`` to the autotuners of a plain kernel, as Triton sets it after a launch."""
    for twin, own in zip(decorators_of(bound), decorators_of(kernel), strict=True):
        if twin is not own and hasattr(twin, "best_config"):
            own.best_config = twin.best_config


def with_hooks_of(kernel: Kernel, bound: Bound) -> Bound:
    """Copy the pre-run hooks of ``kernel`` to its bound twin; return the twin."""
    jit_function(bound).pre_run_hooks = list(jit_function(kernel).pre_run_hooks)
    return bound


def outermost(kernels: list[Any]) -> list[Any]:
    """The kernels of a list that are not inside another one of it."""
    inner = {id(decorator.fn) for kernel in kernels for decorator in decorators_of(kernel)}
    return [kernel for kernel in kernels if id(kernel) not in inner]
