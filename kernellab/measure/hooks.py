"""Hooks of configs: on their way to where launches are timed, and called there around each launch."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.gpu.ipc import CannotExport, argument_of
from kernellab.launch.arguments import ArgumentSpec, ScalarSpec
from kernellab.launch.memory import memory_of
from kernellab.measure.launches import KernelLaunch


@dataclass(frozen=True)
class HookCalls:
    """What is called around a launch, and what it is given beside the tensors.

    ``before`` are called with the arguments by name, and the options; ``after`` as the ``post_hook`` of an autotuner,
    also with ``exception``. ``values`` are the arguments that are no memory.
    """

    before: tuple[Callable[[dict[str, Any]], Any], ...]
    after: Callable[..., Any] | None
    values: Mapping[str, Any]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BoundHooks:
    """The hooks of a kernel with the arguments that a bench launches it on."""

    calls: HookCalls
    arguments: Mapping[str, Any]

    def before(self) -> None:
        for hook in self.calls.before:
            hook(dict(self.arguments))

    def after(self, exception: Exception | None) -> None:
        if self.calls.after is not None:
            self.calls.after(dict(self.arguments), exception=exception)


class BadHook(Exception):
    """A hook that cannot be called in this process."""


def bound_hooks(calls: HookCalls, specs: Sequence[tuple[str, ArgumentSpec]], memories: Sequence[Any]) -> BoundHooks:
    named = {
        name: calls.values.get(name) if isinstance(spec, ScalarSpec) else argument_of(spec, memories)
        for name, spec in specs
    }
    return BoundHooks(calls, {**named, **calls.options})


def loaded_hooks(data: bytes) -> HookCalls:
    """Return hooks that were pickled in the notebook's process.

    Raises:
        BadHook: they cannot be made again here.
    """
    try:
        calls: HookCalls = pickle.loads(data)
    except Exception as exc:
        raise BadHook(f"{type(exc).__name__}: {exc}") from exc
    return calls


IN_WORKER = "the hooks of the configs were called in the GPU worker, on copies of the arguments and of what they use"


def hook_calls(launch: KernelLaunch) -> HookCalls:
    """Return what is called around a launch, with the arguments that are no memory."""
    memory = memory_of(launch.arguments)
    values = {name: value for name, value in launch.arguments.items() if name not in memory}
    return HookCalls(launch.before, launch.after, values, launch.options)


def shipped_hooks(launch: KernelLaunch) -> bytes:
    """Return the hooks of a launch as bytes for another process; nothing where it has none.

    Raises:
        CannotExport: cloudpickle is not installed, or cannot take them.
    """
    if not launch.has_hooks:
        return b""
    try:
        import cloudpickle
    except ImportError as exc:
        raise CannotExport("the configs have hooks, and cloudpickle, which could take them along, is missing") from exc
    calls = hook_calls(launch)
    try:
        return bytes(cloudpickle.dumps(HookCalls(calls.before, calls.after, _portable(calls.values), calls.options)))
    except Exception as exc:
        raise CannotExport(f"the configs have hooks that cannot be taken along ({type(exc).__name__}: {exc})") from exc


def _portable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what holds memory, which the bench has copies of, and functions of Triton."""
    plain = (bool, int, float, str, bytes, type(None))
    return {name: value for name, value in values.items() if isinstance(value, plain)}
