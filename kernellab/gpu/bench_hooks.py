"""Hooks of configs where launches are timed: called around each launch, with its arguments by name."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.gpu.unboarding import argument_of
from kernellab.packed import ArgumentSpec, ScalarSpec


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
