"""Launches on the CPU in the interpreter worker: their arguments in memory that is shared with it, and their `Run`.

All storages have a place in one block. Of a small one, or one that is mostly elements of arguments, everything is
copied there; of a large one with small views in it only their elements, and the rest of its place takes no memory. A
launch that leaves those views is made again on whole storages. The tensors of the user change only after a clean run,
and only where the kernel changed something.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, TypeVar

from kernellab._triton.closure import closure_of, require_sendable
from kernellab.errors import LaunchError, Place, WorkerTimeout
from kernellab.launch.arguments import (
    ArgumentSpec,
    Launch,
    Ranges,
    SharedBlock,
    StorageSpec,
    TensorSpec,
    other_spec,
    ranges_of,
    spec_of,
    tensor_spec,
    tensors_of,
)
from kernellab.launch.memory import tensors_at
from kernellab.launch.recorded_values import NonFiniteEvent, RecordedValue, RecordRequest
from kernellab.launch.run import ElementAccesses, Finding, InterpretJob, Run, RunOutcome, Watch
from kernellab.source import Binding, Closure
from kernellab.target import has_gpu_device, multiprocessors
from kernellab.workers.forks_and_interrupts import run_uninterrupted
from kernellab.workers.worker import Failure, Job, Worker, WorkerKind

# Storages keep their alignment up to this many bytes, and lie at least that far apart.
_ALIGNMENT = 256
_CHUNK_BYTES = 1 << 24
_PAGE_BYTES = 1 << 12
_MOST_BYTES_ALWAYS_WHOLE = 1 << 20


@dataclass(slots=True)
class SharedArguments:
    """Arguments in shared memory: the launch as data, and the state to copy results back."""

    launch: Launch
    _arguments: Mapping[str, object]
    _mapping: mmap.mmap
    _file: IO[bytes]

    @property
    def copied_bytes(self) -> int:
        """The copied bytes of the arguments' memory."""
        tensors = _tensors(self.launch.arguments)
        return sum(
            storage.size_bytes if storage.is_whole else sum(_element_bytes(t) for t in tensors if t.storage == index)
            for index, storage in enumerate(self.launch.storages)
        )

    def take_back(self, written: frozenset[int]) -> dict[str, int]:
        """Copy the storages that a clean run has written back into the user's tensors.

        Returns the number of changed elements per argument that holds memory; elements count as changed when their
        bits differ.
        """
        tensors = [named for name, spec in self.launch.arguments for named in tensors_of(name, spec)]
        changed = {name: self._changed_elements(spec) if spec.storage in written else 0 for name, spec in tensors}
        for index in written:
            for before, after in self._parts(index):
                _copy_changed(before, after)
        return changed

    def close(self) -> None:
        """Release the memory; if a debugger's frame still uses it, it is released with that frame."""
        with contextlib.suppress(BufferError):
            self._mapping.close()
        self._file.close()

    def _parts(self, index: int) -> Iterator[tuple[Any, Any]]:
        """The copied parts of a storage, as arrays in the user's memory and in the block."""
        user, worker = self._user_bytes(index), self._worker_bytes(index)
        if self.launch.storages[index].is_whole:
            yield user, worker
            return
        for spec in _tensors(self.launch.arguments):
            if spec.storage == index and spec.span_bytes:
                yield _elements(user, spec, once=True), _elements(worker, spec, once=True)

    def _user_bytes(self, index: int) -> Any:
        """The user's memory as a numpy array; the arguments keep it alive."""
        import numpy as np

        spec = self.launch.storages[index]
        if not spec.size_bytes:
            return np.empty(0, np.uint8)
        memory = (ctypes.c_ubyte * spec.size_bytes).from_address(spec.address)
        return np.ctypeslib.as_array(memory)

    def _worker_bytes(self, index: int) -> Any:
        import numpy as np

        spec = self.launch.storages[index]
        return np.frombuffer(self._mapping, np.uint8, spec.size_bytes, spec.offset_bytes)

    def _changed_elements(self, spec: TensorSpec) -> int:
        import numpy as np

        if not spec.span_bytes:
            return 0
        before, after = (
            _elements(memory, spec) for memory in (self._user_bytes(spec.storage), self._worker_bytes(spec.storage))
        )
        return int(np.count_nonzero(before != after))


def _elements(memory: Any, spec: TensorSpec, *, once: bool = False) -> Any:
    """The elements of a tensor in the bytes of its storage; with ``once``, without repetition by zero strides."""
    import numpy as np

    bits = np.dtype(f"V{spec.itemsize}" if spec.itemsize not in {1, 2, 4, 8} else f"u{spec.itemsize}")
    shape = tuple(size if stride or not once else 1 for size, stride in zip(spec.shape, spec.strides, strict=True))
    return np.ndarray(shape, bits, memory, spec.offset_bytes, tuple(stride * spec.itemsize for stride in spec.strides))


def _copy_changed(old: Any, new: Any) -> None:
    """Copy the elements that differ, piece by piece."""
    import numpy as np

    if old.nbytes <= _CHUNK_BYTES:
        np.copyto(old, new, where=old != new)
        return
    axis = old.shape.index(max(old.shape))
    for one, other in zip(*(np.array_split(array, 2, axis) for array in (old, new)), strict=True):
        _copy_changed(one, other)


@contextlib.contextmanager
def in_shared_memory(
    arguments: Mapping[str, object],
    grid: tuple[int, int, int],
    *,
    uninitialised: frozenset[str] = frozenset(),
    is_whole: bool = False,
) -> Iterator[SharedArguments]:
    """Yield the arguments of a launch in shared memory, which is released at the end.

    ``arguments`` are bound by name: CPU tensors, ``TensorDescriptor``s, numbers, strings, None, dtypes of
    ``triton.language``, and tuples of such. Values of constexprs that are none of these are left out by the caller.
    With ``is_whole``, of every storage everything is there.

    Raises:
        LaunchError: an argument cannot be taken along (another device, sparse, ...), or there is no room for it.
    """
    ranges = ranges_of(arguments)
    tensor = partial(tensor_spec, ranges)
    specs = tuple((name, spec_of(name, value, tensor, other_spec)) for name, value in arguments.items())
    tensors = _tensors(specs)
    known = {name for name, _ in specs} | {member for name, spec in specs for member, _ in tensors_of(name, spec)}
    for name in sorted(uninitialised - known):
        raise LaunchError(f"uninitialised names {name!r}; expected one of {', '.join(sorted(known))}.")
    storages, size_bytes = _storages(ranges, None if is_whole else tensors)
    spared_bytes = sum(storage.size_bytes for storage in storages if not storage.is_whole)
    pages_bytes = sum(  # at most: of the pages with elements
        min(spec.span_bytes + 2 * _PAGE_BYTES, _element_bytes(spec) // spec.itemsize * _PAGE_BYTES)
        for spec in tensors
        if not storages[spec.storage].is_whole
    )
    file, path, mapping = _block(max(size_bytes, 1), max(min(size_bytes - spared_bytes + pages_bytes, size_bytes), 1))
    launch = Launch(grid, specs, SharedBlock(path, len(mapping)), storages, uninitialised)
    shared = SharedArguments(launch, arguments, mapping, file)
    try:
        for index in range(len(storages)):
            for user, worker in shared._parts(index):
                worker[...] = user
        yield shared
    finally:
        shared.close()


def _tensors(arguments: tuple[tuple[str, ArgumentSpec], ...]) -> list[TensorSpec]:
    return [tensor for name, spec in arguments for _, tensor in tensors_of(name, spec)]


def _storages(ranges: Ranges, tensors: Sequence[TensorSpec] | None) -> tuple[tuple[StorageSpec, ...], int]:
    """The place of each range in the block, and the block's bytes; without ``tensors``, all are whole."""
    specs, size_bytes = [], 0
    for index, (start, end) in enumerate(ranges):
        offset = size_bytes + _ALIGNMENT + (start - size_bytes) % _ALIGNMENT
        is_whole = tensors is None or end - start <= _MOST_BYTES_ALWAYS_WHOLE
        if not is_whole and tensors is not None:
            is_whole = 2 * sum(_element_bytes(spec) for spec in tensors if spec.storage == index) >= end - start
        specs.append(StorageSpec(offset, end - start, start, is_whole))
        size_bytes = offset + end - start + _ALIGNMENT
    return tuple(specs), size_bytes


def _element_bytes(spec: TensorSpec) -> int:
    """The bytes of a tensor's elements, without repetition by zero strides."""
    return spec.itemsize * math.prod(
        size for size, stride in zip(spec.shape, spec.strides, strict=True) if stride or not size
    )


def _block(size_bytes: int, needed_bytes: int) -> tuple[IO[bytes], str, mmap.mmap]:
    """Memory that another process can map by its path and that no crash can leave behind.

    It lies in memory, where no more than ``needed_bytes`` of it are taken, or in a deleted file in the folder for
    temporary files where memory is short.
    """
    failure: OSError | None = None
    for opened, taken_bytes in ((_file_in_memory, needed_bytes), (_file_on_disk, size_bytes)):
        file = opened(taken_bytes)
        if file is None:
            continue
        try:
            os.ftruncate(file.fileno(), size_bytes)
            if taken_bytes == size_bytes:
                os.posix_fallocate(file.fileno(), 0, size_bytes)
            return file, f"/proc/{os.getpid()}/fd/{file.fileno()}", mmap.mmap(file.fileno(), size_bytes)
        except OSError as exc:
            file.close()
            failure = exc
    reason = "" if failure is None else f": {failure.strerror or failure}"
    raise LaunchError(
        f"There is no room for a copy of the arguments, {needed_bytes / 2**20:.0f} MiB, in memory or in "
        f"{tempfile.gettempdir()}{reason}. Pass smaller tensors."
    ) from failure


def _file_in_memory(size_bytes: int) -> IO[bytes] | None:
    if size_bytes > _available_bytes() or not hasattr(os, "memfd_create"):
        return None
    return os.fdopen(os.memfd_create("kernellab"), "r+b")


def _file_on_disk(size_bytes: int) -> IO[bytes] | None:
    if size_bytes > shutil.disk_usage(tempfile.gettempdir()).free:
        return None
    return tempfile.TemporaryFile(prefix="kernellab-")


def _available_bytes() -> int:
    """The bytes of memory that Linux calls available without swapping."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        line = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return int(line.split()[1]) * 1024 if line is not None else 1 << 62


INTERPRET_WORKER = WorkerKind(
    "interpret", preload=("kernellab.interpreter.worker:start",), environment={"TRITON_INTERPRET": "1"}
)
_INTERPRET = "kernellab.interpreter.worker:interpret"


def modules_ahead() -> tuple[str, ...]:
    """Return the modules that a server of workers imports for the interpreter: none with a GPU, where few need it."""
    return () if has_gpu_device() else INTERPRET_WORKER.modules


_IF_SLOW = "Give it longer (--timeout, timeout_s=) or fewer programs, unless one of its loops does not end."

_NO_GLUON = (
    "which Triton's interpreter does not run: launch it on a GPU. Compiling it, and its stages, effects, graph and "
    "resources, need none."
)

Progress = Callable[[tuple[int, int]], None]
Labelled = TypeVar("Labelled", RecordedValue, Finding)


class Interpreter:
    """Runs launches in one worker process. ``timeout_s`` is the default limit of a launch.

    Programs run in batches where nothing shows it, or one by one without ``in_batches``.
    """

    def __init__(self, worker: Worker, timeout_s: float, *, in_batches: bool = True) -> None:
        self.worker = worker
        self.timeout_s = timeout_s
        self.in_batches = in_batches

    def start(self) -> None:
        """Start the process, without waiting for it."""
        self.worker.start()

    def close(self) -> None:
        """Stop the process."""
        self.worker.close()

    def run(
        self,
        function: Any,
        arguments: Mapping[str, Any],
        grid: tuple[int, int, int],
        timeout_s: float | None = None,
        *,
        uninitialised: frozenset[str] = frozenset(),
        progress: Progress | None = None,
        follows: bool = False,
        warps: int | None = None,
        watch: Watch | None = None,
        on_accesses: Callable[[ElementAccesses], None] | None = None,
        record: RecordRequest | None = None,
        on_values: Callable[[tuple[RecordedValue, ...], tuple[NonFiniteEvent, ...]], None] | None = None,
        algebra: bool = False,
    ) -> Run:
        """Run a launch of a jit function on CPU tensors.

        ``arguments`` holds every parameter by name, and tensors behind addresses by other names. The tensors change
        only after a clean run. ``uninitialised`` names arguments whose contents count as never written; ``progress``
        is called from time to time with (programs done, programs in total). With ``follows``, a kernel that reaches
        other live tensors through addresses is run again with these. ``warps`` is the number of warps per program.
        ``on_accesses`` receives the record of ``watch``, and ``on_values`` the values that ``record`` asks for, also of
        a kernel that fails; then only its programs run, and the tensors do not change. ``algebra`` evaluates in a ring.

        Raises:
            LaunchError: an argument cannot be sent to another process, or the kernel is in Gluon.
            OutOfBounds, RunError: the kernel failed; the tensors are as they were.
            WorkerTimeout, WorkerDied: it did not end, or ended its process.
        """
        closure, bound = _closure_with_constants(function, arguments)
        values = {name: value for name, value in arguments.items() if name not in dict(bound)}
        is_whole, may_batch = False, self.in_batches and watch is None and record is None and not algebra
        while True:
            with in_shared_memory(values, grid, uninitialised=uninitialised, is_whole=is_whole) as shared:
                device = warps, multiprocessors()
                job = InterpretJob(closure, shared.launch, bound, *device, watch, record, algebra, may_batch)
                outcome = self._run_job(Job(_INTERPRET, job, f"kernel {closure.name}"), timeout_s, progress)
                is_kept = outcome.failure is None and record is None
                written = outcome.written if is_kept else frozenset[int]()
                changed = run_uninterrupted(partial(shared.take_back, written))  # all of it, or nothing
                copied_bytes = shared.copied_bytes
            if outcome.needs_whole_storages or outcome.needs_fresh_memory:
                is_whole, may_batch = is_whole or outcome.needs_whole_storages, False
                continue
            stray_tensors = tensors_at(outcome.strays, "cpu") if follows and outcome.strays else {}
            if not stray_tensors:
                break
            values |= stray_tensors
        if on_values is not None:
            on_values(tuple(_relabel(value, closure) for value in outcome.values), outcome.events)
        if outcome.failure is not None:
            raise _relabel_failure(outcome, outcome.failure, closure).exception()
        if on_accesses is not None and outcome.accesses is not None:
            on_accesses(outcome.accesses)
        notes = (*outcome.notes, *_copy_notes(copied_bytes, is_repeated=is_whole))
        findings = tuple(_relabel(finding, closure) for finding in outcome.findings)
        run = Run(closure.name, grid, outcome.seconds, changed, findings, "interpreter", outcome.output, notes)
        return dataclasses.replace(run, unmodelled=outcome.unmodelled)

    def _run_job(
        self, job: Job[InterpretJob, RunOutcome], timeout_s: float | None, progress: Progress | None
    ) -> RunOutcome:
        try:
            return self.worker.run(job, timeout_s or self.timeout_s, progress)
        except WorkerTimeout as exc:
            raise WorkerTimeout(f"{exc.message} {_IF_SLOW}", kernel=job.payload.closure.name) from exc


_MANY_BYTES = 1 << 28


def _copy_notes(copied_bytes: int, *, is_repeated: bool) -> Iterator[str]:
    """Yield notes on the cost of copying large arguments to the worker."""
    if is_repeated:
        yield (
            f"the run was made again on all {copied_bytes / 2**20:,.0f} MiB of the arguments' storages, since it left "
            "a view of them"
        )
    elif copied_bytes >= _MANY_BYTES:
        yield f"{copied_bytes / 2**20:,.0f} MiB of arguments were copied, since launches on the CPU run in a worker"


def _closure_with_constants(
    function: Any, arguments: Mapping[str, Any]
) -> tuple[Closure, tuple[tuple[str, Binding], ...]]:
    """The kernel as text, and the arguments that are part of it.

    Raises:
        LaunchError: one cannot be sent to another process, or the kernel is in Gluon.
    """
    if function.is_gluon():
        name = function.__name__
        raise LaunchError(f"{name} is a kernel in Gluon, {_NO_GLUON}", kernel=name)
    constants = {name: value for name, value in arguments.items() if _is_constant(function, name, value)}
    closure, bindings = closure_of(function, tuple(constants.values()))
    require_sendable(closure.name, bound := tuple(zip(constants, bindings, strict=True)))
    return closure, bound


def _is_constant(function: Any, name: str, value: object) -> bool:
    """Whether an argument is part of the kernel's source: a constexpr, or a function passed as a value."""
    from kernellab._triton.kernel import is_jit_function  # keeps `import kernellab` light

    parameter = next((parameter for parameter in function.params if parameter.name == name), None)
    return (parameter is not None and parameter.is_constexpr) or is_jit_function(value)


def _relabel_failure(outcome: RunOutcome, failure: Failure, closure: Closure) -> Failure:
    """Return a failure with the user's file names; findings and output go into the detail."""
    findings = [_relabel(finding, closure) for finding in outcome.findings]
    lines = [f"{one.kind} ({one.severity}), {one.file}, line {one.line}: {one.detail}" for one in findings]
    detail = "\n".join(filter(None, [*lines, outcome.output.rstrip(), failure.detail]))
    place = failure.place
    if place is not None:
        place = Place(closure.label(place.file), place.line, place.column, place.text)
    return dataclasses.replace(failure, place=place, detail=detail)


def _relabel(record: Labelled, closure: Closure) -> Labelled:
    return record if record.file is None else dataclasses.replace(record, file=closure.label(record.file))
