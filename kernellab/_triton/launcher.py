"""The launch path of bound kernels: learnt launches call the compiled launcher directly, others take the slow path.

A `Launcher` belongs to the outermost object of a kernel, tuner and heuristics included. It learns from launches on the
slow path: the types of their arguments give a launch function (see `launch_text`), their key the entry that the
function finds next time. Everything learnt is dropped when the driver, or a global that the kernel uses, changes.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import CodeType, FunctionType
from typing import Any

from triton import knobs
from triton._C.libtriton import native_specialize_impl
from triton.compiler import CompiledKernel
from triton.knobs import HookChain
from triton.runtime.driver import driver as drivers

from kernellab._triton.grid_functions import GridMemos
from kernellab._triton.kernel import Bound, jit_function, pass_by_position
from kernellab._triton.launch_key import (
    MISSING,
    ArgumentKind,
    ArgumentLayout,
    CapturedValue,
    Chain,
    Slot,
    argument_feature,
    chain_of,
    constant_feature,
    convention_of,
    direct_launch,
    features_in,
    is_immutable,
    layout_type,
    parameter_values,
    slots_of,
    tuning_key,
    user_arguments,
    values_with_defaults,
)
from kernellab._triton.launch_text import COMPILED, KNOB_GROUPS, Circumstances, can_guard, guarded_source, launch_source
from kernellab._triton.specialize import RUN_KNOBS
from kernellab._triton.tracing import is_traced, skip_in_dynamo, traced_launch
from kernellab.errors import LaunchError
from kernellab.workers.forks_and_interrupts import rlock


def scope_of(chain: Chain, **own: Any) -> dict[str, Any]:
    """The globals of a launch function, under names that no parameter has."""
    import torch  # a launch needs it anyway

    active = drivers.active
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    backend = type(chain.function.device_caches[active.get_current_device()][3])
    return {
        "__name__": __name__,  # so that its frames do not count as the user's
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
        "_kl_one": 1,
        "_kl_len": len,
        "_kl_map": map,
        "_kl_callable": callable,
        "_kl_python": FunctionType,
        "_kl_id": id,
        "_kl_modes": torch._C._len_torch_dispatch_stack,
    }


def _current_device(active: Any) -> Any:
    """The function that returns the current device; for torch, without its check for a first use."""
    import torch

    direct = getattr(torch._C, "_cuda_getDevice", None)
    is_torchs = active.get_current_device is torch.cuda.current_device
    return direct if is_torchs and direct is not None else active.get_current_device


def _is_only_device(active: Any) -> bool:
    """Whether the current device is always the same one."""
    import torch

    return active.get_current_device is torch.cuda.current_device and torch.cuda.device_count() == 1


_RUN_KEYWORDS = {"self", "grid", "warmup"}  # keywords of `run` besides the kernel's arguments
_Types = tuple[type, ...]
_Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_MAX_REMEMBERED = 4096
_COMPILED = tuple(COMPILED.split(", "))


class Switch:
    """Counts the recorders of all threads; while there is one, all launches take the slow path.

    In a thread that sets ``send``, launches go through it.
    """

    def __init__(self) -> None:
        self.slow = 0
        self._local = threading.local()
        self._lock = rlock()

    @contextmanager
    def on(self) -> Iterator[None]:
        """Send all launches the slow path inside a with statement."""
        with self._lock:
            self.slow += 1
        try:
            yield
        finally:
            with self._lock:
                self.slow -= 1

    @contextmanager
    def sending(self, send: Callable[..., Any]) -> Iterator[None]:
        """Let ``send`` make the launches of this thread inside a with statement."""
        before, self._local.send = self.send, send
        try:
            yield
        finally:
            self._local.send = before

    @property
    def send(self) -> Callable[..., Any] | None:
        """The function that makes this thread's launches from (kernel, grid, arguments, options), or None."""
        return getattr(self._local, "send", None)


def _types_of(values: tuple[Any, ...]) -> _Types:
    """The types by which a launch function is chosen."""
    return tuple(map(layout_type, values))


@dataclass(slots=True)
class Launcher:
    """Launches one bound kernel. Its launch functions hold for one driver, and for one set of captured values.

    ``_grid_codes`` are the code objects of grid functions that took the slow path, by identity.
    """

    kernel: Bound
    switch: Switch
    _driver: Any = None
    _captures: tuple[CapturedValue, ...] | None = None
    _functions: dict[_Types, tuple[Any, ArgumentLayout] | None] = field(default_factory=dict)
    _entries: dict[_Types, dict[Any, Any]] = field(default_factory=partial(defaultdict, dict))
    _addresses: set[int] = field(default_factory=set)
    _grid_codes: dict[int, CodeType] = field(default_factory=dict)

    def restart(self) -> None:
        """Take the slow path at the next launch, with its arguments exactly as passed."""
        skip_in_dynamo(Launcher.launch_and_learn, Launcher.miss, LaunchOnGrid.__call__, type(self.kernel).run)
        self.kernel.front = None

    def launch_and_learn(self, grid: Any, /, *args: Any, **meta: Any) -> Any:
        """Launch on the slow path, and make a launch function for arguments of these types."""
        __tracebackhide__ = True
        if not _RUN_KEYWORDS.isdisjoint(meta):
            args, meta = pass_by_position(self.kernel, args, meta, _RUN_KEYWORDS)
        if self.switch.send is None and is_traced(args, meta):
            return traced_launch(self.kernel, args, grid, meta)
        handle = self._launch_slowly(grid, args, meta)
        chain = None if self.switch.slow else chain_of(self.kernel)
        if chain is not None and not chain.function.pre_run_hooks:
            self._learn(chain, parameter_values(chain, args, meta))
        return handle

    def _launch_slowly(self, grid: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        if type(grid) is FunctionType:
            if len(self._grid_codes) == _MAX_REMEMBERED:
                self._grid_codes.clear()
            self._grid_codes[id(grid.__code__)] = grid.__code__
        if self.switch.send is not None:
            return self.switch.send(self.kernel, grid, args, meta)
        return self.kernel.run(*args, grid=grid, warmup=False, **meta)

    def miss(
        self, grid: Any, values: tuple[Any, ...], rest: tuple[Any, ...], options: dict[str, Any], *details: Any
    ) -> Any:
        """Take over a launch that the launch function is not sure of; ``details`` are its key, heuristics and error."""
        __tracebackhide__ = True
        key, computed, error = details
        chain = chain_of(self.kernel)
        assert chain is not None, "only such chains have launch functions"
        args, meta = user_arguments(chain, values, rest, options)
        if error is not None:
            shown = self.kernel.runtime.launch_error(chain.function, args, meta, error)
            raise shown from (None if shown is error else error)
        if self.switch.send is None and is_traced(args, meta):
            return traced_launch(self.kernel, args, grid, meta)
        if key is None:
            other = self._other_function(chain, values)
            if other is not None:
                self.kernel.front = other  # before the call: a second miss must not come back here
                return other(grid, *args, **meta)
        if not _RUN_KEYWORDS.isdisjoint(meta):
            args, meta = pass_by_position(self.kernel, args, meta, _RUN_KEYWORDS)
        handle = self._launch_slowly(grid, args, meta)
        if self.switch.slow or rest or chain.function.pre_run_hooks:
            return handle
        self._learn(chain, parameter_values(chain, args, meta))
        if key is not None and type(handle) is CompiledKernel and all(map(is_immutable, options.values())):
            self._store_entry(chain, key, computed, handle, (args, meta))
        return handle

    def _other_function(self, chain: Chain, values: tuple[Any, ...]) -> Any:
        """The launch function for arguments of these types, if there is one that is not in front already."""
        blocked = self.switch.slow or chain.function.pre_run_hooks or knobs.runtime.add_stages_inspection_hook
        known = None if blocked else self._functions.get(_types_of(values_with_defaults(chain, values)))
        if known is None or not self._is_current(chain):
            return None
        function = known[0]
        behind = getattr(self.kernel.front, "__globals__", {}).get("_kl_general")  # a guarded function has called it
        return None if function in (self.kernel.front, behind) else function

    def _learn(self, chain: Chain, values: tuple[Any, ...]) -> None:
        """Make the launch function for these arguments; drop everything learnt if the kernel's globals changed."""
        if not self._is_current(chain):
            self._functions, self._entries = {}, defaultdict(dict)
            self._addresses.clear()
            self.restart()
        self._driver, self._captures = drivers._active, chain.function.captures()
        if not all(capture.is_fixed() for capture in self._captures) or MISSING in values:
            return
        types = _types_of(values)
        if types not in self._functions:
            slots = slots_of(chain, values)
            self._functions[types] = None if slots is None else self._make_function(chain, slots, values)
        known = self._functions[types]
        if known is not None:
            self.kernel.front = known[0]

    def _is_current(self, chain: Chain) -> bool:
        """Whether what was learnt still holds: same driver, same captures (a kernel keeps them until one changes)."""
        return self._driver is drivers._active and self._captures is chain.function.captures()

    def _store_entry(self, chain: Chain, key: Any, computed: Any, handle: Any, arguments: _Arguments) -> None:
        """Store the compiled kernel, and the tuner's choice, under the key of a launch."""
        entries = self._entries[_types_of(parameter_values(chain, *arguments))]
        compiled = (handle, handle.run, handle.function, handle.packed_metadata, *direct_launch(handle.run))
        compiled_scope = dict(zip(_COMPILED, compiled, strict=True))
        if chain.tuner is None:
            entries[key] = (self._guarded_function(chain, key, arguments, compiled_scope), *compiled)
            return
        choice = chain.tuner.best_config
        tuned = tuning_key(chain, *arguments)
        is_settled = len(chain.tuner.configs) == 1 or chain.tuner.cache.get(tuned) is choice
        if choice.pre_hook is not None or not is_settled:
            return
        constants = {name: choice.kwargs[name] for name in chain.function.arg_names if name in choice.kwargs}
        head = (tuned, choice, tuple(constants.values()))
        if not chain.inner_heuristics:
            compiled_scope |= {"_kl_tuned": tuned, "_kl_choice": choice}
            compiled_scope |= {f"_kl_value_{name}": value for name, value in constants.items()}
            entries[key] = (*head, self._guarded_function(chain, key, arguments, compiled_scope), *compiled)
            return
        known = entries.get(key)
        inner = known[4] if known is not None and known[1] is choice else {}
        if computed is not None:
            inner[computed] = compiled
        entries[key] = (*head, None, inner)

    def _guarded_function(self, chain: Chain, key: Any, arguments: _Arguments, compiled_scope: dict[str, Any]) -> Any:
        """The guarded function of an entry, or None. ``compiled_scope`` are the globals of the compiled kernel."""
        values = parameter_values(chain, *arguments)
        known = self._functions.get(_types_of(values))
        if known is None or not _are_usual(known[0].__globals__, known[1], key):
            return None
        function, layout = known
        features = features_in(layout, key)
        slots = list(zip(layout.slots, values, strict=True))
        rich = (value for slot, value in slots if slot.kind is ArgumentKind.RICH_CONSTANT)
        if not can_guard(layout, features) or not all(map(is_immutable, rich)):
            return None
        options = {name: value for name, value in arguments[1].items() if name not in chain.function.arg_names}
        env = _env_knobs()
        were = {group: dict(vars(getattr(knobs, group))) for group in KNOB_GROUPS}
        scope = {
            **function.__globals__,
            "_kl_general": function,
            "_kl_here": features.device,
            "_kl_debug": features.debug,
            **{f"_kl_value_{slot.name}": value for slot, value in slots if slot.is_keyed_by_value},
            **dict(zip((f"_kl_dtype_{n}" for n in layout.names(ArgumentKind.TENSOR)), features.dtypes, strict=True)),
            **{f"_kl_option{i}": value for i, value in enumerate(options.values())},
            **{f"_kl_env_{name}": read for name, read in env.items()},
            **{f"_kl_was_{name}": read() for name, read in env.items()},
            **{f"_kl_set_{group}": vars(getattr(knobs, group)) for group in KNOB_GROUPS},
            **{f"_kl_were_{group}": values for group, values in were.items()},
            **compiled_scope,
            "_kl_memos": GridMemos(layout.fixed_names),
        }
        circumstances = Circumstances(
            options=tuple(options),
            env_knobs=tuple(env),
            set_knobs=tuple(group for group in KNOB_GROUPS if were[group]),
            is_direct=compiled_scope["_kl_launch"] is not None,
            is_only_device=_is_only_device(drivers.active),
        )
        return _define_function(layout.name, guarded_source(layout, features, circumstances), scope)

    def _remember_address(self, tensor: Any, address: int) -> bool:
        """Whether a tensor lies on the device, at a multiple of 16; if so, remember its address."""
        if address & 15 or tensor.device.type != drivers.active.get_active_torch_device().type:
            return False
        if len(self._addresses) >= _MAX_REMEMBERED:
            self._addresses.clear()
        self._addresses.add(address)
        return True

    def _make_function(
        self, chain: Chain, slots: tuple[Slot, ...], values: tuple[Any, ...]
    ) -> tuple[Any, ArgumentLayout]:
        captures = chain.function.captures()
        layout = ArgumentLayout(
            name=chain.function.__name__,
            slots=slots,
            heuristics=tuple(name for name, _ in chain.heuristics),
            inner_heuristics=tuple(name for name, _ in chain.inner_heuristics),
            configs=0 if chain.tuner is None else len(chain.tuner.configs),
            scopes=tuple(capture.name for capture in captures),
            style=convention_of(self._driver),
            device_type=drivers.active.get_active_torch_device().type,
            knobs=("_kl_runtime.debug", *(f"_kl_compilation.{name}" for name in RUN_KNOBS)),
        )
        scope = scope_of(
            chain,
            miss=self.miss,
            switch=self.switch,
            driver=self._driver,
            entries=self._entries[_types_of(values)],
            fields=vars(self.kernel),
            seen=self._addresses,
            codes=self._grid_codes,
            keeps=lambda: getattr(chain.function.runtime, "keep", None) is not None,
            see=self._remember_address,
        )
        scope |= {f"_kl_type_{slot.name}": layout_type(value) for slot, value in zip(slots, values, strict=True)}
        scope |= {f"_kl_default_{p.name}": p.default for p in chain.function.params if p.has_default}
        for i, capture in enumerate(captures):
            scope |= {f"_kl_scope{i}": capture.scope, f"_kl_global{i}": capture.value}
        for prefix, pairs in (("_kl_heuristic", chain.heuristics), ("_kl_inner_heuristic", chain.inner_heuristics)):
            scope |= {f"{prefix}{i}": function for i, (_, function) in enumerate(pairs)}
        return _define_function(layout.name, launch_source(layout), scope), layout


@dataclass(frozen=True, slots=True)
class LaunchOnGrid:
    """The launchable ``kernel[grid]`` where no launch function is learnt yet: it takes the slow path."""

    kernel: Bound
    grid: Any

    def __call__(self, /, *args: Any, **meta: Any) -> Any:
        """Launch the kernel on the grid."""
        __tracebackhide__ = True
        return (self.kernel.front or self.kernel.launcher.launch_and_learn)(self.grid, *args, **meta)

    def __getitem__(self, grid: Any) -> Any:
        name = jit_function(self.kernel).__name__
        raise LaunchError(f"{name} is given two grids; launch it on one: {name}[grid](...).", kernel=name)


@lru_cache(maxsize=1024)
def _code_of(name: str, source: str) -> CodeType:
    return compile(source, f"<launch of {name}>", "exec")


def _define_function(name: str, source: str, scope: dict[str, Any]) -> Any:
    """The function that a source defines, with ``scope`` as its globals."""
    exec(_code_of(name, source), scope)
    skip_in_dynamo(scope[name])
    return scope[name]


def _env_knobs() -> dict[str, Any]:
    """The getters of the knobs that Triton reads from the environment at each launch."""
    attributes = {name: vars(type(knobs.compilation)).get(name) for name in RUN_KNOBS}
    return {name: knob.get for name, knob in attributes.items() if hasattr(knob, "get")}


def _are_usual(scope: dict[str, Any], layout: ArgumentLayout, key: tuple[Any, ...]) -> bool:
    """Whether knobs have the values of a key, and no hook inspects compiles or replaces Triton's chains of hooks."""
    runtime = knobs.runtime
    now = (runtime.debug, *(getattr(knobs.compilation, name) for name in RUN_KNOBS))
    hooks = (scope["_kl_enter_chain"], scope["_kl_leave_chain"], None)
    is_as_known = hooks == (runtime.launch_enter_hook, runtime.launch_exit_hook, runtime.add_stages_inspection_hook)
    return is_as_known and now == key[2 : 2 + len(layout.knobs)]
