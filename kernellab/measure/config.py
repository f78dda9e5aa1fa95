"""One config of a kernel, as a frozen value that can be compared, hashed and kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab._triton.closure import value_key

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")


_IN_JSON = {bool, int, float, str, type(None)}


@dataclass(frozen=True, slots=True)
class Kept:
    """A value that JSON has no form for, an enum's member say, as the store has it: its text, and a key of its own."""

    text: str
    key: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, eq=False)
class Config:
    """Values for the parameters of a kernel, and compile options. None means that an option is not set.

    The defaults are those of `triton.Config`. Neither a hook nor the order of the parameters is part of the value: two
    configs that differ in these alone are the same config.
    """

    parameters: tuple[tuple[str, Any], ...] = ()
    num_warps: int | None = 4
    num_stages: int | None = 3
    num_ctas: int | None = 1
    maxnreg: int | None = None
    ir_override: str | None = None
    _known_value: tuple[Any, ...] | None = field(default=None, init=False, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Config:
        """Return the config with these values; names of options set options."""
        options = {name: value for name, value in values.items() if name in OPTIONS}
        return cls(tuple((name, value) for name, value in values.items() if name not in OPTIONS), **options)

    @classmethod
    def from_stored(cls, values: Mapping[str, Any]) -> Config:
        """Return a config equal to the one that has these `stored` values."""
        return cls.of({name: Kept(**value) if isinstance(value, Mapping) else value for name, value in values.items()})

    @classmethod
    def from_triton(cls, config: Any) -> Config:
        """Return the value of a `triton.Config`."""
        options = {name: getattr(config, name, None) for name in OPTIONS}
        return cls(tuple(config.kwargs.items()), **options)

    def to_triton(self) -> Any:
        """Return an equal `triton.Config`, without hooks."""
        import triton  # keeps this module light

        return triton.Config(dict(self.parameters), **self.options)

    @property
    def _value(self) -> tuple[Any, ...]:
        """What is compared; kept, since a list of thousands of configs is looked up again and again."""
        value = self._known_value
        if value is None:
            told = frozenset((name, type(v) if type(v) in _IN_JSON else Kept, _told(v)) for name, v in self.parameters)
            value = (told, *(getattr(self, name) for name in OPTIONS))
            object.__setattr__(self, "_known_value", value)
        return value

    @property
    def options(self) -> dict[str, Any]:
        """The options that are set."""
        return {name: value for name in OPTIONS if (value := getattr(self, name)) is not None}

    @property
    def values(self) -> dict[str, Any]:
        """Parameters and set options: the keyword arguments that the config adds to a launch."""
        return {**dict(self.parameters), **self.options}

    @property
    def text(self) -> str:
        """The config in words: ``BLOCK=64, num_warps=4, num_stages=3``."""
        shown = {name: value for name, value in self.values.items() if not (name == "num_ctas" and value == 1)}
        return ", ".join(f"{name}={value}" for name, value in shown.items())

    @property
    def key(self) -> str:
        """A text that equal configs share, across sessions."""
        return json.dumps(self.stored, sort_keys=True, separators=(",", ":"))

    @property
    def stored(self) -> dict[str, Any]:
        """Its `values` as JSON has them."""
        return {name: _stored(value) for name, value in self.values.items()}

    def with_values(self, values: Mapping[str, Any]) -> Config:
        """Return the config with some values replaced."""
        options = {name: value for name, value in values.items() if name in OPTIONS}
        parameters = tuple((name, values.get(name, value)) for name, value in self.parameters)
        return replace(self, parameters=parameters, **options)


def _told(value: Any) -> Any:
    """Return what tells a value from others: a key of an object, since 1 equals ``Mode.A`` of an `enum.IntEnum`."""
    if type(value) in _IN_JSON:
        return value
    return value.key if isinstance(value, Kept) else value_key(value)


def _stored(value: Any) -> Any:
    return value if type(value) in _IN_JSON else {"text": str(value), "key": _told(value)}
