"""Where the points of a panel are worked out: compiled, then run, timed or interpreted, and their outputs compared.

On a GPU they are timed in its worker, in turns with the best point so far. Without one, the interpreter runs them, on
copies, within bounds of programs, memory and time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from kernellab.checking.comparison import agree, compare, error_text
from kernellab.checking.hints import Mismatch, hints_on
from kernellab.checking.reference import ANONYMOUS, Reference, ReferenceFunction, reference_of
from kernellab.compile.cache import Compiler
from kernellab.compile.types import Compiled
from kernellab.errors import CompileError, KernellabError, LaunchError, RunError, UsageError, WorkerTimeout
from kernellab.explore.points import Evaluation, Point, PointHistory, Request, Requests, Verdict, failed_evaluation
from kernellab.explore.schedule import Superseded
from kernellab.launch.arguments import memory_of
from kernellab.launch.calls import Grid3
from kernellab.launch.memory import Copies, size_bytes
from kernellab.launch.poison import Poison, poison
from kernellab.launch.run import Run
from kernellab.launch.runtime import Interpret, Runtime
from kernellab.store.columns import Status
from kernellab.target import Target, parse_target
from kernellab.timing.launches import (
    Bench,
    KernelLaunch,
    Launches,
    arithmetic,
    implementation_of,
    launch_on_copies,
    moved_bytes,
    set_to_zero,
    with_zeros,
)
from kernellab.timing.outcome import reason_of, resources_of
from kernellab.timing.stopwatch import Interval, interval, ratio_interval
from kernellab.tune.result import Row

_FIRST_RUNS = 3
_MOST_FIRSTS = 8  # first points whose outputs are held; after that, a size that comes back has a new first point
_TIMING_MS = 30.0
_LAUNCH_MS = 0.08  # what a timed launch takes beside itself, for flushing the L2
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 25


@dataclass(frozen=True, slots=True)
class TimedPoint:
    """The row of a point, whether its outputs are right, and how it compares with the best so far."""

    row: Row
    verdict: Verdict
    against: Interval | None = None
    best: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class OnGpu:
    """Times points. Nothing of a bench stays on the device between two of them.

    ``zeroed`` names the arguments that are set to zero before each launch.
    """

    runtime: Runtime
    make_bench: Callable[[Launches], Bench]
    inputs: Mapping[str, Any]
    verdicts: Verdicts
    device: int
    timeout_s: float
    zeroed: tuple[str, ...] = ()
    _benches: dict[Any, Bench] = field(default_factory=dict)
    _founders: dict[Any, str] = field(default_factory=dict)

    def time(self, request: Request, evaluation: Evaluation, best: Evaluation | None) -> TimedPoint:
        """Return the times of a compiled point.

        Raises:
            KernellabError: the kernel faults, hangs, or cannot be launched.
        """
        import torch

        with torch.cuda.device(self.device):  # a thread begins with the first one
            return self._on_device(request, evaluation, best)

    def _on_device(self, request: Request, evaluation: Evaluation, best: Evaluation | None) -> TimedPoint:
        assert evaluation.compiled is not None, "only what compiled is timed"
        verdict = self._check(request, evaluation)
        if request.key not in self._benches:
            self._benches[request.key] = self.make_bench(request.launches)
        bench = self._benches[request.key]
        try:
            return self._time(bench, request, evaluation, best, verdict)
        finally:
            bench.close()

    def _time(
        self, bench: Bench, request: Request, evaluation: Evaluation, best: Evaluation | None, verdict: Verdict | None
    ) -> TimedPoint:
        config, compiled = request.config, evaluation.compiled
        assert compiled is not None
        seen = len(request.launches.notes)
        candidate = implementation_of(request.launches, config, compiled)
        measured = bench.measure(candidate, _FIRST_RUNS, None)
        notes = tuple(request.launches.notes[seen:])
        verdict = verdict or self._of_group(request, evaluation, measured.group, notes)
        players = [candidate]
        rival = best if best is not None and _same_launches(best, request) else None
        if rival is not None and rival.compiled is not None:
            players.append(implementation_of(request.launches, rival.row.config, rival.compiled, 1))
        rounds = rounds_for(min(measured.times_ms) + (rival.row.time_ms or 0.0 if rival else 0.0))
        played = bench.interleave(players, rounds)
        found = interval(played[0])
        launch = request.launches.of(config)
        flops = arithmetic(launch, compiled).dot_flops
        row = replace(
            Row(config, Status.OK, **resources_of(compiled)),
            time_ms=found.median,
            low_ms=found.low,
            high_ms=found.high,
            samples=len(played[0]),
            gbps=_gbps(launch, compiled, found.median),
            tflops=flops / found.median / 1e9 if flops and found.median else None,
        )
        if verdict.equal is False:
            row = replace(row, status=verdict.status, reason=verdict.text)
        if rival is None:
            return TimedPoint(row, verdict, _interval_apart(found, best), None if best is None else best.number, notes)
        return TimedPoint(row, verdict, ratio_interval(played[0], played[1]), rival.number, notes)

    def _of_group(self, request: Request, evaluation: Evaluation, group: int, notes: tuple[str, ...]) -> Verdict:
        """Return the verdict of the bench: equal outputs share a group, the first is 0."""
        not_compared = next((note for note in notes if note.startswith("outputs were not compared")), None)
        if not_compared is not None:
            return Verdict(None, not_compared)
        founder = self._founders.setdefault(request.key, evaluation.point.text)
        return first_verdict() if founder == evaluation.point.text else verdict_against_first(founder, group == 0)

    def _check(self, request: Request, evaluation: Evaluation) -> Verdict | None:
        """Launch on copies after a trial, and compare with the user's reference, where there is one."""
        if self.verdicts.check is None:
            return None
        assert evaluation.compiled is not None
        launch, effects = request.launches.of(request.config), evaluation.compiled.effects
        given = self.inputs, self.zeroed
        copies, poisoned = launch_on_copies(self.runtime, launch, effects, self.runtime.device, self.timeout_s, *given)
        before = with_zeros({**launch.arguments, **self.inputs}, self.zeroed)
        return self.verdicts.checked(before, outputs_of(copies), poisoned)


def rounds_for(together_ms: float) -> int:
    """Return the number of timing rounds of so many milliseconds for one slider move."""
    rounds = int(_TIMING_MS / (together_ms + _LAUNCH_MS))
    return max(_LEAST_ROUNDS, min(rounds, _MOST_ROUNDS))


def _same_launches(best: Evaluation, request: Request) -> bool:
    """Return whether the best point is a config of the same launches, timed in turns with this one."""
    return best.row.config != request.config and best.key == request.key


def _interval_apart(found: Interval, best: Evaluation | None) -> Interval | None:
    """Compare two points that were timed apart: no closer than their intervals allow."""
    row = None if best is None else best.row
    if row is None or not (row.time_ms and row.low_ms and row.high_ms):
        return None
    return Interval(found.median / row.time_ms, found.low / row.high_ms, found.high / row.low_ms)


def _gbps(launch: KernelLaunch, compiled: Compiled, time_ms: float) -> float | None:
    moved = moved_bytes(launch.arguments, compiled)
    return moved / time_ms / 1e6 if moved and time_ms else None


PROGRAMS_AT_MOST = 512
BYTES_AT_MOST = 256 << 20
SECONDS_AT_MOST = 10.0


@dataclass(frozen=True, slots=True)
class InterpretedPoint:
    """A point on the interpreter; ``run`` is None where it did not run, with the reason in the verdict."""

    run: Run | None
    verdict: Verdict


@dataclass(slots=True)
class CpuRuns:
    """Runs points in the interpreter, each distinct computation once: options and target change nothing of it.

    ``inputs`` are the arguments that the panel was made with, as copies of its own; ``zeroed`` names those that are set
    to zero before each launch.
    """

    interpret: Interpret
    inputs: Mapping[str, Any]
    verdicts: Verdicts
    zeroed: tuple[str, ...] = ()
    _ran: dict[Any, InterpretedPoint] = field(default_factory=dict)

    def run(self, request: Request, launch: KernelLaunch, compiled: Compiled, text: str) -> InterpretedPoint:
        """Run a point on the interpreter.

        Raises:
            KernellabError: the kernel fails, or does not end in time.
        """
        key = (request.key[1:], request.config.parameters)
        if key not in self._ran:
            self._ran[key] = self._fresh(request, launch, compiled, text)
        return self._ran[key]

    def _fresh(self, request: Request, launch: KernelLaunch, compiled: Compiled, text: str) -> InterpretedPoint:
        held = size_bytes(self.inputs)
        if held > BYTES_AT_MOST:
            return InterpretedPoint(
                None, Verdict(None, f"not run: the arguments hold {held / 1e6:,.0f} MB, too much for here")
            )
        if 0 in launch.grid:
            return InterpretedPoint(None, Verdict(None, "not run: the grid is empty"))
        copies = Copies({**launch.arguments, **self.inputs}, compiled.effects, "cpu")
        arguments = copies.arguments
        set_to_zero(arguments, self.zeroed)
        poisoned = poison(arguments, compiled.effects, copies=True)
        grid = bound_grid(launch.grid)
        run = self.interpret(launch.function, copies.everything, grid, SECONDS_AT_MOST)
        if grid != launch.grid:
            ran, programs = prod(grid), prod(launch.grid)
            return InterpretedPoint(run, Verdict(None, f"not compared: {ran:,} of {programs:,} programs ran"))
        before = with_zeros({**launch.arguments, **self.inputs}, self.zeroed)
        outputs = outputs_of(copies)
        return InterpretedPoint(run, self.verdicts.verdict(request.sizes, text, before, outputs, poisoned))


def bound_grid(grid: Grid3, most: int = PROGRAMS_AT_MOST) -> Grid3:
    """Return the grid with at most ``most`` programs, for a quick answer."""
    x = min(grid[0], most)
    y = min(grid[1], max(1, most // x))
    return x, y, min(grid[2], max(1, most // (x * y)))


WITHOUT_GPU = "not timed: there is no GPU"
OTHER_TARGET = "compiled only: this machine has no such GPU"

Tell = Callable[[Evaluation], None]


@dataclass(slots=True)
class Evaluator:
    """Works points out, one at a time. ``here`` is the target of the GPU, None where there is none."""

    compiler: Compiler
    requests: Requests
    history: PointHistory
    here: Target | None
    interpreted: CpuRuns | None
    on_gpu: OnGpu | None

    def evaluate(self, point: Point, superseded: Superseded, tell: Tell) -> Evaluation:
        """Evaluate a point; ``tell`` gets the compiled part as soon as it is there.

        Whatever fails is part of the answer. Work that a newer point has superseded stops after the compile.
        """
        target = self.target_of(point)
        request = self.requests.of(point, target)
        try:
            compiled = self.compiler.compile(request.launches.of(request.config).job)
        except Exception as exc:  # noqa: BLE001 - a grid is a function of the user, and any failure is shown in place
            return _not_compiled(point, request, exc)
        evaluation = self._compiled_evaluation(point, request, compiled)
        if evaluation.has_failed or superseded:
            return evaluation
        if self.on_gpu is None and self.interpreted is None:
            return evaluation
        tell(replace(evaluation, is_partial=True))
        try:
            return self._launch(evaluation, request, target)
        except Exception as exc:  # noqa: BLE001 - so is a reference
            return _not_run(evaluation, _as_error(exc))

    def target_of(self, point: Point) -> Target:
        """Return the target of a point, which is the GPU of this machine where it names none."""
        if point.target:
            return parse_target(point.target)
        assert self.here is not None, "a point without a target is one of a GPU"
        return self.here

    def _compiled_evaluation(self, point: Point, request: Request, compiled: Compiled) -> Evaluation:
        launch, resources = request.launches.of(request.config), compiled.resources
        reason = WITHOUT_GPU if self.here is None else OTHER_TARGET
        row = Row(request.config, Status.NOT_TIMED, reason, **resources_of(compiled))
        error = None
        if not resources.fits:
            row = replace(row, status=Status.CANNOT_RUN, reason=resources.why_not or "")
            error = LaunchError(f"{compiled.kernel} cannot run on {compiled.target}: {resources.why_not}.")
        target = str(compiled.target)
        return Evaluation(point, target, row, compiled, launch.grid, request.sizes, error=error, key=request.key)

    def _launch(self, evaluation: Evaluation, request: Request, target: Target) -> Evaluation:
        if self.on_gpu is not None and target == self.here:
            best = self.history.best_of(evaluation.sizes, evaluation.target)
            timed = self.on_gpu.time(request, evaluation, best)
            return replace(
                evaluation,
                row=timed.row,
                verdict=timed.verdict,
                against=timed.against,
                best=timed.best,
                notes=timed.notes,
            )
        if self.interpreted is None or evaluation.compiled is None:
            return evaluation
        launch = request.launches.of(request.config)
        ran = self.interpreted.run(request, launch, evaluation.compiled, evaluation.point.text)
        row = evaluation.row
        if ran.verdict.equal is False:
            row = replace(row, status=ran.verdict.status, reason=ran.verdict.text)
        return replace(evaluation, row=row, run=ran.run, verdict=ran.verdict)


def _not_compiled(point: Point, request: Request, exc: Exception) -> Evaluation:
    error = _as_error(exc)
    status = Status.TIMEOUT if isinstance(error, WorkerTimeout) else Status.CANNOT_RUN
    if isinstance(error, CompileError) or not isinstance(error, UsageError | WorkerTimeout):
        status = Status.COMPILE_ERROR
    evaluation = failed_evaluation(point, str(request.launches.target), request.config, status, error)
    return replace(evaluation, sizes=request.sizes, key=request.key)


def _not_run(evaluation: Evaluation, error: KernellabError) -> Evaluation:
    status = Status.TIMEOUT if isinstance(error, WorkerTimeout) else Status.FAULT
    if isinstance(error, UsageError):
        status = Status.CANNOT_RUN
    return replace(evaluation, row=replace(evaluation.row, status=status, reason=reason_of(error)), error=error)


def _as_error(exc: Exception) -> KernellabError:
    """Return an exception as one of the lab; one of the user's own functions keeps its type in the message."""
    if isinstance(exc, KernellabError):
        return exc
    return RunError(f"{type(exc).__name__}: {exc}")


@dataclass(slots=True)
class Verdicts:
    """The values that outputs are compared with.

    ``check`` is a reference, or how one is computed from the arguments of each point. Without it, the outputs of the
    first point are the reference of all that compute the same. ``text`` names it.
    """

    check: ReferenceFunction | Reference | None
    text: str = ""
    _firsts: dict[Any, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the user's reference in messages."""
        name = self.text or ("" if self.check is None else self.check.text)
        return "check" if name == ANONYMOUS else name

    def verdict(
        self, sizes: Any, text: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], poisoned: Poison
    ) -> Verdict:
        """Return whether the outputs of the point ``text`` are right; ``inputs`` are the arguments before the launch.

        Raises:
            UsageError: the reference does not fit the outputs, or asks for what the kernel does not take.
        """
        if self.check is not None:
            return self.checked(inputs, outputs, poisoned)
        known = self._firsts.get(sizes)
        if known is None:
            while len(self._firsts) >= _MOST_FIRSTS:
                del self._firsts[next(iter(self._firsts))]
            self._firsts[sizes] = (text, {name: tensor.clone() for name, tensor in outputs.items()})
            return first_verdict()
        first, expected = known
        return verdict_against_first(
            first, all(agree(outputs[name], expected[name]) for name in expected if name in outputs)
        )

    def checked(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], poisoned: Poison) -> Verdict:
        """Return whether outputs equal the user's reference; they were ``poisoned`` before the launch."""
        assert self.check is not None, "there is a reference to compare with"
        reference = self.check if isinstance(self.check, Reference) else reference_of(self.check, inputs)
        poisoned.lift()
        values = reference.of(outputs)
        checks = compare(self.name, values, outputs, poisoned.unwritten, poisoned.fills)
        wrong = next((check for check in checks if not check.equal), None)
        if wrong is None:
            return Verdict(True, f"equals {self.name}, {error_text(checks)}", by_reference=True)
        name = wrong.argument
        facts = Mismatch(name, self.name, outputs[name], values[name], unwritten=poisoned.unwritten.get(name))
        return Verdict(False, ". ".join([wrong.text, *(hint.text for hint in hints_on(facts)[:1])]), by_reference=True)


def outputs_of(copies: Copies) -> dict[str, Any]:
    """Return the tensors that a kernel may write, by name; all of them where an effect is unknown."""
    tensors = {**memory_of(copies.arguments), **copies.reached}
    if not copies.effects.is_followed:
        return tensors
    mutated = copies.effects.mutated | copies.behind.mutated
    return {name: tensor for name, tensor in tensors.items() if name in mutated}


def first_verdict() -> Verdict:
    """Return the verdict on the point that others are compared with."""
    return Verdict(None, "the first point, with which others are compared")


def verdict_against_first(first: str, agrees: bool) -> Verdict:
    """Return the verdict of a comparison with the first point."""
    return Verdict(agrees, f"{'agrees with' if agrees else 'differs from'} the first point ({first})")
