"""A point of a panel as a launch, and whether its outputs are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab._triton.kernel import Kernel
from kernellab.explore.controls import GRID, OPTIONS, label_of
from kernellab.explore.history import Point, Verdict
from kernellab.launch.grid import checked_grid
from kernellab.launch.memory import memory_of
from kernellab.launch.poison import Poison
from kernellab.launch.reached import Copies
from kernellab.measure.comparison import agree, compare
from kernellab.measure.config import Config
from kernellab.measure.hints import Mismatch, hints_on
from kernellab.measure.launches import Launches
from kernellab.measure.reference import ANONYMOUS, Reference, ReferenceFunction, reference_of
from kernellab.target import Target


@dataclass(frozen=True, slots=True)
class Request:
    """A point as the tuner would see it: a config for the launches of some sizes.

    ``key`` tells apart the launches of one panel, ``sizes`` the points that compute the same.
    """

    launches: Launches
    config: Config
    key: tuple[Any, ...]
    sizes: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Requests:
    """Makes requests of points. ``fixed`` are the arguments and options that no control has."""

    kernel: Kernel
    grid: Any
    fixed: Mapping[str, Any]
    parameters: frozenset[str]
    constexprs: frozenset[str]
    has_hooks: bool = False
    _launches: dict[tuple[Any, ...], Launches] = field(default_factory=dict)

    def of(self, point: Point, target: Target) -> Request:
        """Return the request of a point; nothing of it is looked at yet."""
        own = {name: value for name, value in point.values if name in self.constexprs or name in OPTIONS}
        extents = {name: value for name, value in point.values if name in GRID}
        arguments = {name: value for name, value in point.values if name not in own and name not in extents}
        key = (str(target), tuple(arguments.items()), tuple(extents.items()))
        if key not in self._launches:
            meta = {**self.fixed, **arguments}
            launches = Launches(self.kernel, self._grid(extents), (), meta, target, has_hooks=self.has_hooks)
            self._launches[key] = launches
        config = Config.of(own)
        options = {name: self.fixed[name] for name in config.options if name in self.fixed and name not in own}
        return Request(self._launches[key], config.with_values(options), key, self._sizes(point))

    def _sizes(self, point: Point) -> tuple[tuple[str, str], ...]:
        """Return the values that say what is computed: sizes, switches and types, but no blocks, options and grids."""
        return tuple(
            (name, label_of(value))
            for name, value in point.values
            if name in self.parameters and not (name in self.constexprs and type(value) is int)
        )

    def _grid(self, extents: Mapping[str, int]) -> Any:
        """Return the grid with the extents that have controls of their own; of plain extents, plain extents."""

        def changed(given: Any) -> tuple[int, ...]:
            known = checked_grid(given, "the kernel")
            return tuple(extents.get(name, extent) for name, extent in zip(GRID, known, strict=True))

        if not extents:
            return self.grid
        return (lambda meta: changed(self.grid(meta))) if callable(self.grid) else changed(self.grid)


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
        values = reference.of(outputs)
        checks = compare(self.name, values, outputs, poisoned.unwritten, poisoned.fills)
        wrong = next((check for check in checks if not check.equal), None)
        if wrong is None:
            largest = max((check.max_error for check in checks), default=0.0)
            return Verdict(True, f"equals {self.name}, largest error {largest:.2g}")
        name = wrong.argument
        facts = Mismatch(name, self.name, outputs[name], values[name], unwritten=poisoned.unwritten.get(name))
        return Verdict(False, ". ".join([wrong.text, *(hint.text for hint in hints_on(facts)[:1])]))


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
