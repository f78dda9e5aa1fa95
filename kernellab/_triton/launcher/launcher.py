"""The launch path of bound kernels: known launches go straight to the compiled launcher, all others the slow way.

A `Launcher` belongs to the outermost object of a kernel, tuner and heuristics included. It learns from launches that
went the slow way: the types of their arguments give a launch function (see `code`), their key the entry that the
function finds next time. All that it has learnt is dropped when a global that the kernel uses, or the driver, changes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Protocol

from triton import knobs
from triton._C.libtriton import native_specialize_impl
from triton.compiler import CompiledKernel
from triton.knobs import HookChain
from triton.runtime.driver import driver as drivers

from kernellab._triton.kernel import Bound
from kernellab._triton.launcher.chain import (
    MISSING,
    CapturedValue,
    Chain,
    argument_feature,
    chain_of,
    constant_feature,
    given_by,
    is_plain,
    layout_type,
    slots_of,
    tuning_key,
    values_of,
    values_with_defaults,
)
from kernellab._triton.launcher.code import ArgumentLayout, Slot, direct_launch, launch_source, style_of
from kernellab._triton.objects import by_position


@dataclass(frozen=True, slots=True)
class Context:
    """What a launch function was made under: the driver, and what the kernel takes from outside itself."""

    driver: Any
    captures: tuple[CapturedValue, ...]

    def is_now(self, other: Context) -> bool:
        """Tell whether another context is the same; a kernel holds on to its captures as long as none changes."""
        return self.driver is other.driver and self.captures is other.captures


def context_of(function: Any) -> Context:
    """Return what a launch function holds under: the driver, and what the kernel takes from outside."""
    return Context(drivers._active, function.captures())


def scope_of(chain: Chain, **own: Any) -> dict[str, Any]:
    """Return the globals of a launch function, under names that no parameter has."""
    import torch  # a launch needs it anyway

    active = drivers.active
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    backend = type(chain.function.device_caches[active.get_current_device()][3])
    return {
        "_kl_missing": MISSING,
        **{f"_kl_{name}": value for name, value in own.items()},
        "_kl_kernel": chain.function,
        "_kl_tuner": chain.tuner,
        "_kl_drivers": drivers,
        "_kl_runtime": knobs.runtime,
        "_kl_compilation": knobs.compilation,
        "_kl_device": _current_device(active),
        "_kl_current_stream": active.get_current_stream,
        "_kl_enter_chain": enter if isinstance(enter, HookChain) else HookChain(),
        "_kl_leave_chain": leave if isinstance(leave, HookChain) else HookChain(),
        "_kl_tensors": frozenset({torch.Tensor, torch.nn.Parameter}),
        "_kl_native": lambda value: native_specialize_impl(backend, value, False, True, True),
        "_kl_feature": lambda value: argument_feature(backend, value),
        "_kl_constant": constant_feature,
        "_kl_foreign": (RuntimeError, TypeError, ValueError),
        "_kl_type": type,
        "_kl_tuple": tuple,
        "_kl_list": list,
        "_kl_int": int,
        "_kl_len": len,
        "_kl_map": map,
        "_kl_callable": callable,
    }


def by_slot(chain: Chain, slots: tuple[Slot, ...], values: tuple[Any, ...]) -> dict[str, Any]:
    """Return the globals that stand for parameters: the type that each was given, and its default."""
    scope: dict[str, Any] = {}
    for slot, value, parameter in zip(slots, values, chain.function.params, strict=True):
        scope[f"_kl_type_{slot.name}"] = layout_type(value)
        if parameter.has_default:
            scope[f"_kl_default_{slot.name}"] = parameter.default
    return scope


def by_context(context: Context) -> dict[str, Any]:
    """Return the globals that circumstances are compared with."""
    scope = {"_kl_driver": context.driver}
    for i, capture in enumerate(context.captures):
        scope[f"_kl_scope{i}"], scope[f"_kl_global{i}"] = capture.scope, capture.value
    return scope


def _current_device(active: Any) -> Any:
    """Return the function that tells the current device; of torch's own, the part after its check for a first use."""
    import torch

    direct = getattr(torch._C, "_cuda_getDevice", None)
    is_torchs = active.get_current_device is torch.cuda.current_device
    return direct if is_torchs and direct is not None else active.get_current_device


_OF_RUN = {"self", "grid", "warmup"}  # what `run` takes by name besides the arguments of the kernel
_Types = tuple[type, ...]
_READ_BY_TRITON = ("instrumentation_mode", "fpsan_homomorphic_casts")


class Switch(Protocol):
    """Where ``slow`` is true, every launch goes the slow way: someone records it."""

    @property
    def slow(self) -> int:
        """How many want it so."""


@dataclass(slots=True)
class Launcher:
    """Launches one bound kernel."""

    kernel: Bound
    switch: Switch
    _context: Context | None = None
    _functions: dict[_Types, Any] = field(default_factory=dict)
    _entries: dict[_Types, dict[Any, Any]] = field(default_factory=lambda: defaultdict(dict))

    def __post_init__(self) -> None:
        self.restart()

    @property
    def front(self) -> Any:
        """What ``kernel[grid]`` calls, with the grid first: one attribute of the kernel away."""
        return self.kernel.front

    def restart(self) -> None:
        """Go the slow way at the next launch, with its arguments just as they are given."""
        self.kernel.front = self.first

    def first(self, grid: Any, /, *args: Any, **meta: Any) -> Any:
        """Launch the slow way, and make a launch function for arguments of these types."""
        __tracebackhide__ = True
        if not _OF_RUN.isdisjoint(meta):
            args, meta = by_position(self.kernel, args, meta, _OF_RUN)
        handle = self.kernel.run(*args, grid=grid, warmup=False, **meta)
        chain = chain_of(self.kernel)
        if chain is not None and not self.switch.slow and not chain.function.pre_run_hooks:
            self._learn(chain, values_of(chain, args, meta))
        return handle

    def miss(
        self, grid: Any, values: tuple[Any, ...], rest: tuple[Any, ...], options: dict[str, Any], *found: Any
    ) -> Any:
        """Take a launch that the launch function is not sure of; ``found`` are its key, heuristics and error."""
        __tracebackhide__ = True
        key, computed, error = found
        chain = chain_of(self.kernel)
        assert chain is not None, "only such chains have launch functions"
        args, meta = given_by(chain, values, rest, options)
        if error is not None:
            shown = self.kernel.runtime.launch_error(chain.function, args, meta, error)
            raise shown from (None if shown is error else error)
        if key is None:
            other = self._other(chain, values)
            if other is not None:
                self.kernel.front = other  # first of all: a second miss must not come back here
                return other(grid, *args, **meta)
        if not _OF_RUN.isdisjoint(meta):
            args, meta = by_position(self.kernel, args, meta, _OF_RUN)
        handle = self.kernel.run(*args, grid=grid, warmup=False, **meta)
        if self.switch.slow or rest or chain.function.pre_run_hooks:
            return handle
        self._learn(chain, values_of(chain, args, meta))
        if key is not None and type(handle) is CompiledKernel and all(map(is_plain, options.values())):
            types = tuple(map(layout_type, values_of(chain, args, meta)))
            self._enter(chain, self._entries[types], key, computed, handle, (args, meta))
        return handle

    def _other(self, chain: Chain, values: tuple[Any, ...]) -> Any:
        """Return the launch function for arguments of these types, if there is one that is not in front already."""
        blocked = self.switch.slow or chain.function.pre_run_hooks or knobs.runtime.add_stages_inspection_hook
        if blocked or self._context is None or not self._context.is_now(context_of(chain.function)):
            return None
        function = self._functions.get(tuple(map(layout_type, values_with_defaults(chain, values))))
        return None if function is self.front else function

    def _learn(self, chain: Chain, values: tuple[Any, ...]) -> None:
        """Make the launch function for these arguments, and forget all if the kernel's globals have changed."""
        context = context_of(chain.function)
        if self._context is None or not self._context.is_now(context):
            self._context, self._functions, self._entries = context, {}, defaultdict(dict)
            self.restart()
        if not all(capture.is_fixed() for capture in context.captures) or MISSING in values:
            return
        types = tuple(map(layout_type, values))
        if types not in self._functions:
            slots = slots_of(chain, values)
            self._functions[types] = None if slots is None else self._function(chain, slots, values)
        self.kernel.front = self._functions[types] or self.front

    def _enter(
        self,
        chain: Chain,
        entries: dict[Any, Any],
        key: Any,
        computed: Any,
        handle: Any,
        given: tuple[tuple[Any, ...], dict[str, Any]],
    ) -> None:
        compiled = (handle, handle.run, handle.function, handle.packed_metadata, *direct_launch(handle.run))
        if chain.tuner is None:
            entries[key] = compiled
            return
        choice = chain.tuner.best_config
        tuned = tuning_key(chain, *given)
        if len(chain.tuner.configs) > 1 and chain.tuner.cache.get(tuned) is not choice:
            return
        names = [name for name in chain.function.arg_names if name in choice.kwargs]
        constants = tuple(choice.kwargs[name] for name in names)
        if not chain.inner_heuristics:
            entries[key] = (tuned, choice, constants, *compiled)
            return
        known = entries.get(key)
        inner = known[3] if known is not None and known[1] is choice else {}
        if computed is not None and inner is not None:
            inner[computed] = compiled
        entries[key] = (tuned, choice, constants, inner)

    def _function(self, chain: Chain, slots: tuple[Slot, ...], values: tuple[Any, ...]) -> Any:
        assert self._context is not None
        present = [name for name in _READ_BY_TRITON if hasattr(knobs.compilation, name)]
        layout = ArgumentLayout(
            name=chain.function.__name__,
            slots=slots,
            heuristics=tuple(name for name, _ in chain.heuristics),
            inner_heuristics=tuple(name for name, _ in chain.inner_heuristics),
            configs=0 if chain.tuner is None else len(chain.tuner.configs),
            scopes=tuple(capture.name for capture in self._context.captures),
            style=style_of(self._context.driver),
            knobs=("_kl_runtime.debug", *(f"_kl_compilation.{name}" for name in present)),
        )
        scope = {
            **scope_of(
                chain, miss=self.miss, switch=self.switch, entries=self._entries[tuple(map(layout_type, values))]
            ),
            **by_slot(chain, slots, values),
            **by_context(self._context),
        }
        for prefix, pairs in (("_kl_heuristic", chain.heuristics), ("_kl_inner_heuristic", chain.inner_heuristics)):
            scope.update({f"{prefix}{i}": function for i, (_, function) in enumerate(pairs)})
        exec(compile(launch_source(layout), f"<launch of {layout.name}>", "exec"), scope)
        return scope[layout.name]
