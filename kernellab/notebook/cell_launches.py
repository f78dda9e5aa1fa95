"""What a cell reports of its launches: their cards, checks, explanations, values, the origin of a NaN."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from kernellab._triton.closure import closure_of
from kernellab._triton.kernel import autotune_settings, best_config, is_kernel, jit_function
from kernellab.checking.check_launch import check_last_launch, require_kept, updated_by
from kernellab.checking.comparison import Check
from kernellab.checking.reference import ReferenceFunction, expression_in
from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError, UsageError
from kernellab.inside.births import explain_births
from kernellab.inside.values import Values
from kernellab.lab import Lab
from kernellab.launch.arguments import memory_of, values_of
from kernellab.launch.recording import LaunchRecord, Recorder
from kernellab.launch.runtime import Runtime
from kernellab.launch.symbolic import symbolic_expression
from kernellab.registry.calls import has_gpu
from kernellab.store import Version
from kernellab.views.report import KernelReport, argument_reports

_OF_KERNEL = re.compile(r"\s*(?P<kernel>[A-Za-z_][\w.]*)\s*:(?!=)(?P<expression>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CheckOption:
    """A reference expression, and the name of the kernel that it is for, or ""."""

    expression: str
    kernel: str = ""

    def is_for(self, record: LaunchRecord, namespace: Mapping[str, Any]) -> bool:
        """Whether a launch is one of the named kernel, by its own name or by that in the notebook."""
        if not self.kernel or self.kernel in {record.kernel.fn.__name__, record.kernel.fn.__qualname__}:
            return True
        first, *members = self.kernel.split(".")
        value: Any = reduce(lambda owner, name: getattr(owner, name, None), members, namespace.get(first))
        return is_kernel(value) and jit_function(value).fn.__code__ is record.kernel.fn.__code__

    def reference(self, namespace: Mapping[str, Any]) -> ReferenceFunction:
        """Return the expression as a reference over the names of the notebook."""
        return expression_in(self.expression, namespace, "--check")


def parse_checks(texts: Sequence[str]) -> tuple[CheckOption, ...]:
    """Parse the options ``--check "x + y"`` and ``--check "add: x + y"``.

    Raises:
        UsageError: there are several, and one names no kernel, or two name the same one.
    """
    checks = []
    for text in texts:
        match = _OF_KERNEL.fullmatch(text)
        checks.append(CheckOption(text) if match is None else CheckOption(match["expression"].strip(), match["kernel"]))
    kernels = [check.kernel for check in checks]
    if len(checks) > 1 and "" in kernels:
        unnamed = checks[kernels.index("")].expression
        raise UsageError(f'--check {unnamed!r}: with several, name the kernel of each: --check "add: {unnamed}".')
    if twice := next((kernel for kernel in kernels if kernels.count(kernel) > 1), ""):
        raise UsageError(f"--check: there are two for {twice}; give one for each kernel.")
    return tuple(checks)


@dataclass(slots=True)
class CheckOutcomes:
    """The results of a cell's checks: outcomes and expression by launch, and the errors of checks.

    ``of_several`` are ids of launches that share one check of their joint result.
    """

    outcomes: dict[int, tuple[Check, ...]] = field(default_factory=dict)
    options: dict[int, CheckOption] = field(default_factory=dict)
    problems: list[KernellabError] = field(default_factory=list)
    of_several: set[int] = field(default_factory=set)

    def of(self, record: LaunchRecord) -> tuple[Check, ...]:
        """Return the checks of a launch's outputs; empty where no expression was for it."""
        return self.outcomes.get(id(record), ())

    def is_of_one(self, record: LaunchRecord, option: str) -> bool:
        """Whether the check of a record is for a single launch; a check of several becomes a problem."""
        if id(record) not in self.of_several:
            return True
        self.problems.append(
            UsageError(
                f"{option} compares single launches, and the check of {record.compiled.kernel} holds for what its "
                "launches in the cell do together; launch it once."
            )
        )
        return False

    def symbolic(self, record: LaunchRecord, namespace: Mapping[str, Any]) -> str:
        """Return the reference expression of a launch, over the kernel's parameters, or ""."""
        check = self.options.get(id(record))
        if check is None or id(record) in self.of_several:
            return ""
        return symbolic_expression(ast.parse(check.expression, mode="eval").body, namespace, record.arguments)


def check_launches(
    checks: Sequence[CheckOption], recorder: Recorder, runtime: Runtime, namespace: Mapping[str, Any]
) -> CheckOutcomes:
    """Compare the launches of a cell with its checks; each check is for the last launch that it fits.

    An expression fits if its values match the outputs by number, name and shape. Errors of single checks are among the
    problems.
    """
    results = CheckOutcomes()
    launched = [record for record in recorder.records.values() if record.launches]
    for check in checks:
        try:
            fitting = [record for record in launched if check.is_for(record, namespace)]
            if not fitting:
                names = ", ".join(dict.fromkeys(record.kernel.__name__ for record in launched))
                instead = f"{check.kernel}; it launches {names}" if check.kernel and names else "kernel"
                raise UsageError(f"--check {check.expression!r}: the cell launches no {instead}.")
            record, (outcome, of_several) = _check_last_fitting(fitting, check.reference(namespace), recorder, runtime)
            results.of_several |= {id(record)} if of_several else set()
            results.outcomes[id(record)] = _explain_named_outputs(outcome, check, record, namespace)
            results.options[id(record)] = check
        except KernellabError as exc:
            results.problems.append(exc)
    return results


def _explain_named_outputs(
    outcome: tuple[Check, ...], option: CheckOption, record: LaunchRecord, namespace: Mapping[str, Any]
) -> tuple[Check, ...]:
    """Add a hint to failed checks with an output in their expression: it has its values from before the launch."""
    effects = record.compiled.effects
    outputs = {id(value) for name, value in record.arguments.items() if name in effects.writes - effects.reads}
    names = {node.id for node in ast.walk(ast.parse(option.expression, mode="eval")) if isinstance(node, ast.Name)}
    named = sorted(name for name in names if id(namespace.get(name)) in outputs)
    if not named:
        return outcome
    verb = "has its" if len(named) == 1 else "have their"
    hint = f"{' and '.join(named)} {verb} values from before the launch in --check; compare with assert instead."
    return tuple(check if check.equal else replace(check, hints=(*check.hints, hint)) for check in outcome)


def _check_last_fitting(
    records: Sequence[LaunchRecord], reference: ReferenceFunction, recorder: Recorder, runtime: Runtime
) -> tuple[LaunchRecord, tuple[tuple[Check, ...], bool]]:
    """Return the last launch that a reference fits, and its checks, as `checks_after` does."""
    misfits: list[UsageError] = []
    for record in reversed(records):
        try:
            return record, check_last_launch(reference, record, recorder, runtime)
        except UsageError as exc:  # it may be for an earlier one
            misfits.append(exc)
    raise misfits[0]


def with_explanation(lab: Lab, recorder: Recorder, report: KernelReport, record: LaunchRecord) -> KernelReport:
    """Add an explanation of the launch's time to a report, if there was a launch.

    Raises:
        UsageError: it changed integers that it reads, and they were too large to be kept.
    """
    if record.grid is None or 0 in record.grid:
        return report
    memory = memory_of(record.arguments)
    integers = [name for name in updated_by(record) & memory.keys() if not memory[name].is_floating_point()]
    require_kept(record, recorder, record.last, integers, "--why")
    with recorder.undo.before(record.last):
        explanation = lab.explain(record.kernel, record.grid, **record.keywords)
    return replace(report, explanation=explanation)


def values_of_record(lab: Lab, recorder: Recorder, record: LaunchRecord) -> Values:
    """The values of the first program of a record's last launch, on the arguments as they were before it.

    Raises:
        UsageError: an argument that it updates was too large to be kept.
    """
    if record.grid is None or 0 in record.grid:
        raise UsageError(f"--values: the cell did not launch {record.compiled.kernel}, or on an empty grid.")
    require_kept(record, recorder, record.last, updated_by(record), "--values")
    with recorder.undo.before(record.last):
        return lab.values(record.kernel, record.grid, **record.keywords)


def birth_in_record(lab: Lab, recorder: Recorder, record: LaunchRecord) -> str | None:
    """The origin of the first NaN or infinity in an output of a launch on the CPU, if no input has one."""
    if record.run is None or record.run.where != "interpreter" or record.grid is None:
        return None
    with lab.launches.recording():  # the second look is no launch of the cell's
        return explain_births(lab.session(), record, recorder.undo)


def offer_of_difference(lab: Lab, version: Version | None, checks: tuple[Check, ...]) -> Iterator[str]:
    """Offer the first difference from the last version that passed its check in this session, where this one fails."""
    if version is None or not checks:
        return
    passed = lab.passed_versions.get(version.name)
    if all(check.equal for check in checks):
        lab.passed_versions[version.name] = version.label
    elif passed is not None and passed != version.label:
        yield f"{passed} passed; %triton_diff {passed} {version.label} --values names the first line that differs"


def kernel_report(
    lab: Lab, recorder: Recorder, record: LaunchRecord, version: Version | None, checks: tuple[Check, ...]
) -> KernelReport:
    """The report of a launch or a compile, with the version that was launched and its checks."""
    closure = record.closure or closure_of(record.kernel)[0]
    entry = closure.functions[0]
    compiled = _compiled_for_target(lab, record, version)
    is_empty = record.grid is not None and 0 in record.grid
    return KernelReport(
        label=lab.kernels.label_of(record.kernel) if version is None else version.label,
        source=entry.text,
        file=closure.label(entry.file),
        first_line=entry.first_line,
        compiled=compiled,
        arguments=argument_reports(compiled, values_of(record.arguments), record.run),
        launches=record.launches,
        grid=record.grid,
        run=record.run,
        checks=checks,
        config=best_config(record.owner, record.compiled.options),
        notes=(
            *((f"the grid {record.grid} is empty: nothing was launched",) if is_empty else ()),
            *_note_of_untuned(lab, record),
            *offer_of_difference(lab, version, checks),
        ),
        birth=birth_in_record(lab, recorder, record),
        why_unpredicted=_why_unpredicted(lab, record, compiled),
    )


def _why_unpredicted(lab: Lab, record: LaunchRecord, compiled: Compiled) -> str:
    """Words on a launch for a target without a model of time, or ""."""
    if compiled.target.backend == "cuda" or record.grid is None or not lab.settings.predict or has_gpu(lab.session()):
        return ""
    return f"No time is predicted for {compiled.target}: there is no model of its time."


def _note_of_untuned(lab: Lab, record: LaunchRecord) -> Iterator[str]:
    """Yield that the config of a launch is the first that fits, where no GPU times the configs."""
    configs = autotune_settings(record.owner).configs
    if record.run is not None and len(configs) > 1 and lab.launches.is_offline():
        yield (
            f"The config is the first of {len(configs)} that fits, not tuned; "
            f"%triton_tune {record.kernel.__name__} tunes without a GPU."
        )


def _compiled_for_target(lab: Lab, record: LaunchRecord, version: Version | None) -> Compiled:
    """Return the kernel for the card's target, which may differ from that of the launch on the GPU."""
    if record.compiled.target == lab.target:
        return record.compiled
    kernel = record.kernel if version is None else jit_function(lab.kernels[version.id])
    return lab.compile(kernel, target=str(lab.target), **record.keywords)
