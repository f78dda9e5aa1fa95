"""The predicted time of a launch: what the model of time says of its facts, with an interval.

The interval is that in which four of five recorded times lie, by what the model knows of the launch: see
`benchmarks.predict` for the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.display import Drawable
from kernellab.errors import UsageError, time_text
from kernellab.explain.facts import MAY_MISS_LONGEST, Facts
from kernellab.explain.model import Times, floor_seconds, times_of
from kernellab.workers.forks_and_interrupts import import_uninterrupted


@dataclass(frozen=True, repr=False)
class Prediction(Drawable):
    """The predicted time of one launch on a device, in milliseconds.

    ``low_ms`` and ``high_ms`` bound the interval that holds the true time in four of five recorded cases. ``bound`` is
    what limits the launch, ``terms`` the milliseconds of each unit if it worked alone, ``share`` the roofline bound
    over the predicted time, from 0 to 1. ``unknown`` are sentences about what the prediction had to assume.
    """

    kernel: str
    target: str
    device: str
    time_ms: float
    low_ms: float
    high_ms: float
    bound: str
    terms: Mapping[str, float]
    share: float
    unknown: tuple[str, ...] = ()
    facts: Facts | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """One line with the time, its interval, the bound and the device."""
        low, time, high = (time_text(ms / 1e3) for ms in (self.low_ms, self.time_ms, self.high_ms))
        return f"<Prediction of {self.kernel}: {time} ({low} to {high}) on {self.device}, limited by {self.bound}>"

    @property
    def frame(self) -> Any:
        """A row per term as a DataFrame: term and time_ms, the largest first."""
        pd = import_uninterrupted("pandas")
        rows = sorted(self.terms.items(), key=lambda term: -term[1])
        frame = pd.DataFrame(rows, columns=["term", "time_ms"])
        frame.attrs |= {"kernel": self.kernel, "device": self.device, "time_ms": self.time_ms, "bound": self.bound}
        return frame


def predict_facts(facts: Facts, unknown: tuple[str, ...] = ()) -> Prediction:
    """Return the predicted time of a launch; a function of its facts alone.

    ``unknown`` are sentences in addition to those of the facts.

    Raises:
        UsageError: the launch is for an AMD device, whose instructions the model does not know.
    """
    if not facts.is_predictable:
        raise UsageError(
            f"Times cannot be predicted for {facts.target}: the model counts NVIDIA's instructions. "
            "Give an NVIDIA device, such as device='h100', or measure on the GPU."
        )
    times = times_of(facts)
    low, high = interval_factors(facts, times)
    total_ms = times.total * 1e3
    return Prediction(
        kernel=facts.kernel,
        target=facts.target,
        device=facts.device.name,
        time_ms=total_ms,
        low_ms=total_ms * low,
        high_ms=total_ms * high,
        bound=str(times.largest),
        terms={str(term): seconds * 1e3 for term, seconds in times.terms.items()},
        share=min(1.0, floor_seconds(facts) / times.total),
        unknown=tuple(
            sentence
            for sentence in dict.fromkeys((*facts.unknown, *unknown))
            if not sentence.startswith("Traffic extrapolated")  # a sample suffices for a time
        ),
        facts=facts,
    )


# Of the predicted time; the quantiles of 10 and 90 % of the recorded times, on the half that the model was fitted on.
_USUAL = (0.77, 1.28)
_SPILLING = (0.6, 1.7)
_ASSUMED = (0.5, 2.2)
_CONTENDED = (0.8, 5.0)
_SPILLS_SHARE = 0.15  # of the time, from which spills make it uncertain
_CONTENTION = 32  # updates of one address


def interval_factors(facts: Facts, times: Times) -> tuple[float, float]:
    """Return the bounds of a prediction's interval over its time.

    It is wide where registers spill, where trip counts or addresses are assumed, where a program that was not looked at
    may be the longest, and most where atomics contend.
    """
    if any(atomic.updates_per_address > _CONTENTION for atomic in facts.atomics):
        return _CONTENDED
    assumes = any(sentence.startswith(("Trip counts", "Traffic:", MAY_MISS_LONGEST)) for sentence in facts.unknown)
    if not facts.has_traffic or assumes:
        return _ASSUMED
    return _SPILLING if times.spills > _SPILLS_SHARE * times.total else _USUAL
