"""The block in which a program is recorded, and the record of each launch in it.

The config of an autotuned kernel is not fixed: each run asks the autotuner, so the record has the grid for each config.
A program keeps the config of the recording, with a note, where configs have hooks of the user (these ran in the block
and are steps), or where the grid for another config is unknown.
"""

from __future__ import annotations

import sys
import threading
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

from kernellab._triton.closure import closure_of
from kernellab._triton.kernel import (
    autotune_settings,
    configs_with_options,
    is_kernel,
    jit_function,
    options_of_call,
    supplied_names,
    variant_with,
)
from kernellab.capture.naming import locals_of
from kernellab.capture.program import Program
from kernellab.capture.tape import ConfigGrid, KernelUse, RecordedKernelLaunch, RecordedTuning, TuningUse
from kernellab.errors import KernellabError, UsageError
from kernellab.launch.bound_launch import BoundLaunch
from kernellab.launch.calls import Grid3, checked_grid
from kernellab.launch.marks import mark_all_launches
from kernellab.launch.recording import record_of
from kernellab.launch.runtime import Runtime
from kernellab.registry import Registry, Session, recorded_launch_of, result_of
from kernellab.source import CONFIG_OPTIONS, JitOptions
from kernellab.source.text import USER_ERRORS
from kernellab.store import Version

Scope = Callable[[], Mapping[str, Any]]


class Capture:
    """A with statement that records the launches and torch operations of its thread as a program.

    ``scope`` gives the variables in which names for tensors are looked up; by default those of the caller. With
    ``dynamic``, sizes of tensors are symbolic in the block, and the program holds for others as well. ``inputs`` are,
    at its end, the tensors that the program takes; None for one that no longer exists.
    """

    def __init__(self, session: Session, scope: Scope | None = None, *, dynamic: bool = False) -> None:
        self.launches = session.runtime
        self.kernels = session.kernels
        self.scope = scope
        self.dynamic = dynamic
        self.inputs: tuple[Any, ...] = ()
        self._program: Program | None = None
        self._open = ExitStack()

    def __enter__(self) -> Program:
        if self._program is not None:
            raise UsageError("This capture was used already; each with statement takes a lab.capture() of its own.")
        import torch

        from kernellab.capture.function_recorder import FunctionRecorder
        from kernellab.capture.recorder import OperationRecorder

        if self.scope is None:
            frame = sys._getframe(1)
            self.scope = lambda: ChainMap(locals_of(frame), frame.f_globals)
        recorder = OperationRecorder(self.launches.observers, self.scope, record_kernel_launch)
        self._program = Program(self.kernels, recorder)
        self._unbound: dict[str, None] = {}
        self._open.enter_context(self.launches.switch.on())
        self._recorder = recorder
        self._open.enter_context(self.launches.observers.observe(recorder.record_launch, recorder.is_recorded_thread))
        self._open.enter_context(self.launches.observers.observe(recorder.check_other_thread, recorder.is_other_thread))
        self._open.enter_context(mark_all_launches())
        self._open.enter_context(_watch_launches(self.launches, recorder, self._unbound))
        self._open.enter_context(torch.compiler.set_stance("force_eager"))  # torch.cond compiles what it is given
        self._open.enter_context(recorder)
        self._open.enter_context(FunctionRecorder(recorder))
        from kernellab.capture.size_tracking import SizeTracker
        from kernellab.capture.sized_recording import launch_with_sizes

        self._sizes = SizeTracker(recorder, tracks_shapes=self.dynamic)
        self._open.enter_context(self.launches.switch.sending(partial(launch_with_sizes, self._sizes)))
        self._open.enter_context(self._sizes)
        return self._program

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._program is not None
        if kind is None:
            self._recorder.check_memory(at_end=True)
            self._sizes.finish()
        problems = tuple(self._recorder.recording.problems)
        self._open.close()
        message = ""
        if self._unbound:
            message = (
                f"{', '.join(self._unbound)} was launched in the block and is not bound to this lab, so the program "
                "lacks it; define it in a %%triton cell, or launch what lab.bind(kernel) returns."
            )
        elif problems:
            message = (
                f"The capture did not see all that changed the memory of the block: {'; '.join(problems)}. Write to "
                "tensors by operations of torch and by kernels, in this thread."
            )
        if kind is not None:
            self._program.abandon(f"{kind.__name__} ended its block: {getattr(exc, 'message', exc)}")
        elif message:
            self._program.abandon(message)
            raise UsageError(message)
        else:
            self._complete(self._program)
        del self._recorder, self._sizes
        self.scope = None  # a frame keeps all of its variables alive

    def _complete(self, program: Program) -> None:
        from kernellab.capture.build import build_program  # needs torch
        from kernellab.capture.sized_recording import sizes_of

        assert self.scope is not None
        functions: dict[int, Any] = {}
        try:
            with self.launches.observers.own_launches():
                scope = dict(self.scope())
                register = partial(register_launch, self.kernels, scope, functions)
                known = sizes_of(self._sizes) if self._sizes.has_symbols else None
                sizes = known if self._sizes.has_free_symbols else None
                recording = self._recorder.recording
                program.complete(build_program(recording, scope, register, sizes), functions)
                self.inputs = tuple(recording.values[index].tensor() for index in recording.inputs)
        except KernellabError as exc:
            program.abandon(exc.message)
            raise


def _watch_launches(launches: Runtime, recorder: Any, unbound: dict[str, None]) -> Any:
    """Return a with statement that notes launches of this thread of kernels that are not bound to the lab.

    Before each launch, memory is checked that something else than torch can change.
    """
    from kernellab._triton.drivers import hook_launches

    thread = threading.get_ident()

    def note(name: str) -> None:
        is_own = launches.observers.own_depth or recorder.is_inside_operation
        is_recorded_thread = threading.get_ident() == thread or recorder.is_recorded_thread()
        if is_recorded_thread and not recorder.is_inside_operation:
            recorder.check_memory()
        if is_recorded_thread and not is_own:
            unbound[name] = None

    return hook_launches(note)


def record_kernel_launch(launched: BoundLaunch) -> RecordedKernelLaunch:
    """Return the record of a launch, without its tensors, so that it does not keep them alive."""
    kernel, effects = launched.kernel, launched.compiled.effects
    constants = {p.name: launched.arguments[p.name] for p in kernel.params if p.is_constexpr}
    closure, bindings = closure_of(kernel, tuple(constants.values()))
    use = KernelUse(
        closure,
        launched.grid,
        constants=tuple(zip(constants, bindings, strict=True)),
        options=tuple(launched.options.items()),
        parameters=tuple(kernel.arg_names),
        mutated=effects.mutated,
        read=effects.reads | effects.atomics,
        complete=not effects.unknown,
    )
    record = record_of(launched)
    record.grid, record.given_grid = launched.grid, None
    launch, result = recorded_launch_of(record), result_of(launched.compiled)
    tuning = tuning_of(record.owner, launched)
    return RecordedKernelLaunch(use, kernel, record.owner, record.closure, launch, result, constants, *tuning)


def register_launch(
    kernels: Registry, scope: Mapping[str, Any], functions: dict[int, Any], record: RecordedKernelLaunch
) -> KernelUse:
    """Add a launch to the side table and the history; ``functions`` gets the kernel by its id."""
    version = _version(kernels, scope, record)
    functions[version.id] = record.kernel
    launch_id = kernels.store.history.add_launch(version.id, record.launch, count=0, result=record.result)
    return replace(
        record.use,
        kernel=version.label,
        kernel_id=version.id,
        constants_id=kernels.add_constants({**record.constants, **dict(record.use.options)}),
        launch_id=launch_id,
        jit_options=tuple(o for w in version.closure.wrappers if isinstance(w, JitOptions) for o in w.options),
        tuning=None if record.tuning is None else _tuning_use(kernels, record, record.tuning, version),
    )


def _tuning_use(kernels: Registry, record: RecordedKernelLaunch, tuning: RecordedTuning, version: Version) -> TuningUse:
    """Return the configs of an autotuned launch, with ids in the side table."""
    is_timed = not record.kernel.runtime.is_offline()
    bindings = dict(record.use.constants)
    return TuningUse(
        constants_id=kernels.add_constants(tuning.call_constants),
        constants=tuple((name, bindings[name]) for name in tuning.call_constants if name in bindings),
        options=tuple((name, value) for name, value in tuning.call_constants.items() if name not in bindings),
        configs=config_grids(tuning, kernels.add_constants),
        supplied=frozenset(tuning.supplied[0]),
        closure=version.closure,
        key=tuning.key,
        ran=tuning.chosen,
        chosen=tuning.chosen if is_timed else None,
    )


def _version(kernels: Registry, scope: Mapping[str, Any], record: RecordedKernelLaunch) -> Version:
    """Return the version that was launched; a new one is added with the decorators of the namespace."""
    kernel = record.kernel
    known = kernels.version_of_launch(
        kernel if kernels.known_version(record.owner) is None else record.owner, record.owner_closure
    )
    if known is not None:
        return known
    if record.owner is not kernel:
        return kernels.add(record.owner, closure=record.owner_closure)
    owners = [value for value in scope.values() if is_kernel(value) and jit_function(value) is kernel]
    owner = next((value for value in owners if value is not kernel), kernel)
    return kernels.add(owner, closure=record.owner_closure if owner is kernel else None)


def tuning_of(owner: Any, launched: BoundLaunch) -> tuple[RecordedTuning | None, str]:
    """Return the configs of an autotuned launch; None with the reason if its config is fixed, or "" without configs."""
    tuner = autotune_settings(owner)
    if not tuner.configs:
        return None, ""
    if tuner.pre_hook or tuner.post_hook or any(config.pre_hook for config in tuner.configs):
        return None, "its configs have hooks, which ran in the block"
    options = options_of_call(owner)
    configs = configs_with_options(tuner.configs, options)
    names = supplied_names(owner)
    constants = {p.name for p in launched.kernel.params if p.is_constexpr}
    arguments = {name: value for name, value in launched.arguments.items() if name not in names}
    others = {name: value for name, value in launched.options.items() if name not in CONFIG_OPTIONS}
    call = {**arguments, **others, **options}
    try:
        variants = [variant_with(owner, (), call, config) for config in configs]
        supplied_by_config = [{n: v.meta[n] for n in v.function.arg_names if n in names} for v in variants]
        grids = [_grid(launched, {**launched.arguments, **supplied}) for supplied in supplied_by_config]
    except USER_ERRORS as exc:  # of the user's own heuristics and grid, for a config that was not launched
        return None, f"the grid for another config fails: {exc}"
    current = {name: launched.arguments[name] for name in supplied_by_config[0]}
    ran = [
        i for i, supplied in enumerate(supplied_by_config) if supplied == current and _has_options(configs[i], launched)
    ]
    if not ran or not _are_distinguishable(supplied_by_config, grids):
        return None, "two of its configs set the same values"
    call_constants = {
        name: value for name, value in call.items() if name in constants or name not in launched.arguments
    }
    dtypes = [str(value.dtype) for value in launched.arguments.values() if hasattr(value, "dtype")]
    key = (*(launched.arguments.get(name) for name in tuner.key or ()), *dtypes)  # as Triton's autotuner makes it
    return RecordedTuning(tuple(configs), tuple(supplied_by_config), tuple(grids), call_constants, key, ran[0]), ""


def _grid(launched: BoundLaunch, arguments: Mapping[str, Any]) -> Grid3:
    grid = launched.given_grid
    return checked_grid(grid(arguments) if callable(grid) else grid, launched.kernel.__name__)


def _has_options(config: Any, launched: BoundLaunch) -> bool:
    wanted = {name: value for name, value in config.all_kwargs().items() if name in CONFIG_OPTIONS}
    return all(launched.options.get(name, launched.arguments.get(name)) == value for name, value in wanted.items())


def config_grids(tuning: RecordedTuning, add_constants: Callable[[Mapping[str, Any]], int]) -> tuple[ConfigGrid, ...]:
    """Return the grids of the configs, with ids of the parameters that identify each.

    These are the parameters that the config itself sets, if they suffice: heuristics give others for other arguments.
    """
    by_config = [
        {name: value for name, value in supplied.items() if name in config.kwargs}
        for supplied, config in zip(tuning.supplied, tuning.configs, strict=True)
    ]
    identifying = by_config if _are_distinguishable(by_config, tuning.grids) else tuning.supplied
    return tuple(
        ConfigGrid(add_constants(supplied), tuple(supplied.items()), grid)
        for supplied, grid in zip(identifying, tuning.grids, strict=True)
    )


def _are_distinguishable(supplied: Sequence[Mapping[str, Any]], grids: Sequence[Grid3]) -> bool:
    """Whether configs that set the same parameters have the same grid."""
    pairs = list(zip(supplied, grids, strict=True))
    return all(grid == other for values, grid in pairs for others, other in pairs if values == others)
