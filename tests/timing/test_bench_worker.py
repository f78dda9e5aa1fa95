"""What a bench launches and how often, on a device that is played."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import pytest
import torch

from kernellab.checking.comparison import OutputDifference
from kernellab.gpu.ipc import Memory
from kernellab.launch.arguments import ScalarSpec, TensorSpec
from kernellab.timing.bench_jobs import (
    NOT_COMPARED,
    BenchKernel,
    CompareJob,
    LaunchTimes,
    Manner,
    MeasureJob,
    RoundsJob,
    Setup,
)
from kernellab.timing.bench_memory import BenchMemory, TooLarge
from kernellab.timing.bench_worker import LATE, Launcher, OnlyBench, Workbench
from kernellab.timing.hooks import HookCalls
from tests.timing.test_stopwatch import Device

SETUP = Setup("test", 0, (Memory(None, 16, 0, True),), frozenset({0}), (TensorSpec(0, 0, (4,), (1,), "float32", 4),))
KERNEL = BenchKernel((), "kernel", (), (), (1, 1, 1), ())


@dataclass(slots=True)
class Gpu(Device):
    """A device on which a kernel takes ``times_ms``, one after the other, and then the last one again."""

    times_ms: list[float] = field(default_factory=lambda: [1.0])
    host_s: float = 0.0
    fault: str = ""

    def kernel(self) -> None:
        time_ms = self.times_ms[0]
        del self.times_ms[: len(self.times_ms) > 1]
        self.work("kernel", time_ms / 1e3)

    def synchronize(self) -> None:
        if self.fault:
            raise RuntimeError(self.fault)
        Device.synchronize(self)

    def bench(self) -> Workbench:
        held = torch.arange(4.0).view(torch.uint8)
        memory = BenchMemory(SETUP, [held.clone()], {0: held}, free_bytes=lambda: 1 << 20)
        return Workbench(memory, watch=self.watch(), _launchers={KERNEL.key: self.kernel})

    @property
    def launches(self) -> int:
        return self.log.count("kernel")


def job(runs: int = 4, limit_ms: float | None = None, manner: Manner | None = None) -> MeasureJob:
    return MeasureJob(SETUP, (KERNEL,), runs, limit_ms, manner=manner or Manner())


def test_a_config_is_launched_once_to_be_compared_and_as_often_as_asked_to_be_timed() -> None:
    gpu = Gpu(times_ms=[9.0, 1.0, 2.0, 3.0, 4.0])
    timing = gpu.bench().measure(job(runs=4, limit_ms=5.0))[0]
    assert timing.times_ms == pytest.approx((1.0, 2.0, 3.0, 4.0))
    assert (timing.group, timing.note) == (0, "")


def test_a_clear_loser_is_timed_twice() -> None:
    gpu = Gpu(times_ms=[1.0, 3.0, 4.0, 1.0])
    assert gpu.bench().measure(job(limit_ms=2.0))[0].times_ms == pytest.approx((3.0, 4.0))
    assert gpu.launches == 3


@pytest.mark.parametrize("first", [(9.0, 1.0), (1.0, 9.0)])
def test_one_slow_launch_of_two_makes_no_loser(first: tuple[float, float]) -> None:
    timing = Gpu(times_ms=[1.0, *first, 1.0]).bench().measure(job(limit_ms=2.0))[0]
    assert timing.times_ms == pytest.approx((*first, 1.0, 1.0))


def test_one_run_is_one_launch_that_is_timed() -> None:
    gpu = Gpu()
    assert len(gpu.bench().measure(job(runs=1))[0].times_ms) == 1
    assert gpu.launches == 2


def test_what_warms_up_for_an_autotuner_is_not_counted() -> None:
    gpu = Gpu(times_ms=[1.0, 1.0, 1.0, 7.0, 7.0, 7.0, 2.0])
    timing = gpu.bench().measure(job(manner=Manner(warmup_ms=3.0, rep_ms=6.0)))[0]
    assert timing.times_ms == pytest.approx((1.0, 1.0, 2.0, 2.0, 2.0, 2.0))


def test_times_with_a_wait_for_the_host_are_told_of() -> None:
    gpu = Gpu()
    bench = gpu.bench()

    def waiting() -> None:
        gpu.synchronize()
        gpu.kernel()

    bench._launchers[KERNEL.key] = waiting
    assert bench.measure(job())[0].note == LATE
    assert [timing.note for timing in bench.rounds(RoundsJob(SETUP, (KERNEL,), 3))] == [LATE]
    bench._launchers[KERNEL.key] = gpu.kernel
    assert bench.measure(job())[0].note == ""
    assert [timing.note for timing in bench.rounds(RoundsJob(SETUP, (KERNEL,), 3))] == [""]


def test_hooks_are_called_around_each_launch_also_around_those_that_were_late() -> None:
    gpu = Gpu()
    bench = gpu.bench()
    hosts = iter([10e-6, 1.0])

    def before(named: dict[str, object]) -> None:
        gpu.log.append("before")

    def after(named: dict[str, object], exception: Exception | None) -> None:
        gpu.log.append("after")

    def hesitant() -> None:
        gpu.host_s += next(hosts, 0.0)
        gpu.kernel()

    bench._launchers[KERNEL.key] = hesitant
    hooked = replace(KERNEL, hooks=HookCalls((before,), after, {}))
    assert len(bench.measure(replace(job(runs=4), kernels=(hooked,)))[0].times_ms) == 4
    assert [each for each in gpu.log if each != "flush"] == ["before", "kernel", "after"] * 6


def test_a_refused_launch_is_told_from_one_after_which_the_device_is_gone() -> None:
    gpu = Gpu()
    bench = gpu.bench()

    def refused() -> None:
        raise ValueError("too many threads")

    bench._launchers[KERNEL.key] = refused
    assert bench.measure(job())[0].refusal == "too many threads"
    assert bench.rounds(RoundsJob(SETUP, (KERNEL, KERNEL), 2))[0].refusal == "too many threads"
    gpu.fault = "an illegal memory access was encountered"
    assert bench.measure(job())[0].fault == gpu.fault


@dataclass(slots=True)
class Writer:
    """Kernels that write what they are told, the n-th launch the n-th value, and then the last one again."""

    gpu: Gpu = field(default_factory=Gpu)

    def bench(self, **values: list[float]) -> Workbench:
        bench = self.gpu.bench()
        bench.memory.setup = replace(SETUP, names=("out",))
        for name, told in values.items():
            bench._launchers[named(name).key] = partial(self._write, bench, told)
        return bench

    def _write(self, bench: Workbench, told: list[float]) -> None:
        bench.memory.tensors[0].view(torch.float32).fill_(told[0])
        del told[: len(told) > 1]
        self.gpu.kernel()


def named(name: str) -> BenchKernel:
    return replace(KERNEL, digest=name)


def test_outputs_of_kernels_are_compared_with_those_of_one_by_a_launch_each() -> None:
    writer = Writer()
    bench = writer.bench(a=[1.0], b=[1.0], c=[3.0])
    found = bench.compare(CompareJob(SETUP, named("a"), (named("b"), named("c"), named("a"))))
    assert [timing.differing for timing in found] == [(), (OutputDifference("out", 4, 4, 2.0),), ()]
    assert writer.gpu.launches == 4


def test_groups_that_a_comparison_dropped_are_made_again_for_the_next_measurement() -> None:
    bench = Writer().bench(a=[1.0], b=[3.0], c=[3.0])
    groups = [bench.measure(MeasureJob(SETUP, (named(name),), 1, None))[0].group for name in "ab"]
    bench.compare(CompareJob(SETUP, named("b"), (named("a"),)))
    assert bench.memory.groups == []
    last = bench.measure(MeasureJob(SETUP, (named("c"),), 1, None, (named("a"), named("b"))))[0]
    assert [*groups, last.group] == [0, 1, 1]


def test_what_does_not_repeat_itself_or_finds_no_room_is_not_compared() -> None:
    bench = Writer().bench(a=[1.0], b=[3.0, 4.0, 5.0])
    groups = [bench.measure(MeasureJob(SETUP, (named(name),), 1, None))[0].group for name in "ab"]
    assert groups == [0, NOT_COMPARED]
    assert "two launches of one config differ" in bench.note
    full = Writer().bench(a=[1.0])
    full.memory.free_bytes = lambda: 0
    assert full.measure(MeasureJob(SETUP, (named("a"),), 1, None))[0].group == NOT_COMPARED
    assert full.compare(CompareJob(SETUP, named("a"), (named("a"),)))[0].no_room


def test_a_fault_while_outputs_are_compared_is_the_last_answer() -> None:
    gpu = Gpu(fault="CUDA error: an illegal memory access")
    (answer,) = gpu.bench().compare(CompareJob(SETUP, KERNEL, (KERNEL,)))
    assert "illegal memory access" in answer.fault


def test_configs_that_differ_in_a_number_that_is_no_constexpr_are_launched_each_with_its_own() -> None:
    gpu = Gpu()
    bench = gpu.bench()
    splits = [replace(KERNEL, arguments=(("splits", ScalarSpec(count)),)) for count in (1, 2)]
    for each in splits:
        bench._launchers[each.key] = partial(gpu.log.append, each)  # type: ignore[arg-type]
    bench.rounds(RoundsJob(SETUP, tuple(splits), 1))
    assert [each for each in gpu.log if each != "flush"] == splits


def test_a_bench_of_many_configs_holds_the_latest_launchers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def launcher(bench: Workbench, kernel: BenchKernel) -> Launcher:
        made.append(kernel.digest)
        return bench_gpu.kernel

    bench_gpu = Gpu()
    bench = bench_gpu.bench()
    monkeypatch.setattr(Workbench, "_new_launcher", launcher)
    for number in range(1000):
        bench.rounds(RoundsJob(SETUP, (named("again"), named(str(number))), 1))
    assert len(bench._launchers) < 100
    assert made == ["again", *map(str, range(1000))]  # what is launched again and again is made once


def test_of_a_batch_the_best_so_far_bounds_the_next_and_a_fault_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    answers = [LaunchTimes((4.0,)), LaunchTimes((2.0,)), LaunchTimes(refusal="no"), LaunchTimes(fault="gone")]

    def measured(bench: Workbench, job: MeasureJob, kernel: BenchKernel, limit_ms: float) -> LaunchTimes:
        asked.append(limit_ms)
        return answers[len(asked) - 1]

    monkeypatch.setattr(Workbench, "_measure_kernel", measured)
    bench, batch = Gpu().bench(), replace(job(limit_ms=9.0), kernels=(KERNEL,) * 6, loser_factor=1.5)
    assert bench.measure(batch) == answers
    assert asked == [9.0, 6.0, 3.0, 3.0]
    asked.clear()
    assert len(bench.measure(replace(batch, stop_above_ms=None))) == 4
    assert asked == [inf, 6.0, 3.0, 3.0]


def test_a_bench_gives_its_memory_back_before_the_next_one_takes_any() -> None:
    bench = OnlyBench(lambda setup: Workbench(BenchMemory(setup, [], {}), watch=Gpu().watch()))
    first, held = bench.of(SETUP), []

    def made(setup: Setup) -> Workbench:
        held.append(bench._bench)
        raise TooLarge("no room")

    assert bench.of(replace(SETUP)) is first
    bench.make = made
    for _ in range(2):
        with pytest.raises(TooLarge):
            bench.of(replace(SETUP, name="another"))
    assert held == [None, None]


def test_a_closed_bench_leaves_nothing_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied: list[bool] = []
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: emptied.append(True))
    for is_initialized in (False, True):
        monkeypatch.setattr("torch.cuda.is_initialized", lambda answer=is_initialized: answer)
        OnlyBench(lambda setup: Gpu().bench()).close()
        assert emptied == [True] * is_initialized
