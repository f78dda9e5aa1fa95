"""Launches of a kernel with its configs, and implementations to time.

The launches share one set of arguments, to which each config adds its own, hooks included.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kernellab._triton.closure import plain_bindings
from kernellab._triton.kernel import Kernel, autotune_settings, jit_function, parameter_names, variant_with
from kernellab.checking.reference import Reference
from kernellab.compile.types import Compiled, CompileJob, job_of
from kernellab.errors import RunError, first_line
from kernellab.ir.effects import Effects
from kernellab.launch.arguments import memory_of
from kernellab.launch.calls import Grid3, evaluated_grid
from kernellab.launch.memory import Copier, Copies, ReachedMemory
from kernellab.launch.poison import Poison, poison
from kernellab.launch.runtime import Runtime
from kernellab.source import Closure
from kernellab.target import Target
from kernellab.timing.bench_jobs import Manner
from kernellab.timing.config import NO_CONFIG, Config
from kernellab.timing.hooks import Hook, HookCalls, sets_blocks_alone

if TYPE_CHECKING:
    from kernellab.ir.arithmetic import Arithmetic


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """The launch of one config.

    ``arguments`` are all arguments of the kernel by name, defaults and constexprs included; descriptors have the block
    shapes that the config's ``pre_hook`` sets. ``before`` are that hook, if it does more, and the autotuner's
    ``pre_hook``; ``after`` is the autotuner's ``post_hook``. ``options`` are the compile options, which hooks get, too.
    """

    job: CompileJob
    function: Any
    arguments: Mapping[str, Any]
    grid: Grid3
    before: tuple[Hook, ...]
    after: Callable[..., Any] | None
    options: Mapping[str, Any]

    @property
    def has_hooks(self) -> bool:
        """Whether anything is to be called before or after the launch."""
        return bool(self.before) or self.after is not None

    @property
    def hooks(self) -> HookCalls:
        """The hooks with their arguments but for the tensors."""
        memory = memory_of(self.arguments)
        plain = {name: value for name, value in self.arguments.items() if name not in memory}
        return HookCalls(self.before, self.after, {**plain, **self.options})


@dataclass(slots=True)
class Launches:
    """A kernel with its decorators and the arguments of the call to tune; ``reference`` gives the expected outputs.

    ``outputs`` names the arguments to compare, None for all that are written. ``originals`` are the user's own
    `triton.Config`s to try, hooks included; ``common_hook`` is the hook that all of them share. ``listed`` are all
    configs in order, and ``pruned`` has the reasons for those that are not tried.
    """

    kernel: Kernel
    grid: Any
    args: tuple[Any, ...]
    meta: Mapping[str, Any]
    target: Target
    has_hooks: bool = False
    reference: Reference | None = None
    outputs: frozenset[str] | None = None
    originals: Mapping[Config, Any] = field(default_factory=dict)
    common_hook: Hook | None = None
    listed: tuple[Config, ...] = ()
    pruned: Mapping[Config, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _launches: dict[Config, KernelLaunch] = field(default_factory=dict)
    _closures: dict[int, Closure] = field(default_factory=dict)  # by the id of the function, as are the binders
    _binders: dict[int, Any] = field(default_factory=dict)
    _values: dict[int, tuple[Any, Config]] = field(default_factory=dict)  # by the id of a `triton.Config`

    @property
    def name(self) -> str:
        """The name of the kernel, without its decorators."""
        return str(jit_function(self.kernel).__name__)

    @property
    def closure_digest(self) -> str:
        """The hash of the kernel's text with that of its helpers."""
        return next(iter(self._launches.values())).job.closure.digest if self._launches else ""

    @property
    def manner(self) -> Manner:
        """How the autotuner asks launches to be timed."""
        tuner = autotune_settings(self.kernel)
        return Manner(tuner.by_graph, tuner.warmup_ms, tuner.rep_ms)

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of the call by name, without defaults and values of decorators."""
        return {**dict(zip(parameter_names(self.kernel), self.args, strict=False)), **self.meta}

    @property
    def dtypes(self) -> tuple[tuple[str, int], ...]:
        """The dtypes of the tensors of the call, by torch's names for them, and the bytes of an element."""
        tensors = memory_of(self.given).values()
        return tuple(sorted({(str(tensor.dtype).removeprefix("torch."), tensor.element_size()) for tensor in tensors}))

    def effective(self, config: Any) -> Config:
        """Convert a `triton.Config`; options of the call override its own."""
        cached = self._values.get(id(config))
        if cached is None or cached[0] is not config:
            cached = self._values[id(config)] = config, Config.from_triton(config)
        value = cached[1]
        overrides = {name: self.meta[name] for name in value.options if name in self.meta}
        return value.with_values(overrides) if overrides else value

    def of(self, config: Config, original: Any = None) -> KernelLaunch:
        """Return the launch of a config; ``original`` is the user's own, hook included.

        Raises:
            UsageError, LaunchError: the arguments or options do not fit the kernel, or the grid is invalid.
        """
        if config not in self._launches:
            self._launches[config] = self._launch(original or self.original(config))
        return self._launches[config]

    def job(self, config: Config) -> CompileJob:
        """Return the compile job of a config; errors are those of `of`."""
        return self.of(config).job

    def original(self, config: Config) -> Any:
        """Return the user's own `triton.Config`; for a config of a search, one with the hook that all others share.

        Such a hook sets block shapes of descriptors.
        """
        original = self.originals.get(config)
        if original is None:
            original = config.to_triton()
            original.pre_hook = self.common_hook
        return original

    def for_target(self, target: Target) -> Launches:
        """Return the launches of the same call for a target, without configs."""
        return Launches(self.kernel, self.grid, self.args, self.meta, target)

    def with_arguments(self, args: tuple[Any, ...], meta: Mapping[str, Any]) -> Launches:
        """Return the launches of the kernel on other arguments, sharing the caches that do not depend on arguments.

        The caches hold while the globals that the kernel reads stay the same.
        """
        others = Launches(self.kernel, self.grid, args, meta, self.target)
        others._closures, others._binders, others._values = self._closures, self._binders, self._values
        return others

    def _launch(self, config: Any) -> KernelLaunch:
        from kernellab._triton.specialize import specialize

        args, meta = (self.args, self.meta) if config.pre_hook is None else self._after_hook(config)
        variant = variant_with(self.kernel, args, meta, config)
        special = specialize(variant.function, self.target, args, variant.meta, self._binders)
        known = self._closures.get(id(variant.function))
        job = job_of(variant.function, self.target, special, closure=known)
        if known is None and plain_bindings(tuple(special.constants.values())) is not None:
            self._closures[id(variant.function)] = job.closure
        extents = evaluated_grid(variant.function, self.grid, special.bound)
        options = {name: value for name, value in variant.meta.items() if name not in special.bound}
        tuner = autotune_settings(self.kernel)
        own = None if config.pre_hook is None or sets_blocks_alone(config.pre_hook) else config.pre_hook
        before = tuple(hook for hook in (own, tuner.pre_hook) if hook is not None)
        return KernelLaunch(job, variant.function, special.bound, extents, before, tuner.post_hook, options)

    def _after_hook(self, config: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with the descriptors changed by a config's hook; tensors stay untouched."""

        def own(value: Any) -> Any:
            return copy.copy(value) if hasattr(value, "block_shape") else value

        args, meta = tuple(map(own, self.args)), {name: own(value) for name, value in self.meta.items()}
        named = {**dict(zip(parameter_names(self.kernel), args, strict=False)), **meta, **config.all_kwargs()}
        config.pre_hook({n: v.to("meta") if hasattr(v, "untyped_storage") else v for n, v in named.items()})
        return args, meta


def moved_bytes(arguments: Mapping[str, Any], compiled: Compiled) -> int | None:
    """Return the bytes moved by a launch that reads and writes every element of its arguments once.

    None where an effect is unknown.
    """
    effects = compiled.effects
    if effects.unknown:
        return None
    total_bytes = 0
    for name, tensor in memory_of(arguments).items():
        times = (name in effects.reads | effects.atomics) + (name in effects.mutated)
        total_bytes += times * tensor.numel() * tensor.element_size()
    return total_bytes


def arithmetic(launch: KernelLaunch, compiled: Compiled) -> Arithmetic:
    """Return the arithmetic of a launch, by the compiled graph."""
    from kernellab.ir.arithmetic import arithmetic_of  # not needed where all is known

    return arithmetic_of(compiled.graph, launch.arguments, launch.grid)


def on_device(launches: Launches, device: int) -> Launches:
    """Return the launches on copies of their arguments on a GPU; unchanged where all lie there."""
    import torch

    def to_device(storage: Any) -> Any:
        data = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        return data.to(f"cuda:{device}").untyped_storage()

    copies = Copier(to_device, lambda tensor: not (tensor.device.type == "cuda" and tensor.device.index == device))
    args = tuple(map(copies.value, launches.args))
    meta = copies.of(launches.meta)
    if not copies.storages:
        return launches
    return replace(launches, args=args, meta=meta, _launches={})


@dataclass(frozen=True, slots=True, eq=False)
class Implementation:
    """A launch of a compiled kernel, or a function of the user, to be timed. It equals only itself.

    ``name`` is its name in messages. ``config`` is that of the launch if a kernel has several, and ``index`` its place
    in their list.
    """

    name: str
    launch: KernelLaunch | None = None
    compiled: Compiled | None = None
    function: Callable[..., Any] | None = None
    config: Config = NO_CONFIG
    index: int = 0

    @property
    def kernel(self) -> Compiled:
        """The compiled kernel; an error for a function."""
        assert self.compiled is not None, "a function has no compiled kernel"
        return self.compiled

    @property
    def kernel_launch(self) -> KernelLaunch:
        """The launch of a kernel; an error for a function."""
        assert self.launch is not None, "a function is not launched"
        return self.launch


def implementation_of(launches: Launches, config: Config, compiled: Compiled, index: int = 0) -> Implementation:
    """Return the compiled launch of a config for a bench; messages name it by kernel and config, if it has one."""
    name = f"{launches.name} ({config.text})" if config.text else launches.name
    return Implementation(name, launches.of(config), compiled, None, config, index)


def replaced_arguments(launch: KernelLaunch, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a launch with ``inputs`` in their places; descriptors keep the blocks of the launch."""
    arguments = {**launch.arguments, **inputs}
    for name, value in inputs.items():
        block = getattr(launch.arguments.get(name), "block_shape", None)
        if block is not None:
            arguments[name] = copy.copy(value)
            arguments[name].block_shape = block
    return arguments


def set_to_zero(arguments: Mapping[str, Any], names: Collection[str]) -> None:
    """Set some arguments to zero, as `triton.autotune` does with its ``reset_to_zero``; None is left alone."""
    for name in names:
        if arguments.get(name) is not None:
            arguments[name].zero_()


def with_zeros(arguments: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return arguments with zeros in place of the tensors of some names."""
    import torch  # a launch needs it anyway

    zeros = {n: torch.zeros_like(arguments[n]) for n in names if hasattr(arguments.get(n), "untyped_storage")}
    return {**arguments, **zeros}


def call_hooks(launch: KernelLaunch, arguments: Mapping[str, Any]) -> None:
    """Call the pre-hooks of a launch on these arguments.

    Raises:
        RunError: a hook raises.
    """
    for hook in launch.before:
        try:
            hook({**arguments, **launch.options})
        except Exception as exc:
            raise RunError(f"The pre_hook of a config raised {type(exc).__name__}: {first_line(exc)}.") from exc


def copies_to_launch(
    launch: KernelLaunch,
    effects: Effects,
    device: str,
    inputs: Mapping[str, Any] = MappingProxyType({}),
    zeroed: Collection[str] = (),
) -> tuple[Copies, Poison]:
    """Copies of the arguments of a launch as it begins with them, write-only ones poisoned.

    ``inputs`` replace arguments, those of ``zeroed`` are set to zero, then the hooks of the launch are called;
    ``device`` is the type of the device: "cuda" or "cpu".

    Raises:
        RunError: a hook raises.
    """
    copies = Copies(replaced_arguments(launch, inputs), effects, device)
    poisoned = poison(copies.arguments, effects, copies=True)
    set_to_zero(copies.arguments, zeroed)
    call_hooks(launch, copies.arguments)
    return copies, poisoned


def launch_on_copies(
    runtime: Runtime,
    launch: KernelLaunch,
    effects: Effects,
    device: str,
    timeout_s: float,
    inputs: Mapping[str, Any] = MappingProxyType({}),
    zeroed: Collection[str] = (),
) -> tuple[Copies, Poison]:
    """Launch a kernel through the lab on copies of its arguments; see `copies_to_launch`.

    Raises:
        KernellabError: the kernel fails, or does not end in time.
    """
    copies, poisoned = copies_to_launch(launch, effects, device, inputs, zeroed)
    with runtime.recording(timeout_s=timeout_s):
        launch.function[launch.grid](**copies.arguments, **launch.options)
    return copies, poisoned


def outputs_on_copies(
    runtime: Runtime,
    device: str,
    launch: KernelLaunch,
    effects: Effects,
    timeout_s: float,
    zeroed: Collection[str] = (),
) -> dict[str, Any]:
    """What a launch on copies of its arguments writes, by name, elements that it leaves as they were included.

    Raises:
        KernellabError: see `launch_on_copies`.
    """
    copies, poisoned = launch_on_copies(runtime, launch, effects, device, timeout_s, zeroed=zeroed)
    poisoned.lift()
    return written_memory(copies)


def written_memory(copies: Copies) -> dict[str, Any]:
    """The copied memory that a launch may write, by name."""
    written = accessed_arguments(copies.effects, copies.behind)[0]
    memory = {**memory_of(copies.arguments), **copies.reached}
    return {name: tensor for name, tensor in memory.items() if name in written}


def accessed_arguments(effects: Effects, behind: ReachedMemory | None = None) -> tuple[frozenset[str], frozenset[str]]:
    """Return the arguments that a launch may write and may read; all where an effect is unknown.

    ``behind`` is the memory reached through addresses among its arguments, None where that is not known.
    """
    if behind is None or not effects.is_followed:
        everything = frozenset(effects.arguments) | frozenset(behind.tensors if behind is not None else ())
        return (everything, everything) if effects.unknown else (effects.mutated, effects.reads | effects.atomics)
    return effects.mutated | behind.mutated, effects.reads | effects.atomics | behind.read
