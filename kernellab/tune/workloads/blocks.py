"""What all generators of configs share: extents as powers of two, and what a device allows of blocks and warps."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from kernellab.errors import UsageError, choice_message, value_message
from kernellab.measure.config import Config
from kernellab.target import DEFAULT_TARGET, Target, parse_target

Numel = int | range

MAX_BLOCK = {"X": 4096, "Y": 1024, "Z": 1024, "R0_": 65536, "R1_": 32768}
MAX_GRID = {"X": 2**31 - 1, "Y": 65535, "Z": 65535}
_MAX_BLOCK_X_OF_AMD = 8192


@dataclass(frozen=True, slots=True)
class DeviceRules:
    """What the rules ask of a device: its vendor, threads of a warp, and the generation, 9 for cuda:90 or gfx942."""

    is_amd: bool
    warp_size: int
    generation: int

    @property
    def longest_reduction_block(self) -> int:
        """The longest block along a reduced dimension that is tried without knowing more."""
        return 1024 if self.generation >= 10 else 2048

    def max_block(self, axis: str) -> int:
        """Return the largest block along an axis, ``X`` or ``R0_``."""
        return _MAX_BLOCK_X_OF_AMD if self.is_amd and axis == "X" else MAX_BLOCK[axis]

    def warps(self, wanted: int, *, most: int = 8, least: int = 2, register_intensive: bool = False) -> int:
        """Return a number of warps within limits that are meant for warps of 32 threads; those of 64 count twice."""
        if self.warp_size == 64:
            most, least = -(-most // 2), -(-least // 2)
        if register_intensive:
            most //= 2
        return power_of_two(min(max(wanted, least), most))

    def within_grid(self, block: int, hint: int, num_warps: int) -> int:
        """Return a block along x that is large enough for the grid: NVIDIA limits its programs, AMD its threads."""
        unit = num_warps * self.warp_size if self.is_amd else 1
        while -(-hint // block) * unit > MAX_GRID["X"] and block < min(hint, self.max_block("X")):
            block *= 2
        return block


def require_choice(parameter: str, got: object, choices: tuple[str, ...]) -> None:
    """Raise where a value is not among those that the rules know.

    Raises:
        UsageError: it is not.
    """
    if got not in choices:
        raise UsageError(choice_message(parameter, got, choices))


def rules_of(target: Target | str) -> DeviceRules:
    """Return what the rules ask of a target.

    Raises:
        UnknownTarget: a text names none.
    """
    found = parse_target(target) if isinstance(target, str) else target
    digits = re.sub(r"^gfx", "", str(found.arch))
    generation = int(digits[:-2]) if found.backend == "hip" else int(digits) // 10
    return DeviceRules(found.backend == "hip", found.warp_size, generation)


NVIDIA = rules_of(DEFAULT_TARGET)


def for_all_hints(rule: Callable[..., Iterable[Config]], *numels: Numel) -> list[Config]:
    """Return the distinct configs that a rule gives for the powers of two that the extents are rounded up to."""
    hints = product(*(list(hints_of(numel)) for numel in numels))
    return distinct(config for each in hints for config in rule(*each))


def hints_of(numel: Numel) -> Iterator[int]:
    """Yield the power of two that an extent is rounded up to; of a range, each that one of its members is, ascending.

    Raises:
        UsageError: the extent is neither, or a range without members.
    """
    if isinstance(numel, int):
        yield power_of_two(numel)
        return
    if not isinstance(numel, range) or not numel:
        raise UsageError(value_message("an extent", numel, "a number of elements, or a range with members"))
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
    """Return the smallest power of two that is no less."""
    return 1 << max(number - 1, 0).bit_length()


def with_waves(parameters: Iterable[tuple[str, int]], waves_per_eu: int | None) -> tuple[tuple[str, int], ...]:
    """Return parameters with the number of waves that the compiler for AMD is to make room for, where it is given."""
    return (*parameters, *([] if waves_per_eu is None else [("waves_per_eu", waves_per_eu)]))
