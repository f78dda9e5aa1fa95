"""What a cell adds about its launches: why they take their time, their values, where a NaN arose, what to compare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kernellab.checking.check_launch import require_kept, updated_by
from kernellab.checking.comparison import Check
from kernellab.errors import UsageError
from kernellab.inside.births import explain_births
from kernellab.inside.values import Values
from kernellab.lab import Lab
from kernellab.launch.arguments import memory_of
from kernellab.launch.recording import LaunchRecord, Recorder
from kernellab.store import Version
from kernellab.views.report import KernelReport


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
