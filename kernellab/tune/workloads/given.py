"""Configs that do not depend on extents: fixed ones, and lists made from other lists.

Several kernels in one launch have separate blocks, ``XBLOCK_0``, ``XBLOCK_1``. Some kernels need minimum blocks, or the
same rounding in all runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from kernellab.errors import UsageError, value_message
from kernellab.launch.verbs import CallRule
from kernellab.source import is_name
from kernellab.timing.config import Config
from kernellab.tune.workloads.blocks import distinct, generator, is_positive, list_of, reduced_block

_CONFIGS = list_of(Config, "a list of configs, such as workloads.reduction returns")
_NAMES = CallRule("the new name of each block", lambda value: all(map(is_name, value.values())))
_LEAST = CallRule("a positive integer for each block", lambda value: all(map(is_positive, value.values())))


@generator()
def template(num_warps: int, num_stages: int) -> list[Config]:
    """Return a single config, for a kernel with blocks fixed in its source."""
    return [Config(num_warps=num_warps, num_stages=num_stages)]


@generator()
def foreach(*, exhaustive: bool = False) -> list[Config]:
    """Return configs for a kernel over a list of tensors, with blocks fixed in its source: only warps vary."""
    return [Config(num_warps=warps, num_stages=1) for warps in ((1, 2, 4, 8) if exhaustive else (8,))]


@generator()
def fixed(values: Mapping[str, Any]) -> list[Config]:
    """Return one config with these parameters and options (such as ``num_warps``)."""
    return [Config.of(values)]


@generator()
def given(configs: Iterable[Mapping[str, Any] | Config | Any] = ()) -> list[Config]:
    """Return the user's configs (dicts, `triton.Config`s or the lab's); without any, Triton's default.

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


@dataclass(frozen=True, slots=True)
class Subkernel:
    """One kernel of a combined launch: its configs when launched alone (the first is the start), and its size.

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
    """Return configs for several kernels in one launch: the first of each together, then variations of it.

    The first config has the most warps and stages of all. The others change the blocks of one kernel, the largest
    first; or, with ``equal_together``, those of all kernels equal to it. The last ones change warps and stages.
    In that order, a coordinate descent finds what to change next.

    Raises:
        UsageError: there are no kernels, or one has no configs.
    """
    if not subkernels:
        raise UsageError("combined got no subkernels; give one at least.")
    starts = [subkernel.configs[0] for subkernel in subkernels]
    base = Config(
        tuple(_values_by_place(dict(enumerate(starts))).items()),
        num_warps=max(start.num_warps or 1 for start in starts),
        num_stages=max(start.num_stages or 1 for start in starts),
    )
    changed = [
        _with_changes(base, dict.fromkeys(places, config))
        for places in _groups(subkernels, equal_together)
        for config in subkernels[places[0]].configs
    ]
    pairs = dict.fromkeys(
        (config.num_warps, config.num_stages) for subkernel in subkernels for config in subkernel.configs
    )
    return distinct([base, *changed, *(replace(base, num_warps=w, num_stages=s) for w, s in pairs)])


def _groups(subkernels: Sequence[Subkernel], equal_together: bool) -> list[list[int]]:
    """Return the places of kernels that change together, the largest kernels first."""
    groups: dict[Any, list[int]] = {}
    for place, subkernel in enumerate(subkernels):
        groups.setdefault(subkernel if equal_together else place, []).append(place)
    return sorted(groups.values(), key=lambda places: -subkernels[places[0]].numel)


def _values_by_place(configs: dict[int, Config]) -> dict[str, Any]:
    """Return the parameters of several configs; names of blocks get the place of their kernel as a suffix."""
    return {
        f"{name}_{place}" if name.endswith("BLOCK") else name: value
        for place, config in configs.items()
        for name, value in config.parameters
    }


def _with_changes(base: Config, configs: dict[int, Config]) -> Config:
    return replace(base, parameters=tuple({**dict(base.parameters), **_values_by_place(configs)}.items()))


@generator(configs=_CONFIGS, names=_NAMES)
def rename_blocks(configs: Sequence[Config], **names: str) -> list[Config]:
    """Return the configs with other names for some blocks: ``rename_blocks(configs, R0_BLOCK="RBLOCK")``.

    Raises:
        UsageError: a config lacks a block of that name, or has a value of the new name.
    """
    for config in configs:
        for name, new in names.items():
            if name not in config.values:
                own = ", ".join(config.values)
                raise UsageError(f"rename_blocks got {name}, which a config lacks; it has {own}.")
            if new in config.values and new not in names:
                raise UsageError(f"rename_blocks got {new} for {name}, and a config has that already.")
    if len(set(names.values())) < len(names):
        raise UsageError(f"rename_blocks got one name for several blocks: {', '.join(names)}.")
    return [
        replace(config, parameters=tuple((names.get(name, name), value) for name, value in config.parameters))
        for config in configs
    ]


@generator(configs=_CONFIGS, least=_LEAST)
def covering(configs: Sequence[Config], **least: int) -> list[Config]:
    """Return the configs with at least these blocks; the first config comes first, its blocks raised.

    A TMA descriptor demands that: the last extent of its block has 16 bytes or more. So there is one config at least.

    Raises:
        UsageError: the configs lack a block of that name.
    """
    if not configs:
        return []
    first = configs[0].values
    missing = [name for name in least if name not in first]
    if missing:
        raise UsageError(f"covering got {missing[0]}, which the configs lack; they have {', '.join(first)}.")
    raised = configs[0].with_values({name: max(first[name], block) for name, block in least.items()})
    large = [config for config in configs if all(config.values[name] >= block for name, block in least.items())]
    return distinct([raised, *large])


@generator(configs=_CONFIGS)
def floored(configs: Sequence[Config], *, rows: int = 1, reduced: int = 1) -> list[Config]:
    """Return the configs with ``XBLOCK`` and ``R0_BLOCK`` (or ``RBLOCK``) raised to a minimum, if they have them.

    Where one grows, the other is halved, the reduced one first, so that tiles keep their size if the least allows it.
    """
    return distinct(
        config.with_values(_raise_blocks(config, {reduced_block(config.values): reduced, "XBLOCK": rows}))
        for config in configs
    )


@generator(configs=_CONFIGS)
def reproducible(configs: Sequence[Config], *, contiguous: bool = True) -> list[Config]:
    """Return one config of a reduction, chosen without measuring, so that all runs round alike.

    Blocks of four reduced elements or fewer go, and those of one row unless some access is ``contiguous`` along the
    reduced extent. Of the rest, that with the second-largest reduced block stays, then of warps, then of rows.
    """
    if len(configs) < 2:
        return list(configs)
    reduced = reduced_block(configs[0].values)
    left = _matching_or_all(configs, lambda config: config.values.get(reduced, 5) > 4)
    left = _matching_or_all(left, lambda config: contiguous or config.values.get("XBLOCK") != 1)
    for name in (reduced, "num_warps", "XBLOCK"):
        sizes = sorted({config.values.get(name, -1) for config in left})
        if len(sizes) > 1:
            left = [config for config in left if config.values.get(name, -1) == sizes[-2]]
    return left[:1]


def _matching_or_all(configs: Sequence[Config], hold: Callable[[Config], bool]) -> list[Config]:
    """Return the configs that satisfy a predicate, or all if none does."""
    return [config for config in configs if hold(config)] or list(configs)


def _raise_blocks(config: Config, least: Mapping[str, int]) -> dict[str, int]:
    """Return the blocks raised to their minimum, then halved in order while the tile is larger than before."""
    values = config.values
    tile = prod(values[name] for name in least if name in values)
    blocks = {name: max(values[name], block) for name, block in least.items() if name in values}
    for name, floor in least.items():
        while name in blocks and prod(blocks.values()) > tile and blocks[name] > floor:
            blocks[name] //= 2
    return blocks
