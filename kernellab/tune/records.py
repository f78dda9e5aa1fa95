"""The row of a config: from what a compiler or a bench says of it, and as a measurement in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError
from kernellab.measure.config import Config
from kernellab.measure.outcomes import UNMEASURED, Status, reason_of
from kernellab.store import History, Measurement
from kernellab.tune.result import Row, with_resources


def row_before(config: Config, result: Compiled | KernellabError, max_spill_bytes: int | None) -> Row:
    """Return the row of a config before it is measured. One that can run is not timed for no reason so far."""
    if isinstance(result, KernellabError):
        return Row(config, Status.COMPILE_ERROR, reason_of(result))
    resources = result.resources
    if not resources.fits:
        return with_resources(config, result, Status.CANNOT_RUN, resources.why_not or "it does not fit the target")
    if max_spill_bytes is not None and (resources.spill_bytes or 0) > max_spill_bytes:
        reason = f"it spills {resources.spill_bytes} bytes per thread"
        return with_resources(config, result, Status.PRUNED, reason)
    return with_resources(config, result, Status.NOT_TIMED)


_OWN = {"config", "status", "time_ms"}


@dataclass(frozen=True, slots=True)
class Records:
    """The measurements of one kernel for one kind of launch on one kind of device.

    ``version_id`` is the version they are entered under. They are found again by their key alone, so that a new
    version of the decorators (another list of configs) still finds them.
    """

    history: History
    version_id: int
    key: str
    device: str

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows; committed when this returns. Those that were not measured for want of time or a GPU are not."""
        kept = [measurement_of(row, self.key, self.device) for row in rows if row.status not in UNMEASURED]
        if kept:
            self.history.add_measurements(self.version_id, kept)

    def known(self) -> dict[Config, Row]:
        """Return the latest row of every config that was measured under this key."""
        found: dict[str, Row] = {}
        for entry in self.history.measurements(key=self.key):
            row = row_of(entry.measurement)
            if row is not None:
                found[row.config.key] = row
        return {row.config: row for row in found.values()}


def measurement_of(row: Row, key: str, device: str) -> Measurement:
    details = {f.name: getattr(row, f.name) for f in fields(row) if f.name not in _OWN}
    return Measurement(key, row.config.stored, device, str(row.status), row.time_ms, details)


def row_of(measurement: Measurement) -> Row | None:
    """Return the row of a measurement; None for one that something else than a tuning made."""
    names = {f.name for f in fields(Row)} - _OWN
    if "standing" not in measurement.details:
        return None
    details = {name: value for name, value in measurement.details.items() if name in names}
    config = Config.from_stored({"num_warps": None, "num_stages": None, "num_ctas": None, **measurement.config})
    return Row(config, Status(measurement.status), time_ms=measurement.time_ms, **details)
