"""Which outputs count where there is no reference: the majority rule, on benches that play."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.checking.comparison import OutputDifference
from kernellab.errors import RunError
from kernellab.store.columns import Status
from kernellab.timing.bench_jobs import NO_GROUP, NOT_COMPARED, LaunchTimes
from kernellab.timing.config import Config
from kernellab.timing.launches import Implementation
from kernellab.tune.agreement import NOT_REPEATED, Outputs, disagreement_note
from kernellab.tune.options import Options
from kernellab.tune.result import Row
from tests.tune.fakes import DIFFERENCE, FakeBench, FakeCompiler, Outcome, config, tune

RANDOM = NOT_COMPARED


@dataclass(slots=True)
class Keeping(FakeBench):
    """A bench that numbers groups as it finds them and keeps four, as the one on a GPU does."""

    kept: list[int] = field(default_factory=list)

    def measure(self, candidate: Implementation, runs: int, stop_above_ms: float | None) -> LaunchTimes:
        measured = FakeBench.measure(self, candidate, runs, stop_above_ms)
        if measured.difference:
            return measured
        if measured.group == RANDOM and self.kept:
            return replace(measured, group=NOT_COMPARED)
        if measured.group not in self.kept:
            if len(self.kept) == 4:
                return replace(measured, group=NO_GROUP)
            self.kept.append(measured.group)
        return replace(measured, group=self.kept.index(measured.group))


def configs_of(groups: Sequence[int]) -> list[Config]:
    return [config(2**index) for index in range(len(groups))]


def bench_of(groups: Sequence[int], times_ms: Sequence[float] = ()) -> Keeping:
    """Return a bench on which the n-th config leaves the outputs of the n-th group; the first is the fastest."""
    configs = configs_of(groups)
    times = times_ms or [1.0 + 0.3 * index for index in range(len(groups))]
    return Keeping(dict(zip(configs, times, strict=True)), groups=dict(zip(configs, groups, strict=True)))


def tuned(groups: Sequence[int], bench: Keeping | None = None, order: Sequence[int] | None = None) -> Outcome:
    configs = configs_of(groups)
    search = [configs[index] for index in order or range(len(groups))]
    return tune(search, bench or bench_of(groups))


def statuses(outcome: Outcome) -> dict[Config, Status]:
    return {config: row.status for config, row in outcome.rows.items()}


SCRATCH_PER_ROWS = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]
LEGITIMATE = {
    "partial sums in scratch, five sizes": SCRATCH_PER_ROWS,
    "partial sums in scratch, in turns": [0, 1, 2, 3, 4] * 4,
    "a lock and partial sums, by rows and warps": [index // 2 for index in range(16)],
    "split-K with a workspace per split": [0, 0, 1, 1, 2, 2, 3, 3],
    "split-K without zeroing": [0, 1, 2, 3],
    "split-K with one that does not split": [0, 1, 1, 2, 2, 3, 3],
    "a histogram per program": [0, 1, 2, 3, 4, 5],
    "a histogram per program, two block sizes": [0, 0, 0, 1, 1, 1],
    "float atomics": [RANDOM] * 8,
    "float atomics but for the unsplit": [0, RANDOM, RANDOM, RANDOM],
    "random numbers per block": [0, 1, 2, 3, 4, 5, 6, 7],
    "random numbers per block, by warps": [0, 0, 1, 1, 2, 2],
    "random numbers by the clock": [RANDOM] * 6,
    "a padded output": [0, 0, 1, 1, 2, 2, 3, 3, 4, 4],
    "a padded output, two paddings": [0, 1],
    "an uninitialised tail": [RANDOM, 0, 0, 1, 1],
    "a tail by block size": [0, 0, 0, 1, 1, 2],
    "counters of programs": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
    "an order of arrival": [RANDOM, RANDOM, 0, 1],
    "a workspace half the configs use": [0, 0, 0, 0, 1, 1, 2, 2],
}
WITH_WRONG = {
    "one, the first": [1, 0, 0, 0],
    "one, the last": [0, 0, 0, 1],
    "one of three": [0, 1, 0],
    "two alike": [0, 1, 1, 0, 0],
    "two unlike": [0, 1, 2, 0, 0],
    "three unlike at first": [1, 2, 3, 0, 0, 0, 0],
    "four unlike at first, so that no other is kept": [1, 2, 3, 4, 0, 0, 0, 0, 0],
    "five unlike at first": [1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0],
    "nine unlike at first": [*range(1, 10), *[0] * 10],
    "nine unlike at last": [*[0] * 10, *range(1, 10)],
    "nine unlike in between": [each for pair in zip(range(1, 10), [0] * 9, strict=True) for each in pair] + [0, 0],
    "four pairs at first": [1, 1, 2, 2, 3, 3, 4, 4, *[0] * 9],
    "a large group that is no majority of all": [1, 1, 1, 1, 0, 0, 0, 0, 0],
    "just more than half": [1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0],
    "one that races": [0, 0, 0, RANDOM, 1],
    "one that races, the first": [RANDOM, 0, 0, 0, 0, 1],
    "one of twenty": [*[0] * 12, 1, *[0] * 7],
    "one in each fourth": [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4],
    "twelve of thirty": [0, 1, 2, 0, 0, 3, 0, 0, 4, 0] * 3,
    "sixteen of forty": [*range(1, 17), *[0] * 24],
}


def test_there_are_twenty_of_each() -> None:
    assert (len(LEGITIMATE), len(WITH_WRONG)) == (20, 20)


@pytest.mark.parametrize("name", LEGITIMATE)
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_where_no_more_than_half_agree_all_count_in_every_order(name: str, seed: int | None) -> None:
    groups = LEGITIMATE[name]
    order = list(range(len(groups)))
    if seed is not None:
        random.Random(seed).shuffle(order)
    outcome = tuned(groups, order=order)
    assert set(statuses(outcome).values()) == {Status.OK}
    assert outcome.winner == configs_of(groups)[0]
    assert outcome.agreement is not None
    assert not outcome.agreement.has_majority
    kinds = {group for group in groups if group != RANDOM}
    assert outcome.agreement.disagrees == (len(kinds) > 1)


@pytest.mark.parametrize("name", WITH_WRONG)
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_what_differs_from_more_than_half_is_told_in_every_order(name: str, seed: int | None) -> None:
    groups = WITH_WRONG[name]
    order, configs = list(range(len(groups))), configs_of(groups)
    if seed is not None:
        random.Random(seed).shuffle(order)
    outcome = tuned(groups, order=order)
    differing = {each for each, status in statuses(outcome).items() if status is Status.DIFFERS}
    assert differing == {each for each, group in zip(configs, groups, strict=True) if group not in {0, RANDOM}}
    assert all(row.time_ms is not None and row.low_ms is not None for row in outcome.rows.values())
    assert all(DIFFERENCE.text in outcome.rows[each].reason for each in differing)
    assert outcome.winner not in differing
    assert outcome.agreement is not None
    assert outcome.agreement.has_majority
    assert set(outcome.agreement.groups[0]) == {c for c, g in zip(configs, groups, strict=True) if g == 0}


@pytest.mark.parametrize("groups", [*LEGITIMATE.values(), *WITH_WRONG.values()])
def test_with_a_reference_nothing_is_compared_with_other_configs(groups: list[int]) -> None:
    bench = bench_of(groups)
    bench.differences = {each: "out differs" for each, group in bench.groups.items() if group == 1}
    outcome = tune(configs_of(groups), bench, reference="it")
    for each, status in statuses(outcome).items():
        assert status is (Status.WRONG if each in bench.differences else Status.OK)
    assert bench.compared == []
    assert outcome.agreement is None


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.randoms())
def test_the_rule_is_strictly_more_than_half_whatever_the_order(groups: list[int], rng: random.Random) -> None:
    configs = configs_of(groups)
    kinds = dict(zip(configs, groups, strict=True))
    singles = {each: f"{index}" for index, each in enumerate(configs)}
    shuffled = list(singles.items())
    rng.shuffle(shuffled)
    outputs = Outputs(dict(shuffled), {})

    def compare(first: Config, others: Sequence[Config]) -> list[tuple[OutputDifference, ...]]:
        return [() if kinds[first] == kinds[other] else (DIFFERENCE,) for other in others]

    outputs.settle(compare)
    largest = max(groups, key=groups.count)
    expected = {each for each, group in kinds.items() if group == largest}
    assert set(outputs.majority()) == (expected if 2 * len(expected) > len(groups) else set())
    found = outputs.agreement()
    if len(set(groups)) <= 7:
        sizes = sorted((groups.count(group) for group in set(groups)), reverse=True)
        assert [len(group) for group in found.groups] == sizes
        assert set(found.differences) == set(itertools.combinations(range(len(sizes)), 2))


@pytest.mark.slow
def test_ten_thousand_unlike_configs_take_few_launches_for_each() -> None:
    configs = [config(index) for index in range(10_000)]
    outputs = Outputs({each: each.text for each in configs}, {})
    launches = 0

    def compare(first: Config, others: Sequence[Config]) -> list[tuple[OutputDifference, ...]]:
        nonlocal launches
        launches += 1 + len(others)
        return [(DIFFERENCE,) for _ in others]

    outputs.settle(compare)
    assert launches < 2.2 * len(configs)
    assert outputs.majority() == []


def test_where_all_agree_nothing_is_launched_again() -> None:
    bench = bench_of([0] * 12)
    outcome = tuned([0] * 12, bench)
    assert bench.compared == []
    assert outcome.agreement is not None
    assert not outcome.agreement.disagrees
    assert disagreement_note(outcome.agreement) == ""


def test_an_error_of_a_comparison_spoils_no_tuning() -> None:
    class Broken(Keeping):
        def compare(
            self, candidate: Implementation, others: Sequence[Implementation]
        ) -> list[tuple[OutputDifference, ...]]:
            raise RunError("It failed on the GPU.")

    groups = [0, 0, 0, 1]
    whole = bench_of(groups)
    outcome = tuned(groups, Broken(whole.times_ms, groups=whole.groups))
    assert list(statuses(outcome).values()) == [Status.OK] * 3 + [Status.DIFFERS]
    assert outcome.rows[configs_of(groups)[3]].reason.startswith("its outputs differ, from what 3 of the 4")


def test_an_interrupt_follows_the_same_rule_without_a_launch() -> None:
    groups = [1, 0, 0, 0, 2]
    bench = bench_of(groups)
    bench.times_ms = {**bench.times_ms, configs_of(groups)[4]: KeyboardInterrupt()}
    outcome = tuned(groups, bench)
    assert outcome.interrupted
    assert list(statuses(outcome).values())[:4] == [Status.DIFFERS, Status.OK, Status.OK, Status.OK]
    assert outcome.winner == configs_of(groups)[1]
    assert bench.compared == []


@dataclass(slots=True)
class Store:
    """Keeps the latest row of each config, as text."""

    rows: dict[Config, Row] = field(default_factory=dict)

    def add(self, rows: Sequence[Row]) -> None:
        self.rows.update({row.config: row for row in rows})

    def tune(self, groups: Sequence[int], bench: FakeBench, count: int | None = None) -> Outcome:
        return tune(configs_of(groups)[:count], bench, known=dict(self.rows), record=self.add)


@pytest.mark.parametrize("groups", [*LEGITIMATE.values(), *WITH_WRONG.values()])
def test_what_is_known_says_the_same_without_a_launch(groups: list[int]) -> None:
    store, silent = Store(), FakeBench({})
    first, again = store.tune(groups, bench_of(groups)), store.tune(groups, silent)
    assert again.from_cache
    assert silent.measured == silent.launches == silent.compared == []
    assert (again.winner, again.agreement) == (first.winner, first.agreement)
    assert statuses(again) == statuses(first)
    assert [row.reason for row in again.rows.values()] == [row.reason for row in first.rows.values()]


def test_new_configs_are_compared_with_the_known_ones() -> None:
    groups = [0, 0, 0, 1, 0]
    store, bench = Store(), bench_of(groups)
    store.tune(groups, bench_of(groups), count=3)
    outcome = store.tune(groups, bench)
    assert len(bench.measured) == 2
    assert list(statuses(outcome).values()) == [Status.OK] * 3 + [Status.DIFFERS, Status.OK]


def test_new_configs_may_outvote_the_known_winner_and_a_part_may_bring_it_back() -> None:
    groups = [1, 1, 0, 0, 0]
    store = Store()
    assert store.tune(groups, bench_of(groups), count=2).winner == configs_of(groups)[0]
    whole = store.tune(groups, bench_of(groups))
    assert list(statuses(whole).values()) == [Status.DIFFERS] * 2 + [Status.OK] * 3
    assert whole.winner == configs_of(groups)[2]
    part = store.tune(groups, bench_of(groups), count=3)
    assert list(statuses(part).values()) == [Status.OK] * 2 + [Status.DIFFERS]
    assert part.winner == configs_of(groups)[0]


def test_rows_from_before_groups_were_kept_are_one_group() -> None:
    groups = [0, 0, 0, 1]
    store = Store()
    store.tune(groups, bench_of(groups), count=3)
    store.rows = {each: replace(row, group="", apart="") for each, row in store.rows.items()}
    outcome = store.tune(groups, bench_of(groups))
    assert list(statuses(outcome).values()) == [Status.OK] * 3 + [Status.DIFFERS]


def test_what_a_reference_called_right_is_not_outvoted() -> None:
    groups = [1, 0, 0, 0]
    store = Store()
    store.tune(groups, bench_of(groups), count=1)
    store.rows = {each: replace(row, group="", checked="it") for each, row in store.rows.items()}
    outcome = store.tune(groups, bench_of(groups))
    assert set(statuses(outcome).values()) == {Status.OK}
    assert outcome.winner == configs_of(groups)[0]


def test_rows_keep_how_groups_differ_as_json() -> None:
    store = Store()
    store.tune([0, 0, 1], bench_of([0, 0, 1]))
    row = store.rows[configs_of([0, 0, 1])[2]]
    assert list(json.loads(row.apart).values()) == [[["out", 3, 8, 0.5]]]


@pytest.mark.parametrize(
    "text", ["[", "[]", "7", '{"a": 7}', '{"a": []}', '{"a": [["out", "3", 8, 0.5]]}', '{"a": [[1]]}']
)
def test_what_no_row_keeps_is_no_difference(text: str) -> None:
    store = Store()
    store.tune([0, 0, 1], bench_of([0, 0, 1]))
    store.rows = {each: replace(row, apart=text) for each, row in store.rows.items()}
    outcome = store.tune([0, 0, 1], FakeBench({}))
    assert list(statuses(outcome).values()) == [Status.OK, Status.OK, Status.DIFFERS]
    assert outcome.agreement is not None
    assert outcome.agreement.differences == {}


def test_what_nobody_compared_is_not_said_to_differ() -> None:
    groups = [0, 0, 0, 0]
    store = Store()
    store.tune(groups, bench_of(groups), count=3)
    bench = bench_of(groups)
    bench.times_ms = {**bench.times_ms, configs_of(groups)[3]: 0.9, config(7): KeyboardInterrupt()}
    outcome = tune([*configs_of(groups), config(7)], bench, known=dict(store.rows), record=store.add)
    assert outcome.interrupted
    assert list(statuses(outcome).values())[:4] == [Status.OK] * 4
    later = bench_of(groups)
    again = store.tune(groups, later)
    assert later.measured == later.compared == []
    assert again.agreement is not None
    assert not again.agreement.disagrees
    assert disagreement_note(again.agreement) == ""


def test_rows_checked_by_different_references_are_not_said_to_differ() -> None:
    store, groups = Store(), [0, 0, 0]
    store.tune(groups, bench_of(groups))
    rows = enumerate(store.rows.items())
    store.rows = {each: replace(row, group="", checked=f"reference {i}") for i, (each, row) in rows}
    outcome = store.tune(groups, FakeBench({}))
    assert set(statuses(outcome).values()) == {Status.OK}
    assert outcome.agreement is not None
    assert not outcome.agreement.disagrees


def test_who_does_not_repeat_itself_is_in_no_group_and_may_win() -> None:
    store = Store()
    groups = [RANDOM, 0, 0, 1]
    outcome = store.tune(groups, bench_of(groups))
    assert store.rows[configs_of(groups)[0]].group == NOT_REPEATED
    assert outcome.agreement is not None
    assert outcome.agreement.not_compared == (configs_of(groups)[0],)
    assert outcome.winner == configs_of(groups)[0]


def test_the_remark_says_how_many_agree_which_arguments_differ_and_what_decides() -> None:
    first, second = (tuned(groups).agreement for groups in ([0, 1, 0, 2, 0], [0, 0, 1, 1]))
    assert first is not None
    assert second is not None
    assert disagreement_note(first) == (
        "Outputs disagree: 3 of 5 configs agree, and what differs from these does not win. Between groups, at most: "
        "out differs in 3 of 8 elements, by up to 0.5. Where it may be right, a reference decides (check=), or naming "
        "the arguments that count (outputs=)."
    )
    assert "no more than 2 of 4 configs agree (2 groups of 2), so all of them could win" in disagreement_note(second)


def test_an_early_final_leaves_out_what_differs_from_most_so_far() -> None:
    groups = [1, 0, 0, 0, 0, 0, 0, 0]
    bench = bench_of(groups, [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0])
    outcome = tune(configs_of(groups), bench, compiler=FakeCompiler(dawdles=True), options=Options(finals_s=1e9))
    assert outcome.rows[configs_of(groups)[0]].status is Status.DIFFERS
    assert outcome.rows[configs_of(groups)[0]].cold_ms is None
