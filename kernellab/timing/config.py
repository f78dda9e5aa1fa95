"""Configs of a kernel as frozen, hashable values, and search spaces of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import CodeType
from typing import Any

from kernellab._triton.closure import value_key
from kernellab.checking.reference import require_names, select_arguments
from kernellab.errors import UsageError, first_line, value_message, value_text
from kernellab.source import CONFIG_OPTIONS

_IN_JSON = {bool, int, float, str, type(None)}


@dataclass(frozen=True, slots=True)
class NonJsonValue:
    """A value without a JSON form, such as an enum's member, as the store has it: its text and an identity key."""

    text: str
    key: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, eq=False)
class Config:
    """Values for the parameters of a kernel, and compile options. None means that an option is not set.

    The defaults are those of `triton.Config`. Hooks and the order of the parameters do not count for equality.
    """

    parameters: tuple[tuple[str, Any], ...] = ()
    num_warps: int | None = 4
    num_stages: int | None = 3
    num_ctas: int | None = 1
    maxnreg: int | None = None
    ir_override: str | None = None
    _cached_value: tuple[Any, ...] | None = field(default=None, init=False, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Config:
        """Return the config with these values; names of options set options."""
        options = {name: value for name, value in values.items() if name in CONFIG_OPTIONS}
        return cls(tuple((name, value) for name, value in values.items() if name not in CONFIG_OPTIONS), **options)

    @classmethod
    def from_stored(cls, values: Mapping[str, Any]) -> Config:
        """Return the config with these `stored` values; options that are not among them are not set."""
        members = {n: NonJsonValue(**value) if isinstance(value, Mapping) else value for n, value in values.items()}
        return cls.of({**dict.fromkeys(CONFIG_OPTIONS), **members})

    @classmethod
    def from_triton(cls, config: Any) -> Config:
        """Convert a `triton.Config`."""
        options = {name: getattr(config, name, None) for name in CONFIG_OPTIONS}
        return cls(tuple(config.kwargs.items()), **options)

    def to_triton(self) -> Any:
        """Return an equal `triton.Config`, without hooks."""
        import triton  # keeps this module light

        return triton.Config(dict(self.parameters), **self.options)

    @property
    def _value(self) -> tuple[Any, ...]:
        """The value for equality and hashing, cached: lists of thousands of configs are searched often."""
        value = self._cached_value
        if value is None:
            parameters = frozenset(
                (name, type(v) if type(v) in _IN_JSON else NonJsonValue, _identity_key(v))
                for name, v in self.parameters
            )
            value = (parameters, *(getattr(self, name) for name in CONFIG_OPTIONS))
            object.__setattr__(self, "_cached_value", value)
        return value

    @property
    def options(self) -> dict[str, Any]:
        """The options that are set."""
        return {name: value for name in CONFIG_OPTIONS if (value := getattr(self, name)) is not None}

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
        """Its `values` in JSON's types."""
        return {
            name: value if type(value) in _IN_JSON else {"text": str(value), "key": _identity_key(value)}
            for name, value in self.values.items()
        }

    def with_values(self, values: Mapping[str, Any]) -> Config:
        """Return the config with some values replaced."""
        options = {name: value for name, value in values.items() if name in CONFIG_OPTIONS}
        parameters = tuple((name, values.get(name, value)) for name, value in self.parameters)
        return replace(self, parameters=parameters, **options)


NO_CONFIG = Config(num_warps=None, num_stages=None, num_ctas=None)
"""The config that sets nothing."""


def _identity_key(value: Any) -> Any:
    """Return the identity of a value: an object's key, since 1 equals ``Mode.A`` of an `enum.IntEnum`."""
    if type(value) in _IN_JSON:
        return value
    return value.key if isinstance(value, NonJsonValue) else value_key(value)


Condition = str | Callable[..., bool]


class Space:
    """Every combination of the given values for which ``where`` holds.

    ``Space(BLOCK=[64, 128], num_warps=[2, 4, 8], where="BLOCK >= 32 * num_warps")``. ``where`` is an expression over
    the names of the space, or a function that takes them by keyword. Combinations are in the order of nested loops over
    the names.

    Raises:
        UsageError: a name has no values, or ``where`` has another type or uses a name that the space lacks.
    """

    def __init__(self, *, where: Condition | None = None, **values: Iterable[Any]) -> None:
        self.values = {name: listed_values(f"{name} of the space", choices) for name, choices in values.items()}
        self.where = where
        if where is not None and not isinstance(where, str):
            if not callable(where):
                raise UsageError(value_message("where", where, "an expression or a function"))
            require_names(where, self.values, "where", "the space has")
        empty = [name for name, choices in self.values.items() if not choices]
        if empty:
            raise UsageError(f"{empty[0]} of the space has no values; give at least one.")
        self._code = self._compile_where() if isinstance(where, str) else None

    @property
    def size(self) -> int:
        """The number of combinations, whether ``where`` holds for them or not."""
        return prod(len(choices) for choices in self.values.values())

    def __iter__(self) -> Iterator[Config]:
        return (config for config in map(self.at, range(self.size)) if self.allows(config.values))

    def at(self, index: int) -> Config:
        """Return combination number ``index``, which ``where`` may exclude."""
        values: dict[str, Any] = {}
        for name, choices in reversed(self.values.items()):
            index, digit = divmod(index, len(choices))
            values[name] = choices[digit]
        return Config.of({name: values[name] for name in self.values})

    def __contains__(self, config: object) -> bool:
        if not isinstance(config, Config):
            return False
        values = config.values
        known = all(name in values and values[name] in choices for name, choices in self.values.items())
        return known and self.allows(values)

    def allows(self, values: Mapping[str, Any]) -> bool:
        """Whether ``where`` holds for values by name; they need not be in the lists of the space."""
        if self.where is None:
            return True
        own = {name: value for name, value in values.items() if name in self.values}
        try:
            if self._code is not None:
                return bool(eval(self._code, {"__builtins__": {}}, own))
            assert callable(self.where), "what has no code is a function"
            return bool(self.where(**select_arguments(self.where, own)))
        except Exception as exc:
            where = repr(self.where) if isinstance(self.where, str) else getattr(self.where, "__name__", "the function")
            point = ", ".join(f"{name}={value_text(value)}" for name, value in own.items())
            raise UsageError(
                f"where {where} cannot be evaluated for {point}: {type(exc).__name__}: {first_line(exc)}."
            ) from exc

    def _compile_where(self) -> CodeType:
        try:
            code = compile(str(self.where), "<where>", "eval")
        except SyntaxError as exc:
            raise UsageError(f"where is {value_text(self.where)}; expected an expression: {exc.msg}.") from exc
        unknown = [name for name in code.co_names if name not in self.values]
        if unknown:
            names = ", ".join(self.values)
            raise UsageError(f"where uses {unknown[0]!r}, which the space lacks; it has {names}.")
        return code


def listed_values(name: str, values: Any) -> tuple[Any, ...]:
    """Return an iterable as a tuple; ``name`` stands for it in messages.

    Raises:
        UsageError: it is not an iterable, or its iteration fails.
    """
    try:
        if not isinstance(values, str | bytes):
            return tuple(values)
    except Exception as exc:
        raise UsageError(value_message(name, values, "a list of values, such as [64, 128]")) from exc
    raise UsageError(value_message(name, values, "a list of values, such as [64, 128]"))


def configs_of(configs: Space | Sequence[Any]) -> list[Any]:
    """Return the `triton.Config`s of a space or a list, in order; members may be configs of either kind.

    Raises:
        UsageError: there is none, or a member has another type.
    """
    import triton  # keeps this module light

    if isinstance(configs, Mapping):
        values = ", ".join(f"{name}={value!r}" for name, value in configs.items())
        raise UsageError(f"configs is a dict; expected a list of triton.Config, or a Space: Space({values}).")
    if isinstance(configs, triton.Config | Config):
        configs = [configs]
    if not isinstance(configs, Iterable):
        raise UsageError(
            f"configs is {value_text(configs)}; expected a list of triton.Config, or a Space: Space(BLOCK=[64, 128])."
        )
    triton_configs = []
    for member in configs:
        if isinstance(member, Config):
            triton_configs.append(member.to_triton())
        elif isinstance(member, triton.Config):
            triton_configs.append(member)
        else:
            write = f": triton.Config({member!r})" if isinstance(member, Mapping) else ""
            raise UsageError(f"configs contains {value_text(member)}; expected a triton.Config{write}.")
    if not triton_configs:
        raise UsageError("configs is empty; give at least one triton.Config, or a Space whose where holds somewhere.")
    return triton_configs
