"""Checks of calls to the public verbs, of grids and of arguments.

`verb` stands before each of them: a call that does not fit its signature, or an option that holds what it may not, is a
`UsageError` before anything happens, worded the same everywhere. An option that has the name of a parameter of the
kernel, and holds what only the kernel can take, goes to the kernel.

A grid, a function or extents, is evaluated and checked at launch. What Triton raises for a launch that does not fit
becomes an error in the user's words.

Mock arguments stand in for those of a kernel that nobody has launched: the compiler asks of a tensor only its dtype and
whether its address is a multiple of 16.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeGuard, TypeVar, cast

from kernellab._triton.kernel import (
    JitKernel,
    Kernel,
    constexpr_value,
    is_kernel,
    jit_function,
    parameter_names,
    pass_by_position,
    require_one_tuner,
    variants,
)
from kernellab.errors import KernellabError, LaunchError, UsageError, value_message, value_text
from kernellab.launch.arguments import memory_of, require_memory
from kernellab.target import Target

_Verb = TypeVar("_Verb", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)
_LONGEST_PATH, _LONGEST_NAME = 4096, 255
_LONGEST_S = 1_000_000  # poll(2) counts milliseconds in 32 bits


@dataclass(frozen=True, slots=True)
class CallRule:
    """The check of an option: ``allows`` tests a value, ``expected`` words it for errors."""

    expected: str
    allows: Callable[[Any], bool]


def is_number(value: object) -> bool:
    """Whether a value is a finite real number; True and False are none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, numbers.Integral) and is_number(value) and 0 < int(value) < 2**63


def _is_path(value: object) -> bool:
    names = os.fsencode(value).split(os.fsencode(os.sep)) if _may_be_path(value) else []
    return bool(names) and sum(map(len, names)) + len(names) <= _LONGEST_PATH and max(map(len, names)) <= _LONGEST_NAME


def _may_be_path(value: object) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(value, str | os.PathLike) and bool(str(value)) and "\0" not in str(value)


def _has_configs(value: object) -> bool:
    is_one = hasattr(value, "all_kwargs") or hasattr(value, "to_triton")
    return is_one or (
        isinstance(value, Iterable) and not isinstance(value, str | bytes) and not hasattr(value, "dtype")
    )


def _has_names(value: object) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and all(isinstance(name, str) for name in value)


def _has_numbers(value: object) -> bool:
    return isinstance(value, list | tuple | range) and all(type(number) is int for number in value)


def _is_executor(value: Any) -> bool:
    """Whether a value runs calls elsewhere: an executor, or a client or view of ipyparallel."""
    return any(callable(getattr(value, name, None)) for name in ("submit", "apply_async", "load_balanced_view"))


_FLAG = CallRule("True or False", lambda value: isinstance(value, bool))
_TARGET = CallRule("a target, such as 'cuda:90'", lambda value: isinstance(value, str | Target) and bool(value))
_FORMULA = CallRule("a number or a function", lambda value: is_number(value) or callable(value))
_CONDITION = CallRule("an expression or a function", lambda value: isinstance(value, str) or callable(value))
_SECONDS = CallRule(
    f"a positive number of seconds, {_LONGEST_S:,} at most", lambda value: is_number(value) and 0 < value <= _LONGEST_S
)
_COUNT = CallRule("a positive number (an integer)", _is_count)
_PATH = CallRule("the path of a file or folder", _is_path)
_KEPT = CallRule(
    "a name, name@version or id", lambda value: isinstance(value, str | int) and not isinstance(value, bool)
)
_TEXT = CallRule("a text", lambda value: isinstance(value, str))
_RULES = {
    "budget_configs": _COUNT,
    "budget_s": _SECONDS,
    "bytes": _FORMULA,
    "argument": _TEXT,
    "check": CallRule(_CONDITION.expected, lambda value: _CONDITION.allows(value) or hasattr(value, "require")),
    "closure": CallRule("what a kernel was at a launch", lambda value: value is None or hasattr(value, "functions")),
    "configs": CallRule("a list of triton.Config, or a Space: Space(BLOCK=[64, 128])", _has_configs),
    "devices": CallRule("a list of GPU numbers, such as [0, 1]", _has_numbers),
    "effects": CallRule("what lab.effects returns", lambda value: hasattr(value, "sites")),
    "executor": CallRule("a concurrent.futures.Executor, or a client of dask or ipyparallel", _is_executor),
    "flops": _FORMULA,
    "found": CallRule("a DataFrame", lambda value: hasattr(value, "to_csv") and hasattr(value, "columns")),
    "max_configs": _COUNT,
    "inputs": CallRule("a function of swept names: lambda n: dict(x=torch.rand(n), n=n)", callable),
    "function": CallRule("a function", callable),
    "kernels": CallRule("a list of names, such as ['add_kernel']", _has_names),
    "kind": _TEXT,
    "left": _KEPT,
    "max_programs": _COUNT,
    "name": _TEXT,
    "namespace": CallRule("a dict, such as globals()", lambda value: isinstance(value, dict)),
    "opened": _TEXT,
    "outputs": CallRule("a list of argument names, such as ['out_ptr']", _has_names),
    "others": CallRule("a list of dispatches, or of paths of tables", lambda value: isinstance(value, list | tuple)),
    "path": _PATH,
    "right": CallRule(f"{_KEPT.expected}, or a function", lambda value: _KEPT.allows(value) or callable(value)),
    "rounds": _COUNT,
    "search": CallRule("a name, or an object with ask and tell", lambda v: isinstance(v, str) or hasattr(v, "ask")),
    "store": CallRule("the path of a folder", _may_be_path),  # of a name too long, the store itself says so
    "table": _TEXT,
    "target": _TARGET,
    "timeout_s": _SECONDS,
    "to": _PATH,
    "uninitialised": CallRule("a list of names, such as ['out_ptr']", _has_names),
    "version": CallRule("a version, as lab.kernels.version(name) returns", lambda value: hasattr(value, "closure")),
    "view": _TEXT,
    "where": _CONDITION,
}  # fmt: skip
_OWNERS = {"Lab": "lab", "Workspace": "lab", "Launches": "lab", "Registry": "lab.kernels"}


def verbs(owner: _Class) -> _Class:
    """Make each public method of a class a `verb`."""
    for name, member in list(vars(owner).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(owner, name, verb(member))
    return owner


def verb(function: _Verb, label: str = "", own: Mapping[str, CallRule] | None = None) -> _Verb:
    """Return a public function or method that checks how it is called.

    What a parameter may hold goes by its name, which means the same for all verbs, but for what ``own`` says; one whose
    default is None may be None, one whose default is a truth value holds such. Of a verb that takes a kernel and its
    arguments, a keyword that cannot be the verb's goes to the kernel's parameter of that name, if there is one. The
    verb then raises `UsageError` for a call that does not fit, which calls it by its ``label``.
    """
    signature = inspect.signature(function)
    known = {**_RULES, **(own or {})}
    rules = {
        name: rule
        for name, parameter in signature.parameters.items()
        if (rule := _rule_of(parameter, known)) is not None
    }
    of_kernel = {"kernel", "args"} <= set(signature.parameters)
    label = label or _label_of(function)

    @functools.wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        if of_kernel and len(args) > 1:
            misplaced = [name for name, rule in rules.items() if name in named and not rule.allows(named[name])]
            args, named = _with_kernel_arguments(signature, args, named, misplaced)
            _require_own_names(signature, label, args[1], named)
        for name, value in _bound_arguments(signature, label, args, named).items():
            if name in rules and not rules[name].allows(value):
                raise UsageError(value_message(name, value, rules[name].expected))
        return function(*args, **named)

    return cast(_Verb, checked)


def _rule_of(parameter: inspect.Parameter, known: Mapping[str, CallRule]) -> CallRule | None:
    rule = _FLAG if isinstance(parameter.default, bool) else known.get(parameter.name)
    if rule is None or parameter.default is not None:
        return rule
    return CallRule(rule.expected, lambda value: value is None or rule.allows(value))


def _label_of(function: Callable[..., Any]) -> str:
    """The name of a verb in messages: ``lab.run``."""
    owner, _, name = function.__qualname__.rpartition(".")
    return "kernellab.Lab" if name == "__init__" else f"{_OWNERS.get(owner, 'kernellab')}.{name}"


def _bound_arguments(
    signature: inspect.Signature, label: str, args: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by parameter; raises `UsageError` if it does not fit the signature."""
    try:
        bound = signature.bind(*args, **named)
    except TypeError as exc:
        untyped = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
        shown = inspect.Signature([parameter for parameter in untyped if parameter.name != "self"])
        raise UsageError(f"{label}: {exc}; it is called as {label}{shown}.") from exc
    return bound.arguments


def _with_kernel_arguments(
    signature: inspect.Signature, args: tuple[Any, ...], named: dict[str, Any], misplaced: list[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with ``misplaced`` keywords passed to the kernel, by position, if it has such parameters."""
    before = list(signature.parameters).index("args")
    kernel = args[1]
    if not misplaced or not is_kernel(kernel):
        return args, named
    reserved = {name for name in misplaced if name in parameter_names(kernel)}
    positional, rest = pass_by_position(kernel, args[before:], named, reserved)
    return (*args[:before], *positional), rest


def _require_own_names(signature: inspect.Signature, label: str, kernel: Kernel, named: Mapping[str, Any]) -> None:
    """Raise `UsageError` for an unknown keyword that resembles one of the verb's."""
    own = [name for name, each in signature.parameters.items() if each.default is not inspect.Parameter.empty]
    for name in (name for name in named if name not in signature.parameters):
        near = get_close_matches(name, own, n=1, cutoff=0.85)
        if near and is_kernel(kernel) and name not in parameter_names(kernel):
            raise UsageError(f"{label} and the kernel have no parameter {name!r}; is {near[0]}= meant?")


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call ``kernel[grid](*args, **meta)`` by the user. A magic may name the kernel by a label."""

    kernel: Kernel
    grid: Any
    args: tuple[Any, ...]
    meta: Mapping[str, Any]


def require_kernel(kernel: Kernel) -> None:
    """Raise `UsageError` unless the value is a Triton kernel with one autotuner at most."""
    from kernellab._triton.interpreted import require_compiled

    require_compiled(kernel)
    if not is_kernel(kernel):
        raise UsageError(f"{value_text(kernel)} is not a Triton kernel; pass a function decorated with @triton.jit.")
    require_one_tuner(kernel)


def require_grid(grid: Any, what: str) -> None:
    """Raise `UsageError` for an impossible grid: mostly the kernel's first argument, where the grid is missing.

    ``what`` is the call: ``lab.tune``.
    """
    if not is_grid_function(grid) and not isinstance(grid, int | tuple | list):
        got = value_text(grid) if grid is None or isinstance(grid, str | float) else f"a {type(grid).__name__}"
        raise UsageError(
            f"The grid is missing: {what} got {got} in its place. Pass it after the kernel, "
            f"{what}(kernel, grid, ...), as a tuple such as (64,) or a function of the kernel's parameters by name."
        )


def is_grid_function(grid: object) -> bool:
    """Whether a grid is a function of the arguments, and neither a kernel nor a constant."""
    return callable(grid) and not is_kernel(grid) and constexpr_value(grid) is grid


def require_launch(
    what: str, kernel: Kernel, grid: Any, args: tuple[Any, ...] = (), meta: Mapping[str, Any] | None = None
) -> None:
    """Refuse a launch without kernel or grid, or with tensors that no kernel takes. ``what`` is the call.

    Raises:
        UsageError, LaunchError: it says which.
    """
    from kernellab._triton.specialize import tensor_problem

    require_kernel(kernel)
    require_grid(grid, what)
    arguments = {**dict(zip(parameter_names(kernel), args, strict=False)), **(meta or {})}
    name = jit_function(kernel).__name__
    if (problem := tensor_problem(name, arguments)) is not None:
        raise LaunchError(problem, kernel=name)
    for argument, tensor in memory_of(arguments).items():
        require_memory(argument, tensor)


def variants_of(kernel: Kernel, args: tuple[Any, ...], meta: Mapping[str, Any]) -> Iterator[Any]:
    """The function and options of a plain kernel, or of every config of an autotuned one."""
    require_kernel(kernel)
    return variants(kernel, args, meta)


def named_arguments(function: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by parameter name."""
    by_name = {name: value for name, value in meta.items() if name in function.arg_names}
    return {**dict(zip(function.arg_names, args, strict=False)), **by_name}


Grid3 = tuple[int, int, int]
MAX_GRID: Grid3 = (2**31 - 1, 65535, 65535)  # of CUDA


def evaluated_grid(kernel: JitKernel, grid: Any, arguments: Mapping[str, Any]) -> Grid3:
    """The three extents of the user's grid for the arguments of a launch; see `checked_grid`.

    Raises:
        LaunchError: it is no grid, or a function that cannot be called with the arguments by name.
        Exception: whatever the user's function raises, as it is.
    """
    __tracebackhide__ = True
    if not is_grid_function(grid):
        return checked_grid(grid, kernel.__name__)
    try:
        extents = grid(arguments)
    except TypeError as exc:
        if exc.__traceback__ is not None and exc.__traceback__.tb_next is not None:
            raise
        # Python did not even enter it.
        raise LaunchError(
            f"The grid function of {kernel.__name__} is called with the arguments by name, as one dict, "
            f'and {exc}; write it as lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),).',
            kernel=kernel.__name__,
        ) from exc
    return checked_grid(extents, kernel.__name__)


def checked_grid(grid: Any, name: str) -> Grid3:
    """A grid of one to three extents as three.

    Raises:
        LaunchError: it has another form, or an extent is negative.
    """
    extents = (grid,) if isinstance(grid, int) else grid
    if not isinstance(extents, tuple | list) or not 1 <= len(extents) <= 3:
        raise LaunchError(
            f"The grid of {name} is {value_text(grid)}; expected one to three integers, such as (64,).", kernel=name
        )
    try:
        counts = tuple(extent.__index__() for extent in extents)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # the latter of tensors
        raise LaunchError(
            f"The grid of {name} is {value_text(grid)}; its extents must be integers, as triton.cdiv(n, BLOCK) gives.",
            kernel=name,
        ) from None
    if max(counts) >= 2**63:
        raise LaunchError(f"The grid of {name} has an extent of more than 64 bits; no device has as many.", kernel=name)
    if min(counts) < 0:
        raise LaunchError(f"The grid of {name} is {value_text(grid)}; an extent cannot be negative.", kernel=name)
    return (*counts, 1, 1)[:3]


def require_launchable(grid: Grid3, name: str, target: Target) -> None:
    """Refuse a grid that the interpreter could run and no device of the target can.

    Raises:
        LaunchError: an extent is beyond what CUDA launches.
    """
    if target.backend == "cuda" and any(extent > limit for extent, limit in zip(grid, MAX_GRID, strict=True)):
        at_most = " x ".join(f"{limit:,}" for limit in MAX_GRID)
        raise LaunchError(
            f"The grid of {name} is {grid}, and CUDA launches at most {at_most} programs; "
            "put the largest extent first, or let each program do more.",
            kernel=name,
        )


def launch_error(
    kernel: JitKernel, args: tuple[Any, ...], meta: Mapping[str, Any], exc: Exception, target: Target
) -> KernellabError | None:
    """The lab's error for an exception of a launch, or None if the exception is clear by itself."""
    from kernellab._triton.specialize import argument_error, launch_problem, option_error, require_options

    try:
        require_options(kernel.__name__, {name: meta[name] for name in meta if name not in kernel.arg_names})
    except UsageError as error:
        return error
    problem = launch_problem(kernel, args, meta)
    if problem is not None:
        return LaunchError(problem, kernel=kernel.__name__)
    if "annot be accessed from Triton" in str(exc):
        return LaunchError(
            _wrong_device(kernel, named_arguments(kernel, args, meta)), kernel=kernel.__name__, detail=str(exc)
        )
    if isinstance(exc, TypeError | OverflowError):
        return argument_error(kernel, args, meta, exc)
    if "Triton Error [CUDA]: invalid argument" in str(exc):
        return LaunchError(
            f"CUDA refuses to launch {kernel.__name__}: a grid has at most "
            f"{' x '.join(map(str, MAX_GRID))} programs, and numbers at most 64 bits.",
            kernel=kernel.__name__,
            detail=str(exc),
        )
    if isinstance(exc, KeyError | AssertionError | ValueError):
        return option_error(kernel, meta, exc, target)
    return None


def _wrong_device(kernel: JitKernel, arguments: Mapping[str, Any]) -> str:
    on_cpu = [name for name, value in arguments.items() if getattr(getattr(value, "device", None), "type", "") == "cpu"]
    if not on_cpu:
        return f"An argument of {kernel.__name__} is an address that this GPU cannot reach, or was freed."
    names, verb = ", ".join(on_cpu), "is" if len(on_cpu) == 1 else "are"
    hint = "use .to('cuda'), or launch on the CPU by %%triton --interpret"
    return f"{names} of {kernel.__name__} {verb} on the CPU and the kernel runs on a GPU; {hint}."


_POINTER = re.compile(r"\*k?(\w+)$")
_ALIGNED_ADDRESS = 1 << 12


@dataclass(frozen=True, slots=True)
class MockTensor:
    """Looks like a tensor to the compiler. ``dtype`` is a torch dtype, or Triton's name of one."""

    dtype: Any
    address: int = _ALIGNED_ADDRESS

    def data_ptr(self) -> int:
        """A fake address; only its alignment counts."""
        return self.address


def mock_arguments(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments with a mock for each tensor; None if there is a descriptor, which has no mock."""
    mocks = {name: _mock(value) for name, value in arguments.items()}
    return None if any(hasattr(value, "block_shape") for value in mocks.values()) else mocks


def annotated_arguments(kernel: JitKernel) -> dict[str, Any] | None:
    """Arguments for a jit function whose parameters all have Triton type annotations or defaults.

    ``x_ptr: "*fp32"`` gives a mock tensor, ``n: "i32"`` a number; None where a parameter says too little.
    """
    arguments: dict[str, Any] = {}
    for parameter in kernel.params:
        if parameter.has_default:
            arguments[parameter.name] = parameter.default
        elif not parameter.is_constexpr and (pointer := _POINTER.match(parameter.annotation_type)):
            arguments[parameter.name] = MockTensor(pointer[1])
        elif not parameter.is_constexpr and re.match(r"[iu]\d+$", parameter.annotation_type):
            arguments[parameter.name] = 2
        elif not parameter.is_constexpr and re.match(r"(fp|bf)\d+$", parameter.annotation_type):
            arguments[parameter.name] = 1.5
        else:
            return None
    return arguments


def _mock(value: Any) -> Any:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(_mock, value))
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return MockTensor(value.dtype, _ALIGNED_ADDRESS + value.data_ptr() % 16)
    return value
