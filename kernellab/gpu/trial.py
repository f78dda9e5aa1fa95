"""Trial launches on a GPU: a worker process runs the first launch and takes the damage of a faulty kernel.

Clean trials are logged for later sessions. Where loaded values decide what the kernel touches, a trial covers launches
on arguments of the same contents alone: their digest is computed on the GPU by torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import numbers
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from kernellab._triton.device_binaries import BASIC, KernelRequest, KernelVariant, compile_device_kernel, request_of
from kernellab._triton.drivers import load_driver, specialization_of
from kernellab.compile.entries import triton_files
from kernellab.errors import KernellabError, RunError, StoreError, WorkerDied, WorkerTimeout, stopped_text
from kernellab.gpu.device_view import kernels_for
from kernellab.gpu.driver import begin_context, uuid_of
from kernellab.gpu.ipc import BinaryLaunch, IpcExport, needs_torch_mapping
from kernellab.gpu.worker import (
    UNTOUCHED,
    Ending,
    Placing,
    TrialJob,
    TrialOutcome,
    WarmUp,
    load_basic_kernels,
    subject_of,
    trial_error,
    try_launch,
    warm_up,
)
from kernellab.ir.uses import DecidingData, deciding_data
from kernellab.launch.arguments import ArgumentSpec, CannotExport, bypass_modes, members_of, memory_of
from kernellab.launch.bound_launch import BoundLaunch, LookCloser, TrialResult
from kernellab.launch.calls import Grid3
from kernellab.launch.memory import reached_memory
from kernellab.store import PassedTrial, TrialLog
from kernellab.target import device_name, driver_version, has_cuda_context
from kernellab.workers.forks_and_interrupts import Stop, in_background, rlock, run_uninterrupted
from kernellab.workers.process import ForkServer
from kernellab.workers.worker import CLOSED, BackgroundJobs, Job, Pool, Worker, WorkerKind

_SCHEMA = 1

Specs = tuple[tuple[str, ArgumentSpec], ...]
_ROW_WORDS = 1 << 16
_ROWS_AT_ONCE = 64  # whose products take 32 MiB
_WORD_BYTES = 4
_SEED = 20_240_229
MOST_BYTES = 1 << 30
"""The most bytes that are read, in about a millisecond."""


def trial_record(
    digest: str,
    device: str,
    driver: str,
    grid: Grid3,
    arguments: Sequence[tuple[str, ArgumentSpec]],
    sizes_bytes: Sequence[int],
    contents: str = "",
) -> PassedTrial:
    """Return the record of a clean trial; ``sizes_bytes`` are those of the storages, by index.

    ``contents`` is a digest of the arguments that it reads, where loaded values decide what it touches.
    """
    named = [(name, type(spec).__name__, asdict(spec)) for name, spec in arguments]
    fields = {"schema": _SCHEMA, "grid": grid, "arguments": named, "sizes": list(sizes_bytes)}
    fields |= {"contents": contents} if contents else {}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return PassedTrial(digest, device, driver, hashlib.sha256(text.encode()).hexdigest())


_WARM_S = 120.0
_STARTING = "Starting the GPU worker"


@dataclass(slots=True)
class GpuTrials:
    """The GPU workers and the specializations that passed their trial; ``log`` has earlier sessions.

    The first worker of a device makes its CUDA context while it imports its modules. Later ones are forks of a server
    that has imported them and has no context, so that one starts soon after a fault. ``preload`` is the module of the
    jobs. Trials need no torch, which takes seconds to import; jobs that do have a worker of their own, keyed by the
    device and True. The workers' own kernels are compiled by ``compilers``, or without those where they are needed.
    """

    timeout_s: float
    enabled: bool = True
    log: TrialLog | None = None
    preload: str = try_launch.__module__
    compilers: Pool | None = None
    _servers: dict[bool, ForkServer] = field(default_factory=dict)
    _workers: dict[tuple[int, bool], Worker] = field(default_factory=dict)
    _passed: set[tuple[str, int]] = field(default_factory=set)
    _passed_elsewhere: set[tuple[str, int, Hashable]] = field(default_factory=set)
    _prepared: set[int] = field(default_factory=set)
    _builds: dict[KernelRequest, threading.Thread | None] = field(default_factory=dict)
    _driver: threading.Thread | None = None
    _background: BackgroundJobs = field(default_factory=BackgroundJobs)
    _lock: threading.RLock = field(default_factory=rlock)
    _has_own_servers: bool = True

    def apart(self, timeout_s: float) -> GpuTrials:
        """Return trials in other workers, forked from the same servers; close them before these."""
        return GpuTrials(
            timeout_s,
            preload=self.preload,
            compilers=self.compilers,
            _servers=self._servers,
            _lock=self._lock,
            _has_own_servers=False,
        )

    def start_process(self) -> None:
        """Start the worker of the current device, if there are trials and this process uses CUDA; wait for nothing."""
        if not self.enabled or not has_cuda_context():
            return
        import torch  # which made the context

        device = torch.cuda.current_device()
        if not self._server(with_torch=False).is_started:  # else the first job forks it, once that has its imports
            self.worker(device).start()
        self._begin_builds(torch.cuda.get_device_capability(device), BASIC)

    def start(self, device: int = 0, *, with_torch: bool = False) -> threading.Thread:
        """Start the worker of a device in the background, including its CUDA context, then the server of later ones."""
        stop = Stop()

        def run() -> None:
            with contextlib.suppress(KernellabError):  # the first trial will say it
                self.wait_ready(device, with_torch=with_torch)
                with self._lock:
                    if not stop.why:
                        self._server(with_torch=with_torch).start()

        return self.run_in_background(run, stop=stop)

    def run_in_background(
        self, *steps: Callable[[], object], name: str | None = None, stop: Stop | None = None
    ) -> threading.Thread:
        """Run steps in a new thread while the caller goes on; `close` asks ``stop``, so that they start no worker."""
        return self._background.begin(*steps, name=name, stop=stop)

    def wait_ready(self, device: int, *, with_torch: bool = False, dtypes: Iterable[str] = ()) -> None:
        """Wait until the worker of a device has its CUDA context and its kernels, so that no launch's time includes it.

        ``dtypes`` are torch's names of those whose outputs are to be compared.

        Raises:
            WorkerTimeout, WorkerDied: it does not start.
            UsageError: it sees other devices than this process.
        """
        import torch  # only where there is a GPU

        builds = self._begin_builds(torch.cuda.get_device_capability(device), kernels_for(dtypes))
        worker, wanted, subject = self.worker(device, with_torch=with_torch), WarmUp(device, uuid_of(device)), _STARTING
        worker.prepare(Job(warm_up, wanted, subject), _WARM_S)
        for ahead in (self._driver, *builds):  # the worker would compile what is not there yet a second time
            if ahead is not None and ahead.is_alive():
                run_uninterrupted(ahead.join, Stop(), subject, patience_s=0)
        worker.prepare(Job(load_basic_kernels, wanted, subject), _WARM_S)

    def _begin_builds(self, capability: tuple[int, int], kernels: Iterable[KernelVariant]) -> list[threading.Thread]:
        """Have kernels compiled that are not kept; return the threads that wait for these and for earlier ones.

        Raises:
            WorkerDied: this is a thread of `run_in_background`, and `close` has stopped it.
        """
        requests = [request_of(kernel, capability) for kernel in kernels]
        with self._lock:
            Stop().check(_STARTING)
            for request in requests:
                if request not in self._builds:
                    self._builds[request] = self._begin_build(request)
            return [build for request in requests if (build := self._builds[request]) is not None]

    def _begin_build(self, request: KernelRequest) -> threading.Thread | None:
        """Have a kernel compiled by a compile worker; what fails, the GPU worker tries itself."""
        pool = self.compilers
        if pool is None or request.file.exists():
            return None
        job, stop = Job(compile_device_kernel, request, _STARTING), Stop()

        def build() -> None:
            with contextlib.suppress(KernellabError):
                pool.run(job, _WARM_S, stop=stop)

        return pool.run_in_background(build, stop)

    def prepare(self) -> threading.Thread | None:
        """Start the worker of the current device in the background, once; return the thread that starts it now."""
        import torch  # only where there is a GPU

        device = torch.cuda.current_device()
        with self._lock:
            if device in self._prepared:
                return None
            self._prepared.add(device)
        self._driver = self._driver or in_background(load_driver)  # for the launches here, too
        return self.start(device)

    def close(self) -> None:
        """Stop the workers of all devices."""
        with self._lock:
            self._background.stop(CLOSED)
            servers = self._servers.values() if self._has_own_servers else ()
            closed = (*self._workers.values(), *servers)
        for worker_or_server in closed:
            worker_or_server.close()

    def has_passed(self, digest: str) -> bool:
        """Whether a kernel needs no trial on the current device: it passed, or cannot be tried."""
        import torch  # only where there is a GPU

        return (digest, torch.cuda.current_device()) in self._passed

    def launch(
        self, launch: BoundLaunch, look_closer: LookCloser, *, forced: bool = False, timeout_s: float | None = None
    ) -> TrialResult:
        """Run the trial launch on the current device's worker, unless an earlier session covers it.

        Raises:
            OutOfBounds, RunError: the kernel faulted, or wrote outside its arguments.
            WorkerTimeout: it did not end within ``timeout_s`` seconds.
            LaunchError: the driver or the arguments do not allow the launch.
        """
        import torch

        device, effects = torch.cuda.current_device(), launch.compiled.effects
        passed = launch.handle.hash, device
        if torch.cuda.is_current_stream_capturing():
            return TrialResult(("the first launch was captured into a CUDA graph, without a trial launch",))
        if effects.lost is not None:
            self._passed.add(passed)
            return TrialResult((f"the first launch ran without a trial launch: {effects.lost}",))
        behind = reached_memory(launch.arguments, effects, "cuda")
        mutated = effects.mutated | behind.mutated if effects.is_followed else None
        exported = IpcExport(device, mutated, behind=behind)
        try:
            specs = exported.specs({**launch.arguments, **behind.tensors})
            record = self._record_of(launch, exported, specs)
            if not forced and self._is_logged(record):
                self._passed.add(passed)
                return TrialResult()
            if not forced and (*passed, _launch_key(launch.arguments, launch.grid)) in self._passed_elsewhere:
                self._passed.add(passed)
                self._log_trial(record)
                return TrialResult()
            job = _job(launch, exported, specs)
        except CannotExport as exc:
            self._passed.add(passed)
            return TrialResult((f"the first launch ran in this process: {exc}",))
        torch.cuda.synchronize(device)
        try:
            outcome = self._run_trial(launch, job, timeout_s)
        finally:
            del job
            exported.unshare()  # the traceback of an error would keep it
        if outcome.ending is not Ending.CLEAN:
            raise trial_error(launch, look_closer, exported, outcome)
        self._passed.add(passed)
        if outcome.placing is not Placing.ORIGINALS:
            self._log_trial(record)
        return _result(outcome)

    def record_passed_launch(self, digest: str, device: int, arguments: Mapping[str, Any], grid: Grid3) -> None:
        """Record a clean launch elsewhere in a worker, on copies between redzones; its trial is skipped."""
        self._passed_elsewhere.add((digest, device, _launch_key(arguments, grid)))

    def _record_of(self, launch: BoundLaunch, exported: IpcExport, specs: Specs) -> PassedTrial | None:
        """Return the record of a trial; None if it holds for no other launch, or there is no log."""
        compiled, contents = launch.compiled, ""
        if self.log is None or compiled.effects.unknown:
            return None
        data = deciding_data(compiled.graph)
        if data is DecidingData.LOADED:
            contents = contents_digest(exported.storages_of(compiled.effects.reads | compiled.effects.atomics)) or ""
        if data is not DecidingData.NONE and not contents:
            return None
        place = launch.handle.hash, device_name(exported.device), driver_version()
        sizes_bytes = [0 if storage is None else int(storage.nbytes()) for storage in exported.storages]
        return trial_record(*place, launch.grid, specs, sizes_bytes, contents)

    def _is_logged(self, record: PassedTrial | None) -> bool:
        """Whether an earlier session tried this launch."""
        with contextlib.suppress(StoreError):
            return self.log is not None and record is not None and record in self.log
        return False

    def _log_trial(self, record: PassedTrial | None) -> None:
        """Log a clean trial on copies."""
        if self.log is not None and record is not None:
            with contextlib.suppress(StoreError):  # then the next session tries again
                self.log.add(record)

    def _run_trial(self, launch: BoundLaunch, job: TrialJob, timeout_s: float | None) -> TrialOutcome:
        """Run the trial in the worker; replace the worker if it does not survive."""
        with_torch = needs_torch_mapping(job.memories)  # the trial's own time does not pay for its import
        worker = self.worker(job.device, with_torch=with_torch)
        self.wait_ready(job.device, with_torch=with_torch)
        work = Job(try_launch, job, f"kernel {job.kernel}")
        try:
            outcome = worker.run(work, timeout_s or self.timeout_s)
        except WorkerTimeout as exc:
            self.start(job.device, with_torch=with_torch)
            text = stopped_text(subject_of(launch), timeout_s or self.timeout_s)
            raise WorkerTimeout(f"{text} {UNTOUCHED}", kernel=job.kernel) from exc
        except WorkerDied as exc:
            self.start(job.device, with_torch=with_torch)
            text = f"{subject_of(launch)} ended the GPU worker: {exc.message}"
            raise RunError(f"{text} {UNTOUCHED}", kernel=job.kernel, detail=exc.detail) from exc
        if outcome.ending is Ending.FAULT:
            worker.close()
            self.start(job.device, with_torch=with_torch)
        return outcome

    def worker(self, device: int, *, with_torch: bool = False) -> Worker:
        """Return the worker of a device, started by its first job; ``with_torch`` has a process of its own."""
        name = "gpu with torch" if with_torch else "gpu"
        with self._lock:
            server = self._server(with_torch=with_torch)
            if (device, with_torch) not in self._workers:
                ahead = () if with_torch else (f"{begin_context.__module__}:{begin_context.__name__}:{device}",)
                kind = WorkerKind(name, (*ahead, *server.modules))
                self._workers[device, with_torch] = Worker(kind, server, waits_for_server=with_torch)
            return self._workers[device, with_torch]

    def _server(self, *, with_torch: bool) -> ForkServer:
        modules = (self.preload, "torch") if with_torch else (self.preload,)
        with self._lock:
            if with_torch not in self._servers:
                self._servers[with_torch] = ForkServer(modules, {}, start_s=_WARM_S)
            return self._servers[with_torch]


def _launch_key(arguments: Mapping[str, Any], grid: Grid3) -> Hashable:
    """The key shared by launches on the same memory with the same arguments."""
    views = [
        (name, tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype))
        for name, tensor in sorted(memory_of(arguments).items())
    ]
    members = list(members_of(arguments.items()))
    given = [(n, str(v)) for n, v in members if isinstance(v, numbers.Real)]
    blocks = [(n, *map(tuple, (v.shape, v.strides, v.block_shape))) for n, v in members if hasattr(v, "block_shape")]
    return grid, tuple(views), tuple(given), tuple(blocks)


def _job(launch: BoundLaunch, exported: IpcExport, specs: Specs) -> TrialJob:
    signature, constants = specialization_of(launch.handle)
    return TrialJob(
        kernel=launch.compiled.kernel,
        launch=BinaryLaunch(
            files=tuple(triton_files(launch.compiled).items()),
            digest=launch.handle.hash,
            signature=tuple(signature.items()),
            constants=constants,
            grid=launch.grid,
            arguments=specs[: len(launch.arguments)],
        ),
        device=exported.device,
        memories=exported.memories(),
        tables=exported.tables,
    )


def _result(outcome: TrialOutcome) -> TrialResult:
    notes = {
        Placing.COPIES: (),
        Placing.WRITTEN_COPIES: ("the first launch read the notebook's own memory: there was no room for all copies",),
        Placing.ORIGINALS: ("the first launch ran on the notebook's own memory: there was no room for copies",),
    }
    return TrialResult(notes[outcome.placing], outcome.placing is Placing.ORIGINALS, outcome.output)


@bypass_modes()
def contents_digest(storages: Sequence[Any]) -> str | None:
    """Return the digest of the contents of some untyped storages of torch, in order.

    None if they are too large, do not begin at a word, or leave no room for the sums. The digest is not cryptographic:
    it distinguishes accidental differences, those of a swap or of signs among them. Each row of words of 32 bits has
    two sums of its words times random weights of 64 bits; two rows that differ have both sums in common with a chance
    of 2**-64.
    """
    import torch  # keeps `import kernellab` light

    if sum(int(storage.nbytes()) for storage in storages) > MOST_BYTES:
        return None
    if any(storage.data_ptr() % _WORD_BYTES for storage in storages):  # memory of another library
        return None
    digest = hashlib.sha256()
    with contextlib.suppress(torch.OutOfMemoryError):
        for storage in storages:
            digest.update(str(storage.nbytes()).encode())
            for sums in _row_sums(storage):
                digest.update(sums.cpu().numpy().tobytes())
        return digest.hexdigest()
    return None


def _row_sums(storage: Any) -> list[Any]:
    """Return tensors of the sums of the rows of a storage; the last row, and the last bytes, are filled with zeros."""
    import torch  # keeps `import kernellab` light

    if storage.device.type == "cuda":
        torch.cuda.synchronize(storage.device)  # another stream may still write
    data = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    row_bytes = _ROW_WORDS * _WORD_BYTES
    whole = data.numel() // row_bytes * row_bytes
    parts = list(torch.split(data[:whole].view(torch.int32).view(-1, _ROW_WORDS), _ROWS_AT_ONCE))
    if whole < data.numel():
        last = torch.zeros(row_bytes, dtype=torch.uint8, device=storage.device)
        last[: data.numel() - whole] = data[whole:]
        parts.append(last.view(torch.int32).view(1, -1))
    return [(part * weights).sum(1) for part in parts if part.numel() for weights in _weights(str(storage.device))]


@lru_cache(maxsize=4)
def _weights(device: str) -> tuple[Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(_SEED)
    drawn = torch.randint(-(2**63), 2**63 - 1, (2, _ROW_WORDS), generator=generator, dtype=torch.int64, device="cpu")
    first, second = drawn.to(device)
    return first, second
