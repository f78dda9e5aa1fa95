"""A candidate on a GPU: right there, too, and how fast.

Each sample runs the program on fresh contents at fresh addresses, after the L2 was flushed and while the device is idle
but for the flush; its outputs are compared. The candidate and the baseline are timed in turns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from kernellab.checking.comparison import index_of
from kernellab.checking.reference import select_arguments
from kernellab.errors import KernellabError, UsageError, first_line
from kernellab.judge.correctness import Examiner, examine
from kernellab.judge.launchers import FailedLaunch, GpuLauncher
from kernellab.judge.program import CandidateProgram
from kernellab.judge.questions import config_count, is_floating
from kernellab.judge.replay import Replay, copies_of, element_count, fill_bytes, same_bits
from kernellab.judge.specification import Case, Specification
from kernellab.judge.verdict import AS_SPECIFIED, Decision, Reason, Timing, Verdict
from kernellab.source import Closure
from kernellab.target import device_name
from kernellab.timing.stopwatch import Stopwatch, Turn, device_state, gpu_stopwatch, interval, ratio_interval

if TYPE_CHECKING:
    from kernellab.lab import Lab

ROUNDS = 100
_FIRST_ROUNDS = 5
_CONFIDENCE = 0.95
_CONTENTS = 4  # sets of inputs of different contents, taken in turn
_PART = 1 << 26  # elements that are compared at once
_HELD = 3  # sets that stay allocated, so that their addresses do not come back
_LAUNCH_BOUND_US = 5.0
_BEYOND_ROOF = 0.9
_CLOCK_CHANGE = 0.05
_SAMPLED_ELEMENTS = 24
_LEFT_OVER = 0x7B

Run = Callable[[Mapping[str, Any]], list[torch.Tensor]]
"""Runs a program on inputs, which it may change, and returns its outputs."""


@dataclass(slots=True)
class TimedProgram:
    """Runs of a program for the stopwatch: ``before`` makes fresh inputs, ``launch`` runs, ``after`` compares.

    ``expected`` has the outputs for each of ``contents``.
    """

    run: Run
    contents: Sequence[Mapping[str, Any]]
    expected: Sequence[Sequence[torch.Tensor]]
    allocations: Sequence[tuple[int, ...]] = ()
    wrong: list[torch.Tensor] = field(default_factory=list)
    _number: int = 0
    _given: Mapping[str, Any] = field(default_factory=dict)
    _outputs: list[torch.Tensor] = field(default_factory=list)
    _held: list[Any] = field(default_factory=list)
    _largest: list[list[torch.Tensor]] = field(init=False)  # magnitudes of the expected outputs

    def __post_init__(self) -> None:
        self._largest = [[_largest(output) for output in outputs] for outputs in self.expected]

    def turn(self) -> Turn:
        """Return the program as a turn of a stopwatch."""
        return Turn(self._launch, self._before, self._after)

    def _before(self) -> None:
        self._held = [*self._held, (self._given, self._outputs)][-_HELD:]
        self._number += 1
        self._given = copies_of(self.contents[self._number % len(self.contents)], "cuda")
        for size in [torch.empty(shape, dtype=torch.uint8, device="cuda") for shape in self.allocations]:
            fill_bytes(size, _LEFT_OVER)

    def _launch(self) -> None:
        self._outputs = self.run(self._given)

    def _after(self) -> None:
        number = self._number % len(self.contents)
        for got, want, largest in zip(self._outputs, self.expected[number], self._largest[number], strict=True):
            if got.numel():
                self.wrong.append(_is_beyond(got, want, largest))

    def has_wrong(self) -> bool:
        """Whether an output of a timed run was wrong."""
        return any(bool(flag) for flag in self.wrong)


def _is_beyond(got: torch.Tensor, want: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """Whether an element is further away than some roundings of it and of the largest, as a tensor on the GPU."""
    if not got.is_floating_point():
        return (got != want).any()
    rounding, wrong = torch.finfo(got.dtype).eps, []
    for a, b in zip(_parts(got), _parts(want), strict=True):
        tolerance = rounding * (8 * b.double().abs().nan_to_num(0, 0, 0) + 4 * largest)
        is_near = (a.double() - b.double()).abs() <= tolerance
        wrong.append(~(is_near | (a == b) | (a.isnan() & b.isnan())).all())
    return torch.stack(wrong).any()


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    flat = tensor.flatten()
    return (flat[start : start + _PART] for start in range(0, flat.numel(), _PART))


def _largest(output: torch.Tensor) -> torch.Tensor:
    """Return the largest finite magnitude of an output, 0 of integers, as a tensor on the GPU."""
    if not output.is_floating_point() or not output.numel():
        return torch.zeros((), dtype=torch.float64, device=output.device)
    parts = [part.double().abs().nan_to_num(0, 0, 0).max() for part in _parts(output)]
    return torch.stack(parts).max()


def with_gpu_trials(
    verdict: Verdict,
    specification: Specification,
    programs: Mapping[int, CandidateProgram],
    kernels: Sequence[Closure],
    file: str,
    seed: int,
    lab: Lab,
) -> Verdict:
    """Return the verdict of an accepted candidate after trials and timing on the current GPU."""
    name = device_name(torch.cuda.current_device())
    launcher = GpuLauncher(lab)
    examiner = Examiner(specification, programs, kernels, launcher, file, "cuda", name)
    there = examine(examiner, seed + 7)
    verdict = replace(verdict, trials=(*verdict.trials, *there.trials), notes=(*verdict.notes, *there.notes))
    if there.reasons:
        return replace(verdict, decision=there.decision, reasons=there.reasons)

    @cache
    def is_right(config: int) -> bool:
        checked = replace(examiner, launch=GpuLauncher(lab), config=config)
        return config == 0 or examine(checked, seed + 7).is_accepted

    launcher.is_checked = False
    timings, reasons, notes = [], [], []
    for number, case in timed_cases(specification):
        clock = _CaseClock(specification, case, programs[number], kernels, launcher, file, seed, is_right)
        try:
            timing, reason = clock.timing()
        except FailedLaunch as exc:
            reasons.append(Reason("launch_fails", exc.message, file, exc.line))
            continue
        notes += clock.notes
        timings.append(timing)
        reasons += [] if reason is None else [reason]
    verdict = replace(verdict, timings=tuple(timings), notes=(*verdict.notes, *dict.fromkeys(notes)))
    verdict = _with_speedup(verdict)
    if reasons:
        return replace(verdict, decision=Decision.WRONG, reasons=tuple(reasons))
    return _with_speed_demand(verdict, specification, file)


def timed_cases(specification: Specification) -> list[tuple[int, Case]]:
    """Return the cases to time, with their numbers: those meant for it, else the largest shown one."""
    numbered = list(enumerate(specification.cases))
    timed = [(number, case) for number, case in numbered if case.is_timed]
    if timed:
        return timed
    shown = [(number, case) for number, case in numbered if not case.is_hidden and case.layout == AS_SPECIFIED]
    return sorted(shown, key=lambda pair: element_count(specification.draw(pair[1], 0)))[-1:]


def _with_speedup(verdict: Verdict) -> Verdict:
    """Return the verdict with the geometric means of its speedups, if a baseline was timed."""
    timings = [timing for timing in verdict.timings if timing.speedup]
    if not timings:
        return verdict
    return replace(
        verdict,
        speedup=_geometric_mean([timing.speedup or 1.0 for timing in timings]),
        speedup_low=_geometric_mean([timing.speedup_low or 1.0 for timing in timings]),
        speedup_high=_geometric_mean([timing.speedup_high or 1.0 for timing in timings]),
    )


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _with_speed_demand(verdict: Verdict, specification: Specification, file: str) -> Verdict:
    """Return the verdict after the least speedup that the specification asks for, if it does."""
    wanted, high = specification.min_speedup, verdict.speedup_high
    if wanted is None or high is None or verdict.speedup is None or high >= wanted:
        return verdict
    detail = (
        f"Its speedup over the baseline is {verdict.speedup:.3f}x ({verdict.speedup_low:.3f}x to {high:.3f}x); "
        f"at least {wanted:g}x is asked."
    )
    return replace(verdict, decision=Decision.SLOW, reasons=(Reason("speedup", detail, file),))


@dataclass(slots=True)
class _CaseClock:
    """Times one case of a candidate, and the baseline in turns with it; ``is_right`` tries a config on all trials."""

    specification: Specification
    case: Case
    program: CandidateProgram
    kernels: Sequence[Closure]
    launcher: GpuLauncher
    file: str
    seed: int
    is_right: Callable[[int], bool]
    notes: list[str] = field(default_factory=list)

    def timing(self) -> tuple[Timing, Reason | None]:
        """Return the times of the case, and the reason against them if there is one.

        Raises:
            FailedLaunch: a launch fails.
        """
        watch = gpu_stopwatch()
        contents = [self._contents(number) for number in range(_CONTENTS)]
        config = self._fastest_config(watch, contents)
        candidate = self._timed_program(contents, config)
        turns = [candidate.turn()]
        baseline = self._baseline(contents)
        if baseline is not None:
            turns.append(baseline.turn())
        before = device_state()
        samples = watch.turns(turns, ROUNDS)
        torch.cuda.synchronize()
        self._note_clocks(before.clock_mhz, device_state().clock_mhz)
        if watch.late:
            self.notes.append(f"{self.case.words}: {watch.late} samples include waiting for the host")
        timing = self._result(samples)
        return timing, self._reason(candidate, timing)

    def _contents(self, number: int) -> dict[str, Any]:
        return copies_of(self.specification.draw(self.case, self.seed + 31 * number + 11), "cuda")

    def _replay(self, config: int, poison: int | None) -> Run:
        return lambda given: Replay(self.program, self.kernels, self.launcher, poison, "cuda", config).run(given)

    def _timed_program(self, contents: Sequence[Mapping[str, Any]], config: int) -> TimedProgram:
        """Return the candidate for the stopwatch; what it must return is what it returned when it was checked."""
        expected = _outputs_of(self._replay(config, 0xFF), contents)
        values = self.program.values
        computed = {index for step in self.program.steps for index in step.results if index >= 0}
        shapes = [(math.prod(values[i].shape) * getattr(torch, values[i].dtype).itemsize,) for i in sorted(computed)]
        return TimedProgram(self._replay(config, None), contents, expected, shapes)

    def _fastest_config(self, watch: Stopwatch, contents: Sequence[Mapping[str, Any]]) -> int:
        """Return the fastest config of autotuned launches here that passes all trials.

        Raises:
            FailedLaunch: none runs.
        """
        times: dict[int, float] = {}
        count = config_count(self.program)
        if count == 1:
            return 0
        for config in range(count):
            copies, run = copies_of(contents[0], "cuda"), self._replay(config, None)
            with suppress(FailedLaunch, RuntimeError, KernellabError):  # a config that does not fit this GPU
                run(copies)
                turn = Turn(lambda run=run, copies=copies: run(copies))  # type: ignore[misc]
                times[config] = min(watch.turns([turn], _FIRST_ROUNDS)[0])
        for config in sorted(times, key=times.__getitem__):
            if self.is_right(config):
                return config
            self.notes.append(f"config {config} fails a trial and was left out")
        raise FailedLaunch("No config of its autotuned kernels runs on this GPU.")

    def _baseline(self, contents: Sequence[Mapping[str, Any]]) -> TimedProgram | None:
        function = self.specification.baseline
        if function is None:
            return None

        def run(copies: Mapping[str, Any]) -> list[torch.Tensor]:
            result = function(**select_arguments(function, copies))
            values = self.specification.outputs_by_name(result).values()
            return [value for value in values if isinstance(value, torch.Tensor)]

        try:
            expected = _outputs_of(run, contents)
        except Exception as exc:
            path = self.specification.path.name
            raise UsageError(f"baseline() of {path} raised {type(exc).__name__}: {first_line(exc)}") from exc
        return TimedProgram(run, contents, expected)

    def _result(self, samples: Sequence[Sequence[float]]) -> Timing:
        own = interval(samples[0], confidence=_CONFIDENCE)
        baseline = speedup = None
        if len(samples) > 1:
            baseline = interval(samples[1], confidence=_CONFIDENCE)
            speedup = ratio_interval(samples[1], samples[0], confidence=_CONFIDENCE)
        return Timing(
            sizes=self.case.sizes,
            time_us=own.median * 1e3,
            low_us=own.low * 1e3,
            high_us=own.high * 1e3,
            baseline_us=None if baseline is None else baseline.median * 1e3,
            speedup=None if speedup is None else speedup.median,
            speedup_low=None if speedup is None else speedup.low,
            speedup_high=None if speedup is None else speedup.high,
            roofline_us=self._roofline_us(),
            is_launch_bound=own.median * 1e3 < _LAUNCH_BOUND_US,
            samples=len(samples[0]),
        )

    def _reason(self, candidate: TimedProgram, timing: Timing) -> Reason | None:
        if candidate.has_wrong():
            detail = "An output of a timed run differs from what the same inputs gave before."
            return Reason("timed_outputs", detail, self.file, trial=self.case.words)
        if timing.high_us < _BEYOND_ROOF * timing.roofline_us:
            detail = f"It takes {timing.high_us:.2f} us; to read its inputs once takes {timing.roofline_us:.2f} us."
            return Reason("faster_than_memory", detail, self.file, trial=self.case.words)
        return None

    def _roofline_us(self) -> float:
        """Return the time of reading what must be read, at the device's bandwidth; outputs may stay in the L2.

        What must be read of an input is the share of its sampled elements that the reference depends on.
        """
        drawn = self.specification.draw(self.case, self.seed)
        used = {name for name, _ in self.program.inputs}
        shares = needed_shares(self.specification, self.seed)
        needed = sum(
            value.numel() * value.element_size() * shares.get(name, 0.0)
            for name, value in drawn.items()
            if isinstance(value, torch.Tensor) and name in used
        )
        return float(needed / self.launcher.lab.ceilings().memory_gbps / 1e3)

    def _note_clocks(self, before: int | None, after: int | None) -> None:
        if before and after and abs(after - before) > _CLOCK_CHANGE * before:
            self.notes.append(f"{self.case.words}: the clock of the GPU went from {before} to {after} MHz")


def _outputs_of(run: Run, contents: Sequence[Mapping[str, Any]]) -> list[list[torch.Tensor]]:
    return [[output.clone() for output in run(copies_of(inputs, "cuda"))] for inputs in contents]


def needed_shares(specification: Specification, seed: int) -> dict[str, float]:
    """Return the share of sampled elements of each floating-point input that changes what the reference returns.

    The smallest shown case with elements is asked; an element is changed by its own size and one more.
    """
    shown = [case for case in specification.cases if not case.is_hidden and not case.is_timed]
    drawn = [specification.draw(case, seed) for case in shown]
    inputs = min((inputs for inputs in drawn if element_count(inputs) > 1), key=element_count, default=None)
    if inputs is None:
        return {}
    generator = torch.Generator().manual_seed(seed)
    before = specification.expected(copies_of(inputs))
    shares = {}
    for name, value in inputs.items():
        if not is_floating(value):
            continue
        places = torch.randint(value.numel(), (_SAMPLED_ELEMENTS,), generator=generator).tolist()
        changed = 0
        for place in places:
            copies = copies_of(inputs)
            index = index_of(place, value.shape)
            copies[name][index] = copies[name][index] * 2 + 1
            after = specification.expected(copies)
            changed += any(not same_bits(before[key], after[key]) for key in before)
        shares[name] = changed / len(places)
    return shares
