"""Kernels bound to a lab: drop-in subclasses of Triton's own classes that route launches and compiles through it.

A bound kernel is a `JITFunction` (or `Autotuner`, or `Heuristics`): helpers may call it, `torch.compile` accepts it,
its attributes are Triton's. It overrides ``run``, and sets its own compile function as the attribute ``compile``, as
`JITFunction.create_binder` does.
"""

from __future__ import annotations

import copy
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import CodeType, MappingProxyType, MethodType
from typing import Any, Protocol, TypeGuard

from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.driver import driver
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction, KernelInterface, compute_cache_key

from kernellab._triton import specialize
from kernellab._triton.drivers import OfflineLauncher
from kernellab._triton.kernel import (
    Bound,
    Kernel,
    configs_with_options,
    jit_function,
    pass_by_position,
    require_not_given_twice,
    require_one_tuner,
)
from kernellab._triton.launch_key import MISSING, CapturedValue, are_alike, captures_of, choice_key, jit_functions
from kernellab._triton.launcher import Launcher, LaunchOnGrid, Switch
from kernellab._triton.tracing import side_table_number, traced_on_grid
from kernellab.errors import CannotRun, CompileError, LaunchError
from kernellab.source import CONFIG_OPTIONS

# The units of `OutOfResources`.
_RESOURCES = {"shared memory": "bytes of shared memory", "tensor memory": "columns of tensor memory"}


_THREAD = threading.local()


class KernelRuntime(Protocol):
    """The lab as a bound kernel sees it. While its switch is on, every launch goes through `launch`."""

    @property
    def switch(self) -> Switch:
        """While on, launches bypass the fast path."""

    def compiled_files(self, src: Any, target: Any, options: Mapping[str, Any]) -> tuple[Mapping[str, str], str]:
        """Compile an `ASTSource`; return the paths of the files by Triton's names for them, and their hash."""

    def launch_error(
        self, kernel: BoundKernel, args: tuple[Any, ...], meta: dict[str, Any], exc: Exception
    ) -> Exception:
        """The error to raise for a failed launch on the fast path."""

    def launch(self, kernel: BoundKernel, args: tuple[Any, ...], meta: dict[str, Any], grid: Any, warmup: bool) -> Any:
        """Launch ``kernel``, or only compile it; return Triton's handle."""

    def is_offline(self) -> bool:
        """Whether there is no GPU to launch on."""

    def interprets(self) -> bool:
        """Whether the launches of this thread go to the interpreter."""

    def best_config(self, kernel: Kernel, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        """The config of an autotuned kernel to launch on the GPU; None leaves the choice to Triton."""


def _on_grid(kernel: Bound, grid: Any) -> Any:
    """The launchable ``kernel[grid]``: a bound method, cheaper to make and to call than a partial."""
    try:
        return MethodType(kernel.front, grid)
    except TypeError:  # no launch function is learnt yet, or the grid is None, which no method binds
        return LaunchOnGrid(kernel, grid)


_on_grid._torchdynamo_inline = traced_on_grid  # type: ignore[attr-defined]  # where dynamo looks for a stand-in


def _incomplete_call_error(kernel: Kernel, method: str, required: str) -> LaunchError:
    name = jit_function(kernel).__name__
    text = f"{name}.{method} also takes {required}; {name}[grid](...) is the usual way to launch {name}."
    return LaunchError(text, kernel=name)


def _warmup(kernel: Any, /, *args: Any, **meta: Any) -> Any:
    """Compile a kernel without a launch; return what `KernelInterface.warmup` returns."""
    if "grid" not in meta:
        raise _incomplete_call_error(kernel, "warmup", "grid=(1,)")
    args, meta = pass_by_position(kernel, args, meta, {"self"})
    return KernelInterface.warmup(kernel, *args, **meta)


class BoundKernel(JITFunction):  # type: ignore[misc]
    """A jit function bound to a lab; ``generation`` counts how often all compiled kernels were dropped.

    ``reported`` holds the launches that the runtime has reported to its lab: digest and code of the grid function.
    """

    runtime: KernelRuntime
    launcher: Launcher
    front: Any
    reported: set[tuple[str, CodeType | None]]
    generation: int
    _captures: tuple[CapturedValue, ...] | None

    __getitem__ = _on_grid
    side_table_number = side_table_number

    def add_pre_run_hook(self, hook: Any) -> None:
        """Add a hook that Triton calls before each launch, with arguments as the user gave them."""
        super().add_pre_run_hook(hook)
        self.launcher.restart()  # hooks get positional and keyword arguments as the user passed them

    def create_binder(self) -> Any:
        """Triton's per-device caches and binder, with this kernel's compile function and keys."""
        kernels, _, *others = super().create_binder()
        self.compile = self._compile
        return kernels, specialize.SpecializationKeys(), *others

    def __call__(self, *args: Any, **meta: Any) -> Any:
        raise LaunchError(
            f"{self.__name__} is a kernel: launch it with {self.__name__}[grid](...), or call it from another kernel.",
            kernel=self.__name__,
        )

    def run(self, *args: Any, grid: Any = MISSING, warmup: Any = MISSING, **meta: Any) -> Any:
        """Launch through the runtime of the lab; returns what `JITFunction.run` returns."""
        __tracebackhide__ = True
        if grid is MISSING or not isinstance(warmup, bool):
            raise _incomplete_call_error(self, "run", "grid=(1,), warmup=False")
        return self.runtime.launch(self, args, meta, grid, warmup)

    warmup = _warmup

    @property
    def launched_as(self) -> Any:
        """The decorated kernel that this thread launches, or this one where it is launched itself."""
        launched = getattr(_THREAD, "launched", None)
        return launched if launched is not None and jit_function(launched) is self else self

    def resolve(
        self, args: tuple[Any, ...], meta: Mapping[str, Any], warmup: bool = False
    ) -> tuple[Any, dict[str, Any]]:
        """Specialize, then find or compile the kernel; return Triton's handle and the arguments by name.

        The handle is None where a hook of Triton's replaces the compile. Follows `triton.runtime.jit.JITFunction.run`.
        """
        specialize.require_constants(self, args, meta)
        self.captures()
        device = driver.active.get_current_device()
        kernels, keys, _, backend, binder = self.device_caches[device]
        keywords = specialize.run_keywords(self, meta)
        bound, specialization, options = binder(*args, **keywords)
        if knobs.runtime.add_stages_inspection_hook is not None:
            specialization.append(f'("custom_pipeline", {knobs.runtime.add_stages_inspection_hook()[1]})')
        key = compute_cache_key(keys, specialization, options)
        handle = kernels.get(key)
        if handle is None:
            packed = self._pack_args(backend, keywords, bound, specialization, options)
            options, signature, constants, attributes = packed
            handle = self._do_compile(key, signature, device, constants, options, attributes, warmup)
        return (handle.result() if hasattr(handle, "result") else handle), bound

    def call_hooks(self, args: tuple[Any, ...], meta: Mapping[str, Any]) -> None:
        """Call the pre-run hooks, as `JITFunction.run` does."""
        for hook in self.pre_run_hooks:
            hook(*args, **specialize.run_keywords(self, meta))

    def launch_compiled(self, handle: Any, arguments: Mapping[str, Any], grid: tuple[int, int, int]) -> Any:
        """Launch a resolved kernel, as the end of `JITFunction.run` does; an offline driver's launch returns its run.

        Raises:
            CannotRun: the compiled kernel exceeds a limit of the device.
        """
        with self._translate_out_of_resources():
            stream = driver.active.get_current_stream(driver.active.get_current_device())
            info = handle.launch_metadata(grid, stream, *arguments.values())
            hooks = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
            launch = handle.run.run if isinstance(handle.run, OfflineLauncher) else handle.run
            return launch(*grid, stream, handle.function, handle.packed_metadata, info, *hooks, *arguments.values())

    def load(self, handle: Any) -> None:
        """Load a compiled kernel on the current device.

        Raises:
            CannotRun: the compiled kernel exceeds a limit of the device.
        """
        with self._translate_out_of_resources():
            _ = handle.run

    @contextmanager
    def _translate_out_of_resources(self) -> Iterator[None]:
        try:
            yield
        except OutOfResources as exc:
            what = f"it needs {exc.required:,} {_RESOURCES.get(exc.name, exc.name)} and the limit is {exc.limit:,}"
            remedy = "fewer warps" if exc.name == "threads" else "smaller blocks, fewer stages or warps"
            message = f"{self.__name__} cannot run on this target: {what}. Use {remedy}."
            raise CannotRun(message, kernel=self.__name__) from exc

    def _compile(self, src: Any, target: Any = None, options: Any = None, _env_vars: Any = None) -> Any:
        try:
            for function in reversed(jit_functions(self, self.captures())):
                _ = function.cache_key  # fills in used_global_vals; before 3.8, only with those of helpers with theirs
        except RuntimeError as exc:
            self.runtime.compiled_files(src, target, options)  # mostly fails as well, and knows in which line
            raise CompileError(f"{self.__name__} does not compile: {exc}.", kernel=self.__name__) from exc
        files, digest = self.runtime.compiled_files(src, target, options)
        return CompiledKernel(src, files, digest)

    @property
    def cache_key(self) -> str:
        """The hash of the kernel's text and of its helpers, with the present values of globals."""
        self.captures()
        return str(super().cache_key)

    def captures(self) -> tuple[CapturedValue, ...]:
        """The captured values of the kernel and its helpers; if they changed, drop everything compiled with them.

        Triton itself raises where a global changed, and launches the old kernel where a helper did.
        """
        known = self._captures
        changed = any(scope.get(name, MISSING) != value for (name, _), (value, scope) in self.used_global_vals.items())
        if known is not None and not changed and all(capture.is_unchanged() for capture in known):
            return known
        self._captures = captures_of(self)
        if known is not None and (changed or not are_alike(known, self._captures)):
            for function in jit_functions(self, self._captures):
                function.hash = None
                function.used_global_vals = {}
            self.device_caches.clear()
            self.reported.clear()
            self.generation += 1
        return self._captures


class BoundGluonKernel(BoundKernel):
    """A jit function in Gluon that is bound to a lab; it cannot inherit from Gluon's, which is not always imported."""

    def create_binder(self) -> Any:
        """Triton's per-device caches and binder, with Gluon's source class."""
        binder = super().create_binder()
        self.ASTSource = specialize.gluon_source()
        return binder

    def is_gluon(self) -> bool:
        """True: Triton's code generator asks for the dialect."""
        return True


class BoundAutotuner(Autotuner):  # type: ignore[misc]
    """An autotuned kernel bound to a lab, which chooses the config: on a GPU the fastest, else the first that fits."""

    runtime: KernelRuntime
    launcher: Launcher
    front: Any
    cache: dict[Any, Any]
    best_config: Any
    options_of_call: Mapping[str, Any] = MappingProxyType({})
    _tuned: bool = False
    _generation: int = 0
    _origin: BoundAutotuner | None = None
    _options: Mapping[str, Any] = MappingProxyType({})
    _origin_configs: list[Any]
    _tuners_by_options: dict[Any, BoundAutotuner]

    __getitem__ = _on_grid
    side_table_number = side_table_number

    def run(self, *args: Any, **meta: Any) -> Any:
        """Launch with the config that the lab tuned for these arguments; returns what `Autotuner.run` returns."""
        with _mark_launched(self):
            return self._launch_with_options(args, meta)

    def warmup(self, *args: Any, **meta: Any) -> Any:
        """Compile every config; options of the call win over those of the configs."""
        options = {name: meta.pop(name) for name in CONFIG_OPTIONS if name in meta}
        return Autotuner.warmup(self._tuner_with_options(options) if options else self, *args, **meta)

    def _launch_with_options(self, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        """Launch with the options of the call in place of the configs'; choices are cached per set of options."""
        function = jit_function(self)
        function.captures()
        if self._generation != function.generation:
            self._generation = function.generation
            self.cache.clear()
            self._tuners_by_options.clear()
        require_not_given_twice(self.configs, {*self.arg_names[: len(args)], *meta})
        self.options_of_call = {name: value for name, value in meta.items() if name in CONFIG_OPTIONS}
        if not self.options_of_call:
            return self._run(*args, **meta)
        specialize.require_options(function.__name__, self.options_of_call)
        tuner = self._tuner_with_options(self.options_of_call)
        handle = tuner._run(*args, **{name: value for name, value in meta.items() if name not in CONFIG_OPTIONS})
        self.best_config = tuner.best_config
        if self.runtime.is_offline() or not self.runtime.interprets():
            self.cache[choice_key(self, args, meta)] = tuner.best_config
        return handle

    def _tuner_with_options(self, options: Mapping[str, Any]) -> BoundAutotuner:
        """The tuner of this kernel for configs with these options; one per set of options."""
        key = tuple(sorted((name, repr(value)) for name, value in options.items()))
        tuner = self._tuners_by_options.get(key)
        if tuner is None or tuner._origin_configs != list(self.configs):
            tuner = self._tuners_by_options[key] = copy.copy(self)
            tuner._origin, tuner._options, tuner._origin_configs = self, options, list(self.configs)
            tuner.configs, tuner.cache = configs_with_options(self.configs, options), {}
        return tuner

    def _run(self, *args: Any, **meta: Any) -> Any:
        if not self.runtime.interprets():
            return super().run(*args, **meta)
        cache = self.cache
        if not self.runtime.is_offline():
            self.cache = dict(cache)  # a choice made without timings is not for the GPU
        try:
            if len(self.configs) > 1:
                self._choose_untimed(args, meta)
            return super().run(*args, **meta)
        finally:
            self.cache = cache

    def _choose_untimed(self, args: tuple[Any, ...], meta: dict[str, Any]) -> None:
        """Cache the first config that fits as the choice, so that Triton times none and prints no timings."""
        if (key := choice_key(self, args, meta)) in self.cache:
            return
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        configs = self.prune_configs(meta)
        choice = next((config for config in configs if self._fits(args, config, meta)), configs[0])
        if len(configs) > 1:  # as after a timing of Triton's
            self.pre_hook({**self.nargs, **meta, **choice.all_kwargs()}, reset_only=True)
        self.cache[key] = choice

    def check_disk_cache(self, tuning_key: Any, configs: Any, bench_fn: Any) -> bool:
        """Bypass Triton's own cache of tunings: the lab's store has them, and some choices are not timed."""
        bench_fn()
        return False

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Any]:
        """Leave Triton the one config that the lab chose, where Triton would time them all."""
        launches = not self.runtime.interprets() and "grid" in kwargs and not kwargs.get("warmup")
        args = tuple(self.nargs.values())
        keywords = {**kwargs, **self._options}
        choice = self.runtime.best_config(self._origin or self, args, keywords) if launches else None
        self._tuned = choice is not None
        if choice is None:
            return list(super().prune_configs(kwargs))
        for name in self.reset_to_zero:  # as after a timing of Triton's: from here on they accumulate
            argument = {**self.nargs, **kwargs}.get(name)
            if argument is not None:
                argument.zero_()
        return [choice] if self._origin is None else configs_with_options([choice], self._options)

    def _bench(self, *args: Any, config: Any, **meta: Any) -> Any:
        if self._tuned:
            return [0.0] * 3
        try:
            return super()._bench(*args, config=config, **meta)
        except (CannotRun, CompileError):
            return [float("inf")] * 3

    def _fits(self, args: tuple[Any, ...], config: Any, meta: dict[str, Any]) -> bool:
        compiled = self.fn.run(*args, **{**meta, **config.all_kwargs(), "warmup": True})
        with suppress(OutOfResources):
            return compiled is not None and callable(compiled.run)
        return False


class BoundHeuristics(Heuristics):  # type: ignore[misc]
    """A kernel with heuristics, bound to a lab. It computes its values and passes them on, as Triton's does."""

    runtime: KernelRuntime
    launcher: Launcher
    front: Any

    __getitem__ = _on_grid
    warmup = _warmup
    side_table_number = side_table_number

    def run(self, *args: Any, **meta: Any) -> Any:
        """Launch with the values of the heuristics; returns what `Heuristics.run` returns."""
        __tracebackhide__ = True
        with _mark_launched(self):
            return super().run(*args, **meta)


@contextmanager
def _mark_launched(kernel: Kernel) -> Iterator[None]:
    """Set `BoundKernel.launched_as` of this thread, inside a with statement, to the outermost decorated kernel."""
    before = getattr(_THREAD, "launched", None)
    is_inner = before is not None and jit_function(before) is jit_function(kernel)
    _THREAD.launched = before if is_inner else kernel
    try:
        yield
    finally:
        _THREAD.launched = before


_BOUND_CLASSES: tuple[tuple[Any, Any], ...] = (
    (JITFunction, BoundKernel),
    (Autotuner, BoundAutotuner),
    (Heuristics, BoundHeuristics),
)


def bind_in_place(kernel: Any, runtime: KernelRuntime) -> Any:
    """Bind a kernel that this process just defined; the object stays the same."""
    require_one_tuner(kernel)
    is_gluon = isinstance(kernel, JITFunction) and kernel.is_gluon()
    bound = BoundGluonKernel if is_gluon else next(own for plain, own in _BOUND_CLASSES if isinstance(kernel, plain))
    if not isinstance(kernel, bound):
        kernel.__class__ = bound
    kernel.runtime = runtime
    kernel.launcher = Launcher(kernel, runtime.switch)
    kernel.launcher.restart()
    if isinstance(kernel, JITFunction):
        kernel.reported, kernel.generation, kernel._captures = set(), 0, None
        kernel.device_caches = defaultdict(kernel.create_binder)  # Triton's own factory is bound to the base class
    else:
        kernel._tuners_by_options = {}
        bind_in_place(kernel.fn, runtime)
    return kernel


def bound_copy(kernel: Kernel, runtime: KernelRuntime) -> Any:
    """Return a bound twin of a kernel that belongs to another module, which keeps its own."""
    twin: Any = copy.copy(kernel)
    if isinstance(twin, JITFunction):
        twin.used_global_vals = {}
        twin.hash = None
        twin.pre_run_hooks = list(twin.pre_run_hooks)
    else:
        twin.fn = bound_copy(kernel.fn, runtime)
    if isinstance(twin, Autotuner):
        twin.cache = {}
    return bind_in_place(twin, runtime)


def is_bound(kernel: object) -> TypeGuard[Bound]:
    """Whether a kernel, decorated or not, is bound to a lab."""
    return isinstance(kernel, tuple(bound for _, bound in _BOUND_CLASSES))
