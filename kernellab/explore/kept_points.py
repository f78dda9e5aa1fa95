"""Keeping a point: its config, with what was measured, beside the version of the kernel in the store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kernellab._triton.kernel import Kernel
from kernellab.errors import UsageError
from kernellab.explore.controls import GRID
from kernellab.explore.history import Evaluation
from kernellab.explore.launching import Requests
from kernellab.measure.provenance import Device, key_fields, key_of
from kernellab.registry import Registry
from kernellab.store import Version
from kernellab.tune.result import Row, measurement_of

TAG = "kept-config"
_KEPT = "kept"


@dataclass(frozen=True, slots=True)
class KeptPoint:
    """A kept point: the label of the version, the row, and the store that it is in."""

    label: str
    row: Row
    store: str

    @property
    def text(self) -> str:
        """What was kept, and where, in a sentence."""
        return f"Kept {self.row.config.text} of {self.label} in {self.store}."


@dataclass(frozen=True, slots=True)
class Keeper:
    """Writes points of one kernel into the store of a lab, under the keys that a tuning looks its rows up by."""

    kernels: Registry
    kernel: Kernel
    requests: Requests

    def keep(self, evaluation: Evaluation, device: Device) -> KeptPoint:
        """Keep a point; committed when this returns. One that was timed is a row that a tuning finds.

        Raises:
            UsageError: the point did not compile, cannot run, or its outputs are wrong.
        """
        if evaluation.has_failed or evaluation.verdict.equal is False:
            raise UsageError(f"{evaluation.point.text} is not kept: {evaluation.row.reason or 'it failed'}.")
        version = self.version
        request = self.requests.of(evaluation.point, device.target)
        fields = key_fields(request.launches, request.config, device)
        if callable(self.requests.grid):  # a tuning has the grid that the function gives
            fields |= {name: extent for name, extent in evaluation.point.values if name in GRID}
        key = key_of(fields)
        row = replace(evaluation.row, config=request.config)
        measurement = measurement_of(row, key, device.name if evaluation.is_timed else "")
        details = {**measurement.details, _KEPT: evaluation.point.text}
        store = self.kernels.store
        store.history.add_measurements(version.id, [replace(measurement, details=details)])
        store.tag(version.id, [TAG])
        store.note(version.id, f"kept config: {_described(evaluation, device)}")
        return KeptPoint(version.label, row, str(store.path or "memory"))

    def earlier(self) -> list[str]:
        """Return the points of this version that were kept before, the latest first, in words."""
        found = [row.measurement for row in self.kernels.store.history.measurements(self.version.id)]
        kept = [m for m in reversed(found) if _KEPT in m.details]
        return list(dict.fromkeys(_line(str(m.details[_KEPT]), m.time_ms, m.device) for m in kept))

    @property
    def version(self) -> Version:
        """The version of the kernel as it is now."""
        return self.kernels.current(self.kernel)


def earlier_words(kept: Iterable[str], most: int = 3) -> str:
    """Return a sentence on points that were kept in earlier sessions, or ""."""
    shown = list(kept)
    rest = f" and {len(shown) - most} more" if len(shown) > most else ""
    return f"Kept earlier: {'; '.join(shown[:most])}{rest}." if shown else ""


def _described(evaluation: Evaluation, device: Device) -> str:
    return _line(evaluation.point.text, evaluation.row.time_ms, device.name or evaluation.target)


def _line(text: str, time_ms: float | None, device: str) -> str:
    timed = f"{time_ms:.4g} ms" if time_ms is not None else "not timed"
    return f"{text} ({timed}{f' on {device}' if device else ''})"
