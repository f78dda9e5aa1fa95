"""What an autotuner was told, and the arguments that one of its configs gives a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import triton
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from kernellab._triton.decorators import Variant
from kernellab.errors import UsageError

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")


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


def declared(kernel: Any) -> Declared:
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


def variant_with(kernel: Any, args: tuple[Any, ...], meta: Mapping[str, Any], config: Any) -> Variant:
    """Return the jit function with the arguments that ``config`` and the heuristics give it.

    Heuristics run in the order of the decorators. Options such as ``num_warps`` that the caller gives win over those of
    the config.

    Raises:
        UsageError: the caller gives a parameter that the config sets too.
    """
    given = {**dict(zip(getattr(kernel, "arg_names", ()), args, strict=False)), **meta}
    twice = [name for name in config.kwargs if name in given and name not in OPTIONS]
    if twice:
        raise UsageError(f"{twice[0]} is given and also set by the configs; leave it out of the call.")
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
    kernel: Any, configs: Sequence[Any], args: tuple[Any, ...], meta: Mapping[str, Any]
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
            estimates = [tuner.perf_model(**named, **meta, **config.all_kwargs()) for config in kept]
            order = sorted(range(len(kept)), key=lambda index: estimates[index])
            for place, index in enumerate(order[count:], start=count + 1):
                reasons[id(kept[index])] = f"perf_model puts it at place {place}, and top_k is {count}"
            kept = [kept[index] for index in sorted(order[:count])]
    return kept, reasons


def warm() -> None:
    """Let Triton import what its first specialization needs."""
    from kernellab._triton.specialize import specialize
    from kernellab.target import DEFAULT_TARGET, parse_target

    specialize(_nothing, parse_target(DEFAULT_TARGET), (1,), {})


@triton.jit
def _nothing(n):  # type: ignore[no-untyped-def]
    pass


def _top_k(given: Any, count: int) -> int:
    if isinstance(given, float) and given <= 1.0:
        return max(1, int(count * given))
    if isinstance(given, int):
        return given
    raise UsageError(f"top_k is {given!r}; expected a share up to 1.0 or a number of configs.")


def _tuner_of(kernel: Any) -> Any:
    while not isinstance(kernel, JITFunction):
        if isinstance(kernel, Autotuner):
            return kernel
        kernel = kernel.fn
    return None
