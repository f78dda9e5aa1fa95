"""The decorators of a kernel: autotuners and heuristics, what each was told, and the arguments that they give it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import triton
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from kernellab._triton.kernel import Kernel
from kernellab.errors import UsageError
from kernellab.source import Autotune as SourceAutotune
from kernellab.source import Binding, Opaque, Wrapper
from kernellab.source import Heuristics as SourceHeuristics


@dataclass(frozen=True, slots=True)
class Variant:
    """A jit function with the arguments of one config. ``config`` names the config, or is "" where there is none."""

    function: Any
    meta: Mapping[str, Any]
    config: str


def variants(kernel: Kernel, args: tuple[Any, ...], meta: Mapping[str, Any]) -> Iterator[Variant]:
    """Yield one variant per config of the kernel, heuristics applied in the order of the decorators.

    A config parameter that the caller gives himself wins over the config's.
    """
    yield from _expanded(kernel, args, dict(meta), "")


def _expanded(kernel: Kernel, args: tuple[Any, ...], meta: dict[str, Any], config: str) -> Iterator[Variant]:
    if isinstance(kernel, JITFunction):
        yield Variant(kernel, meta, config)
    elif isinstance(kernel, Autotuner):
        for choice in kernel.configs:
            yield from _expanded(kernel.fn, args, {**choice.all_kwargs(), **meta}, str(choice))
    elif isinstance(kernel, Heuristics):
        named = dict(zip(kernel.arg_names, args, strict=False))
        for name, heuristic in kernel.values.items():
            meta = {**meta, name: heuristic({**named, **meta})}
        yield from _expanded(kernel.fn, args, meta, config)
    else:
        yield from _expanded(kernel.fn, args, meta, config)


def best_config(kernel: Kernel, compiled: Mapping[str, Any]) -> str:
    """Return the config that an autotuned kernel took at its last launch, in words, or "".

    Its options are those that it was ``compiled`` with: heuristics below the autotuner win over its configs.
    """
    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, Autotuner):
            config = getattr(kernel, "best_config", None)
            values = {} if config is None else config.all_kwargs()
            shown = {name: compiled.get(name, value) if name in OPTIONS else value for name, value in values.items()}
            return ", ".join(f"{name}={value}" for name, value in shown.items() if value is not None)
        kernel = kernel.fn
    return ""


def layers(kernel: Kernel) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each decorator of a kernel, the outermost first, with what it was given beyond its defaults.

    Its kind is ``autotune``, ``heuristics`` or ``jit``.
    """
    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, Autotuner):
            yield "autotune", _autotune_arguments(kernel)
        elif isinstance(kernel, Heuristics):
            yield "heuristics", dict(kernel.values)
        kernel = kernel.fn
    names = ("do_not_specialize", "do_not_specialize_on_alignment", "debug")
    yield "jit", {name: getattr(kernel, name) for name in names if getattr(kernel, name, None)}


def heuristic_names(kernel: Kernel) -> list[str]:
    """Return the parameters that heuristics of a kernel set."""
    return [name for kind, given in layers(kernel) if kind == "heuristics" for name in given]


def supplied_names(kernel: Kernel) -> set[str]:
    """Return the parameters and options that the decorators of a kernel set."""
    configs = declared(kernel).configs
    of_configs = {name for config in configs for name in config.kwargs} | set(OPTIONS if configs else ())
    return of_configs | set(heuristic_names(kernel))


def _autotune_arguments(kernel: Autotuner) -> dict[str, Any]:
    given = {"reset_to_zero": kernel.reset_to_zero, "restore_value": kernel.restore_value}
    if kernel.user_defined_pre_hook:
        given["pre_hook"] = kernel.pre_hook
    if kernel.user_defined_post_hook:
        given["post_hook"] = kernel.post_hook
    if getattr(kernel, "cache_results", False):
        given["cache_results"] = True
    timing = {"use_cuda_graph": kernel.use_cuda_graph, "warmup": kernel.num_warmups, "rep": kernel.num_reps}
    given.update({name: value for name, value in timing.items() if value})
    pruning = {"early_config_prune": kernel.early_config_prune, "perf_model": kernel.perf_model}
    if kernel.perf_model is not None:
        pruning["top_k"] = kernel.configs_top_k
    return {
        "configs": kernel.configs,
        "key": kernel.keys,
        "arguments": {name: value for name, value in given.items() if value},
        "prune_configs_by": {name: value for name, value in pruning.items() if value is not None},
    }


def wrapped(function: Any, wrappers: tuple[Wrapper, ...], value: Callable[[Binding], Any]) -> Any:
    """Return a jit function with its decorators around it again; ``value`` gives what a binding stands for.

    A heuristic or hook that could not be taken along is left out.
    """
    for wrapper in reversed(wrappers):
        match wrapper:
            case SourceAutotune():
                function = _autotuned(function, wrapper, value)
            case SourceHeuristics(values):
                function = triton.heuristics({n: value(b) for n, b in values if not isinstance(b, Opaque)})(function)
    return function


def _autotuned(function: Any, wrapper: SourceAutotune, value: Callable[[Binding], Any]) -> Any:
    def taken(bindings: tuple[tuple[str, Binding], ...]) -> dict[str, Any]:
        return {name: value(binding) for name, binding in bindings if not isinstance(binding, Opaque)}

    configs = [
        triton.Config(
            taken(config.parameters),
            pre_hook=None if config.pre_hook is None or isinstance(config.pre_hook, Opaque) else value(config.pre_hook),
            **dict(config.options),
        )
        for config in wrapper.configs
    ]
    pruning = taken(wrapper.prune_configs_by)
    return triton.autotune(configs, list(wrapper.key), prune_configs_by=pruning or None, **taken(wrapper.arguments))(
        function
    )


OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")


def require_one_tuner(kernel: Kernel) -> None:
    """Raise `UsageError` for a kernel with several autotuners: the configs of one would be arguments of the other."""
    found, function = 0, kernel
    while not isinstance(function, JITFunction):
        found += isinstance(function, Autotuner)
        function = function.fn
    if found > 1:
        raise UsageError(
            f"{function.__name__} is decorated with @triton.autotune {found} times; give all configs to one of them."
        )


def require_not_given_twice(configs: Iterable[Any], given: Collection[str]) -> None:
    """Raise `UsageError` for a call that gives a parameter which a config sets too; options may be given."""
    for config in configs:
        twice = [name for name in config.kwargs if name in given and name not in OPTIONS]
        if twice:
            raise UsageError(f"{twice[0]} is given and also set by the configs; leave it out of the call.")


def overridden(configs: Iterable[Any], options: Mapping[str, Any]) -> list[Any]:
    """Return configs with options of a call in place of their own, each once, hooks included."""
    found = []
    for config in configs:
        changed = triton.Config(
            {name: options.get(name, value) for name, value in config.kwargs.items()},
            pre_hook=config.pre_hook,
            **{name: options.get(name, getattr(config, name)) for name in OPTIONS if hasattr(config, name)},
        )
        if changed not in found:
            found.append(changed)
    return found


@dataclass(frozen=True, slots=True)
class Declared:
    """What ``@triton.autotune`` declares. The hooks are those of the user, None where there is none.

    ``warmup_ms`` and ``rep_ms`` are its ``warmup`` and ``rep``, None where they are not given; ``has_own_bench`` tells
    that it is given a function that times launches.
    """

    configs: tuple[Any, ...] = ()
    key: tuple[str, ...] | None = None
    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    pre_hook: Callable[..., Any] | None = None
    post_hook: Callable[..., Any] | None = None
    by_graph: bool = False
    warmup_ms: float | None = None
    rep_ms: float | None = None
    has_own_bench: bool = False


def declared(kernel: Kernel) -> Declared:
    """Return what the outermost autotuner of a kernel declares; without one, nothing."""
    tuner = _tuner_of(kernel)
    if tuner is None:
        return Declared()
    return Declared(
        configs=tuple(tuner.configs),
        key=tuple(tuner.keys),
        reset_to_zero=tuple(tuner.reset_to_zero),
        restore_value=tuple(tuner.restore_value),
        pre_hook=tuner.pre_hook if tuner.user_defined_pre_hook else None,
        post_hook=tuner.post_hook if tuner.user_defined_post_hook else None,
        by_graph=bool(tuner.use_cuda_graph),
        warmup_ms=tuner.num_warmups,
        rep_ms=tuner.num_reps,
        has_own_bench=_has_own_bench(tuner),
    )


def _has_own_bench(tuner: Any) -> bool:
    """Tell whether the user gave ``do_bench``; Triton puts one of its own there for the deprecated options."""
    is_tritons = tuner.use_cuda_graph or tuner.num_warmups is not None or tuner.num_reps is not None
    return not is_tritons and getattr(tuner, "_do_bench", None) is not None


def options_of_call(kernel: Kernel) -> Mapping[str, Any]:
    """Return the options, such as ``num_warps``, that the last launch of a bound autotuned kernel was given."""
    return getattr(_tuner_of(kernel), "options_of_call", {})


def variant_with(kernel: Kernel, args: tuple[Any, ...], meta: Mapping[str, Any], config: Any) -> Variant:
    """Return the jit function with the arguments that ``config`` and the heuristics give it.

    Heuristics run in the order of the decorators. Options such as ``num_warps`` that the caller gives win over those of
    the config.

    Raises:
        UsageError: the caller gives a parameter that the config sets too.
    """
    given = {**dict(zip(getattr(kernel, "arg_names", ()), args, strict=False)), **meta}
    require_not_given_twice((config,), given)
    added = {**config.all_kwargs(), **meta}
    current = dict(meta) if _tuner_of(kernel) is not None else added
    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, Autotuner):
            current = {**config.all_kwargs(), **current}
        elif isinstance(kernel, Heuristics):
            named = dict(zip(kernel.arg_names, args, strict=False))
            for name, heuristic in kernel.values.items():
                current = {**current, name: heuristic({**named, **current})}
        kernel = kernel.fn
    return Variant(kernel, current, str(config))


def pruned(
    kernel: Kernel, configs: Sequence[Any], args: tuple[Any, ...], meta: Mapping[str, Any]
) -> tuple[list[Any], dict[int, str]]:
    """Return the configs that the pruning functions of an autotuner keep, and the reason for each other one, by id.

    Raises:
        UsageError: a pruning function leaves none, or ``top_k`` is neither a share nor a number.
    """
    tuner = _tuner_of(kernel)
    kept = list(configs)
    reasons: dict[int, str] = {}
    if tuner is None:
        return kept, reasons
    named = dict(zip(tuner.arg_names, args, strict=False))
    if tuner.early_config_prune:
        kept = list(tuner.early_config_prune(kept, named, **meta))
        if not kept:
            raise UsageError("early_config_prune left no config; it must return at least one.")
    known = {id(config) for config in kept}
    reasons.update({id(config): "early_config_prune left it out" for config in configs if id(config) not in known})
    if tuner.perf_model:
        count = _top_k(tuner.configs_top_k, len(kept))
        if len(kept) > count:
            estimates = [tuner.perf_model(**{**config.all_kwargs(), **named, **meta}) for config in kept]
            order = sorted(range(len(kept)), key=lambda index: estimates[index])
            for place, index in enumerate(order[count:], start=count + 1):
                reasons[id(kept[index])] = f"perf_model puts it at place {place}, and top_k is {count}"
            kept = [kept[index] for index in sorted(order[:count])]
    return kept, reasons


def _top_k(given: Any, count: int) -> int:
    if isinstance(given, float) and given <= 1.0:
        return max(1, int(count * given))
    if isinstance(given, int):
        return given
    raise UsageError(f"top_k is {given!r}; expected a share up to 1.0 or a number of configs.")


def _tuner_of(kernel: Kernel) -> Any:
    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, Autotuner):
            return kernel
        kernel = kernel.fn
    return None
