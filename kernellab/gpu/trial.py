"""Trial launches on a GPU: a worker process runs the first launch and takes the damage of a faulty kernel.

Clean trials are logged for later sessions. If a kernel's addresses depend on loaded values, the trial covers only these
values; `kernellab.ir.containment` shows whether others within the same ranges can lead it out of its arguments. If they
cannot, the ranges are logged with the trial, and a later session only compares its own values with them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import numbers
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kernellab.errors import KernellabError, RunError, StoreError, WorkerDied, WorkerTimeout, timeout_text
from kernellab.gpu.driver import uuid_of
from kernellab.gpu.ipc import BinaryLaunch, IpcExport, needs_torch_mapping
from kernellab.gpu.worker import (
    UNTOUCHED,
    Ending,
    Placing,
    TrialJob,
    TrialOutcome,
    WarmUp,
    subject_of,
    trial_error,
    try_launch,
    warm_up,
)
from kernellab.ir.containment import ArgumentMemory, KnownLaunch, NotContained, deciding_loads, require_contained
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.ir.uses import depends_on_data
from kernellab.launch.arguments import (
    ArgumentSpec,
    CannotExport,
    ScalarSpec,
    TensorSpec,
    leaves_of,
    members_of,
    memory_of,
    tensors_of,
)
from kernellab.launch.calls import Grid3
from kernellab.launch.memory import Reached, reached, span_of
from kernellab.launch.run import TrialRequest, TrialResult
from kernellab.store import PassedTrial, Ranges, TrialLog
from kernellab.target import device_name, driver_version
from kernellab.workers.forks_and_interrupts import in_background, rlock
from kernellab.workers.process import ForkServer
from kernellab.workers.worker import Job, Worker, WorkerKind

_SCHEMA = 1

Specs = tuple[tuple[str, ArgumentSpec], ...]


def trial_record(
    digest: str,
    device: str,
    driver: str,
    grid: Grid3,
    arguments: Sequence[tuple[str, ArgumentSpec]],
    sizes_bytes: Sequence[int],
) -> PassedTrial:
    """Return the record of a clean trial; ``sizes_bytes`` are those of the storages, by index."""
    fields = {
        "schema": _SCHEMA,
        "grid": grid,
        "arguments": [(name, type(spec).__name__, asdict(spec)) for name, spec in arguments],
        "sizes": list(sizes_bytes),
    }
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return PassedTrial(digest, device, driver, hashlib.sha256(text.encode()).hexdigest())


_WARM_S = 120.0


@dataclass(slots=True)
class GpuTrials:
    """The GPU workers and the specializations that passed their trial; ``log`` has earlier sessions.

    A worker is a fork of a server that has imported its modules but has no CUDA context, so a new worker starts soon
    after a fault. ``preload`` is the module of the jobs. Trials need no torch, which takes seconds to import; jobs that
    do have a worker of their own, keyed by the device and True.
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
    _lock: threading.RLock = field(default_factory=rlock)
    _has_own_servers: bool = True

    def apart(self, timeout_s: float) -> GpuTrials:
        """Return trials in other workers, forked from the same servers; close them before these."""
        return GpuTrials(
            timeout_s, preload=self.preload, _servers=self._servers, _lock=self._lock, _has_own_servers=False
        )

    def start(self, device: int = 0, *, with_torch: bool = False) -> None:
        """Start the worker of a device in the background, including its CUDA context."""

        def run() -> None:
            with contextlib.suppress(KernellabError):  # the first trial will say it
                self.wait_ready(device, with_torch=with_torch)

        in_background(run)

    def wait_ready(self, device: int, *, with_torch: bool = False) -> None:
        """Wait until the worker of a device has its CUDA context, so that no launch's time includes that.

        Raises:
            WorkerTimeout, WorkerDied: it does not start.
            UsageError: it sees other devices than this process.
        """
        import torch  # only where there is a GPU

        wanted = WarmUp(device, torch.cuda.get_device_capability(device), uuid_of(device))
        job = Job(warm_up, wanted, "Starting the GPU worker")
        self.worker(device, with_torch=with_torch).prepare(job, _WARM_S)

    def prepare(self) -> None:
        """Start the worker of the current device in the background, once."""
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
        """Whether a kernel needs no trial on the current device: it passed, or cannot be tried."""
        import torch  # only where there is a GPU

        return (digest, torch.cuda.current_device()) in self._passed

    def launch(self, request: TrialRequest, timeout_s: float | None = None) -> TrialResult:
        """Run the trial launch on the current device's worker, unless an earlier session covers it.

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
        exported = IpcExport(device, _mutated_arguments(request.compiled.effects, behind), behind=behind)
        try:
            specs = exported.specs({**request.arguments, **behind.tensors})
            record = _log_entry(request, exported, specs)
            if not request.forced and self._is_covered_by_log(record, request):
                self._passed.add((request.handle.hash, device))
                return TrialResult()
            key = (request.handle.hash, device, _launch_key(request.arguments, request.grid))
            if not request.forced and key in self._passed_elsewhere:
                self._passed.add((request.handle.hash, device))
                self._log_trial(record, request, exported, specs)
                return TrialResult()
            job = _job(request, exported, specs)
        except CannotExport as exc:
            self._passed.add((request.handle.hash, device))
            return TrialResult((f"the first launch ran in this process: {exc}",))
        torch.cuda.synchronize(device)
        try:
            outcome = self._run_trial(request, job, timeout_s)
        finally:
            del job
            exported.unshare()  # the traceback of an error would keep it
        if outcome.ending is not Ending.CLEAN:
            raise trial_error(request, exported, outcome)
        self._passed.add((request.handle.hash, device))
        if outcome.placing is not Placing.ORIGINALS:
            self._log_trial(record, request, exported, specs)
        return _result(outcome)

    def record_passed_launch(self, digest: str, device: int, arguments: Mapping[str, Any], grid: Grid3) -> None:
        """Record a clean launch elsewhere in a worker, on copies between redzones; its trial is skipped."""
        self._passed_elsewhere.add((digest, device, _launch_key(arguments, grid)))

    def _is_covered_by_log(self, record: PassedTrial, request: TrialRequest) -> bool:
        """Whether an earlier session's trial covers this launch with the current values of its arguments."""
        with contextlib.suppress(StoreError):
            if self.log is None or record in self.log:
                return self.log is not None
            ranges = self.log.ranges_of(record)
            return ranges is not None and has_integers_within(ranges, request.arguments)
        return False

    def _log_trial(self, record: PassedTrial, request: TrialRequest, exported: IpcExport, specs: Specs) -> None:
        """Log a clean trial on copies if it holds for later launches."""
        compiled = request.compiled
        if self.log is None or compiled.effects.unknown:
            return
        with contextlib.suppress(StoreError):  # then the next session tries again
            if not depends_on_data(compiled.graph):
                self.log.add(record)
                return
            own = specs[: len(request.arguments)]
            before = self.log.ranges_of(record)
            ranges = lasting_ranges(
                compiled.graph, compiled.effects, request.arguments, request.grid, own, _sizes(exported), before
            )
            if ranges is not None:
                self.log.add_within(record, ranges)

    def _run_trial(self, request: TrialRequest, job: TrialJob, timeout_s: float | None) -> TrialOutcome:
        """Run the trial in the worker; replace the worker if it does not survive."""
        with_torch = needs_torch_mapping(job.memories)  # the trial's own time does not pay for its import
        worker = self.worker(job.device, with_torch=with_torch)
        self.wait_ready(job.device, with_torch=with_torch)
        work = Job(try_launch, job, f"kernel {job.kernel}")
        try:
            outcome = worker.run(work, timeout_s or self.timeout_s)
        except WorkerTimeout as exc:
            self.start(job.device, with_torch=with_torch)
            text = timeout_text(subject_of(request), timeout_s or self.timeout_s)
            raise WorkerTimeout(f"{text} and was stopped. {UNTOUCHED}", kernel=job.kernel) from exc
        except WorkerDied as exc:
            self.start(job.device, with_torch=with_torch)
            text = f"{subject_of(request)} ended the GPU worker: {exc.message}"
            raise RunError(f"{text} {UNTOUCHED}", kernel=job.kernel, detail=exc.detail) from exc
        if outcome.ending is Ending.FAULT:
            worker.close()
            self.start(job.device, with_torch=with_torch)
        return outcome

    def worker(self, device: int, *, with_torch: bool = False) -> Worker:
        """Return the worker of a device, started by its first job; ``with_torch`` has a process of its own."""
        kind = WorkerKind("gpu", preload=(self.preload,))
        if with_torch:
            kind = WorkerKind("gpu with torch", preload=(self.preload, "torch"))
        with self._lock:
            if with_torch not in self._servers:
                self._servers[with_torch] = ForkServer(kind.preload, kind.environment, start_s=_WARM_S)
            if (device, with_torch) not in self._workers:
                self._workers[device, with_torch] = Worker(kind, self._servers[with_torch])
            return self._workers[device, with_torch]


def _log_entry(request: TrialRequest, exported: IpcExport, specs: Specs) -> PassedTrial:
    """Return the log entry of a launch, kept after a clean trial."""
    name = device_name(exported.device)
    return trial_record(request.handle.hash, name, driver_version(), request.grid, specs, _sizes(exported))


def _sizes(exported: IpcExport) -> tuple[int, ...]:
    return tuple(0 if storage is None else int(storage.nbytes()) for storage in exported.storages)


def _launch_key(arguments: Mapping[str, Any], grid: Grid3) -> Hashable:
    """The key shared by launches on the same memory with the same arguments."""
    views = [
        (name, tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype))
        for name, tensor in sorted(memory_of(arguments).items())
    ]
    members = list(members_of(arguments.items()))
    numbers_given = [(name, str(value)) for name, value in members if isinstance(value, numbers.Real)]
    blocks = [
        (n, tuple(v.shape), tuple(v.strides), tuple(v.block_shape)) for n, v in members if hasattr(v, "block_shape")
    ]
    return grid, tuple(views), tuple(numbers_given), tuple(blocks)


def _job(request: TrialRequest, exported: IpcExport, specs: Specs) -> TrialJob:
    from kernellab._triton.drivers import specialization_of  # keeps `import kernellab` light

    signature, constants = specialization_of(request.handle)
    return TrialJob(
        kernel=request.compiled.kernel,
        launch=BinaryLaunch(
            files=tuple(request.files.items()),
            digest=request.handle.hash,
            signature=tuple(signature.items()),
            constants=constants,
            grid=request.grid,
            arguments=specs[: len(request.arguments)],
        ),
        device=exported.device,
        memories=exported.memories(),
        tables=exported.tables,
    )


def _mutated_arguments(effects: Effects, behind: Reached) -> frozenset[str] | None:
    return effects.mutated | behind.mutated if effects.is_followed else None


def _result(outcome: TrialOutcome) -> TrialResult:
    notes = {
        Placing.COPIES: (),
        Placing.WRITTEN_COPIES: ("the first launch read the notebook's own memory: there was no room for all copies",),
        Placing.ORIGINALS: ("the first launch ran on the notebook's own memory: there was no room for copies",),
    }
    return TrialResult(notes[outcome.placing], outcome.placing is Placing.ORIGINALS, outcome.output)


_SIGNED = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}


def integer_ranges(arguments: Mapping[str, Any], names: Iterable[str]) -> Ranges | None:
    """Return the smallest and largest integer of each named tensor, its bits read as signed.

    Covers all memory from the first element to the last, also gaps of the view. Waits for the current stream, once.
    None if one of the names is no tensor of integers with elements.
    """
    import torch  # only where there is a GPU

    memory, extremes = memory_of(arguments), list[Any]()
    for name in (names := list(names)):
        tensor = memory.get(name)
        if not isinstance(tensor, torch.Tensor) or not tensor.numel() or not _holds_integers(tensor):
            return None
        start, end = span_of(tensor)
        signed = getattr(torch, _SIGNED[tensor.element_size()])
        elements = tensor.detach().as_strided(((end - start) // tensor.element_size(),), (1,)).view(signed)
        extremes += [extreme.to(torch.int64) for extreme in torch.aminmax(elements)]
    values = torch.stack(extremes).tolist() if extremes else []
    return {name: (values[2 * i], values[2 * i + 1]) for i, name in enumerate(names)}


def has_integers_within(ranges: Ranges, arguments: Mapping[str, Any]) -> bool:
    """Whether the integers in a launch's tensors lie within some ranges."""
    held = integer_ranges(arguments, ranges)
    return held is not None and all(
        low <= held[name][0] and held[name][1] <= high for name, (low, high) in ranges.items()
    )


def lasting_ranges(
    graph: Graph,
    effects: Effects,
    arguments: Mapping[str, Any],
    grid: Grid3,
    specs: Specs,
    sizes_bytes: tuple[int, ...],
    before: Ranges | None,
) -> Ranges | None:
    """Return the ranges of loaded values for which a clean trial holds, None if it holds for no others.

    ``specs`` are the arguments as data, ``sizes_bytes`` the storages by index. The ranges are those of the launch,
    widened by the logged ranges ``before`` if containment holds for the union, too.
    """
    leaves = [leaf for name, spec in specs for leaf in leaves_of(name, spec)]
    views = {key: view for name, spec in leaves for key, view in tensors_of(name, spec)}
    written = {views[name].storage for name in effects.mutated if name in views}
    loads, memory = deciding_loads(graph), memory_of(arguments)
    deciding = {site.argument for site in effects.sites if site.index in loads}
    names = sorted(
        name
        for name in deciding
        if name in views and name in memory and views[name].storage not in written and _holds_integers(memory[name])
    )
    held = integer_ranges(arguments, names)
    if held is None:
        return None
    wider = held if before is None or before.keys() != held.keys() else _union_of_ranges(held, before)
    integers = {n: int(s.value) for n, s in leaves if isinstance(s, ScalarSpec) and isinstance(s.value, int)}
    extents = {name: _argument_memory(spec, sizes_bytes) for name, spec in leaves if isinstance(spec, TensorSpec)}
    for ranges in (wider, held):
        launch = KnownLaunch(grid, integers, extents, ranges)
        try:
            require_contained(graph, launch)
        except NotContained:
            continue
        return ranges
    return None


def _holds_integers(tensor: Any) -> bool:
    return not tensor.dtype.is_floating_point and not tensor.dtype.is_complex and tensor.element_size() in _SIGNED


def _union_of_ranges(one: Ranges, other: Ranges) -> Ranges:
    return {name: (min(low, other[name][0]), max(high, other[name][1])) for name, (low, high) in one.items()}


def _argument_memory(spec: TensorSpec, sizes_bytes: tuple[int, ...]) -> ArgumentMemory:
    ahead = spec.offset_bytes
    return ArgumentMemory(ahead, sizes_bytes[spec.storage] - ahead, spec.span_bytes, spec.itemsize)
