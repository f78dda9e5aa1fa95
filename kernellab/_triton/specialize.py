"""Triton's specialization of a kernel and its arguments: types, constants, assumptions and options, for any target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import triton
import triton.language as tl
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction, MockTensor, create_function_from_signature

from kernellab._triton import VERSION, version_order
from kernellab._triton.closure import value_key
from kernellab._triton.kernel import constexpr_value
from kernellab._triton.targets import gpu_target
from kernellab.errors import LaunchError, UsageError, first_line, plural, value_message, value_text
from kernellab.source import INTEGER_OPTIONS
from kernellab.target import DEFAULT_TARGET, Target, parse_target

Path = tuple[int, ...]

RUN_KNOBS = [name for name in ("instrumentation_mode", "fpsan_homomorphic_casts") if hasattr(knobs.compilation, name)]
"""The compile knobs that `JITFunction.run` of this Triton adds to the options."""

# Prefixes of torch dtypes without a Triton type, with the remedy.
_NO_TRITON_TYPE = {
    "complex": "torch.view_as_real({})",
    "qint": "{}.int_repr()",
    "quint": "{}.int_repr()",
    "float8_e8m0": "{}.view(torch.uint8)",
    "float4": "{}.view(torch.uint8)",
}


@dataclass(frozen=True, slots=True)
class Specialization:
    """A launch as the compiler sees it.

    ``signature`` maps each parameter to its Triton type (nested tuples for tuples), ``constants`` index paths to
    values, ``attributes`` index paths to assumptions (divisibility), ``options`` are the backend's. ``bound`` are the
    arguments by name, with defaults, where it was made from a call.
    """

    signature: Mapping[str, Any]
    constants: Mapping[Path, Any]
    attributes: Mapping[Path, Any]
    options: Mapping[str, Any]
    bound: Mapping[str, Any] = field(default_factory=dict)


def specialize(
    function: Any,
    target: Target,
    args: tuple[Any, ...],
    meta: Mapping[str, Any],
    binders: MutableMapping[int, Any] | None = None,
) -> Specialization:
    """Triton's specialization of a jit function for these arguments and options.

    ``binders`` caches Triton's generated binder of a function, by its id, for further calls with the same target.

    Raises:
        LaunchError: an argument is missing, unknown, given twice, or of a type that no kernel takes.
        UsageError: an option has a value that the target refuses.
    """
    require_constants(function, args, meta)
    arguments = {**dict(zip(function.arg_names, args, strict=False)), **meta}
    if (problem := tensor_problem(function.__name__, arguments)) is not None:
        raise LaunchError(problem, kernel=function.__name__)
    backend = make_backend(gpu_target(target))
    known = {} if binders is None else binders
    if id(function) not in known:
        known[id(function)] = create_function_from_signature(function.signature, function.params, backend)
    bind = known[id(function)]
    keywords = run_keywords(function, meta)
    try:
        bound, specialization, options = bind(*args, **keywords)
    except (TypeError, RuntimeError, KeyError, OverflowError) as exc:
        raise argument_error(function, args, meta, exc) from exc
    try:
        packed = function._pack_args(backend, keywords, bound, specialization, options)
    except (KeyError, AssertionError, ValueError, TypeError) as exc:
        raise option_error(function, meta, exc, target) from exc
    options, signature, constants, attributes = packed
    return Specialization(signature, constants, attributes, dict(options.__dict__), dict(bound))


def run_keywords(function: Any, meta: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a launch with those that Triton's `run` adds from its knobs."""
    debug = meta.get("debug", function.debug) or knobs.runtime.debug
    return {**meta, "debug": debug, **{name: getattr(knobs.compilation, name) for name in RUN_KNOBS}}


def kernel_name(function: Any, constants: dict[tuple[int, ...], object], signature: dict[str, Any]) -> str:
    """The symbol that Triton gives the kernel: its name, or the text that ``repr=`` makes of the specialization."""
    named = {function.arg_names[path[0]]: value for path, value in constants.items() if len(path) == 1}
    return str(function.repr(SimpleNamespace(constants=named, signature=signature)))


def compiler_variables() -> dict[str, str]:
    """The environment variables that affect Triton's compiles, with their present values."""
    return {str(name): str(value) for name, value in get_cache_invalidating_env_vars().items()}


def warm() -> None:
    """Import everything that Triton's first specialization needs."""
    function, arguments = sample_launch()
    specialize(function, parse_target(DEFAULT_TARGET), arguments, {})


def sample_launch() -> tuple[Any, tuple[Any, ...]]:
    """A small kernel that loads and stores, with arguments: to compile it loads most of the compiler."""
    return _copy, (MockTensor(tl.float32), MockTensor(tl.float32), 128)


@JITFunction  # type: ignore[untyped-decorator]  # whether or not TRITON_INTERPRET is set
def _copy(source, to, block: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(to + offsets, tl.load(source + offsets))


def source_of(function: Any, special: Specialization) -> Any:
    """Triton's source object of a compile."""
    source = gluon_source() if function.is_gluon() else ASTSource
    return source(function, dict(special.signature), dict(special.constants), dict(special.attributes))


def gluon_barrier() -> str:
    """The name of the barrier for a program's threads in Gluon's language: ``thread_barrier`` in older versions."""
    from triton.experimental.gluon import language  # large, and few kernels are in it

    return "barrier" if hasattr(language, "barrier") else "thread_barrier"


def gluon_flattens_inferred_layouts() -> bool:
    """Whether Gluon infers the layout of a row that a tensor with an inferred layout is reshaped to: from 3.9 on."""
    return version_order(VERSION) >= (3, 9)


def gluon_source() -> Any:
    """Gluon's counterpart of `ASTSource`; its stages begin at TTGIR."""
    from triton.experimental.gluon._runtime import GluonASTSource  # its language is large, and few kernels are in it

    return GluonASTSource


def launch_problem(function: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> str | None:
    """The problem with the number or names of the arguments, as a message, or None."""
    names = function.arg_names
    signature = f"{function.__name__}({', '.join(names)})"
    if len(args) > len(names):
        expected = plural(len(names), "argument")
        return f"{function.__name__} takes {expected} and got {len(args)}; it is declared as {signature}."
    if twice := [name for name in names[: len(args)] if name in meta]:
        return f"{function.__name__} got {twice[0]} by position and by name; give it once."
    required = [p.name for p in function.params[len(args) :] if not p.has_default and p.name not in meta]
    if required:
        missing = ", ".join(required)
        misspelt = [name for name in meta if name not in names and get_close_matches(name, required)]
        hint = f"is {misspelt[0]} a misspelling?" if misspelt else f"it is declared as {signature}."
        unknown = [name for name in meta if name not in (*names, *option_names(parse_target(DEFAULT_TARGET)))]
        if unknown and not misspelt:
            hint = f"it has no parameter {unknown[0]}: {hint}"
        return f"{function.__name__} is launched without {missing}; {hint}"
    return tensor_problem(function.__name__, {**dict(zip(names, args, strict=False)), **meta})


def tensor_problem(kernel: str, arguments: Mapping[str, Any]) -> str | None:
    """The message for a tensor that no kernel takes: a dtype without Triton type, or no dense memory; or None."""
    for name, value in arguments.items():
        if isinstance(value, tuple):
            members = {f"{name}[{i}]": member for i, member in enumerate(value)}
            if (problem := tensor_problem(kernel, members)) is not None:
                return problem
        if not hasattr(value, "data_ptr"):
            continue
        dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
        remedy = next((remedy for kind, remedy in _NO_TRITON_TYPE.items() if dtype.startswith(kind)), None)
        if remedy is not None:
            remedy = remedy.format(name)
            return f"{name} of {kernel} has the dtype {dtype}, which no kernel takes; pass {remedy}."
        if (layout := dense_problem(name, value)) is not None:
            return layout
    return None


def dense_problem(name: str, tensor: Any) -> str | None:
    """The message for a tensor without dense memory, or None."""
    if getattr(tensor, "is_nested", False):
        return f"{name} is a nested tensor; a kernel takes dense ones: pass torch.nested.to_padded_tensor({name}, 0.0)."
    layout = str(getattr(tensor, "layout", "torch.strided"))
    if layout != "torch.strided":
        return f"{name} is a tensor of layout {layout}; a kernel takes dense ones: pass {name}.to_dense()."
    return None


_WHAT_FITS = "tensors, numbers, tuples or None; torch.as_tensor(values) makes a tensor of an array or a list"


def argument_error(function: Any, args: tuple[Any, ...], meta: Mapping[str, Any], exc: Exception) -> LaunchError:
    """The error for arguments that Triton's binder refused, with the names of those of an odd type."""
    arguments = {**dict(zip(function.arg_names, args, strict=False)), **meta}
    problem = launch_problem(function, args, meta) or _refusal_message(function, arguments, exc)
    return LaunchError(problem, kernel=function.__name__, detail=str(exc))


def _refusal_message(function: Any, arguments: Mapping[str, Any], exc: Exception) -> str:
    """The message for values that Triton's binder refuses: too wide numbers, nested tuples, texts, objects."""
    kernel = function.__name__
    wide = [name for name, v in arguments.items() if isinstance(v, int) and not -(2**63) <= v < 2**64]
    if wide:
        return f"{wide[0]} of {kernel} is {arguments[wide[0]]}; a kernel takes numbers of 64 bits at most."
    nested = [name for name, v in arguments.items() if isinstance(v, tuple) and any(isinstance(m, tuple) for m in v)]
    if nested and "unhashable" in str(exc):
        cannot = f"which Triton {triton.__version__} cannot launch"
        return f"{nested[0]} of {kernel} is a tuple with a tuple in it, {cannot}. Pass all members in one tuple."
    dynamic = {parameter.name for parameter in function.params if not parameter.is_constexpr}
    odd = [
        f"{name} is of type {f'{type(v).__module__}.'.removeprefix('builtins.')}{type(v).__qualname__}"
        for name, v in arguments.items()
        if _is_odd(v) or (isinstance(v, str) and name in dynamic)
    ]
    return f"{kernel} cannot take these arguments: {'; '.join(odd) or first_line(exc)}. Pass {_WHAT_FITS}."


def _is_odd(value: object) -> bool:
    plain = value is None or isinstance(value, int | float | str | tuple) or hasattr(value, "data_ptr")
    return not plain and not type(value).__module__.startswith(("triton", "kernellab"))


def option_error(function: Any, meta: Mapping[str, Any], exc: Exception, target: Target) -> UsageError:
    """The error for options of ``meta`` that the backend refuses."""
    text = str(exc.args[0]) if exc.args else type(exc).__name__
    if isinstance(exc, KeyError) and "unrecognised" in text:
        unknown = text.split("Keyword argument ")[-1].split(" was ")[0]
        choices = [*function.arg_names, *option_names(target)]
        more = " This verb takes no target: Lab(target=...) and lab.use_target(...) do." if unknown == "target" else ""
        close = [] if more else get_close_matches(unknown, choices, 1)
        expected = ", ".join(choices) + (f"; did you mean {close[0]}?" if close else ".")
        return LaunchError(
            f"{function.__name__} has no parameter or option {unknown!r}; expected one of {expected}{more}",
            kernel=function.__name__,
        )
    options = [name for name in option_names(target) if name in meta]
    values = [f"{name} is {value_text(meta[name])}" for name in [n for n in options if n in text] or options]
    message = f"{function.__name__} cannot be compiled for {target}: {'; '.join([text.rstrip('.'), *values])}."
    return UsageError(message, kernel=function.__name__)


def require_options(kernel: str, options: Mapping[str, Any]) -> None:
    """Refuse a non-integer value of an integer option: Triton passes it on, and the compiler aborts.

    Raises:
        UsageError: one is neither None nor an integer of 32 bits; or num_ctas is not a power of 2 (LLVM aborts).
    """
    for name in INTEGER_OPTIONS:
        value = constexpr_value(options.get(name))
        if value is not None and not (isinstance(value, Integral) and abs(int(value)) < 2**31):
            raise UsageError(value_message(name, value, "an integer", owner=kernel), kernel=kernel)
        if name == "num_ctas" and value is not None and int(value).bit_count() != 1:
            raise UsageError(f"num_ctas of {kernel} is {value}; expected a power of 2.", kernel=kernel)


def require_constants(function: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> None:
    """Refuse a tensor as a constant: its text, which is part of Triton's key, reads all of its memory.

    Raises:
        UsageError: an option that counts something is not an integer.
        LaunchError: a constexpr or another option is a tensor.
    """
    require_options(function.__name__, {name: meta[name] for name in meta if name not in function.arg_names})
    arguments = {**dict(zip(function.arg_names, args, strict=False)), **meta}
    dynamic = {parameter.name for parameter in function.params if not parameter.is_constexpr}
    for name, value in arguments.items():
        if name not in dynamic and hasattr(value, "data_ptr"):
            raise LaunchError(
                f"{name} of {function.__name__} is a {type(value).__name__}, which cannot be a constexpr or "
                f"an option. Give it as a number, such as {name}.item() returns.",
                kernel=function.__name__,
            )


def default_options(target: Target) -> dict[str, Any]:
    """All options of a target's backend, with those that only compilers set, for a launch that sets none."""
    return dict(make_backend(gpu_target(target)).parse_options({}).__dict__)


def parameter_flags(function: Any) -> list[dict[str, Any]]:
    """The parameters of a jit function with what decides their specialization, as plain data."""
    return [
        {
            "name": parameter.name,
            "is_constexpr": bool(parameter.is_constexpr),
            "is_const": bool(parameter.is_const),
            "specialize": not parameter.do_not_specialize,
            "align": not parameter.do_not_specialize_on_alignment,
            "type": parameter.annotation_type,
            **({"default": parameter.default} if parameter.has_default else {}),
        }
        for parameter in function.params
    ]


_USUAL_OPTIONS = (*INTEGER_OPTIONS, "waves_per_eu", "enable_fp_fusion", "allow_fp8e4nv", "debug")


def option_names(target: Target) -> tuple[str, ...]:
    """The launch options that users set, such as ``num_warps``, of a target's backend."""
    known = default_options(target)
    return tuple(name for name in _USUAL_OPTIONS if name in known)


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the members of nested tuples and lists."""
    if isinstance(value, tuple | list):
        for member in value:
            yield from _leaves(member)
    else:
        yield value


def _has_own_text(value: Any) -> bool:
    """Whether no other value has the same text in Triton's key."""
    if type(value) is tl.constexpr:
        return type(value.value) in {int, bool, float, type(None)}
    return type(value) in {int, bool, str, type(None), float, bytes, tl.dtype} or isinstance(value, JITFunction)


class SpecializationKeys(dict[Any, Any]):
    """Triton's keys of specializations: their text, with types and contents where different values share a text.

    It stores nothing: Triton's cache of key texts would confuse ``1``, ``1.0`` and ``True``.
    """

    def get(self, key: Any, default: Any = None) -> Any:
        """The key of a specialization where its text could be that of another one, else ``default``."""
        specialization, options = super().get(key, key)  # raises for a constant without a hash, as in Triton
        values = list(_leaves(specialization))
        if all(map(_has_own_text, values)):
            return default
        contents = [(id(type(value)), value_key(value)) for value in values if value is not None]
        return f"{[*map(str, specialization)]}{options}{contents}"

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keep nothing."""
