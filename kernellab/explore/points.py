"""The points of a parameter space: as launches, what was found at each, and those that are kept in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernellab._triton.kernel import Kernel
from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError, UsageError
from kernellab.explore.controls import GRID, label_of, values_text
from kernellab.launch.calls import checked_grid
from kernellab.launch.run import Run
from kernellab.registry import Registry
from kernellab.source import INTEGER_OPTIONS
from kernellab.store.columns import Status
from kernellab.target import Target
from kernellab.timing.config import Config
from kernellab.timing.hooks import Hook
from kernellab.timing.launches import Launches
from kernellab.timing.provenance import Device, key_fields, key_of
from kernellab.timing.stopwatch import Interval
from kernellab.tune.result import Row, Tuning, measurement_of

if TYPE_CHECKING:
    import pandas

    from kernellab.explain.prediction import Prediction

TAG = "kept-config"
_KEPT, _CHECKED, _MOST_KEPT = "kept", "outputs_checked", 3
FAILURES = frozenset({Status.CANNOT_RUN, Status.COMPILE_ERROR, Status.FAULT, Status.TIMEOUT})


@dataclass(frozen=True, slots=True)
class Point:
    """Values for all controls, and a target; "" is the GPU of this machine."""

    values: tuple[tuple[str, Any], ...]
    target: str

    @property
    def named(self) -> dict[str, Any]:
        """The values by the names of their controls."""
        return dict(self.values)

    @property
    def text(self) -> str:
        """The values in words: ``BLOCK=128, num_warps=4``."""
        return values_text(self.named)


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """Whether outputs equal those that they were compared with, as ``text`` says; ``equal`` is None where none were.

    Only a reference separates right from wrong (``by_reference``); without one, outputs agree with others or differ.
    """

    equal: bool | None
    text: str
    by_reference: bool = False

    @property
    def is_right(self) -> bool | None:
        """Whether the outputs are right; None without a reference."""
        return self.equal if self.by_reference else None

    @property
    def status(self) -> Status:
        """The status of a point that ran and has these outputs."""
        if self.equal is not False:
            return Status.OK
        return Status.WRONG if self.by_reference else Status.DIFFERS


FIRST = OutputComparison(None, "not checked: no check was given; other points are compared with this one")
"""The comparison of the first point where there is no reference: nothing says that its outputs are right."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The evaluation of one point.

    ``sizes`` are the values that say what is computed, and not how: only points that agree in them are compared;
    ``key`` names the launches that can be timed in turns. ``against`` is how many times longer it takes than the best
    point so far, whose number is ``best``. ``run`` is what the interpreter did. ``prediction`` is of a target that this
    machine has no GPU of. ``is_partial`` marks what is known while the rest is being evaluated.
    """

    point: Point
    target: str
    row: Row
    compiled: Compiled | None = None
    grid: tuple[int, int, int] | None = None
    sizes: tuple[tuple[str, str], ...] = ()
    key: tuple[Any, ...] = ()
    verdict: OutputComparison = OutputComparison(None, "")
    run: Run | None = None
    against: Interval | None = None
    best: int | None = None
    prediction: Prediction | None = None
    error: KernellabError | None = None
    notes: tuple[str, ...] = ()
    is_partial: bool = False
    number: int = 0
    job: int = 0

    @property
    def has_failed(self) -> bool:
        """Whether it could not be compiled, launched or ended."""
        return self.row.status in FAILURES

    @property
    def is_timed(self) -> bool:
        """Whether it has a time that counts."""
        return self.row.time_ms is not None and self.row.status is Status.OK

    @property
    def is_predicted(self) -> bool:
        """Whether it has a predicted time alone, which counts among such."""
        return self.row.predicted_ms is not None and self.row.status is Status.NOT_TIMED


@dataclass(slots=True)
class PointHistory:
    """The latest evaluation of each point, in the order of their first visits, numbered from 1."""

    kernel: str
    evaluations: list[Evaluation] = field(default_factory=list)

    def add(self, evaluation: Evaluation) -> Evaluation:
        """Number an evaluation and keep it, in place of an earlier one of the same point."""
        points = [(known.point.text, known.target) for known in (*self.evaluations, evaluation)]
        place = points.index(points[-1])
        numbered = replace(evaluation, number=place + 1)
        self.evaluations[place : place + 1] = [numbered]
        return numbered

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self.evaluations)

    def __len__(self) -> int:
        return len(self.evaluations)

    def first_compared(self) -> Evaluation | None:
        """Return the point that the panel began to compare with; None where a reference says what is right."""
        return next((evaluation for evaluation in self.evaluations if evaluation.verdict is FIRST), None)

    def others_that_differ(self, evaluation: Evaluation) -> list[Evaluation]:
        """Return the points that compute the same as this one and whose outputs differ from those of the first."""
        return [e for e in self.evaluations if e.sizes == evaluation.sizes and e.row.status is Status.DIFFERS]

    def last_good(self) -> Evaluation | None:
        """Return the latest point that compiled and did not fail."""
        return _latest(evaluation for evaluation in self.evaluations if not evaluation.has_failed)

    def best_of(self, sizes: Sequence[tuple[str, str]], target: str) -> Evaluation | None:
        """Return the fastest right point among those that compute the same on the same device.

        Where none of them was timed, it is that with the least predicted time.
        """
        alike = [e for e in self.evaluations if e.sizes == tuple(sizes) and e.target == target]
        best: Evaluation | None = None
        for evaluation in alike:
            if evaluation.is_timed:
                best = evaluation if best is None or _is_faster(evaluation, best) else best
        predicted = (evaluation for evaluation in alike if evaluation.is_predicted)
        return best or min(predicted, key=lambda evaluation: evaluation.row.predicted_ms or 0.0, default=None)

    def frame(self, jobs: int, provenance: Mapping[str, Any]) -> pandas.DataFrame:
        """Return a row per point: the columns of a tuning's frame, then where it was and whether it was right."""
        last = _latest(self.evaluations)
        best = None if last is None else self.best_of(last.sizes, last.target)
        frame = Tuning(
            kernel=self.kernel,
            rows=tuple(evaluation.row for evaluation in self.evaluations),
            configs=(),
            winner=None if best is None else best.number - 1,
            ties=(),
            seconds=0.0,
            from_cache=False,
            provenance={**provenance, "jobs": jobs},
        ).frame
        columns: dict[str, Callable[[Evaluation], Any]] = {
            "target": lambda point: point.target,
            "grid": lambda point: point.grid,
            "correct": lambda point: point.verdict.is_right,
            "compared_with": lambda point: point.verdict.text,
            "findings": lambda point: None if point.run is None else len(point.run.findings),
            "job": lambda point: point.job,
        }
        for name, value_of in columns.items():
            frame[name] = [value_of(evaluation) for evaluation in self.evaluations]
        return frame


def _latest(evaluations: Iterable[Evaluation]) -> Evaluation | None:
    return max(evaluations, key=lambda evaluation: (evaluation.job, evaluation.number), default=None)


def _is_faster(evaluation: Evaluation, best: Evaluation) -> bool:
    if evaluation.best == best.number and evaluation.against is not None:
        return evaluation.against.high < 1
    return (evaluation.row.high_ms or 0.0) < (best.row.low_ms or 0.0)


@dataclass(frozen=True, slots=True)
class Request:
    """A point as the tuner would see it: a config for the launches of some sizes.

    ``key`` distinguishes the launches of one panel, ``sizes`` the points that compute the same.
    """

    launches: Launches
    config: Config
    key: tuple[Any, ...]
    sizes: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Requests:
    """Makes requests of points.

    ``fixed`` are the arguments and options that no control has, ``hook`` is the hook that all configs share.
    """

    kernel: Kernel
    grid: Any
    fixed: Mapping[str, Any]
    parameters: frozenset[str]
    constexprs: frozenset[str]
    has_hooks: bool = False
    hook: Hook | None = None
    _launches: dict[tuple[Any, ...], Launches] = field(default_factory=dict)

    def of(self, point: Point, target: Target) -> Request:
        """Return the request of a point; nothing of it is looked at yet."""
        own = {name: value for name, value in point.values if name in self.constexprs or name in INTEGER_OPTIONS}
        extents = {name: value for name, value in point.values if name in GRID}
        arguments = {name: value for name, value in point.values if name not in own and name not in extents}
        key = (str(target), tuple(arguments.items()), tuple(extents.items()))
        if key not in self._launches:
            meta = {**self.fixed, **arguments}
            grid, has_hooks = self._grid(extents), self.has_hooks
            launches = Launches(self.kernel, grid, (), meta, target, has_hooks=has_hooks, common_hook=self.hook)
            self._launches[key] = launches
        config = Config.of(own)
        options = {name: self.fixed[name] for name in config.options if name in self.fixed and name not in own}
        # What says what is computed: sizes, switches and types, but no blocks, options and extents of the grid.
        computed = [
            (name, label_of(value))
            for name, value in point.values
            if name in self.parameters and not (name in self.constexprs and type(value) is int)
        ]
        return Request(self._launches[key], config.with_values(options), key, tuple(computed))

    def _grid(self, extents: Mapping[str, int]) -> Any:
        """Return the grid with the extents that have controls of their own; of plain extents, plain extents."""

        def with_extents(given: Any) -> tuple[int, ...]:
            known = checked_grid(given, "the kernel")
            return tuple(extents.get(name, extent) for name, extent in zip(GRID, known, strict=True))

        if not extents:
            return self.grid
        return (lambda meta: with_extents(self.grid(meta))) if callable(self.grid) else with_extents(self.grid)


@dataclass(frozen=True, slots=True)
class KeptPoint:
    """A kept point: the label of the version, the row, the store that it is in, and what to know before its use."""

    label: str
    row: Row
    store: str
    warning: str = ""

    @property
    def text(self) -> str:
        """A sentence with the config, the kernel and the store, and the warning."""
        return " ".join(filter(None, [f"Kept {self.row.config.text} of {self.label} in {self.store}.", self.warning]))


@dataclass(frozen=True, slots=True)
class Keeper:
    """Writes points of one kernel into the store of a lab, under the keys that a tuning looks its rows up by."""

    kernels: Registry
    kernel: Kernel
    requests: Requests

    def keep(self, evaluation: Evaluation, device: Device, differing: Sequence[Evaluation] = ()) -> KeptPoint:
        """Keep a point; committed when this returns. One that was timed is a row that a tuning finds.

        ``differing`` are points that compute the same and have other outputs, where nothing says which are right.

        Raises:
            UsageError: the point did not compile, cannot run, or its outputs are wrong or differ from the first point.
        """
        if evaluation.has_failed or evaluation.verdict.equal is False:
            raise UsageError(f"{evaluation.point.text} is not kept: {_reason_not_kept(evaluation)}.")
        version = self.kernels.current_version(self.kernel)
        request = self.requests.of(evaluation.point, device.target)
        fields = key_fields(request.launches, request.config, device)
        if callable(self.requests.grid):  # a tuning has the grid that the function gives
            fields |= {name: extent for name, extent in evaluation.point.values if name in GRID}
        key = key_of(fields)
        row = replace(evaluation.row, config=request.config)
        measurement = measurement_of(row, key, device.name if evaluation.is_timed else "")
        is_checked = evaluation.verdict.is_right is True
        details = {**measurement.details, _KEPT: evaluation.point.text, _CHECKED: is_checked}
        store = self.kernels.store
        store.history.add_measurements(version.id, [replace(measurement, details=details)])
        store.tag(version.id, [TAG])
        words = _line(evaluation.point.text, evaluation.row.time_ms, device.name or evaluation.target, is_checked)
        store.note(version.id, f"kept config: {words}")
        warning = "" if is_checked else _unchecked_words(differing)
        return KeptPoint(version.label, row, str(store.path or "memory"), warning)

    def earlier(self) -> list[str]:
        """Return the points of this version that were kept before, the latest first, in words."""
        version = self.kernels.current_version(self.kernel)
        measurements = [row.measurement for row in self.kernels.store.history.measurements(version.id)]
        kept = [m for m in reversed(measurements) if _KEPT in m.details]
        lines = (_line(str(m.details[_KEPT]), m.time_ms, m.device, m.details.get(_CHECKED)) for m in kept)
        return list(dict.fromkeys(lines))


def earlier_words(kept: Sequence[str]) -> str:
    """Return a sentence on points that were kept in earlier sessions, or ""."""
    rest = f" and {len(kept) - _MOST_KEPT} more" if len(kept) > _MOST_KEPT else ""
    return f"Kept earlier: {'; '.join(kept[:_MOST_KEPT])}{rest}." if kept else ""


def _reason_not_kept(evaluation: Evaluation) -> str:
    reason = (evaluation.row.reason or "it failed").rstrip(".")
    if evaluation.row.status is not Status.DIFFERS:
        return reason
    return f"{reason}. Nothing says which of the two is right: explore with check, which is what outputs are to hold"


def _unchecked_words(differing: Sequence[Evaluation]) -> str:
    """Return a warning on a point with outputs that were not compared with a reference."""
    if not differing:
        return "Its outputs were not checked."
    those = ", ".join(evaluation.point.text for evaluation in differing[:_MOST_KEPT])
    return f"Its outputs were not checked, and those of {those} differ."


def _line(text: str, time_ms: float | None, device: str, is_checked: object) -> str:
    """Return a kept point in words; ``is_checked`` is None where that was not recorded."""
    timed = f"{time_ms:.4g} ms" if time_ms is not None else "not timed"
    checked = "" if is_checked else ", outputs not checked"
    if is_checked is None:
        checked = ", not recorded whether outputs were checked"
    return f"{text} ({timed}{f' on {device}' if device else ''}{checked})"
