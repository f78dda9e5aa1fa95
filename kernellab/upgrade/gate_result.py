"""The result of a gate: two revisions of a kernel timed in turns on a GPU or, without one, their compiles compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kernellab.display import HOOK, Displayable
from kernellab.errors import plural, time_text
from kernellab.store import Snapshot
from kernellab.timing.gate import GateTiming, GateVerdict
from kernellab.upgrade.comparison import Reason, predicted_ratio


@dataclass(frozen=True, repr=False)
class GateResult(Displayable):
    """Two revisions of a kernel compared: ``margin`` is the slowdown that is allowed, as a share.

    ``timing`` is None without a GPU. ``before`` and ``after`` are then snapshots with resources, traffic and predicted
    time, else with resources alone; ``reasons`` are what became worse between them. ``difference`` says in what the
    outputs of the two differ, and by how much; "" where they agree or were not compared.
    """

    names: tuple[str, str]
    verdict: GateVerdict
    margin: float
    budget_s: float
    device: str
    before: Snapshot
    after: Snapshot
    timing: GateTiming | None = None
    reasons: tuple[Reason, ...] = ()
    difference: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The card as text."""
        return str(HOOK.bundle(self)["text/plain"])

    def __repr__(self) -> str:
        """One line with the verdict."""
        return f"<GateResult: {self.text}>"

    @property
    def status(self) -> int:
        """The exit status: 0 within the gate or faster, 1 slower beyond doubt or different, 3 undecided or suspect."""
        return self.verdict.status

    @property
    def predicted_ratio(self) -> float | None:
        """The predicted time of the later by that of the earlier; None where one is not known."""
        return predicted_ratio(self.before, self.after)

    @property
    def text(self) -> str:
        """The verdict in a sentence."""
        figures = self._compile_words() if self.timing is None else self._time_words(self.timing)
        if self.verdict is GateVerdict.DIFFERENT:
            return f"Outputs differ: {self.difference}; {figures}"
        if self.timing is None:
            start = "Undecided, as the outputs were not compared; " if self.verdict is GateVerdict.UNDECIDED else ""
            words = start + figures
            return words[0].upper() + words[1:]
        if self.verdict is GateVerdict.UNDECIDED:
            return f"Undecided after {time_text(self.timing.seconds)}: {figures}"
        words = {GateVerdict.SLOWER: "Slower", GateVerdict.FASTER: "Faster"}.get(self.verdict, "Within the gate")
        return f"{words}: {figures}"

    def _compile_words(self) -> str:
        reason, predicted = "no reason to expect a slowdown", self.predicted_ratio
        if self.reasons:
            reason = f"suspect, by {plural(len(self.reasons), 'reason')}"
        end = "" if predicted is None else f"; predicted {predicted:.2f}x the time"
        return f"{reason}; not timed, as there is no GPU{end}"

    def _time_words(self, timing: GateTiming) -> str:
        low, high = timing.ratio.low, timing.ratio.high
        bounds = f"{low:.4f} to {high:.4f}" if math.isfinite(high) else "no interval yet"
        return f"{timing.ratio.median:.4f}x the time ({bounds}), gate {self.margin * 100:g} %"


def gate_fields(result: GateResult) -> dict[str, Any]:
    """The figures of a gate as plain data; those of a timing are None without a GPU."""
    timing = result.timing
    fields: dict[str, Any] = {
        "verdict": result.verdict,
        "margin": result.margin,
        "budget_s": result.budget_s,
        "device": result.device,
        "earlier": result.names[0],
        "later": result.names[1],
        "ratio": None if timing is None else timing.ratio.median,
        "ratio_low": None if timing is None else timing.ratio.low,
        "ratio_high": None if timing is None else timing.ratio.high,
        **{
            name: None if timing is None else getattr(timing, name)
            for name in ("earlier_ms", "later_ms", "rounds", "blocks", "seconds")
        },
        "predicted_ratio": result.predicted_ratio,
        "reasons": [str(reason) for reason in result.reasons],
        "difference": result.difference,
        "notes": result.notes,
        "summary": result.text,
    }
    for side, snapshot in (("before", result.before), ("after", result.after)):
        figures = ("triton", "registers", "spill_bytes", "shared_bytes", "occupancy", "wavefronts", "predicted_ms")
        fields |= {f"{side}_{name}": getattr(snapshot, name) for name in figures}
    return fields
