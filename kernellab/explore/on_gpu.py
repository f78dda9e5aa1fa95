"""Points on the GPU of this machine: timed in the GPU worker, in turns with the best point so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab.compile.types import Compiled
from kernellab.explore.history import Evaluation, Verdict
from kernellab.explore.launching import Request, Verdicts, agreement, first_verdict, outputs_of
from kernellab.launch.runtime import Runtime
from kernellab.measure.implementations import Bench, implementation_of, launched_on_copies
from kernellab.measure.launches import KernelLaunch, Launches, arithmetic, moved_bytes
from kernellab.measure.outcomes import Status
from kernellab.measure.statistics import Interval, interval, ratio_interval
from kernellab.tune.result import Row, with_resources

_FIRST_RUNS = 3
_TIMING_MS = 30.0
_LAUNCH_MS = 0.08  # what a timed launch takes beside itself, for flushing the L2
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 25


@dataclass(frozen=True, slots=True)
class Timed:
    """The row of a point, whether its outputs are right, and how it compares with the best so far."""

    row: Row
    verdict: Verdict
    against: Interval | None = None
    best: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class OnGpu:
    """Times points. Nothing of a bench stays on the device between two of them."""

    runtime: Runtime
    make_bench: Callable[[Launches], Bench]
    inputs: Mapping[str, Any]
    verdicts: Verdicts
    device: int
    timeout_s: float
    _benches: dict[Any, Bench] = field(default_factory=dict)
    _founders: dict[Any, str] = field(default_factory=dict)

    def time(self, request: Request, evaluation: Evaluation, best: Evaluation | None) -> Timed:
        """Return the times of a compiled point.

        Raises:
            KernellabError: the kernel faults, hangs, or cannot be launched.
        """
        import torch

        with torch.cuda.device(self.device):  # a thread begins with the first one
            return self._on_device(request, evaluation, best)

    def _on_device(self, request: Request, evaluation: Evaluation, best: Evaluation | None) -> Timed:
        assert evaluation.compiled is not None, "only what compiled is timed"
        verdict = self._checked(request, evaluation)
        if request.key not in self._benches:
            self._benches[request.key] = self.make_bench(request.launches)
        bench = self._benches[request.key]
        try:
            return self._timed(bench, request, evaluation, best, verdict)
        finally:
            bench.close()

    def _timed(
        self, bench: Bench, request: Request, evaluation: Evaluation, best: Evaluation | None, verdict: Verdict | None
    ) -> Timed:
        config, compiled = request.config, evaluation.compiled
        assert compiled is not None
        seen = len(request.launches.notes)
        candidate = implementation_of(request.launches, config, compiled)
        measured = bench.measure(candidate, _FIRST_RUNS, None)
        notes = tuple(request.launches.notes[seen:])
        verdict = verdict or self._of_group(request, evaluation, measured.group, notes)
        players = [candidate]
        rival = best if best is not None and _can_meet(best, request) else None
        if rival is not None and rival.compiled is not None:
            players.append(implementation_of(request.launches, rival.row.config, rival.compiled, 1))
        rounds = rounds_for(min(measured.times_ms) + (rival.row.time_ms or 0.0 if rival else 0.0))
        played = bench.interleave(players, rounds)
        found = interval(played[0])
        launch = request.launches.of(config)
        flops = arithmetic(launch, compiled).dot_flops
        row = replace(
            with_resources(config, compiled, Status.OK),
            time_ms=found.median,
            low_ms=found.low,
            high_ms=found.high,
            samples=len(played[0]),
            gbps=_gbps(launch, compiled, found.median),
            tflops=flops / found.median / 1e9 if flops and found.median else None,
        )
        if verdict.equal is False:
            row = replace(row, status=Status.WRONG, reason=verdict.text)
        if rival is None:
            return Timed(row, verdict, _unpaired(found, best), None if best is None else best.number, notes)
        return Timed(row, verdict, ratio_interval(played[0], played[1]), rival.number, notes)

    def _of_group(self, request: Request, evaluation: Evaluation, group: int, notes: tuple[str, ...]) -> Verdict:
        """Return what the bench says of the outputs: it puts equal ones into one group, the first of them into 0."""
        not_compared = next((note for note in notes if note.startswith("outputs were not compared")), None)
        if not_compared is not None:
            return Verdict(None, not_compared)
        founder = self._founders.setdefault(request.key, evaluation.point.text)
        return first_verdict() if founder == evaluation.point.text else agreement(founder, group == 0)

    def _checked(self, request: Request, evaluation: Evaluation) -> Verdict | None:
        """Launch on copies after a trial, and compare with the user's reference, where there is one."""
        if self.verdicts.check is None:
            return None
        assert evaluation.compiled is not None
        launch, effects = request.launches.of(request.config), evaluation.compiled.effects
        copies, poisoned = launched_on_copies(self.runtime, launch, effects, "cuda", self.timeout_s, self.inputs)
        return self.verdicts.checked({**launch.arguments, **self.inputs}, outputs_of(copies), poisoned)


def rounds_for(together_ms: float) -> int:
    """Return how many rounds of so many milliseconds give times while a hand rests."""
    rounds = int(_TIMING_MS / (together_ms + _LAUNCH_MS))
    return max(_LEAST_ROUNDS, min(rounds, _MOST_ROUNDS))


def _can_meet(best: Evaluation, request: Request) -> bool:
    """Tell whether the best point is another config of the same launches, so that both can be timed in turns."""
    return best.row.config != request.config and best.key == request.key


def _unpaired(found: Interval, best: Evaluation | None) -> Interval | None:
    """Return how two points compare that were timed apart: no closer than their intervals allow."""
    row = None if best is None else best.row
    if row is None or not (row.time_ms and row.low_ms and row.high_ms):
        return None
    return Interval(found.median / row.time_ms, found.low / row.high_ms, found.high / row.low_ms)


def _gbps(launch: KernelLaunch, compiled: Compiled, time_ms: float) -> float | None:
    moved = moved_bytes(launch.arguments, compiled)
    return moved / time_ms / 1e6 if moved and time_ms else None
