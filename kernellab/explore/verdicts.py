"""Whether the outputs of a point are right: against a reference of the user, or against the first point."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.check import compare
from kernellab.errors import UsageError
from kernellab.explore.points import Verdict
from kernellab.gpu.bench_memory import equal
from kernellab.memory import copied, memory_of
from kernellab.reached import Copies

Check = Callable[..., Any]
_MOST_FIRSTS = 8  # first points whose outputs are held; after that, a size that comes back has a new first point


@dataclass(slots=True)
class Reference:
    """What outputs are compared with.

    ``check`` takes parameters of the kernel by name, those that it names, and returns a tensor, or a tuple of them in
    the order of the kernel's outputs; it may be such a tensor or tuple itself. ``text`` names it. Without it, the
    outputs of the first point are the reference of all that compute the same.
    """

    check: Check | Any | None
    text: str = ""
    _firsts: dict[Any, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the user's reference is called in messages."""
        name = self.text or getattr(self.check, "__name__", "check")
        return "check" if name == "<lambda>" else str(name)

    def verdict(self, sizes: Any, text: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Verdict:
        """Return whether the outputs of the point ``text`` are right; ``inputs`` are the arguments before the launch.

        Raises:
            UsageError: the reference does not fit the outputs, or asks for what the kernel does not take.
        """
        if self.check is not None:
            return self.checked(inputs, outputs)
        known = self._firsts.get(sizes)
        if known is None:
            while len(self._firsts) >= _MOST_FIRSTS:
                del self._firsts[next(iter(self._firsts))]
            self._firsts[sizes] = (text, {name: tensor.clone() for name, tensor in outputs.items()})
            return first_verdict()
        first, expected = known
        return agreement(first, all(equal(outputs[name], expected[name]) for name in expected if name in outputs))

    def checked(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Verdict:
        """Return whether outputs equal the user's reference."""
        given = self._value(inputs)
        references = tuple(given) if isinstance(given, tuple | list) else (given,)
        if len(references) != len(outputs):
            names = ", ".join(outputs) or "nothing"
            raise UsageError(
                f"{self.name} gives {len(references)} values and the kernel writes {names}; it has to return a tensor "
                "for each output, in this order."
            )
        for reference, (name, output) in zip(references, outputs.items(), strict=True):
            if getattr(reference, "shape", output.shape) != output.shape and reference.numel() != output.numel():
                raise UsageError(
                    f"{self.name} has the shape {tuple(reference.shape)} and {name} has {tuple(output.shape)}."
                )
        checks = compare(self.name, references, dict(outputs))
        wrong = next((check for check in checks if not check.equal), None)
        if wrong is None:
            largest = max((check.max_error for check in checks), default=0.0)
            return Verdict(True, f"equals {self.name}, largest error {largest:.2g}")
        return Verdict(
            False,
            f"{wrong.argument} differs from {self.name} in {wrong.mismatched:,} of {wrong.elements:,} elements, "
            f"largest error {wrong.max_error:.2g}",
        )

    def _value(self, inputs: Mapping[str, Any]) -> Any:
        if not callable(self.check):
            return self.check
        parameters = inspect.signature(self.check).parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return self.check(**copied(inputs))
        missing = [p.name for p in parameters if p.name not in inputs and p.default is p.empty]
        if missing:
            raise UsageError(f"{self.name} takes {', '.join(missing)}; the kernel has {', '.join(inputs)}.")
        return self.check(**copied({p.name: inputs[p.name] for p in parameters if p.name in inputs}))


def outputs_of(copies: Copies) -> dict[str, Any]:
    """Return the tensors that a kernel may write, by name; all of them where an effect is unknown."""
    tensors = {**memory_of(copies.arguments), **copies.reached}
    if not copies.effects.is_followed:
        return tensors
    mutated = copies.effects.mutated | copies.behind.mutated
    return {name: tensor for name, tensor in tensors.items() if name in mutated}


def first_verdict() -> Verdict:
    return Verdict(None, "the first point, with which others are compared")


def agreement(first: str, agrees: bool) -> Verdict:
    """Return the verdict of a comparison with the first point."""
    return Verdict(agrees, f"{'agrees with' if agrees else 'differs from'} the first point ({first})")
