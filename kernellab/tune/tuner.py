"""The pipeline: configs are asked for, compiled side by side, measured as they arrive, and settled in a final.

Nothing here knows of GPUs, processes or databases: the compiler, the bench and the record are handed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernellab.compile import Compiled, CompileJob
from kernellab.errors import CheckFailed, KernellabError, LaunchError, WorkerTimeout
from kernellab.tune.bench import Bench, Candidate
from kernellab.tune.config import Config
from kernellab.tune.finals import Final, Policy, settle
from kernellab.tune.result import Row, Status, with_resources
from kernellab.tune.search import Search
from kernellab.tune.statistics import interval

Stream = Callable[[Sequence[CompileJob]], Iterator[tuple[int, Compiled | KernellabError]]]
NO_GPU = "not measured: there is no GPU"
SPENT = "not measured: the budget was spent"
STOPPED = "not measured: the tuning was interrupted"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tuning found: a row per config in the order of the asking, the winner, and what ties with it."""

    rows: Mapping[Config, Row]
    winner: Config | None
    ties: tuple[Config, ...]
    from_cache: bool
    interrupted: bool


@dataclass(slots=True)
class Tuner:
    """One tuning. ``known`` are rows of earlier ones, which are not measured again.

    ``record`` takes each row as soon as it is known, ``bytes_of`` and ``flops_of`` give what a launch moves
    and computes. Without a bench, configs are compiled and not ranked.
    """

    search: Search
    prepare: Callable[[Config], CompileJob]
    stream: Stream
    bench: Bench | None
    policy: Policy
    clock: Callable[[], float]
    name: str = ""
    bytes_of: Callable[[Config, Compiled], int | None] = lambda config, compiled: None
    flops_of: Callable[[Config, Compiled], int | None] = lambda config, compiled: None
    known: Mapping[Config, Row] = field(default_factory=dict)
    record: Callable[[Sequence[Row]], None] = lambda rows: None
    _rows: dict[Config, Row] = field(default_factory=dict)
    _candidates: dict[Config, Candidate] = field(default_factory=dict)
    _groups: dict[Config, int] = field(default_factory=dict)
    _best_ms: float | None = None
    _measured: int = 0
    _start_s: float = 0.0

    def run(self) -> Outcome:
        """Tune, and return what was found; an interrupt or a spent budget keeps what there is.

        Raises:
            LaunchError: the arguments fit no config.
            KeyboardInterrupt: before anything was measured.
        """
        self._start_s = self.clock()
        final = Final(None, ())
        interrupted = False
        try:
            self._screen_all()
            self._condemn_wrong()
            final = self._settled() or self._finals()
        except KeyboardInterrupt:
            interrupted = True
            self._rows = {c: replace(r, reason=STOPPED) if r.reason == SPENT else r for c, r in self._rows.items()}
            good = self._good()
            if not good:
                raise
            final = Final(min(good, key=self._time_of), ())
        if self.bench is None:
            fitting = (config for config, row in self._rows.items() if row.status is Status.PRUNED)
            final = Final(next((c for c in fitting if c in self._candidates), None), ())
        from_cache = bool(self._rows) and self._measured == 0 and self.bench is not None
        return Outcome(self._rows, final.winner, final.ties, from_cache, interrupted)

    def _screen_all(self) -> None:
        while asked := self.search.ask():
            self._rows.update({config: Row(config, Status.PRUNED, SPENT) for config in asked})
            for config in asked:
                if config in self.known:
                    self._adopt(config)
            self._screen([config for config in asked if config not in self.known])
            for config in asked:
                self.search.tell(config, self._rows[config].time_ms)
            if self._is_spent():
                return

    def _adopt(self, config: Config) -> None:
        row = self._rows[config] = replace(self.known[config], config=config)
        if row.status is Status.OK and row.time_ms is not None:
            self._best_ms = min(self._best_ms or row.time_ms, row.time_ms)

    def _screen(self, configs: list[Config]) -> None:
        jobs = self._prepared(configs)
        order = list(jobs)
        stream = self.stream([jobs[config] for config in order]) if jobs else iter(())
        for index, result in stream:
            self._take(order[index], result)
            self.record([self._rows[order[index]]])
            if self._is_spent():
                break

    def _prepared(self, configs: list[Config]) -> dict[Config, CompileJob]:
        jobs: dict[Config, CompileJob] = {}
        problems: list[KernellabError] = []
        for config in configs:
            try:
                jobs[config] = self.prepare(config)
            except KernellabError as exc:
                problems.append(exc)
                self._rows[config] = Row(config, Status.COMPILE_ERROR, exc.message)
        if problems and not jobs and isinstance(problems[0], LaunchError):
            raise problems[0]
        return jobs

    def _take(self, config: Config, result: Compiled | KernellabError) -> None:
        """Enter what became of a config that was compiled, and measure it if it can run."""
        if isinstance(result, KernellabError):
            self._rows[config] = Row(config, Status.COMPILE_ERROR, _reason(result))
            return
        resources = result.resources
        if not resources.fits:
            self._rows[config] = with_resources(config, result, Status.CANNOT_RUN, resources.why_not or "")
            return
        limit = self.policy.max_spill_bytes
        if limit is not None and (resources.spill_bytes or 0) > limit:
            reason = f"it spills {resources.spill_bytes} bytes per thread"
            self._rows[config] = with_resources(config, result, Status.PRUNED, reason)
            return
        self._candidates[config] = Candidate(list(self._rows).index(config), config, result)
        if self.bench is None:
            self._rows[config] = with_resources(config, result, Status.PRUNED, NO_GPU)
        else:
            self._measure(self.bench, self._candidates[config])

    def _measure(self, bench: Bench, candidate: Candidate) -> None:
        config, compiled = candidate.config, candidate.compiled
        bound = None if self._best_ms is None else self._best_ms * self.policy.loser_factor
        self._measured += 1
        try:
            measured = bench.measure(candidate, self.policy.screen_runs, bound)
        except KernellabError as exc:
            self._rows[config] = with_resources(config, compiled, _status_of(exc), _reason(exc))
            return
        found = interval(measured.times_ms)
        row = with_resources(config, compiled, Status.OK)
        timed = replace(row, time_ms=found.median, low_ms=found.low, high_ms=found.high, samples=len(measured.times_ms))
        self._rows[config] = self._with_rate(timed, candidate)
        self._groups[config] = measured.group
        self._best_ms = min(self._best_ms or found.median, found.median)

    def _condemn_wrong(self) -> None:
        """Mark the configs whose outputs differ from the reference, or else from those of most configs."""
        if not self._groups:
            return
        sizes = Counter(self._groups.values())
        first = {group: index for index, group in reversed(list(enumerate(self._groups.values())))}
        right = 0 if self.policy.has_reference else max(sizes, key=lambda group: (sizes[group], -first[group]))
        what = "those of the reference" if self.policy.has_reference else f"those of {sizes[right]} other configs"
        wrong = [config for config, group in self._groups.items() if group != right]
        for config in wrong:
            self._rows[config] = replace(
                self._rows[config], status=Status.WRONG, reason=f"its outputs differ from {what}"
            )
        self.record([self._rows[config] for config in wrong])

    def _settled(self) -> Final | None:
        """Return what an earlier final decided, if that still holds for these rows."""
        good = self._good()
        winners = [config for config in good if self._rows[config].standing == "winner"]
        if len(winners) != 1 or self._measured:
            return None
        winner = self._rows[winners[0]]
        tied = [c for c in good if self._rows[c].standing == "tied" and self._rows[c].tuning == winner.tuning]
        others = [c for c in good if c != winners[0] and self._rows[c].tuning != winner.tuning]
        if any(self._time_of(config) < (winner.high_ms or 0.0) for config in others):
            return None
        return Final(winners[0], tuple(tied))

    def _finals(self) -> Final:
        """Measure the fastest configs against each other, and enter what that says."""
        good = sorted(self._good(), key=self._time_of)
        if not good or self.bench is None:
            return Final(good[0] if good else None, ())
        bound = self._time_of(good[0]) * self.policy.finalist_factor
        chosen = [config for config in good if self._time_of(config) <= bound][: self.policy.max_finalists]
        self._compile_adopted(chosen)
        finalists = [self._candidates[config] for config in chosen if config in self._candidates]
        self._measured += len(finalists)
        final, rows = settle(self.bench, finalists, self._rows, self.policy, self.clock, self.name)
        rated = [self._with_rate(row, self._candidates[config]) for config, row in rows.items()]
        beaten = [c for c in good if self._rows[c].standing in {"winner", "tied"} and c not in rows]
        rated += [replace(self._rows[config], standing="lost", tuning=self.name) for config in beaten]
        self._rows.update({row.config: row for row in rated})
        self.record(rated)
        return final

    def _with_rate(self, row: Row, candidate: Candidate) -> Row:
        moved = self.bytes_of(candidate.config, candidate.compiled)
        flops = self.flops_of(candidate.config, candidate.compiled)
        return replace(
            row,
            gbps=moved / row.time_ms / 1e6 if moved and row.time_ms else None,
            tflops=flops / row.time_ms / 1e9 if flops and row.time_ms else None,
        )

    def _compile_adopted(self, configs: list[Config]) -> None:
        """Compile the configs that earlier rows let in: the final launches them."""
        jobs = self._prepared([config for config in configs if config not in self._candidates])
        order = list(jobs)
        for index, result in self.stream(list(jobs.values())) if jobs else ():
            config = order[index]
            if not isinstance(result, KernellabError) and result.resources.fits:
                self._candidates[config] = Candidate(list(self._rows).index(config), config, result)

    def _good(self) -> list[Config]:
        return [config for config, row in self._rows.items() if row.status is Status.OK and row.time_ms is not None]

    def _time_of(self, config: Config) -> float:
        return self._rows[config].time_ms or 0.0

    def _is_spent(self) -> bool:
        policy = self.policy
        if policy.budget_configs is not None and self._measured >= policy.budget_configs:
            return True
        return policy.budget_s is not None and self.clock() - self._start_s >= policy.budget_s


def _status_of(exc: KernellabError) -> Status:
    if isinstance(exc, WorkerTimeout):
        return Status.TIMEOUT
    if isinstance(exc, CheckFailed):
        return Status.WRONG
    return Status.CANNOT_RUN if isinstance(exc, LaunchError) else Status.FAULT


def _reason(exc: KernellabError) -> str:
    """Return a message with its source line, in one line of text."""
    text = " ".join(exc.message.split())
    return text if exc.place is None else f"{text} (line {exc.place.line})"
