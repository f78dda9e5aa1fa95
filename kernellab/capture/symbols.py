"""The symbols of a recording: numbers that a block reads by ``item()``, which each run reads again, and guards."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from kernellab.capture.naming import place_of_user
from kernellab.capture.size import Guard
from kernellab.capture.tape import Ref
from kernellab.capture.tracked_tensors import random_number_problem, random_source
from kernellab.errors import UsageError

if TYPE_CHECKING:
    from kernellab.capture.size_tracking import SizeTracker


@dataclass(frozen=True, slots=True)
class DataNumber:
    """A number of one read: the step, its recorded value, and the operation that draws it at random, or ""."""

    step: int
    value: int | float
    random: str = ""


@dataclass(slots=True)
class DataNumbers:
    """The numbers of a recording by their symbols.

    Without sizes, a block gets symbols for numbers drawn at random alone, which a run cannot read again as they were.
    ``are_in_layouts`` says whether a layout follows from one of them.
    """

    tracker: SizeTracker
    known: dict[Any, DataNumber] = field(default_factory=dict)
    are_in_layouts: bool = False

    def read(self, function: Any, arguments: Any) -> Any:
        """Call ``item()``; return a symbolic number, or the plain one where the program holds for that alone."""
        recorder, steps = self.tracker.recorder, self.tracker.recording.steps
        before = len(steps)
        with recorder.defer_read() as reads:
            result = function(*arguments[0], **arguments[1])
        if not reads or len(steps) == before:
            return result
        self.tracker.mark_followed()
        step = len(steps) - 1
        values = [ref.index for ref in steps[step].args if isinstance(ref, Ref)]
        random = random_source(self.tracker.recording, values)
        is_number = type(result) in (int, float) and math.isfinite(result)
        if is_number and (self.tracker.tracks_shapes or random):
            return self._new(DataNumber(step, result, random))
        recorder.note_read(result, values)
        return result

    def _new(self, number: DataNumber) -> Any:
        env = self.tracker.env
        source = ConstantSource(f"item_of_step_{number.step}")
        symbol = env.create_unspecified_symbol(number.value, source, DimDynamic.DYNAMIC)
        self.known[symbol] = number
        self.tracker.hints[symbol] = number.value
        if isinstance(number.value, float):
            return env.create_symfloatnode(symbol, hint=number.value, source=source)
        return env.create_symintnode(symbol, hint=number.value, source=source)

    def free(self) -> Iterator[tuple[Any, DataNumber]]:
        """Yield the symbols that no guard fixes, with their numbers.

        Raises:
            UsageError: one that is fixed was drawn at random, so that a run would draw another.
        """
        for symbol, number in self.known.items():
            place = self.tracker.recording.steps[number.step].place
            if not self.tracker.is_fixed(symbol):
                yield symbol, number
            elif number.random:
                raise UsageError(random_number_problem(place, number.value, number.random))
            else:
                fixed = f"{place} reads a value of a tensor, {number.value}, which what follows fixes"
                self.tracker.recorder.note(f"{fixed}; a run that reads something else is refused")

    def is_among(self, symbols: set[Any]) -> bool:
        """Whether one of the symbols is a number of a read."""
        return not self.known.keys().isdisjoint(symbols)


class SizeEnv(ShapeEnv):
    """A `ShapeEnv` that keeps the place and the reason of each guard."""

    def __init__(self) -> None:
        super().__init__(duck_shape=False, allow_scalar_outputs=False)
        self.reason = ""
        self.guards_with_places: list[Guard] = []

    def evaluate_expr(self, *args: Any, **options: Any) -> Any:
        """Evaluate a condition, which adds a guard where the symbols decide it."""
        before = len(self.guards)
        value = super().evaluate_expr(*args, **options)
        self.guards_with_places += [Guard(guard.expr, place_of_user(), self.reason) for guard in self.guards[before:]]
        return value

    @contextmanager
    def because(self, reason: str) -> Iterator[None]:
        """Set the reason of guards that are added inside a with statement."""
        before, self.reason = self.reason, reason
        try:
            yield
        finally:
            self.reason = before
