"""The rule of a dispatch: which config is launched for which sizes, as data that JSON holds and Python source says.

A case that was measured has its config in a table. For other sizes, each config has a cost: the time of a launch, of a
wave, of a wave for each step of a size, and so on, fitted to what was measured. What tells configs apart is how their
programs fill the multiprocessors: so many reside at a time, which is a wave, and the last wave takes about as long as a
full one. Where a multiprocessor is busy with one program, what resides beside it waits: so the time also grows with how
many programs fall to one multiprocessor, which are called rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from numbers import Integral
from typing import Any, Literal, cast

from kernellab.errors import UsageError
from kernellab.measure.config import Config

SCHEMA = 1

Quantity = Literal["launch", "wave", "round"]
QUANTITIES: tuple[Quantity, ...] = ("launch", "wave", "round")

ALIGNMENT = 16
"""Triton compiles another kernel for a size that this does not divide: its accesses are then narrower."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A factor of the number of programs: a size over ``block``, rounded up; ``size`` "" is the constant ``block``."""

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
    """What a part of the time grows with: a launch, its waves or its rounds, times the sizes that are named.

    With ``odd``, it counts only where that size is no multiple of `ALIGNMENT`.
    """

    per: Quantity
    sizes: tuple[str, ...] = ()
    odd: str = ""

    def value(self, sizes: Mapping[str, int], waves: int, rounds: int) -> float:
        """Return what the milliseconds of this term are multiplied with."""
        count = 1 if self.per == "launch" else waves if self.per == "wave" else rounds
        counts = not self.odd or sizes[self.odd] % ALIGNMENT > 0
        return float(count * prod(sizes[name] for name in self.sizes) * counts)

    @property
    def source(self) -> str:
        """The term as Python over ``waves``, ``rounds`` and the sizes."""
        count = () if self.per == "launch" else (f"{self.per}s",)
        odd = (f"({self.odd} % {ALIGNMENT} > 0)",) if self.odd else ()
        return " * ".join((*count, *self.sizes, *odd))


@dataclass(frozen=True, slots=True)
class Cost:
    """The time of a config in milliseconds: ``weights_ms``, one for each term of the rule, times what these count.

    ``programs`` are the factors of the number of its programs, of which ``slots`` run at a time on the whole device. Of
    a persistent kernel, they are those of the number of its tiles, and ``slots`` is the number of programs at most.
    """

    config: Config
    programs: tuple[Extent, ...]
    slots: int
    weights_ms: tuple[float, ...]

    def values(self, terms: Sequence[Term], sizes: Mapping[str, int], multiprocessors: int) -> list[float]:
        """Return what each weight is multiplied with for some sizes."""
        programs = prod(extent.value(sizes) for extent in self.programs)
        waves, rounds = -(-programs // self.slots), -(-programs // multiprocessors)
        return [term.value(sizes, waves, rounds) for term in terms]

    def time_ms(self, terms: Sequence[Term], sizes: Mapping[str, int], multiprocessors: int) -> float:
        """Return the expected time for some sizes."""
        values = self.values(terms, sizes, multiprocessors)
        return sum(weight * value for weight, value in zip(self.weights_ms, values, strict=True))


@dataclass(frozen=True, slots=True)
class Rule:
    """Picks a config for sizes: that of a ``known`` case, else the one whose cost is least.

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
        """The configs that it picks from."""
        return tuple(cost.config for cost in self.costs)

    def place(self, **sizes: int) -> int:
        """Return the place in `configs` of the config for some sizes.

        Raises:
            UsageError: a size is missing, no integer, or none of the rule's.
        """
        key = self._key(sizes)
        found = self.known.get(key)
        return self.cheapest(dict(zip(self.names, key, strict=True))) if found is None else found

    def cheapest(self, sizes: Mapping[str, int]) -> int:
        """Return the place of the config whose cost is least, whatever is known of these sizes.

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
            given = ", ".join(f"{name}={value!r}" for name, value in sizes.items()) or "nothing"
            raise UsageError(f"The rule was asked for {given}; expected integers for {', '.join(self.names)}.")
        return tuple(whole[name] or 0 for name in self.names)

    def source(self, name: str = "choose") -> str:
        """Return a Python function of the sizes that gives what `place` gives, and needs nothing else."""
        return _source(self, name)

    @property
    def as_json(self) -> dict[str, Any]:
        """The rule as values that JSON has."""
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
    def from_json(cls, given: Any) -> Rule:
        """Return the rule of such values.

        Raises:
            UsageError: they are none of a rule.
        """
        try:
            return _read(given)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            text = f"{type(exc).__name__}: {exc}"
            raise UsageError(f"This is no rule of a dispatch ({text}); expected what Rule.as_json gives.") from exc


def whole_number(value: object) -> int | None:
    """Return an integer, of numpy's kinds as well, as one of Python; None for anything else, a bool included."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None


def _source(rule: Rule, name: str) -> str:
    names = ", ".join(rule.names)
    known = [f"        {key!r}: {place}," for key, place in rule.known.items()]
    lines = [
        f"def {name}({names}):",
        '    """Return the place of the config for these sizes: as measured, else the one of least expected time."""',
        *(["    known = {", *known, f"    }}.get(({names},))"] if known else ["    known = None"]),
        "    if known is not None:",
        "        return known",
        "    times_ms = []",
    ]
    for cost in rule.costs:
        lines += [f"    # {cost.config.text}", *(f"    {line}" for line in _cost_lines(rule, cost))]
    return "\n".join([*lines, "    return times_ms.index(min(times_ms))", ""])


def _cost_lines(rule: Rule, cost: Cost) -> list[str]:
    programs = " * ".join(extent.source for extent in cost.programs) or "1"
    used = [(weight, term) for weight, term in zip(cost.weights_ms, rule.terms, strict=True) if weight]
    parts = [" * ".join(filter(None, (f"{weight:.6g}", term.source))) for weight, term in used]
    return [
        f"programs = {programs}",
        f"waves, rounds = -(-programs // {cost.slots}), -(-programs // {rule.multiprocessors})",
        f"times_ms.append({' + '.join(parts) or '0.0'})",
    ]


def _read(given: Any) -> Rule:
    if given["schema"] != SCHEMA:
        raise ValueError(f"its schema is {given['schema']!r}, and this release reads {SCHEMA}")
    names = tuple(_name(name) for name in given["sizes"])
    terms = tuple(_read_term(term, names) for term in given["terms"])
    costs = tuple(_read_cost(cost, names, len(terms)) for cost in given["configs"])
    known = {_read_key(entry["sizes"], names): int(entry["config"]) for entry in given["known"]}
    if not costs or not all(0 <= place < len(costs) for place in known.values()):
        raise ValueError("a known case has no config")
    return Rule(names, terms, costs, _positive(given["multiprocessors"]), known)


def _read_term(given: Any, names: tuple[str, ...]) -> Term:
    sizes = tuple(_of(name, names) for name in given["sizes"])
    return Term(_quantity(given["per"]), sizes, _of(given["odd"], (*names, "")))


def _read_cost(given: Any, names: tuple[str, ...], terms: int) -> Cost:
    programs = tuple(
        Extent(_of(extent["size"], (*names, "")), _positive(extent["block"])) for extent in given["programs"]
    )
    weights_ms = tuple(float(weight) for weight in given["weights_ms"])
    if len(weights_ms) != terms:
        raise ValueError(f"{len(weights_ms)} weights for {terms} terms")
    return Cost(Config.from_stored(given["config"]), programs, _positive(given["slots"]), weights_ms)


def _read_key(given: Any, names: tuple[str, ...]) -> tuple[int, ...]:
    key = tuple(int(value) for value in given)
    if len(key) != len(names):
        raise ValueError(f"a known case has {len(key)} sizes, the rule {len(names)}")
    return key


def _name(given: Any) -> str:
    if not (isinstance(given, str) and given.isidentifier()):
        raise ValueError(f"{given!r} is no name of a size")
    return given


def _of(given: Any, names: Sequence[str]) -> str:
    if given not in names:
        raise ValueError(f"{given!r} is none of the sizes")
    return str(given)


def _quantity(given: Any) -> Quantity:
    if given not in QUANTITIES:
        raise ValueError(f"{given!r} is none of {', '.join(QUANTITIES)}")
    return cast(Quantity, given)


def _positive(given: Any) -> int:
    if type(given) is not int or given < 1:
        raise ValueError(f"{given!r} is no positive integer")
    return given
