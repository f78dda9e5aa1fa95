"""Whether the outputs of a point are right: against a reference of the user, or against the first point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.explore.history import Verdict
from kernellab.launch.memory import memory_of
from kernellab.launch.poison import Poison
from kernellab.launch.reached import Copies
from kernellab.measure.comparison import agree, compare
from kernellab.measure.reference import ANONYMOUS, Reference, ReferenceFunction, reference_of

_MOST_FIRSTS = 8  # first points whose outputs are held; after that, a size that comes back has a new first point


@dataclass(slots=True)
class Verdicts:
    """What outputs are compared with.

    ``check`` is a reference, or how one is computed from the arguments of each point. Without it, the outputs of the
    first point are the reference of all that compute the same. ``text`` names it.
    """

    check: ReferenceFunction | Reference | None
    text: str = ""
    _firsts: dict[Any, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the user's reference is called in messages."""
        name = self.text or ("" if self.check is None else self.check.text)
        return "check" if name == ANONYMOUS else name

    def verdict(
        self, sizes: Any, text: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], poisoned: Poison
    ) -> Verdict:
        """Return whether the outputs of the point ``text`` are right; ``inputs`` are the arguments before the launch.

        Raises:
            UsageError: the reference does not fit the outputs, or asks for what the kernel does not take.
        """
        if self.check is not None:
            return self.checked(inputs, outputs, poisoned)
        known = self._firsts.get(sizes)
        if known is None:
            while len(self._firsts) >= _MOST_FIRSTS:
                del self._firsts[next(iter(self._firsts))]
            self._firsts[sizes] = (text, {name: tensor.clone() for name, tensor in outputs.items()})
            return first_verdict()
        first, expected = known
        return agreement(first, all(agree(outputs[name], expected[name]) for name in expected if name in outputs))

    def checked(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], poisoned: Poison) -> Verdict:
        """Return whether outputs equal the user's reference; they were ``poisoned`` before the launch."""
        assert self.check is not None, "there is a reference to compare with"
        reference = self.check if isinstance(self.check, Reference) else reference_of(self.check, inputs)
        poisoned.lift()
        checks = compare(self.name, reference.of(outputs), outputs, poisoned.unwritten, poisoned.fills)
        wrong = next((check for check in checks if not check.equal), None)
        if wrong is None:
            largest = max((check.max_error for check in checks), default=0.0)
            return Verdict(True, f"equals {self.name}, largest error {largest:.2g}")
        return Verdict(False, wrong.text)


def outputs_of(copies: Copies) -> dict[str, Any]:
    """Return the tensors that a kernel may write, by name; all of them where an effect is unknown."""
    tensors = {**memory_of(copies.arguments), **copies.reached}
    if not copies.effects.is_followed:
        return tensors
    mutated = copies.effects.mutated | copies.behind.mutated
    return {name: tensor for name, tensor in tensors.items() if name in mutated}


def first_verdict() -> Verdict:
    """Return the verdict on the point that others are compared with."""
    return Verdict(None, "the first point, with which others are compared")


def agreement(first: str, agrees: bool) -> Verdict:
    """Return the verdict of a comparison with the first point."""
    return Verdict(agrees, f"{'agrees with' if agrees else 'differs from'} the first point ({first})")
