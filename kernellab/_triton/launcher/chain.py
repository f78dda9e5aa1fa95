"""The decorators around a kernel, and its arguments as these see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from kernellab._triton.kernel import Kernel
from kernellab._triton.launcher.code import Kind


class Missing:
    """The value of a parameter that was not given."""


MISSING = Missing()


@dataclass(frozen=True, slots=True)
class Chain:
    """The decorators around a jit function: heuristics outside the tuner, the tuner, heuristics inside it."""

    function: Any
    heuristics: tuple[tuple[str, Any], ...] = ()
    tuner: Any = None
    inner_heuristics: tuple[tuple[str, Any], ...] = ()


def chain_of(kernel: Kernel) -> Chain | None:
    """Return the decorators of ``kernel``; None where they stand in an order that has no launch function."""
    outer: list[tuple[str, Any]] = []
    inner: list[tuple[str, Any]] = []
    tuner = None
    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, Heuristics):
            (inner if tuner is not None else outer).extend(kernel.values.items())
        elif isinstance(kernel, Autotuner) and tuner is None:
            tuner = kernel
        else:
            return None
        kernel = kernel.fn
    names = [*kernel.arg_names, *(name for name, _ in (*outer, *inner))]
    usual = all(parameter._param.kind.name == "POSITIONAL_OR_KEYWORD" for parameter in kernel.params)
    if not usual or any(name.startswith("_kl_") for name in names) or not _is_uniform(tuner):
        return None
    supplied = [name for name, _ in (*outer, *inner)] + ([] if tuner is None else list(tuner.configs[0].kwargs))
    if len(set(supplied)) != len(supplied) or not set(supplied) <= set(kernel.arg_names):
        return None
    return Chain(kernel, tuple(outer), tuner, tuple(inner))


def _is_uniform(tuner: Any) -> bool:
    """Tell whether all configs of a tuner set the same parameters."""
    return tuner is None or len({frozenset(config.kwargs) for config in tuner.configs}) == 1


def values_of(chain: Chain, args: tuple[Any, ...], meta: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a value for each parameter: given, default, None for one that a decorator supplies."""
    given = {**dict(zip(chain.function.arg_names, args, strict=False)), **meta}
    found = tuple(given.get(name, MISSING) for name in chain.function.arg_names)
    return values_with_defaults(chain, found)


def values_with_defaults(chain: Chain, values: tuple[Any, ...]) -> tuple[Any, ...]:
    supplied = supplied_by(chain)
    found = []
    for parameter, value in zip(chain.function.params, values, strict=True):
        absent = value is MISSING and parameter.has_default
        found.append(None if parameter.name in supplied else parameter.default if absent else value)
    return tuple(found)


def given_by(
    chain: Chain, values: tuple[Any, ...], rest: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a launch function as the user gave them: by position up to the first one left out."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    for parameter, value in zip(chain.function.params, values, strict=True):
        left_out = value is MISSING or (parameter.has_default and value is parameter.default and not rest)
        if left_out or named or len(args) < parameter.num:
            named.update({} if left_out else {parameter.name: value})
        else:
            args.append(value)
    return (*args, *rest), {**named, **options}


def tuning_key(chain: Chain, args: tuple[Any, ...], meta: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key under which an autotuner keeps its choice, as `Autotuner.run` makes it."""
    named = dict(zip(chain.tuner.arg_names, args, strict=False))
    for name, heuristic in chain.heuristics:
        meta = {**meta, name: heuristic({**named, **meta})}
    known = {name: value for name, value in {**named, **meta}.items() if name in chain.tuner.arg_names}
    key = [known[name] for name in chain.tuner.keys if name in known]
    return (*key, *(str(value.dtype) for value in known.values() if hasattr(value, "dtype")))


def supplied_by(chain: Chain) -> dict[str, Kind]:
    """Return the parameters that the decorators supply."""
    found = {name: Kind.HEURISTIC for name, _ in chain.heuristics}
    found.update({name: Kind.INNER_HEURISTIC for name, _ in chain.inner_heuristics})
    if chain.tuner is not None:
        found.update(dict.fromkeys(chain.tuner.configs[0].kwargs, Kind.CONFIG))
    return found
