"""The launch behind `lab.timeline`: a copy of the kernel with time stamps, timed next to the plain one, then read.

The copy has one more parameter, a table with a row of int64 per program: its SM, its start and end in ns of
``%globaltimer``, then the cycles of each part. A part begins before a chosen line, and lasts until the next chosen line
or the end, however often a loop comes back to it; the first part is what precedes all chosen lines.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import median

from kernellab._triton.kernel import autotune_settings
from kernellab.compile.types import Compiled
from kernellab.errors import CannotRun, LaunchError, UsageError, choice_message
from kernellab.inside.device_texts import with_device_functions
from kernellab.inside.rewritten import closure_to_rewrite, rewritten_implementation, run_on_copies
from kernellab.inside.timeline import FIXED_COLUMNS, Timeline, times_of_table
from kernellab.launch.calls import UserCall
from kernellab.registry.calls import compile_call, has_gpu
from kernellab.registry.kernels import Session
from kernellab.source import Closure, Function
from kernellab.source.edits import FunctionEdits, edits_of, statements_of
from kernellab.target import BlockNeeds, device_name, limits_of, multiprocessors, occupancy
from kernellab.timing.bench import BenchOptions
from kernellab.timing.gpu_bench import gpu_bench
from kernellab.timing.launches import Implementation

_MOST_PROGRAMS = 1 << 22
_FIRST_RUNS, _LEAST_ROUNDS, _MOST_ROUNDS = 3, 15, 60
_TIMING_MS, _FLUSH_MS = 60.0, 0.1
TABLE = "kl_times"


def timeline_of_call(session: Session, call: UserCall, lines: Sequence[int], timeout_s: float) -> Timeline:
    """The timeline of a call on the current GPU; of an autotuned kernel, with its best config.

    Raises:
        CannotRun: there is no NVIDIA GPU: launches run on the CPU, or on a GPU of another vendor.
        UsageError, LaunchError: the call does not fit the kernel, the grid is empty or too large, or a line has no
            statement.
        KernellabError: it does not compile, or fails while it runs.
    """
    if session.target.backend != "cuda" or not has_gpu(session):
        raise CannotRun(
            "lab.timeline reads the clocks and SM numbers of an NVIDIA GPU, and there is none here; "
            "lab.predict estimates a launch without one."
        )
    plain = compile_call(session, call)
    grid, name = plain.kernel_launch.grid, plain.kernel.kernel
    if 0 in grid:
        raise LaunchError(f"The grid of {name} is {grid}: no program runs, so there is no timeline.", kernel=name)
    if math.prod(grid) > _MOST_PROGRAMS:
        raise UsageError(
            f"The grid of {name} has {math.prod(grid):,} programs, and a timeline at most {_MOST_PROGRAMS:,}; "
            "give a smaller grid."
        )
    stamped, kernel = stamped_implementation(session, plain, lines, session.runtime.device)
    plain_us, stamped_us, notes = _times_us(session, plain, stamped, timeout_s)
    zeroed = autotune_settings(call.kernel).reset_to_zero
    run_on_copies(session, stamped, timeout_s, zeroed)  # loads the copy on the device
    return timeline_of_run(session, stamped, kernel, timeout_s, zeroed, (plain_us, stamped_us), notes)


def stamped_implementation(
    session: Session, plain: Implementation, lines: Sequence[int], device: str
) -> tuple[Implementation, StampedKernel]:
    """The compiled copy of a launch with time stamps, and what its columns mean.

    Raises:
        UsageError: a line of ``lines`` has no statement.
        CompileError: the copy does not compile.
    """
    import torch  # a launch needs it anyway

    launch = plain.kernel_launch
    kernel = stamped_kernel(closure_to_rewrite(launch.function), lines)
    table = torch.zeros((math.prod(launch.grid), kernel.columns), dtype=torch.int64, device=device)
    return rewritten_implementation(session, plain, kernel.closure, {TABLE: table}), kernel


def timeline_of_run(
    session: Session,
    stamped: Implementation,
    kernel: StampedKernel,
    timeout_s: float,
    zeroed: Collection[str],
    medians_us: tuple[float, float],
    notes: Sequence[str] = (),
) -> Timeline:
    """Launch a copy with time stamps and read them; ``medians_us`` are those of the plain kernel and of the copy.

    Raises:
        KernellabError: the launch fails.
    """
    import torch  # a launch needs it anyway

    copied = run_on_copies(session, stamped, timeout_s, zeroed)
    times = times_of_table(copied.arguments[TABLE].cpu().numpy())
    has_device = session.runtime.device == "cuda"
    timeline = Timeline(
        kernel=stamped.kernel.kernel,
        grid=stamped.kernel_launch.grid,
        device=device_name(torch.cuda.current_device()) if has_device else "",
        multiprocessors=multiprocessors(),
        sm=times.sm,
        start_us=times.start_us,
        end_us=times.end_us,
        launch_us=copied.run.seconds * 1e6,
        plain_us=medians_us[0],
        stamped_us=medians_us[1],
        resolution_ns=times.resolution_ns,
        lines=kernel.lines,
        parts_us=times.parts_us,
        notes=(*notes, *copied.run.notes),
    )
    return replace(timeline, notes=(*timeline.notes, *late_starts(timeline, stamped.kernel)))


def late_starts(timeline: Timeline, kernel: Compiled) -> tuple[str, ...]:
    """A note where fewer programs ran on an SM at a time than fit on it, though the grid has enough."""
    limits, resources = limits_of(kernel.target), kernel.resources
    if limits is None or resources.registers is None:
        return ()
    fit = occupancy(limits, BlockNeeds(resources.threads, resources.registers, resources.shared_bytes)).blocks
    seen = timeline.places_per_sm
    if seen >= fit or len(timeline.sm) < fit * timeline.multiprocessors:
        return ()
    return (f"at most {seen} programs ran on an SM at a time, {fit} fit: the others waited for their first turn",)


def _times_us(
    session: Session, plain: Implementation, stamped: Implementation, timeout_s: float
) -> tuple[float, float, list[str]]:
    """The median times of the plain kernel and of its copy, launched in turns with a flushed L2, and notes."""
    options = BenchOptions(plain.name, timeout_s, compares=False, has_hooks=plain.kernel_launch.has_hooks)
    with closing(gpu_bench(options, session.runtime.trials)) as bench:
        first = bench.measure(plain, _FIRST_RUNS, None).times_ms
        bench.measure(stamped, 1, None)
        rounds = int(_TIMING_MS / (2 * min(first) + _FLUSH_MS))
        times = bench.interleave([plain, stamped], max(_LEAST_ROUNDS, min(rounds, _MOST_ROUNDS)))
    return median(times[0]) * 1e3, median(times[1]) * 1e3, options.notes


@dataclass(frozen=True, slots=True)
class StampedKernel:
    """A kernel with time stamps: its closure, the chosen lines in ascending order, the number of int64 per program."""

    closure: Closure
    lines: tuple[int, ...]
    columns: int


def stamped_kernel(closure: Closure, lines: Sequence[int] = ()) -> StampedKernel:
    """A kernel with time stamps, and marks before the statements that begin in ``lines`` of its file.

    Raises:
        UsageError: no statement of the kernel begins in a line, or nothing can be inserted before it.
        SourceError: its text cannot be rewritten.
    """
    kernel = closure.functions[0]
    edits = edits_of(kernel.text)
    chosen = tuple(sorted(set(lines)))
    statements = _statements_at(edits, kernel, chosen)
    columns = FIXED_COLUMNS + (len(chosen) + 1 if chosen else 0)
    edits.add_parameter(TABLE)
    begin = f"kl_row = kl_begin({TABLE}, {columns})"
    if chosen:
        begin += "; kl_since, kl_part = kl_begin_parts(kl_row)"
    edits.before(edits.body[0], begin)
    for part, (line, statement) in enumerate(zip(chosen, statements, strict=True), FIXED_COLUMNS + 1):
        if not edits.before(statement, _mark(part)):
            raise UsageError(
                f"Line {line} of {kernel.name} begins with elif; choose the if before it, or a line in it."
            )
    _add_ends(edits, f"{_mark(FIXED_COLUMNS)}; kl_end(kl_row)" if chosen else "kl_end(kl_row)")
    return StampedKernel(with_device_functions(closure, {0: edits.result()}), chosen, columns)


def _mark(part: int) -> str:
    return f"kl_since, kl_part = kl_mark(kl_row, kl_since, kl_part, {part})"


def _statements_at(edits: FunctionEdits, kernel: Function, lines: Sequence[int]) -> list[ast.stmt]:
    """The outermost statement that begins in each line."""
    first: dict[int, ast.stmt] = {}
    for statement in statements_of(edits.body):
        first.setdefault(statement.lineno + kernel.first_line - 1, statement)
    for line in lines:
        if line not in first:
            known = tuple(map(str, first))
            raise UsageError(choice_message("lines", str(line), known, owner=f"the timeline of {kernel.name}"))
    return [first[line] for line in lines]


def _add_ends(edits: FunctionEdits, end: str) -> None:
    """Add a statement before each return, and at the end of the function."""
    for statement in statements_of(edits.body):
        if isinstance(statement, ast.Return):
            edits.before(statement, end)
    if not isinstance(edits.body[-1], ast.Return):
        edits.after(edits.body[-1], end)
