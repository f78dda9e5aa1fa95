"""Launches of a candidate's kernels, compiled from their checked text: on the CPU, where a worker of the judge's checks
every access, and on a GPU by a lab, which tries them between redzones first.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernellab._triton.drivers import descriptor
from kernellab._triton.loading import LoadedClosure, load
from kernellab.errors import KernellabError, OutOfBounds, WorkerDied, WorkerTimeout, timeout_text
from kernellab.interpreter.runner import INTERPRET_WORKER, in_shared_memory
from kernellab.judge.program import LaunchVariant
from kernellab.judge.replay import DescriptorArgument
from kernellab.launch.memory import with_members
from kernellab.launch.run import Finding, FindingKind, InterpretJob, RunOutcome
from kernellab.source import Closure
from kernellab.target import multiprocessors
from kernellab.workers.worker import Job, Worker, answer_at_once

if TYPE_CHECKING:
    from kernellab.lab import Lab

UNSAFE = {
    FindingKind.OUT_OF_BOUNDS: "reaches beyond its memory",
    FindingKind.RACE: "races",
    FindingKind.ADDRESS_OVERFLOW: "computes an address that overflows 32 bits",
    FindingKind.FALSE_PROMISE: "promises the compiler what does not hold",
}
"""The findings of a checked run that make a candidate unsafe, in words."""

_WORKER_BYTES = 12 << 30


class UnsafeLaunch(KernellabError):
    """A launch that reached memory which it must not, or raced; ``rule`` is the kind of finding."""

    def __init__(self, kernel: str, rule: str, detail: str, line: int | None) -> None:
        super().__init__(f"{kernel} {detail}")
        self.rule = rule
        self.line = line


class FailedLaunch(KernellabError):
    """A launch that failed, hung, or ended its process."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(slots=True)
class CpuLauncher:
    """Launches kernels in one interpreter worker; ``timeout_s`` bounds a launch. Close its ``worker`` at the end.

    With ``in_batches``, independent programs run at once, where that leaves the same outputs and findings.
    While ``is_in_ring``, floats are elements of a ring; ``unmodelled`` are operations that have no meaning there.
    """

    timeout_s: float = 30.0
    in_batches: bool = True
    worker: Worker = field(default_factory=lambda: Worker(INTERPRET_WORKER))
    notes: dict[str, None] = field(default_factory=dict)
    is_in_ring: bool = False
    unmodelled: set[str] = field(default_factory=set)
    _limited: set[int] = field(default_factory=set)

    def __call__(self, closure: Closure, variant: LaunchVariant, arguments: Mapping[str, Any]) -> None:
        """Launch a kernel; its tensors change only after a clean run.

        Raises:
            UnsafeLaunch: it reached memory outside of its arguments, or raced.
            FailedLaunch: it raised, hung, or ended the worker.
        """
        if closure.functions[0].kind == "gluon":
            raise FailedLaunch(f"{closure.name} is a kernel in Gluon, which only a judge with a GPU can run.")
        outcome = self._batched_outcome(closure, variant, arguments)
        if outcome is None:
            outcome = self._outcome(closure, variant, arguments, self.timeout_s)
        unsafe = [finding for finding in outcome.findings if finding.kind in UNSAFE]
        if unsafe:
            raise UnsafeLaunch(closure.name, unsafe[0].kind.value, _detail_of(unsafe), unsafe[0].line)
        if outcome.failure is not None:
            place = outcome.failure.place
            raise FailedLaunch(outcome.failure.message, None if place is None else place.line)
        self.unmodelled |= set(outcome.unmodelled)
        self.notes.update(dict.fromkeys(outcome.notes))

    def _batched_outcome(
        self, closure: Closure, variant: LaunchVariant, arguments: Mapping[str, Any]
    ) -> RunOutcome | None:
        """Return the outcome of a launch with its programs in batches; None where they must run one by one.

        What takes half of the time or ends the worker says nothing against the kernel yet, but ends the batches.
        """
        if not self.in_batches or self.is_in_ring:
            return None
        try:
            outcome = self._outcome(closure, variant, arguments, self.timeout_s / 2, may_batch=True)
        except FailedLaunch:
            self.in_batches = False
            return None
        return None if outcome.needs_fresh_memory else outcome

    def _outcome(
        self,
        closure: Closure,
        variant: LaunchVariant,
        arguments: Mapping[str, Any],
        timeout_s: float,
        *,
        may_batch: bool = False,
    ) -> RunOutcome:
        """Run a launch in the worker, on copies of its tensors; after a clean run, copy them back."""
        from kernellab.interpreter.worker import interpret  # needs numpy, and Triton's interpreter

        name, constants = closure.name, tuple(variant.constants)
        named = {key for key, _ in constants}
        values = {key: value for key, value in arguments.items() if key not in named}
        warps, ring = dict(variant.options).get("num_warps", 4), self.is_in_ring
        with in_shared_memory(values, variant.grid, is_whole=True) as shared:
            device = warps, multiprocessors()
            job = InterpretJob(closure, shared.launch, constants, *device, algebra=ring, may_batch=may_batch)
            try:
                self._limit_memory()
                outcome = self.worker.run(Job(interpret, job, f"kernel {name}"), timeout_s)
            except WorkerTimeout as exc:
                raise FailedLaunch(f"{timeout_text(name, timeout_s, 'did not end')} on the CPU.") from exc
            except WorkerDied as exc:
                raise FailedLaunch(f"{name} ended the process that ran it.") from exc
            if outcome.failure is None:
                shared.take_back(outcome.written)
        return outcome

    def _limit_memory(self) -> None:
        """Bound the memory of the worker's process, once per process, before it runs a kernel."""
        if self.worker.pid is None or self.worker.pid not in self._limited:
            self.worker.run(Job(answer_at_once, None, "the start"), self.timeout_s)
        pid = self.worker.pid
        if pid is not None and pid not in self._limited and hasattr(resource, "prlimit"):
            self._limited.add(pid)
            try:
                resource.prlimit(pid, resource.RLIMIT_AS, (_WORKER_BYTES, _WORKER_BYTES))
            except (OSError, ValueError):
                self.notes["the memory of the worker is not bounded"] = None


def _detail_of(findings: Sequence[Finding]) -> str:
    """The first finding of each kind in words, in the order of the run; other lines than the first one's are named."""
    firsts = {finding.kind: finding for finding in reversed(findings)}
    line, words = findings[0].line, []
    for finding in sorted(firsts.values(), key=findings.index):
        place = "" if finding.line in (None, line) else f" in line {finding.line}"
        words.append(f"{UNSAFE[finding.kind]}{place}{_scene_of(finding)}: {finding.detail}")
    return "; it also ".join(words)


def _scene_of(finding: Finding) -> str:
    """The argument and the program of a finding in words, as far as its detail does not name them."""
    argument, program = f" of {finding.argument}" if finding.argument else "", f"program {finding.program}"
    shown = "" if argument in finding.detail else argument
    return shown if program in finding.detail.lower() else f"{shown}, in {program}"


@dataclass(slots=True)
class GpuLauncher:
    """Launches on the current GPU; with ``is_checked``, each launch is tried between redzones first."""

    lab: Lab
    is_checked: bool = True
    _loaded: dict[str, tuple[LoadedClosure, Any]] = field(default_factory=dict)

    def __call__(self, closure: Closure, variant: LaunchVariant, arguments: Mapping[str, Any]) -> None:
        """Launch a kernel.

        Raises:
            UnsafeLaunch: it wrote outside of its arguments, or faulted.
            FailedLaunch: it does not compile, or cannot run on this GPU.
        """
        launch = self.launch_of(closure, variant, arguments)
        if not self.is_checked:
            launch()
            return
        try:
            with self.lab.checking(nan=False, bounds=True):
                launch()
        except OutOfBounds as exc:
            line = None if exc.place is None else exc.place.line
            raise UnsafeLaunch(
                closure.name, "out_of_bounds", f"reaches beyond its memory: {exc.message}", line
            ) from exc
        except KernellabError as exc:
            raise FailedLaunch(exc.message, None if exc.place is None else exc.place.line) from exc

    def launch_of(self, closure: Closure, variant: LaunchVariant, arguments: Mapping[str, Any]) -> Callable[[], Any]:
        """Return the launch as a function, with descriptors made and constexprs loaded."""
        key = closure.compile_digest
        if key not in self._loaded:
            loaded = load(closure)
            self._loaded[key] = loaded, self.lab.bind(loaded.kernel)
        loaded, bound = self._loaded[key]
        constants = loaded.arguments(variant.constants)
        own = {name: value for name, value in arguments.items() if name.isidentifier()}  # not what addresses reach
        named = {name: with_members(name, value, _with_descriptor) for name, value in own.items()}
        options = {name: value for name, value in variant.options if value is not None}
        on_grid = bound[variant.grid]
        return lambda: on_grid(**named, **constants, **options)


def _with_descriptor(name: str, value: Any) -> Any:
    if isinstance(value, DescriptorArgument):
        return descriptor(value.base, list(value.shape), list(value.strides), list(value.block_shape), value.padding)
    return value
