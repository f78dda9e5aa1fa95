"""The symbols and guards of a recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.fx.experimental.symbolic_shapes import ShapeEnv

from kernellab.capture.naming import place_of_user
from kernellab.capture.size import Guard


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
