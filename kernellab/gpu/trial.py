"""First launches on a GPU: in a worker process, which alone suffers when the kernel faults, hangs or runs wild."""

from __future__ import annotations

import contextlib
import hashlib
import json
import numbers
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kernellab.compile.types import Compiled
from kernellab.errors import (
    KernellabError,
    LaunchError,
    OutOfBounds,
    Place,
    RunError,
    StoreError,
    WorkerDied,
    WorkerTimeout,
    first_line,
)
from kernellab.gpu.driver import uuid_of
from kernellab.gpu.ipc import CannotExport, IpcExport, mapped_by_torch
from kernellab.gpu.loaded_ranges import lasting_ranges, lie_within
from kernellab.gpu.redzones import damage_text
from kernellab.gpu.trial_job import Ending, Placing, TrialJob, TrialOutcome, WarmUp
from kernellab.gpu.worker import try_launch, warm_up
from kernellab.ir.effects import Site
from kernellab.ir.operations import Access
from kernellab.ir.uses import depends_on_data
from kernellab.launch.arguments import ArgumentSpec
from kernellab.launch.calls import MAX_GRID, Grid3
from kernellab.launch.memory import Reached, memory_of, reached
from kernellab.launch.run import TrialRequest, TrialResult
from kernellab.settings import Settings
from kernellab.store import PassedTrial, TrialLog
from kernellab.target import Target, device_name, driver_version
from kernellab.workers.forks_and_interrupts import lock
from kernellab.workers.process import ForkServer
from kernellab.workers.worker import Job, Worker, WorkerKind

_SCHEMA = 1


def passed_trial(
    digest: str,
    device: str,
    driver: str,
    grid: Grid3,
    arguments: Sequence[tuple[str, ArgumentSpec]],
    sizes_bytes: Sequence[int],
) -> PassedTrial:
    """Return the record of a launch that went well; ``sizes_bytes`` are those of the storages, by index."""
    fields = {
        "schema": _SCHEMA,
        "grid": grid,
        "arguments": [(name, type(spec).__name__, asdict(spec)) for name, spec in arguments],
        "sizes": list(sizes_bytes),
    }
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return PassedTrial(digest, device, driver, hashlib.sha256(text.encode()).hexdigest())


_WARM_S = 120.0
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


@dataclass(slots=True)
class GpuTrials:
    """The GPU workers, and which specializations came back from them; ``log`` has earlier sessions.

    A worker is a fork of a server that has imported what it needs, and has no context of its own: so the next one is
    there soon after a fault. ``preload`` is the module of all that workers are asked. Trials need no torch, which takes
    seconds to import; what does has a worker of its own, told by a True beside the number of its device.
    """

    timeout_s: float
    enabled: bool = True
    log: TrialLog | None = None
    preload: str = try_launch.__module__
    _servers: dict[bool, ForkServer] = field(default_factory=dict)
    _workers: dict[tuple[int, bool], Worker] = field(default_factory=dict)
    _passed: set[tuple[str, int]] = field(default_factory=set)
    _passed_elsewhere: set[tuple[str, int, Hashable]] = field(default_factory=set)
    _prepared: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=lock)
    _has_own_servers: bool = True

    def apart(self, timeout_s: float) -> GpuTrials:
        """Return trials in other workers, forked off the servers of these; to be closed before these."""
        return GpuTrials(
            timeout_s, preload=self.preload, _servers=self._servers, _lock=self._lock, _has_own_servers=False
        )

    def start(self, device: int = 0, *, with_torch: bool = False) -> None:
        """Start the worker of a device in the background, up to a CUDA context."""

        def run() -> None:
            with contextlib.suppress(KernellabError):  # the first trial will say it
                self.wait_ready(device, with_torch=with_torch)

        threading.Thread(target=run, daemon=True).start()

    def wait_ready(self, device: int, *, with_torch: bool = False) -> None:
        """Return once the worker of a device has its CUDA context, so that no launch pays for that with its time.

        Raises:
            WorkerTimeout, WorkerDied: it does not start.
            UsageError: it sees other devices than this process.
        """
        import torch  # only where there is a GPU

        wanted = WarmUp(device, torch.cuda.get_device_capability(device), uuid_of(device))
        job = Job(warm_up, wanted, "Starting the GPU worker")
        self.worker(device, with_torch=with_torch).prepare(job, _WARM_S)

    def prepare(self) -> None:
        """Start the worker of the current device in the background, unless that was done before."""
        import torch  # only where there is a GPU

        device = torch.cuda.current_device()
        with self._lock:
            is_new = device not in self._prepared
            self._prepared.add(device)
        if is_new:
            self.start(device)

    def close(self) -> None:
        """Stop the workers of all devices."""
        for worker in self._workers.values():
            worker.close()
        if self._has_own_servers:
            for server in self._servers.values():
                server.close()

    def has_passed(self, digest: str) -> bool:
        """Tell whether a kernel needs no trial on the current device any more: it went well, or cannot be tried."""
        import torch  # only where there is a GPU

        return (digest, torch.cuda.current_device()) in self._passed

    def launch(self, request: TrialRequest, timeout_s: float | None = None) -> TrialResult:
        """Launch in the worker of the current device, unless an earlier session has done so with arguments like these.

        Raises:
            OutOfBounds, RunError: the kernel faulted, or wrote outside its arguments.
            WorkerTimeout: it did not end within ``timeout_s`` seconds.
            LaunchError: the driver or the arguments do not allow the launch.
        """
        import torch

        device = torch.cuda.current_device()
        if torch.cuda.is_current_stream_capturing():
            return TrialResult(("the first launch was captured into a CUDA graph and not tried before",))
        if request.compiled.effects.lost is not None:
            self._passed.add((request.handle.hash, device))
            return TrialResult((f"the first launch was not tried before: {request.compiled.effects.lost}",))
        behind = reached(request.arguments, request.compiled.effects, "cuda")
        exported = IpcExport(device, _mutated(request.compiled, behind), behind=behind)
        try:
            specs = exported.specs({**request.arguments, **behind.tensors})
            record = _record(request, exported, specs)
            if not request.forced and self._is_logged(record, request):
                self._passed.add((request.handle.hash, device))
                return TrialResult()
            key = (request.handle.hash, device, _launch_key(request.arguments, request.grid))
            if not request.forced and key in self._passed_elsewhere:
                self._passed.add((request.handle.hash, device))
                self._keep(record, request, exported, specs)
                return TrialResult()
            job = _job(request, exported, specs)
        except CannotExport as exc:
            self._passed.add((request.handle.hash, device))
            return TrialResult((f"the first launch ran in this process: {exc}",))
        torch.cuda.synchronize(device)
        try:
            outcome = self._outcome(request, job, timeout_s)
        finally:
            del job
            exported.unshare()  # the traceback of an error would keep it
        if outcome.ending is not Ending.CLEAN:
            raise trial_error(request, exported, outcome)
        self._passed.add((request.handle.hash, device))
        if outcome.placing is not Placing.ORIGINALS:
            self._keep(record, request, exported, specs)
        return _result(outcome)

    def passed(self, digest: str, device: int, arguments: Mapping[str, Any], grid: Grid3) -> None:
        """Note that a launch went well elsewhere in a worker, on copies between redzones; it is not tried again."""
        self._passed_elsewhere.add((digest, device, _launch_key(arguments, grid)))

    def _is_logged(self, record: PassedTrial, request: TrialRequest) -> bool:
        """Tell whether an earlier session says that this launch goes well, with what its arguments hold now."""
        with contextlib.suppress(StoreError):
            if self.log is None or record in self.log:
                return self.log is not None
            ranges = self.log.ranges_of(record)
            return ranges is not None and lie_within(ranges, request.arguments)
        return False

    def _keep(self, record: PassedTrial, request: TrialRequest, exported: IpcExport, specs: Specs) -> None:
        """Keep what a trial on copies says of launches like it, if it says anything."""
        compiled = request.compiled
        if self.log is None or compiled.effects.unknown:
            return
        with contextlib.suppress(StoreError):  # then the next session tries again
            if not depends_on_data(compiled.graph):
                self.log.add(record)
                return
            own = specs[: len(request.arguments)]
            before = self.log.ranges_of(record)
            ranges = lasting_ranges(compiled, request.arguments, request.grid, own, _sizes(exported), before)
            if ranges is not None:
                self.log.add_within(record, ranges)

    def _outcome(self, request: TrialRequest, job: TrialJob, timeout_s: float | None) -> TrialOutcome:
        """Return how the trial ended in the worker, which is replaced after one that it does not survive."""
        with_torch = mapped_by_torch(job.memories)  # the trial's own time does not pay for its import
        worker = self.worker(job.device, with_torch=with_torch)
        self.wait_ready(job.device, with_torch=with_torch)
        work = Job(try_launch, job, f"kernel {job.kernel}")
        try:
            outcome = worker.run(work, timeout_s or self.timeout_s)
        except WorkerTimeout as exc:
            self.start(job.device, with_torch=with_torch)
            text = f"{_subject(request)} did not end within {timeout_s or self.timeout_s:g} s and was stopped."
            raise WorkerTimeout(f"{text} {_UNTOUCHED}", kernel=job.kernel) from exc
        except WorkerDied as exc:
            self.start(job.device, with_torch=with_torch)
            text = f"{_subject(request)} ended the GPU worker: {exc.message}"
            raise RunError(f"{text} {_UNTOUCHED}", kernel=job.kernel, detail=exc.detail) from exc
        if outcome.ending is Ending.FAULT:
            worker.close()
            self.start(job.device, with_torch=with_torch)
        return outcome

    def worker(self, device: int, *, with_torch: bool = False) -> Worker:
        """Return the worker of a device, which starts with its first job; that ``with_torch`` is another process."""
        kind = WorkerKind("gpu", preload=(self.preload,))
        if with_torch:
            kind = WorkerKind("gpu with torch", preload=(self.preload, "torch"))
        with self._lock:
            if with_torch not in self._servers:
                self._servers[with_torch] = ForkServer(kind.preload, kind.variables, start_s=_WARM_S)
            if (device, with_torch) not in self._workers:
                self._workers[device, with_torch] = Worker(kind, self._servers[with_torch])
            return self._workers[device, with_torch]


def trials_on(gpu: Target, settings: Settings, log: TrialLog | None, preload: str) -> GpuTrials:
    """Return the trials of a lab; they are switched off on a GPU of another vendor, whose driver no worker knows."""
    return GpuTrials(settings.timeout_s, settings.isolate and gpu.backend == "cuda", log, preload)


# What the driver says of an access to a bad address; other faults are traps and asserts of the kernel itself.
_ADDRESS_FAULTS = ("illegal memory access", "misaligned address", "address space", "invalid address space")
_UNTOUCHED = "The notebook's tensors are unchanged."
_PARTLY = "It ran on the notebook's own memory, which it may have changed: there was no room for copies."


Specs = tuple[tuple[str, ArgumentSpec], ...]


def _record(request: TrialRequest, exported: IpcExport, specs: Specs) -> PassedTrial:
    """Return what the launch is kept as once it went well."""
    name = device_name(exported.device)
    return passed_trial(request.handle.hash, name, driver_version(), request.grid, specs, _sizes(exported))


def _sizes(exported: IpcExport) -> tuple[int, ...]:
    return tuple(0 if storage is None else int(storage.nbytes()) for storage in exported.storages)


def _launch_key(arguments: Mapping[str, Any], grid: Grid3) -> Hashable:
    """Return what one launch has in common with another on the same memory."""
    views = [
        (name, tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype))
        for name, tensor in sorted(memory_of(arguments).items())
    ]
    return grid, tuple(views), tuple(_plain(arguments.items()))


def _plain(arguments: Iterable[tuple[str, Any]]) -> Iterator[Hashable]:
    """Yield the numbers among arguments, and the extents of descriptors."""
    for name, value in arguments:
        if isinstance(value, tuple):
            yield from _plain((f"{name}[{i}]", member) for i, member in enumerate(value))
        elif isinstance(value, numbers.Real):
            yield name, str(value)
        elif hasattr(value, "block_shape"):
            yield name, tuple(value.shape), tuple(value.strides), tuple(value.block_shape)


def _job(request: TrialRequest, exported: IpcExport, specs: Specs) -> TrialJob:
    from kernellab._triton.artifact import specialization_of  # keeps `import kernellab` light

    signature, constants = specialization_of(request.handle)
    return TrialJob(
        kernel=request.compiled.kernel,
        files=tuple(request.files.items()),
        digest=request.handle.hash,
        signature=tuple(signature.items()),
        constants=constants,
        device=exported.device,
        grid=request.grid,
        arguments=specs[: len(request.arguments)],
        memories=exported.memories(),
        tables=exported.tables,
    )


def _mutated(compiled: Compiled, behind: Reached) -> frozenset[str] | None:
    return compiled.effects.mutated | behind.mutated if compiled.effects.is_followed else None


def _result(outcome: TrialOutcome) -> TrialResult:
    notes = {
        Placing.COPIES: (),
        Placing.WRITTEN_COPIES: ("the first launch read the notebook's own memory: there was no room for all copies",),
        Placing.ORIGINALS: ("the first launch ran on the notebook's own memory: there was no room for copies",),
    }
    return TrialResult(notes[outcome.placing], outcome.placing is Placing.ORIGINALS, outcome.output)


def _subject(request: TrialRequest) -> str:
    options = request.compiled.options
    config = ", ".join(f"{name}={options[name]}" for name in _OPTIONS if options.get(name) is not None)
    constants = ", ".join(
        f"{parameter.name}={parameter.specialization}"
        for parameter in request.compiled.parameters
        if parameter.type == "constexpr"
    )
    return f"{request.compiled.kernel} ({', '.join(filter(None, (constants, config)))}; grid {request.grid})"


def trial_error(request: TrialRequest, exported: IpcExport, outcome: TrialOutcome) -> KernellabError:
    """Return the error for a trial that did not end well."""
    if outcome.ending is Ending.FAULT:
        return _fault(request, exported, outcome)
    if outcome.ending is Ending.DAMAGE:
        return _damage(request, exported, outcome)
    text = f"{_subject(request)} was refused: {first_line(outcome.message)}."
    if any(extent > limit for extent, limit in zip(request.grid, MAX_GRID, strict=True)):
        text = f"{_subject(request)} was refused: a grid has at most {' x '.join(map(str, MAX_GRID))} programs."
    return LaunchError(text, kernel=request.compiled.kernel, detail=outcome.message)


def _fault(request: TrialRequest, exported: IpcExport, outcome: TrialOutcome) -> KernellabError:
    """Return the error for a fault of the device: at the access that is found to be at fault, else the likely one."""
    state = _PARTLY if outcome.placing is Placing.ORIGINALS else _UNTOUCHED
    text = f"{_subject(request)} failed on the GPU: {first_line(outcome.message)}."
    if not any(words in outcome.message for words in _ADDRESS_FAULTS):
        said = next((f" {line.strip()}" for line in outcome.output.splitlines() if "ssertion" in line), "")
        return RunError(f"{text}{said} {state}", detail=outcome.message, kernel=request.compiled.kernel)
    found = request.look_closer()
    if found is not None:
        message = f"{text} {found.message.rstrip('.')}. {state}"
        return type(found)(message, place=found.place, detail=outcome.message, kernel=request.compiled.kernel)
    sites = request.compiled.effects.sites
    null = exported.without_memory()
    site = _likely(tuple(site for site in sites if site.argument in null)) or _likely(sites)
    guess = "" if site is None else f" Most likely it is an access to {site.argument}."
    place = None if site is None else _place(site)
    return RunError(f"{text}{guess} {state}", place=place, detail=outcome.message, kernel=request.compiled.kernel)


def _damage(request: TrialRequest, exported: IpcExport, outcome: TrialOutcome) -> OutOfBounds:
    mutated = request.compiled.effects.mutated | exported.behind.mutated
    argument, what = damage_text(outcome.damages[0], exported.names, mutated)
    sites = [site for site in request.compiled.effects.sites if site.kind is not Access.READ]
    site = _likely(tuple(site for site in sites if site.goes_to(argument))) or _likely(tuple(sites))
    text = f"{_subject(request)} wrote out of bounds: {what}. {_UNTOUCHED}"
    place = None if site is None else _place(site)
    return OutOfBounds(text, place=place, kernel=request.compiled.kernel)


def _likely(sites: tuple[Site, ...]) -> Site | None:
    """Return the site that goes out of bounds most easily: one without a mask, and a write before a read."""
    return min(sites, key=lambda site: (site.masked, site.kind is Access.READ, site.line or 0), default=None)


def _place(site: Site) -> Place | None:
    if site.location.file is None or site.line is None:
        return None
    return Place(site.location.file, site.line)
