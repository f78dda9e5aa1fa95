"""What a bench is asked and how its answers become rows, without a GPU."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernellab.errors import (
    KernellabError,
    LaunchError,
    OutOfBounds,
    RunError,
    UsageError,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from kernellab.gpu.driver import IpcHandle
from kernellab.gpu.ipc import IpcExport, Memory
from kernellab.gpu.redzones import Damage
from kernellab.gpu.worker import WarmUp, warm_up
from kernellab.ir.effects import Effects, Site, UnknownEffect
from kernellab.ir.graph import Location
from kernellab.ir.operations import Access
from kernellab.launch.arguments import CannotExport, DescriptorSpec, ScalarSpec, TensorSpec, TupleSpec, tensors_of
from kernellab.timing.bench import BenchOptions, require_good
from kernellab.timing.bench_jobs import BenchJob, LaunchTimes, Readiness, Setup
from kernellab.timing.bench_setup import CommonMemory, needs_torch
from kernellab.timing.gpu_bench import GpuBench, _launches_on
from kernellab.timing.hooks import HookCalls
from kernellab.timing.launches import accessed_arguments
from kernellab.timing.transports import WorkerTransport
from kernellab.workers.forks_and_interrupts import in_background
from kernellab.workers.worker import Job
from tests.tune.fakes import candidate_of, config

HERE = Location(None, None)
VIEW = TensorSpec(0, 0, (4,), (1,), "float32", 4)
OTHER = TensorSpec(1, 0, (4,), (1,), "float32", 4)
LAUNCH: Any = SimpleNamespace(
    arguments={}, grid=(1, 1, 1), has_hooks=False, job=SimpleNamespace(signature=(), constants=())
)
CANDIDATE = replace(candidate_of(config(64)), launch=LAUNCH)


def site(argument: str, kind: Access) -> Site:
    return Site(argument, kind, "tt.store", 0, HERE, masked=False, conditional=False)


def test_an_atomic_reads_and_writes() -> None:
    effects = Effects(("x", "y"), (site("x", Access.READ), site("y", Access.ATOMIC)))
    assert accessed_arguments(effects) == (frozenset({"y"}), frozenset({"x", "y"}))


def test_an_unknown_effect_touches_everything() -> None:
    unknown = UnknownEffect(None, "tt.mystery", 0, HERE, "not in the tables")
    everything = frozenset({"x", "y"})
    assert accessed_arguments(Effects(("x", "y"), (), (unknown,))) == (everything, everything)


def test_views_have_the_names_that_effects_give_them() -> None:
    descriptor = DescriptorSpec(OTHER, (4,), (1,), (4,), "zero")
    assert tensors_of("x", VIEW) == [("x", VIEW)]
    assert tensors_of("d", descriptor) == [("d", OTHER)]
    assert tensors_of("t", TupleSpec((ScalarSpec(1), VIEW))) == [("t[1]", VIEW)]
    assert tensors_of("n", ScalarSpec(3)) == []


def test_a_fault_names_kernel_and_config() -> None:
    fault = LaunchTimes(fault="CUDA error: an illegal memory access was encountered\nmore")
    with pytest.raises(RunError, match=r"copy \(BLOCK=64.*\) failed on the GPU: an illegal memory access"):
        require_good(fault, CANDIDATE)


def test_a_refused_launch_is_no_fault() -> None:
    with pytest.raises(LaunchError, match="was refused: out of resource"):
        require_good(LaunchTimes(refusal="out of resource: threads"), CANDIDATE)


def test_a_good_answer_passes() -> None:
    require_good(LaunchTimes((1.0,)), CANDIDATE)


def test_a_write_out_of_bounds_names_the_argument_and_how_far() -> None:
    effects = Effects(("x", "y"), (site("y", Access.WRITE),))
    candidate = candidate_of(config(64), effects=effects)
    damaged = LaunchTimes(damages=(Damage(after=1, before=None, past_end_bytes=0, ahead_bytes=99, count=8),))
    with pytest.raises(OutOfBounds, match=r"copy \(BLOCK=64.*\) wrote out of bounds: 8 bytes beyond the end of y"):
        require_good(damaged, candidate, {0: ["x"], 1: ["y"]})


@dataclass(slots=True)
class FakeWorker:
    """A GPU worker that fails as told, by handler; ``held`` keeps it from answering until it is set."""

    errors: dict[str, Exception] = field(default_factory=dict)
    asked: list[Job[Any, Any]] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    pid: int | None = 1
    starts: list[int] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)

    def run(self, job: Job[Any, Any], timeout_s: float) -> object:
        self.asked.append(job)
        handler = type(job.payload).__name__ if isinstance(job.payload, BenchJob) else job.handler.__name__
        if handler == "get_ready" and threading.current_thread() is not threading.main_thread():
            self.held.wait(timeout_s)
        if handler in self.errors:
            raise self.errors[handler]
        return self.answers.get(handler)

    def prepare(self, job: Job[Any, Any], timeout_s: float) -> None:
        self.run(job, timeout_s)

    def close(self) -> None:
        self.pid = None


def worker_bench(worker: FakeWorker) -> GpuBench:
    trials: Any = SimpleNamespace(
        worker=lambda device, with_torch: worker,
        start=lambda device, with_torch: worker.starts.append(device),
        wait_ready=lambda device, with_torch, dtypes: worker.run(Job(warm_up, WarmUp(device, b""), "the worker"), 1.0),
        run_in_background=in_background,
    )
    options = BenchOptions("copy", 1.0, dtypes=(("float32", 4),), device=0)
    return GpuBench(options, WorkerTransport(options, trials))


def test_what_only_torch_can_map_or_compare_is_told_before_anything_is_timed() -> None:
    shared, own = (
        Memory(handle, 16, 4096, is_mutated=True) for handle in ((torch.empty, ()), IpcHandle(b"\0" * 64, 0))
    )
    plain = Setup("test", 0, (own, Memory(None, 0, 0, False)), frozenset(), (VIEW,))
    few_bits = replace(VIEW, dtype="float8_e5m2", itemsize=1)
    assert not needs_torch(plain)
    assert needs_torch(replace(plain, memories=(own, shared)))
    assert needs_torch(replace(plain, outputs=(VIEW, few_bits)))
    assert not needs_torch(replace(plain, outputs=(VIEW, few_bits), left_out=frozenset({1})))


@pytest.mark.parametrize("stays", [False, True])
def test_memory_that_only_torch_can_map_is_timed_where_torch_is_imported_already(
    monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    monkeypatch.setattr("kernellab.gpu.ipc.IpcExport._check", lambda self, name, tensor: None)  # these lie on the CPU
    monkeypatch.setattr("kernellab.gpu.ipc.IpcExport._handle_of_torch", lambda self, index, storage: (torch.empty, ()))
    monkeypatch.setattr("torch.cuda.synchronize", lambda device: None)
    asked: list[tuple[str, bool, bool]] = []

    def worker(device: int, with_torch: bool) -> Any:
        def run(job: Job[Any, Any], timeout_s: float) -> list[LaunchTimes]:
            asked.append((job.handler.__name__, with_torch, getattr(job.payload, "needs_torch", False)))
            return []

        return SimpleNamespace(pid=1, run=run, prepare=run)

    trials: Any = SimpleNamespace(worker=worker, wait_ready=lambda device, with_torch, dtypes: None)
    launch: Any = SimpleNamespace(**{**vars(LAUNCH), "arguments": {"x": torch.zeros(4)}})
    options = BenchOptions("copy", 1.0, device=0, placed=lambda implementation: launch)
    bench = GpuBench(options, WorkerTransport(options, trials, stays))
    bench.interleave([CANDIDATE], 3)
    bench.close()
    elsewhere = not stays
    assert asked == [
        ("get_ready", False, False),
        ("get_ready", elsewhere, True),
        ("run", elsewhere, False),
        ("close", elsewhere, False),
    ]


def test_no_two_setups_have_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.synchronize", lambda device: None)
    names = set()
    for _ in range(20):
        bench = worker_bench(FakeWorker())
        bench._open_setup()
        assert bench._setup is not None
        names.add(bench._setup.name)
    assert len(names) == 20


def its_thread() -> threading.Thread:
    return next(thread for thread in threading.enumerate() if thread.name == "kernellab-bench")


@pytest.mark.parametrize("error", [WorkerDied("gone"), WorkerTimeout("slow"), OSError("handle is closed"), None])
def test_getting_ready_waits_for_nothing_and_fails_in_silence(error: Exception | None) -> None:
    worker = FakeWorker({} if error is None else {"get_ready": error})
    worker_bench(worker).get_ready()
    thread = its_thread()
    worker.held.set()
    thread.join(10.0)
    assert not thread.is_alive()
    assert [job.payload for job in worker.asked[1:]] == [Readiness(0, (("float32", 4),))]


@pytest.mark.parametrize("error", [WorkerDied("gone"), WorkerTimeout("slow")])
def test_a_worker_that_does_not_start_is_the_fault_of_no_config(error: WorkerError) -> None:
    with pytest.raises(WorkerError, match=error.message) as raised:
        worker_bench(FakeWorker({"warm_up": error})).measure(CANDIDATE, 4, None)
    assert type(raised.value) is WorkerError


@pytest.mark.parametrize("pid", [1, None])
def test_nobody_waits_for_a_new_worker_after_an_interrupt(pid: int | None) -> None:
    worker = FakeWorker(pid=pid)
    bench = worker_bench(worker)
    bench._setup = Setup("one", 0, (), frozenset(), ())
    bench.close()
    assert (len(worker.asked), worker.starts) == ((1, []) if pid else (0, [0]))


@pytest.mark.parametrize("error", [WorkerDied("gone"), WorkerTimeout("slow")])
def test_after_a_lost_final_the_next_process_is_awaited_and_set_up_anew(error: Exception) -> None:
    worker = FakeWorker({"RoundsJob": error})
    bench = worker_bench(worker)
    bench._setup = Setup("one", 0, (), frozenset(), ())
    with pytest.raises(type(error)):
        bench.interleave([CANDIDATE], 12)
    assert bench._setup is None
    assert [job.handler.__name__ for job in worker.asked] == ["run", "warm_up", "get_ready"]
    bench.close()
    assert len(worker.asked) == 3  # a process that holds nothing is not asked to give it back


def test_a_device_without_memory_for_the_arguments_is_the_fault_of_no_config(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(launches: Any, device: int) -> Any:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    monkeypatch.setattr("kernellab.timing.gpu_bench.on_device", full)
    launches: Any = None
    bench = worker_bench(FakeWorker())
    bench.options = replace(bench.options, placed=_launches_on(launches, 1))
    for _ in range(2):
        with pytest.raises(UsageError, match=r"CUDA out of memory\. Tried to allocate 2.00 GiB; free memory") as raised:
            bench.measure(CANDIDATE, 3, None)
        assert not isinstance(raised.value, LaunchError)  # which would be the row of a config


def test_launches_of_kernels_with_arguments_of_their_own_share_one_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernellab.gpu.ipc.IpcExport._check", lambda self, name, tensor: None)  # these lie on the CPU
    x, y = torch.zeros(4), torch.zeros(4)
    launches: list[Any] = [
        SimpleNamespace(arguments=arguments)
        for arguments in ({"x": x, "out": y}, {"out": y, "x": x}, {"out": y, "bias": torch.zeros(2)}, {"into": x})
    ]
    memory, candidate = (
        CommonMemory(),
        candidate_of(config(64), effects=Effects(("x", "into"), (site("into", Access.WRITE),))),
    )
    taken = [memory.take(candidate, each, 0) for each in (*launches, *launches)]
    assert taken == [True, False, True, True] + [False] * 4
    found = [{name: spec.storage for name, spec in memory.specs(each, 0)} for each in launches]  # type: ignore[union-attr]
    assert found == [{"x": 0, "out": 1}, {"out": 1, "x": 0}, {"out": 1, "bias": 2}, {"into": 0}]
    exported, values = (IpcExport(0, mutated) for mutated in (memory.mutated, frozenset[str]()))
    setup = memory.setup(BenchOptions("copy", 1.0), exported, values, is_here=True)
    assert [each.is_mutated for each in setup.memories] == [True, False, False]  # what one calls x, another writes
    assert [view.storage for view in setup.outputs] == [0]


def test_named_outputs_alone_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernellab.gpu.ipc.IpcExport._check", lambda self, name, tensor: None)  # these lie on the CPU
    arguments = {"x": torch.zeros(4), "dx": torch.zeros(4), "scratch": torch.zeros(8)}
    launch: Any = SimpleNamespace(arguments=arguments)
    memory = CommonMemory()
    effects = Effects(tuple(arguments), (site("dx", Access.WRITE), site("scratch", Access.WRITE)))
    memory.take(candidate_of(config(64), effects=effects), launch, 0)
    found = []
    for outputs in (None, frozenset({"dx"})):
        exported, values = (IpcExport(0, mutated) for mutated in (memory.mutated, frozenset[str]()))
        options = BenchOptions("copy", 1.0, outputs=outputs)
        setup = memory.setup(options, exported, values, is_here=True)
        found.append((setup.names, setup.left_out))
    assert found == [(("dx", "scratch"), frozenset()), (("dx", "scratch"), frozenset({1}))]


def test_a_worker_that_is_lost_while_outputs_are_compared_is_set_up_anew() -> None:
    worker = FakeWorker({"CompareJob": WorkerDied("gone")})
    bench = worker_bench(worker)
    bench._setup = Setup("one", 0, (), frozenset(), ())
    with pytest.raises(WorkerDied):
        bench.compare(CANDIDATE, [CANDIDATE])
    assert bench._setup is None


@pytest.mark.parametrize(
    ("answer", "singly"),
    [
        ([LaunchTimes((1.0,)), LaunchTimes((1.0,)), LaunchTimes((1.0,))], 0),
        ([LaunchTimes((1.0,)), LaunchTimes(refusal="too many threads"), LaunchTimes((1.0,))], 0),
        ([LaunchTimes((1.0,)), LaunchTimes(fault="illegal memory access")], 1),
        (WorkerTimeout("slow"), 3),
        (WorkerDied("gone"), 3),
    ],
)
def test_what_a_batch_gives_no_answer_for_is_measured_by_itself(
    monkeypatch: pytest.MonkeyPatch, answer: Any, singly: int
) -> None:
    monkeypatch.setattr("torch.cuda.synchronize", lambda device: None)
    is_error = isinstance(answer, Exception)

    def measured(job: Job[Any, Any], timeout_s: float) -> Any:
        asked = getattr(job.payload, "kernels", ())
        if len(asked) == 3 and is_error:
            raise answer
        counts.append(len(asked))
        return [LaunchTimes((2.0,))] if len(asked) == 1 else answer

    counts: list[int] = []
    worker: Any = SimpleNamespace(pid=1, run=measured, prepare=measured, close=lambda: None)
    bench: Any = worker_bench(worker)
    bench.transport.trials.record_passed_launch = lambda *launch: None
    found = bench.measure_all([CANDIDATE] * 3, 4, None, 1.25)
    assert counts.count(1) == singly
    wanted: list[Any] = [timing.times_ms or LaunchError for timing in ([] if is_error else answer)]
    for each, want in zip(found, wanted + [(2.0,)] * singly, strict=True):
        assert isinstance(each, KernellabError) if want is LaunchError else each.times_ms == want


@pytest.mark.parametrize(
    ("timing", "has_hooks", "told"),
    [
        (LaunchTimes((1.0,)), False, [("digest", 0, {}, (1, 1, 1))]),
        (LaunchTimes(group=1, difference="out differs"), False, [("digest", 0, {}, (1, 1, 1))]),
        (LaunchTimes((1.0,)), True, []),
        (LaunchTimes(refusal="too many threads"), False, []),
        (LaunchTimes(damages=(Damage(None, None, 0, 99, 8),)), False, []),
    ],
)
def test_trials_are_told_of_launches_that_went_well(timing: LaunchTimes, has_hooks: bool, told: list[Any]) -> None:
    found: list[Any] = []
    trials: Any = SimpleNamespace(
        worker=lambda device, with_torch: SimpleNamespace(run=lambda job, timeout_s: [timing], pid=1),
        record_passed_launch=lambda *launch: found.append(launch),
    )
    launch: Any = SimpleNamespace(**{**vars(LAUNCH), "has_hooks": has_hooks, "hooks": HookCalls((), None, {})})
    options = BenchOptions("copy", 1.0, device=0, has_hooks=has_hooks)
    bench = GpuBench(options, WorkerTransport(options, trials), _setup=Setup("bench", 0, (), frozenset(), ()))
    bench._common.arguments.append({})
    with suppress(KernellabError):
        bench.measure(replace(CANDIDATE, launch=launch), 4, None)
    assert found == told


def test_a_bench_that_lives_long_holds_few_launches() -> None:
    common = CommonMemory()
    launches: list[Any] = [SimpleNamespace(arguments={"n": number}) for number in range(300)]
    assert [common.specs(launch, 0)[0][1] for launch in launches] == [ScalarSpec(number) for number in range(300)]
    assert len(common._specs) < 100
    assert common.specs(launches[0], 0)[0][1] == ScalarSpec(0)


@dataclass(slots=True)
class FakeTransport:
    """A process that answers all jobs alike, or refuses them with ``error``."""

    is_here: bool
    answer: LaunchTimes = field(default_factory=lambda: LaunchTimes((1.0,)))
    error: Exception | None = None
    device: int = 0
    log: list[str] = field(default_factory=list)

    def get_ready(self) -> None:
        self.log.append("get_ready")

    def start(self) -> None:
        self.log.append("start")

    def hooks(self, launch: Any) -> Any:
        return launch.hooks

    def open(self, setup: Setup, exported: Any, values: Any) -> None:
        self.log.append("open")

    def run(self, job: BenchJob, subject: str, timeout_s: float) -> list[LaunchTimes]:
        self.log.append(subject)
        if self.error is not None:
            raise self.error
        return [self.answer]

    def record_good(self, kernel: Any, launch: Any) -> None:
        self.log.append("good")

    def release(self) -> None:
        self.log.append("release")

    def replace(self) -> None:
        self.log.append("replace")


NAME = CANDIDATE.name


@pytest.mark.parametrize("there", [FakeTransport(False, LaunchTimes(bad_hook="ModuleNotFoundError")), None])
def test_what_the_worker_cannot_reach_is_timed_here_from_then_on(there: FakeTransport | None) -> None:
    there = there or FakeTransport(False, error=CannotExport("x is not a tensor"))
    here = FakeTransport(True)
    bench = GpuBench(BenchOptions("copy", 1.0), there, instead=here)
    for _ in range(2):
        assert bench.measure(CANDIDATE, 4, None).times_ms == (1.0,)
    assert there.log == ["start", "open", NAME, "release"]
    assert here.log == ["start", "open", NAME, "good", NAME, "good"]
    assert [note.split(":")[0] for note in bench.options.notes] == ["timed in the notebook's own process"]


def test_without_another_process_what_cannot_be_reached_is_said() -> None:
    bench = GpuBench(BenchOptions("copy", 1.0), FakeTransport(False, LaunchTimes(no_room="no room")))
    with pytest.raises(CannotExport, match="no room"):
        bench.measure(CANDIDATE, 4, None)
    bench = GpuBench(BenchOptions("copy", 1.0), FakeTransport(True, LaunchTimes(no_room="no room")))
    with pytest.raises(KernellabError, match="no room"):
        bench.measure(CANDIDATE, 4, None)


def test_another_device_than_the_current_one_cannot_be_timed_here() -> None:
    there = FakeTransport(False, error=CannotExport("x is not a tensor"), device=1)
    with pytest.raises(LaunchError, match="cannot be timed on device 1: x is not a tensor"):
        GpuBench(BenchOptions("copy", 1.0), there, instead=FakeTransport(True)).measure(CANDIDATE, 4, None)


def test_memory_that_was_damaged_is_taken_anew() -> None:
    here = FakeTransport(True, LaunchTimes(damages=(Damage(None, None, 0, 99, 8),)))
    bench = GpuBench(BenchOptions("copy", 1.0), here)
    for _ in range(2):
        with pytest.raises(OutOfBounds):
            bench.measure(CANDIDATE, 4, None)
    assert here.log == ["start", "open", NAME, "release"] * 2
