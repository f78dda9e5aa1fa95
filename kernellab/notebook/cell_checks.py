"""The option ``--check`` of a cell: which launch each expression is for, and how its outputs compare."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NoReturn

from kernellab._triton.kernel import is_kernel, jit_function
from kernellab.errors import KernellabError, UsageError
from kernellab.launch.recording import LaunchRecord, Recorder, symbolic_expression
from kernellab.launch.runtime import Runtime
from kernellab.measure.checked_run import check_last_launch
from kernellab.measure.comparison import Check
from kernellab.measure.reference import ReferenceFunction, expression_in

_OF_KERNEL = re.compile(r"\s*(?P<kernel>[A-Za-z_][\w.]*)\s*:(?!=)(?P<expression>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class GivenCheck:
    """An expression that outputs are compared with, and the kernel that it is for, "" where none is named."""

    expression: str
    kernel: str = ""

    def is_for(self, record: LaunchRecord, namespace: Mapping[str, Any]) -> bool:
        """Tell whether a launch is one of the kernel that is named: by its own name, or by that of the notebook."""
        if not self.kernel or self.kernel in {record.kernel.fn.__name__, record.kernel.fn.__qualname__}:
            return True
        first, *members = self.kernel.split(".")
        value: Any = reduce(lambda owner, name: getattr(owner, name, None), members, namespace.get(first))
        return is_kernel(value) and jit_function(value).fn.__code__ is record.kernel.fn.__code__

    def reference(self, namespace: Mapping[str, Any]) -> ReferenceFunction:
        """Return how the expression is computed, by the names of the notebook."""
        return expression_in(self.expression, namespace, "--check")


def parse_checks(texts: Sequence[str]) -> tuple[GivenCheck, ...]:
    """Return what the options ``--check "x + y"`` and ``--check "add: x + y"`` ask for.

    Raises:
        UsageError: there are several, and one names no kernel, or two name the same one.
    """
    found = []
    for text in texts:
        named = _OF_KERNEL.fullmatch(text)
        found.append(GivenCheck(text) if named is None else GivenCheck(named["expression"].strip(), named["kernel"]))
    kernels = [each.kernel for each in found]
    if len(found) > 1 and "" in kernels:
        unnamed = found[kernels.index("")].expression
        raise UsageError(f'--check {unnamed!r}: with several, name the kernel of each: --check "add: {unnamed}".')
    if twice := next((kernel for kernel in kernels if kernels.count(kernel) > 1), ""):
        raise UsageError(f"--check: there are two for {twice}; give one for each kernel.")
    return tuple(found)


@dataclass(slots=True)
class Judged:
    """What became of the checks of a cell: the outcomes and the expression of each launch, and what is wrong.

    ``of_several`` are the launches of which the expression holds for what they do together, by identity.
    """

    outcomes: dict[int, tuple[Check, ...]] = field(default_factory=dict)
    given: dict[int, GivenCheck] = field(default_factory=dict)
    problems: list[KernellabError] = field(default_factory=list)
    of_several: set[int] = field(default_factory=set)

    def of(self, record: LaunchRecord) -> tuple[Check, ...]:
        """Return how the outputs of a launch compare; nothing where no check was for it."""
        return self.outcomes.get(id(record), ())

    def is_of_one(self, record: LaunchRecord, option: str) -> bool:
        """Tell whether the check of a record holds for one launch; that of several together becomes a problem."""
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
        """Return the expression that one launch is compared with over the kernel's parameters, or ""."""
        given = self.given.get(id(record))
        if given is None or id(record) in self.of_several:
            return ""
        return symbolic_expression(ast.parse(given.expression, mode="eval").body, namespace, record.arguments)


def judge(given: Sequence[GivenCheck], recorder: Recorder, runtime: Runtime, namespace: Mapping[str, Any]) -> Judged:
    """Compare the launches of a cell with what its checks say; each is for the last launch that it fits.

    An expression fits where its values belong to the outputs, by number, name and shape. What is wrong with one is
    among the problems, so that the others count.
    """
    judged = Judged()
    launched = [record for record in recorder.records.values() if record.launches]
    for check in given:
        try:
            fitting = [record for record in launched if check.is_for(record, namespace)] or _refuse(check, launched)
            record, (outcome, of_several) = _outcome(fitting, check.reference(namespace), recorder, runtime)
            judged.of_several |= {id(record)} if of_several else set()
            judged.outcomes[id(record)], judged.given[id(record)] = outcome, check
        except KernellabError as exc:
            judged.problems.append(exc)
    return judged


def _refuse(check: GivenCheck, launched: Sequence[LaunchRecord]) -> NoReturn:
    names = ", ".join(dict.fromkeys(record.kernel.__name__ for record in launched))
    why = f"launches no {check.kernel}; it launches {names}" if check.kernel and names else "launches no kernel"
    raise UsageError(f"--check {check.expression!r}: the cell {why}.")


def _outcome(
    records: Sequence[LaunchRecord], reference: ReferenceFunction, recorder: Recorder, runtime: Runtime
) -> tuple[LaunchRecord, tuple[tuple[Check, ...], bool]]:
    """Return the last launch that a reference fits, and how its outputs compare, as `checks_after` does."""
    misfits: list[UsageError] = []
    for record in reversed(records):
        try:
            return record, check_last_launch(reference, record, recorder, runtime)
        except UsageError as exc:  # it may be for an earlier one
            misfits.append(exc)
    raise misfits[0]
