"""From a kernel and its arguments to a compiled result: each job is built once, then found in memory or on disk."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from kernellab._triton import CODE_GENERATOR
from kernellab._triton.closure import closure_of, plain_bindings, require_taken
from kernellab.compile.job_queue import JobQueue, JobSource, made
from kernellab.compile.types import Compiled, CompileJob, parameters_of, resources_of
from kernellab.compile.worker import EFFECTS, GRAPH, SUMMARY, BuildRequest, compile_kernel, graph_of_job, unwritable
from kernellab.errors import KernellabError, Place, StoreError, warn_user
from kernellab.ir.effects import Effects, effects_from_json, effects_of
from kernellab.ir.graph import Graph, graph_from_json
from kernellab.settings import compiler_environment
from kernellab.source import Closure, portable_type
from kernellab.target import Target
from kernellab.workers.forks_and_interrupts import Stop, held, lock, side_by_side, uninterrupted
from kernellab.workers.worker import Answer, Handler, Job, Pool, Request, WorkerKind

_SHORT_SHARE = 4
_FEW = 16  # jobs, all of which may be made before the first is taken
COMPILE_WORKER = WorkerKind("compile", preload=("kernellab.compile.worker", CODE_GENERATOR))


def compile_job(function: Any, target: Target, args: tuple[Any, ...], meta: Mapping[str, Any]) -> CompileJob:
    """Return the job of compiling a jit function for these arguments.

    Raises:
        LaunchError, UsageError: the arguments or options do not fit the kernel.
        SourceError: its source cannot be found.
    """
    from kernellab._triton.specialize import specialize  # keeps `import kernellab` light

    special = specialize(function, target, args, meta)
    return job_of(function, target, special.signature, special.constants, special.attributes, special.options)


def job_of(
    function: Any,
    target: Target,
    signature: Mapping[str, Any],
    constants: Mapping[tuple[int, ...], Any],
    attributes: Mapping[tuple[int, ...], Any],
    options: Mapping[str, Any],
    closure: Closure | None = None,
) -> CompileJob:
    """Return the job for a specialization that Triton has already worked out.

    ``closure`` is that of the function, where it was found before with constants that bring no functions along.

    Raises:
        UsageError: an option that counts something is no integer.
    """
    from kernellab._triton.specialize import kernel_name, require_options

    require_options(function.__name__, options)
    paths = sorted(constants)
    values = tuple(constants[path] for path in paths)
    bindings = None if closure is None else plain_bindings(values)
    if closure is None or bindings is None:
        closure, bindings = closure_of(function, values)
    names = [_path_text(function.arg_names, path) for path in paths]
    require_taken(function.__name__, zip(names, bindings, strict=True))
    return CompileJob(
        closure=closure,
        symbol=kernel_name(function, dict(constants), dict(signature)),
        signature=tuple((name, portable_type(kind)) for name, kind in signature.items()),
        constants=tuple(zip(paths, bindings, strict=True)),
        attributes=tuple(sorted((path, tuple(map(tuple, value))) for path, value in attributes.items())),
        options=tuple(sorted(options.items())),
        target=target,
        variables=compiler_environment(),
    )


def _path_text(names: Sequence[str], path: tuple[int, ...]) -> str:
    """Return an index path as the user writes it: ``pair[1]``."""
    return names[path[0]] + "".join(f"[{index}]" for index in path[1:])


@dataclass(slots=True)
class Compiler:
    """Compiles jobs on a pool of workers and keeps every result under ``folder``, the latest in memory.

    A compiled product takes 70 KB of memory, so of ten thousand configs not all are held: ``most_held`` are.
    """

    pool: Pool
    folder: Path
    timeout_s: float
    most_held: int = 2048
    _done: dict[str, Compiled] = field(default_factory=dict)
    _graphs: dict[str, Graph] = field(default_factory=dict)
    _building: dict[str, threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=lock)

    def compile(self, job: CompileJob, timeout_s: float | None = None, stop: Stop | None = None) -> Compiled:
        """Return the compiled job: from memory, else from disk, else built by a worker. ``stop`` ends that.

        Raises:
            CompileError: with kernel, target and source line.
            WorkerTimeout, WorkerDied: the compiler did not come back.
            StoreError: the result cannot be written, as on a full disk.
        """
        digest = job.digest
        known = self._in_memory(digest)
        if known is None:
            asked = stop or Stop()
            known = uninterrupted(partial(self._made, digest, job, timeout_s, asked), asked, _subject(job))
        return known if known.labels == job.closure.labels else _relabelled(self._from_disk(digest, job), known)

    def has(self, job: CompileJob) -> bool:
        """Tell whether a job was compiled before, here or in another session."""
        return self._path(job.digest).is_dir()

    def _made(self, digest: str, job: CompileJob, timeout_s: float | None, stop: Stop) -> Compiled:
        with self._lock:
            building = self._building.setdefault(digest, lock())
        with held(building, stop, _subject(job)):  # of two threads that want the same kernel, one waits for the other
            known = self._in_memory(digest) or self._from_disk(digest, job)
            known = known or self._build(digest, job, timeout_s, stop)
            self._hold(digest, replace(known, from_cache=True))
        return known

    def _hold(self, digest: str, compiled: Compiled) -> None:
        with self._lock:
            self._done[digest] = compiled
            while len(self._done) > self.most_held:
                del self._done[next(iter(self._done))]

    def stream(
        self,
        jobs: Sequence[JobSource],
        timeout_s: float | None = None,
        *,
        from_both_ends: bool = False,
        idle: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[int, Compiled | KernellabError]]:
        """Compile jobs side by side; yield index and result, or error, of each as it comes.

        They are taken in their order; with ``from_both_ends``, a quarter of the workers, one at least, takes the last
        that is left. A function that makes a job is called in this thread, shortly before a worker takes it. ``idle``
        is called while there is nothing to yield, again and again as long as it returns True. Leaving the loop early,
        or an interrupt, stops what is under way.
        """
        if len(jobs) <= _FEW:  # no thread is needed for what is there
            jobs = ready = [made(source) for source in jobs]
            known = [self._at_hand(job) for job in ready]
            if all(known):
                yield from enumerate(filter(None, known))
                return
        count = min(len(self.pool.workers), len(jobs))
        line = JobQueue(jobs, max(1, count // _SHORT_SHARE) if from_both_ends else 0, count)
        tickets: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in jobs:
            tickets.put(None)

        def work(stop: Stop) -> Iterator[tuple[int, Compiled | KernellabError]]:
            while not stop.why:
                try:
                    tickets.get_nowait()
                except queue.Empty:
                    return
                with line.taken(stop) as (index, job):
                    yield index, job if isinstance(job, KernellabError) else self._result(job, timeout_s, stop)

        def make_or_idle() -> bool:
            return line.advance() or (idle is not None and idle())

        for found in side_by_side([work] * count, make_or_idle):
            yield found
            line.advance()

    def _at_hand(self, job: CompileJob | KernellabError) -> Compiled | KernellabError | None:
        """Return what comes of a job, if nothing has to be done for that."""
        if isinstance(job, KernellabError):
            return job
        known = self._in_memory(job.digest)
        return known if known is not None and known.labels == job.closure.labels else None

    def _result(self, job: CompileJob, timeout_s: float | None, stop: Stop) -> Compiled | KernellabError:
        try:
            return self.compile(job, timeout_s, stop)
        except KernellabError as exc:
            return exc

    def graph(self, job: CompileJob, timeout_s: float | None = None) -> Graph:
        """Return the graph of the job's TTIR, compiling no further than that."""
        digest = job.digest
        known = self._done.get(digest)
        if known is not None and known.labels == job.closure.labels:
            return known.graph
        key = f"{digest}{job.closure.labels}"
        if key not in self._graphs:
            text = self._ask(graph_of_job, job, job, timeout_s)
            self._graphs[key] = graph_from_json(_labelled_json(text, job))
        return self._graphs[key]

    def effects(self, job: CompileJob, timeout_s: float | None = None) -> Effects:
        """Return what the kernel does to its arguments, from its TTIR."""
        return effects_of(self.graph(job, timeout_s))

    def _build(self, digest: str, job: CompileJob, timeout_s: float | None, stop: Stop) -> Compiled:
        name = uuid.uuid4().hex
        scratch, temporary = self.folder / f".{name}", Path(tempfile.gettempdir()) / f"kernellab-{name}"
        final = self._path(digest)
        try:
            with _writing(self.folder):
                scratch.mkdir(parents=True)
            self._ask(compile_kernel, BuildRequest(job, scratch, temporary), job, timeout_s, stop)
            with _writing(self.folder):
                final.parent.mkdir(exist_ok=True)
                try:
                    os.replace(scratch, final)
                except OSError:
                    if not final.is_dir():  # a second process may have built the same job; its result stays
                        raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(temporary, ignore_errors=True)
        return replace(_read(final, digest, job), from_cache=False)

    def _ask(
        self,
        handler: Handler[Request, Answer],
        payload: Request,
        job: CompileJob,
        timeout_s: float | None,
        stop: Stop | None = None,
    ) -> Answer:
        try:
            return self.pool.run(Job(handler, payload, _subject(job)), timeout_s or self.timeout_s, stop=stop)
        except KernellabError as exc:
            exc.kernel = exc.kernel or job.closure.name
            if isinstance(exc, StoreError):
                raise  # no line of the kernel is to blame
            exc.place = _labelled_place(exc.place or _first_line(job), job)
            raise

    def _in_memory(self, digest: str) -> Compiled | None:
        """Return what this session has, unless another session deleted its files to make room."""
        known = self._done.get(digest)
        return known if known is not None and known.folder.is_dir() else None

    def _from_disk(self, digest: str, job: CompileJob) -> Compiled | None:
        folder = self._path(digest)
        if not folder.is_dir():
            return None
        try:
            mark_used(folder)
            return _read(folder, digest, job)
        except (OSError, ValueError, KeyError) as exc:
            warn_user(f"The compiled kernel in {folder} cannot be read ({exc}); it is compiled again.")
            shutil.rmtree(folder, ignore_errors=True)
            return None

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest


def is_writable(folder: Path) -> bool:
    """Tell whether compiled kernels can be kept in a folder, which is made."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    return False


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise unwritable(folder, exc) from exc


def _subject(job: CompileJob) -> str:
    return f"Compiling {job.closure.name} for {job.target}"


def _relabelled(fresh: Compiled | None, known: Compiled) -> Compiled:
    return known if fresh is None else fresh


def _read(folder: Path, digest: str, job: CompileJob) -> Compiled:
    summary = json.loads((folder / SUMMARY).read_text())
    graph = graph_from_json(_labelled_json((folder / GRAPH).read_text(), job))
    return Compiled(
        kernel=job.closure.name,
        target=job.target,
        parameters=parameters_of(job),
        options=dict(job.options),
        resources=resources_of(summary, job.target),
        seconds=summary["seconds"],
        stage_seconds=summary["stage_seconds"],
        graph=graph,
        effects=_read_effects(folder, graph),
        folder=folder,
        digest=digest,
        labels=job.closure.labels,
        from_cache=True,
    )


def _read_effects(folder: Path, graph: Graph) -> Effects:
    """Return the effects that were found when a kernel was compiled, or find them where an earlier release did."""
    path = folder / EFFECTS
    known = effects_from_json(path.read_text(), graph) if path.exists() else None
    return known or effects_of(graph)


def _labelled_json(text: str, job: CompileJob) -> str:
    for file, label in job.closure.labels:
        if file != label:
            text = text.replace(json.dumps(file), json.dumps(label))
    return text


def _labelled_place(place: Place, job: CompileJob) -> Place:
    return replace(place, file=job.closure.label(place.file))


def _first_line(job: CompileJob) -> Place:
    entry = job.closure.functions[0]
    return Place(entry.file, entry.first_line, None, entry.text.splitlines()[0])


def triton_files(compiled: Compiled) -> dict[str, str]:
    """Return the paths of the files that Triton's own handle of a kernel is made from, by Triton's names for them."""
    return {path.name: str(path) for path in compiled.folder.iterdir() if path.name not in {GRAPH, EFFECTS, SUMMARY}}


_SPARED_S = 3600.0


def evict(
    folder: Path, limit_bytes: int, *, clock: Callable[[], float] = time.time, spared_s: float = _SPARED_S
) -> int:
    """Delete the compiled kernels used longest ago until those in ``folder`` take less; return the bytes freed.

    Those used within the last ``spared_s`` seconds stay, whatever they take: a session may hold them.
    """
    entries = sorted(_entries(folder), key=lambda entry: entry[1])
    total = sum(size for _, _, size in entries)
    freed, oldest_spared = 0, clock() - spared_s
    for path, used, size in entries:
        if total - freed <= limit_bytes or used > oldest_spared:
            break
        shutil.rmtree(path, ignore_errors=True)
        freed += size
    return freed


def mark_used(path: Path) -> None:
    """Count a compiled kernel as used now."""
    with contextlib.suppress(OSError):  # a folder that cannot be written is not evicted from either
        os.utime(path)


def _entries(folder: Path) -> list[tuple[Path, float, int]]:
    """Return (path, time of last use, bytes) of every compiled kernel: FOLDER/ab/abcd..., or a leftover of a build."""
    found = []
    for path in [*folder.glob("??/*"), *folder.glob(".*")]:
        with contextlib.suppress(OSError):  # another process may be evicting, or building, at the same time
            size = sum(file.stat().st_size for file in path.rglob("*"))
            found.append((path, path.stat().st_mtime, size))
    return found
