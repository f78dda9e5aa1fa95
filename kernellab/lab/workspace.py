"""The state of a lab, and its end: settings, store, workers, and the runtime that launches its kernels."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from kernellab._triton.drivers import gpu_target_of_machine
from kernellab._triton.interpreted import finish_interpreted_imports
from kernellab._triton.kernel import Kernel, is_kernel
from kernellab._triton.specialize import warm
from kernellab.compile.cache import COMPILE_WORKER, Compiler, named_target
from kernellab.compile.entries import evict
from kernellab.errors import NO_LAB, KernellabError, StoreError, UsageError, refused_by_system, value_message, warn_user
from kernellab.gpu.trial import GpuTrials
from kernellab.interpreter.runner import INTERPRET_WORKER, Interpreter, modules_ahead
from kernellab.launch.calls import UserCall, grid_for_launch, require_kernel
from kernellab.launch.runtime import Runtime
from kernellab.launch.verbs import verbs
from kernellab.registry import LoadedVersion, Registry, Session, define, keep
from kernellab.registry.history_frames import frame
from kernellab.registry.kernels import revive_kernel
from kernellab.settings import in_memory, is_interpreting, read_settings, restore_interpreting, set_interpreting_aside
from kernellab.store import Store, Version
from kernellab.target import DEFAULT_TARGET, Target, is_lost_to_fork, model_name, parse_target, well_formed_target
from kernellab.workers.forks_and_interrupts import Stop, at_fork, in_background, rlock, run_uninterrupted
from kernellab.workers.scratch import Scratch, has_room, why_no_room
from kernellab.workers.worker import Pool, Worker

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from kernellab.export.merging import Merged
    from kernellab.harvest.result import Harvest
    from kernellab.registry.regressions import Regressions
    from kernellab.tune.run_tuning import Environment
    from kernellab.upgrade.gate_result import GateResult
    from kernellab.upgrade.result import Upgrade

_GPU_HANDLERS = "kernellab.timing.bench_worker"  # which imports those of trials


@verbs
class Workspace:
    """The state behind the verbs of a `Lab`, and those over its store: a context manager that starts processes late."""

    @refused_by_system(NO_LAB)
    def __init__(self, target: str | None = None, store: str | Path | None = None) -> None:
        self.settings = read_settings()
        self._interpreting: str | None = None
        wanted = str(target or self.settings.target or "")
        self._wanted = (well_formed_target(wanted) or parse_target(wanted)) if wanted else None
        self._model = model_name(wanted)
        chosen = Path(store or self.settings.store)
        self._scratch = run_uninterrupted(Scratch) if in_memory(chosen) else None
        folder = self._scratch.path if self._scratch else chosen
        self._pool = Pool(COMPILE_WORKER, self.settings.compile_workers)
        self._pool.server.preload(modules_ahead())
        self._interpreter = Interpreter(Worker(INTERPRET_WORKER, self._pool.server), self.settings.timeout_s)
        self._resolving = rlock()
        at_fork(self, in_child=Workspace._leave_lost_gpu)
        self._launches: Runtime | None = None
        self._twins: dict[int, tuple[ref[Any], Any]] = {}
        self.last_arguments: dict[str, dict[str, Any]] = {}
        self.passed_versions: dict[str, str] = {}
        self._spare: Scratch | None = None
        place, kept = self._artifacts_folder(folder), Store(None if self._scratch else folder)
        self.compiler = Compiler(self._pool, place, self.settings.timeout_s, instead=self._spare_artifacts_folder)
        self.kernels = Registry(kept, self._revive, bind=self.bind, notebook=self.settings.notebook)
        self._trials = GpuTrials(self.settings.timeout_s, self.settings.isolate, kept.trials, _GPU_HANDLERS, self._pool)
        self.set_interpreting_aside()

    def set_interpreting_aside(self) -> None:
        """Take ``TRITON_INTERPRET=1`` out of the environment until this lab is closed, and say so.

        Under it, Triton makes of a kernel a function of its own interpreter, which the lab could neither compile nor
        check; and an access out of bounds would end this process.
        """
        if not is_interpreting():
            return
        names = ", ".join(finish_interpreted_imports())
        self._interpreting = set_interpreting_aside()
        message = (
            "TRITON_INTERPRET=1 is set aside while there is a lab: it compiles the kernels that are defined from now "
            "on, and without a GPU runs them on the CPU in a process of its own."
        )
        if names:
            message += f" Defined before, and so neither compiled nor checked: {names}. Define or import them again."
        warn_user(message)

    def __repr__(self) -> str:
        where = self.kernels.store.path or "memory"
        return f"<{type(self).__name__} for {self.target}, which keeps its kernels in {where}>"

    @refused_by_system(NO_LAB)
    def start(self, wait: bool = False) -> None:
        """Start the workers and load the slow libraries in the background, or before returning if ``wait``.

        The server of the workers imports Triton while this process imports torch, to ask whether there is a GPU.
        Modules of Triton import each other, so only this thread imports them. What a tuning needs comes last.
        """
        self._pool.start()
        warm()
        starting = self.launches.start_workers()
        thread = in_background(*(() if starting is None else (starting.join, *_WARM_UP_STEPS)))
        threading.Thread(target=self.tidy, daemon=True).start()
        if wait:
            thread.join(self.settings.timeout_s)
            self._pool.wait_ready(self.settings.timeout_s)

    def start_interpreter(self) -> None:
        """Start the process that runs launches on the CPU, in the background, if there is no GPU."""

        def start() -> None:
            with contextlib.suppress(KernellabError):  # the first launch will say it
                self._interpreter.start()

        if self.launches.is_offline() and self._interpreter.worker.pid is None:
            self._pool.run_in_background(start, Stop())

    def tidy(self) -> None:
        """Delete compiled files, the least recently used first, down to the size in the settings."""
        with contextlib.suppress(StoreError):  # the lab may be closed meanwhile
            evict(self.compiler.folder, self.settings.cache_bytes)
            self.kernels.store.history.trim(self.settings.cache_bytes)

    def close(self) -> None:
        """Stop all workers and close the store. An interrupt only stops the wait for them."""
        run_uninterrupted(self._close)

    def _close(self) -> None:
        runtime = [] if self._launches is None else [self._launches.close]
        workers = self._interpreter.close, self._pool.close, self._trials.close  # whose threads have the pool compile
        folders = [folder.close for folder in (self._scratch, self._spare) if folder is not None]
        with contextlib.ExitStack() as closing:  # one after the other, the last first, also where one fails
            closing.callback(restore_interpreting, self._interpreting)
            for close in (*folders, self.kernels.store.close, *runtime, *workers):
                closing.callback(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def target(self) -> Target:
        """The target of calls that name none."""
        return self.launches.target

    def use_target(self, target: str) -> Target:
        """Compile for ``target`` from now on. With a GPU, launches stay on it and the cards show ``target``."""
        parsed = self.launches.use(self._parse_target(target))
        self._model = model_name(target)
        return parsed

    @property
    def launches(self) -> Runtime:
        """The runtime of this lab's kernels; on first use, this finds out whether there is a GPU."""
        with self._resolving:
            if self._launches is None:
                self._launches = self._open_runtime()
                self._launches.keep = lambda record: keep(self.kernels, record)
            return self._launches

    def bind(self, kernel: Kernel) -> Any:
        """Return a drop-in for ``kernel`` that launches through this lab, as a ``%%triton`` cell binds it.

        Raises:
            UsageError: ``kernel`` is not a Triton kernel.
        """
        from kernellab._triton.bound import bound_copy, is_bound

        require_kernel(kernel)
        if is_bound(kernel) and kernel.runtime is self.launches:
            return kernel
        original, twin = self._twins.get(id(kernel), (None, None))
        if original is None or original() is not kernel:
            twin = bound_copy(kernel, self.launches)
            number, twins = id(kernel), self._twins
            self._twins[number] = (ref(kernel, lambda gone: _delete_twin(twins, number, gone)), twin)
            self.launches.activate()
        return twin

    def _revive(self, version: Version) -> Any:
        """Return the kernel of a stored version, bound in place: a bound copy would keep it alive for good."""
        from kernellab._triton.bound import bind_in_place

        kernel = bind_in_place(revive_kernel(version), self.launches)
        self.launches.activate()
        return kernel

    def frame(self, table: str) -> Any:
        """Return ``kernels``, ``launches`` or ``measurements`` of the whole history as a DataFrame."""
        return frame(self.kernels.store, table)

    def regressions(self, kernel: str | int | None = None, *, since: Any = None, margin: float = 0.03) -> Regressions:
        """Compare the stored launches under several versions of Triton, driver or kernel.

        ``kernel`` is a name, of which all versions count; None takes all kernels. ``since`` leaves earlier changes out:
        a date or datetime, also as ISO 8601, seconds since 1970, or how long ago, such as ``"7d"``. A launch is slower
        or faster where the intervals of the medians lie apart, and these differ by more than ``margin``.

        Raises:
            UnknownName, UsageError: there is no such kernel, or moment.
        """
        from kernellab.registry.regressions import regressions_of

        return regressions_of(self.kernels, kernel, since, margin)

    def upgrade(
        self, from_version: str | None = None, *, python: str | Path | None = None, times: bool = True
    ) -> Upgrade:
        """Compile all stored winners under the installed Triton, and compare them with what was kept of them.

        Winners are the latest launches that were compiled under ``from_version`` of Triton, such as ``"3.6.0"``; None
        takes all other versions than the installed one. Without a GPU, the comparison of resources, instructions,
        traffic and predicted times says which are suspect; with one, and unless ``times`` is False, suspects and a
        sample of the others are timed again with their neighbours. ``python`` is the path of a Python with the earlier
        Triton, which compiles what was not kept, and says from which stage on the two compiles differ, by line.

        Raises:
            UsageError: the store has no launch of ``from_version``, or ``python`` cannot compile them.
        """
        from kernellab.upgrade.verbs import upgrade_of

        return upgrade_of(self.session, from_version, python, times=times)

    def gate(
        self,
        kernel: Kernel,
        grid: Any,
        /,
        *args: Any,
        against: Any,
        margin: float = 0.03,
        budget_s: float = 10.0,
        timeout_s: float = 60.0,
        check: bool = False,
        names: tuple[str, str] | None = None,
        executor: Executor | None = None,
        **meta: Any,
    ) -> GateResult:
        """Time a launch and that of an earlier revision in turns, until the slowdown is decided or the budget ends.

        ``against`` is the earlier kernel, or (kernel, grid, values by name) where grid (None: the same) or some
        arguments differ. ``margin`` is the slowdown that is allowed, as a share. ``status`` of the result is 0 within
        it, 1 beyond it, 3 where ``budget_s`` seconds did not decide. Without a GPU, resources, traffic and predicted
        times are compared; a reason for a slowdown makes it 3. With ``check``, differing outputs make it 1, a failure
        on the CPU 3. ``names`` are what the two are called. With an ``executor``, both run on copies of the arguments.

        Raises:
            UsageError, LaunchError: the launch does not fit one of the kernels.
            KernellabError: one does not compile, or fails; the executor has no GPU, or broke.
        """
        from kernellab.upgrade.gating import GateOptions, gate_kernels  # keeps `import kernellab` light

        call = self._user_call("gate", kernel, grid, args, meta)
        options = GateOptions(margin, budget_s, timeout_s, check, names)
        if executor is None:
            return gate_kernels(self.session(), call, against, options)
        from kernellab.upgrade.cluster_gate import gate_elsewhere

        return gate_elsewhere(self.session(), call, against, options, executor, (local_environment, local_session))

    @contextmanager
    def harvest(self, *, inductor: bool = False) -> Iterator[Harvest]:
        """Record which Triton kernels run inside a with statement, and how often: ``with lab.harvest() as seen:``.

        Launches of this process count, of any thread and package, with those that CUDA graphs replay; of torch.compile
        those of your kernels and, with ``inductor``, those of kernels that Inductor writes. On a GPU, device times of
        some launches are sampled. Nothing is changed in the program, and it is not waited for. ``seen.frame`` has a row
        per kernel and case, ``seen.cases(kernel)`` goes into ``lab.tune_over(over=...)``.
        """
        from kernellab.harvest.verbs import harvest

        self.launches.activate()
        with harvest(self.session, inductor=inductor) as seen:
            yield seen

    def harvest_on(
        self, executor: Executor, function: Callable[..., Any], /, *args: Any, inductor: bool = False, **named: Any
    ) -> Harvest:
        """Call a function in all processes of an executor side by side; return one harvest of all their launches.

        ``executor`` is as for `tune`. Its processes need kernellab and no GPU; where it does not list them, it is given
        as many calls as it may have processes. ``function``, ``args`` and ``named`` are pickled; its kernels have to be
        of a module that the processes can import. What the function returns is dropped.

        Raises:
            UsageError: it is not an executor, or the call cannot be sent.
            WorkerError: the function failed in a process, or the process was lost; the message names it.
        """
        from kernellab.harvest.verbs import harvest_on

        return harvest_on(executor, partial(local_harvest, inductor), partial(function, *args, **named))

    def merge(self, path: str | Path, /) -> Merged:
        """Merge kernels and measurements of another store, or of exported ones; return them with yours, as a table.

        ``path`` is the folder of a store, its file, or what `export_measurements` wrote. It is only read, and all of it
        enters or nothing. Rows keep the device, driver and Triton that they were measured with, and tunings under the
        same reuse them; where rows disagree, the table says by what.

        Raises:
            StoreError, UsageError: it is broken, or cannot be read.
        """
        from kernellab.export.merging import merge

        return merge(self.kernels, Path(path).expanduser())

    def load(self, kernel: str | int | Path, /, namespace: dict[str, Any], *, name: str | None = None) -> LoadedVersion:
        """Define a kept kernel, or that of a bundle (``.zip``), with its decorators and helpers in a namespace again.

        Raises:
            UnknownName, UsageError: there is no such kernel, or the file is not a bundle.
        """
        if not isinstance(kernel, str | int | Path):
            raise UsageError(value_message("kernel", kernel, "a name, name@version, id, or the path of a bundle"))
        if str(kernel).endswith(".zip"):
            from kernellab.export.exchange import read_bundle

            kernel = read_bundle(self.kernels.store, Path(str(kernel))).id
        return define(self.kernels, str(kernel), namespace, name)

    def session(self, target: str | None = None) -> Session:
        """Return the runtime, the registry, a target and its model, for the rooms below the lab."""
        parsed = self._parse_target(target)
        model = self._model if parsed == self.target else ""
        return Session(self.launches, self.kernels, parsed, model_name(target or "") or model, self.settings.predict)

    def _user_call(self, verb: str, kernel: Kernel, grid: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> UserCall:
        grid = grid_for_launch(f"lab.{verb}", kernel, grid, args, meta)
        return UserCall(self.bind(kernel), grid, args, meta)

    def _start_workers_for(self, kernel: Any, *, compiling: bool) -> None:
        """Start the workers of a kernel, their processes before the driver is asked, which takes time at first."""
        if is_kernel(kernel) and self.kernels.is_new(kernel):
            if compiling:
                self._pool.start()
            if self._wanted is None:  # else launches may have no GPU, though torch uses one
                self._trials.start_process()
            self.launches.start_workers(compiling=compiling)

    @contextmanager
    def compiling_for(self, target: str | None = None) -> Iterator[None]:
        """Compile for ``target`` inside a with statement; None changes nothing."""
        before, model = self.target, self._model
        if target is not None:
            self.use_target(target)
        try:
            yield
        finally:
            self.launches.use(before)
            self._model = model

    def _best_config(self, *launch: Any) -> Any:
        from kernellab.tune.verbs import best_config

        return best_config(self.session(), *launch)

    def _artifacts_folder(self, folder: Path) -> Path:
        """Return the folder of compiled kernels: a temporary one, with a warning, if the store cannot be written."""
        has_place = not in_memory(folder) and has_room(folder / "artifacts")
        return folder / "artifacts" if has_place else self._make_spare_folder()

    def _spare_artifacts_folder(self) -> Path:
        """Return a temporary folder for compiled kernels, once the store's is full; warns once."""
        database, folder = self.kernels.store.database, self.compiler.folder
        why = None if database.path is None else why_no_room(database.path.parent)
        if why is not None:
            database.go_on_in_memory(why)
        elif database.path is not None or self._scratch is not None:
            consequence = "From now on those of this session are deleted at its end"
            warn_user(f"Compiled kernels cannot be written to {folder}. {consequence}; free space there, and restart.")
        return self._make_spare_folder()

    def _make_spare_folder(self) -> Path:
        self._spare = run_uninterrupted(Scratch)
        return self._spare.path / "artifacts"

    def _parse_target(self, target: str | None) -> Target:
        return self.target if target is None else named_target(self.compiler, str(target))

    def _open_runtime(self) -> Runtime:
        if (gpu := gpu_target_of_machine()) is not None and self._wanted in {None, gpu}:
            self._trials.enabled &= gpu.backend == "cuda"  # no worker knows another vendor's driver
            return Runtime(self.compiler, self._interpreter.run, gpu, trials=self._trials, tune=self._best_config)
        target = named_target(self.compiler, str(self._wanted or DEFAULT_TARGET))
        launches = Runtime(self.compiler, self._interpreter.run, target)
        launches.go_offline()
        return launches

    def _leave_lost_gpu(self) -> None:
        if self._launches is not None and self._launches.trials is not None and is_lost_to_fork():
            self._launches.go_offline()


def _delete_twin(twins: dict[int, tuple[ref[Any], Any]], number: int, gone: ref[Any]) -> None:
    """Delete the twin of a kernel that was collected, unless another kernel has its id by now."""
    if twins.get(number, (None,))[0] is gone:
        del twins[number]


def local_environment() -> Environment | None:
    """Return the tuning environment of this process, which an executor started; None without a GPU.

    What it learns is kept in memory: a process of a cluster leaves the database of the user alone, which may lie on a
    disk that machines share. Compiled kernels, which are files, stay in the folder of the store.
    """
    from kernellab.tune.verbs import environment_of

    if gpu_target_of_machine() is None:
        return None
    workspace = _process_workspace()
    return environment_of(workspace.session())


def local_session() -> Session:
    """Return the session of this process, which an executor started."""
    return _process_workspace().session()


def local_harvest(inductor: bool) -> AbstractContextManager[Harvest]:
    """Return a harvest of this process, which an executor started."""
    return _process_workspace().harvest(inductor=inductor)


@cache
def _process_workspace() -> Workspace:
    workspace = Workspace(store=":memory:")
    settings = workspace.settings
    workspace.compiler = Compiler(workspace._pool, workspace._artifacts_folder(settings.store), settings.timeout_s)
    workspace.launches.start_workers()
    atexit.register(workspace.close)
    return workspace


# What takes a while the first time, in steps as small as can be: a session that ends waits for one.
_WARM_UP_STEPS: tuple[Callable[[], object], ...] = tuple(
    partial(import_module, name) for name in ("torch", "kernellab.timing.gpu_bench", "kernellab.tune.verbs")
)
