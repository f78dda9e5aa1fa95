"""What the implementations of a case give: the outputs of kernels and functions, and how they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from kernellab.errors import KernellabError, RunError, first_line, plural
from kernellab.ir.effects import Effects
from kernellab.launch.memory import copied, device_of, memory_of, reached
from kernellab.launch.runtime import Runtime
from kernellab.measure.comparison import ExpectedValue, agree
from kernellab.measure.launches import Implementation, launched_on_copies, touched
from kernellab.measure.reference import bounded_values, called


def outputs_of(arguments: Mapping[str, Any], implementations: Sequence[Implementation]) -> dict[str, Any]:
    """Return the tensors that the first kernel among the implementations may write."""
    first = [each for each in implementations if each.compiled is not None][:1]
    return written_by(arguments, first)


def written_by(arguments: Mapping[str, Any], implementations: Sequence[Implementation]) -> dict[str, Any]:
    """Return the tensors that some of the kernels among the implementations may write."""
    found: dict[str, Any] = {}
    for each in implementations:
        if each.compiled is not None:
            found |= _written(arguments, each.compiled.effects)
    return found


def _written(arguments: Mapping[str, Any], effects: Effects) -> dict[str, Any]:
    memory = memory_of(arguments)
    behind = reached(arguments, effects, device_of(arguments))
    mutated = touched(effects, behind)[0]
    return {name: tensor for name, tensor in {**memory, **behind.tensors}.items() if name in mutated}


def difference(outputs: Sequence[Any], reference: Sequence[ExpectedValue], names: Sequence[str], subject: str) -> str:
    """Return in words how outputs differ from those of a reference, "" where they agree."""
    if len(outputs) != len(reference):
        written = ", ".join(names) or "nothing"
        own = plural(len(outputs), "output")
        return f"{own} against {len(reference)} of {subject}; the kernel writes {written}, in this order"
    # Where no kernel compiled, or another one writes more, the names are not those of the outputs.
    labels = names if len(names) == len(outputs) else [f"output {number}" for number in range(len(outputs))]
    for name, got, want in zip(labels, outputs, reference, strict=True):
        if got.numel() != want.value.numel():
            return f"{name} has the shape {tuple(got.shape)}, and {subject} has {tuple(want.value.shape)}"
        if not agree(got, want):
            return f"{name} differs from that of {subject}"
    return ""


def returned(result: Any, written: Sequence[Any]) -> list[Any]:
    """Return the outputs of a function: what it returns, or what it wrote where it returns nothing.

    Raises:
        RunError: it returns something that is no tensor.
    """
    if result is None:
        return list(written)
    found = list(result) if isinstance(result, tuple | list) else [result]
    if not all(hasattr(each, "numel") for each in found):
        kinds = ", ".join(type(each).__name__ for each in found)
        raise RunError(f"It returns {kinds}; expected a tensor, or a tuple with one per output of the kernel.")
    return found


def run_function(implementation: Implementation, arguments: Mapping[str, Any]) -> Any:
    """Call a function of the user.

    Raises:
        RunError: it raises, in its own words.
    """
    try:
        return called(implementation.function, arguments, implementation.name)
    except KernellabError:
        raise
    except Exception as exc:
        raise RunError(f"{implementation.name} raised {type(exc).__name__}: {first_line(exc)}") from exc


def values_of(
    implementation: Implementation, arguments: Mapping[str, Any], outputs: Sequence[Any]
) -> list[ExpectedValue]:
    """Return what others are to give beside the outputs of the first one: with bounds, where that is a function.

    It is called anew, in float64; where that is not the same, or changes its arguments, its outputs count as they are.
    """
    plain = [ExpectedValue(output.clone()) for output in outputs]
    if implementation.function is None:
        return plain
    with suppress(Exception):  # it has been called and has its outputs: what the other call raises is nobody's concern
        found = bounded_values(partial(called, implementation.function, what=implementation.name), arguments)
        bounds = list(found) if isinstance(found, tuple) else [found]
        if all(agree(got, want) for got, want in zip(outputs, bounds, strict=True)):
            return bounds
    return plain


@dataclass(slots=True)
class FirstOutputs:
    """Compares the outputs of implementations with those of the first; ``names`` are those that a kernel writes."""

    arguments: Mapping[str, Any]
    names: Sequence[str]
    _first: tuple[str, list[ExpectedValue]] | None = None

    def difference(self, implementation: Implementation, outputs: Sequence[Any]) -> str:
        """Return how outputs differ from those that came first, "" where they agree or are the first."""
        if self._first is None:
            self._first = (implementation.name, values_of(implementation, self.arguments, outputs))
            return ""
        name, reference = self._first
        return difference(outputs, reference, self.names, name)


def differences_on_cpu(
    runtime: Runtime, timeout_s: float, arguments: Mapping[str, Any], implementations: Sequence[Implementation]
) -> list[str]:
    """Run all implementations on the CPU; return for each how its outputs differ from those of the first, or ""."""
    names = list(outputs_of(arguments, implementations))
    first, problems = FirstOutputs(arguments, names), []
    for implementation in implementations:
        try:
            outputs = _run_on_cpu(runtime, timeout_s, arguments, implementation, names)
        except KernellabError as exc:
            problems.append(" ".join(exc.message.split()))
            continue
        problems.append(first.difference(implementation, outputs))
    return problems


def _run_on_cpu(
    runtime: Runtime, timeout_s: float, arguments: Mapping[str, Any], implementation: Implementation, names: list[str]
) -> list[Any]:
    launch = implementation.launch
    if launch is None:
        taken = copied(arguments)
        memory = memory_of(taken)
        return returned(run_function(implementation, taken), [memory[name] for name in names if name in memory])
    copies, _ = launched_on_copies(runtime, launch, implementation.kernel.effects, "cpu", timeout_s)
    memory = {**memory_of(copies.arguments), **copies.reached}
    return [memory[name] for name in names if name in memory]
