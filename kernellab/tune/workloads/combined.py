"""Configs for several kernels in one launch, each with blocks of its own: ``XBLOCK_0``, ``XBLOCK_1``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernellab.errors import UsageError, value_message
from kernellab.measure.config import Config
from kernellab.tune.workloads.blocks import distinct, generator, list_of

_CONFIGS = list_of(Config, "a tuple of configs, such as workloads.pointwise returns")


@dataclass(frozen=True, slots=True)
class Subkernel:
    """One of the kernels of a launch: the configs that it would have alone, the first to start from, and its elements.

    ``numel`` is the product of its extents, as powers of two: of equal ones, it need not be exact.
    """

    configs: tuple[Config, ...]
    numel: int = 1

    def __post_init__(self) -> None:
        if not _CONFIGS.allows(self.configs):
            raise UsageError(value_message("configs", self.configs, _CONFIGS.expected, owner="a subkernel"))
        if not self.configs:
            raise UsageError("a subkernel has no configs; give those that one of the generators returns for it.")


_SUBKERNELS = list_of(Subkernel, "a list of Subkernel")


@generator(subkernels=_SUBKERNELS)
def combined(subkernels: Sequence[Subkernel], *, equal_together: bool = False) -> list[Config]:
    """Return configs for several kernels in one launch: the first of each, then changes of it, one after the other.

    The first config has the most warps and stages of all. The others change the blocks of one kernel, the largest
    first; or, with ``equal_together``, those of all kernels equal to it. The last ones change warps and stages.
    In that order, a coordinate descent finds what to change next.

    Raises:
        UsageError: there are no kernels, or one has no configs.
    """
    if not subkernels:
        raise UsageError("combined got no subkernels; give one at least.")
    starts = [each.configs[0] for each in subkernels]
    base = Config(
        tuple(_named(dict(enumerate(starts))).items()),
        num_warps=max(start.num_warps or 1 for start in starts),
        num_stages=max(start.num_stages or 1 for start in starts),
    )
    changed = [
        _changed(base, dict.fromkeys(places, config))
        for places in _groups(subkernels, equal_together)
        for config in subkernels[places[0]].configs
    ]
    pairs = dict.fromkeys((config.num_warps, config.num_stages) for each in subkernels for config in each.configs)
    return distinct([base, *changed, *(replace(base, num_warps=w, num_stages=s) for w, s in pairs)])


def _groups(subkernels: Sequence[Subkernel], equal_together: bool) -> list[list[int]]:
    """Return the places of kernels that change together, the largest kernels first."""
    groups: dict[Any, list[int]] = {}
    for place, each in enumerate(subkernels):
        groups.setdefault(each if equal_together else place, []).append(place)
    return sorted(groups.values(), key=lambda places: -subkernels[places[0]].numel)


def _named(configs: dict[int, Config]) -> dict[str, Any]:
    """Return values of configs by place: blocks get it into their names, compile options are those of the launch."""
    return {
        f"{name}_{place}" if name.endswith("BLOCK") else name: value
        for place, config in configs.items()
        for name, value in config.parameters
    }


def _changed(base: Config, configs: dict[int, Config]) -> Config:
    return replace(base, parameters=tuple({**dict(base.parameters), **_named(configs)}.items()))
