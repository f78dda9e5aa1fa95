"""What a value is that a loop carries from round to round: a guess, and a round that shows it to hold.

A guess about all that a loop carries holds if the values before the loop fit it, and if a round that starts with any
values that fit it yields such values again: induction over the rounds. That is shown of all guesses in one round.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.ir.affine import Form, Interval
from kernellab.ir.ranges import Known, Number, Values, hull

Seen = tuple[Interval, Number]
"""The interval of a number where it was made, and the number."""


@dataclass(slots=True)
class Carried:
    """What a value that a loop carries may be: its start plus ``step`` in each round, else within ``interval``.

    With neither, nothing is known of it. A guess is dropped once a round shows that it does not hold.
    """

    start: Seen | None
    step: int | None = None
    interval: Interval | None = None
    is_first: bool = True

    def number(self, values: Values, value: int, turn: int) -> Known:
        """Return what the value is in the round that a number counts from 0 on."""
        if self.start is None:
            return None
        bounds, start = self.start
        if self.is_first:  # any number, to see what a round adds to it
            found = values.within(value, bounds)
            return Number(found.form, start.given, start.base)
        if self.step is not None:
            form = start.form.plus(Form((((turn, ()), self.step),)))
            if start.base is not None:
                return Number(form, start.given, start.base)
            return values.fitted(value, form, start.given)
        if self.interval is not None:
            return Number(values.within(value, self.interval).form, base=start.base)
        return None

    def holds(self, values: Values, value: int, seen: Seen | None, *, may_widen: bool) -> bool:
        """Tell whether what a round made of the value fits; where it does not, guess something wider."""
        if self.start is None:
            return True
        before = values.known[value]
        interval, start = self.start
        same_memory = seen is not None and isinstance(before, Number) and seen[1].base == before.base
        added = None
        if seen is not None and isinstance(before, Number) and same_memory and seen[1].given <= before.given:
            difference = seen[1].form.plus(before.form, -1)
            added = None if difference.terms else difference.constant
        if self.is_first:
            self.is_first, self.step = False, added
            self.interval = interval if added is None and same_memory and not start.given else None
            return False
        if self.step is not None:
            if added == self.step:
                return True
            self.step, self.interval = None, interval if same_memory and not start.given else None
            return False
        if self.interval is None:
            return True
        if seen is not None and same_memory and not seen[1].given:
            wider = hull(self.interval, seen[0])
            if wider == self.interval:
                return True
            self.interval = wider if may_widen else None
            return False
        self.interval = None
        return False
