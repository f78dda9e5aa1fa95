"""Whether a candidate is right: its outputs against the reference in higher precision, over many inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import Any

import torch

from kernellab.checking.comparison import Check, ExpectedValue, compare_output, wrong_elements
from kernellab.checking.reference import bounded_values
from kernellab.errors import KernellabError, UsageError, first_line, plural, timeout_text
from kernellab.judge.in_ring import expected_in_ring
from kernellab.judge.launchers import CpuLauncher, FailedLaunch, UnsafeLaunch
from kernellab.judge.layouts import Gaps, fill_gaps
from kernellab.judge.questions import IN_RING, SOME, Programs, Question, Questions
from kernellab.judge.replay import (
    POISONS,
    Launcher,
    Replay,
    ReplayError,
    ReplayTimeout,
    bytes_of,
    copies_of,
    element_count,
    same_bits,
)
from kernellab.judge.specification import Specification, with_tolerance
from kernellab.judge.verdict import AS_SPECIFIED, Decision, Reason, Trial, Verdict
from kernellab.source import Closure

_FILLS = (0, 0x41)
"""Bytes of two values that differ much in any format: of one alone, a softmax of equal elements shows nothing."""
_REASONS_AT_MOST = 5
_MANY = 1 << 26  # elements, whose bounds take the CPU tens of seconds


Problem = tuple[Decision, Reason]
"""A reason against the candidate, with the decision that follows from it."""


@dataclass(slots=True)
class Examiner:
    """Asks one candidate; ``programs`` has its program for each case, ``kernels`` what they launch.

    ``config`` is the config of autotuned launches, the first one by default; ``limit_s`` bounds all trials together.
    A candidate whose outputs differ in bits from one run to the next, as with atomics on a GPU, gets a note.
    """

    specification: Specification
    programs: Programs
    kernels: Sequence[Closure]
    launch: Launcher
    file: str
    device: str = "cpu"
    device_name: str = "cpu"
    config: int = 0
    limit_s: float = 120.0
    notes: dict[str, None] = field(default_factory=dict)
    deadline_s: float = math.inf
    _filled: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _beyond_bounds: dict[str, int] = field(default_factory=dict)

    @property
    def _changeable(self) -> frozenset[str]:
        """The arguments that ``solve`` may change."""
        return frozenset((*self.specification.outputs, *self.specification.changes))

    @property
    def questions(self) -> Questions:
        """The trials that the candidate must pass."""
        has_ring = isinstance(self.launch, CpuLauncher)
        return Questions(self.specification, self.programs, self.device, self.config, has_ring)

    def answer(self, question: Question) -> tuple[Trial, Problem | None]:
        """Run the candidate on the inputs of a question, and compare it with the reference."""
        began = perf_counter()
        inputs = self.questions.inputs(question)
        problem = (self._ring_problem if question.distribution == IN_RING else self._problem)(question, inputs)
        seconds = perf_counter() - began
        if isinstance(problem, str):
            if question.distribution != IN_RING:
                self.notes[f"not asked, since {problem}: {question.words}"] = None
            return question.trial("not asked", self.device_name, seconds), None
        outcome = "right" if problem is None else problem[0].value
        return question.trial(outcome, self.device_name, seconds), problem

    def _problem(self, question: Question, inputs: Mapping[str, Any]) -> str | Problem | None:
        """Return the reason against the candidate; a text where the inputs are not fit to ask, None where it is right.

        The reference is computed after the candidate has run, in other memory.
        """
        runs = []
        for poison in POISONS[: question.patterns]:
            outputs, problem = self._run(question, inputs, poison)
            if problem is not None and question.config is not None and problem[1].rule == "launch_fails":
                return "this config does not run here"
            if problem is not None:
                return problem
            runs.append(outputs)
        native = self._native(inputs)
        names = list(native)
        runs = [self._in_order_of_reference(question, names, outputs) for outputs in runs]
        if problem := self._shape_problem(question, names, native, runs[0]):
            return problem
        self.specification.require_outputs(names)
        expected = self._expected_values(inputs)
        for number, outputs in enumerate(runs):
            for name, output in zip(names, outputs, strict=True):
                check, within = self._compare_output(question, name, output, expected[name])
                if check.equal:
                    continue
                if self._is_excused(question, output, native[name], within):
                    return "the reference itself leaves its bounds on such inputs"
                return Decision.WRONG, self._value_reason(question, name, check, number)
        return self._left_over_problem(question, names, runs)

    def _compare_output(
        self, question: Question, name: str, output: torch.Tensor, expected: ExpectedValue
    ) -> tuple[Check, ExpectedValue]:
        """Return the comparison of an output with its reference, and the reference with the bounds that it used.

        Raises:
            UsageError: the tolerance that the specification states for it accepts zeros instead of its values.
        """
        check = compare_output("the reference", name, output, expected)
        tolerance = self.specification.tolerance_of(name)
        if tolerance is None:
            return check, expected
        if question.distribution == AS_SPECIFIED and output.numel() >= SOME and tolerance.accepts_zeros(expected.value):
            raise UsageError(
                f"tolerance of {self.specification.path.name} accepts zeros in place of all of {name} "
                f"({question.case.words}); its atol is {tolerance.atol:g}, and no element is larger."
            )
        self._beyond_bounds.setdefault(name, 0)
        if not check.equal:
            expected = with_tolerance(output.to(expected.value.device), expected, tolerance)
            check = compare_output("the reference", name, output, expected)
            self._beyond_bounds[name] += check.equal
        return check, expected

    def tolerance_notes(self) -> list[str]:
        """Return a note for each output with a stated tolerance: how many runs were beyond its own bounds."""
        return [
            f"{name} has the tolerance of the specification, {tolerance.words}, where its own bounds are narrower; "
            + (f"{plural(count, 'run')} needed it" if count else "no run needed it")
            for name, count in self._beyond_bounds.items()
            if (tolerance := self.specification.tolerance_of(name)) is not None
        ]

    def _ring_problem(self, question: Question, inputs: Mapping[str, Any]) -> str | Problem | None:
        """Compare the outputs in a ring, bit by bit; a text where the ring has no answer."""
        assert isinstance(self.launch, CpuLauncher)
        expected = None if self.specification.tolerances else expected_in_ring(self.specification, inputs)
        if expected is None:
            return "the reference is not made of sums and products alone"
        self.launch.is_in_ring = True
        try:
            outputs, problem = self._run(question, inputs, POISONS[0])
        finally:
            self.launch.is_in_ring = False
        unmodelled, self.launch.unmodelled = self.launch.unmodelled, set()
        if problem is not None or unmodelled:
            return problem or f"the ring does not model {', '.join(sorted(unmodelled))}"
        outputs = self._in_order_of_reference(question, list(expected), outputs)
        for (name, want), output in zip(expected.items(), outputs, strict=True):
            if not same_bits(output, want.to(output.dtype)):
                detail = (
                    f"{name} is not the same sum of products as the reference: in a ring in place of floats, where "
                    "the order of terms does not matter, elements differ. A term is lost, doubled, rounded to a "
                    "narrower format, or of another operand."
                )
                return Decision.WRONG, Reason("other_terms", detail, self.file, trial=question.words, output=name)
        return None

    def _in_order_of_reference(
        self, question: Question, names: Sequence[str], outputs: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return outputs in the order of the reference's names, if they have the same names."""
        by_name = dict(zip(self.programs[question.number].output_names, outputs, strict=True))
        return [by_name[name] for name in names] if set(by_name) == set(names) else outputs

    def _left_over_problem(
        self, question: Question, names: Sequence[str], runs: Sequence[Sequence[torch.Tensor]]
    ) -> Problem | None:
        """Return the reason against outputs that follow from what memory held before the run."""
        for name, first, last in zip(names, runs[0], runs[-1], strict=True):
            if not same_bits(first, last) and self.device != "cpu":
                self.notes[f"{name} has other bits when the candidate runs again"] = None
            elif not same_bits(first, last):
                detail = f"{name} depends on what its memory held before: two runs on the same inputs differ in bits."
                return Decision.WRONG, Reason("memory_left_over", detail, self.file, trial=question.words)
        return None

    def _filled_outputs(self, question: Question, inputs: Mapping[str, Any]) -> tuple[str, ...]:
        """The arguments that ``solve`` fills and the reference does not read."""
        if question.number not in self._filled:
            names = [name for name in self.specification.outputs if isinstance(inputs.get(name), torch.Tensor)]
            results = []
            for byte in (None, *_FILLS):
                copies = copies_of(inputs)
                if byte is not None:
                    for name in names:
                        fill_output(copies[name], byte)
                results.append(self._native(copies))
            are_same = all(same_bits(results[0][name], other[name]) for other in results[1:] for name in results[0])
            self._filled[question.number] = tuple(names) if are_same else ()
        return self._filled[question.number]

    def _run(
        self, question: Question, inputs: Mapping[str, Any], poison: int
    ) -> tuple[list[torch.Tensor], Problem | None]:
        """Run the program on copies of inputs; return its outputs, or the reason against the run."""
        copies = copies_of(self.specification.lay_out(question.case, inputs), self.device)
        gaps = fill_gaps(copies, poison)
        for name in self._filled_outputs(question, inputs):
            fill_output(copies[name], poison)
        config = self.config if question.config is None else question.config
        replay = Replay(self.programs[question.number], self.kernels, self.launch, poison, self.device, config)
        replay.deadline_s = self.deadline_s
        is_asked = question.distribution == AS_SPECIFIED and self.specification.allow == "triton"
        if is_asked and element_count(inputs) <= _MANY:
            replay.sources = [name for name in inputs if name not in self._changeable]
        try:
            outputs = replay.run(copies)
        except (UnsafeLaunch, FailedLaunch, ReplayError) as exc:
            return [], self._failure(question, exc)
        problem = (
            self._copied_output(question, replay, outputs)
            or self._aliased_output(question, copies, outputs)
            or self._changed_input(question, inputs, copies)
            or self._written_gap(question, gaps)
        )
        return outputs, problem

    def _copied_output(self, question: Question, replay: Replay, outputs: Sequence[torch.Tensor]) -> Problem | None:
        """Return the reason against an output that torch has copied or cast from an input, and no kernel computed."""
        for output in outputs if replay.torch_copies else ():
            bits = bytes_of(output).cpu().numpy().tobytes()
            step = next((step for step, copy in replay.torch_copies if bits in copy.cpu().numpy().tobytes()), None)
            if step is not None and output.numel() >= SOME:
                detail = "An output is what torch has copied from an input: no kernel computes it."
                return Decision.REFUSED, Reason("torch_operation", detail, self.file, step.line, question.words)
        return None

    def _aliased_output(
        self, question: Question, given: Mapping[str, Any], outputs: Sequence[torch.Tensor]
    ) -> Problem | None:
        """Return the reason against an output that lies in the memory of an input which it may not change."""
        owners = {
            value.untyped_storage().data_ptr(): name
            for name, value in given.items()
            if isinstance(value, torch.Tensor) and value.numel() and name not in self._changeable
        }
        for output in outputs:
            owner = owners.get(output.untyped_storage().data_ptr()) if output.numel() else None
            if owner is not None:
                detail = f"An output is memory of the input {owner}; it must have memory of its own."
                return Decision.WRONG, Reason("aliased_output", detail, self.file, trial=question.words)
        return None

    def _failure(self, question: Question, exc: KernellabError) -> Problem:
        line = getattr(exc, "line", None)
        if isinstance(exc, UnsafeLaunch):
            return Decision.UNSAFE, Reason(exc.rule, f"{exc.message}.", self.file, line, question.words)
        if isinstance(exc, ReplayTimeout):
            detail = f"{timeout_text('Its trials', self.limit_s)}."
            return Decision.REFUSED, Reason("time_limit", detail, self.file, line, question.words)
        rule = "program" if isinstance(exc, ReplayError) else "launch_fails"
        decision = Decision.REFUSED if isinstance(exc, ReplayError) else Decision.WRONG
        return decision, Reason(rule, exc.message, self.file, line, question.words)

    def _changed_input(self, question: Question, inputs: Mapping[str, Any], given: Mapping[str, Any]) -> Problem | None:
        for name, value in inputs.items():
            if (
                isinstance(value, torch.Tensor)
                and name not in self._changeable
                and not same_bits(value, given[name].cpu())
            ):
                detail = f"The candidate changes its input {name}, which the specification does not name as changed."
                return Decision.WRONG, Reason("input_changed", detail, self.file, trial=question.words)
        return None

    def _written_gap(self, question: Question, gaps: Sequence[Gaps]) -> Problem | None:
        """Return the reason against a run that wrote between the elements of an input, or around them."""
        for gap in gaps:
            if gap.is_written:
                detail = (
                    f"The candidate writes outside of the elements of {gap.name}, which has the strides "
                    f"{gap.strides}: memory between or around them is not its own."
                )
                return Decision.UNSAFE, Reason("out_of_bounds", detail, self.file, trial=question.words)
        return None

    def _native(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the reference in the precision of the inputs."""
        try:
            return self.specification.expected(copies_of(inputs))
        except UsageError:
            raise
        except Exception as exc:
            path = self.specification.path.name
            raise UsageError(f"reference() of {path} raised {type(exc).__name__}: {first_line(exc)}") from exc

    def _expected_values(self, inputs: Mapping[str, Any]) -> dict[str, ExpectedValue]:
        """Return the reference with its bounds; that of many elements is computed on the GPU, if there is room."""
        values, expected = None, self.specification.expected
        if self.device != "cpu" and element_count(inputs) > _MANY:
            with suppress(RuntimeError):  # too little memory there, or a reference that mixes in tensors of the CPU
                values = bounded_values(expected, copies_of(inputs, self.device))
        if values is None:
            values = bounded_values(expected, inputs)
        return {
            name: value if isinstance(value, ExpectedValue) else ExpectedValue(torch.as_tensor(value))
            for name, value in values.items()
        }

    def _shape_problem(
        self, question: Question, names: Sequence[str], native: Mapping[str, Any], outputs: Sequence[torch.Tensor]
    ) -> Problem | None:
        if len(names) != len(outputs):
            detail = f"It returns {len(outputs)} outputs; the reference has {len(names)}."
            return Decision.WRONG, Reason("outputs", detail, self.file, trial=question.words)
        for name, output in zip(names, outputs, strict=True):
            want = native[name]
            if tuple(output.shape) != tuple(want.shape):
                detail = f"{name} has the shape {tuple(output.shape)}; expected {tuple(want.shape)}."
            elif output.dtype != want.dtype:
                detail = f"{name} is {_name_of(output.dtype)}; expected {_name_of(want.dtype)}."
            else:
                continue
            return Decision.WRONG, Reason("outputs", detail, self.file, trial=question.words, output=name)
        return None

    def _is_excused(self, question: Question, output: torch.Tensor, native: Any, expected: ExpectedValue) -> bool:
        """Whether all wrong elements are those of the reference in the precision of the inputs, too.

        Inputs as the specification draws them excuse nothing.
        """
        if question.distribution == AS_SPECIFIED:
            return False
        return not bool((wrong_elements(output.cpu(), expected) & ~wrong_elements(native, expected)).cpu().any())

    def _value_reason(self, question: Question, name: str, check: Check, run: int) -> Reason:
        worst = check.worst
        share = f"{check.mismatched:,} of {check.elements:,} elements"
        if worst is None:
            return Reason("values", f"{name} is wrong in {share}.", self.file, trial=question.words, output=name)
        stated = self.specification.tolerance_of(name)
        words = "" if stated is None else f" (the specification states {stated.words})"
        detail = f"{name} is wrong in {share}: {worst}, tolerance {worst.allowed:.3g}{words}."
        if run:
            detail += " It was within bounds with other contents of memory."
        return Reason(
            "values",
            detail,
            self.file,
            trial=question.words,
            output=name,
            index=worst.index,
            got=float(worst.got),
            expected=float(worst.expected),
            bound=float(worst.allowed),
        )


def fill_output(tensor: torch.Tensor, byte: int) -> None:
    """Fill an argument that ``solve`` fills with a pattern; a boolean one with False or True."""
    if not tensor.numel():
        return
    if tensor.dtype == torch.bool:
        tensor.fill_(bool(byte & 1))
        return
    tensor.copy_(
        torch.full((tensor.element_size(),), byte, dtype=torch.uint8).view(tensor.dtype).reshape(()).to(tensor.device)
    )


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def examine(examiner: Examiner, seed: int) -> Verdict:
    """Ask all questions of an examiner; stop at the first answers against the candidate."""
    trials: list[Trial] = []
    reasons: list[Reason] = []
    decision, began = Decision.ACCEPTED, perf_counter()
    examiner.deadline_s = monotonic() + examiner.limit_s
    for question in examiner.questions.trials(seed):
        trial, problem = examiner.answer(question)
        trials.append(trial)
        if problem is not None:
            decision = decision if reasons else problem[0]
            reasons.append(problem[1])
        if len(reasons) >= _REASONS_AT_MOST or any(reason.rule != "values" for reason in reasons):
            break
        if perf_counter() - began > examiner.limit_s:
            detail = f"{timeout_text('Its trials', examiner.limit_s)}; those so far were right."
            decision = decision if reasons else Decision.REFUSED
            reasons.append(Reason("time_limit", detail, examiner.file))
            break
    return Verdict(decision, tuple(reasons), tuple(trials), notes=(*examiner.notes, *examiner.tolerance_notes()))
