"""Launches on the CPU in the interpreter worker, from the notebook's arguments to a `Run`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from kernellab._triton.closure import closure_of, require_sendable
from kernellab.errors import LaunchError, Place, WorkerTimeout
from kernellab.launch.memory import tensors_at
from kernellab.launch.run import ElementAccesses, Finding, InterpretJob, Run, RunOutcome, Watch
from kernellab.launch.shared_memory import in_shared_memory
from kernellab.source import Closure
from kernellab.target import multiprocessors
from kernellab.workers.forks_and_interrupts import run_uninterrupted
from kernellab.workers.worker import Failure, Job, Worker, WorkerKind

INTERPRET_WORKER = WorkerKind(
    "interpret",
    preload=("kernellab.interpreter.worker:start",),
    environment={"TRITON_INTERPRET": "1"},
)
_IF_SLOW = "Give it longer (--timeout, timeout_s=) or fewer programs, unless one of its loops does not end."

_NO_GLUON = (
    "which Triton's interpreter does not run: launch it on a GPU. Compiling it, and its stages, effects, graph and "
    "resources, need none."
)

Progress = Callable[[tuple[int, int]], None]


class Interpreter:
    """Runs launches in one worker process. ``timeout_s`` is the default limit of a launch."""

    def __init__(self, worker: Worker, timeout_s: float) -> None:
        self.worker = worker
        self.timeout_s = timeout_s

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
    ) -> Run:
        """Run a launch of a jit function on CPU tensors.

        ``arguments`` holds every parameter by name, and tensors behind addresses by other names. The tensors change
        only after a clean run. ``uninitialised`` names arguments whose contents count as never written; ``progress``
        is called from time to time with (programs done, programs in total). With ``follows``, a kernel that reaches
        other live tensors through addresses is run again with these. ``warps`` is the number of warps per program.
        ``on_accesses`` receives the record of ``watch``.

        Raises:
            LaunchError: an argument cannot be sent to another process, or the kernel is in Gluon.
            OutOfBounds, RunError: the kernel failed; the tensors are as they were.
            WorkerTimeout, WorkerDied: it did not end, or ended its process.
        """
        from kernellab.interpreter.worker import interpret  # needs numpy, and Triton's interpreter

        if function.is_gluon():
            name = function.__name__
            raise LaunchError(f"{name} is a kernel in Gluon, {_NO_GLUON}", kernel=name)
        constants = {name: value for name, value in arguments.items() if _is_constant(function, name, value)}
        closure, bindings = closure_of(function, tuple(constants.values()))
        require_sendable(closure.name, bound := tuple(zip(constants, bindings, strict=True)))
        values = {name: value for name, value in arguments.items() if name not in constants}
        is_whole = False
        while True:
            with in_shared_memory(values, grid, uninitialised=uninitialised, is_whole=is_whole) as shared:
                job = InterpretJob(closure, shared.launch, bound, warps, multiprocessors(), watch)
                outcome = self._run_job(Job(interpret, job, f"kernel {closure.name}"), timeout_s, progress)
                written = outcome.written if outcome.failure is None else frozenset[int]()
                changed = run_uninterrupted(partial(shared.take_back, written))  # all of it, or nothing
                copied_bytes = shared.copied_bytes
            if outcome.needs_whole_storages:
                is_whole = True
                continue
            stray_tensors = tensors_at(outcome.strays, "cpu") if follows and outcome.strays else {}
            if not stray_tensors:
                break
            values |= stray_tensors
        if outcome.failure is not None:
            raise _relabel_failure(outcome, outcome.failure, closure).exception()
        if on_accesses is not None and outcome.accesses is not None:
            on_accesses(outcome.accesses)
        findings = tuple(_relabel_finding(finding, closure) for finding in outcome.findings)
        notes = (*outcome.notes, *_copy_notes(copied_bytes, is_repeated=is_whole))
        return Run(closure.name, grid, outcome.seconds, changed, findings, "interpreter", outcome.output, notes)

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


def _is_constant(function: Any, name: str, value: object) -> bool:
    """Whether an argument is part of the kernel's source: a constexpr, or a function passed as a value."""
    from kernellab._triton.kernel import is_jit_function  # keeps `import kernellab` light

    parameter = next((parameter for parameter in function.params if parameter.name == name), None)
    return (parameter is not None and parameter.is_constexpr) or is_jit_function(value)


def _relabel_failure(outcome: RunOutcome, failure: Failure, closure: Closure) -> Failure:
    """Return a failure with the user's file names; findings and output go into the detail."""
    findings = [_relabel_finding(finding, closure) for finding in outcome.findings]
    lines = [f"{one.kind} ({one.severity}), {one.file}, line {one.line}: {one.detail}" for one in findings]
    detail = "\n".join(filter(None, [*lines, outcome.output.rstrip(), failure.detail]))
    place = failure.place
    if place is not None:
        place = Place(closure.label(place.file), place.line, place.column, place.text)
    return dataclasses.replace(failure, place=place, detail=detail)


def _relabel_finding(finding: Finding, closure: Closure) -> Finding:
    return finding if finding.file is None else dataclasses.replace(finding, file=closure.label(finding.file))
