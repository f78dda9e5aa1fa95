"""Results of a tuning over sizes: requests and measured cases, the dispatch with its regrets, and progress.

A case is one combination of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernellab.display import Drawable
from kernellab.errors import CannotRun, UsageError, plural, three_digits
from kernellab.export.write import Exported
from kernellab.launch.calls import Grid3
from kernellab.source import INTEGER_OPTIONS
from kernellab.store.columns import OUTCOME_COLUMNS, Status
from kernellab.timing.config import Config
from kernellab.timing.outcome import record_of, with_types
from kernellab.tune.dispatch.rule import Rule
from kernellab.tune.result import PREDICTED, Row
from kernellab.workers.forks_and_interrupts import cached_property, import_uninterrupted

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected time of a config in milliseconds; None if unknown.

    ``spread`` is the standard deviation of its logarithm: 0.05 for an error of about 5 %.
    """

    config: Config
    time_ms: float | None = None
    spread: float = 1.0


@dataclass(frozen=True, slots=True)
class CaseRequest:
    """The configs to measure on a case, in the order of trying; it ends when no other can be the best.

    ``sizes`` are the values by name, in the order of ``over``. A config is not measured if its forecast, less ``doubt``
    times its ``spread``, is not faster than the best time by more than ``margin``, a difference of logarithms. The
    first ``at_least`` configs are measured whatever their forecasts say, and ``at_most`` in all. ``case_spread`` is the
    standard deviation of the common error of a case's forecasts. It can be pickled if the configs can.
    """

    number: int
    sizes: Mapping[str, int]
    forecasts: tuple[Forecast, ...]
    at_least: int = 1
    at_most: int = 16
    case_spread: float = 0.1
    doubt: float = 1.5
    margin: float = 0.01


@dataclass(frozen=True, slots=True)
class MeasuredCase:
    """The measurements of a case: a row for each config that was tried, or known before.

    ``grids`` are the grids of configs, ``resident`` the programs of compiled ones that fit on one SM.
    ``key`` is that of the rows in the store, ``provenance`` has device and versions. ``failure`` is the reason why the
    whole case could not be measured: no memory for its inputs, a lost worker. ``known`` counts rows that were not
    measured anew. ``is_interrupted`` if the user ended it: its rows count, and no other case is measured.
    """

    number: int
    sizes: Mapping[str, int]
    rows: tuple[Row, ...] = ()
    grids: Mapping[Config, Grid3] = field(default_factory=dict)
    resident: Mapping[Config, int] = field(default_factory=dict)
    key: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    known: int = 0
    failure: str = ""
    is_interrupted: bool = False

    @property
    def times_ms(self) -> dict[Config, float]:
        """The medians of the configs that ran well; without a GPU, the predicted times."""
        return {row.config: row.ranking_ms for row in self.rows if row.ranking_ms is not None}


def size_text(sizes: Mapping[str, int]) -> str:
    """Return sizes as text: ``M=16, N=32``."""
    return ", ".join(f"{name}={value}" for name, value in sizes.items())


class CaseMeasurer(Protocol):
    """Measures cases, ``lanes`` of them side by side. Rows are stored before a case is returned.

    A case that fails is returned with its ``failure``, not raised.
    """

    @property
    def lanes(self) -> int:
        """The number of cases to submit before the first result is taken."""

    def submit(self, request: CaseRequest, /) -> None:
        """Submit a case."""

    def take(self) -> MeasuredCase:
        """Wait for the next case that ends, in any order; an interrupt raises `KeyboardInterrupt`."""

    def close(self) -> None:
        """Cancel the cases that have not ended."""


@dataclass(frozen=True, slots=True)
class Regret:
    """The loss of a rule on one case as a ratio of times: 1.02 is 2 % slower than the best.

    ``config`` is the rule's, ``best`` the fastest measured one. ``estimated`` is the regret of a rule fitted to the
    other cases; None if unknown. With weights, ``weight`` is that of the case, and ``share`` its share of the program's
    time with the best config of each case.
    """

    sizes: Mapping[str, int]
    config: Config | None
    best: Config | None
    time_ms: float | None
    best_ms: float | None
    regret: float | None
    estimated: float | None
    reason: str = ""
    weight: float | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True)
class ProgramSpeedup:
    """The time of a program's launches before and after a tuning with weights, in milliseconds per launch mix.

    The launch mix has as many launches of each case as its weight. ``low`` and ``high`` bound the true ratio with 95 %
    confidence. ``baseline`` are the configs before: those that were named, or with ``is_best_single``, the one config
    that takes the least time. Cases in ``left_out`` have no time before or after, since a config failed there.
    """

    before_ms: float
    after_ms: float
    low: float
    high: float
    baseline: tuple[Config, ...]
    is_best_single: bool
    left_out: tuple[Mapping[str, int], ...] = ()

    @property
    def ratio(self) -> float:
        """The time before over the time after; 1 if no case could be compared."""
        return self.before_ms / self.after_ms if self.after_ms else 1.0

    def __str__(self) -> str:
        """The speedup with its interval and its baseline."""
        if not self.after_ms:
            return "speedup of the program unknown: a config failed in every case"
        single = self.baseline[0].text if len(self.baseline) == 1 else plural(len(self.baseline), "config")
        baseline = f"the best single config ({single})" if self.is_best_single else f"the configs before ({single})"
        times = f"{three_digits(self.before_ms)} to {three_digits(self.after_ms)} ms per launch mix"
        return f"program {self.ratio:.3f}x faster ({self.low:.3f} to {self.high:.3f}), {times}, vs {baseline}"


@dataclass(frozen=True, slots=True)
class CoverStep:
    """The losses with ``configs`` configs, as ratios: mean and worst over measured cases, mean over sizes between.

    Unmeasured configs count with their predicted time.
    """

    configs: int
    mean: float
    worst: float
    between: float


@dataclass(frozen=True, repr=False)
class Dispatch(Drawable):
    """The result of tuning a kernel over sizes: a few configs, and a rule that picks one for given sizes.

    ``regrets`` are the rule's losses on the ``cases``, both in the order of ``over``. ``originals`` are the
    `triton.Config`s of the rule's configs, hooks included. ``provenance`` has device, driver and versions, ``cover``
    the losses with fewer configs. ``function`` and ``grid`` are the user's, None for a dispatch from a file;
    ``arguments`` returns the arguments of a launch by name for some sizes, ``check`` is the reference of their outputs,
    and ``exporter`` is `Lab.export` of the lab that tuned. Without a GPU, all times are predicted (`is_predicted`).
    ``speedup`` is that of the whole program; None without weights.
    """

    kernel: str
    rule: Rule
    cases: tuple[MeasuredCase, ...]
    regrets: tuple[Regret, ...]
    originals: tuple[Any, ...]
    seconds: float = 0.0
    provenance: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False
    cover: tuple[CoverStep, ...] = ()
    speedup: ProgramSpeedup | None = None
    function: Any = field(default=None, compare=False)
    grid: Any = field(default=None, compare=False)
    arguments: Callable[[Mapping[str, int]], Mapping[str, Any]] | None = field(default=None, compare=False)
    check: Any = field(default=None, compare=False)
    exporter: Callable[..., Exported] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """One line; the rows are in `frame`, what the rule loses in `regret`."""
        known = [regret.regret for regret in self.regrets if regret.regret is not None]
        worst = f", at most {max(known):.3f} x the best" if known else ""
        cases, configs = len(self.cases), len(self.rule.costs)
        counts = f"{plural(cases, 'case')}, {plural(configs, 'config')}"
        predicted = f", predicted for {self.provenance['predicted_for']}" if self.is_predicted else ""
        return f"<Dispatch of {self.kernel}: {counts}{predicted}{worst}>"

    @property
    def is_predicted(self) -> bool:
        """Whether the rule follows from predicted times, since there was no GPU."""
        return bool(self.provenance.get("predicted_for"))

    @property
    def unmeasured(self) -> tuple[Regret, ...]:
        """The cases on which no measurement was spent; their ``reason`` says why."""
        pairs = zip(self.cases, self.regrets, strict=True)
        return tuple(regret for case, regret in pairs if not case.rows and not case.failure)

    @property
    def device(self) -> str:
        """The model of the device that was measured, or ``H100 (predicted)``; "no GPU" where it is neither."""
        if self.is_predicted:
            return f"{self.provenance['predicted_for']} (predicted)"
        return str(self.provenance.get("device") or "no GPU")

    @property
    def configs(self) -> tuple[Any, ...]:
        """The `triton.Config`s that the rule picks from.

        Raises:
            CannotRun: no config works on any case.
        """
        if not self.originals:
            first = next((case.failure for case in self.cases if case.failure), "no row is ok")
            raise CannotRun(f"No config of {self.kernel} works on any case ({first}).", kernel=self.kernel)
        return self.originals

    @cached_property
    def _chosen(self) -> dict[tuple[Any, ...], Any]:
        return {}

    def choose(self, **sizes: int) -> Any:
        """Return the `triton.Config` for some sizes; repeated sizes are a dict lookup.

        Raises:
            UsageError: a size is missing, no integer, or none of those that were tuned over.
            CannotRun: no config works on any case.
        """
        key = tuple(sizes.items())
        try:
            config = self._chosen.get(key)
        except TypeError:  # a size without a hash, which the rule refuses
            config = None
        if config is None:
            config = self._chosen[key] = self.configs[self.rule.place(**sizes)]
        return config

    def export(
        self,
        to: str | Path,
        *,
        kind: str | None = None,
        others: Sequence[Dispatch | str | Path] = (),
        targets: Sequence[str] = (),
        sizes: Sequence[Mapping[str, int]] = (),
    ) -> Exported:
        """Write the kernel with this decision as a module that does not need the lab, or the decision as a table.

        ``kind`` is ``dispatch``, ``torch-op``, ``table``, ``vllm`` or ``binaries``: see `Lab.export`. ``others`` are
        decisions for other devices, or tables that have such; ``targets`` and further ``sizes`` are those of binaries.

        Raises:
            UsageError: it was read from a file, so there is no kernel; or it cannot be written so.
        """
        if self.exporter is None:
            raise UsageError(f"This dispatch of {self.kernel} was read from a file, without a kernel; use lab.export.")
        return self.exporter(self, to, kind=kind, others=others, targets=targets, sizes=sizes)

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """A row per case and config: sizes, parameters and options, the columns of `Tuning.frame`; ``chosen``.

        A case that failed as a whole, or was not measured, has one row, with its reason and no config. Device, driver,
        versions and notes stand in ``attrs``, and the names of the sizes in ``attrs["sizes"]``. A tuning with weights
        has the columns ``weight`` and ``share``.
        """
        names = self.rule.names
        rows = [(place, case, row) for place, case in enumerate(self.cases) for row in case.rows]
        own = list(dict.fromkeys(name for _, _, row in rows for name, _ in row.config.parameters if name not in names))
        options = [name for name in INTEGER_OPTIONS if name not in own]
        outcomes = [name for name in OUTCOME_COLUMNS if name not in {"status", "rank"}]
        chosen = [regret.config for regret in self.regrets]
        records = [
            {
                **case.sizes,
                **record_of(row, row.config, own),
                **{name: getattr(row, name) for name in PREDICTED},
                "chosen": row.config == chosen[place],
                **self._weight_of(place),
            }
            for place, case, row in rows
        ]
        records += [
            {
                **case.sizes,
                "status": "fault" if case.failure else str(Status.NOT_TIMED),
                "reason": case.failure or self.regrets[place].reason,
                "chosen": False,
                **self._weight_of(place),
            }
            for place, case in enumerate(self.cases)
            if not case.rows
        ]
        columns = [*names, *own, *options, "status", *outcomes, *PREDICTED, "chosen", *self._weight_columns]
        return with_types(self._table(records, columns), own, numbers=(*PREDICTED, *self._weight_columns))

    @cached_property
    def regret(self) -> pandas.DataFrame:
        """A row per case: sizes, the config that is picked, ``time_ms``, ``best_ms``, ``regret``, ``estimated``.

        ``regret`` is the time of what is picked over that of the fastest config that was measured there;
        ``estimated`` is that of a rule that knows nothing of the case. Where the times are predicted, the columns are
        ``predicted_ms`` and ``predicted_best_ms``. A tuning with weights has the columns ``weight`` and ``share``.
        """
        time, best = ("predicted_ms", "predicted_best_ms") if self.is_predicted else ("time_ms", "best_ms")
        own = ("config", "best", time, best, "regret", "estimated")
        columns = [*self.rule.names, *own, *self._weight_columns, "reason"]
        records = [
            {
                **regret.sizes,
                "config": "" if regret.config is None else regret.config.text,
                "best": "" if regret.best is None else regret.best.text,
                time: regret.time_ms,
                best: regret.best_ms,
                **{name: getattr(regret, name) for name in ("regret", "estimated", "reason", *self._weight_columns)},
            }
            for regret in self.regrets
        ]
        numbers = dict.fromkeys((time, best, "regret", "estimated", *self._weight_columns), "float64")
        return self._table(records, columns).astype(numbers)

    @property
    def _weight_columns(self) -> tuple[str, ...]:
        return ("weight", "share") if any(regret.weight is not None for regret in self.regrets) else ()

    def _weight_of(self, place: int) -> dict[str, Any]:
        return {name: getattr(self.regrets[place], name) for name in self._weight_columns}

    def _table(self, records: list[dict[str, Any]], columns: list[str]) -> pandas.DataFrame:
        """Return a frame with the provenance and notes of the dispatch in ``attrs``."""
        pd = import_uninterrupted("pandas")

        frame = pd.DataFrame(records, columns=columns)
        frame.attrs.update(
            {
                "kernel": self.kernel,
                "sizes": list(self.rule.names),
                "configs": [config.text for config in self.rule.configs],
                "seconds": self.seconds,
                "interrupted": self.is_interrupted,
                "notes": list(self.notes),
                **self.provenance,
            }
        )
        return frame


@dataclass(frozen=True, slots=True)
class DispatchProgress:
    """The progress of a tuning over sizes: ``done`` of ``total`` cases, ``measured`` configs of a ``budget``.

    ``under_way`` are the cases that are being measured, ``latest`` the outcome of the last one; ``failed`` counts cases
    that could not be measured. ``left_s`` are the estimated seconds left, None if unknown. With ``is_predicted``,
    configs are predicted, not measured.
    """

    kernel: str
    done: int = 0
    total: int = 0
    measured: int = 0
    budget: int = 0
    failed: int = 0
    under_way: tuple[str, ...] = ()
    latest: str = ""
    left_s: float | None = None
    is_predicted: bool = False


Watch = Callable[[DispatchProgress], None]
