"""Configs for reductions: looping over the elements, or persistent with whole rows in registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from kernellab.target import DEFAULT_TARGET, Target
from kernellab.timing.config import Config
from kernellab.tune.workloads.blocks import (
    DeviceRules,
    Numel,
    distinct,
    for_all_hints,
    generator,
    power_of_two,
    require_choice,
    rules_of,
    with_waves,
)

Hint = Literal["inner", "outer", "tiny", "default"]

_MAX_PERSISTENT_NUMEL = 4096


@dataclass(frozen=True, slots=True)
class _Extents:
    """The kept extent and the reduced one, as powers of two, with the rules of a device."""

    rules: DeviceRules
    x: int
    r: int
    hint: Hint = "default"

    def config(
        self,
        x_block: int,
        r_block: int,
        *,
        num_warps: int | None = None,
        min_warps: int = 2,
        register_intensive: bool = False,
        waves_per_eu: int | None = None,
    ) -> Config:
        """Return a config with blocks of these sizes, limited by the extents and the grid."""
        rows, part = min(x_block, self.x), min(r_block, self.r, self.rules.max_block("R0_"))
        goal = rows * part
        if num_warps is None:
            num_warps = r_block // 128 if self.hint == "inner" else goal // 128
        most = 16 if r_block <= 8192 else 32
        warps = self.rules.warps(num_warps, most=most, least=min_warps, register_intensive=register_intensive)
        rows = self.rules.within_grid(rows, self.x, warps)
        while rows * part > goal and part > 1:
            part //= 2
        blocks = [("XBLOCK", rows), ("R0_BLOCK", part)]
        return Config(with_waves(blocks, waves_per_eu), num_warps=warps, num_stages=1)


@generator
def reduction(
    xnumel: Numel, rnumel: Numel, hint: Hint = "default", *, target: Target | str = DEFAULT_TARGET
) -> list[Config]:
    """Return configs with ``XBLOCK`` and ``R0_BLOCK`` for a reduction of ``rnumel`` elements into each of ``xnumel``.

    ``hint`` says along what memory runs: ``inner`` is the reduced dimension, ``outer`` the kept one, ``tiny`` the kept
    one with few elements to reduce. A hint gives one config.
    """
    return _for_all_extents(_looping_configs, xnumel, rnumel, hint, target)


@generator
def persistent_reduction(
    xnumel: Numel, rnumel: Numel, hint: Hint = "default", *, target: Target | str = DEFAULT_TARGET
) -> list[Config]:
    """Return configs with ``XBLOCK`` for a reduction that holds whole rows in registers; a hint leaves few of them."""
    configs = _for_all_extents(_persistent_configs, xnumel, rnumel, hint, target)
    kept = (tuple(pair for pair in config.parameters if pair[0] != "R0_BLOCK") for config in configs)
    return distinct(replace(config, parameters=pairs) for config, pairs in zip(configs, kept, strict=True))


def _looping_configs(extents: _Extents) -> list[Config]:
    """Return the configs of a reduction that loops over its elements, for one hint or all."""
    rules, make, r = extents.rules, extents.config, extents.r
    longest = min(r, rules.longest_reduction_block)
    hinted = {
        "inner": make(2 if r <= 2048 else 1, longest),
        "outer": make(*((64, 8) if rules.is_amd else _outer_blocks(extents.x, r))),
        "tiny": make(_tiny_rows(r), longest),
    }
    if extents.hint in hinted:
        return [hinted[extents.hint]]
    more = [make(64, 64), make(8, 512), make(64, 4, num_warps=8)]
    if rules.is_amd:
        more += [make(1024, 8, num_warps=4, waves_per_eu=2), make(512, 8, num_warps=4, waves_per_eu=1)]
    return distinct([*hinted.values(), *more])


def _outer_blocks(x: int, r: int) -> tuple[int, int]:
    """Return rows and elements for a reduction along the slow dimension."""
    if x <= 1024:
        return max(min(x // 128, 8), 2), min(r, 64)
    if x // 4096 <= 8:
        return 16, 32
    rows = max(min(256, power_of_two(x // 4096)), 64)
    return rows, 512 // rows


def _tiny_rows(r: int) -> int:
    """Return the number of short rows per program."""
    return 2 * (256 // r) if r <= 256 else 1


def _persistent_configs(extents: _Extents) -> list[Config]:
    x, r, hint, rules = extents.x, extents.r, extents.hint, extents.rules
    row_blocks = (1, 4, 8, 16, 32, 64, 128, 256) if rules.is_amd else (1, 8, 32, 128)
    configs = [
        extents.config(block, r, register_intensive=True)
        for block in row_blocks
        if block == 1 or (r * block <= _MAX_PERSISTENT_NUMEL and block <= x)
    ]
    if hint == "inner" and r >= 256:
        if r > 1024 or x // 8 < 128:
            return configs[:1]
        return [extents.config(min(1024 // r, 8), r, register_intensive=True, num_warps=1, min_warps=1)]
    tiny = replace(extents, hint="default").config(_tiny_rows(r), r)
    return {"outer": configs[-1:], "tiny": [tiny]}.get(hint, configs)


def _for_all_extents(
    rule: Callable[[_Extents], list[Config]], xnumel: Numel, rnumel: Numel, hint: Hint, target: Target | str
) -> list[Config]:
    """Return the distinct configs of a rule for the extents, rounded up to powers of two.

    Raises:
        UsageError: there is no such hint, target or extent.
    """
    rules = rules_of(target)
    require_choice("hint", hint, get_args(Hint))
    return for_all_hints(lambda x, r: rule(_Extents(rules, x, r, hint)), xnumel, rnumel)
