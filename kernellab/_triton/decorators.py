"""Naming the arguments of a function as the kernel's signature does.

A tuple member has an argument of its own. A host descriptor brings its shape and strides along as further integer
arguments; where a target lacks descriptors, the ttir stage turns it into a pointer and may add an argument or two
(padding) to each. All arguments of a descriptor have the descriptor's name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import triton
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from kernellab.errors import CompileError
from kernellab.ir.graph import Value
from kernellab.source.model import Autotune as SourceAutotune
from kernellab.source.model import Binding, Opaque, Wrapper
from kernellab.source.model import Heuristics as SourceHeuristics

_MEMBER = re.compile(r"\.(\d+)")
_DESCRIPTOR_PART = re.compile(r"\.[A-Za-z]\w*(?:\.\d+)?$")


def argument_names(arguments: Sequence[Value], parameters: Sequence[tuple[str, str]] | None) -> tuple[str, ...]:
    """Return the parameter that each argument of a function belongs to.

    Raises:
        CompileError: the arguments cannot be dealt out to ``parameters``.
    """
    if parameters is None:
        return _names_from_locations(arguments)
    descriptors = [kind for _, kind in parameters if kind.startswith("tensordesc")]
    extra = len(arguments) - len(parameters)
    fixed = sum(2 * _rank(kind) for kind in descriptors)
    added = (extra - fixed) // len(descriptors) if descriptors else 0
    names: list[str] = []
    for name, kind in parameters:
        count = 1 + (2 * _rank(kind) + added if kind.startswith("tensordesc") else 0)
        names += [name] * count
    if len(names) != len(arguments):
        raise CompileError(f"TTIR: the kernel has {len(arguments)} arguments; its signature accounts for {len(names)}.")
    return tuple(names)


def _rank(kind: str) -> int:
    """Return the rank of a descriptor type such as ``tensordesc<fp16[16, 32]>``."""
    shape = kind[kind.index("[") + 1 : kind.index("]")]
    return shape.count(",") + 1 if shape.strip() else 0


def _names_from_locations(arguments: Sequence[Value]) -> tuple[str, ...]:
    """Name arguments by the locations of their values.

    From 3.8 on these are ``outs.1`` for the member of a tuple and ``desc.shape.0`` for what a descriptor brings along;
    before, every argument has the name of its parameter, so that several of one name are members of a tuple, or a
    descriptor with what it brings along.
    """
    written = [value.name or f"arg{position}" for position, value in enumerate(arguments)]
    first = dict(reversed(list(zip(written, arguments, strict=True))))
    count = Counter(written)
    seen: Counter[str] = Counter()
    names: list[str] = []
    for name in written:
        plain = _MEMBER.sub(r"[\1]", _DESCRIPTOR_PART.sub("", name))
        is_member = count[name] > 1 and plain == name and not first[name].type.startswith("!tt.tensordesc")
        names.append(f"{name}[{seen[name]}]" if is_member else plain)
        seen[name] += 1
    return tuple(names)


@dataclass(frozen=True, slots=True)
class Variant:
    """A jit function with the arguments of one config. ``config`` names the config, or is "" where there is none."""

    function: Any
    meta: Mapping[str, Any]
    config: str


def variants(kernel: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> Iterator[Variant]:
    """Yield one variant per config of the kernel, heuristics applied in the order of the decorators.

    A config parameter that the caller gives himself wins over the config's.
    """
    yield from _expanded(kernel, args, dict(meta), "")


def _expanded(kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], config: str) -> Iterator[Variant]:
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


def best_config(kernel: Any) -> str:
    """Return the config that an autotuned kernel took at its last launch, in words, or ""."""
    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, Autotuner):
            config = getattr(kernel, "best_config", None)
            return (
                "" if config is None else ", ".join(f"{k}={v}" for k, v in config.all_kwargs().items() if v is not None)
            )
        kernel = kernel.fn
    return ""


def layers(kernel: Any) -> Iterator[tuple[str, dict[str, Any]]]:
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


def heuristic_names(kernel: Any) -> list[str]:
    """Return the parameters that heuristics of a kernel set."""
    return [name for kind, given in layers(kernel) if kind == "heuristics" for name in given]


def _autotune_arguments(kernel: Any) -> dict[str, Any]:
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
