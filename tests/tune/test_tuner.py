"""The pipeline, on a compiler and a bench that are written down."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.errors import (
    CompileError,
    KernellabError,
    LaunchError,
    Place,
    RunError,
    StoreError,
    UsageError,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.outcome import rate_columns
from kernellab.tune.options import Options
from kernellab.tune.result import Row
from kernellab.tune.search import CoordinateDescent
from tests.tune.fakes import Clock, FakeBench, FakeCompiler, compiled, config, tune

A, B, C, D = config(16), config(32), config(64), config(128)


def test_the_fastest_config_wins() -> None:
    outcome = tune([A, B, C], FakeBench({A: 3.0, B: 1.0, C: 2.0}))
    assert outcome.winner == B
    assert outcome.ties == ()
    assert [row.status for row in outcome.rows.values()] == [Status.OK] * 3
    assert outcome.rows[B].time_ms == pytest.approx(1.0, rel=0.02)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=12), st.integers(0, 9))
def test_the_pick_is_never_far_from_the_best(times: list[float], seed: int) -> None:
    configs = [config(2 ** (i + 4)) for i in range(len(times))]
    bench = FakeBench(dict(zip(configs, times, strict=True)))
    bench.rng.seed(seed)
    outcome = tune(configs, bench)
    assert outcome.winner is not None
    assert bench.times_ms[outcome.winner] <= min(times) * 1.02  # type: ignore[operator]


def test_equal_configs_tie_and_fewer_registers_win() -> None:
    compiler = FakeCompiler({A: compiled(registers=64), B: compiled(registers=40), C: compiled(registers=40)})
    outcome = tune([A, B, C], FakeBench({A: 1.0, B: 1.0, C: 1.0}, noise=0.001), compiler=compiler)
    assert outcome.winner == B
    assert set(outcome.ties) == {A, C}
    assert {outcome.rows[tied].standing for tied in outcome.ties} == {"tied"}


def test_repeated_tunings_name_the_same_winner_or_a_tie_with_it() -> None:
    times = {A: 1.004, B: 1.0, C: 1.03, D: 1.2}
    seen = set()
    for seed in range(10):
        bench = FakeBench(times, noise=0.01)
        bench.rng.seed(seed)
        outcome = tune([A, B, C, D], bench)
        assert B in {outcome.winner, *outcome.ties}
        seen.add(outcome.winner)
    assert seen <= {A, B}


def test_clear_losers_are_timed_twice() -> None:
    bench = FakeBench({A: 1.0, B: 5.0, C: 9.0})
    tune([A, B, C], bench)
    count = Counter(bench.launches)
    assert count[B] == count[C] == 2
    assert count[A] > 10


def test_what_cannot_run_is_never_launched() -> None:
    bench = FakeBench({B: 1.0})
    outcome = tune([A, B], bench, compiler=FakeCompiler({A: compiled(fits=False)}))
    assert A not in bench.launches
    assert outcome.rows[A].status is Status.CANNOT_RUN
    assert "400,000 bytes of shared memory" in outcome.rows[A].reason


def test_a_config_that_does_not_compile_is_a_row_with_its_line() -> None:
    error = CompileError("arange's range must be\na power of 2", place=Place("k.py", 12))
    outcome = tune([A, B], FakeBench({B: 1.0}), compiler=FakeCompiler({A: error}))
    assert outcome.rows[A].status is Status.COMPILE_ERROR
    assert outcome.rows[A].reason == "arange's range must be a power of 2 (line 12)"
    assert outcome.winner == B


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RunError("illegal memory access"), Status.FAULT),
        (WorkerDied("killed"), Status.FAULT),
        (WorkerTimeout("did not end within 10 s"), Status.TIMEOUT),
        (LaunchError("too many threads"), Status.CANNOT_RUN),
    ],
)
def test_a_config_that_fails_is_a_row_and_the_rest_goes_on(error: Exception, status: Status) -> None:
    outcome = tune([A, B, C], FakeBench({A: 2.0, B: error, C: 1.0}))
    assert outcome.rows[B].status is status
    assert outcome.rows[B].reason == str(error)
    assert outcome.rows[B].registers == 32
    assert outcome.winner == C


def test_outputs_that_differ_from_most_do_not_win_however_fast_and_are_timed_like_the_rest() -> None:
    outcome = tune([A, B, C], FakeBench({A: 0.1, B: 1.0, C: 2.0}, groups={A: 0, B: 1, C: 1}))
    row = outcome.rows[A]
    assert (row.status, row.samples) == (Status.DIFFERS, 4)
    assert row.low_ms is not None
    assert row.reason.startswith("out differs in 3 of 8 elements, by up to 0.5, from what 2 of the 3 configs leave")
    assert "check=" in row.reason
    assert "outputs=" in row.reason
    assert outcome.winner == B


def test_outputs_that_differ_from_a_reference_are_wrong_even_if_most_agree() -> None:
    says = "out differs from the reference in 3 of 8 elements, max error 2"
    bench = FakeBench({A: 1.0, B: 0.5, C: 0.5}, differences={B: says, C: says})
    outcome = tune([A, B, C], bench, reference="it")
    assert outcome.winner == A
    assert outcome.rows[B].status is outcome.rows[C].status is Status.WRONG
    assert outcome.rows[B].reason == says
    assert outcome.rows[B].time_ms is None
    assert outcome.rows[B].registers == 32
    assert {row.checked for row in outcome.rows.values()} == {"it"}


def test_without_a_gpu_nothing_is_timed_and_the_first_that_fits_is_named() -> None:
    compiler = FakeCompiler({A: compiled(fits=False), B: CompileError("no")})
    outcome = tune([A, B, C, D], None, compiler=compiler)
    assert outcome.winner == C
    assert [row.status for row in outcome.rows.values()] == ["cannot_run", "compile_error", "not_timed", "not_timed"]
    assert "no GPU" in outcome.rows[C].reason
    assert all(row.time_ms is None for row in outcome.rows.values())
    assert outcome.rows[C].registers == 32


def test_the_budget_in_configs_stops_compiling_too() -> None:
    bench, compiler = FakeBench({A: 2.0, B: 1.0}), FakeCompiler()
    outcome = tune([A, B, C, D], bench, compiler=compiler, options=Options(budget_configs=2, finals_s=1e9))
    assert bench.measured == [A, B]
    assert compiler.stopped
    assert outcome.winner == B
    assert outcome.rows[D].status is Status.NOT_TIMED
    assert outcome.rows[D].reason == "not measured: limited to 2 configs"


def test_without_a_gpu_the_budget_in_configs_bounds_what_is_compiled() -> None:
    outcome = tune([A, B, C, D], None, options=Options(budget_configs=2))
    assert [row.registers for row in outcome.rows.values()] == [32, 32, None, None]


def test_the_budget_in_seconds_is_that_of_the_clock() -> None:
    bench = FakeBench(dict.fromkeys([A, B, C, D], 1.0), clock=Clock(100.0))
    tune([A, B, C, D], bench, options=Options(budget_s=5.0, screen_runs=4, finals_s=0.0))
    assert bench.measured == [A, B]


def test_an_interrupt_keeps_the_best_so_far() -> None:
    outcome = tune([A, B, C, D], FakeBench({A: 2.0, B: 1.0, C: KeyboardInterrupt(), D: 0.1}))
    assert outcome.interrupted
    assert outcome.winner == B
    assert "interrupted" in outcome.rows[D].reason


def test_an_interrupt_before_anything_was_measured_goes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        tune([A, B], FakeBench({A: KeyboardInterrupt(), B: 1.0}))


def test_an_interrupt_without_a_gpu_keeps_what_was_compiled() -> None:
    stopping = FakeCompiler({C: KeyboardInterrupt()})
    outcome = tune([A, B, C, D], None, compiler=stopping)
    assert outcome.interrupted
    assert outcome.winner == A
    assert [row.registers for row in outcome.rows.values()] == [32, 32, None, None]
    assert "interrupted" in outcome.rows[D].reason
    with pytest.raises(KeyboardInterrupt):
        tune([C, A], None, compiler=stopping)


def test_each_outcome_is_recorded_as_soon_as_it_is_known() -> None:
    recorded: list[Row] = []
    bench = FakeBench({A: 1.0, B: RunError("boom"), C: KeyboardInterrupt()})
    tune([A, B, C], bench, record=recorded.extend)
    assert [(row.config, row.status) for row in recorded] == [(A, Status.OK), (B, Status.FAULT)]


@pytest.mark.parametrize("error", [WorkerTimeout("no answer"), StoreError("No space left on device")])
def test_what_says_nothing_of_a_config_is_a_row_and_not_recorded(error: KernellabError) -> None:
    recorded: list[Row] = []
    outcome = tune([A, B], FakeBench({B: 1.0}), compiler=FakeCompiler({A: error}), record=recorded.extend)
    assert error.message in outcome.rows[A].reason
    assert {row.config for row in recorded} == {B}


@pytest.mark.parametrize("error", [WorkerError("OutOfMemoryError: CUDA out of memory"), KernellabError("no room")])
def test_what_kept_a_bench_from_measuring_is_a_row_and_not_recorded(error: KernellabError) -> None:
    recorded: list[Row] = []
    outcome = tune([A, B], FakeBench({A: error, B: 1.0}), record=recorded.extend)
    assert error.message in outcome.rows[A].reason
    assert {row.config for row in recorded} == {B}


def test_known_configs_are_neither_compiled_nor_timed_again() -> None:
    kept: dict[Config, Row] = {}
    record = lambda rows: kept.update({row.config: row for row in rows})  # noqa: E731
    first = tune([A, B, C], FakeBench({A: 1.0, B: 2.0, C: RunError("boom")}), record=record)
    bench, compiler = FakeBench({}), FakeCompiler()
    again = tune([A, B, C], bench, compiler=compiler, known=kept)
    assert (again.winner, again.from_cache) == (first.winner, True)
    assert again.rows == first.rows
    assert not bench.launches
    assert not compiler.compiled


def test_a_config_added_to_the_list_is_the_only_one_screened() -> None:
    kept: dict[Config, Row] = {}
    record = lambda rows: kept.update({row.config: row for row in rows})  # noqa: E731
    tune([A, B], FakeBench({A: 1.0, B: 2.0}), record=record)
    bench = FakeBench({A: 1.0, B: 2.0, C: 0.9})
    outcome = tune([A, B, C], bench, known=kept, record=record)
    assert bench.measured == [C]
    assert outcome.winner == C
    assert not outcome.from_cache
    assert tune([A, B, C], FakeBench({}), known=kept).winner == C


def test_known_configs_that_cannot_be_compiled_now_are_ranked_as_they_were() -> None:
    kept: dict[Config, Row] = {}
    tune([A, B, C], FakeBench({A: 1.0, B: 1.02, C: 1.03}), record=lambda rows: kept.update({r.config: r for r in rows}))
    full = dict.fromkeys([A, B, C], StoreError("No space left on device"))
    outcome = tune([B, C], FakeBench({}), compiler=FakeCompiler(full), known=kept)
    assert outcome.winner == B
    assert outcome.rows[B].status is Status.OK


def test_a_list_without_the_known_winner_is_settled_again() -> None:
    kept: dict[Config, Row] = {}
    record = lambda rows: kept.update({row.config: row for row in rows})  # noqa: E731
    tune([A, B, C], FakeBench({A: 1.0, B: 1.02, C: 1.03}), record=record)
    bench = FakeBench({B: 1.02, C: 1.03})
    outcome = tune([B, C], bench, known=kept)
    assert outcome.winner == B
    assert not bench.measured
    assert set(bench.launches) == {B, C}


def test_arguments_that_fit_no_config_are_an_error() -> None:
    compiler = FakeCompiler(refusal=LaunchError("kernel is launched without n"))
    with pytest.raises(LaunchError, match="without n"):
        tune([A, B], FakeBench({}), compiler=compiler)


def test_spills_drop_a_config_only_where_the_policy_says_so() -> None:
    compiler = FakeCompiler({A: compiled(spill_bytes=4096)})
    generated = Options([A, B], finals_s=1e9)
    limited = tune([A, B], FakeBench({A: 1.0, B: 2.0}), compiler=compiler, options=generated)
    assert limited.rows[A].status is Status.PRUNED
    assert tune([A, B], FakeBench({A: 1.0, B: 2.0}), compiler=compiler).winner == A


def test_a_descent_is_compiled_in_rounds_and_settled_in_a_final() -> None:
    def cost(found: Config) -> float:
        block = dict(found.parameters)["BLOCK"]
        return 1.0 + abs(block - 64) / 64 + abs((found.num_warps or 0) - 4) + abs((found.num_stages or 0) - 3)

    class Costs(dict[Config, float]):
        def __missing__(self, key: Config) -> float:
            return cost(key)

    outcome = tune([], FakeBench(Costs()), search=CoordinateDescent(A, lambda found: (found.num_warps or 0) <= 8))
    assert outcome.winner == C


def test_wrong_options_are_a_row() -> None:
    compiler = FakeCompiler(refusal=UsageError("num_warps must be a power of 2"))
    outcome = tune([A], None, compiler=compiler)
    assert outcome.winner is None
    assert outcome.rows[A].status is Status.COMPILE_ERROR


def test_rates_follow_from_what_a_launch_moves_and_computes() -> None:
    assert rate_columns(2.0, 6_000_000, 4 * 10**9) == {"gbps": 3.0, "tflops": 2.0}
    assert rate_columns(2.0, None, None) == rate_columns(None, 1, 1) == {"gbps": None, "tflops": None}
