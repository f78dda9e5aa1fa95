"""Searches: which configs to try next. They never use a GPU; a tuner asks them, measures, and reports the times.

A tuner calls `ask` until it returns no configs, and `tell` for each config before the next `ask`. A descent starts at
the best stored config of this launch, or of the most similar one. The registers of a compiled config may suggest a
variant with a smaller block.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log2, prod
from typing import Any, Protocol, assert_never, runtime_checkable

from kernellab.errors import UsageError, choice_message
from kernellab.registry.kept_times import fields_of_key
from kernellab.store import MeasurementRow
from kernellab.target import DeviceLimits
from kernellab.timing.config import Config, NonJsonValue, Space
from kernellab.tune import SEARCHES, SearchName
from kernellab.tune.result import Records, Row, row_of, times_of

MAX_WARPS = 32


@runtime_checkable
class Search(Protocol):
    """Chooses configs to try, each at most once."""

    def ask(self) -> list[Config]:
        """Return configs to try side by side; none when the search is over."""

    def tell(self, config: Config, time_ms: float | None) -> None:
        """Report the time of a config; None if it has none."""


def longest_first(configs: Iterable[Config]) -> list[Config]:
    """Return configs in descending order of their estimated compile time; the sort is stable.

    The compiler unrolls each thread's part of a block, once per stage of a pipelined loop. So the product of the block
    sizes over the threads, times the stages, ranks the configs of one kernel; two kernels cannot be compared by it.
    """

    def weight(config: Config) -> float:
        sizes = (value for _, value in config.parameters if type(value) is int and value > 0)
        return prod(sizes) * (config.num_stages or 1) / (config.num_warps or 1)

    return sorted(configs, key=weight, reverse=True)


@dataclass(slots=True)
class Exhaustive:
    """Tries all configs at once; the tuner drops clear losers early."""

    configs: Iterable[Config]
    _asked: bool = False

    def ask(self) -> list[Config]:
        """Return all configs at the first call, none at the next."""
        asked, self._asked = self._asked, True
        return [] if asked else list(dict.fromkeys(self.configs))

    def tell(self, config: Config, time_ms: float | None) -> None:
        """Ignore the time."""


@dataclass(slots=True)
class Random:
    """Tries ``count`` configs of a space, drawn without replacement, ``batch`` at a time.

    ``rng`` makes the draw repeatable. Combinations that ``where`` excludes are drawn again.
    """

    space: Space
    count: int
    rng: random.Random
    batch: int = 16
    _seen: set[int] = field(default_factory=set)
    _rest: list[int] | None = None
    _count: int = 0

    def ask(self) -> list[Config]:
        """Return the next random configs."""
        configs: list[Config] = []
        while len(configs) < min(self.batch, self.count - self._count) and len(self._seen) < self.space.size:
            index = self._new_index()
            self._seen.add(index)
            config = self.space.at(index)
            if self.space.allows(config.values):
                configs.append(config)
        self._count += len(configs)
        return configs

    def tell(self, config: Config, time_ms: float | None) -> None:
        """Ignore the time."""

    def _new_index(self) -> int:
        if 2 * len(self._seen) < self.space.size:
            while (index := self.rng.randrange(self.space.size)) in self._seen:
                pass
            return index
        if self._rest is None:
            self._rest = [index for index in range(self.space.size) if index not in self._seen]
            self.rng.shuffle(self._rest)
        return self._rest.pop()


@dataclass(slots=True)
class CoordinateDescent:
    """Moves from a config to its best neighbour until none is better.

    A neighbour has one tunable value changed: a block size or ``num_warps`` doubled or halved, ``num_stages`` by one.
    A step is taken for an improvement of more than ``threshold``. With ``all_directions``, once no single change
    helps, changes of all values at once are tried too. No value exceeds ``max_value`` and that of the start. The rules
    are those of Inductor's coordinate descent (torch/_inductor/runtime/coordinate_descent_tuner.py); here all
    neighbours of a config are asked for together, so that they compile side by side, and the best one is taken.
    """

    start: Config
    allows: Callable[[Config], bool] = lambda config: True
    threshold: float = 0.001
    all_directions: bool = False
    max_value: int = 4096
    _times: dict[Config, float] = field(default_factory=dict)
    _asked: set[Config] = field(default_factory=set)
    _best: Config | None = None
    _widened: bool = False

    def ask(self) -> list[Config]:
        """Return the start, then the neighbours of the best config that were not tried yet."""
        if not self._asked:
            self._asked.add(self.start)
            return [self.start]
        if not self._times:
            return []
        if not self._move_to_best() and (self._widened or not self.all_directions):
            return []
        assert self._best is not None
        values = self._best.values
        steps = [{name: step} for name in _tunable_names(values) for step in _steps(name, values[name])]
        fresh = self._new_configs(map(self._best.with_values, steps))
        if not fresh and self.all_directions and not self._widened:
            fresh = self._widen()
        return fresh

    def tell(self, config: Config, time_ms: float | None) -> None:
        """Record the time of a config; one without a time is never moved to."""
        if time_ms is not None:
            self._times[config] = time_ms

    def _move_to_best(self) -> bool:
        """Move to the fastest config so far; return False if it improves by too little."""
        leader = min(self._times, key=lambda config: self._times[config])
        if self._best is not None and self._times[leader] >= self._times[self._best] * (1 - self.threshold):
            return False
        self._best, self._widened = leader, False
        return True

    def _widen(self) -> list[Config]:
        self._widened = True
        assert self._best is not None
        values = self._best.values
        names = _tunable_names(values)
        choices = [(values[name], *_steps(name, values[name])) for name in names]
        near = (self._best.with_values(dict(zip(names, choice, strict=True))) for choice in itertools.product(*choices))
        return self._new_configs(near)

    def _new_configs(self, configs: Iterable[Config]) -> list[Config]:
        fresh = [config for config in configs if config not in self._asked and self._is_allowed(config)]
        self._asked.update(fresh)
        return list(dict.fromkeys(fresh))

    def _is_allowed(self, config: Config) -> bool:
        values, first = config.values, self.start.values
        limits = {name: MAX_WARPS if name == "num_warps" else self.max_value for name in _tunable_names(values)}
        small = all(values[name] <= max(limit, first.get(name, 0)) for name, limit in limits.items())
        return small and self.allows(config)


@dataclass(slots=True)
class OptunaSearch:
    """Tries ``count`` configs that an Optuna sampler suggests, ``batch`` at a time.

    ``study`` is an `optuna.Study` that minimises. A combination that ``where`` excludes counts as tried and failed.

    Raises:
        UsageError: it is made without the ``optuna`` extra.
    """

    space: Space
    count: int
    study: Any
    batch: int = 8
    _trials: dict[Config, Any] = field(default_factory=dict)
    _count: int = 0

    def ask(self) -> list[Config]:
        """Return the sampler's next suggestions that are new and allowed by the space."""
        configs: list[Config] = []
        drawn = 0
        while len(configs) < min(self.batch, self.count - self._count) and drawn < 20 * self.batch:
            drawn += 1
            trial = self.study.ask()
            config = Config.of({n: trial.suggest_categorical(n, list(c)) for n, c in self.space.values.items()})
            if config in self._trials or not self.space.allows(config.values):
                self.study.tell(trial, state=_fail_state())
                continue
            self._trials[config] = trial
            configs.append(config)
        self._count += len(configs)
        return configs

    def tell(self, config: Config, time_ms: float | None) -> None:
        """Finish the trial of a config; one without a time has failed."""
        trial = self._trials[config]
        if time_ms is None:
            self.study.tell(trial, state=_fail_state())
        else:
            self.study.tell(trial, time_ms)


def optuna_search(space: Space, count: int, seed: int = 0) -> OptunaSearch:
    """Return a search by Optuna's tree-structured Parzen estimator.

    Raises:
        UsageError: Optuna is not installed.
    """
    try:
        import optuna
    except ImportError as exc:
        raise UsageError("search='optuna' needs Optuna; install it with: pip install optuna.") from exc
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return OptunaSearch(space, count, optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed)))


def _fail_state() -> Any:
    import optuna

    return optuna.trial.TrialState.FAIL


def _tunable_names(values: Mapping[str, Any]) -> list[str]:
    """Return the names of values that can be doubled or stepped: positive integers."""
    fixed = {"num_ctas", "maxnreg"}
    return [n for n, v in values.items() if isinstance(v, int) and not isinstance(v, bool) and v > 0 and n not in fixed]


def _steps(name: str, value: int) -> Sequence[int]:
    if name == "num_stages":
        return [step for step in (value + 1, value - 1) if step >= 1]
    return [step for step in (value * 2, value // 2) if step >= 1]


Fits = Callable[[Config], bool]


def search_of(
    search: SearchName | Search,
    given: Any,
    originals: Iterable[Config],
    count: int,
    seed: int,
    start: Callable[[Fits], Config | None],
) -> Search:
    """Return a search by its name; a user's `Search` object unchanged.

    ``given`` are the configs of the call (some searches need a `Space`), ``originals`` those to try. ``start`` returns
    the best stored config that fits, for a descent.

    Raises:
        UsageError: there is no such search, or it draws from a `Space` and there is none.
    """
    if isinstance(search, Search) and not isinstance(search, type):
        return search
    if search not in SEARCHES:
        raise UsageError(choice_message("search", search, (*SEARCHES, "an object with ask and tell methods")))
    space = given if isinstance(given, Space) else None
    if search == "predicted":
        raise UsageError("search='predicted' needs the compiler of a tuning; use it in lab.tune.")
    if search == "exhaustive":
        return Exhaustive(originals)
    if search == "descent":
        first = next(iter(originals))
        names = first.values.keys()

        def allows(config: Config) -> bool:
            return config.values.keys() == names and (space is None or space.allows(config.values))

        return CoordinateDescent(start(allows) or first, allows)
    if space is None:
        raise UsageError(f"search={search!r} draws from a Space; pass configs=Space(...).")
    if search == "random":
        return Random(space, count, random.Random(seed))
    if search == "optuna":
        return optuna_search(space, count, seed)
    assert_never(search)


def best_start(records: Records, known: Mapping[Config, Row], fits: Fits) -> Config | None:
    """Return the best stored config of this kind of launch, else of the most similar launches."""
    stored = fastest_fitting(known or records.latest_rows(), fits)
    return stored or best_nearby(records.history.measurements(records.version_id), records.key, fits)


def fastest_fitting(rows: Mapping[Config, Row], fits: Fits) -> Config | None:
    """Return the fastest config that ran well, ``fits``, and can be restored from JSON."""
    times_ms = times_of(rows.values())
    whole = [c for c in times_ms if not any(isinstance(value, NonJsonValue) for value in c.values.values())]
    return min(filter(fits, whole), key=times_ms.__getitem__, default=None)


def best_nearby(entries: Iterable[MeasurementRow], key: str, fits: Fits) -> Config | None:
    """Return the best config of the launches most similar to those of ``key``, from measurements of one kernel.

    Similar launches have the same model of device, the same signature, and sizes a few doublings apart.
    """
    by_key: dict[str, dict[Config, Row]] = {}
    for entry in entries:
        row = row_of(entry.measurement)
        if row is not None and entry.measurement.key != key:
            by_key.setdefault(entry.measurement.key, {})[row.config] = row
    wanted = fields_of_key(key)
    nearest = sorted(by_key, key=lambda other: (_distance(wanted, fields_of_key(other)), other))
    return next(filter(None, (fastest_fitting(by_key[other], fits) for other in nearest)), None)


def _distance(wanted: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[bool, bool, float]:
    """Return the distance between two kinds of launches: device, signature, doublings of the sizes.

    It is infinite if the names of their sizes differ.
    """
    ours, theirs = (values if isinstance(values := f.get("values"), dict) else {} for f in (wanted, other))
    is_alike = ours.keys() == theirs.keys()
    doublings = sum(_doublings_between(value, theirs[name]) for name, value in ours.items()) if is_alike else inf
    return other.get("device") != wanted.get("device"), other.get("signature") != wanted.get("signature"), doublings


def _doublings_between(value: object, other: object) -> float:
    """Return the doublings between two numbers in text; for other texts, 0 if equal, else 1."""
    try:
        first, second = abs(float(str(value))), abs(float(str(other)))
    except ValueError:
        return float(value != other)
    return abs(log2(first / second)) if first and second else float(first != second)


_MIN_BLOCK = 64


def halve_for_registers(
    config: Config, registers: int, limits: DeviceLimits, names: Sequence[str] = ("R0_BLOCK", "R1_BLOCK", "RBLOCK")
) -> Config | None:
    """Return a config with its largest block among ``names`` halved, if registers limit its occupancy; else None.

    None, too, if no block has 64 or more. ``registers`` are those of a thread of the compiled config. The rule is
    Inductor's for reductions (``_dynamic_scale_rblock`` in torch/_inductor/runtime/triton_heuristics.py).
    """
    values, warps = config.values, config.num_warps or 4
    blocks = [name for name in names if type(values.get(name)) is int and values[name] >= _MIN_BLOCK]
    if not blocks or registers <= limits.registers_per_multiprocessor // limits.threads_per_multiprocessor:
        return None
    resident = limits.registers_per_multiprocessor // (registers * warps * limits.warp_threads)
    if resident >= limits.threads_per_multiprocessor // (warps * limits.warp_threads):
        return None
    largest = max(blocks, key=values.__getitem__)
    return config.with_values({largest: values[largest] // 2})


def halve_within_space(space: Space, config: Config, registers: int, limits: DeviceLimits) -> Config | None:
    """Halve the largest block within the values of a space, to save registers; None if that does not help."""
    values = config.values
    numbers = [name for name, _ in config.parameters if type(values[name]) is int]
    names = [name for name in numbers if values[name] // 2 in space.values.get(name, ())]
    halved = halve_for_registers(config, registers, limits, names)
    return halved if halved is not None and halved in space else None


def suggest_for_registers(given: Any, limits: DeviceLimits | None, config: Config, row: Row) -> Config | None:
    """Return a variant of a compiled config with fewer registers; None without ``given`` configs."""
    if given is None or limits is None or not row.registers:
        return None
    if isinstance(given, Space):
        return halve_within_space(given, config, row.registers, limits)
    return halve_for_registers(config, row.registers, limits)
