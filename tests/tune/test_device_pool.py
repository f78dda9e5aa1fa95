"""Several devices, each a bench that is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from kernellab.checking.comparison import OutputDifference
from kernellab.errors import KernellabError, LaunchError, RunError, UsageError
from kernellab.store.columns import Status
from kernellab.timing.bench_jobs import LaunchTimes
from kernellab.timing.config import Config
from kernellab.timing.launches import Implementation
from kernellab.tune.device_pool import DevicePool, SharedRounds, valid_devices
from kernellab.tune.options import Options
from tests.tune.fakes import DIFFERENCE, Clock, FakeBench, FakeCompiler, candidate_of, config, tune

CONFIGS = [config(2 ** (i + 4), warps) for i in range(6) for warps in (2, 4)]
TIMES = {each: 1.0 + place / 10 for place, each in enumerate(CONFIGS)}


@dataclass(slots=True)
class Device(FakeBench):
    """A bench that takes ``slower`` times as long."""

    slower: float = 1.0
    finals: int = 0

    def interleave(self, candidates: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        self.finals += len(candidates) > 1
        return [tuple(t * self.slower for t in times) for times in FakeBench.interleave(self, candidates, rounds)]


def pool(*benches: Device, clock: Clock | None = None) -> DevicePool:
    """Return a pool by the clock of the first bench, on which each launch takes a second."""
    makers = [partial(lambda made: made, bench) for bench in benches]
    return DevicePool(makers, tuple(range(len(benches))), clock=clock or benches[0].clock)


def test_devices_that_agree_share_the_configs_and_the_first_holds_the_final() -> None:
    one, two = Device(TIMES), Device(TIMES, slower=1.01)
    devices = pool(one, two)
    outcome = tune(CONFIGS, devices, options=Options(finals_s=1e9, finalist_factor=1.25))
    devices.close()
    assert outcome.winner == CONFIGS[0]
    measured = {*one.measured, *two.measured}
    assert measured == set(CONFIGS)
    assert len(one.measured) + len(two.measured) == len(CONFIGS) + 1  # the second config on both
    assert one.finals > 0
    assert two.finals == 0
    by_device = {row.device_index for row in outcome.rows.values()}
    assert by_device <= {0, 1}
    assert outcome.rows[CONFIGS[0]].device_index == 0


@pytest.mark.parametrize("slower", [1.2, 0.9])
def test_a_device_that_disagrees_measures_nothing_else(slower: float) -> None:
    one, two = Device(TIMES), Device(TIMES, slower=slower)
    devices = pool(one, two)
    outcome = tune(CONFIGS, devices)
    devices.close()
    assert two.measured == [CONFIGS[1]]
    assert {row.device_index for row in outcome.rows.values()} == {0}
    assert outcome.winner == CONFIGS[0]
    assert any("device 1 was not used" in note and "tolerance 3%" in note for note in devices.notes)


def test_a_device_that_fails_takes_no_part() -> None:
    devices = pool(Device(TIMES), Device({CONFIGS[1]: LaunchError("there is no memory left.")}))
    assert tune(CONFIGS[:3], devices).winner == CONFIGS[0]
    devices.close()
    assert devices.notes == ["device 1 was not used: there is no memory left."]


def test_a_config_that_runs_decides_whether_devices_agree() -> None:
    times: Mapping[Config, float | BaseException] = {**TIMES, CONFIGS[0]: RunError("boom")}
    one, two = Device(times), Device(times)
    devices = pool(one, two)
    outcome = tune(CONFIGS, devices)
    devices.close()
    assert outcome.rows[CONFIGS[0]].status is Status.FAULT
    assert outcome.winner == CONFIGS[1]
    assert two.measured[0] == CONFIGS[1]


def test_the_final_begins_early_where_the_first_device_measures_alone() -> None:
    alone, shared = FakeCompiler(dawdles=True), FakeCompiler(dawdles=True)
    close = {each: 1.0 + place / 1000 for place, each in enumerate(CONFIGS)}
    tune(CONFIGS, pool(Device(close), Device(close), clock=Clock()), compiler=alone)
    tune(CONFIGS, pool(Device(close), Device(close)), compiler=shared)
    assert alone.early_batches > 0
    assert shared.early_batches == 0


def test_where_measuring_takes_no_time_to_speak_of_one_device_does_it_and_the_notes_say_so() -> None:
    made: list[FakeBench] = []
    devices = DevicePool([lambda: Device(TIMES), lambda: made.append(Device(TIMES)) or made[-1]], (2, 3), clock=Clock())  # type: ignore[func-returns-value]
    assert tune(CONFIGS, devices).winner == CONFIGS[0]
    devices.close()
    assert made == []
    assert devices.notes == ["device 2 measured alone, in 0.0 s: another would have saved less than 2 s"]


@pytest.mark.parametrize(("compiling_s", "joins"), [(0.5, True), (60.0, False)])
def test_another_device_joins_where_the_first_does_not_wait_for_the_compiler(compiling_s: float, joins: bool) -> None:
    one, two = Device(TIMES), Device(TIMES)
    devices = pool(one, two)
    devices.expect(len(CONFIGS))
    for place, each in enumerate(CONFIGS):
        one.clock.now_s += compiling_s
        devices.submit(candidate_of(each, place), 4, lambda: None)
    list(devices.remaining_results())
    devices.close()
    assert bool(two.measured) is joins


def test_a_long_final_is_held_by_rounds_on_all_devices_that_agree() -> None:
    long = {each: 40.0 + place / 100 for place, each in enumerate(CONFIGS)}
    one, two, three = Device(long), Device(long, slower=1.01), Device(long, slower=1.2)
    devices = pool(one, two, three)
    outcome = tune(CONFIGS, devices, options=Options(finals_s=1e9, finalist_factor=1.25))
    devices.close()
    assert outcome.winner is not None
    assert long[outcome.winner] <= 40.0 * 1.005
    assert one.finals > 0
    assert two.finals == one.finals
    assert three.finals == 0
    assert {row.device_index for row in outcome.rows.values() if row.standing} == {0}


def test_rounds_are_divided_and_every_config_has_as_many_on_each_device() -> None:
    benches = [Device(TIMES, noise=0.0), Device(TIMES, noise=0.0, slower=2.0)]
    candidates = [candidate_of(each) for each in CONFIGS[:3]]
    shared = SharedRounds(benches)
    times = shared.interleave(candidates, 5)
    assert [[time / TIMES[c.config] for time in each] for c, each in zip(candidates, times, strict=True)] == [
        pytest.approx([1.0, 1.0, 1.0, 2.0, 2.0])
    ] * 3
    assert shared.interleave(candidates[:1], 1) == [(TIMES[CONFIGS[0]],)]
    assert shared.warm(candidates, 3) == pytest.approx([TIMES[each] / 2 for each in CONFIGS[:3]])


def test_an_error_in_a_shared_round_is_that_of_its_device() -> None:
    failing = Device({**TIMES, CONFIGS[0]: RunError("boom")})
    with pytest.raises(RunError, match="boom"):
        SharedRounds([Device(TIMES), failing]).interleave([candidate_of(CONFIGS[0])], 4)


@dataclass(slots=True)
class Numbering(Device):
    """A bench that numbers the groups of outputs in the order in which it meets them."""

    kinds: Mapping[Config, str] = field(default_factory=dict)
    met: list[str] = field(default_factory=list)

    def measure(self, candidate: Implementation, runs: int, stop_above_ms: float | None) -> LaunchTimes:
        measured = FakeBench.measure(self, candidate, runs, stop_above_ms)
        kind = self.kinds.get(candidate.config, "right")
        if kind not in self.met:
            self.met.append(kind)
        return LaunchTimes(measured.times_ms, self.met.index(kind))

    def compare(
        self, candidate: Implementation, others: Sequence[Implementation]
    ) -> list[tuple[OutputDifference, ...]]:
        kind = self.kinds.get(candidate.config, "right")
        return [() if self.kinds.get(other.config, "right") == kind else (DIFFERENCE,) for other in others]


@dataclass(slots=True)
class Hesitant(Numbering):
    """A bench that fails the first time it is asked for rounds."""

    has_failed: bool = False

    def interleave(self, candidates: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        if not self.has_failed:
            self.has_failed = True
            raise RunError("It failed on the GPU.")
        return Device.interleave(self, candidates, rounds)


def test_a_config_that_fails_when_devices_are_compared_is_followed_by_another() -> None:
    kinds = dict.fromkeys(CONFIGS[1:], "other")
    one, two = Hesitant(TIMES, kinds=kinds), Numbering(TIMES, kinds=kinds)
    devices = pool(one, two)
    outcome = tune(CONFIGS, devices)
    devices.close()
    assert two.measured[0] == CONFIGS[2]
    assert outcome.rows[CONFIGS[0]].status is Status.DIFFERS
    assert outcome.winner == CONFIGS[1]


def test_outputs_of_several_devices_are_compared_with_each_other() -> None:
    kinds = dict.fromkeys(CONFIGS[1:], "other") | {CONFIGS[2]: "third"}
    one, two = Numbering(TIMES, kinds=kinds), Numbering(TIMES, kinds=kinds)
    outcome = tune(CONFIGS, pool(one, two))
    differing = {each for each, row in outcome.rows.items() if row.status is Status.DIFFERS}
    assert differing == {CONFIGS[0], CONFIGS[2]}
    assert outcome.winner == CONFIGS[1]


def test_of_two_groups_of_a_size_neither_is_right() -> None:
    heavy, light = CONFIGS[:2]
    bench = Numbering(TIMES, kinds={heavy: "other"})
    outcome = tune([light, heavy], pool(bench), longest_first=True)
    assert bench.measured[0] == heavy
    assert outcome.winner == min(heavy, light, key=TIMES.__getitem__)
    assert {row.status for row in outcome.rows.values()} == {Status.OK}
    assert outcome.agreement is not None
    assert outcome.agreement.groups == ((light,), (heavy,))


def test_an_interrupt_ends_the_threads_and_keeps_the_best() -> None:
    times: Mapping[Config, float | BaseException] = {**TIMES, CONFIGS[5]: KeyboardInterrupt()}
    devices = pool(Device(times), Device(times))
    outcome = tune(CONFIGS, devices)
    devices.close()
    assert outcome.interrupted
    assert outcome.winner in CONFIGS


def test_all_benches_are_closed() -> None:
    one, two = Device(TIMES), Device(TIMES)
    devices = pool(one, two)
    tune(CONFIGS, devices)
    devices.close()
    assert one.closed
    assert two.closed


def test_devices_are_checked_against_those_that_there_are() -> None:
    names = ["H200", "H200", "A100"]
    assert valid_devices([1, 0, 1], 3, names) == (1, 0)
    for given, count, message in (
        ([3], 3, "devices has 3, and there is GPU 0 to 2"),
        ([0], 0, "devices has 0, and there is no GPU"),
        ([-1], 1, "devices has -1, and there is GPU 0"),
        ([], 1, "expected a list of GPU numbers"),
        ("01", 2, "expected a list of GPU numbers"),
        ([True], 2, "devices has True"),
        ([0, 2], 3, "different models, A100 and H200"),
    ):
        with pytest.raises(UsageError, match=message):
            valid_devices(given, count, names)  # type: ignore[arg-type]


def test_no_bench_is_made_where_nothing_is_measured() -> None:
    made: list[FakeBench] = []
    DevicePool([lambda: made.append(FakeBench({})) or made[-1]]).close()  # type: ignore[func-returns-value]
    assert made == []


def test_a_bench_is_made_once_and_closed() -> None:
    made: list[FakeBench] = []

    def make() -> FakeBench:
        made.append(FakeBench(TIMES))
        return made[-1]

    devices = DevicePool([make])
    devices.get_ready()
    assert tune(CONFIGS, devices).winner == CONFIGS[0]
    devices.close()
    assert [(each.ready > 0, each.closed) for each in made] == [(True, True)]


def test_configs_that_have_compiled_are_measured_by_one_request() -> None:
    one = Device({**TIMES, CONFIGS[4]: LaunchError("refused")})
    devices = DevicePool([lambda: one], at_once=5, clock=one.clock)
    outcome = tune(CONFIGS, devices, options=Options(finals_s=1e9))
    devices.close()
    assert one.batches == [CONFIGS[:5], CONFIGS[5:10], CONFIGS[10:]]
    assert outcome.winner == CONFIGS[0]
    assert [row.status for row in outcome.rows.values()].count(Status.OK) == len(CONFIGS) - 1
    assert outcome.rows[CONFIGS[4]].reason == "refused"


def test_what_waits_is_measured_while_the_next_config_compiles() -> None:
    one = Device(TIMES)
    devices = DevicePool([lambda: one], at_once=len(CONFIGS) + 1, clock=one.clock)
    tune(CONFIGS, devices, compiler=FakeCompiler(dawdles=True))
    devices.close()
    assert len(one.batches) > 1
    assert [each for batch in one.batches for each in batch] == CONFIGS


def test_what_a_pool_cannot_set_up_is_said_of_each_that_waited() -> None:
    def broken() -> Device:
        raise KernellabError("no memory")

    outcome = tune(CONFIGS[:3], DevicePool([broken], at_once=4))
    assert {row.reason for row in outcome.rows.values()} == {"no memory"}
