"""The result of a gate for upgrades: a row per stored winner, and per neighbour of it among the stored configs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kernellab.display import Displayable
from kernellab.registry.regressions import TimeChange
from kernellab.store import Snapshot
from kernellab.timing.stopwatch import Interval
from kernellab.upgrade.comparison import Parting, Reason, predicted_ratio, reasons_between
from kernellab.workers.forks_and_interrupts import cached_property, import_uninterrupted

if TYPE_CHECKING:
    import pandas


class UpgradeOutcome(StrEnum):
    """The outcome of a stored config under another version of the compiler.

    ``fails``: it does not compile or fit any more. ``suspect``: there is a reason to time it again. ``same``: there is
    none. ``slower`` and ``cleared``: it was timed again, and is slower by more than noise, or is not. ``unknown``: it
    cannot be compared.
    """

    FAILS = "fails"
    SLOWER = "slower"
    SUSPECT = "suspect"
    UNKNOWN = "unknown"
    CLEARED = "cleared"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class RepeatedTiming:
    """The times of a winner on the GPU under the new version, by `lab.tune` with ``fresh``.

    ``ratio`` is its time by the kept one. ``best`` is the config that wins now, in words, which is stored as the
    launch; "" where the winner still wins.
    """

    became: TimeChange
    ratio: Interval | None
    best: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class UpgradeRow:
    """A stored config before and after: the winner of a launch, or (``is_winner`` is False) a neighbour of it.

    ``launch`` has the sizes in words. ``basis`` is ``code`` where instructions, traffic and predicted time were kept,
    ``resources`` where only these were. ``parting`` is the first stage at which the two compiles differ, None where
    only one of them is at hand.
    """

    kernel: str
    launch: str
    config: str
    is_winner: bool
    before: Snapshot | None
    after: Snapshot
    reasons: tuple[Reason, ...] = ()
    parting: Parting | None = None
    retimed: RepeatedTiming | None = None

    @property
    def outcome(self) -> UpgradeOutcome:
        """The outcome, by times where there are some."""
        if self.after.failure:
            return UpgradeOutcome.UNKNOWN if self.before is None or self.before.failure else UpgradeOutcome.FAILS
        if self.before is None or self.before.failure or not self.before.is_known or not self.after.is_known:
            return UpgradeOutcome.UNKNOWN
        if self.retimed is not None and self.retimed.became is TimeChange.SLOWER:
            return UpgradeOutcome.SLOWER
        if self.retimed is not None and self.retimed.became in {TimeChange.SAME, TimeChange.FASTER}:
            return UpgradeOutcome.CLEARED if self.reasons else UpgradeOutcome.SAME
        return UpgradeOutcome.SUSPECT if self.reasons else UpgradeOutcome.SAME

    @property
    def basis(self) -> str:
        """``code``, ``resources`` or "": how much was kept of it."""
        if self.before is None or self.before.failure:
            return ""
        return "code" if self.before.has_code else "resources"

    @property
    def ratio(self) -> float | None:
        """The predicted time after by that before, or None."""
        return None if self.before is None else predicted_ratio(self.before, self.after)

    @property
    def why(self) -> str:
        """The reasons in words; of what cannot be compared, why."""
        if self.outcome is UpgradeOutcome.UNKNOWN:
            was = "" if self.before is None else self.before.failure
            now = "" if self.after.is_known or not self.after.unknown else self.after.unknown[0]
            nothing = "nothing was kept of its compile; --python compiles it under that Triton"
            return self.after.failure or was or now or nothing
        return "; ".join(map(str, self.reasons))


def compared_row(
    kernel: str,
    launch: str,
    config: str,
    before: Snapshot | None,
    after: Snapshot,
    parting: Parting | None = None,
    *,
    is_winner: bool = True,
) -> UpgradeRow:
    """The row of a config, with the reasons that follow from its snapshots."""
    reasons = () if before is None else reasons_between(before, after)
    return UpgradeRow(kernel, launch, config, is_winner, before, after, reasons, parting)


_ORDER = list(UpgradeOutcome)
_GATED = {UpgradeOutcome.FAILS, UpgradeOutcome.SLOWER, UpgradeOutcome.SUSPECT}
_FIGURES = ("triton", "registers", "spill_bytes", "shared_bytes", "occupancy", "wavefronts", "predicted_ms")
COLUMNS = [
    *("kernel", "launch", "config", "is_winner", "outcome", "why", "basis", "ratio"),
    *("stage", "stage_lines", "became", "best"),
    *(f"{side}_{name}" for side in ("before", "after") for name in _FIGURES),
]


@dataclass(frozen=True, repr=False)
class Upgrade(Displayable):
    """All stored winners of a store under the installed Triton, with their neighbours.

    ``rows`` begin with what fails or is suspect. ``before`` and ``after`` are versions of Triton; ``notes`` say what
    was left out.
    """

    rows: tuple[UpgradeRow, ...]
    before: tuple[str, ...]
    after: str
    store: str = ""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """One line; the rows are in `frame`."""
        return f"<Upgrade: {self.text}>"

    @property
    def winners(self) -> tuple[UpgradeRow, ...]:
        """The rows of winners."""
        return tuple(row for row in self.rows if row.is_winner)

    @property
    def suspects(self) -> tuple[UpgradeRow, ...]:
        """The winners that fail, are suspect, or were timed and are slower."""
        return tuple(row for row in self.winners if row.outcome in _GATED)

    @property
    def text(self) -> str:
        """The versions, and the number of winners by outcome, in words."""
        counts = Counter(row.outcome for row in self.winners)
        words = ", ".join(f"{counts[outcome]} {outcome}" for outcome in UpgradeOutcome if counts[outcome])
        if not self.winners:
            return f"Triton {self.after}: no winner of another version is stored"
        return f"Triton {' and '.join(self.before) or 'other versions'} to {self.after}: {words}"

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """One row per config, with the columns that `row_fields` returns."""
        pd = import_uninterrupted("pandas")

        frame = pd.DataFrame([row_fields(row) for row in self.rows], columns=COLUMNS)
        frame.attrs.update({"before": list(self.before), "after": self.after, "notes": list(self.notes)})
        return frame


def in_order(rows: list[UpgradeRow]) -> tuple[UpgradeRow, ...]:
    """Rows in the order of a result: the worst outcome first, winners before neighbours."""
    return tuple(
        sorted(rows, key=lambda row: (not row.is_winner, _ORDER.index(row.outcome), row.kernel, row.launch, row.config))
    )


def row_fields(row: UpgradeRow) -> dict[str, Any]:
    """A row as plain data."""
    stage, lines = (None, ()) if row.parting is None else (row.parting.stage, row.parting.lines)
    became, best = (None, None) if row.retimed is None else (str(row.retimed.became), row.retimed.best)
    values = (row.kernel, row.launch, row.config, row.is_winner, str(row.outcome), row.why, row.basis, row.ratio)
    more = (stage, list(map(str, lines)), became, best, *_side_values(row.before), *_side_values(row.after))
    return dict(zip(COLUMNS, (*values, *more), strict=True))


def _side_values(snapshot: Snapshot | None) -> list[Any]:
    return [None if snapshot is None else getattr(snapshot, name) for name in _FIGURES]
