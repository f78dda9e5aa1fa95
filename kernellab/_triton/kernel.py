"""Kernels: their types, Triton's objects, the decorators around them, and their source text.

The decorators are autotuners and heuristics: their arguments, and the values that they supply to the kernel. The text
of a function comes with its syntax tree and the values of the names in it.
"""

from __future__ import annotations

import ast
import dis
import inspect
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from types import CodeType, FunctionType
from typing import Any, Literal, Protocol

import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITCallable, JITFunction

from kernellab.errors import LaunchError, SourceError, UsageError, value_text
from kernellab.source import CONFIG_OPTIONS, parse_python
from kernellab.source.text import signature_names, signature_values

_BY_NAME = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"}
_BY_NAME |= {"LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS"}  # in a class, from Python 3.12 on
_BY_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}


class JitParameter(Protocol):
    """A parameter of a jit function. ``annotation_type`` is the Triton type of its annotation, or ""."""

    name: str
    num: int
    is_constexpr: bool
    has_default: bool
    default: Any
    annotation_type: str


class Kernel(Protocol):
    """A jit function, or an autotuner or heuristics around one; ``fn`` is the object inside."""

    fn: Any
    arg_names: Sequence[str]

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """The launchable kernel over a grid."""

    def run(self, *args: Any, grid: Any, warmup: bool, **meta: Any) -> Any:
        """Launch the kernel, or with ``warmup`` only compile it; return Triton's handle."""


class JitKernel(Kernel, Protocol):
    """A jit function without decorators: it alone has parameters and compiles."""

    __name__: str
    params: Sequence[JitParameter]
    pre_run_hooks: MutableSequence[Any]


class Bound(Kernel, Protocol):
    """A kernel bound to a lab, the owner of its ``runtime``.

    ``front`` is the function that ``kernel[grid]`` calls, None where no launch function is learnt yet.
    """

    front: Any
    launcher: Any
    runtime: Any

    def side_table_number(self) -> int:
        """The number of the kernel in torch's side table, by which graphs refer to it."""


def is_kernel(value: object) -> bool:
    """Whether ``value`` is a jit function, or an autotuned or heuristics-wrapped one."""
    return isinstance(value, JITFunction | Autotuner | Heuristics)


def is_jit_function(value: object) -> bool:
    """Whether ``value`` is a jit function itself, without a decorator around it."""
    return isinstance(value, JITFunction)


def jit_kind(function: Any) -> Literal["jit", "gluon", "constexpr_function"]:
    """The kind of a function of Triton's: a jit function in its language or in Gluon, or one of constexprs."""
    if not isinstance(function, JITFunction):
        return "constexpr_function"
    return "gluon" if function.is_gluon() else "jit"


def constexpr_names(kernel: Kernel) -> frozenset[str]:
    """The constexpr parameters of a kernel."""
    return frozenset(parameter.name for parameter in jit_function(kernel).params if parameter.is_constexpr)


def jit_function(kernel: Kernel) -> Any:
    """The jit function under the autotuners and heuristics of ``kernel``."""
    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    return kernel


def constexpr_value(value: object) -> object:
    """The value inside a ``tl.constexpr``; any other value is returned as it is."""
    return value.value if isinstance(value, tl.constexpr) else value


def dtype_name(value: object) -> str | None:
    """Triton's name of a scalar ``tl.dtype``, such as ``fp16``; None for anything else."""
    return str(value.name) if isinstance(value, tl.dtype) and type(value) is tl.dtype else None


def parameter_names(kernel: Kernel) -> tuple[str, ...]:
    """The parameters of a kernel in order, with those that its decorators supply."""
    return tuple(jit_function(kernel).arg_names)


def pass_by_position(
    kernel: Kernel, args: tuple[Any, ...], named: Mapping[str, Any], reserved: Collection[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call with its ``reserved`` keywords by position, since the launch functions use these names themselves.

    Raises:
        LaunchError: the kernel has no such parameter, or a decorator supplies one before it, by name.
    """
    named, names = dict(named), parameter_names(kernel)
    unknown = [name for name in named if name in reserved and name not in names]
    if unknown:
        raise LaunchError(
            f"{jit_function(kernel).__name__} has no parameter {unknown[0]!r}; it has {', '.join(names)}."
        )
    last = max((names.index(name) for name in reserved if name in named and name in names), default=-1)
    defaults = {p.name: p.default for p in jit_function(kernel).params if p.has_default}
    positional = list(args)
    for name in names[len(positional) : last + 1]:
        if name not in named and name not in defaults:
            raise LaunchError(
                f"{names[last]} is a parameter of {jit_function(kernel).__name__} and an option of the call, and "
                f"{name}, which comes before it, is not given. Give both by position, or rename the parameter."
            )
        positional.append(named.pop(name) if name in named else defaults[name])
    return tuple(positional), named


@dataclass(frozen=True, slots=True)
class Variant:
    """A jit function with the arguments of one config, where there is one."""

    function: Any
    meta: Mapping[str, Any]


def variants(kernel: Kernel, args: tuple[Any, ...], meta: Mapping[str, Any]) -> Iterator[Variant]:
    """Yield a variant per config, with the heuristics; keywords of the call win over those of a config."""
    if isinstance(kernel, JITFunction):
        yield Variant(kernel, meta)
    elif isinstance(kernel, Autotuner):
        for choice in kernel.configs:
            yield from variants(kernel.fn, args, {**choice.all_kwargs(), **meta})
    else:
        yield from variants(kernel.fn, args, with_heuristics(kernel, args, meta))


def with_heuristics(kernel: Kernel, args: tuple[Any, ...], meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keywords of a launch with the values of the outermost decorator, if that is heuristics.

    Each heuristic sees the values of those before it, as in `Heuristics.run`.
    """
    if isinstance(kernel, Heuristics):
        named = dict(zip(kernel.arg_names, args, strict=False))
        for name, heuristic in kernel.values.items():
            meta = {**meta, name: heuristic({**named, **meta})}
    return meta


def best_config(kernel: Kernel, compiled: Mapping[str, Any]) -> str:
    """The config of an autotuned kernel's last launch, as ``name=value`` text, or ""; with the options ``compiled``."""
    config = getattr(_tuner_of(kernel), "best_config", None)
    values = {} if config is None else config.all_kwargs()
    shown = {name: compiled.get(name, value) if name in CONFIG_OPTIONS else value for name, value in values.items()}
    return ", ".join(f"{name}={value}" for name, value in shown.items() if value is not None)


def decorators_of(kernel: Kernel) -> Iterator[Any]:
    """Yield the decorators of a kernel, the outermost first."""
    while not isinstance(kernel, JITFunction):
        yield kernel
        kernel = kernel.fn


def _tuner_of(kernel: Kernel) -> Any:
    return next((decorator for decorator in decorators_of(kernel) if isinstance(decorator, Autotuner)), None)


def heuristic_names(kernel: Kernel) -> list[str]:
    """The parameters that heuristics of a kernel set."""
    return [name for d in decorators_of(kernel) if isinstance(d, Heuristics) for name in d.values]


def supplied_names(kernel: Kernel) -> set[str]:
    """The parameters and options that the decorators of a kernel set."""
    configs = autotune_settings(kernel).configs
    of_configs = {name for config in configs for name in config.kwargs} | set(CONFIG_OPTIONS if configs else ())
    return of_configs | set(heuristic_names(kernel))


def require_one_tuner(kernel: Kernel) -> None:
    """Raise `UsageError` for a kernel with several autotuners: the configs of one would be arguments of the other."""
    tuner_count = sum(isinstance(decorator, Autotuner) for decorator in decorators_of(kernel))
    if tuner_count > 1:
        raise UsageError(
            f"{jit_function(kernel).__name__} is decorated with @triton.autotune {tuner_count} times; "
            "give all configs to one of them."
        )


def require_not_given_twice(configs: Iterable[Any], given: Collection[str]) -> None:
    """Raise `UsageError` for a call with a parameter that a config sets too; options are allowed."""
    for config in configs:
        twice = [name for name in config.kwargs if name in given and name not in CONFIG_OPTIONS]
        if twice:
            raise UsageError(f"{twice[0]} is given and also set by the configs; leave it out of the call.")


def configs_with_options(configs: Iterable[Any], options: Mapping[str, Any]) -> list[Any]:
    """Configs, with their hooks, that have the options of a call in place of their own; each once."""
    unique = []
    for config in configs:
        changed = triton.Config(
            {name: options.get(name, value) for name, value in config.kwargs.items()},
            pre_hook=config.pre_hook,
            **{name: options.get(name, getattr(config, name)) for name in CONFIG_OPTIONS},
        )
        if changed not in unique:
            unique.append(changed)
    return unique


@dataclass(frozen=True, slots=True)
class AutotuneSettings:
    """The arguments of ``@triton.autotune``. The hooks are the user's, or None.

    ``warmup_ms`` and ``rep_ms`` are its ``warmup`` and ``rep``; ``has_own_bench`` is whether its ``do_bench`` is set.
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


def autotune_settings(kernel: Kernel) -> AutotuneSettings:
    """The arguments of the outermost autotuner of a kernel; without one, an empty record."""
    tuner = _tuner_of(kernel)
    if tuner is None:
        return AutotuneSettings()
    deprecated = tuner.use_cuda_graph or tuner.num_warmups is not None or tuner.num_reps is not None
    return AutotuneSettings(
        configs=tuple(tuner.configs),
        key=tuple(tuner.keys),
        reset_to_zero=tuple(tuner.reset_to_zero),
        restore_value=tuple(tuner.restore_value),
        pre_hook=tuner.pre_hook if tuner.user_defined_pre_hook else None,
        post_hook=tuner.post_hook if tuner.user_defined_post_hook else None,
        by_graph=bool(tuner.use_cuda_graph),
        warmup_ms=tuner.num_warmups,
        rep_ms=tuner.num_reps,
        # Triton sets one of its own for the deprecated options.
        has_own_bench=not deprecated and getattr(tuner, "_do_bench", None) is not None,
    )


def options_of_call(kernel: Kernel) -> Mapping[str, Any]:
    """The options, such as ``num_warps``, of the last launch of a bound autotuned kernel."""
    return getattr(_tuner_of(kernel), "options_of_call", {})


def variant_with(kernel: Kernel, args: tuple[Any, ...], meta: Mapping[str, Any], config: Any) -> Variant:
    """The jit function with the arguments that ``config`` and the heuristics set.

    Heuristics run in the order of the decorators. Options of the call, such as ``num_warps``, win over the config's.

    Raises:
        UsageError: the call has a parameter that the config sets too.
    """
    arguments = {**dict(zip(kernel.arg_names, args, strict=False)), **meta}
    require_not_given_twice((config,), arguments)
    options = config.all_kwargs()
    current = meta if _tuner_of(kernel) is not None else {**options, **meta}
    for decorator in decorators_of(kernel):
        is_tuner = isinstance(decorator, Autotuner)
        current = {**options, **current} if is_tuner else with_heuristics(decorator, args, current)
    return Variant(jit_function(kernel), current)


def prune_configs(
    kernel: Kernel, configs: Sequence[Any], args: tuple[Any, ...], meta: Mapping[str, Any]
) -> tuple[list[Any], dict[int, str]]:
    """The configs that the pruning functions of an autotuner keep, and why the others go, by id.

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
                reasons[id(kept[index])] = f"perf_model ranks it {place}, and top_k is {count}"
            kept = [kept[index] for index in sorted(order[:count])]
    return kept, reasons


def _top_k(top_k: Any, count: int) -> int:
    if isinstance(top_k, float) and top_k <= 1.0:
        return max(1, int(count * top_k))
    if isinstance(top_k, int):
        return top_k
    raise UsageError(f"top_k is {value_text(top_k)}; expected a share up to 1.0 or a number of configs.")


def definition(owner: Any) -> tuple[str, int, ast.FunctionDef]:
    """The text of a function from its ``def`` on, the line of that in its file, and its syntax tree.

    Raises:
        SourceError: it cannot be found, or is not a ``def`` statement.
    """
    lines, first, node = _source_lines(owner)
    return "".join(lines[node.lineno - 1 : node.end_lineno]), first + node.lineno - 1, node


def whole_definition(owner: Any) -> tuple[str, ast.FunctionDef]:
    """The text of a function with its decorators, and its syntax tree; errors as for `definition`."""
    lines, _, node = _source_lines(owner)
    return "".join(lines[: node.end_lineno]), node


def decorators_text(owner: Any) -> str:
    """The source text of the decorators of a function."""
    lines, _, node = _source_lines(owner)
    return "".join(lines[: node.lineno - 1])


def _source_lines(owner: Any) -> tuple[list[str], int, ast.FunctionDef]:
    """The lines of a function with its decorators, the number of the first in its file, and its syntax tree.

    A jit function keeps its lines itself, so later changes of the file or cell do not matter.
    """
    try:
        is_jit = isinstance(owner, JITCallable)
        lines, first = (owner.raw_src, owner.starting_line_number) if is_jit else inspect.getsourcelines(owner)
    except (OSError, TypeError) as exc:
        raise SourceError(
            f"The source of {owner.__qualname__} cannot be found; define it in a cell or in a file.",
            kernel=owner.__name__,
        ) from exc
    text = textwrap.dedent("".join(lines))
    node = _first_function(text)
    if node is None:
        raise SourceError(f"{owner.__qualname__} is not defined by a def statement.", kernel=owner.__name__)
    return text.splitlines(keepends=True), max(first, 1), node


@lru_cache(maxsize=32)
def _first_function(text: str) -> ast.FunctionDef | None:
    """The syntax tree of the first function of a text, shared and so read-only; a compile asks for it several times."""
    return next((node for node in ast.walk(parse_python(text)) if isinstance(node, ast.FunctionDef)), None)


def fix_signature(function: Any) -> None:
    """Record the values of the names in the signature of a jit function that was just defined."""
    signature_values(function.fn, definition(function)[2], scope_of(function.fn))


def names_of(function: Any, node: ast.FunctionDef) -> dict[str, Any]:
    """The values of the global names in a function, its decorators and its signature."""
    scope = scope_of(function)
    decorators = {n.id for decorator in node.decorator_list for n in ast.walk(decorator) if isinstance(n, ast.Name)}
    named = {*outside_names(function), *signature_names(node), *decorators}
    return {name: scope[name] for name in sorted(named - {"__class__"}) if name in scope}


def nonlocals_of(python: Any) -> dict[str, Any]:
    """The variables of enclosing functions that a Python function names, those that are assigned."""
    nonlocals = {}
    for name, cell in zip(python.__code__.co_freevars, python.__closure__ or (), strict=False):
        with suppress(ValueError):  # not assigned yet
            nonlocals[name] = cell.cell_contents
    return nonlocals


def scope_of(python: Any) -> dict[str, Any]:
    """The globals and nonlocals of a Python function, by name."""
    return {**python.__globals__, **nonlocals_of(python)}


def outside_names(python: FunctionType) -> Mapping[str, set[str]]:
    """The free names of a function, each with the attributes that it reads of it."""
    return _names_of_code(python.__code__)


@lru_cache(maxsize=512)
def _names_of_code(code: CodeType) -> Mapping[str, set[str]]:
    attributes: dict[str, set[str]] = {}
    for name, attribute in _name_lookups(code, code.co_freevars):
        attributes.setdefault(name, set()).update({attribute} - {""})
    return attributes


def _name_lookups(code: CodeType, free: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The free names of a code object, each with the attribute that it reads of it, or ""."""
    instructions = list(dis.get_instructions(code))
    for instruction, following in zip_longest(instructions, instructions[1:]):
        is_own = "DEREF" in instruction.opname and instruction.argval not in free
        if instruction.opname in _BY_NAME and not is_own:
            by_attribute = following is not None and following.opname in _BY_ATTRIBUTE
            yield instruction.argval, following.argval if by_attribute else ""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _name_lookups(constant, free)
