"""What autotuners and heuristics around a kernel add to the arguments of a launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction


@dataclass(frozen=True, slots=True)
class Variant:
    """A jit function with the arguments of one config. ``config`` names the config, or is "" where there is none."""

    function: Any
    meta: Mapping[str, Any]
    config: str


def variants(kernel: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> Iterator[Variant]:
    """Yield one variant per config of the kernel, heuristics applied in the order of the decorators.

    A config parameter that the caller gives himself wins over the config's.
    """
    yield from _expanded(kernel, args, dict(meta), "")


def _expanded(kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], config: str) -> Iterator[Variant]:
    if isinstance(kernel, JITFunction):
        yield Variant(kernel, meta, config)
    elif isinstance(kernel, Autotuner):
        for choice in kernel.configs:
            yield from _expanded(kernel.fn, args, {**choice.all_kwargs(), **meta}, str(choice))
    elif isinstance(kernel, Heuristics):
        named = dict(zip(kernel.arg_names, args, strict=False))
        for name, heuristic in kernel.values.items():
            meta = {**meta, name: heuristic({**named, **meta})}
        yield from _expanded(kernel.fn, args, meta, config)
    else:
        yield from _expanded(kernel.fn, args, meta, config)


def best_config(kernel: Any) -> str:
    """Return the config that an autotuned kernel took at its last launch, in words, or ""."""
    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, Autotuner):
            config = getattr(kernel, "best_config", None)
            return "" if config is None else str(config)
        kernel = kernel.fn
    return ""
