"""From what a user gives for a parameter to the values that its control goes through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from kernellab.errors import UsageError

MOST_CHOICES = 1000
_EVERY_VALUE = 256  # a range with at most so many values has all of them on its slider
_STEPS_PER_OCTAVE = 4


@dataclass(frozen=True, slots=True)
class Control:
    """A parameter with the values that it can take, in the order of its slider.

    ``span`` are the bounds of a range of integers: any value between them can be set, also one that is no stop of the
    slider.
    """

    name: str
    choices: tuple[Any, ...]
    start: Any
    span: tuple[int, int] | None = None

    @property
    def is_toggle(self) -> bool:
        return len(self.choices) == 2 and all(isinstance(choice, bool) for choice in self.choices)

    def with_choice(self, value: Any) -> Control:
        """Return the control with a value among its stops.

        Raises:
            UsageError: it cannot take that value.
        """
        if _holds(self.choices, value):
            return self
        if self.span is None:
            shown = ", ".join(map(label_of, self.choices))
            raise UsageError(f"{self.name} is {value!r}; expected one of {shown}.")
        low, high = self.span
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise UsageError(f"{self.name} is {value!r}; expected an integer from {low} to {high}.")
        return replace(self, choices=tuple(sorted((*self.choices, value))))


def control_of(name: str, given: Any, start: Any = None) -> Control | None:
    """Return the control for what was given: a list of values, or a tuple (low, high); None for a single value.

    ``[64, ..., 4096]`` goes by factors of two, ``[1, 2, ..., 5]`` by the step that the leading values have.

    Raises:
        UsageError: the list is empty, or has no such step; the tuple is no range of integers.
    """
    if isinstance(given, tuple) and len(given) == 2 and all(map(_is_integer, given)):
        low, high = given
        if low > high:
            raise UsageError(f"{name} is {given!r}; expected (low, high) with low <= high.")
        control = Control(name, spread(low, high), high, (low, high))
    elif isinstance(given, list | range):
        choices = tuple(_without_repeats(expanded(name, list(given))))
        control = Control(name, choices, choices[0])
    else:
        return None
    return control if start is None else replace(control.with_choice(start), start=start)


def expanded(name: str, values: Sequence[Any]) -> list[Any]:
    """Return a list with its ``...`` filled in.

    Raises:
        UsageError: see `control_of`.
    """
    if not values:
        raise UsageError(f"{name} is an empty list; give at least one value.")
    place = next((index for index, value in enumerate(values) if value is Ellipsis), None)
    if place is None:
        return list(values)
    leading, last = list(values[:place]), list(values[place + 1 :])
    if not leading or len(last) != 1 or not all(map(_is_integer, [*leading, *last])):
        raise UsageError(f"{name} is {_shown(values)}; expected integers around one ..., such as [64, ..., 4096].")
    step = _step(leading, last[0])
    if step is None:
        raise UsageError(
            f"{name} is {_shown(values)}; no factor of two and no step leads from {leading[-1]} to {last[0]}."
        )
    if len(step) > MOST_CHOICES:
        raise UsageError(
            f"{name} is {_shown(values)}, which are {len(step):,} values and more; a slider has {MOST_CHOICES} at "
            f"most. A range of integers is a tuple: ({leading[0]}, {last[0]})."
        )
    return [*leading[:-1], *step]


def spread(low: int, high: int) -> tuple[int, ...]:
    """Return the stops of a range: all its integers, or where these are many, some on a logarithmic scale."""
    if high - low < _EVERY_VALUE:
        return tuple(range(low, high + 1))
    if low < 0:
        count = _EVERY_VALUE - 1
        return tuple(sorted({low + round(i * (high - low) / count) for i in range(count + 1)}))
    powers = (round(2 ** (i / _STEPS_PER_OCTAVE)) for i in range(_STEPS_PER_OCTAVE * high.bit_length() + 1))
    return tuple(sorted({low, high, *(value for value in powers if low <= value <= high)}))


def powers_around(value: int, octaves: int = 3, most: int = 1 << 16) -> tuple[int, ...]:
    """Return the powers of two from ``value`` down and up by some factors of two."""
    low, high = max(1, value >> octaves), max(value, min(value << octaves, most))
    return tuple(1 << i for i in range(low.bit_length() - 1, high.bit_length()))


def label_of(value: Any) -> str:
    """Return how a value is written on a slider: ``1,048,576``, ``fp16``, ``True``."""
    if _is_integer(value):
        return f"{value:,}" if abs(value) >= 100_000 else str(value)
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    return name if isinstance(name, str) else str(value)


def values_text(values: Mapping[str, Any]) -> str:
    """Return values in words: ``BLOCK=128, num_warps=4``."""
    return ", ".join(f"{name}={label_of(value)}" for name, value in values.items())


def is_power_of_two(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0 and value & (value - 1) == 0


def _step(leading: list[int], last: int) -> Sequence[int] | None:
    """Return the values from the last of the leading ones to the end; doubling where these double, else their step."""
    first = leading[-1]
    pairs = list(pairwise(leading))
    if all(b == 2 * a for a, b in pairs) and leading != [1, 2]:  # 1, 2, ... counts on, as everywhere
        powers = [first]
        while 0 < powers[-1] < last:
            powers.append(2 * powers[-1])
        if powers[-1] == last:
            return powers
    if len({b - a for a, b in pairs}) != 1:
        return None
    step = leading[-1] - leading[-2]
    reaches = step != 0 and (last - first) % step == 0 and (last - first) // step > 0
    return range(first, last + step, step) if reaches else None


def _without_repeats(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not _holds(found, value):
            found.append(value)
    return found


def _holds(values: Iterable[Any], value: Any) -> bool:
    return any(type(each) is type(value) and each == value for each in values)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(values: Sequence[Any]) -> str:
    return "[" + ", ".join("..." if value is Ellipsis else repr(value) for value in values) + "]"
