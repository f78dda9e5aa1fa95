"""The judge: a candidate's file against a specification, to a verdict.

The candidate's Python runs in a confined process that knows neither reference nor verdict. What comes back is a program
as data; the judge checks its text, and runs it on inputs of its own.
"""

from __future__ import annotations

import hashlib
import json
import platform
import secrets
import tempfile
from collections.abc import Container, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from kernellab.errors import UsageError, first_line, plural, value_text
from kernellab.judge.correctness import Examiner, examine
from kernellab.judge.kernel_text import clean_closure, parameter_names_of, problem_of_constant, problems_of_closure
from kernellab.judge.launchers import CpuLauncher
from kernellab.judge.program import CandidateProgram, program_of_json
from kernellab.judge.replay import operation_problem
from kernellab.judge.sandbox import MOST_CANDIDATE_BYTES, Limits, SandboxResult, bytes_of_candidate, run_confined
from kernellab.judge.specification import Case, Specification, read_specification
from kernellab.judge.verdict import AS_SPECIFIED, Decision, Reason, Verdict
from kernellab.source import Closure, closure_of_json
from kernellab.source.validation import MalformedData, parse_json, reading, require_type

if TYPE_CHECKING:
    from kernellab.lab import Lab

_TARGET = "cuda:90"
_PROCESS = "kernellab.judge.candidate_process"
_REASONS_AT_MOST = 5
_LIMITS = 4  # all trials together, in time limits of a launch


@dataclass(frozen=True, slots=True)
class Submission:
    """The kernels of a candidate and a program for each case, or the reasons to refuse it."""

    kernels: tuple[Closure, ...] = ()
    programs: Mapping[int, CandidateProgram] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    isolation: tuple[str, ...] = ()


def judge(
    spec: str | Path,
    candidate: str | Path,
    *,
    sizes: Sequence[Mapping[str, Any]] | None = None,
    time: bool = True,
    nonce: str = "",
    timeout_s: float = 30.0,
    seed: int | None = None,
    lab: Lab | None = None,
) -> Verdict:
    """Judge a candidate's file by a specification's.

    ``sizes`` are used in place of those of the specification. With a GPU and ``time``, an accepted candidate is timed,
    in ``lab`` or in a lab that is opened for it. ``timeout_s`` bounds the candidate's own process, and each launch.
    ``seed`` repeats the inputs of another verdict; by default they are drawn anew. ``nonce`` is a text of the caller's
    in the verdict. The caller signs it: no key comes here.

    Raises:
        UsageError: a file is missing, or the specification is wrong.
    """
    began = perf_counter()
    specification = read_specification(spec, sizes)
    file = Path(candidate)
    if not file.is_file():
        raise UsageError(f"{value_text(str(candidate))} is not a file; expected a candidate, such as softmax.py.")
    content = bytes_of_candidate(file)
    seed = secrets.randbits(48) if seed is None else seed
    launcher = CpuLauncher(timeout_s)
    has_gpu = time and torch.cuda.is_available()
    if not has_gpu:
        specification = specification.without_timed()
    specification = specification.with_layouts()
    try:
        launcher.worker.start()
        submission = submission_of(specification, file.name, content, timeout_s)
        verdict = _verdict_of(specification, submission, file, seed, launcher, has_gpu=has_gpu)
        if has_gpu and verdict.is_accepted:
            verdict = _verdict_on_gpu(verdict, specification, submission, file, seed, lab)
    finally:
        launcher.worker.close()
    return replace(
        verdict,
        name=file.name,
        specification=specification.digest,
        candidate=hashlib.sha256(content).hexdigest(),
        environment=environment_versions(),
        nonce=nonce,
        seed=seed,
        seconds=round(perf_counter() - began, 3),
    )


def _verdict_on_gpu(
    verdict: Verdict, specification: Specification, submission: Submission, file: Path, seed: int, lab: Lab | None
) -> Verdict:
    """Return the verdict after trials on the GPU, by a lab of its own if none is given."""
    from kernellab.judge.on_gpu import with_gpu_trials

    with ExitStack() as stack:
        if lab is None:
            from kernellab.lab import Lab

            lab = stack.enter_context(Lab(store=":memory:"))
        return with_gpu_trials(verdict, specification, submission.programs, submission.kernels, file.name, seed, lab)


def _verdict_of(
    specification: Specification, submission: Submission, file: Path, seed: int, launcher: CpuLauncher, *, has_gpu: bool
) -> Verdict:
    """Return the verdict after trials on the CPU; a GPU is to judge kernels in Gluon, which the CPU does not run."""
    if submission.reasons:
        return Verdict(Decision.REFUSED, submission.reasons, (), isolation=submission.isolation)
    hides_none = not any(case.is_hidden for case in specification.cases)
    own_notes = ["the specification hides no sizes: a candidate may serve the shown ones alone"] if hides_none else []
    in_gluon = [closure.name for closure in submission.kernels if closure.functions[0].kind == "gluon"]
    if in_gluon and not has_gpu:
        detail = f"{in_gluon[0]} is a kernel in Gluon, which is judged on a GPU alone."
        return Verdict(Decision.REFUSED, (Reason("needs_gpu", detail, file.name),), (), isolation=submission.isolation)
    if in_gluon:
        notes = (f"{in_gluon[0]} is in Gluon: its accesses were not checked on the CPU", *own_notes)
        return Verdict(Decision.ACCEPTED, (), (), isolation=submission.isolation, notes=notes)
    examiner = Examiner(specification, submission.programs, submission.kernels, launcher, file.name)
    examiner.limit_s = limit_of_trials_s(specification, launcher.timeout_s)
    verdict = examine(examiner, seed)
    notes = (*verdict.notes, *launcher.notes, *own_notes)
    names = tuple(dict.fromkeys(closure.name for closure in submission.kernels))
    return replace(verdict, isolation=submission.isolation, kernels=names, notes=notes)


def limit_of_trials_s(specification: Specification, timeout_s: float) -> float:
    """Return the limit of all trials on the CPU together, in seconds: further layouts of the inputs add to it."""
    as_specified = sum(case.layout == AS_SPECIFIED for case in specification.cases)
    return _LIMITS * timeout_s * len(specification.cases) / as_specified


def submission_of(specification: Specification, name: str, content: bytes, timeout_s: float) -> Submission:
    """Run a candidate in its process, and return its checked programs, or the reasons against them.

    ``name`` and ``content`` are those of its file as it was when the judge was called.
    """
    if len(content) > MOST_CANDIDATE_BYTES:
        detail = f"{name} has more than {MOST_CANDIDATE_BYTES:,} bytes, the most of a candidate."
        return Submission(reasons=(Reason("too_large", detail, name),))
    with tempfile.TemporaryDirectory(prefix="kernellab-candidate-") as folder:
        file = Path(folder) / name
        file.write_bytes(content)
        return _submission_of_file(specification, file, timeout_s)


def _submission_of_file(specification: Specification, file: Path, timeout_s: float) -> Submission:
    cases = specification.cases
    described = [_described_inputs(specification.lay_out(case, specification.draw(case, 0))) for case in cases]
    request = {
        "file": file.name,
        "target": _TARGET,
        "cases": [{"inputs": inputs, "outputs": list(specification.outputs)} for inputs in described],
    }
    tensors = [{spec["name"] for spec in inputs if spec["kind"] == "tensor"} for inputs in described]
    result = run_confined(_PROCESS, json.dumps(request).encode(), [file], Limits(timeout_s))
    submission = _submission_of_result(result, specification, tensors)
    reasons = tuple(replace(reason, file=reason.file or file.name) for reason in submission.reasons)
    return replace(submission, reasons=reasons, isolation=result.isolation)


def _submission_of_result(
    result: SandboxResult, specification: Specification, tensors: Sequence[Container[str]]
) -> Submission:
    """Read what a candidate's process left; reasons without a file are those against the candidate's own."""
    if result.data is None:
        last = result.printed.strip().splitlines()
        more = f" Its last line: {last[-1][:200]}" if last else ""
        return Submission(reasons=(Reason("no_program", f"{result.problem}{more}"),))
    try:
        with reading("its answer"):
            return _read(result.data, specification, tensors)
    except MalformedData as exc:
        return Submission(reasons=(Reason("malformed", f"What its process handed over is not a program: {exc}."),))


def _described_inputs(inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the layouts of the inputs, and the values of the others, as JSON."""
    described = []
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            layout: dict[str, Any] = {
                "dtype": str(value.dtype).removeprefix("torch."),
                "shape": list(value.shape),
                "stride": list(value.stride()),
                "offset": value.storage_offset(),
            }
            described.append({"name": name, "kind": "tensor", **layout})
        else:
            plain = {"float": value.hex()} if isinstance(value, float) else value
            described.append({"name": name, "kind": "value", "value": plain})
    return described


def _read(data: bytes, specification: Specification, tensors: Sequence[Container[str]]) -> Submission:
    """Read the answer of a candidate's process; ``tensors`` names the inputs that are tensors, for each case."""
    answer = parse_json(data.decode("utf-8", "strict"), limit_bytes=len(data) + 1)
    if not isinstance(answer, dict):
        raise MalformedData("it is not an object")
    if "error" in answer:
        return Submission(reasons=(_import_reason(answer["error"]),))
    kernels = tuple(closure_of_json(kernel) for kernel in answer.get("kernels", ()))
    reasons = [
        replace(problem, detail=f"{kernel.name}: {problem.detail}")
        for kernel in kernels
        for problem in problems_of_closure(kernel)
    ]
    cases = answer.get("cases")
    if not isinstance(cases, list) or len(cases) != len(specification.cases):
        raise MalformedData("it lacks programs for some sizes")
    programs: dict[int, CandidateProgram] = {}
    failed: dict[tuple[str, str, int | None], list[Case]] = {}
    for number, (case, own) in enumerate(zip(specification.cases, cases, strict=True)):
        if "error" in own:
            failed.setdefault(_error_of(own["error"]), []).append(case)
            continue
        first, second = own["programs"]
        program = program_of_json(first, len(kernels))
        _require_parameters(program, kernels)
        asked = _operation_reasons(program, specification)
        if first != second and not asked:
            reasons.append(_data_reason(program, program_of_json(second, len(kernels)), case))
            continue
        own_reasons = (*asked, *_constant_reasons(program, kernels), *_input_reasons(program, tensors[number]))
        known = {replace(reason, trial=None) for reason in reasons}
        trial = None if case.layout == AS_SPECIFIED else f"{case.layout} inputs"
        reasons += [replace(reason, trial=trial) for reason in own_reasons if reason not in known]
        programs[number] = program
    reasons += [_solve_reason(error, of_cases) for error, of_cases in failed.items()]
    launches = any(step.kernel is not None for program in programs.values() for step in program.steps)
    if not reasons and specification.allow == "triton" and not launches:
        reasons.append(Reason("no_kernel", "solve launches no kernel."))
    return Submission(
        tuple(clean_closure(kernel) for kernel in kernels), programs, tuple(dict.fromkeys(reasons))[:_REASONS_AT_MOST]
    )


def _require_parameters(program: CandidateProgram, kernels: Sequence[Closure]) -> None:
    """Raise `MalformedData` for a launch with an argument that its kernel has no parameter for."""
    for step in program.steps:
        if step.kernel is None:
            continue
        function = kernels[step.kernel].functions[0]
        parameters = parameter_names_of(function.text)
        named = [name for name, _ in step.kwargs] + [name for v in step.variants for name, _ in v.constants]
        unknown = [name for name in named if name not in parameters]
        if unknown:
            raise MalformedData(f"a launch passes {unknown[0]!r}, which is not a parameter of {function.name}")


def _constant_reasons(program: CandidateProgram, kernels: Sequence[Closure]) -> list[Reason]:
    """Return the reasons against values of constexprs: a judge passes what is of Triton's language alone."""
    reasons = []
    for step in program.steps:
        for variant in step.variants:
            assert step.kernel is not None
            for name, binding in variant.constants:
                problem = problem_of_constant(name, binding, kernels[step.kernel])
                if problem is not None:
                    reasons.append(replace(problem, line=step.line))
    return reasons


def _operation_reasons(program: CandidateProgram, specification: Specification) -> list[Reason]:
    reasons = []
    for step in program.steps:
        problem = operation_problem(step.operation, specification.allow)
        if problem is not None:
            rule, detail = problem
            reasons.append(Reason(rule, f"{detail}.", line=step.line))
    return reasons


def _input_reasons(program: CandidateProgram, tensors: Container[str]) -> list[Reason]:
    return [
        Reason("unknown_input", f"Its program takes {name!r}, which is not an input.")
        for name, _ in program.inputs
        if name not in tensors
    ]


def _data_reason(one: CandidateProgram, other: CandidateProgram, case: Case) -> Reason:
    """Return the reason against two programs of one layout that differ: something in them came from data."""
    line = None
    subject = "The number of its steps"
    for first, second in zip(one.steps, other.steps, strict=False):
        if first != second:
            line = first.line
            subject = (
                "A grid, constexpr or number of a launch"
                if first.kernel is not None
                else f"An argument of {first.operation}"
            )
            break
    else:
        if one.constants != other.constants:
            subject = "A tensor that the host made"
    detail = (
        f"{subject} differs between two inputs of one layout ({case.words}): it came from data, the time or chance."
    )
    return Reason("constant_from_data", detail, line=line)


def _error_of(error: Any) -> tuple[str, str, int | None]:
    """Return type, message and line of an exception in the candidate's process."""
    if not isinstance(error, dict):
        raise MalformedData("its error is not an object")
    kind, message, line = str(error.get("type", ""))[:100], str(error.get("message", ""))[:1000], error.get("line")
    require_type(line, int | None, "the line of its error")
    return kind, first_line(message) if message else "no message", line


def _import_reason(error: Any) -> Reason:
    kind, message, line = _error_of(error)
    is_own = kind == UsageError.__name__  # the process's own: there is no solve
    return Reason("import_fails", message if is_own else f"It cannot be imported: {message}", line=line)


def _solve_reason(error: tuple[str, str, int | None], cases: Sequence[Case]) -> Reason:
    _, message, line = error
    more = f" and {plural(len(cases) - 1, 'more size')}" if len(cases) > 1 else ""
    return Reason("host_code", f"solve fails for {cases[0].words}{more}: {message}", line=line)


def environment_versions() -> tuple[tuple[str, str], ...]:
    """Return the versions that a verdict holds for."""
    packages = [(name, _version_of(name)) for name in ("kernellab", "torch", "triton")]
    return (*packages, ("python", platform.python_version()), ("machine", platform.machine()))


def _version_of(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
