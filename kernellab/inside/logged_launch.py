"""A launch whose rewritten kernel writes its values: on a GPU what the GPU computed, else a test of the rewriting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernellab.errors import CannotRun, plural
from kernellab.inside.recorded_launch import closure_texts
from kernellab.inside.rewriting import BUFFER, LoggingKernel, logging_kernel
from kernellab.inside.rewritten import CopiedRun, closure_to_rewrite, rewritten_implementation, run_on_copies
from kernellab.inside.value_log import LogReader, initial_log, needed_words, region_of
from kernellab.inside.values import Values
from kernellab.launch.arguments import memory_of, values_of
from kernellab.launch.memory import span_of
from kernellab.launch.poison import bits_of
from kernellab.launch.recorded_values import RecordRequest
from kernellab.registry.kernels import Session
from kernellab.timing.launches import Implementation

_FIRST_WORDS = 1 << 17  # of a program's region: 1 MiB


def record_on_device(
    session: Session, plain: Implementation, request: RecordRequest, timeout_s: float, words: int = _FIRST_WORDS
) -> Values:
    """Record values of a compiled launch by a copy of its kernel, on copies of its arguments.

    A region that turns out too short is made longer, up to the bytes that the request allows in total; the launch is
    then repeated.

    Raises:
        CannotRun: the kernel is in Gluon.
        KernellabError: the copy does not compile, or the launch fails.
    """
    launch = plain.kernel_launch
    if launch.function.is_gluon():
        raise CannotRun(f"{plain.kernel.kernel} is a kernel in Gluon, whose values cannot be recorded.")
    most = max(_FIRST_WORDS, request.total_bytes // 8 // len(request.programs))
    kernel, copied, needed = _run_logging(session, plain, request, timeout_s, words)
    if needed > kernel.region_words and kernel.region_words < most:
        kernel, copied, needed = _run_logging(session, plain, request, timeout_s, min(needed, most))
    reader = _read(kernel, copied, plain, request)
    notes = [*copied.run.notes, *_notes(session, plain, copied, timeout_s)]
    if needed > kernel.region_words:
        notes.append(f"values beyond the first {kernel.region_words * 8 >> 10:,} KiB of a program were left out")
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
    )


def _run_logging(
    session: Session, plain: Implementation, request: RecordRequest, timeout_s: float, words: int
) -> tuple[LoggingKernel, CopiedRun, int]:
    """Run the copy of a kernel with regions of some words; the words that it needed come third."""
    import torch  # a launch needs it anyway

    launch = plain.kernel_launch
    x, y, _ = launch.grid
    numbers = [p + x * (q + y * r) for p, q, r in request.programs]
    kernel = logging_kernel(closure_to_rewrite(launch.function), request.lines, len(numbers), words)
    buffer = torch.from_numpy(initial_log(kernel, numbers)).to(session.runtime.device)
    copy = rewritten_implementation(session, plain, kernel.closure, {BUFFER: buffer})
    copied = run_on_copies(session, copy, timeout_s)
    return kernel, copied, needed_words(copied.arguments[BUFFER].cpu().numpy(), kernel, len(numbers))


def _read(kernel: LoggingKernel, copied: CopiedRun, plain: Implementation, request: RecordRequest) -> LogReader:
    words = copied.arguments[BUFFER].cpu().numpy()
    tensors = memory_of(plain.kernel_launch.arguments)
    spans = {name: (*span_of(tensor), int(tensor.element_size())) for name, tensor in tensors.items()}
    sizes = {name: (max(end - start, itemsize), itemsize) for name, (start, end, itemsize) in spans.items()}
    reader = LogReader(kernel.sites, sizes, request)
    for place, program in enumerate(request.programs):
        reader.read(region_of(words, kernel, place), program, plain.kernel.kernel)
    return reader


def _notes(session: Session, plain: Implementation, copied: CopiedRun, timeout_s: float) -> list[str]:
    """What the rewriting changed: the outputs, compared bit by bit with those of the plain kernel."""
    differing = _differing(run_on_copies(session, plain, timeout_s).arguments, copied.arguments)
    if not differing:
        return ["the copy of the kernel that stored these values left the same outputs as the plain kernel, bit by bit"]
    return [
        "the copy of the kernel that stored these values left other outputs than the plain kernel: "
        + ", ".join(f"{count:,} elements of {name}" for name, count in differing.items())
    ]


def _differing(plain: Mapping[str, Any], copied: Mapping[str, Any]) -> dict[str, int]:
    """The number of elements whose bits differ, by argument; those that agree are left out."""
    tensors = memory_of(copied)
    counts = {
        name: int((bits_of(tensor) != bits_of(tensors[name])).sum())
        for name, tensor in memory_of(plain).items()
        if name in tensors
    }
    return {name: count for name, count in counts.items() if count}
