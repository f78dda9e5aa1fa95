"""What a kernel demands of its configs beyond their speed: least blocks, and one rounding for all runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from kernellab.errors import UsageError
from kernellab.launch.calls import CallRule
from kernellab.measure.config import Config
from kernellab.tune.workloads.blocks import distinct, generator, is_positive, list_of

_CONFIGS = list_of(Config, "a list of configs, such as workloads.reduction returns")
_LEAST = CallRule("a positive integer for each block", lambda value: all(map(is_positive, value.values())))


@generator(configs=_CONFIGS, least=_LEAST)
def covering(configs: Sequence[Config], **least: int) -> list[Config]:
    """Return the configs whose blocks are no smaller, after the first one with its blocks made as large.

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
    """Return the configs with no smaller ``XBLOCK`` and ``R0_BLOCK``, where they have them.

    Where one grows, the other is halved, the reduced one first, so that tiles keep their size if the least allows it.
    """
    least = {"R0_BLOCK": reduced, "XBLOCK": rows}
    return distinct(config.with_values(_raised(config, least)) for config in configs)


@generator(configs=_CONFIGS)
def reproducible(configs: Sequence[Config], *, contiguous: bool = True) -> list[Config]:
    """Return the one config of a reduction that is taken without any measurement, so that all runs round alike.

    Blocks of four reduced elements or fewer go, and those of one row unless some access is ``contiguous`` along the
    reduced extent. Of the rest, that with the second-largest reduced block stays, then of warps, then of rows.
    """
    if len(configs) < 2:
        return list(configs)
    left = _those(configs, lambda config: config.values.get("R0_BLOCK", 5) > 4)
    left = _those(left, lambda config: contiguous or config.values.get("XBLOCK") != 1)
    for name in ("R0_BLOCK", "num_warps", "XBLOCK"):
        sizes = sorted({config.values.get(name, -1) for config in left})
        if len(sizes) > 1:
            left = [config for config in left if config.values.get(name, -1) == sizes[-2]]
    return left[:1]


def _those(configs: Sequence[Config], hold: Callable[[Config], bool]) -> list[Config]:
    """Return the configs for which something holds, or all where it holds for none."""
    return [config for config in configs if hold(config)] or list(configs)


def _raised(config: Config, least: Mapping[str, int]) -> dict[str, int]:
    """Return the blocks, raised to their least; then halved, in order, while the tile is larger than it was."""
    values = config.values
    tile = prod(values[name] for name in least if name in values)
    blocks = {name: max(values[name], block) for name, block in least.items() if name in values}
    for name, floor in least.items():
        while name in blocks and prod(blocks.values()) > tile and blocks[name] > floor:
            blocks[name] //= 2
    return blocks
