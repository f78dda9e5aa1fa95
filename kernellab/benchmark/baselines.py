"""Baselines: time, resources, effects and output samples of a good launch, as JSON next to a test.

A baseline belongs to one device. It has the kernel's resources and effects and samples of its outputs; with a GPU,
also the time of the launch with its interval.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernellab.errors import UsageError
from kernellab.export.checking import OutputSummary, summarize_outputs, tolerance_over
from kernellab.export.write import replace_file
from kernellab.source import record_of_json

SCHEMA = 1
MARGIN = 0.05
"""The allowed slowdown against the baseline, beyond the noise, as a share."""

RESOURCES = ("registers", "spill_bytes", "shared_bytes")
EFFECTS = ("reads", "writes", "atomics")
_VERSIONS = ("triton", "torch", "driver")


@dataclass(frozen=True, slots=True)
class Baseline:
    """One launch on one device.

    ``device`` is the model of the GPU, or ``no GPU, cuda:90``. Times are medians in milliseconds with the bounds of
    their interval, None without a GPU. ``inputs`` and ``outputs`` have mean magnitude and samples of each tensor,
    before the launch and of what it wrote; a number that is not finite is None.
    """

    kernel: str
    device: str
    target: str
    grid: tuple[int, ...]
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int | None
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    atomics: tuple[str, ...]
    time_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    samples: int = 0
    inputs: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    outputs: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    tolerance: float = 0.0
    triton: str = ""
    torch: str = ""
    driver: str = ""


@dataclass(frozen=True, slots=True)
class BaselineComparison:
    """A launch compared with its baseline; ``failures`` are sentences on regressions, ``notes`` on all else.

    ``name`` is that of the baseline, ``before`` None where it was written now.
    """

    name: str
    now: Baseline
    before: Baseline | None
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def compare_with_baseline(name: str, before: Baseline, now: Baseline, margin: float = MARGIN) -> BaselineComparison:
    """Compare a launch with its baseline on the same device.

    A launch is slower where its interval lies above the baseline's, and its median is more than ``margin`` higher. More
    registers, spills or shared memory, other effects and other outputs fail as well. Outputs are compared, within a
    tolerance, if the inputs are those of the baseline.
    """
    failures, notes = _changed_time(before, now, margin)
    for figure in RESOURCES:
        old, new = getattr(before, figure), getattr(now, figure)
        if old is not None and new is not None and new > old:
            failures.append(f"{figure} is {new:,}, and was {old:,}")
    for figure in (*EFFECTS, "grid"):
        old, new = getattr(before, figure), getattr(now, figure)
        if old != new:
            failures.append(f"{figure} is {_joined_values(new)}, and was {_joined_values(old)}")
    for figure in _VERSIONS:
        old, new = getattr(before, figure), getattr(now, figure)
        if old != new:
            notes.append(f"{figure} is {new or 'unknown'}; the baseline is of {old or 'unknown'}")
    other_inputs = _names_that_differ(before.inputs, now.inputs, 1e-6)
    if other_inputs:
        failures.append(
            f"the inputs are not those of the baseline ({', '.join(other_inputs)}): seed what makes them, or update it"
        )
    else:
        differing = _names_that_differ(before.outputs, now.outputs, max(before.tolerance, now.tolerance))
        failures += [f"{name} holds other values than in the baseline" for name in differing]
    return BaselineComparison(name, now, before, tuple(failures), tuple(notes))


def _changed_time(before: Baseline, now: Baseline, margin: float) -> tuple[list[str], list[str]]:
    """Return a failure where a launch is slower than its baseline, a note where it is faster."""
    if before.time_ms is None or now.time_ms is None:
        return [], []
    change = now.time_ms / before.time_ms - 1
    if (now.low_ms or 0.0) > (before.high_ms or math.inf) and change > margin:
        longer = f"{now.kernel} takes {_time_words(now)}, {change:.1%} longer than {_time_words(before)}"
        return [f"{longer}; tolerance {margin:.0%}"], []
    if (now.high_ms or math.inf) < (before.low_ms or 0.0) and change < -margin:
        return [], [f"it is {-change:.1%} faster than its baseline; --kernellab-update keeps that"]
    return [], []


def _time_words(of: Baseline) -> str:
    return f"{of.time_ms:.4g} ms ({of.low_ms:.4g} to {of.high_ms:.4g})"


def _joined_values(values: tuple[Any, ...]) -> str:
    return ", ".join(map(str, values)) or "nothing"


def _names_that_differ(
    before: Mapping[str, tuple[float | None, ...]], now: Mapping[str, tuple[float | None, ...]], share: float
) -> list[str]:
    """Return the names of samples that differ by more than ``share`` of their largest value."""
    return [name for name in {**before, **now} if not _are_near(before.get(name, ()), now.get(name, ()), share)]


def _are_near(before: tuple[float | None, ...], now: tuple[float | None, ...], share: float) -> bool:
    if len(before) != len(now):
        return False
    allowed = share * max((abs(value) for value in before if value is not None), default=0.0)
    return all(
        a == b or (a is not None and b is not None and abs(a - b) <= allowed) for a, b in zip(before, now, strict=True)
    )


def samples_of(tensors: Mapping[str, Any]) -> dict[str, tuple[float | None, ...]]:
    """Return the mean magnitude (of whole numbers the mean) and evenly spaced samples of tensors, by name."""
    summaries = [summary for summary in summarize_outputs(tensors) if 0 not in summary.shape]
    return {
        summary.name: (*_means(summary), *(v if math.isfinite(v) else None for v in summary.samples))
        for summary in summaries
    }


def tolerance_of(tensors: Mapping[str, Any], *, has_dot: bool) -> float:
    """Return the tolerance of a launch's outputs on these tensors, as a share of the largest element."""
    return tolerance_over((str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()), has_dot=has_dot)


def _means(summary: OutputSummary) -> tuple[float | None, ...]:
    """Return the mean magnitudes of a tensor, of integers their mean; None where an element is not finite."""
    if not summary.means:
        return (summary.counts[0] / math.prod(summary.shape),)
    return tuple(None if any(summary.counts) else mean for mean in summary.means)


@dataclass(frozen=True, slots=True)
class BaselineFile:
    """A file of baselines: by test, by name of the baseline, by device."""

    path: Path

    def get(self, test: str, name: str, device: str) -> Baseline | None:
        """Return a baseline, or None where there is none.

        Raises:
            UsageError: the file cannot be read.
        """
        entry = self._read().get(test, {}).get(name, {}).get(device)
        if entry is None:
            return None
        try:
            return record_of_json(Baseline, {**entry, "device": device}, frozenset())
        except (TypeError, ValueError, AttributeError) as exc:
            raise UsageError(f"{self.path} has an incomplete baseline for {device}; delete it and update.") from exc

    def put(self, test: str, name: str, baseline: Baseline) -> None:
        """Write a baseline into the file; other processes may write others at the same time.

        Raises:
            UsageError: the file cannot be read or written.
        """
        with _lock_folder(self.path.parent):
            content = self._read()
            entry = {key: value for key, value in asdict(baseline).items() if key != "device"}
            content.setdefault(test, {}).setdefault(name, {})[baseline.device] = entry
            text = json.dumps({"schema": SCHEMA, "baselines": content}, indent=2, sort_keys=True)
            replace_file(self.path, (_short_lists(text) + "\n").encode())

    def _read(self) -> dict[str, Any]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except OSError as exc:
            raise UsageError(f"{self.path} cannot be read: {exc.strerror or exc}.") from exc
        try:
            content = json.loads(text)
        except ValueError as exc:
            raise UsageError(f"{self.path} is not JSON ({exc}); fix it, or delete it and update.") from exc
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise UsageError(f"{self.path} has no baselines of schema {SCHEMA}; update kernellab, or delete the file.")
        baselines: dict[str, Any] = content.get("baselines", {})
        return baselines


def _short_lists(text: str) -> str:
    """Return JSON with lists of numbers and names on one line each, so that a diff shows one line per value."""
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda match: "[" + re.sub(r",\s+", ", ", match[1]) + "]", text)


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes; the lock dies with its process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
