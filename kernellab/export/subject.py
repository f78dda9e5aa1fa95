"""Gathering what is exported: a version, how it was launched, and what its outputs held."""

from __future__ import annotations

import dataclasses
from typing import Any

from kernellab.errors import KernellabError, UsageError
from kernellab.export.checking import Expected, expected_of
from kernellab.export.module import Subject, why_unchecked
from kernellab.launch.memory import memory_of
from kernellab.registry.recorded_launches import made_inputs, options_of
from kernellab.store import Launch, Result, Store, Version


def subject_of(store: Store, version: Version) -> Subject:
    """Return a version with its launches; those that have other parameters than the latest are left out.

    Trials by `Lab.run` count only where there is no launch.
    """
    known = store.history.launches(version.id)
    rows = [row for row in known if row.launch.by == "launch"] or known
    launches = tuple(row.launch for row in rows if [a.name for a in row.launch.arguments] == _names(rows[-1].launch))
    result = _result(store, version, launches[-1]) if launches else None
    if _accumulates(result):
        launches = tuple(dataclasses.replace(launch, check="") for launch in launches)
    return Subject(version, launches, result)


def expectation(subject: Subject, kernel: Any, device: str) -> tuple[Expected, ...]:
    """Launch a bound kernel on the inputs that the exported module generates; return what its outputs hold.

    Nothing is expected where the launch has a reference, where it cannot be made again, or where it fails.
    """
    launch = subject.launch
    if launch is None or launch.grid is None or launch.check or why_unchecked(subject):
        return ()
    try:
        arguments = made_inputs(launch, device)
        with kernel.runtime.observers.withheld():
            kernel[launch.grid](**arguments, **values_of(launch))
    except KernellabError:
        return ()
    outputs = memory_of(arguments)
    mutated = None
    if subject.result is not None and subject.result.complete:
        mutated = {*subject.result.writes, *subject.result.atomics}
    return expected_of({n: t for n, t in outputs.items() if mutated is None or n in mutated})


def values_of(launch: Launch) -> dict[str, Any]:
    """Return the constexprs and options of a launch as values.

    Raises:
        UsageError: a constexpr was something of which only the type is known.
    """
    import triton.language as tl  # keeps `import kernellab` light

    from kernellab._triton.loading import load

    values: dict[str, Any] = {}
    for argument in launch.arguments:
        if argument.constexpr and argument.kind == "dtype":
            values[argument.name] = tl.dtype(argument.value)
        elif argument.constexpr and argument.kind == "scalar":
            values[argument.name] = argument.value
        elif argument.constexpr and argument.source is not None:
            values[argument.name] = load(argument.source[0]).value(argument.source[1])
        elif argument.constexpr:
            raise UsageError(f"{argument.name} was {argument.value}, which cannot be made again.")
    return {**values, **options_of(launch)}


def _accumulates(result: Result | None) -> bool:
    """Tell whether outputs depend on what they held before: their reference holds for what the cell had put there."""
    return (
        result is None
        or not result.complete
        or bool({*result.reads, *result.atomics} & {*result.writes, *result.atomics})
    )


def _names(launch: Launch) -> list[str]:
    return [argument.name for argument in launch.arguments]


def _result(store: Store, version: Version, launch: Launch) -> Result | None:
    return next((r for _, r in reversed(store.history.results(version.id)) if r.digest == launch.result), None)
