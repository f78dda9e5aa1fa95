"""The key of a launch: captured values of a kernel, its decorators, and the features of its arguments.

A key is at least as fine as Triton's own key of compiled kernels.
"""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import triton
import triton.language as tl
from triton._C.libtriton import native_specialize_impl
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.driver import driver as drivers
from triton.runtime.jit import JITCallable, JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from kernellab._triton.kernel import Kernel, outside_names
from kernellab.source import CONFIG_OPTIONS, is_installed


class Missing:
    """The value of an absent argument, and of an undefined name."""


MISSING = Missing()


def is_immutable(value: Any) -> bool:
    """Whether a value cannot change in place, and differs from others of its type by ``==``."""
    inner = value.value if type(value) is tl.constexpr else value
    return type(inner) in {int, bool, float, str, type(None), tl.dtype}


class CapturedValue(NamedTuple):
    """A name, its scope (an object with ``get``, as dictionaries have), and its value there."""

    name: str
    scope: Any
    value: Any

    def is_unchanged(self) -> bool:
        """Whether the name still has this very object."""
        return self.scope.get(self.name, MISSING) is self.value

    def is_fixed(self) -> bool:
        """Whether the object cannot change in place, or has captures of its own."""
        kinds = (JITCallable, ModuleType, type, FunctionType, BuiltinFunctionType)
        return self.value is MISSING or isinstance(self.value, kinds) or is_immutable(self.value)


class _FreeVariable:
    """A variable of an enclosing function, as a scope."""

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def get(self, name: str, default: Any) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:
            return default


def captures_of(function: Any) -> tuple[CapturedValue, ...]:
    """The captured values of a jit function and of its helpers, the function's own first."""
    captures: list[CapturedValue] = []
    pending, known = [function], {id(function)}
    for current in pending:
        for capture in _captures_of_python(current.fn):
            captures.append(capture)
            helper = capture.value
            if not isinstance(helper, JITCallable) or id(helper) in known:
                continue
            if not is_installed(helper.fn.__module__ or ""):
                known.add(id(helper))
                pending.append(helper)
    return tuple(captures)


def jit_functions(function: Any, captures: Sequence[CapturedValue]) -> list[Any]:
    """A jit function and the jit functions among its captures, each once."""
    helpers = (capture.value for capture in captures if isinstance(capture.value, JITFunction))
    return list({id(jit): jit for jit in (function, *helpers)}.values())


def are_alike(held: Sequence[CapturedValue], fresh: Sequence[CapturedValue]) -> bool:
    """Whether a kernel compiles alike for both: each name has the same object, or an equal constant."""
    pairs = zip(held, fresh, strict=False)
    return len(held) == len(fresh) and all(a.name == b.name and _is_same_constant(a.value, b.value) for a, b in pairs)


def _is_same_constant(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, tl.constexpr) and isinstance(other, tl.constexpr):
        return _is_same_constant(one.value, other.value)
    return is_immutable(one) and type(one) is type(other) and repr(one) == repr(other)  # 0.0 and -0.0 are equal


def _captures_of_python(python: FunctionType) -> Iterator[CapturedValue]:
    cells = dict(zip(python.__code__.co_freevars, python.__closure__ or (), strict=False))
    for name, attributes in outside_names(python).items():
        scope = _FreeVariable(cells[name]) if name in cells else python.__globals__
        if scope.get(name, MISSING) is not MISSING or not hasattr(builtins, name):
            yield from _captured_values(name, scope, attributes)


def _captured_values(name: str, scope: Any, attributes: set[str]) -> Iterator[CapturedValue]:
    value = scope.get(name, MISSING)
    if isinstance(value, ModuleType) and is_installed(value.__name__):
        return
    yield CapturedValue(name, scope, value)
    if isinstance(value, tl.constexpr):
        yield from _captured_values("value", vars(value), set())
    elif isinstance(value, ModuleType | type):
        for attribute in sorted(attributes):
            yield from _captured_values(attribute, vars(value), set())


class CallingConvention(Enum):
    """The calling convention of the C launch function: unknown, flat (3.6), or a tuple with types (3.7 on)."""

    UNKNOWN = "unknown"
    FLAT = "flat"
    ANNOTATED = "annotated"


_CONVENTIONS = {"3.6": CallingConvention.FLAT} | dict.fromkeys(("3.7", "3.8", "3.9"), CallingConvention.ANNOTATED)


class ArgumentKind(Enum):
    """The part that an argument of one type has in the key.

    Triton specializes a tensor on its dtype and whether its address is divisible by 16, an integer on its width,
    divisibility by 16 and whether it is 1, other run-time values on their type, constants on their value.
    """

    TENSOR = "tensor"
    INTEGER = "integer"
    TYPED = "typed"
    NATIVE = "native"
    CONSTANT = "constant"
    RICH_CONSTANT = "rich constant"
    CONFIG = "config"
    HEURISTIC = "heuristic"
    INNER_HEURISTIC = "inner heuristic"


SUPPLIED = frozenset({ArgumentKind.CONFIG, ArgumentKind.HEURISTIC, ArgumentKind.INNER_HEURISTIC})


@dataclass(frozen=True, slots=True)
class Slot:
    """One parameter: its name, its kind, whether it has a default, whether it is a key of the autotuner."""

    name: str
    kind: ArgumentKind
    has_default: bool = False
    is_tuning_key: bool = False

    @property
    def is_keyed_by_value(self) -> bool:
        """Whether the key holds the argument's value, and not only its type."""
        return self.is_tuning_key or self.kind in {ArgumentKind.CONSTANT, ArgumentKind.RICH_CONSTANT}


@dataclass(frozen=True, slots=True)
class ArgumentLayout:
    """Everything that the text of a launch function depends on.

    ``heuristics`` and ``inner_heuristics`` are the parameters computed before and after the config is chosen, in order.
    ``configs`` is the number of configs of an autotuned kernel, else 0. ``scopes`` are the names of the watched
    captures, each in a scope of its own. ``knobs`` are the expressions of Triton's knobs. ``style`` is the calling
    convention of the C function under the launcher, ``device_type`` torch's name for the tensors' device.
    """

    name: str
    slots: tuple[Slot, ...]
    heuristics: tuple[str, ...]
    inner_heuristics: tuple[str, ...]
    configs: int
    scopes: tuple[str, ...]
    knobs: tuple[str, ...]
    style: CallingConvention = CallingConvention.UNKNOWN
    device_type: str = "cuda"

    def names(self, *kinds: ArgumentKind) -> list[str]:
        """The parameters of some kinds."""
        return [slot.name for slot in self.slots if slot.kind in kinds]

    @property
    def fixed_names(self) -> frozenset[str]:
        """The parameters that have one value in all launches of one entry."""
        return frozenset(s.name for s in self.slots if s.is_keyed_by_value or s.kind is ArgumentKind.CONFIG)


def convention_of(driver: Any) -> CallingConvention:
    """The calling convention of the installed Triton, if ``driver`` is its driver of NVIDIA GPUs."""
    kind = type(driver)
    if (kind.__module__, kind.__name__) != ("triton.backends.nvidia.driver", "CudaDriver"):
        return CallingConvention.UNKNOWN
    return _CONVENTIONS.get(".".join(triton.__version__.split(".")[:2]), CallingConvention.UNKNOWN)


def direct_launch(run: Any) -> tuple[Any, ...]:
    """The C function under the launcher ``run`` of a kernel, with those of its arguments that depend on the kernel.

    These are the flags of cooperative and of dependent launches, the types of the arguments, and the signature. All
    five are None where a launch needs more than that function: scratch memory, or another launcher.
    """
    kind = type(run)
    needs_more = (
        (kind.__module__, kind.__name__) != ("triton.backends.nvidia.driver", "CudaLauncher")
        or run.global_scratch_size
        or run.profile_scratch_size
        or getattr(run, "gsan_enabled", False)
    )
    if needs_more:
        return (None,) * 5
    annotations, signature = getattr(run, "arg_annotations", None), getattr(run, "kernel_signature", None)
    return run.launch, run.launch_cooperative_grid, run.launch_pdl, annotations, signature


@dataclass(frozen=True, slots=True)
class Chain:
    """The decorators around a jit function: heuristics outside the tuner, the tuner, heuristics inside it."""

    function: Any
    heuristics: tuple[tuple[str, Any], ...] = ()
    tuner: Any = None
    inner_heuristics: tuple[tuple[str, Any], ...] = ()


def chain_of(kernel: Kernel) -> Chain | None:
    """The decorators of ``kernel``; None where their order has no launch function."""
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
    if not usual or any(name.startswith("_kl_") for name in names):
        return None
    if tuner is not None and len({frozenset(config.kwargs) for config in tuner.configs}) != 1:
        return None  # configs that set different parameters
    supplied = [name for name, _ in (*outer, *inner)] + ([] if tuner is None else list(tuner.configs[0].kwargs))
    if len(set(supplied)) != len(supplied) or not set(supplied) <= set(kernel.arg_names):
        return None
    return Chain(kernel, tuple(outer), tuner, tuple(inner))


def parameter_values(chain: Chain, args: tuple[Any, ...], meta: Mapping[str, Any]) -> tuple[Any, ...]:
    """The value of each parameter of a launch; see `values_with_defaults`."""
    arguments = {**dict(zip(chain.function.arg_names, args, strict=False)), **meta}
    values = tuple(arguments.get(name, MISSING) for name in chain.function.arg_names)
    return values_with_defaults(chain, values)


def values_with_defaults(chain: Chain, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The argument or default of each parameter; None where a decorator supplies it."""
    supplied = supplied_parameters(chain)
    completed = []
    for parameter, value in zip(chain.function.params, values, strict=True):
        absent = value is MISSING and parameter.has_default
        completed.append(None if parameter.name in supplied else parameter.default if absent else value)
    return tuple(completed)


def user_arguments(
    chain: Chain, values: tuple[Any, ...], rest: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a launch function as the user passed them: by position up to the first one left out."""
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
    """The key of a bound autotuner's choice; see `choice_key`."""
    named = dict(zip(chain.tuner.arg_names, args, strict=False))
    for name, heuristic in chain.heuristics:
        meta = {**meta, name: heuristic({**named, **meta})}
    return choice_key(chain.tuner, args, meta)


def choice_key(tuner: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a choice, as in `Autotuner.run`, with the options of the call as the last member."""
    named = dict(zip(tuner.arg_names, args, strict=False))
    options = tuple((name, repr(meta[name])) for name in CONFIG_OPTIONS if name in meta)
    arguments = {name: value for name, value in {**named, **meta}.items() if name in tuner.arg_names}
    known = {name: value for name, value in arguments.items() if name not in CONFIG_OPTIONS or name not in meta}
    key = [known[name] for name in tuner.keys if name in known]
    dtypes = [str(value.dtype) for value in known.values() if hasattr(value, "dtype")]
    return (*key, *dtypes, *((options,) if options else ()))


def supplied_parameters(chain: Chain) -> dict[str, ArgumentKind]:
    """The parameters that the decorators supply, with their kinds."""
    kinds = {name: ArgumentKind.HEURISTIC for name, _ in chain.heuristics}
    kinds.update({name: ArgumentKind.INNER_HEURISTIC for name, _ in chain.inner_heuristics})
    if chain.tuner is not None:
        kinds.update(dict.fromkeys(chain.tuner.configs[0].kwargs, ArgumentKind.CONFIG))
    return kinds


_PLAIN = (int, bool, str, type(None))
_KINDS = {
    int: ArgumentKind.INTEGER,
    **dict.fromkeys((float, bool, type(None)), ArgumentKind.TYPED),
    **dict.fromkeys((tuple, TensorDescriptor), ArgumentKind.NATIVE),
}


def layout_type(value: Any) -> type:
    """The type by which a launch function is chosen."""
    import torch

    return torch.Tensor if type(value) is torch.nn.Parameter else type(value)


def slots_of(chain: Chain, values: tuple[Any, ...]) -> tuple[Slot, ...] | None:
    """The slot of each parameter; None where an argument has a type without launch functions."""
    keys = () if chain.tuner is None else tuple(chain.tuner.keys)
    supplied = supplied_parameters(chain)
    slots = []
    for parameter, value in zip(chain.function.params, values, strict=True):
        kind = supplied.get(parameter.name) or _kind(chain, parameter, value)
        if kind is None or (parameter.name in keys and kind in {ArgumentKind.TENSOR, ArgumentKind.NATIVE}):
            return None
        slots.append(Slot(parameter.name, kind, parameter.has_default, parameter.name in keys))
    return tuple(slots)


def _kind(chain: Chain, parameter: Any, value: Any) -> ArgumentKind | None:
    import torch

    if parameter.is_constexpr:
        return ArgumentKind.CONSTANT if type(value) in _PLAIN else ArgumentKind.RICH_CONSTANT
    if layout_type(value) is torch.Tensor:
        target = chain.function.device_caches[drivers.active.get_current_device()][2]
        return ArgumentKind.TENSOR if target.backend == "cuda" else ArgumentKind.NATIVE
    return _KINDS.get(type(value))


def constant_feature(value: Any) -> Any:
    """A key of a constant: two constants with equal keys compile alike.

    Python has ``1 == 1.0 == True`` and ``0.0 == -0.0``, so the key has the type, and the digits of a float.

    Raises:
        TypeError: constants of this type have no key.
    """
    import torch

    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is tl.dtype:
        return kind, value.name
    if kind is tl.constexpr:
        return kind, constant_feature(value.value)
    if isinstance(value, JITFunction):
        return id(value), value, value.cache_key
    if isinstance(value, Enum) or kind is torch.dtype:
        return kind, value  # one object per value
    if isinstance(value, tuple):
        return kind, tuple(map(constant_feature, value))
    if dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return kind, *(constant_feature(getattr(value, member.name)) for member in dataclasses.fields(kind))
    raise TypeError(f"a constant of type {kind.__qualname__}")


def argument_feature(backend: type, value: Any) -> Any:
    """The key of a tuple, a descriptor, or a tensor of a target without a shorter one."""
    import torch

    kind = type(value)
    if kind is tuple:
        return kind, tuple(argument_feature(backend, member) for member in value)
    if kind is TensorDescriptor:
        dtype: Any = value.base.dtype
    elif kind is torch.Tensor or kind is torch.nn.Parameter:
        dtype = value.dtype
    elif kind in {int, float, bool, type(None)}:
        dtype = kind
    else:
        raise TypeError(f"an argument of type {kind.__qualname__}")
    return dtype, native_specialize_impl(backend, value, False, True, True)


@dataclass(frozen=True, slots=True)
class Features:
    """The features of the arguments in a key: of each tensor and each integer, in the order of the parameters.

    An integer is ``1``, divisible by 16, or neither: True, 0 and 2, as in the key.
    """

    device: int
    debug: Any
    dtypes: tuple[Any, ...]
    aligned: tuple[bool, ...]
    integers: tuple[int, ...]
    are_narrow: bool


def features_in(layout: ArgumentLayout, key: tuple[Any, ...]) -> Features:
    """The features in a key of a layout's launch function."""
    tensors, integers = layout.names(ArgumentKind.TENSOR), layout.names(ArgumentKind.INTEGER)
    rest = list(key[2 + len(layout.knobs) :])
    aligned: Any = rest.pop(0) if tensors else ()
    dtypes = tuple(rest.pop(0) for _ in tensors)
    widths = rest.pop(0) if integers else 0
    classes = tuple(rest.pop(0) for _ in integers)
    each_aligned = (True,) * len(tensors) if aligned is True else aligned
    return Features(key[0], key[1], dtypes, each_aligned, classes, are_narrow=not widths)
