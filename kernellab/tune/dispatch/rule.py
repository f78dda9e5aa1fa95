"""The rule of a dispatch: which config is launched for which sizes, as JSON and as Python source.

A measured case has its config in a table. For other sizes, each config has a cost: the time of a launch, of a wave, of
a wave per step of a size, and so on, fitted to the measurements. Configs differ in how their programs fill the
SMs. A wave is the programs that reside at a time; the last wave takes about as long as a full one. A
program may keep an SM busy alone, so the time also grows with rounds, the programs per SM.

The number of programs for new sizes is a formula: the product of sizes, sizes over values of the config (rounded up)
and constants that gives all observed grids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from math import prod
from numbers import Integral
from typing import Any, Literal

from kernellab.errors import UsageError
from kernellab.launch.calls import Grid3
from kernellab.source import MalformedData, is_name, reading, require, require_type
from kernellab.timing.config import Config

SCHEMA = 1
_MOST_FACTORS = 3
_DOCSTRING = '"""Return the place of the config for these sizes: as measured, else the one of least expected time."""'

Quantity = Literal["launch", "wave", "round"]
QUANTITIES: tuple[Quantity, ...] = ("launch", "wave", "round")

ALIGNMENT = 16
"""Triton compiles another kernel for a size that this does not divide: its accesses are then narrower."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A factor of the number of programs: ``size`` over ``block``, rounded up; just ``block`` if ``size`` is ""."""

    size: str
    block: int = 1

    def value(self, sizes: Mapping[str, int]) -> int:
        """Return the factor for some sizes."""
        return -(-sizes[self.size] // self.block) if self.size else self.block

    @property
    def source(self) -> str:
        """The factor as Python."""
        if not self.size or self.block == 1:
            return self.size or str(self.block)
        return f"-(-{self.size} // {self.block})"


@dataclass(frozen=True, slots=True)
class Term:
    """A term of the time model: per launch, wave or round, times the named sizes.

    With ``odd``, it counts only where that size is not a multiple of `ALIGNMENT`.
    """

    per: Quantity
    sizes: tuple[str, ...] = ()
    odd: str = ""

    def value(self, sizes: Mapping[str, int], waves: int, rounds: int) -> float:
        """Return the factor of this term's weight; an array if the sizes are arrays."""
        count = 1 if self.per == "launch" else waves if self.per == "wave" else rounds
        counts = not self.odd or sizes[self.odd] % ALIGNMENT > 0
        return 1.0 * count * prod(sizes[name] for name in self.sizes) * counts

    @property
    def source(self) -> str:
        """The term as Python over ``waves``, ``rounds`` and the sizes."""
        count = () if self.per == "launch" else (f"{self.per}s",)
        odd = (f"({self.odd} % {ALIGNMENT} > 0)",) if self.odd else ()
        return " * ".join((*count, *self.sizes, *odd))


@dataclass(frozen=True, slots=True)
class Cost:
    """The time of a config in milliseconds: a weight per term of the rule (``weights_ms``) times the term's value.

    ``programs`` are the factors of the number of its programs, of which ``slots`` run at a time on the whole device. Of
    a persistent kernel, they are those of the number of its tiles, and ``slots`` is the number of programs at most.
    """

    config: Config
    programs: tuple[Extent, ...]
    slots: int
    weights_ms: tuple[float, ...]

    def values(self, terms: Sequence[Term], sizes: Mapping[str, int], multiprocessors: int) -> list[float]:
        """Return the factor of each weight for some sizes."""
        programs = prod(extent.value(sizes) for extent in self.programs)
        waves, rounds = -(-programs // self.slots), -(-programs // multiprocessors)
        return [term.value(sizes, waves, rounds) for term in terms]

    def time_ms(self, terms: Sequence[Term], sizes: Mapping[str, int], multiprocessors: int) -> float:
        """Return the expected time for some sizes."""
        values = self.values(terms, sizes, multiprocessors)
        return sum(weight * value for weight, value in zip(self.weights_ms, values, strict=True))


@dataclass(frozen=True, slots=True)
class Rule:
    """Picks a config for sizes: the measured best of a ``known`` case, else the config of least cost.

    ``names`` are the sizes in the order of the keys of ``known``, whose values are places in ``costs``. It holds for a
    device with so many ``multiprocessors``.
    """

    names: tuple[str, ...]
    terms: tuple[Term, ...]
    costs: tuple[Cost, ...]
    multiprocessors: int
    known: Mapping[tuple[int, ...], int] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The rule as a function to read."""
        return self.source()

    @property
    def configs(self) -> tuple[Config, ...]:
        """The configs of the rule."""
        return tuple(cost.config for cost in self.costs)

    def place(self, **sizes: int) -> int:
        """Return the place in `configs` of the config for some sizes.

        Raises:
            UsageError: a size is missing, no integer, or none of the rule's.
        """
        key = self._key(sizes)
        place = self.known.get(key)
        return self.cheapest(dict(zip(self.names, key, strict=True))) if place is None else place

    def cheapest(self, sizes: Mapping[str, int]) -> int:
        """Return the place of the config with the least cost, ignoring known cases.

        Raises:
            UsageError: the rule has no configs.
        """
        if not self.costs:
            raise UsageError("The rule has no configs to pick from; give it the cost of one at least.")
        times_ms = [cost.time_ms(self.terms, sizes, self.multiprocessors) for cost in self.costs]
        return times_ms.index(min(times_ms))

    def _key(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        whole = {name: whole_number(value) for name, value in sizes.items()}
        if whole.keys() != set(self.names) or None in whole.values():
            shown = ", ".join(f"{name}={value!r}" for name, value in sizes.items()) or "nothing"
            raise UsageError(f"The rule was asked for {shown}; expected integers for {', '.join(self.names)}.")
        return tuple(whole[name] or 0 for name in self.names)

    def source(self, name: str = "choose") -> str:
        """Return the source of a Python function of the sizes with the same result as `place`; it imports nothing."""
        known = [f"        {key!r}: {place}," for key, place in self.known.items()]
        lookup = ["    known = {", *known, f"    }}.get(({', '.join(self.names)},))"] if known else ["    known = None"]
        lines = [
            f"def {name}({', '.join(self.names)}):",
            f"    {_DOCSTRING}",
            *lookup,
            "    if known is not None:",
            "        return known",
            "    times_ms = []",
        ]
        for cost in self.costs:
            programs = " * ".join(extent.source for extent in cost.programs) or "1"
            used = [(weight, term) for weight, term in zip(cost.weights_ms, self.terms, strict=True) if weight]
            parts = [" * ".join(filter(None, (f"{weight:.6g}", term.source))) for weight, term in used]
            lines += [
                f"    # {cost.config.text}",
                f"    programs = {programs}",
                f"    waves, rounds = -(-programs // {cost.slots}), -(-programs // {self.multiprocessors})",
                f"    times_ms.append({' + '.join(parts) or '0.0'})",
            ]
        return "\n".join([*lines, "    return times_ms.index(min(times_ms))", ""])

    @property
    def as_json(self) -> dict[str, Any]:
        """The rule as JSON values."""
        return {
            "schema": SCHEMA,
            "sizes": list(self.names),
            "multiprocessors": self.multiprocessors,
            "terms": [{"per": term.per, "sizes": list(term.sizes), "odd": term.odd} for term in self.terms],
            "configs": [
                {
                    "config": cost.config.stored,
                    "programs": [{"size": extent.size, "block": extent.block} for extent in cost.programs],
                    "slots": cost.slots,
                    "weights_ms": list(cost.weights_ms),
                }
                for cost in self.costs
            ],
            "known": [{"sizes": list(key), "config": place} for key, place in self.known.items()],
        }

    @classmethod
    def from_json(cls, stored: Any) -> Rule:
        """Return the rule from the values of `as_json`.

        Raises:
            UsageError: they are none of a rule.
        """
        try:
            with reading("it"):
                require(stored["schema"] == SCHEMA, "its schema", stored["schema"], f"{SCHEMA}, that of this release")
                rule = cls(
                    names=tuple(stored["sizes"]),
                    terms=tuple(Term(term["per"], tuple(term["sizes"]), term["odd"]) for term in stored["terms"]),
                    costs=tuple(map(_read_cost, stored["configs"])),
                    multiprocessors=stored["multiprocessors"],
                    known={tuple(case["sizes"]): case["config"] for case in stored["known"]},
                )
                _require_sound(rule)
                return rule
        except MalformedData as exc:
            raise UsageError(f"This is not a rule of a dispatch ({exc}); expected what Rule.as_json gives.") from exc


def whole_number(value: object) -> int | None:
    """Return an integer (numpy's included) as a Python int; None for anything else, and for a bool."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None


def _read_cost(stored: Any) -> Cost:
    programs = tuple(Extent(extent["size"], extent["block"]) for extent in stored["programs"])
    return Cost(Config.from_stored(stored["config"]), programs, stored["slots"], tuple(stored["weights_ms"]))


def _require_sound(rule: Rule) -> None:
    """Raise `MalformedData` unless a rule read from JSON is complete, and its source safe to execute."""
    require_type(rule, Rule, "the rule")
    extents = [extent for cost in rule.costs for extent in cost.programs]
    for name in rule.names:
        require(is_name(name), "a size", name, "a name")
    for name in (name for term in rule.terms for name in term.sizes):
        require(name in rule.names, "the size of a term", name, "one of the sizes")
    for name in (*(term.odd for term in rule.terms), *(extent.size for extent in extents)):
        require(name in (*rule.names, ""), "a size", name, "one of the sizes")
    for count in (rule.multiprocessors, *(cost.slots for cost in rule.costs), *(extent.block for extent in extents)):
        require(count > 0, "a number", count, "a positive integer")
    for cost in rule.costs:
        require(len(cost.weights_ms) == len(rule.terms), "a config", cost.config.text, "a weight for each term")
    for key, place in rule.known.items():
        require(len(key) == len(rule.names), "a known case", key, "a value for each size")
        require(0 <= place < len(rule.costs), "the config of a known case", place, "the place of one")
    require(bool(rule.costs), "its configs", rule.costs, "one at least")


@dataclass(frozen=True, slots=True)
class SeenGrid:
    """The grid of a config for some sizes, from the user's grid function."""

    sizes: Mapping[str, int]
    config: Config
    grid: Grid3


Factor = tuple[str, str | int]
"""A size over a parameter of the config, by its name, or over a number; with "" as the size, that itself."""


@dataclass(frozen=True, slots=True)
class ProgramsFormula:
    """The number of programs as factors, with a maximum ``at_most`` for a persistent kernel."""

    factors: tuple[Factor, ...]
    at_most: int | None = None

    def value(self, seen: SeenGrid) -> int:
        """Return the number for the sizes and the config of a grid."""
        product = prod(extent.value(seen.sizes) for extent in self.extents(seen.config))
        return product if self.at_most is None else min(product, self.at_most)

    def matches(self, seen: SeenGrid) -> bool:
        """Whether the formula gives the number of programs of a grid."""
        return self.value(seen) == prod(seen.grid)

    def extents(self, config: Config) -> tuple[Extent, ...]:
        """Return the factors for a config."""
        values = config.values
        return tuple(Extent(size, values[by] if isinstance(by, str) else by) for size, by in self.factors)

    @property
    def sizes(self) -> frozenset[str]:
        """The sizes that the number of programs depends on."""
        return frozenset(size for size, _ in self.factors if size)


def programs_formula(seen: Sequence[SeenGrid]) -> ProgramsFormula | None:
    """Return a formula for the number of programs of all these grids; None if no product fits."""
    if not seen:
        return None
    axes = [_axis(seen, [observed.grid[axis] for observed in seen]) for axis in range(3)]
    if all(axis is not None for axis in axes):
        return ProgramsFormula(tuple(factor for axis in axes for factor in axis or ()))
    most = max(prod(observed.grid) for observed in seen)  # of a persistent kernel
    formulas = (ProgramsFormula(factors, most) for factors in _products(seen[0]))
    return next((formula for formula in formulas if all(map(formula.matches, seen))), None)


def _axis(seen: Sequence[SeenGrid], values: Sequence[int]) -> tuple[Factor, ...] | None:
    if len(set(values)) == 1 and len(seen) > 1:
        return () if values[0] == 1 else (("", values[0]),)
    for formula in map(ProgramsFormula, _products(seen[0])):
        if all(formula.value(observed) == value for observed, value in zip(seen, values, strict=True)):
            return formula.factors
    return None


def _products(first: SeenGrid) -> Iterator[tuple[Factor, ...]]:
    """Yield candidate products, shortest first; each has a size at most once."""
    blocks = [name for name, value in first.config.parameters if type(value) is int and value > 0]
    dividers: list[str | int] = [*blocks, 1]
    single: list[Factor] = [(size, by) for size in first.sizes for by in dividers]
    single += [("", name) for name in blocks]
    for count in range(1, _MOST_FACTORS + 1):
        for factors in combinations_with_replacement(single, count):
            sizes = [size for size, _ in factors]
            if len(set(sizes)) == count:
                yield factors
