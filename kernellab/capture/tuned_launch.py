"""What a program keeps of a launch of an autotuned kernel: the grid for each config, and which config was chosen.

The config is not fixed: each run asks the autotuner, which has a choice for each value of its key. A program keeps the
config that it ran with, and says so, where hooks of the user belong to the configs (they have run in the block, and are
steps), or where the grid for another config is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernellab._triton.kernel import (
    OPTIONS,
    declared,
    jit_function,
    options_of_call,
    overridden,
    supplied_names,
    variant_with,
)
from kernellab.capture.tape import ConfigGrid, SeenTuning
from kernellab.errors import KernellabError
from kernellab.launch.calls import Grid3, checked_grid
from kernellab.launch.recording import Launched

_OF_USER = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def seen_tuning(owner: Any, launched: Launched) -> tuple[SeenTuning | None, str]:
    """Return what is kept of the choice of a launch, or None and, where the kernel is autotuned, why it is not kept."""
    tuner = declared(owner)
    if not tuner.configs:
        return None, ""
    if tuner.pre_hook or tuner.post_hook or any(config.pre_hook for config in tuner.configs):
        return None, "its configs have hooks, which ran in the block"
    options = options_of_call(owner)
    configs = overridden(tuner.configs, options)
    names = supplied_names(owner)
    constants = {p.name for p in launched.kernel.params if p.is_constexpr}
    arguments = {name: value for name, value in launched.arguments.items() if name not in names}
    others = {name: value for name, value in launched.options.items() if name not in OPTIONS}
    call = {**arguments, **others, **options}
    try:
        found = [_supplied(owner, call, config, names) for config in configs]
        grids = [_grid(launched, {**launched.arguments, **supplied}) for supplied in found]
    except _OF_USER as exc:  # of the user's own heuristics and grid, for a config that was not launched
        return None, f"the grid for another config fails: {exc}"
    current = {name: launched.arguments[name] for name in found[0]}
    ran = [i for i, supplied in enumerate(found) if supplied == current and _has_options(configs[i], launched)]
    if not ran or not _are_told_apart(found, grids):
        return None, "its configs cannot be told apart by what they set"
    given = {name: value for name, value in call.items() if name in constants or name not in launched.arguments}
    dtypes = [str(value.dtype) for value in launched.arguments.values() if hasattr(value, "dtype")]
    key = (*(launched.arguments.get(name) for name in tuner.key or ()), *dtypes)  # as Triton's autotuner makes it
    return SeenTuning(tuple(configs), tuple(found), tuple(grids), given, key, ran[0]), ""


def grid_for(configs: Sequence[tuple[Mapping[str, Any], Grid3]]) -> Grid3 | Callable[[Mapping[str, Any]], Grid3]:
    """Return the grid of a launch as a function of the arguments by name, which tell the config that was chosen."""
    first = configs[0][1]
    if all(type(extent) is int for _, grid in configs for extent in grid) and all(grid == first for _, grid in configs):
        return first

    def grid_of(meta: Mapping[str, Any]) -> Grid3:
        for supplied, grid in configs:
            if all(meta[name] == value for name, value in supplied.items()):
                return grid
        chosen = ", ".join(f"{name}={meta[name]}" for name in configs[0][0])
        raise KernellabError(f"The program has no grid for {chosen}, which it was not recorded with; capture it again.")

    return grid_of


def config_grids(tuning: SeenTuning, add_constants: Callable[[Mapping[str, Any]], int]) -> tuple[ConfigGrid, ...]:
    """Return the grids of the configs, with ids of what tells each from the others.

    That is what the config itself sets, if that is enough: what heuristics set is worked out anew at each run, and is
    another value for other arguments.
    """
    by_config = [
        {name: value for name, value in supplied.items() if name in config.kwargs}
        for supplied, config in zip(tuning.supplied, tuning.configs, strict=True)
    ]
    told_by = by_config if _are_told_apart(by_config, tuning.grids) else tuning.supplied
    return tuple(
        ConfigGrid(add_constants(supplied), tuple(supplied.items()), grid)
        for supplied, grid in zip(told_by, tuning.grids, strict=True)
    )


def require_changes(kernel: Any, handle: Any, recorded: frozenset[str]) -> None:
    """Raise `KernellabError` if what an autotuned launch chose changes other arguments than the recorded config did.

    The steps of a program, and what a functional one copies, follow from these.
    """
    effects = kernel.runtime.effects_of(handle)
    others = set() if effects is None else effects.mutated - recorded
    if others:
        raise KernellabError(
            f"{jit_function(kernel).__name__} was launched with a config that changes {', '.join(sorted(others))}, "
            "which the config of the recording does not; capture the program again with this one, or give all configs "
            "the same effects."
        )


def _supplied(owner: Any, call: Mapping[str, Any], config: Any, names: set[str]) -> dict[str, Any]:
    variant = variant_with(owner, (), call, config)
    return {name: variant.meta[name] for name in variant.function.arg_names if name in names}


def _grid(launched: Launched, arguments: Mapping[str, Any]) -> Grid3:
    given = launched.given_grid
    return checked_grid(given(arguments) if callable(given) else given, launched.kernel.__name__)


def _has_options(config: Any, launched: Launched) -> bool:
    wanted = {name: value for name, value in config.all_kwargs().items() if name in OPTIONS}
    return all(launched.options.get(name, launched.arguments.get(name)) == value for name, value in wanted.items())


def _are_told_apart(supplied: Sequence[Mapping[str, Any]], grids: Sequence[Grid3]) -> bool:
    """Tell whether configs that set the same parameters have the same grid."""
    pairs = list(zip(supplied, grids, strict=True))
    return all(grid == other for values, grid in pairs for others, other in pairs if values == others)
