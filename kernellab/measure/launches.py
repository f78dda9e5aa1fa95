"""The launches that are compared: one set of arguments with what each config adds, hooks included; copies elsewhere."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernellab._triton.closure import plain_bindings
from kernellab._triton.kernel import Kernel
from kernellab.compile.cache import job_of
from kernellab.compile.types import Compiled, CompileJob
from kernellab.gpu.ipc import CannotExport, argument_of
from kernellab.launch.arguments import ArgumentSpec, ScalarSpec
from kernellab.launch.grid import CheckedGrid, Grid3, grid_errors
from kernellab.launch.memory import Copier, memory_of
from kernellab.measure.bench_jobs import Manner
from kernellab.measure.config import Config
from kernellab.measure.reference import Reference
from kernellab.source import Closure
from kernellab.target import Target

if TYPE_CHECKING:
    from kernellab.ir.arithmetic import Arithmetic
    from kernellab.measure.reference import Reference

Hook = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """The launch of one config.

    ``arguments`` are all of the kernel by name, defaults and constexprs included. ``before`` are the ``pre_hook`` of
    the config and of the autotuner, ``after`` is the ``post_hook`` of the latter, and ``options`` are the compile
    options, which they are given too.
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
    def hook(self) -> Hook | None:
        """What is to be called before each launch, as one function."""
        return (lambda named: [hook(named) for hook in self.before]) if self.before else None


@dataclass(slots=True)
class Launches:
    """A kernel with its decorators, and the arguments of the call that is tuned; ``reference``: what it is to give.

    ``outputs`` names the arguments that are compared, None all that are written. ``originals`` are the user's own
    `triton.Config`s, hooks included; ``common_hook`` is that of all of them.
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
    notes: list[str] = field(default_factory=list)
    _made: dict[Config, KernelLaunch] = field(default_factory=dict)
    _closures: dict[int, Closure] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the kernel, without its decorators."""
        from kernellab._triton.objects import jit_function

        return str(jit_function(self.kernel).__name__)

    @property
    def closure_digest(self) -> str:
        """The hash of the kernel's text with that of its helpers."""
        return next(iter(self._made.values())).job.closure.digest if self._made else ""

    @property
    def manner(self) -> Manner:
        """How launches are timed, as the autotuner asks for it."""
        from kernellab._triton.decorators import declared

        tuner = declared(self.kernel)
        return Manner(tuner.by_graph, tuner.warmup_ms, tuner.rep_ms)

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of the call by name, without defaults and without what decorators add."""
        from kernellab._triton.objects import parameter_names

        return {**dict(zip(parameter_names(self.kernel), self.args, strict=False)), **self.meta}

    @property
    def dtypes(self) -> tuple[tuple[str, int], ...]:
        """The dtypes of the tensors of the call, by torch's names for them, and the bytes of an element."""
        tensors = memory_of(self.given).values()
        return tuple(sorted({(str(each.dtype).removeprefix("torch."), each.element_size()) for each in tensors}))

    def effective(self, config: Any) -> Config:
        """Return the value of a `triton.Config`; options that the call gives win over its own."""
        value = Config.from_triton(config)
        return value.with_values({name: self.meta[name] for name in value.options if name in self.meta})

    def of(self, config: Config, original: Any = None) -> KernelLaunch:
        """Return the launch of a config; ``original`` is the user's own, hook included.

        Raises:
            UsageError, LaunchError: the arguments or options do not fit the kernel, or the grid is none.
        """
        if config not in self._made:
            self._made[config] = self._launch(original or self.original(config))
        return self._made[config]

    def original(self, config: Config) -> Any:
        """Return the user's own `triton.Config`; for what a search made up, one with the hook that all others share.

        Such a hook sets the block shapes of descriptors.
        """
        found = self.originals.get(config)
        if found is None:
            found = config.to_triton()
            found.pre_hook = self.common_hook
        return found

    def _launch(self, config: Any) -> KernelLaunch:
        from kernellab._triton.decorators import declared, variant_with
        from kernellab._triton.specialize import specialize

        args, meta = self.args, self.meta
        if config.pre_hook is not None:
            args, meta = self._after_hook(config)
        variant = variant_with(self.kernel, args, meta, config)
        special = specialize(variant.function, self.target, args, variant.meta)
        known = self._closures.get(id(variant.function))
        job = job_of(
            variant.function,
            self.target,
            special.signature,
            special.constants,
            special.attributes,
            special.options,
            closure=known,
        )
        if known is None and plain_bindings(tuple(special.constants.values())) is not None:
            self._closures[id(variant.function)] = job.closure
        with grid_errors():
            extents = CheckedGrid(variant.function, self.grid)(special.bound)
        options = {name: value for name, value in variant.meta.items() if name not in special.bound}
        tuner = declared(self.kernel)
        before = tuple(hook for hook in (config.pre_hook, tuner.pre_hook) if hook is not None)
        return KernelLaunch(job, variant.function, special.bound, extents, before, tuner.post_hook, options)

    def _after_hook(self, config: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with descriptors as the hook of a config leaves them; tensors stay untouched."""
        args = tuple(map(_own_descriptor, self.args))
        meta = {name: _own_descriptor(value) for name, value in self.meta.items()}
        from kernellab._triton.objects import parameter_names

        named = {**dict(zip(parameter_names(self.kernel), args, strict=False)), **meta, **config.all_kwargs()}
        config.pre_hook({name: _without_data(value) for name, value in named.items()})
        return args, meta


def moved_bytes(arguments: Mapping[str, Any], compiled: Compiled) -> int | None:
    """Return the bytes that a launch moves if every element of its arguments is read and written once.

    None where an effect is unknown, since then so is what it moves.
    """
    effects = compiled.effects
    if effects.unknown:
        return None
    found = 0
    for name, tensor in memory_of(arguments).items():
        size_bytes = tensor.numel() * tensor.element_size()
        found += size_bytes * ((name in effects.reads | effects.atomics) + (name in effects.mutated))
    return found


def arithmetic(launch: KernelLaunch, compiled: Compiled) -> Arithmetic:
    """Return what a launch computes, as far as the compiled graph tells."""
    from kernellab.ir.arithmetic import arithmetic_of  # not needed where all is known

    return arithmetic_of(compiled.graph, launch.arguments, launch.grid)


def _own_descriptor(value: Any) -> Any:
    return copy.copy(value) if hasattr(value, "block_shape") else value


def _without_data(value: Any) -> Any:
    return value.to("meta") if hasattr(value, "untyped_storage") else value


def on_device(launches: Launches, device: int) -> Launches:
    """Return the same launches on copies of their arguments on a GPU; themselves where all lie there."""
    copies = _copier(device)
    args = tuple(map(copies.value, launches.args))
    meta = copies.of(launches.meta)
    if not copies.storages:
        return launches
    reference = launches.reference
    own = None if reference is None else Reference(reference.text, reference.values, reference.identity)
    return replace(launches, args=args, meta=meta, reference=own, _made={})


def _copier(device: int) -> Copier:
    import torch

    def copied(storage: Any) -> Any:
        data = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        return data.to(f"cuda:{device}").untyped_storage()

    return Copier(copied, lambda tensor: not (tensor.device.type == "cuda" and tensor.device.index == device))


@dataclass(frozen=True)
class HookCalls:
    """What is called around a launch, and what it is given beside the tensors.

    ``before`` are called with the arguments by name, and the options; ``after`` as the ``post_hook`` of an autotuner,
    also with ``exception``. ``values`` are the arguments that are no memory.
    """

    before: tuple[Callable[[dict[str, Any]], Any], ...]
    after: Callable[..., Any] | None
    values: Mapping[str, Any]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BoundHooks:
    """The hooks of a kernel with the arguments that a bench launches it on."""

    calls: HookCalls
    arguments: Mapping[str, Any]

    def before(self) -> None:
        """Call what is to be called before a launch."""
        for hook in self.calls.before:
            hook(dict(self.arguments))

    def after(self, exception: Exception | None) -> None:
        """Call what is to be called after a launch, with what it raised."""
        if self.calls.after is not None:
            self.calls.after(dict(self.arguments), exception=exception)


class BadHook(Exception):
    """A hook that cannot be called in this process."""


def bound_hooks(calls: HookCalls, specs: Sequence[tuple[str, ArgumentSpec]], memories: Sequence[Any]) -> BoundHooks:
    """Return hooks with the arguments of a bench; ``memories`` are tensors of bytes, one per storage of ``specs``."""
    named = {
        name: calls.values.get(name) if isinstance(spec, ScalarSpec) else argument_of(spec, memories)
        for name, spec in specs
    }
    return BoundHooks(calls, {**named, **calls.options})


def loaded_hooks(data: bytes) -> HookCalls:
    """Return hooks that were pickled in the notebook's process.

    Raises:
        BadHook: they cannot be made again here.
    """
    try:
        calls: HookCalls = pickle.loads(data)
    except Exception as exc:
        raise BadHook(f"{type(exc).__name__}: {exc}") from exc
    return calls


IN_WORKER = "the hooks of the configs were called in the GPU worker, on copies of the arguments and of what they use"


def hook_calls(launch: KernelLaunch) -> HookCalls:
    """Return what is called around a launch, with the arguments that are no memory."""
    memory = memory_of(launch.arguments)
    values = {name: value for name, value in launch.arguments.items() if name not in memory}
    return HookCalls(launch.before, launch.after, values, launch.options)


def shipped_hooks(launch: KernelLaunch) -> bytes:
    """Return the hooks of a launch as bytes for another process; nothing where it has none.

    Raises:
        CannotExport: cloudpickle is not installed, or cannot take them.
    """
    if not launch.has_hooks:
        return b""
    try:
        import cloudpickle
    except ImportError as exc:
        raise CannotExport("the configs have hooks, and cloudpickle, which could take them along, is missing") from exc
    calls = hook_calls(launch)
    try:
        return bytes(cloudpickle.dumps(HookCalls(calls.before, calls.after, _portable(calls.values), calls.options)))
    except Exception as exc:
        raise CannotExport(f"the configs have hooks that cannot be taken along ({type(exc).__name__}: {exc})") from exc


def _portable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what holds memory, which the bench has copies of, and functions of Triton."""
    plain = (bool, int, float, str, bytes, type(None))
    return {name: value for name, value in values.items() if isinstance(value, plain)}
