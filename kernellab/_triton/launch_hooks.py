"""Observation of every launch of a process: plain, autotuned and bound kernels, and those of torch's Inductor.

Triton asks a compiled kernel for the metadata of each launch before it makes it, whatever path leads there, and calls
its chain of exit hooks after it. Inductor's own launcher in C does neither, so that its autotuners are observed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from threading import get_ident
from typing import Any, Protocol

from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner

from kernellab._triton.kernel import autotune_settings

_INDUCTOR = "torch._inductor.runtime.triton_heuristics"
_IN_TRIALS: set[int] = set()  # threads in which an autotuner times its configs
_IN_INDUCTOR: set[int] = set()  # threads in a launch of Inductor
_MOST_FRAMES = 24  # between a launch and the autotuner that makes it


class Origin(StrEnum):
    """The launcher of a kernel: Triton, or torch.compile for a kernel of the user (``compile``) or its own."""

    TRITON = "triton"
    COMPILE = "compile"
    INDUCTOR = "inductor"


class LaunchObserver(Protocol):
    """Called around launches, in the thread that makes them.

    ``kernel`` is what `launched_kernel` describes. ``is_trial`` is True for launches by which an autotuner times its
    configs. ``grid`` is None where Inductor computes it. An observer adds little time to each launch.
    """

    def before_launch(self, kernel: Any, grid: Any, args: tuple[Any, ...], is_trial: bool, /) -> None:
        """Count a launch."""

    def after_launch(self, metadata: Any = None, /) -> None:
        """Note that the launch was submitted; not called for one that failed."""


@dataclass(frozen=True, slots=True)
class LaunchedKernel:
    """A compiled kernel: jit function, parameters, constants by name, options, and the constexprs an autotuner sets.

    ``names`` are the parameters in the order of a launch's arguments, ``positions`` the places of those that are not
    constexprs.
    """

    name: str
    function: Any
    origin: Origin
    names: tuple[str, ...]
    positions: tuple[int, ...]
    constants: Mapping[str, Any]
    signature: tuple[tuple[str, str], ...]
    options: Mapping[str, Any]
    config_names: tuple[str, ...]
    target: str
    digest: str
    grid_of: Callable[[tuple[Any, ...]], tuple[int, ...]] | None = None


@contextmanager
def observe_launches(observer: LaunchObserver, *, inductor: bool = False) -> Iterator[None]:
    """Pass each launch of this process inside a with statement to ``observer``.

    Of torch.compile, kernels of the user are passed, and with ``inductor`` also those that Inductor writes.
    """

    before_launch = observer.before_launch

    def launch_metadata(compiled: Any, grid: Any, stream: int, *args: Any) -> Any:
        if not _IN_INDUCTOR or get_ident() not in _IN_INDUCTOR:
            before_launch(compiled, grid, args, bool(_IN_TRIALS) and get_ident() in _IN_TRIALS)
        return metadata_of(compiled, grid, stream, *args)

    def bench(tuner: Any, *args: Any, **meta: Any) -> Any:
        with _mark_thread(_IN_TRIALS):
            return bench_config(tuner, *args, **meta)

    metadata_of, bench_config = CompiledKernel.launch_metadata, Autotuner._bench
    with ExitStack() as patches:
        patches.enter_context(_patch(CompiledKernel, "launch_metadata", launch_metadata))
        patches.enter_context(_patch(Autotuner, "_bench", bench))
        patches.enter_context(_exit_hook(observer.after_launch))
        patches.enter_context(_when_imported(_INDUCTOR, lambda: _observe_inductor(observer, inductor)))
        yield


@contextmanager
def _patch(owner: Any, name: str, function: Any) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _exit_hook(hook: Callable[[Any], None]) -> Iterator[None]:
    chain: Any = knobs.runtime.launch_exit_hook
    if not hasattr(chain, "add"):  # replaced by the user; times are then not sampled
        yield
        return
    chain.add(hook)
    try:
        yield
    finally:
        chain.remove(hook)


@contextmanager
def _mark_thread(threads: set[int]) -> Iterator[None]:
    """Add this thread to a set inside a with statement."""
    thread = get_ident()
    is_outer = thread not in threads
    threads.add(thread)
    try:
        yield
    finally:
        if is_outer:
            threads.discard(thread)


@contextmanager
def _when_imported(module: str, patch: Callable[[], Any]) -> Iterator[None]:
    """Enter the context of ``patch`` as soon as a module is imported; at once if it is already."""
    with ExitStack() as patches:
        if module in sys.modules:
            patches.enter_context(patch())
            yield
            return
        finder = _ImportWatch(module, lambda: patches.enter_context(patch()))
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            if finder in sys.meta_path:
                sys.meta_path.remove(finder)


class _ImportWatch(MetaPathFinder):
    """Calls a function after the first import of a module."""

    def __init__(self, module: str, call: Callable[[], Any]) -> None:
        self._module, self._call = module, call

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Find the module as the other finders do, with a loader that calls the function at its end."""
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        loader: Any = None if spec is None else spec.loader
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            self._call()

        loader.exec_module = exec_module
        return spec


def _observe_inductor(observer: LaunchObserver, inductor: bool) -> Any:
    module: Any = sys.modules[_INDUCTOR]
    run_original = module.CachingAutotuner.run

    def run(tuner: Any, *args: Any, stream: Any, benchmark_run: bool = False, **meta: Any) -> Any:
        is_observed = not (benchmark_run or meta) and (inductor or _origin(tuner) is Origin.COMPILE)
        is_settled = len(tuner.launchers) == 1
        grid = args[len(args) - len(_grid_names(tuner)) :] or None
        if is_observed and is_settled:
            observer.before_launch(tuner, grid, args, False)
        with _mark_thread(_IN_INDUCTOR):
            result = run_original(tuner, *args, stream=stream, benchmark_run=benchmark_run, **meta)
        if is_observed:
            if not is_settled:  # the first launch, which has chosen a config
                observer.before_launch(tuner, grid, args, False)
            observer.after_launch()
        return result

    return _patch(module.CachingAutotuner, "run", run)


def _grid_names(tuner: Any) -> tuple[str, ...]:
    """The names of the last arguments of a launch, by which torch.compile passes the grid of a kernel of the user."""
    return tuple(tuner.inductor_meta.get("extra_launcher_args", ()))


def _origin(tuner: Any) -> Origin:
    return Origin.COMPILE if tuner.heuristic_type.name == "USER_AUTOTUNE" else Origin.INDUCTOR


def launched_kernel(kernel: Any) -> LaunchedKernel:
    """Describe the kernel of a launch; called during the launch, to see the autotuner that makes it."""
    return _compiled_kernel(kernel) if isinstance(kernel, CompiledKernel) else _inductor_kernel(kernel)


def _compiled_kernel(compiled: Any) -> LaunchedKernel:
    metadata, source = compiled.metadata, compiled.src
    function = getattr(source, "fn", None)
    params = getattr(function, "params", ())
    names = tuple(param.name for param in params)
    fixed = {key[0]: value for key, value in getattr(source, "constants", {}).items() if len(key) == 1}
    target = metadata.target
    return LaunchedKernel(
        name=getattr(function, "__name__", compiled.name),
        function=function,
        origin=Origin.TRITON,
        names=names,
        positions=tuple(i for i, param in enumerate(params) if not param.is_constexpr),
        constants={param.name: fixed.get(i) for i, param in enumerate(params) if param.is_constexpr},
        signature=tuple((name, str(kind)) for name, kind in getattr(source, "signature", {}).items()),
        options=metadata._asdict(),
        config_names=_config_names(function),
        target=f"{target.backend}:{target.arch}",
        digest=str(compiled.hash),
    )


def _config_names(function: Any) -> tuple[str, ...]:
    """The constexprs that an autotuner sets, which is the kernel's own or found on the stack of a launch."""
    owner = getattr(function, "launched_as", None)  # of a bound kernel
    configs = list(autotune_settings(owner).configs) if owner is not None else []
    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        tuner = frame.f_locals.get("self")
        if isinstance(tuner, Autotuner):
            configs += tuner.configs
            break
        if frame.f_back is None:
            break
        frame = frame.f_back
    return tuple(sorted({name for config in configs for name in config.kwargs}))


def _inductor_kernel(tuner: Any) -> LaunchedKernel:
    meta, config = tuner.triton_meta, tuner.launchers[0].config
    chosen = dict(config.kwargs)
    known = {name: value for name, value in meta.get("constants", {}).items() if isinstance(name, str)}
    constants = {**known, **chosen}
    params = tuner.fn.params
    constexprs = {param.name for param in params if param.is_constexpr}
    names = tuple(param.name for param in params if param.name not in constexprs & constants.keys())
    device = tuner.device_props  # the meta data of Triton keep its index alone
    inductor_meta, grid_expression = tuner.inductor_meta, sys.modules[_INDUCTOR].GridExpr
    all_names = (*names, *_grid_names(tuner))

    def grid_of(args: tuple[Any, ...]) -> tuple[int, ...]:
        values = {**constants, **dict(zip(all_names, args, strict=False))}
        return grid_expression.from_meta(inductor_meta, config).eval_slow(values)  # type: ignore[no-any-return]

    return LaunchedKernel(
        name=tuner.fn.__name__,
        function=tuner.fn,
        origin=_origin(tuner),
        names=names,
        positions=tuple(i for i, name in enumerate(names) if name not in constexprs),
        constants={name: constants[name] for name in constexprs & constants.keys()},
        signature=tuple((name, str(kind)) for name, kind in meta["signature"].items()),
        options={"num_warps": config.num_warps, "num_stages": config.num_stages, "num_ctas": 1},
        config_names=tuple(sorted(chosen)) if len(tuner.configs or ()) > 1 else (),
        target=f"{device.type}:{device.cc}",
        digest=str(tuner.launchers[0].cache_hash),
        grid_of=grid_of,
    )
