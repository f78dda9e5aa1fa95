"""Common rules of all generators of configs: extents as powers of two, limits of a device on blocks and warps."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from numbers import Integral
from typing import Any, TypeVar

from kernellab.errors import UsageError, value_message
from kernellab.launch import calls
from kernellab.launch.verbs import CallRule, is_number, verb
from kernellab.target import Target, parse_target
from kernellab.timing.config import Config

Numel = int | range

MAX_BLOCK = {"X": 4096, "Y": 1024, "Z": 1024, "R0_": 65536}
MAX_GRID = dict(zip("XYZ", calls.MAX_GRID, strict=True))
_MAX_BLOCK_X_OF_AMD = 8192
_MAX_EXTENT = 2**63

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _is_extent(value: object) -> bool:
    if isinstance(value, range):
        return bool(value) and min(value[0], value[-1]) >= 0
    return isinstance(value, Integral) and is_number(value) and 0 <= int(value) < _MAX_EXTENT


_EXTENT = CallRule("a number of elements from 0 on, or a range with members from 0 on", _is_extent)
_POSITIVE = CallRule("a positive integer", lambda value: type(value) is int and 0 < value < _MAX_EXTENT)
_RULES = {
    **dict.fromkeys(("xnumel", "rnumel", "m", "n", "k", "queries", "keys"), _EXTENT),
    **dict.fromkeys(("element_bytes", "width"), _POSITIVE),
}


def generator(make: _Function) -> _Function:
    """Return a public generator of configs that checks its arguments: it raises `UsageError` for a wrong call."""
    return verb(make, f"workloads.{make.__name__}", _RULES)


@dataclass(frozen=True, slots=True)
class DeviceRules:
    """The properties of a device that the rules use: vendor, threads per warp, generation (9 for cuda:90, gfx942)."""

    is_amd: bool
    warp_size: int
    generation: int

    def max_block(self, axis: str) -> int:
        """Return the largest block along an axis, ``X`` or ``R0_``."""
        return _MAX_BLOCK_X_OF_AMD if self.is_amd and axis == "X" else MAX_BLOCK[axis]

    def warps(self, wanted: int, *, most: int = 8, least: int = 2, register_intensive: bool = False) -> int:
        """Return a number of warps within limits for warps of 32 threads; a warp of 64 counts twice."""
        if self.warp_size == 64:
            most, least = -(-most // 2), -(-least // 2)
        if register_intensive:
            most //= 2
        return power_of_two(min(max(wanted, least), most))

    def within_grid(self, block: int, hint: int, num_warps: int) -> int:
        """Return a block along x, doubled until the grid fits: NVIDIA limits its programs, AMD its threads."""
        unit = num_warps * self.warp_size if self.is_amd else 1
        while -(-hint // block) * unit > MAX_GRID["X"] and block < min(hint, self.max_block("X")):
            block *= 2
        return block


def rules_of(target: Target | str) -> DeviceRules:
    """Return the properties of a target that the rules use.

    Raises:
        UnknownTarget: a text names none.
    """
    parsed = parse_target(target) if isinstance(target, str) else target
    digits = re.sub(r"^gfx", "", str(parsed.arch))
    generation = int(digits[:-2]) if parsed.backend == "hip" else int(digits) // 10
    return DeviceRules(parsed.backend == "hip", parsed.warp_size, generation)


def for_all_hints(rule: Callable[..., Iterable[Config]], *numels: Numel) -> list[Config]:
    """Return the distinct configs of a rule for all powers of two that the extents are rounded up to."""
    hints = product(*(list(hints_of(numel)) for numel in numels))
    return distinct(config for combination in hints for config in rule(*combination))


def hints_of(numel: Numel) -> Iterator[int]:
    """Yield the power of two that an extent is rounded up to; for a range, those of its members, ascending.

    Raises:
        UsageError: the extent is neither, or a range without members.
    """
    if not _is_extent(numel):
        raise UsageError(value_message("an extent", numel, _EXTENT.expected))
    if not isinstance(numel, range):
        yield power_of_two(int(numel))
        return
    members = numel if numel.step > 0 else numel[::-1]
    power = power_of_two(members[0])
    while power < 2 * max(members[-1], 1):
        at = bisect_left(members, power // 2 + 1 if power > 1 else members[0])
        if at < len(members) and members[at] <= power:
            yield power
        power *= 2


def distinct(configs: Iterable[Config]) -> list[Config]:
    """Return each config once, in order."""
    return list(dict.fromkeys(configs))


def power_of_two(number: int) -> int:
    """Round up to a power of two."""
    return 1 << max(number - 1, 0).bit_length()


def with_waves(parameters: Iterable[tuple[str, int]], waves_per_eu: int | None) -> tuple[tuple[str, int], ...]:
    """Return parameters with ``waves_per_eu`` (waves that the AMD compiler makes room for), unless it is None."""
    return (*parameters, *([] if waves_per_eu is None else [("waves_per_eu", waves_per_eu)]))
