"""A kernel together with its decorators: what brings it back whole, in another session or outside the lab."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

from kernellab._triton.closure import Collector, decorators_text, definition, is_installed
from kernellab.errors import SourceError
from kernellab.source import (
    Autotune,
    Binding,
    Closure,
    ConfigText,
    Heuristics,
    JitOptions,
    Opaque,
    Wrapper,
    lambda_definition,
    lost,
)


def decorated_closure_of(kernel: Any) -> Closure:
    """Return the closure of a kernel with its autotuners and heuristics.

    A config, hook or heuristic that cannot be written down is an `Opaque` there.

    Raises:
        SourceError: the source of the kernel or of a helper cannot be found.
    """
    from kernellab._triton import decorators, objects  # keeps `import kernellab` light

    function = objects.jit_function(kernel)
    collector = Collector(loose=True)
    collector.add(function, "jit")
    wrappers = tuple(_wrapper(collector, kind, given) for kind, given in decorators.layers(kernel))
    collector.resolve()
    return Closure(tuple(collector.done), decorators_text(function), tuple(sorted(collector.labels.items())), wrappers)


def value_closure_of(value: Any) -> tuple[Closure, Binding] | None:
    """Return a value that is no literal, as a closure and the binding in it that stands for the value.

    None where it cannot be taken along, or its source or that of a helper cannot be found.
    """
    collector = Collector()
    try:
        binding = collector.used(value)
        collector.resolve()
    except SourceError:
        return None
    if lost(binding) is not None:
        return None
    return Closure(tuple(collector.done), "", tuple(sorted(collector.labels.items()))), binding


def _wrapper(collector: Collector, kind: str, given: Mapping[str, Any]) -> Wrapper:
    if kind == "jit":
        return JitOptions(tuple(sorted(given.items())))
    if kind == "heuristics":
        return Heuristics(tuple((name, _bound(collector, value)) for name, value in given.items()))
    return Autotune(
        configs=tuple(_config(collector, config) for config in given["configs"]),
        key=tuple(given["key"]),
        arguments=tuple((name, _bound(collector, value)) for name, value in given["arguments"].items()),
        prune_configs_by=tuple((name, _bound(collector, value)) for name, value in given["prune_configs_by"].items()),
    )


def _config(collector: Collector, config: Any) -> ConfigText:
    options = {name: getattr(config, name, None) for name in ("num_warps", "num_stages", "num_ctas")}
    given = {name: getattr(config, name, None) for name in ("maxnreg", "ir_override")}
    return ConfigText(
        parameters=tuple((name, _bound(collector, value)) for name, value in config.kwargs.items()),
        options=(*options.items(), *((name, value) for name, value in given.items() if value is not None)),
        pre_hook=None if config.pre_hook is None else _bound(collector, config.pre_hook),
    )


def _bound(collector: Collector, value: Any) -> Binding:
    """Return how to get a value again; `Opaque` for a function whose source is not known, such as that of a prompt."""
    if isinstance(value, FunctionType) and not is_installed(value.__module__ or ""):
        try:
            _require_source(value)
        except SourceError:
            return Opaque("a function without source")
    return collector.bind(value)


def _require_source(function: FunctionType) -> None:
    if function.__name__ == "<lambda>":
        lambda_definition(function)
    else:
        definition(function)
