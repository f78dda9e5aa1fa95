"""What kind of Triton object a Python value is, and what it was declared with."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

import triton
import triton.language as tl
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITCallable, JITFunction

from kernellab._triton.kernel import Kernel
from kernellab.errors import LaunchError


def is_kernel(value: object) -> bool:
    """Tell whether ``value`` is a jit function, or an autotuned or heuristics-wrapped one."""
    return isinstance(value, JITFunction | Autotuner | Heuristics)


def is_jit_function(value: object) -> bool:
    """Tell whether ``value`` is a jit function itself, without a decorator around it."""
    return isinstance(value, JITFunction)


def jit_kind(function: Any) -> Literal["jit", "gluon"]:
    """Return in which dialect a jit function is written: Triton's language, or Gluon."""
    return "gluon" if function.is_gluon() else "jit"


def is_constexpr_function(value: object) -> bool:
    """Tell whether ``value`` was made by ``@triton.constexpr_function``."""
    return isinstance(value, JITCallable) and not isinstance(value, JITFunction)


def constexpr_names(kernel: Kernel) -> frozenset[str]:
    """Return the parameters of ``kernel`` that are constants of its compilation."""
    return frozenset(parameter.name for parameter in jit_function(kernel).params if parameter.is_constexpr)


def jit_function(kernel: Any) -> Any:
    """Return the jit function under the autotuners and heuristics of ``kernel``."""
    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    return kernel


def constexpr_value(value: object) -> tuple[bool, object]:
    """Return (True, the value inside) for a ``tl.constexpr``, else (False, ``value``)."""
    return (True, value.value) if isinstance(value, tl.constexpr) else (False, value)


def dtype_name(value: object) -> str | None:
    """Return Triton's name of a scalar ``tl.dtype``, such as ``fp16``; None for anything else."""
    return str(value.name) if isinstance(value, tl.dtype) and type(value) is tl.dtype else None


def aggregate() -> Any:
    """Return the decorator of classes whose instances are values of a kernel."""
    return getattr(triton, "aggregate", None) or tl.core._aggregate


def aggregate_init(cls: Any) -> Any:
    """Return the ``__init__`` that a user wrote for an aggregate; None where there is only Triton's."""
    init = cls.hash_attrs[0]
    return None if getattr(init, "__triton_builtin__", False) or init is object.__init__ else init


class _SpecializationProxy(NamedTuple):
    """What Triton hands to ``repr=``."""

    constants: dict[str, object]
    signature: dict[str, Any]


def kernel_name(function: Any, constants: dict[tuple[int, ...], object], signature: dict[str, Any]) -> str:
    """Return the symbol that Triton gives the kernel: its name, or what ``repr=`` makes of the specialization."""
    named = {function.arg_names[path[0]]: value for path, value in constants.items() if len(path) == 1}
    return str(function.repr(_SpecializationProxy(named, signature)))


def parameter_names(kernel: Kernel) -> tuple[str, ...]:
    """Return the parameters of a kernel in order, those that its decorators give included."""
    return tuple(jit_function(kernel).arg_names)


def by_position(
    kernel: Kernel, args: tuple[Any, ...], named: Mapping[str, Any], reserved: Collection[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call whose keywords named in ``reserved``, which mean something else on the way, go by position.

    Raises:
        LaunchError: the kernel has no such parameter, or one before it is given by a decorator, which does so by name.
    """
    named, names = dict(named), parameter_names(kernel)
    unknown = [name for name in named if name in reserved and name not in names]
    if unknown:
        raise LaunchError(
            f"{jit_function(kernel).__name__} has no parameter {unknown[0]!r}; it has {', '.join(names)}."
        )
    last = max((names.index(name) for name in reserved if name in named and name in names), default=-1)
    defaults = {p.name: p.default for p in jit_function(kernel).params if p.has_default}
    given = list(args)
    for name in names[len(given) : last + 1]:
        if name not in named and name not in defaults:
            raise LaunchError(
                f"{names[last]} is a parameter of {jit_function(kernel).__name__} and an option of the call, and "
                f"{name}, which comes before it, is not given. Give both by position, or rename the parameter."
            )
        given.append(named.pop(name) if name in named else defaults[name])
    return tuple(given), named


def source_lines(function: Any) -> tuple[list[str], int]:
    """Return the lines of a function, decorators included, and the number of the first one.

    Those of a jit function are the ones it was defined with, whatever has become of the file or cell since.
    """
    if isinstance(function, JITCallable):
        return list(function.raw_src), max(function.starting_line_number, 1)
    lines, first = inspect.getsourcelines(function)
    return lines, max(first, 1)


def compiler_variables() -> dict[str, str]:
    """Return the environment variables that change what Triton makes, as they are now."""
    return {str(name): str(value) for name, value in get_cache_invalidating_env_vars().items()}


def version() -> str:
    """Return the version of the installed Triton."""
    return str(triton.__version__)


def gluon_descriptor(base: Any, block: list[int], layout: Mapping[str, Any]) -> Any:
    """Return a descriptor of Gluon over a tensor; ``layout`` is that of its blocks: ``class``, and its fields.

    Raises:
        ValueError: Gluon has no such layout.
    """
    from triton.experimental.gluon import language
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    name = str(layout["class"])
    if not name.endswith("Layout") or not hasattr(language, name):
        raise ValueError(f"Gluon has no layout {name!r}")
    fields = {each: value for each, value in layout.items() if each != "class"}
    return TensorDescriptor.from_tensor(base, block, getattr(language, name)(**fields))
