"""Configs that somebody has settled: those of a template, of a kernel over lists of tensors, and of the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernellab.errors import UsageError, value_message
from kernellab.measure.config import Config
from kernellab.tune.workloads.blocks import generator


@generator()
def template(num_warps: int, num_stages: int) -> list[Config]:
    """Return the one config of a kernel whose blocks stand in its text."""
    return [Config(num_warps=num_warps, num_stages=num_stages)]


@generator()
def foreach(*, exhaustive: bool = False) -> list[Config]:
    """Return configs for a kernel over a list of tensors, whose blocks stand in its text: warps are left to choose."""
    return [Config(num_warps=warps, num_stages=1) for warps in ((1, 2, 4, 8) if exhaustive else (8,))]


@generator()
def fixed(values: Mapping[str, Any]) -> list[Config]:
    """Return the one config with these parameters and options, the latter by their names: ``num_warps``."""
    return [Config.of(values)]


@generator()
def given(configs: Iterable[Mapping[str, Any] | Config | Any] = ()) -> list[Config]:
    """Return the user's configs, each a dict of values, a `triton.Config`, or one of the lab's; without any, Triton's.

    Raises:
        UsageError: one is something else.
    """
    return list(dict.fromkeys(map(_config, configs))) or [Config()]


def _config(config: Any) -> Config:
    if isinstance(config, Config):
        return config
    if isinstance(config, Mapping):
        return Config.of(config)
    if hasattr(config, "kwargs") and hasattr(config, "num_warps"):
        return Config.from_triton(config)
    raise UsageError(value_message("a config", config, "a dict of values, or a triton.Config"))
