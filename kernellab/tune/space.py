"""Search spaces: all combinations of some values that satisfy a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from types import CodeType
from typing import Any

from kernellab.errors import UsageError, value_message
from kernellab.measure.config import Config
from kernellab.measure.functions import called, require_names

Condition = str | Callable[..., bool]


class Space:
    """Every combination of the given values for which ``where`` holds.

    ``Space(BLOCK=[64, 128], num_warps=[2, 4, 8], where="BLOCK >= 32 * num_warps")``. ``where`` is an expression over
    the names of the space, or a function that takes them by keyword. Combinations are in the order in which nested
    loops over the names would give them.

    Raises:
        UsageError: a name has no values, or ``where`` is something else or uses a name that the space lacks.
    """

    def __init__(self, *, where: Condition | None = None, **values: Iterable[Any]) -> None:
        self.values: dict[str, tuple[Any, ...]] = {name: tuple(choices) for name, choices in values.items()}
        self.where = where
        if where is not None and not isinstance(where, str):
            if not callable(where):
                raise UsageError(value_message("where", where, "an expression or a function"))
            require_names(where, self.values, "where", "the space has")
        empty = [name for name, choices in self.values.items() if not choices]
        if empty:
            raise UsageError(f"{empty[0]} of the space has no values; give at least one.")
        self._code = self._compiled() if isinstance(where, str) else None

    @property
    def size(self) -> int:
        """The number of combinations, whether ``where`` holds for them or not."""
        return prod(len(choices) for choices in self.values.values())

    def __iter__(self) -> Iterator[Config]:
        return (config for config in map(self.at, range(self.size)) if self.allows(config.values))

    def at(self, index: int) -> Config:
        """Return combination number ``index``, which ``where`` may exclude."""
        found: dict[str, Any] = {}
        for name, choices in reversed(self.values.items()):
            index, digit = divmod(index, len(choices))
            found[name] = choices[digit]
        return Config.of({name: found[name] for name in self.values})

    def __contains__(self, config: object) -> bool:
        if not isinstance(config, Config):
            return False
        values = config.values
        known = all(name in values and values[name] in choices for name, choices in self.values.items())
        return known and self.allows(values)

    def allows(self, values: Mapping[str, Any]) -> bool:
        """Tell whether ``where`` holds for values by name, whatever the lists of the space say."""
        if self.where is None:
            return True
        own = {name: value for name, value in values.items() if name in self.values}
        if self._code is not None:
            return bool(eval(self._code, {"__builtins__": {}}, own))
        return bool(called(self.where, own, "where", "the space has"))

    def _compiled(self) -> CodeType:
        try:
            code = compile(str(self.where), "<where>", "eval")
        except SyntaxError as exc:
            raise UsageError(f"where is {self.where!r}; expected an expression: {exc.msg}.") from exc
        unknown = [name for name in code.co_names if name not in self.values]
        if unknown:
            names = ", ".join(self.values)
            raise UsageError(f"where uses {unknown[0]!r}, which the space lacks; it has {names}.")
        return code


def configs_of(given: Space | Sequence[Any]) -> list[Any]:
    """Return the `triton.Config`s of a space, or those of a list, in order; values may be configs of either kind.

    Raises:
        UsageError: there is none, or a member is something else.
    """
    import triton  # keeps this module light

    if isinstance(given, Mapping):
        values = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise UsageError(f"configs is a dict; expected a list of triton.Config, or a Space: Space({values}).")
    if isinstance(given, triton.Config | Config):
        given = [given]
    if not isinstance(given, Iterable):
        raise UsageError(f"configs is {given!r}; expected a list of triton.Config, or a Space: Space(BLOCK=[64, 128]).")
    found = []
    for member in given:
        if isinstance(member, Config):
            found.append(member.to_triton())
        elif isinstance(member, triton.Config):
            found.append(member)
        else:
            write = f": triton.Config({member!r})" if isinstance(member, Mapping) else ""
            raise UsageError(f"configs contains {member!r}; expected a triton.Config{write}.")
    if not found:
        raise UsageError("configs is empty; give at least one triton.Config, or a Space whose where holds somewhere.")
    return found
