"""Compiled kernels: built by parallel workers, and cached in memory and on disk.

The supported targets are found by compiling a small kernel for each, and stored with the results.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kernellab._triton import CODE_GENERATOR
from kernellab._triton.drivers import LAUNCHER_ERRORS, build_launcher
from kernellab.compile.entries import (
    UNREADABLE,
    Labels,
    Listing,
    entry_folder,
    keep_effects,
    listing_of,
    mark_used,
    read_effects,
    read_entry,
    relabel_json,
)
from kernellab.compile.job_queue import JobQueue, JobSource, resolve_job
from kernellab.compile.types import Compiled, CompileJob, compile_job
from kernellab.compile.worker import (
    BuildRequest,
    compile_kernel,
    effects_of_job,
    graph_of_job,
    raw_graph_of_job,
    unwritable,
)
from kernellab.errors import CompileError, KernellabError, Place, StoreError, UnknownTarget, WorkerDied, warn_user
from kernellab.ir.effects import Effects, effects_from_json
from kernellab.ir.graph import Graph, graph_from_json
from kernellab.target import Target, known_targets, parse_target, well_formed_target
from kernellab.workers.forks_and_interrupts import TICK_S, Stop, delayed_forks, hold_lock, lock, run_uninterrupted
from kernellab.workers.parallel import run_in_parallel
from kernellab.workers.scratch import has_room, temporary_folder, write_whole
from kernellab.workers.worker import Answer, Handler, Job, Pool, Request, WorkerKind

_SHORT_SHARE = 4
_FEW = 16  # jobs, all of which may be made before the first is taken
COMPILE_WORKER = WorkerKind("compile", preload=("kernellab.compile.worker", CODE_GENERATOR))


Result = TypeVar("Result")


@dataclass(slots=True)
class Compiler:
    """Compiles jobs on a pool of workers and keeps every result under ``folder``, the latest in memory.

    A compiled kernel takes 70 KB of memory, so at most ``most_held`` are kept in memory. When ``folder`` becomes
    unwritable, as on a full disk, results go to the folder that ``instead`` makes, and so do the compiler's temporary
    files if the machine's temporary folder is full as well. ``launches_on`` is the target of kernels whose launchers
    are compiled at the same time: that of the GPU, with a Triton that compiles them.
    """

    pool: Pool
    folder: Path
    timeout_s: float
    most_held: int = 2048
    instead: Callable[[], Path] | None = None
    launches_on: Target | None = None
    _temporary: Path | None = None
    _done: dict[str, tuple[Compiled, Listing]] = field(default_factory=dict)
    _graphs: dict[tuple[str, Labels], Graph] = field(default_factory=dict)
    _effects: dict[tuple[str, Labels], Effects] = field(default_factory=dict)
    _building: dict[str, threading.Lock] = field(default_factory=dict)
    _launchers: dict[Hashable, threading.Thread] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=lock)

    def compile(self, job: CompileJob, stop: Stop | None = None) -> Compiled:
        """Return the compiled job from memory, from disk, or built by a worker. ``stop`` ends that.

        Raises:
            CompileError: with kernel, target and source line.
            WorkerTimeout, WorkerDied: the compiler hung or died.
            StoreError: the result cannot be written anywhere.
        """
        digest = job.digest
        known = self._in_memory(digest)
        if known is None:
            asked = stop or Stop()
            known = run_uninterrupted(partial(self._find_or_build, digest, job, asked), asked, _subject(job))
        return known if known.labels == job.closure.labels else self._from_disk(digest, job) or known

    def has(self, job: CompileJob) -> bool:
        """Whether a job was compiled before, in this or another session."""
        return self._path(job.digest).is_dir()

    def _find_or_build(self, digest: str, job: CompileJob, stop: Stop) -> Compiled:
        with self._lock:
            building = self._building.setdefault(digest, lock())
        try:
            with hold_lock(building, stop, _subject(job)):  # of two threads with one kernel, one waits for the other
                known = self._in_memory(digest) or self._from_disk(digest, job)
                known = known or self._build_where_room_is(digest, job, stop)
                with self._lock:
                    self._remember(self._done, digest, (replace(known, from_cache=True), listing_of(known.folder)))
        finally:
            with self._lock:
                self._building.pop(digest, None)
        return known

    def _remember(self, held: dict[Any, Any], key: Hashable, value: object) -> None:
        """Keep a value in memory, in place of the oldest; the caller has the lock."""
        held[key] = value
        while len(held) > self.most_held:
            del held[next(iter(held))]

    def stream(
        self, jobs: Sequence[JobSource], *, from_both_ends: bool = False, idle: Callable[[], bool] | None = None
    ) -> Iterator[tuple[int, Compiled | KernellabError]]:
        """Compile jobs in parallel; yield index and result, or error, of each as it comes.

        Jobs are taken in order; with ``from_both_ends``, a quarter of the workers (at least one) takes the last job. A
        function that makes a job is called in this thread, shortly before a worker takes it. ``idle`` is called while
        there is nothing to yield, repeatedly as long as it returns True. Leaving the loop early, or an interrupt,
        stops the running compiles.
        """
        if len(jobs) <= _FEW:  # no thread is needed for what is there
            jobs = ready = [resolve_job(source) for source in jobs]
            known = [job if isinstance(job, KernellabError) else self._labelled_in_memory(job) for job in ready]
            if all(known):
                yield from enumerate(filter(None, known))
                return
        yield from self._in_parallel(jobs, self.compile, from_both_ends=from_both_ends, idle=idle)

    def stream_effects(self, jobs: Sequence[JobSource]) -> Iterator[tuple[int, Effects | KernellabError]]:
        """Yield index and effects, or error, of each job as it comes, found in parallel; see `stream`, `effects`."""
        yield from self._in_parallel(jobs, self.effects)

    def _in_parallel(
        self,
        jobs: Sequence[JobSource],
        task: Callable[[CompileJob, Stop], Result],
        *,
        from_both_ends: bool = False,
        idle: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[int, Result | KernellabError]]:
        count = min(len(self.pool.workers), len(jobs))
        line = JobQueue(jobs, max(1, count // _SHORT_SHARE) if from_both_ends else 0, count)

        def work(stop: Stop) -> Iterator[tuple[int, Result | KernellabError]]:
            while not stop.why and line.claim():
                with line.take(stop) as (index, job):
                    yield index, job if isinstance(job, KernellabError) else _result(task, job, stop)

        for outcome in run_in_parallel([work] * count, lambda: line.advance() or (idle is not None and idle())):
            yield outcome
            line.advance()

    def graph(self, job: CompileJob) -> Graph:
        """Return the graph of the job's TTIR; later stages are not compiled."""
        known = self._known(job)
        if known is not None:
            return known.graph
        key = job.digest, job.closure.labels
        graph = self._graphs.get(key)
        if graph is None:
            graph = graph_from_json(relabel_json(self._run_job(graph_of_job, job, job), job.closure.labels))
            with self._lock:
                self._remember(self._graphs, key, graph)
        return graph

    def _known(self, job: CompileJob) -> Compiled | None:
        """Return what was compiled before, in this or another session, with the user's file names."""
        return self._labelled_in_memory(job) or self._from_disk(job.digest, job)

    def _labelled_in_memory(self, job: CompileJob) -> Compiled | None:
        known = self._in_memory(job.digest)
        return known if known is not None and known.labels == job.closure.labels else None

    def raw_graph(self, job: CompileJob) -> Graph:
        """Return the graph of the TTIR that the frontend makes of a job, before any pass."""
        return graph_from_json(relabel_json(self._run_job(raw_graph_of_job, job, job), job.closure.labels))

    def effects(self, job: CompileJob, stop: Stop | None = None) -> Effects:
        """Return the kernel's effects on its arguments, from its TTIR; later stages are not compiled.

        A kernel whose effects are known, from this or another session, starts no process. Launches that differ in
        ``num_warps`` or another of the `INTEGER_OPTIONS` share them, unless such an option was read for the TTIR.
        """
        known = self._known(job)
        if known is not None:
            return known.effects
        labels = job.closure.labels
        digests = job.digest_for_any_count, job.digest
        for digest in digests:
            effects = self._effects.get((digest, labels)) or read_effects(self.folder, digest, labels)
            if effects is not None:
                break
        else:
            answer = self._run_job(effects_of_job, job, job, stop)
            digest = digests[0] if answer.for_any_count else digests[1]
            keep_effects(self.folder, digest, answer.text)
            effects = effects_from_json(relabel_json(answer.text, labels))
            assert effects is not None, "a worker has the same analysis"
        with self._lock:
            self._remember(self._effects, (digest, labels), effects)
        return effects

    def effects_of_each(self, jobs: Sequence[CompileJob]) -> list[Effects]:
        """Return the effects of jobs, in order, found in parallel; raise the error of the first that has one."""
        if len(jobs) == 1:  # no thread is needed
            return [self.effects(jobs[0])]
        results = dict(self.stream_effects(jobs))
        effects: list[Effects] = []
        for result in map(results.__getitem__, range(len(jobs))):
            if isinstance(result, KernellabError):
                raise result
            effects.append(result)
        return effects

    def _build_where_room_is(self, digest: str, job: CompileJob, stop: Stop) -> Compiled:
        place = self.folder, self._temporary
        try:
            return self._build(digest, job, stop)
        except StoreError:
            with self._lock:  # of several threads, one moves
                if (self.folder, self._temporary) == place and not self._move_if_full():
                    raise
            return self._build(digest, job, stop)

    def _move_if_full(self) -> bool:
        """Move results and temporary files elsewhere if their folders are full; return whether any moved."""
        is_full = self.instead is not None and not has_room(self.folder)
        if is_full and self.instead is not None:
            self.folder = self.instead()
        lacks_temporary = not has_room(self._temporary or temporary_folder())
        if lacks_temporary:
            self._temporary = self.folder
        return is_full or lacks_temporary

    def _build(self, digest: str, job: CompileJob, stop: Stop) -> Compiled:
        launcher = self._launcher_of(job)
        name = uuid.uuid4().hex
        folder, final = self.folder, self._path(digest)
        scratch = folder / f".{name}"
        temporary = temporary_folder() / f"kernellab-{name}"
        if self._temporary is not None:
            temporary = self._temporary / f".{name}.tmp"
        try:
            with _writing(folder):
                scratch.mkdir(parents=True)
            self._run_job(compile_kernel, BuildRequest(job, scratch, temporary), job, stop)
            built = _read_built(scratch, digest, job)
            with _writing(folder):
                final.parent.mkdir(exist_ok=True)
                try:
                    os.replace(scratch, final)
                except OSError:
                    if not final.is_dir():  # a second process may have built the same job; its result stays
                        raise
                    built = _read_built(final, digest, job)
            while launcher is not None and launcher.is_alive():
                launcher.join(TICK_S)
                stop.check(_subject(job))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(temporary, ignore_errors=True)
        return replace(built, folder=final, from_cache=False)

    def _launcher_of(self, job: CompileJob) -> threading.Thread | None:
        """Compile the launcher of a new signature meanwhile, in a thread of this process; none of it runs in a fork.

        A worker would have to start first, and the C compiler takes longer than most kernels do. What fails, the first
        launch raises. A launch that came before would compile the same launcher a second time. None for a kernel that
        is not launched here.
        """
        if job.target != self.launches_on:
            return None
        paths = tuple(path for path, _ in job.constants)
        key = job.signature, paths

        def build() -> None:
            with delayed_forks(), contextlib.suppress(*LAUNCHER_ERRORS):
                build_launcher(dict(job.signature), paths)

        with self._lock:
            if key not in self._launchers:
                self._remember(self._launchers, key, self.pool.run_in_background(build))
            return self._launchers[key]

    def _run_job(
        self, handler: Handler[Request, Answer], payload: Request, job: CompileJob, stop: Stop | None = None
    ) -> Answer:
        try:
            return self.pool.run(Job(handler, payload, _subject(job)), self.timeout_s, stop=stop)
        except KernellabError as exc:
            exc.kernel = exc.kernel or job.closure.name
            if isinstance(exc, StoreError):
                raise  # no line of the kernel is to blame
            entry = job.closure.functions[0]
            place = exc.place or Place(entry.file, entry.first_line, None, entry.text.splitlines()[0])
            exc.place = replace(place, file=job.closure.label(place.file))
            raise

    def _in_memory(self, digest: str) -> Compiled | None:
        """Return this session's result, unless its files were deleted or truncated by other sessions."""
        known, listing = self._done.get(digest, (None, ()))
        return known if known is not None and listing_of(known.folder) == listing else None

    def _from_disk(self, digest: str, job: CompileJob) -> Compiled | None:
        folder = self._path(digest)
        if not folder.is_dir():
            return None
        try:
            mark_used(folder)
            return read_entry(folder, digest, job)
        except UNREADABLE as exc:
            warn_user(f"The compiled kernel in {folder} cannot be read ({exc}); it is compiled again.")
            with contextlib.suppress(OSError):
                set_aside = folder.with_name(f".{uuid.uuid4().hex}")
                os.replace(folder, set_aside)
                shutil.rmtree(set_aside, ignore_errors=True)
            return None

    def _path(self, digest: str) -> Path:
        return entry_folder(self.folder, digest)


def _result(task: Callable[[CompileJob, Stop], Result], job: CompileJob, stop: Stop) -> Result | KernellabError:
    try:
        return task(job, stop)
    except KernellabError as exc:
        return exc


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise unwritable(folder, exc) from exc


def _read_built(folder: Path, digest: str, job: CompileJob) -> Compiled:
    try:
        return read_entry(folder, digest, job)
    except UNREADABLE as exc:  # what was written is cut short, or gone already
        raise StoreError(f"The compiled kernel in {folder} cannot be read: {exc}.") from exc


def _subject(job: CompileJob) -> str:
    return f"Compiling {job.closure.name} for {job.target}"


def compiled_targets(compiler: Compiler) -> tuple[str, ...]:
    """Return the known targets that the installed Triton compiles for, in order."""
    refused = refusals(compiler, [parse_target(text) for text in known_targets()])
    return tuple(text for text in known_targets() if not refused[text])


def named_target(compiler: Compiler, text: str) -> Target:
    """Return the target named ``text``: a known one, or any other that compiles.

    Raises:
        UnknownTarget: the text has another form, or the installed Triton does not compile for it.
    """
    try:
        return parse_target(text)
    except UnknownTarget as exc:
        target = well_formed_target(text)
        if target is None:
            raise
        refused = refusals(compiler, [target])[str(target)]
        if not refused:
            return target
        raise UnknownTarget(f"{exc.message} A compile for it was tried: {refused}") from exc


def refusals(compiler: Compiler, targets: Sequence[Target]) -> Mapping[str, str]:
    """Return by target the reason why the installed Triton does not compile for it, "" if it does.

    The answers are stored with the compiled kernels, by the version of Triton and its tools.

    Raises:
        KernellabError: a compile was stopped or cannot be stored, so the target remains unknown.
    """
    path = compiler.folder / f"targets-{_triton_digest()}.json"
    known: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, TypeError):
        known = dict(json.loads(path.read_text()))
    missing = [target for target in targets if str(target) not in known]
    for index, result in compiler.stream([partial(_sample_job, target) for target in missing]):
        if isinstance(result, KernellabError) and not isinstance(result, CompileError | WorkerDied):
            raise result
        known[str(missing[index])] = result.message if isinstance(result, KernellabError) else ""
    if missing:
        with contextlib.suppress(OSError):  # what cannot be kept is found out again
            write_whole(path, json.dumps(known, indent=1).encode())
    return known


def _sample_job(target: Target) -> CompileJob:
    from kernellab._triton.specialize import sample_launch  # keeps `import kernellab` light

    function, arguments = sample_launch()
    return compile_job(function, target, arguments, {})


def _triton_digest() -> str:
    import triton

    from kernellab._triton.specialize import compiler_variables

    fields = json.dumps([triton.__version__, compiler_variables()], sort_keys=True)
    return hashlib.sha256(fields.encode()).hexdigest()[:16]
