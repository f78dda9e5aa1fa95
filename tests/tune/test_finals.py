"""Finals: who meets in them, and whether two of the same configs agree."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from kernellab.errors import CompileError, RunError
from kernellab.store.columns import Status
from kernellab.timing.bench_jobs import LaunchTimes
from kernellab.timing.config import Config
from kernellab.timing.launches import Implementation
from kernellab.tune.finals import Final, FinalRounds, finish_final
from kernellab.tune.options import Options
from kernellab.tune.result import Row
from tests.tune.fakes import Clock, FakeBench, FakeCompiler, Outcome, candidate_of, config, tune

OPTIONS = Options(finals_s=1e9)


def final(times_ms: Sequence[float], *, seed: int, noise: float) -> tuple[Final, dict[Config, Row]]:
    """Hold a final of configs that need more registers the earlier they stand in the list."""
    configs = [config(64 << place) for place in range(len(times_ms))]
    rows = {each: Row(each, Status.OK, registers=99 - place) for place, each in enumerate(configs)}
    bench = FakeBench(dict(zip(configs, times_ms, strict=True)), noise=noise, rng=random.Random(seed))
    candidates = tuple(candidate_of(each, place) for place, each in enumerate(configs))
    return finish_final(FinalRounds(bench, 1, candidates, OPTIONS, Clock()), rows, "final", {})


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.003, 0.01, 0.02])
@pytest.mark.parametrize(
    "times_ms",
    [(1.0, 1.002, 1.003, 1.004, 1.006), (1.001, 1.0005, 1.0, 1.0007, 1.0003, 1.002), (1.0, 1.02, 1.03)],
    ids=["close", "flat", "apart"],
)
def test_finals_of_the_same_configs_agree(times_ms: tuple[float, ...], noise: float) -> None:
    found = [final(times_ms, seed=seed, noise=noise)[0] for seed in range(8)]
    agreeing = [one.winner in {other.winner, *other.ties} for one in found for other in found]
    assert sum(agreeing) >= 0.95 * len(agreeing)


def test_what_is_level_with_the_leader_and_needs_less_wins() -> None:
    found, rows = final((1.0, 1.0, 1.0), seed=1, noise=0.001)
    assert found.winner == config(256)
    assert set(found.ties) == {config(64), config(128)}
    assert [rows[each].standing for each in (config(64), config(128), config(256))] == ["tied", "tied", "winner"]


def test_a_config_that_needs_less_and_is_slower_beyond_doubt_does_not_win() -> None:
    found, rows = final((1.0, 1.004, 1.05), seed=1, noise=0.001)
    assert found.winner == config(64)
    assert rows[config(256)].standing == "lost"


def test_a_final_enters_what_it_measured() -> None:
    _, rows = final((1.0, 2.0), seed=1, noise=0.001)
    row = rows[config(64)]
    assert row.cold_ms == row.time_ms == pytest.approx(1.0, rel=0.01)
    assert row.warm_ms == pytest.approx(0.5, rel=0.01)
    assert row.samples >= OPTIONS.batch_rounds
    assert row.tuning == "final"


def test_configs_that_the_options_name_are_timed_with_a_warm_cache_too() -> None:
    baseline, broken = config(1024), config(2048)
    bench = FakeBench({config(64): 1.0, config(128): 1.001, baseline: 3.0, broken: RunError("it faults")})
    options = Options(finals_s=1e9, warm_configs=(baseline, broken, config(64)))
    rows = tune(list(bench.times_ms), bench, options=options).rows
    assert rows[baseline].warm_ms == pytest.approx(1.5, rel=0.02)
    assert rows[baseline].cold_ms is None  # it is no finalist
    assert rows[config(64)].warm_ms == pytest.approx(0.5, rel=0.02)
    assert rows[broken].warm_ms is None


def test_without_finalists_there_is_no_winner() -> None:
    assert finish_final(FinalRounds(FakeBench({}), 1, (), OPTIONS, Clock()), {}, "final", {}) == (Final(None, ()), {})


class FlukyBench(FakeBench):
    """Measures its first config a tenth too fast before the final."""

    def measure(self, candidate: Implementation, runs: int, stop_above_ms: float | None) -> LaunchTimes:
        measured = super().measure(candidate, runs, stop_above_ms)
        share = 0.9 if candidate.index == 0 else 1.0
        return replace(measured, times_ms=tuple(share * each for each in measured.times_ms))


def test_a_first_run_that_was_too_fast_keeps_none_of_the_best_from_the_final() -> None:
    configs = [config(64 << place) for place in range(3)]
    outcome = tune(configs, FlukyBench(dict(zip(configs, (1.03, 1.02, 1.0), strict=True))))
    assert outcome.winner == configs[2]


@dataclass(slots=True)
class Diary(FakeBench):
    """Writes down what it is asked for, and fails ``failures`` times in a final."""

    asked: list[str] = field(default_factory=list)
    failures: int = 0

    def measure(self, candidate: Implementation, runs: int, stop_above_ms: float | None) -> LaunchTimes:
        self.asked.append("measure")
        return FakeBench.measure(self, candidate, runs, stop_above_ms)

    def interleave(self, candidates: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        self.asked.append("rounds")
        if self.failures:
            self.failures -= 1
            raise RunError("It failed on the GPU.")
        return FakeBench.interleave(self, candidates, rounds)


EIGHT = [config(64 << place) for place in range(8)]
TIMES = {each: 1.0 + place / 1000 for place, each in enumerate(EIGHT)}


def asked_last(bench: Diary) -> str:
    """Return what a bench was asked for after the last config was measured."""
    return " ".join(bench.asked).rpartition("measure")[2].strip()


def held_early(last_ms: float, *, failures: int = 0) -> tuple[Outcome, str]:
    """Tune eight configs, of which the last compiles for long; return what the bench was asked after that one."""
    bench = Diary(TIMES | {EIGHT[-1]: last_ms}, failures=failures)
    outcome = tune(EIGHT, bench, compiler=FakeCompiler(dawdles=True))
    return outcome, asked_last(bench)


def test_the_final_is_held_while_the_last_config_compiles() -> None:
    outcome, asked = held_early(last_ms=2.0)
    assert outcome.winner is not None
    assert outcome.rows[outcome.winner].standing == "winner"
    assert asked == ""


def test_a_late_config_that_belongs_in_the_final_has_it_held_again() -> None:
    outcome, asked = held_early(last_ms=0.9)
    assert outcome.winner == config(64 << 7)
    assert asked.startswith("rounds")


def test_an_early_final_that_fails_leaves_the_final_to_say_so() -> None:
    outcome, asked = held_early(last_ms=2.0, failures=1)
    assert outcome.winner is not None
    assert asked.startswith("rounds")
    with pytest.raises(RunError, match="It failed on the GPU"):
        held_early(last_ms=2.0, failures=2)


@dataclass(slots=True)
class Fragile(FakeBench):
    """A bench on which ``broken`` configs run well until they are to run a dozen times."""

    broken: tuple[Config, ...] = ()

    def interleave(self, candidates: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        if any(candidate.config in self.broken for candidate in candidates):
            raise RunError("It failed on the GPU.")
        return FakeBench.interleave(self, candidates, rounds)


@pytest.mark.parametrize("dawdles", [False, True])
def test_a_config_that_fails_in_the_final_is_a_row_and_the_others_play_on(dawdles: bool) -> None:
    recorded: dict[Config, Row] = {}
    outcome = tune(
        EIGHT,
        Fragile(TIMES | {EIGHT[0]: 0.97}, broken=(EIGHT[0], EIGHT[3])),
        compiler=FakeCompiler(dawdles=dawdles),
        record=lambda rows: recorded.update({row.config: row for row in rows}),
    )
    for broken in (EIGHT[0], EIGHT[3]):
        row = outcome.rows[broken]
        assert (row.status, row.reason, row.time_ms, row.standing) == (Status.FAULT, "It failed on the GPU.", None, "")
        assert recorded[broken] == row
    assert outcome.winner in {EIGHT[1], EIGHT[2]}
    assert tune(EIGHT, FakeBench({}), known=recorded).winner == outcome.winner


def test_where_all_fail_in_the_final_no_config_is_to_blame() -> None:
    recorded: list[Row] = []
    with pytest.raises(RunError, match="It failed on the GPU"):
        tune(EIGHT, Fragile(TIMES, broken=tuple(EIGHT)), record=recorded.extend)
    assert {row.status for row in recorded} == {Status.OK}


def test_configs_that_do_not_compile_put_off_no_early_final() -> None:
    bad = dict.fromkeys(EIGHT[:4], CompileError("It has too many elements."))
    bench = Diary(TIMES | {EIGHT[-1]: 2.0})
    outcome = tune(EIGHT, bench, compiler=FakeCompiler(bad, dawdles=True))
    assert outcome.winner in EIGHT[4:]
    assert asked_last(bench) == ""


def test_what_differs_from_most_is_left_out_of_an_early_final_too() -> None:
    bench = Diary(TIMES | {EIGHT[0]: 0.5, EIGHT[-1]: 2.0}, groups=dict.fromkeys(EIGHT[1:], 1))
    outcome = tune(EIGHT, bench, compiler=FakeCompiler(dawdles=True))
    assert outcome.rows[EIGHT[0]].status is Status.DIFFERS
    assert EIGHT[0] not in {outcome.winner, *outcome.ties}
    assert asked_last(bench) == ""


def test_an_early_final_takes_no_seconds_from_a_budget() -> None:
    compiler = FakeCompiler(dawdles=True)
    tune(EIGHT, Diary(TIMES), compiler=compiler, options=replace(OPTIONS, budget_s=1e9))
    assert compiler.early_batches == 0


def test_an_early_final_counts_for_no_config_of_a_budget() -> None:
    compiler, bench = FakeCompiler(dawdles=True), Diary(TIMES)
    tune(EIGHT, bench, compiler=compiler, options=replace(OPTIONS, budget_configs=7))
    assert compiler.early_batches > 0
    assert bench.measured == EIGHT[:7]


def test_long_kernels_keep_no_config_waiting_for_an_early_final() -> None:
    compiler, bench = FakeCompiler(dawdles=True), Diary({each: 50 * time for each, time in TIMES.items()})
    assert tune(EIGHT, bench, compiler=compiler).winner is not None
    assert compiler.early_batches == 0


@dataclass(slots=True)
class Twice:
    """A search that asks for the second half of its configs when the first is through."""

    halves: list[list[Config]]

    def ask(self) -> list[Config]:
        return self.halves.pop(0) if self.halves else []

    def tell(self, config: Config, time_ms: float | None) -> None:
        pass


def test_a_search_that_asks_again_has_no_early_final_before_most_of_that_is_through() -> None:
    bench = Diary(TIMES)
    search = Twice([EIGHT[:4], EIGHT[4:]])
    tune([], bench, compiler=FakeCompiler(dawdles=True), search=search)
    measured = [place for place, each in enumerate(bench.asked) if each == "measure"]
    assert len(measured) == 8
    assert bench.asked[measured[2] + 1] == "rounds"
    assert measured[3:7] == list(range(measured[3], measured[3] + 4))


def test_the_samples_of_an_early_final_that_does_not_count_are_not_in_the_rows() -> None:
    outcome, _ = held_early(last_ms=0.9)
    known = {each.config: each.samples for each in outcome.rows.values() if each.standing}
    assert max(known.values()) <= OPTIONS.screen_runs + OPTIONS.max_rounds


class Stopped(FakeBench):
    """A bench that is interrupted in its first final."""

    def interleave(self, candidates: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        raise KeyboardInterrupt


def test_an_interrupt_of_an_early_final_keeps_the_best_so_far() -> None:
    outcome = tune(EIGHT, Stopped(TIMES | {EIGHT[0]: 0.8}), compiler=FakeCompiler(dawdles=True))
    assert outcome.interrupted
    assert outcome.winner == EIGHT[0]
    assert "interrupted" in outcome.rows[EIGHT[-1]].reason
    assert not any(row.standing for row in outcome.rows.values())
