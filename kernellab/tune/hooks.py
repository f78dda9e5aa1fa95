"""Hooks of configs on their way to where launches are timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernellab.gpu.bench_hooks import HookCalls
from kernellab.gpu.boarding import CannotBoard
from kernellab.memory import memory_of
from kernellab.tune.launches import Launch

IN_WORKER = "the hooks of the configs were called in the GPU worker, on copies of the arguments and of what they use"


def hook_calls(launch: Launch) -> HookCalls:
    """Return what is called around a launch, with the arguments that are no memory."""
    memory = memory_of(launch.arguments)
    values = {name: value for name, value in launch.arguments.items() if name not in memory}
    return HookCalls(launch.before, launch.after, values, launch.options)


def shipped_hooks(launch: Launch) -> bytes:
    """Return the hooks of a launch as bytes for another process; nothing where it has none.

    Raises:
        CannotBoard: cloudpickle is not installed, or cannot take them.
    """
    if not launch.has_hooks:
        return b""
    try:
        import cloudpickle
    except ImportError as exc:
        raise CannotBoard("the configs have hooks, and cloudpickle, which could take them along, is missing") from exc
    calls = hook_calls(launch)
    try:
        return bytes(cloudpickle.dumps(HookCalls(calls.before, calls.after, _portable(calls.values), calls.options)))
    except Exception as exc:
        raise CannotBoard(f"the configs have hooks that cannot be taken along ({type(exc).__name__}: {exc})") from exc


def _portable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what holds memory, which the bench has copies of, and functions of Triton."""
    plain = (bool, int, float, str, bytes, type(None))
    return {name: value for name, value in values.items() if isinstance(value, plain)}
