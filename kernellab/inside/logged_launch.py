"""A launch whose rewritten kernel writes its values: on a GPU what the GPU computed, else a test of the rewriting."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernellab.compile.types import Compiled
from kernellab.errors import plural
from kernellab.inside.device_texts import INFERRED
from kernellab.inside.recorded_launch import closure_texts, programs_in, values_of_call, zeroed_arguments
from kernellab.inside.rewriting import BUFFER, LoggingKernel, logging_kernel
from kernellab.inside.rewritten import LaunchOnCopies, closure_to_rewrite, rewritten_implementation, run_on_copies
from kernellab.inside.value_log import LogReader, initial_log, needed_words, region_of
from kernellab.inside.values import Values
from kernellab.launch.arguments import memory_of, values_of
from kernellab.launch.calls import UserCall
from kernellab.launch.memory import span_of
from kernellab.launch.poison import bits_of
from kernellab.launch.recorded_values import RecordRequest, program_number
from kernellab.registry.calls import compile_call
from kernellab.registry.kernels import Session
from kernellab.timing.launches import Implementation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FIRST_WORDS = 1 << 17  # of a program's region: 1 MiB
_COMPARED = (
    *("tt.load", "tt.store", "tt.dot", "tt.dot_scaled", "tt.reduce", "tt.scan", "tt.atomic_rmw", "tt.atomic_cas"),
    *("tt.descriptor_load", "tt.descriptor_store", "ttng.warp_group_dot", "ttng.tc_gen5_mma"),
    "ttg.async_copy_global_to_local",
)
_ALIAS = re.compile(r"^(#\w+) = (#.*)$", re.MULTILINE)
_USE = re.compile(r"#\w+(?![\w.])")
_OPERATION = re.compile(r'(?:^|= )"?([\w.]+)"?[ (<]')
# https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-fma
_FUSED = re.compile(r"^\s*(?:@!?%\w+ )?fma\.rn\.\S*(?:f16|f16x2|bf16|bf16x2|f32|f32x2|f64)\b", re.MULTILINE)
_PRECISION = re.compile(r"inputPrecision = \w+")


def values_where_launched(
    session: Session, call: UserCall, programs: Sequence[Any], lines: Collection[int] | None, timeout_s: float
) -> Values:
    """Record the values of some programs of a call: on the GPU if its tensors lie there, else on the CPU.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel, or the grid has no such program.
        KernellabError: on the GPU, the kernel or its copy does not compile, or fails while it runs.
    """
    tensors = memory_of({**{str(at): value for at, value in enumerate(call.args)}, **call.meta})
    if session.runtime.is_offline() or not any(tensor.is_cuda for tensor in tensors.values()):
        return values_of_call(session, call, programs, lines, timeout_s)
    plain = compile_call(session, call)
    chosen = programs_in(plain.kernel_launch.grid, programs)
    request = RecordRequest(chosen, None if lines is None else frozenset(lines))
    return record_on_device(session, plain, request, timeout_s, zeroed=zeroed_arguments(call))


def record_on_device(
    session: Session,
    plain: Implementation,
    request: RecordRequest,
    timeout_s: float,
    words: int = _FIRST_WORDS,
    zeroed: Collection[str] = (),
) -> Values:
    """Record values of a compiled launch by a copy of its kernel, on copies of its arguments.

    The arguments of ``zeroed`` begin as zeros.

    A region that turns out too short is made longer, up to the bytes that the request allows in total; the launch is
    then repeated.

    Raises:
        KernellabError: the copy does not compile, or the launch fails.
    """
    launch = plain.kernel_launch
    most = max(_FIRST_WORDS, request.total_bytes // 8 // len(request.programs))
    logged = _run_logging(session, plain, request, timeout_s, words, zeroed)
    if logged.needed_words > logged.kernel.region_words and logged.kernel.region_words < most:
        words = min(logged.needed_words, most)
        logged = _run_logging(session, plain, request, timeout_s, words, zeroed)
    kernel, reader = logged.kernel, _read(logged, plain, request)
    notes = [*logged.copied.run.notes, *_notes(session, plain, logged, timeout_s, zeroed)]
    if logged.needed_words > kernel.region_words:
        notes.append(f"values beyond the first {kernel.region_words * 8 >> 10:,} KiB of a program were left out")
    notes += _gaps(kernel)
    if reader.sampled:
        notes.append(f"{plural(reader.sampled, 'tile')} are sampled; figures count all elements")
    text, *helpers = closure_texts(launch.job.closure)
    where = "gpu" if session.runtime.device == "cuda" else "interpreter"
    return Values(
        launch.job.closure.name,
        launch.grid,
        request.programs,
        *text,
        tuple(reader.values),
        where,
        values_of(launch.arguments),
        tuple(helpers),
        tuple(notes),
        build_graph=lambda: plain.kernel.graph,
    )


@dataclass(frozen=True, slots=True)
class LoggedLaunch:
    """The launch of a kernel that writes its values: as text, compiled, and run; ``words`` is the log that it left.

    ``needed_words`` is what the longest region would have taken.
    """

    kernel: LoggingKernel
    compiled: Compiled
    copied: LaunchOnCopies
    words: NDArray[np.int64]
    needed_words: int


def _run_logging(
    session: Session,
    plain: Implementation,
    request: RecordRequest,
    timeout_s: float,
    words: int,
    zeroed: Collection[str],
) -> LoggedLaunch:
    """Run the copy of a kernel with regions of some words."""
    import torch  # a launch needs it anyway

    launch = plain.kernel_launch
    numbers = [program_number(launch.grid, program) for program in request.programs]
    kernel = logging_kernel(closure_to_rewrite(launch.function), request.lines, len(numbers), words)
    buffer = torch.from_numpy(initial_log(kernel, numbers)).to(session.runtime.device)
    copy = rewritten_implementation(session, plain, kernel.closure, {BUFFER: buffer})
    copied = run_on_copies(session, copy, timeout_s, zeroed)
    left = copied.arguments[BUFFER].cpu().numpy()
    return LoggedLaunch(kernel, copy.kernel, copied, left, needed_words(left, kernel, len(numbers)))


def _read(logged: LoggedLaunch, plain: Implementation, request: RecordRequest) -> LogReader:
    tensors = memory_of(plain.kernel_launch.arguments)
    spans = {name: (*span_of(tensor), int(tensor.element_size())) for name, tensor in tensors.items()}
    sizes = {name: (max(end - start, itemsize), itemsize) for name, (start, end, itemsize) in spans.items()}
    reader = LogReader(logged.kernel.sites, sizes, request)
    for place, program in enumerate(request.programs):
        reader.read(region_of(logged.words, logged.kernel, place), program, plain.kernel.kernel)
    return reader


def _gaps(kernel: LoggingKernel) -> list[str]:
    """Notes on what the copy of a kernel does not write."""
    notes = []
    if kernel.closure.functions[0].kind == "gluon":
        notes.append("shared and tensor memory is recorded where a tensor is loaded from it, but not its barriers")
        if INFERRED:
            notes.append(f"tensors whose layout is inferred ({', '.join(INFERRED)}) are not recorded before Triton 3.9")
    if kernel.passed:
        notes.append(f"{', '.join(kernel.passed)}: passed as values, their lines are not recorded on a GPU")
    if kernel.blocks:
        lines = ", ".join(map(str, kernel.blocks))
        notes.append(f"accesses through block pointers are recorded without addresses and masks: line {lines}")
    return notes


_COPY = "the copy of the kernel that stored these values"


def _notes(
    session: Session, plain: Implementation, logged: LoggedLaunch, timeout_s: float, zeroed: Collection[str]
) -> list[str]:
    """Notes on changes by the rewriting: in layouts, in fused operations, and in outputs, bit by bit."""
    notes = compiled_changes(plain.kernel.stages, logged.compiled.stages)
    differing = _differing(run_on_copies(session, plain, timeout_s, zeroed).arguments, logged.copied.arguments)
    if not differing:
        return [*notes, f"{_COPY} left the same outputs as the plain kernel, bit by bit"]
    elements = ", ".join(f"{count:,} elements of {name}" for name, count in differing.items())
    atomics = ", ".join(sorted(plain.kernel.effects.atomics))
    order = f"; atomics on {atomics} come in another order in each launch" if atomics else ""
    return [*notes, f"{_COPY} left other outputs than the plain kernel: {elements}{order}"]


def compiled_changes(plain: Mapping[str, str], copy: Mapping[str, str]) -> list[str]:
    """Notes on changes by the rewriting in the stages of a kernel and of its copy."""
    operations = changed_operations(plain.get("ttgir", ""), copy.get("ttgir", ""))
    notes = [f"{_COPY} has other layouts or another precision in {', '.join(operations)}"] if operations else []
    fused = fused_operations(plain.get("ptx", ""), copy.get("ptx", ""))
    if fused is not None:
        rounds = "more" if fused[1] < fused[0] else "less"
        notes.append(
            f"{_COPY} has {fused[1]} fused multiply-adds, the plain kernel {fused[0]}: it rounds {rounds} often"
        )
    return notes


def _differing(plain: Mapping[str, Any], copied: Mapping[str, Any]) -> dict[str, int]:
    """The number of elements with other bits, by argument; arguments that agree are left out."""
    tensors = memory_of(copied)
    counts = {
        name: int((bits_of(tensor) != bits_of(tensors[name])).sum())
        for name, tensor in memory_of(plain).items()
        if name in tensors
    }
    return {name: count for name, count in counts.items() if count}


def changed_operations(plain: str, copy: str) -> tuple[str, ...]:
    """The names of operations of a kernel's TTGIR that the rewritten copy does not have with the same layouts."""
    missing = _operations_of(plain) - _operations_of(copy)
    return tuple(sorted({name for name, _ in missing}))


def fused_operations(plain: str, copy: str) -> tuple[int, int] | None:
    """The numbers of fused multiply-adds in the PTX of a kernel and of its rewritten copy; None where they agree.

    A product that the copy stores is rounded, and no longer fused with the addition that uses it.
    """
    numbers = len(_FUSED.findall(plain)), len(_FUSED.findall(copy))
    return None if numbers[0] == numbers[1] else numbers


def _operations_of(ttgir: str) -> Counter[tuple[str, str]]:
    """The compared operations, with their types and precision, layouts written out."""
    aliases = dict(_ALIAS.findall(ttgir))
    operations: Counter[tuple[str, str]] = Counter()
    for line in ttgir.splitlines():
        match = _OPERATION.search(line.strip())
        if match is None or match[1] not in _COMPARED:
            continue
        types = " ".join([line.partition(" loc(")[0].rpartition(" : ")[2], *_PRECISION.findall(line)])
        operations[match[1], _USE.sub(lambda use: aliases.get(use[0], use[0]), types)] += 1
    return operations
