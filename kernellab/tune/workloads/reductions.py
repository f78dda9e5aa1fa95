"""Configs for reductions over one or two extents: looping over them, or persistent with whole rows in registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod
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
Reduced = Numel | tuple[Numel, Numel]

_MAX_PERSISTENT_NUMEL = 4096
_LONGEST_WHOLE_ROW = 32768


@dataclass(frozen=True, slots=True)
class _Kernel:
    """The properties of a reduction kernel that the rules use; see `reduction`."""

    loads: int = 0
    reductions: int = 0
    size_arguments: int = 0
    whole_rows: bool = False


@dataclass(frozen=True, slots=True)
class _Extents:
    """The kept extent and the reduced ones, as powers of two, with the rules of a device."""

    rules: DeviceRules
    x: int
    r: tuple[int, ...]
    hint: Hint = "default"

    @property
    def rnumel(self) -> int:
        """The number of elements that are reduced to one."""
        return prod(self.r)

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
        rows, parts = min(x_block, self.x), self.reduced_blocks(r_block)
        goal = rows * prod(parts.values())
        if num_warps is None:
            num_warps = r_block // 128 if self.hint == "inner" else goal // 128
        most = 16 if r_block <= 8192 else 32
        warps = self.rules.warps(num_warps, most=most, least=min_warps, register_intensive=register_intensive)
        rows = self.rules.within_grid(rows, self.x, warps)
        for name in sorted(parts):
            while rows * prod(parts.values()) > goal and parts[name] > 1:
                parts[name] //= 2
        return Config(with_waves([("XBLOCK", rows), *parts.items()], waves_per_eu), num_warps=warps, num_stages=1)

    def reduced_blocks(self, r_block: int) -> dict[str, int]:
        """Return a block over the reduced extents by name; it fills the last, contiguous extent first."""
        left = min(r_block, self.rnumel)
        parts: dict[str, int] = {}
        for place in reversed(range(len(self.r))):
            block = min(self.r[place], left, self.rules.max_block(f"R{place}_"))
            parts[f"R{place}_BLOCK"] = block
            left //= block
        return dict(sorted(parts.items()))


@generator
def reduction(
    xnumel: Numel,
    rnumel: Reduced,
    hint: Hint = "default",
    *,
    target: Target | str = DEFAULT_TARGET,
    loads: int = 0,
    reductions: int = 0,
    size_arguments: int = 0,
    whole_rows: bool = False,
    exhaustive: bool = False,
) -> list[Config]:
    """Return configs with ``XBLOCK`` and ``R0_BLOCK`` for a reduction of ``rnumel`` elements into each of ``xnumel``.

    Two reduced extents, (slow, fast), give ``R1_BLOCK`` for the fast one. ``hint`` says along what memory runs:
    ``inner`` is the reduced dimension, ``outer`` the kept one, ``tiny`` the kept one with few elements to reduce.
    ``loads`` and ``reductions`` count those of the kernel: from ten on, it gets half the block, for its registers.
    ``size_arguments`` counts sizes that the kernel takes in addition to the extents, for which addresses need
    registers. ``whole_rows`` puts a block as long as a row first. A hint gives one config; ``exhaustive`` gives all of
    them.
    """
    kernel = _Kernel(loads, reductions, size_arguments, whole_rows)
    one = None if hint == "default" or exhaustive else hint

    def of(extents: _Extents) -> list[Config]:
        return _looping_configs(extents.rules, kernel, extents.x, extents.rnumel, extents.config, one)

    return _for_all_extents(of, xnumel, rnumel, hint, target)


@generator
def persistent_reduction(
    xnumel: Numel,
    rnumel: Reduced,
    hint: Hint = "default",
    *,
    target: Target | str = DEFAULT_TARGET,
    same_for_any_rows: bool = False,
    exhaustive: bool = False,
) -> list[Config]:
    """Return configs with ``XBLOCK`` for a reduction that holds whole rows in registers.

    ``same_for_any_rows`` lets the number of rows, up to 4096, change neither blocks nor warps, and so no rounding.
    A hint leaves few configs; ``exhaustive`` gives all of them.
    """

    def of(extents: _Extents) -> list[Config]:
        rows = max(extents.x, 4096) if same_for_any_rows else extents.x
        return [_without_reduced_blocks(config) for config in _persistent_configs(replace(extents, x=rows), exhaustive)]

    return _for_all_extents(of, xnumel, rnumel, hint, target)


def _looping_configs(
    rules: DeviceRules, kernel: _Kernel, x: int, r: int, make: Callable[..., Config], one: Hint | None = None
) -> list[Config]:
    """Return the configs of a reduction that loops over its elements, for one hint or all (None).

    ``make`` returns a config from a block of rows, one of reduced elements, and what is known of the warps.
    """
    is_heavy = x >= 1024 and kernel.loads + kernel.reductions >= 10
    make_heavy = partial(make, register_intensive=is_heavy)
    longest = min(r, 1024 if is_heavy else rules.longest_reduction_block)
    rows, part, warps = (64, 8, None) if rules.is_amd else _outer_blocks(x, r, kernel)
    hinted = {
        "inner": make_heavy(2 if r <= 2048 else 1, longest),
        "outer": make_heavy(rows, part, num_warps=warps),
        "tiny": make_heavy(_tiny_rows(r), longest),
    }
    whole = []
    if kernel.whole_rows and kernel.loads + kernel.reductions <= 8:
        whole = [make_heavy(max(_MAX_PERSISTENT_NUMEL // r, 1), min(r, _LONGEST_WHOLE_ROW))]
    if one is not None:
        return [*whole, hinted[one]]
    more = [make(64, 64), make(8, 512), make(64, 4, num_warps=8)]
    if rules.is_amd:
        more += [make(1024, 8, num_warps=4, waves_per_eu=2), make(512, 8, num_warps=4, waves_per_eu=1)]
    return distinct([*whole, *hinted.values(), *more])


def _outer_blocks(x: int, r: int, kernel: _Kernel) -> tuple[int, int, int | None]:
    """Return rows, elements and warps for a reduction along the slow dimension."""
    if x <= 1024:
        return max(min(x // 128, 8), 2), min(r, 64), None
    if x // 4096 <= 8:
        return 16, 32, None
    if kernel.size_arguments > 1:
        return 64, max(min(r // 64, 64), 8), None
    if kernel.size_arguments == 1:
        return 64, 1 if kernel.loads >= 3 else min(power_of_two(max(r, 128) // 128), 8), None
    rows = max(min(256, power_of_two(x // 4096)), 64)
    if kernel.loads < 4 or r <= 128:
        return rows, 512 // rows, None
    return 32, 64 if r >= 2048 else 32, 4


def _tiny_rows(r: int) -> int:
    """Return the number of short rows per program."""
    return 2 * (256 // r) if r <= 256 else 1


def _persistent_row_blocks(rules: DeviceRules) -> tuple[int, ...]:
    """Return the numbers of rows to try for a program that holds whole rows."""
    return (1, 4, 8, 16, 32, 64, 128, 256) if rules.is_amd else (1, 8, 32, 128)


def _persistent_configs(extents: _Extents, exhaustive: bool) -> list[Config]:
    x, r, hint, rules = extents.x, extents.rnumel, extents.hint, extents.rules
    configs = [
        extents.config(block, r, register_intensive=True)
        for block in _persistent_row_blocks(rules)
        if block == 1 or (r * block <= _MAX_PERSISTENT_NUMEL and block <= x)
    ]
    tiny = replace(extents, hint="default").config(_tiny_rows(r), r)
    if exhaustive:
        return [*configs, tiny] if rules.is_amd else configs
    if hint == "inner" and r >= 256:
        if r > 1024 or x // 8 < 128:
            return configs[:1]
        return [extents.config(min(1024 // r, 8), r, register_intensive=True, num_warps=1, min_warps=1)]
    return {"outer": configs[-1:], "tiny": [tiny]}.get(hint, configs)


def _without_reduced_blocks(config: Config) -> Config:
    """Return the config without blocks of reduced extents, for a kernel that knows their lengths."""
    kept = tuple((name, value) for name, value in config.parameters if name not in {"R0_BLOCK", "R1_BLOCK"})
    return replace(config, parameters=kept)


def _for_all_extents(
    rule: Callable[[_Extents], list[Config]],
    xnumel: Numel,
    rnumel: Reduced | tuple[Numel],
    hint: Hint,
    target: Target | str,
) -> list[Config]:
    """Return the distinct configs of a rule for the extents, rounded up to powers of two.

    Raises:
        UsageError: there is no such hint, target or extent.
    """
    rules = rules_of(target)
    require_choice("hint", hint, get_args(Hint))
    reduced = rnumel if isinstance(rnumel, tuple) else (rnumel,)
    return for_all_hints(lambda x, *r: rule(_Extents(rules, x, r, hint)), xnumel, *reduced)
