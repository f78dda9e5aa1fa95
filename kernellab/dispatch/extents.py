"""How many programs a launch has, as a product of sizes over blocks: read off the grids that a user's function gave.

A rule has to know the programs of sizes that nobody launched, also where the grid function is gone. So the product is
looked for that gives all grids that were seen: of sizes, sizes over values of the config, rounded up, and constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import prod

from kernellab.dispatch.rule import Extent
from kernellab.launch.grid import Grid3
from kernellab.measure.config import Config

_MOST_FACTORS = 3


@dataclass(frozen=True, slots=True)
class SeenGrid:
    """The grid of a config for some sizes, as the user's function gave it."""

    sizes: Mapping[str, int]
    config: Config
    grid: Grid3


Factor = tuple[str, str | int]
"""A size over a parameter of the config, by its name, or over a number; "" as the size is a constant."""


@dataclass(frozen=True, slots=True)
class ProgramsFormula:
    """The number of programs as factors, and how many there are ``at_most``, as a persistent kernel has them."""

    factors: tuple[Factor, ...]
    at_most: int | None = None

    def extents(self, config: Config) -> tuple[Extent, ...]:
        """Return the factors for a config."""
        values = config.values
        return tuple(Extent(size, values[by] if isinstance(by, str) else by) for size, by in self.factors)

    @property
    def sizes(self) -> frozenset[str]:
        """The sizes that the number of programs depends on."""
        return frozenset(size for size, _ in self.factors if size)


def programs_formula(seen: Sequence[SeenGrid]) -> ProgramsFormula | None:
    """Return what gives the number of programs of all grids that were seen; None where no such product does."""
    if not seen:
        return None
    found = [_axis(seen, [each.grid[axis] for each in seen]) for axis in range(3)]
    if all(axis is not None for axis in found):
        return ProgramsFormula(tuple(factor for axis in found for factor in axis or ()))
    return _persistent(seen)


def _axis(seen: Sequence[SeenGrid], values: Sequence[int]) -> tuple[Factor, ...] | None:
    if len(set(values)) == 1 and len(seen) > 1:
        return () if values[0] == 1 else (("", values[0]),)
    for factors in _products(seen[0]):
        if all(_value(factors, each) == value for each, value in zip(seen, values, strict=True)):
            return factors
    return None


def _persistent(seen: Sequence[SeenGrid]) -> ProgramsFormula | None:
    """Return a product that gives the programs but where these are the most that were seen."""
    counts = [prod(each.grid) for each in seen]
    most = max(counts)
    for factors in _products(seen[0]):
        values = [_value(factors, each) for each in seen]
        if all(min(value, most) == count for value, count in zip(values, counts, strict=True)):
            return ProgramsFormula(factors, most)
    return None


def _products(first: SeenGrid) -> Iterator[tuple[Factor, ...]]:
    """Yield the products that may be, those of few factors first; a size is in each of them once."""
    blocks = [name for name, value in first.config.parameters if type(value) is int and value > 0]
    dividers: list[str | int] = [*blocks, 1]
    single: list[Factor] = [(size, by) for size in first.sizes for by in dividers]
    for count in range(1, _MOST_FACTORS + 1):
        for factors in combinations_with_replacement(single, count):
            sizes = [size for size, _ in factors]
            if len(set(sizes)) == count:
                yield factors


def _value(factors: Sequence[Factor], seen: SeenGrid) -> int:
    values = seen.config.values
    return prod(-(-seen.sizes[size] // (values[by] if isinstance(by, str) else by)) for size, by in factors)
