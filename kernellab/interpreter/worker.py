"""The interpreter worker's side: builds a kernel's arguments and runs a launch program by program.

`start` patches Triton's interpreter; importing this module changes nothing.
"""

from __future__ import annotations

import inspect
import math
import mmap
import re
import signal
import threading
import time
import traceback
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from kernellab._triton.kernel import Kernel
from kernellab._triton.loading import LoadedClosure, load, register_sources
from kernellab.errors import KernellabError, LaunchError, plural
from kernellab.interpreter.access import CheckedBuilder
from kernellab.interpreter.algebra_operations import algebra_of
from kernellab.interpreter.batch_memory import BatchMemory
from kernellab.interpreter.batches import batch_builder, run_batches
from kernellab.interpreter.builder import DeviceOptions
from kernellab.interpreter.faults import (
    AccessFault,
    InterpretedCheckError,
    ProgramDeadline,
    StorageIncomplete,
    UnsupportedOperation,
    line_of_traceback,
    place_of,
)
from kernellab.interpreter.functions import interpret_standard_functions
from kernellab.interpreter.hazards import MemoryRegion
from kernellab.interpreter.language import annotation_of, checked_builder, is_constexpr, prepare
from kernellab.interpreter.memory import AccessRecorder, CheckedMemory
from kernellab.interpreter.recording import RecordingSites, ValueRecorder
from kernellab.interpreter.values import Handle, plain, wide_arithmetic, wrap
from kernellab.interpreter.watching import unwatch_operations, watch_operations
from kernellab.launch.arguments import (
    ArgumentSpec,
    DescriptorSpec,
    DtypeSpec,
    Launch,
    ScalarSpec,
    TensorSpec,
    TupleSpec,
    tensors_of,
)
from kernellab.launch.recorded_values import Program, RecordRequest, program_at, program_number
from kernellab.launch.run import FindingKind, InterpretJob, RunOutcome, Severity
from kernellab.source import Closure
from kernellab.workers.worker import Failure, failure_of

Progress = Callable[[tuple[int, int]], None]

_PROGRESS_INTERVAL_S = 0.1
_SURVEY_S = 2.0
_LEAST_PROGRAMS = 2
_MAX_OUTPUT_CHARS = 1 << 20


@dataclass(slots=True)
class _PrintBuffer:
    """The printed output of a kernel, up to a limit."""

    lines: list[str] = field(default_factory=list)
    chars: int = 0

    def add(self, line: str) -> None:
        self.chars += len(line) + 1
        if self.chars <= _MAX_OUTPUT_CHARS:
            self.lines.append(line)

    def text(self) -> str:
        cut = "... (more was printed)\n" if self.chars > _MAX_OUTPUT_CHARS else ""
        return "".join(f"{line}\n" for line in self.lines) + cut


def start() -> None:
    """Install the checked interpreter in this worker process."""
    interpret_standard_functions()
    checked_builder()


def _prepare_builder(builder: CheckedBuilder, job: InterpretJob, output: _PrintBuffer) -> None:
    builder.print_line = output.add
    builder.options = DeviceOptions(job.warps, job.multiprocessors)
    builder.low_precision_used.clear()
    builder.reads_device_registers = False
    builder.set_grid_dim(*job.launch.grid)
    builder.grid_idx = (0, 0, 0)


def interpret(job: InterpretJob, progress: Progress | None) -> RunOutcome:
    """Run a launch. ``progress`` is called with (programs done, programs of the launch).

    A program stops at its first access out of bounds. The others still run for a short while, to count the affected
    programs.
    """
    loaded, sites = (_load_kernel(job.closure), None) if job.record is None else _load_for_recording(job.closure)
    register_sources(job.closure)  # another version of a cell may have taken its file name in between
    constants = {name: plain(value) for name, value in loaded.arguments(job.constants).items()}
    kernel, launch = loaded.kernel, job.launch
    while not hasattr(kernel, "rewrite"):  # an autotuner is around it
        kernel = kernel.fn
    builder = checked_builder()
    output = _PrintBuffer()
    _prepare_builder(builder, job, output)
    is_wide = job.record is not None and job.record.is_wide
    arithmetic = wide_arithmetic(is_wide), algebra_of(builder, job.algebra)
    with _map_memory(launch) as address, np.errstate(all="ignore"), arithmetic[0], arithmetic[1] as unmodelled:
        started = time.perf_counter()
        try:
            batches = _run_in_batches(kernel, launch, address, progress, constants) if job.may_batch else None
        except MemoryChanged:
            return RunOutcome(time.perf_counter() - started, needs_fresh_memory=True)
        memory = batches or CheckedMemory(launch, address)
        memory.watcher = None if job.watch is None else AccessRecorder(job.watch)
        builder.memory = memory
        if job.record is not None and sites is not None:
            builder.recorder = ValueRecorder(job.record, sites, memory)
            watch_operations(builder, builder.recorder)
        try:
            failure = None if batches else _run_kernel(kernel, launch, memory, progress, constants, job.record)
            memory.promises.check_multiples()
            memory.restore_addresses()
        except StorageIncomplete:
            return RunOutcome(time.perf_counter() - started, needs_whole_storages=True)
        finally:
            _set_alarm(0)
            recorder, builder.recorder = builder.recorder, None
            unwatch_operations(builder)
            del builder.memory
        seconds = time.perf_counter() - started
    emulated = set[str]() if job.algebra else builder.low_precision_used
    return RunOutcome(
        seconds=seconds,
        findings=memory.findings.to_findings(),
        output=output.text(),
        notes=(
            *_notes(emulated, reads_device_registers=builder.reads_device_registers),
            *(() if recorder is None else recorder.notes),
        ),
        written=frozenset(i for i, storage in enumerate(memory.storages) if storage.shadow.is_written),
        failure=failure,
        strays=tuple(sorted(memory.strays)),
        accesses=None if memory.watcher is None else memory.watcher.accesses(memory.regions.values()),
        values=() if recorder is None else tuple(recorder.values),
        events=() if recorder is None else tuple(recorder.events.values()),
        unmodelled=tuple(sorted(unmodelled)),
    )


class MemoryChanged(Exception):
    """A launch cannot go on in batches, and some of them have changed its memory."""


def _run_in_batches(
    kernel: Kernel, launch: Launch, address: int, progress: Progress | None, constants: Mapping[str, object]
) -> BatchMemory | None:
    """Run a launch in batches of programs; return its memory, or None where the programs must run one by one.

    Raises:
        MemoryChanged: the programs must run one by one, on the memory as it was.
    """
    builder, total = checked_builder(), math.prod(launch.grid)
    if total < _LEAST_PROGRAMS or kernel.fn in builder.unbatchable:
        return None
    memory = BatchMemory(launch, address)
    with batch_builder(builder, memory) as batch:
        try:
            arguments = kernel_arguments(kernel.fn, launch, memory.regions, constants)
            run_batches(batch, prepare(kernel), arguments, _reporter(progress, total))
        except Exception:  # noqa: BLE001 - one by one, the programs run into it again, and it is reported
            memory.undo_batch()
        else:
            return memory
    builder.unbatchable.add(kernel.fn)
    builder.low_precision_used.clear()
    if memory.hazards.is_changed:
        raise MemoryChanged
    return None


def _reporter(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Return a function that reports how many programs are done, at intervals."""
    reported = time.monotonic()

    def report(done: int) -> None:
        nonlocal reported
        now = time.monotonic()
        if progress is not None and now - reported >= _PROGRESS_INTERVAL_S:
            progress((done, total))
            reported = now

    return report


def _run_kernel(
    kernel: Kernel,
    launch: Launch,
    memory: CheckedMemory,
    progress: Progress | None,
    constants: Mapping[str, object],
    record: RecordRequest | None = None,
) -> Failure | None:
    """Run a launch, or the programs that are recorded, for as long as their record may take; return what failed."""
    name = kernel.fn.__name__
    faults: list[AccessFault] = []
    is_complete = False
    try:
        function = prepare(kernel)
        arguments = kernel_arguments(kernel.fn, launch, memory.regions, constants)
        _set_alarm(0 if record is None else record.seconds)
        programs = None if record is None else record.programs
        is_complete = _run_grid(function, arguments, launch, memory, faults, progress, programs)
    except StorageIncomplete:
        raise
    except Exception as exc:  # noqa: BLE001 - whatever a kernel raises becomes data
        if not faults:
            return _failure(exc, name, memory.findings.program)
    if not faults and not is_complete:
        message = f"{name} was stopped in program {memory.findings.program}, which took too long; does a loop not end?"
        return Failure("RunError", message, kernel=name)
    return _out_of_bounds_failure(faults, is_complete, memory, launch, name) if faults else None


def _run_grid(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    launch: Launch,
    memory: CheckedMemory,
    faults: list[AccessFault],
    progress: Progress | None,
    programs: Sequence[Program] | None,
) -> bool:
    """Run the programs, or those named; add the fault of each that has one, and return whether none was left out."""
    builder = checked_builder()
    total = math.prod(launch.grid) if programs is None else len(programs)
    report = _reporter(progress, total)
    everything = (program_at(launch.grid, number) for number in range(math.prod(launch.grid)))
    for number, program in enumerate(programs or everything):
        builder.grid_idx = program
        memory.begin_program(program_number(launch.grid, program), program)
        try:
            function(**arguments)
        except AccessFault as fault:
            if not faults:
                memory.deadline = time.monotonic() + _SURVEY_S
                _set_alarm(_SURVEY_S + 1)
            faults.append(fault.with_traceback(None))
            kind, severity = FindingKind.OUT_OF_BOUNDS, Severity.ERROR
            memory.findings.add(kind, fault.argument, fault, fault.lanes, severity=severity, line=fault.line)
        except ProgramDeadline:
            return False
        now = time.monotonic()
        if memory.deadline is not None and now > memory.deadline and number + 1 < total:
            return False
        report(number + 1)
    return True


def _set_alarm(seconds: float) -> None:
    """Raise `ProgramDeadline` after some time, for programs that loop without touching memory; 0 cancels."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGALRM, _raise_deadline)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _raise_deadline(number: int, frame: object) -> None:
    raise ProgramDeadline


def _out_of_bounds_failure(
    faults: list[AccessFault], is_complete: bool, memory: CheckedMemory, launch: Launch, kernel: str
) -> Failure:
    lanes = plural(sum(fault.lanes for fault in faults), "lane")
    message = (
        f"{kernel}: {faults[0]}. Affected: {'' if is_complete else 'at least '}{lanes} in {len(faults)} of "
        f"{plural(math.prod(launch.grid), 'program')}."
    )
    overflow = memory.findings.line_of(FindingKind.ADDRESS_OVERFLOW, faults[0].argument)
    if overflow is not None:
        message += f" A 32-bit offset overflowed at line {overflow[1]}: compute it in tl.int64."
    return Failure("OutOfBounds", message, place_of(faults[0].line), kernel=kernel)


def _failure(exc: Exception, kernel: str, program: Program) -> Failure:
    if isinstance(exc, KernellabError):
        return failure_of(exc)
    place = place_of(line_of_traceback(exc.__traceback__))
    detail = "".join(traceback.format_exception(exc))
    if isinstance(exc, UnsupportedOperation):
        message = f"{kernel}: the CPU interpreter cannot run {exc}. It runs on a GPU."
    else:
        cause: BaseException = exc
        while isinstance(cause.__cause__, Exception) and not isinstance(cause, InterpretedCheckError):
            cause = cause.__cause__  # the root, without the names of the interpreter's classes
        text = str(cause).strip().rstrip(".")
        name = type(cause).__name__
        if not isinstance(cause, InterpretedCheckError):
            text = f"{name}: {text}" if text else name
        message = f"{kernel}: {text}, in program {program}."
    return Failure("RunError", message, place, detail, kernel)


def _notes(used: set[str], *, reads_device_registers: bool) -> tuple[str, ...]:
    arithmetic = f"{', '.join(sorted(used))} arithmetic is emulated in float32 and rounded after each operation"
    registers = "no GPU: each program gets the next SM number, and clocks are this machine's"
    return ((arithmetic,) if used else ()) + ((registers,) if reads_device_registers else ())


@contextmanager
def _map_memory(launch: Launch) -> Iterator[int]:
    """Map the memory of a launch and yield its address."""
    with open(launch.block.path, "r+b") as file, mmap.mmap(file.fileno(), launch.block.size_bytes) as mapping:
        view = np.frombuffer(mapping, np.uint8)
        try:
            yield int(view.ctypes.data)
        finally:
            del view


_MAX_KERNELS = 64


@lru_cache(_MAX_KERNELS)
def _load_for_recording(closure: Closure) -> tuple[LoadedClosure, RecordingSites]:
    """The functions of a closure with calls that record their values."""
    builder = checked_builder()
    builder.recorded_sites = sites = RecordingSites()
    try:
        return _load_kernel.__wrapped__(closure), sites
    finally:
        builder.recorded_sites = None


@lru_cache(_MAX_KERNELS)
def _load_kernel(closure: Closure) -> LoadedClosure:
    loaded = load(closure, unwraps=True)
    for function in loaded.functions.values():
        if hasattr(function, "rewrite"):
            prepare(function)  # now, while the source that it reads is the right one
    return loaded


def kernel_arguments(
    python: Any, launch: Launch, regions: Mapping[int, MemoryRegion], constants: Mapping[str, object]
) -> dict[str, Any]:
    """Return the arguments of a kernel by name. ``constants`` are values of constexprs, unconverted."""
    pointers = {region.name: region for region in regions.values()}
    specs = dict(launch.arguments)
    values: dict[str, Any] = {}
    for name, parameter in inspect.signature(python).parameters.items():
        annotation = None if is_constexpr(parameter) else annotation_of(parameter)
        if name in constants:
            values[name] = constants[name]
            continue
        if name not in specs and parameter.default is inspect.Parameter.empty:
            raise LaunchError(f"{python.__name__} lacks a value for its parameter {name}.")
        spec = specs[name] if name in specs else ScalarSpec(plain(parameter.default))
        if annotation is None and tensors_of(name, spec):
            raise LaunchError(f"{name} is a tl.constexpr parameter of {python.__name__} and got a tensor.")
        values[name] = _value(name, spec, annotation, pointers)
    return values


def _value(name: str, spec: ArgumentSpec, annotation: str | None, pointers: Mapping[str, MemoryRegion]) -> Any:
    """Return an argument as the kernel gets it; ``annotation`` is None for a constexpr: its numbers stay numbers."""
    match spec:
        case TensorSpec():
            return _pointer(spec, pointers[name])
        case DescriptorSpec():
            return _descriptor(spec, pointers[name])
        case DtypeSpec():
            return tl.dtype(spec.name)
        case TupleSpec():
            items = [_value(f"{name}[{i}]", item, annotation, pointers) for i, item in enumerate(spec.items)]
            return tuple(items) if spec.fields is None else namedtuple(spec.type_name, spec.fields)(*items)
        case ScalarSpec(int() | float() as number) if annotation is not None:
            return scalar(number, annotation)
        case ScalarSpec(value):
            return value


def _pointer(spec: TensorSpec, region: MemoryRegion) -> Any:
    dtype = tl.str_to_ty(f"*{spec.dtype}", None)
    return tl.tensor(Handle(np.array([region.start], np.uint64), dtype), dtype)


def scalar(value: float, annotation: str = "") -> Any:
    """Return a run-time number as a kernel's tensor: of its annotated type, else bool, i32, i64, u64 or fp32."""
    short = re.sub(r"^[a-z]+(?=\d)", lambda kind: _SHORT.get(kind[0], kind[0]), annotation.removeprefix("tl."))
    dtype = tl.str_to_ty(short if short in _TYPES else _default_type(value), None)
    number = np.array([value], np.float64 if dtype.is_floating() else None)
    return tl.tensor(wrap(number, dtype), dtype)


def _default_type(value: float) -> str:
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, float):
        return "fp32"
    ranges = {"i32": (-(2**31), 2**31), "i64": (-(2**63), 2**63), "u64": (0, 2**64)}
    for kind, (low, high) in ranges.items():
        if low <= value < high:
            return kind
    raise LaunchError(f"The integer {value} does not fit into 64 bits.")


_TYPES = frozenset(["i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "fp16", "bf16", "fp32", "fp64"])
_SHORT = {"int": "i", "uint": "u", "float": "fp", "bfloat": "bf"}


def _descriptor(spec: DescriptorSpec, region: MemoryRegion) -> Any:
    strides = [scalar(stride) for stride in spec.strides[:-1]]
    descriptor = upstream.interpreter_semantic.make_tensor_descriptor(
        base=_pointer(spec.base, region),
        shape=[scalar(size) for size in spec.shape],
        strides=[*strides, tl.constexpr(spec.strides[-1])],
        block_shape=[tl.constexpr(size) for size in spec.block_shape],
        padding_option=spec.padding,
    )
    descriptor.handle.round_f32_to_tf32 = spec.round_f32_to_tf32
    return descriptor
