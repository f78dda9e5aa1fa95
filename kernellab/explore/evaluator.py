"""Evaluates the points of a panel: compiled, then run, timed or interpreted, and their outputs compared.

On a GPU they are timed in its worker, in turns with the best point so far. Without one, the interpreter runs them, on
copies, within bounds of programs, memory and time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from math import prod
from threading import Event
from typing import TYPE_CHECKING, Any

from kernellab.checking.comparison import OutputDifference, compare, error_text, output_difference
from kernellab.checking.hints import Mismatch, hints_on
from kernellab.checking.reference import ANONYMOUS, Reference, ReferenceFunction, reference_of
from kernellab.compile.cache import Compiler
from kernellab.compile.types import Compiled
from kernellab.errors import CompileError, KernellabError, LaunchError, RunError, UsageError, WorkerTimeout
from kernellab.explore.points import FIRST, Evaluation, OutputComparison, Point, PointHistory, Request, Requests
from kernellab.launch.arguments import memory_of
from kernellab.launch.calls import Grid3
from kernellab.launch.memory import Copies, size_bytes
from kernellab.launch.poison import Poison
from kernellab.launch.run import Run
from kernellab.launch.runtime import Interpret, Runtime
from kernellab.store.columns import Status
from kernellab.target import Target, parse_target
from kernellab.timing.bench import Bench
from kernellab.timing.launches import (
    Implementation,
    KernelLaunch,
    Launches,
    arithmetic,
    copies_to_launch,
    implementation_of,
    launch_on_copies,
    moved_bytes,
    replaced_arguments,
    with_zeros,
)
from kernellab.timing.outcome import reason_of, resource_columns
from kernellab.timing.stopwatch import Interval, interval, ratio_interval
from kernellab.tune.result import Row
from kernellab.tune.rows import with_prediction

if TYPE_CHECKING:
    from kernellab.explain.prediction import Prediction

_FIRST_RUNS = 3
_FIRST_POINT, _FIRST_CONFIG = "the first point ({})", "the config of the first point ({})"
_MOST_FIRSTS = 8  # first points whose outputs are held; a size that comes back after that gets them again
_TIMING_MS = 30.0
_LAUNCH_MS = 0.08  # what a timed launch takes beside itself, for flushing the L2
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 25


@dataclass(slots=True)
class OnGpu:
    """Times points. Nothing of a bench stays on the device between two of them.

    ``zeroed`` names the arguments that are set to zero before each launch.
    """

    runtime: Runtime
    make_bench: Callable[[Launches], Bench]
    inputs: Mapping[str, Any]
    comparer: OutputComparer
    device: int
    timeout_s: float
    zeroed: tuple[str, ...] = ()
    _benches: dict[Any, Bench] = field(default_factory=dict)
    _founders: dict[Any, tuple[str, str, Implementation]] = field(default_factory=dict)

    def run(self, request: Request, compiled: Compiled, evaluation: Evaluation, best: Evaluation | None) -> Evaluation:
        """Return the evaluation of a compiled point with its times, in turns with the best so far.

        Raises:
            KernellabError: the kernel faults, hangs, or cannot be launched.
        """
        import torch

        launches, config, key, text = request.launches, request.config, request.key, evaluation.point.text
        with torch.cuda.device(self.device):  # a thread begins with the first one
            verdict = self._check(request, compiled)
            if key not in self._benches:
                self._benches[key] = self.make_bench(launches)
            with closing(self._benches[key]) as bench:
                seen = len(launches.notes)
                candidate = implementation_of(launches, config, compiled)
                measured = bench.measure(candidate, _FIRST_RUNS, None)
                notes = tuple(launches.notes[seen:])
                verdict = verdict or self._compare_groups(bench, key, text, candidate, measured.group, notes)
                players, together_ms = [candidate], min(measured.times_ms)
                # The best point races where it is another config of the same launches.
                if best is not None and best.compiled is not None and best.row.config != config and best.key == key:
                    players.append(implementation_of(launches, best.row.config, best.compiled, 1))
                    together_ms += best.row.time_ms or 0.0
                first, *others = bench.interleave(players, rounds_for(together_ms))
            row = _timed_row(evaluation.row, launches.of(config), compiled, first)
        if verdict.equal is False:
            row = replace(row, status=verdict.status, reason=verdict.text)
        against = ratio_interval(first, others[0]) if others else _interval_apart(interval(first), best)
        number = None if best is None else best.number
        return replace(evaluation, row=row, verdict=verdict, against=against, best=number, notes=notes)

    def lacks_first(self, request: Request) -> bool:
        """Whether the outputs of a point would be the first of its launches, so that others are compared with them."""
        return self.comparer.check is None and request.key not in self._founders

    def run_first(self, request: Request, compiled: Compiled, text: str) -> None:
        """Launch the point ``text`` before others of its launches, so that these are compared with it.

        Raises:
            KernellabError: the kernel faults, hangs, or cannot be launched.
        """
        import torch

        launches, key = request.launches, request.key
        with torch.cuda.device(self.device):
            if key not in self._benches:
                self._benches[key] = self.make_bench(launches)
            with closing(self._benches[key]) as bench:
                candidate = implementation_of(launches, request.config, compiled)
                measured = bench.measure(candidate, _FIRST_RUNS, None)
        if measured.group == 0:  # else its outputs are not held
            self._founders[key] = (text, _FIRST_CONFIG.format(text), candidate)

    def _compare_groups(
        self, bench: Bench, key: Any, text: str, candidate: Implementation, group: int, notes: tuple[str, ...]
    ) -> OutputComparison:
        """Return the comparison by the bench: equal outputs share a group, the first is 0."""
        not_compared = next((note for note in notes if note.startswith("outputs were not compared")), None)
        if not_compared is not None:
            return OutputComparison(None, not_compared)
        first, words, founder = self._founders.setdefault(key, (text, _FIRST_POINT.format(text), candidate))
        if first == text:
            return FIRST
        return _comparison_with_first(words, () if group == 0 else bench.compare(founder, [candidate])[0])

    def _check(self, request: Request, compiled: Compiled) -> OutputComparison | None:
        if self.comparer.check is None:
            return None
        launch, runtime = request.launches.of(request.config), self.runtime
        copies, poisoned = launch_on_copies(
            runtime, launch, compiled.effects, runtime.device, self.timeout_s, self.inputs, self.zeroed
        )
        before = with_zeros(replaced_arguments(launch, self.inputs), self.zeroed)
        return self.comparer.compare_with_check(before, outputs_of(copies), poisoned)


def rounds_for(together_ms: float) -> int:
    """Return the number of timing rounds of so many milliseconds for one slider move."""
    rounds = int(_TIMING_MS / (together_ms + _LAUNCH_MS))
    return max(_LEAST_ROUNDS, min(rounds, _MOST_ROUNDS))


def _timed_row(row: Row, launch: KernelLaunch, compiled: Compiled, times_ms: Sequence[float]) -> Row:
    time = interval(times_ms)
    flops, moved = arithmetic(launch, compiled).dot_flops, moved_bytes(launch.arguments, compiled)
    return replace(
        row,
        status=Status.OK,
        reason="",
        time_ms=time.median,
        low_ms=time.low,
        high_ms=time.high,
        samples=len(times_ms),
        gbps=moved / time.median / 1e6 if moved and time.median else None,
        tflops=flops / time.median / 1e9 if flops and time.median else None,
    )


def _interval_apart(time: Interval, best: Evaluation | None) -> Interval | None:
    """Compare two points that were timed apart: no closer than their intervals allow."""
    row = None if best is None else best.row
    if row is None or not (row.time_ms and row.low_ms and row.high_ms):
        return None
    return Interval(time.median / row.time_ms, time.low / row.high_ms, time.high / row.low_ms)


PROGRAMS_AT_MOST = 512
BYTES_AT_MOST = 256 << 20
SECONDS_AT_MOST = 10.0


@dataclass(slots=True)
class OnCpu:
    """Runs points in the interpreter, each distinct computation once: options and target change nothing of it.

    ``inputs`` are the arguments that the panel was made with, as copies of its own; ``zeroed`` names those that are set
    to zero before each launch.
    """

    interpret: Interpret
    inputs: Mapping[str, Any]
    comparer: OutputComparer
    zeroed: tuple[str, ...] = ()
    _runs: dict[Any, tuple[str, Run | None, OutputComparison]] = field(default_factory=dict)

    def run(self, request: Request, compiled: Compiled, evaluation: Evaluation, best: Evaluation | None) -> Evaluation:
        """Return the evaluation of a compiled point with its run, or with the reason why it did not run.

        Raises:
            KernellabError: the kernel fails, or does not end in time.
        """
        key, text = (request.key[1:], request.config.parameters), evaluation.point.text
        if key not in self._runs:
            self._runs[key] = (text, *self._run(request, compiled, _FIRST_POINT.format(text)))
        first, run, verdict = self._runs[key]
        if verdict is FIRST and first != text:
            verdict = OutputComparison(True, f"same run as the first point ({first}): options change no output here")
        row = evaluation.row
        if verdict.equal is False:
            row = replace(row, status=verdict.status, reason=verdict.text)
        return replace(evaluation, row=row, run=run, verdict=verdict)

    def lacks_first(self, request: Request) -> bool:
        """Whether the outputs of a point would be the first of its sizes, so that others are compared with them."""
        if self.comparer.knows(request.sizes) or (request.key[1:], request.config.parameters) in self._runs:
            return False
        grid = request.launches.of(request.config).grid
        return size_bytes(self.inputs) <= BYTES_AT_MOST and 0 not in grid and bound_grid(grid) == grid

    def run_first(self, request: Request, compiled: Compiled, text: str) -> None:
        """Run the point ``text`` before others of its sizes, so that these are compared with it.

        Raises:
            KernellabError: the kernel fails, or does not end in time.
        """
        if self.lacks_first(request):
            found = self._run(request, compiled, _FIRST_CONFIG.format(text))
            self._runs[request.key[1:], request.config.parameters] = (text, *found)

    def _run(self, request: Request, compiled: Compiled, words: str) -> tuple[Run | None, OutputComparison]:
        launch, held = request.launches.of(request.config), size_bytes(self.inputs)
        if held > BYTES_AT_MOST:
            return None, OutputComparison(None, f"not run: the arguments hold {held / 1e6:,.0f} MB, too much for here")
        if 0 in launch.grid:
            return None, OutputComparison(None, "not run: the grid is empty")
        copies, poisoned = copies_to_launch(launch, compiled.effects, "cpu", self.inputs, self.zeroed)
        grid = bound_grid(launch.grid)
        run = self.interpret(launch.function, copies.everything, grid, SECONDS_AT_MOST)
        if grid != launch.grid:
            return run, OutputComparison(None, f"not compared: {prod(grid):,} of {prod(launch.grid):,} programs ran")
        before = with_zeros(replaced_arguments(launch, self.inputs), self.zeroed)
        return run, self.comparer.compare(request.sizes, words, before, outputs_of(copies), poisoned)


def bound_grid(grid: Grid3) -> Grid3:
    """Return the grid with at most `PROGRAMS_AT_MOST` programs, for a quick answer."""
    x = min(grid[0], PROGRAMS_AT_MOST)
    y = min(grid[1], max(1, PROGRAMS_AT_MOST // x))
    return x, y, min(grid[2], max(1, PROGRAMS_AT_MOST // (x * y)))


WITHOUT_GPU = "not timed: there is no GPU"
OTHER_TARGET = "compiled only: this machine has no such GPU"


@dataclass(slots=True)
class Evaluator:
    """Works points out, one at a time. ``here`` is the target of the GPU, None where there is none.

    ``predict`` predicts the time of a point for another target; None of one that would take long.
    """

    compiler: Compiler
    requests: Requests
    history: PointHistory
    here: Target | None
    runner: OnCpu | OnGpu
    predict: Callable[[Implementation], Prediction | None] = lambda launch: None

    def evaluate(self, point: Point, superseded: Event, tell: Callable[[Evaluation], None]) -> Evaluation:
        """Evaluate a point; pass the compiled part to ``tell`` as soon as it exists.

        Whatever fails is part of the answer. Work that a newer point has superseded stops after the compile.
        """
        target = self.target_of(point)
        request = self.requests.of(point, target)
        try:
            launch = request.launches.of(request.config)
            compiled = self.compiler.compile(launch.job)
        except Exception as exc:  # noqa: BLE001 - a grid is a function of the user, and any failure is shown in place
            return _not_compiled(point, request, exc)
        evaluation = _compiled_evaluation(point, request, compiled, launch.grid, has_gpu=self.here is not None)
        if evaluation.has_failed or superseded.is_set():
            return evaluation
        tell(replace(evaluation, is_partial=True))
        if self.here != target:
            prediction = self.predict(implementation_of(request.launches, request.config, compiled))
            if prediction is not None:
                row = with_prediction(evaluation.row, prediction)
                evaluation = replace(evaluation, row=row, prediction=prediction)
                tell(replace(evaluation, is_partial=True))
        if self.here not in (None, target) or superseded.is_set():
            return evaluation
        best = self.history.best_of(evaluation.sizes, evaluation.target)
        try:
            self._run_first_config(point, request)
            if superseded.is_set():
                return evaluation
            return self.runner.run(request, compiled, evaluation, best)
        except Exception as exc:  # noqa: BLE001 - so is a reference
            return _not_run(evaluation, _as_error(exc))

    def _run_first_config(self, point: Point, request: Request) -> None:
        """Run the config of the panel's first point on the arguments of a point that has nothing to be compared with.

        Else a config whose outputs differed would be what others are compared with as soon as an argument changes.
        """
        first = self.history.first_compared()
        if first is None or not self.runner.lacks_first(request):
            return
        sizes = {name for name, _ in request.sizes}
        values = tuple((name, point.named[name] if name in sizes else value) for name, value in first.point.values)
        config = Point(values, point.target)
        own = self.requests.of(config, request.launches.target)
        if config == point or (isinstance(self.runner, OnGpu) and own.key != request.key):
            return  # on a GPU, outputs of other grids are not compared
        with suppress(Exception):  # where that config fails, this point is the first of its arguments, and says so
            compiled = self.compiler.compile(own.launches.of(own.config).job)
            self.runner.run_first(own, compiled, config.text)

    def target_of(self, point: Point) -> Target:
        """Return the target of a point, which is the GPU of this machine where it names none."""
        if point.target:
            return parse_target(point.target)
        assert self.here is not None, "a point without a target is one of a GPU"
        return self.here


def _compiled_evaluation(
    point: Point, request: Request, compiled: Compiled, grid: Grid3, *, has_gpu: bool
) -> Evaluation:
    resources, error = compiled.resources, None
    status, reason = Status.NOT_TIMED, OTHER_TARGET if has_gpu else WITHOUT_GPU
    if not resources.fits:
        status, reason = Status.CANNOT_RUN, resources.why_not or ""
        error = LaunchError(f"{compiled.kernel} cannot run on {compiled.target}: {resources.why_not}.")
    row = Row(request.config, status, reason, **resource_columns(compiled))
    return Evaluation(point, str(compiled.target), row, compiled, grid, request.sizes, error=error, key=request.key)


def _not_compiled(point: Point, request: Request, exc: Exception) -> Evaluation:
    error = _as_error(exc)
    status = Status.TIMEOUT if isinstance(error, WorkerTimeout) else Status.CANNOT_RUN
    if isinstance(error, CompileError) or not isinstance(error, UsageError | WorkerTimeout):
        status = Status.COMPILE_ERROR
    row = Row(request.config, status, reason_of(error))
    return Evaluation(point, str(request.launches.target), row, sizes=request.sizes, error=error, key=request.key)


def _not_run(evaluation: Evaluation, error: KernellabError) -> Evaluation:
    status = Status.TIMEOUT if isinstance(error, WorkerTimeout) else Status.FAULT
    if isinstance(error, UsageError):
        status = Status.CANNOT_RUN
    return replace(evaluation, row=replace(evaluation.row, status=status, reason=reason_of(error)), error=error)


def _as_error(exc: Exception) -> KernellabError:
    """Return an exception as one of the lab; one of the user's own functions keeps its type in the message."""
    return exc if isinstance(exc, KernellabError) else RunError(f"{type(exc).__name__}: {exc}")


@dataclass(slots=True)
class OutputComparer:
    """The values that outputs are compared with.

    ``check`` is a reference, or how one is computed from the arguments of each point. Without it, outputs are compared
    with those of the first point that computes the same, and nothing says which are right.
    """

    check: ReferenceFunction | Reference | None
    _firsts: dict[Any, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def knows(self, sizes: Any) -> bool:
        """Whether there is something that the outputs of these sizes are compared with."""
        return self.check is not None or sizes in self._firsts

    def compare(
        self, sizes: Any, words: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], poisoned: Poison
    ) -> OutputComparison:
        """Compare the outputs of a point; ``inputs`` are the arguments before the launch.

        ``words`` name the point where later ones are compared with it.

        Raises:
            UsageError: the reference does not fit the outputs, or asks for what the kernel does not take.
        """
        if self.check is not None:
            return self.compare_with_check(inputs, outputs, poisoned)
        if sizes in self._firsts:
            first, expected = self._firsts[sizes]
            pairs = ((name, outputs[name], expected[name]) for name in expected if name in outputs)
            return _comparison_with_first(first, list(filter(None, (output_difference(*pair) for pair in pairs))))
        while len(self._firsts) >= _MOST_FIRSTS:
            del self._firsts[next(iter(self._firsts))]
        self._firsts[sizes] = (words, {name: tensor.clone() for name, tensor in outputs.items()})
        return FIRST

    def compare_with_check(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], poisoned: Poison
    ) -> OutputComparison:
        """Compare outputs with the user's reference; they were ``poisoned`` before the launch."""
        assert self.check is not None, "there is a reference to compare with"
        reference = self.check if isinstance(self.check, Reference) else reference_of(self.check, inputs)
        poisoned.lift()
        values = reference.of(outputs)
        title = "check" if self.check.text == ANONYMOUS else self.check.text
        checks = compare(title, values, outputs, poisoned.unwritten, poisoned.fills)
        wrong = next((check for check in checks if not check.equal), None)
        if wrong is None:
            return OutputComparison(True, f"matches {title}; {error_text(checks)}", by_reference=True)
        name = wrong.argument
        facts = Mismatch(name, title, outputs[name], values[name], unwritten=poisoned.unwritten.get(name))
        return OutputComparison(False, ". ".join([wrong.text, *list(hints_on(facts).values())[:1]]), by_reference=True)


def _comparison_with_first(first: str, differences: Sequence[OutputDifference]) -> OutputComparison:
    """Return the comparison with the outputs of the ``first`` point, which no reference was compared with."""
    if not differences:
        return OutputComparison(True, f"agrees with {first}")
    how = "; ".join(difference.text for difference in differences)
    return OutputComparison(False, f"differs from {first}, which is not checked: {how}")


def outputs_of(copies: Copies) -> dict[str, Any]:
    """Return the tensors that a kernel may write, by name; all of them where an effect is unknown."""
    tensors = {**memory_of(copies.arguments), **copies.reached}
    if not copies.effects.is_followed:
        return tensors
    mutated = copies.effects.mutated | copies.behind.mutated
    return {name: tensor for name, tensor in tensors.items() if name in mutated}
