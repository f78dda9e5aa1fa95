"""The launches that are compared: one set of arguments with what each config adds, hooks included; copies elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernellab._triton.closure import plain_bindings
from kernellab._triton.kernel import Kernel
from kernellab.compile.cache import job_of
from kernellab.compile.types import Compiled, CompileJob
from kernellab.launch.calls import CheckedGrid, Grid3, GridErrors
from kernellab.launch.memory import Copier, memory_of
from kernellab.measure.bench_jobs import Manner
from kernellab.measure.config import Config
from kernellab.measure.hooks import Hook, sets_blocks_alone
from kernellab.measure.reference import Reference
from kernellab.source import Closure
from kernellab.target import Target

if TYPE_CHECKING:
    from kernellab.ir.arithmetic import Arithmetic
    from kernellab.measure.reference import Reference


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """The launch of one config.

    ``arguments`` are all of the kernel by name, defaults and constexprs included, descriptors as the ``pre_hook`` of
    the config leaves them. ``before`` are that hook, if it does more than that, and the one of the autotuner, ``after``
    is the ``post_hook`` of the latter, and ``options`` are the compile options, which they are given too.
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
    _closures: dict[int, Closure] = field(default_factory=dict)  # by the id of the function, as are the binders
    _binders: dict[int, Any] = field(default_factory=dict)
    _values: dict[int, tuple[Any, Config]] = field(default_factory=dict)  # by the id of a `triton.Config`

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
        known = self._values.get(id(config))
        if known is None or known[0] is not config:
            known = self._values[id(config)] = config, Config.from_triton(config)
        value = known[1]
        given = {name: self.meta[name] for name in value.options if name in self.meta}
        return value.with_values(given) if given else value

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

    def with_arguments(self, args: tuple[Any, ...], meta: Mapping[str, Any]) -> Launches:
        """Return the launches of the same kernel for other arguments, which take along what does not depend on them.

        The kernel is the same as long as nobody changes a global that it reads.
        """
        others = Launches(self.kernel, self.grid, args, meta, self.target)
        others._closures, others._binders, others._values = self._closures, self._binders, self._values
        return others

    def _launch(self, config: Any) -> KernelLaunch:
        from kernellab._triton.decorators import declared, variant_with
        from kernellab._triton.specialize import specialize

        args, meta = self.args, self.meta
        if config.pre_hook is not None:
            args, meta = self._after_hook(config)
        variant = variant_with(self.kernel, args, meta, config)
        special = specialize(variant.function, self.target, args, variant.meta, self._binders)
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
        with GridErrors():
            extents = CheckedGrid(variant.function, self.grid)(special.bound)
        options = {name: value for name, value in variant.meta.items() if name not in special.bound}
        tuner = declared(self.kernel)
        own = None if config.pre_hook is None or sets_blocks_alone(config.pre_hook) else config.pre_hook
        before = tuple(hook for hook in (own, tuner.pre_hook) if hook is not None)
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
