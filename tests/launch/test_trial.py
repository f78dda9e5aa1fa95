"""Trial launches before first launches, with a driver and a worker that stand in for those of a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from triton import knobs

import kernellab
from kernellab._triton.bound import BoundKernel, bound_copy
from kernellab._triton.drivers import OfflineDriver
from kernellab.compile.cache import Compiler
from kernellab.errors import CannotRun, LaunchError, OutOfBounds
from kernellab.launch.bound_launch import BoundLaunch, TrialResult
from kernellab.launch.runtime import Runtime
from kernellab.target import parse_target
from kernellab.workers.worker import Worker
from tests import samples

TARGET = parse_target("cuda:90")
N = 100


@dataclass
class FakeTrials:
    """Notes what is tried, and lets it pass with ``result``, or fail with ``error``."""

    events: list[str]
    enabled: bool = True
    result: TrialResult = field(default_factory=TrialResult)
    error: Exception | None = None
    launches: list[tuple[BoundLaunch, bool]] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)
    prepared: int = 0

    def start(self, device: int = 0, *, with_torch: bool = False) -> None:
        raise AssertionError("nothing asks for it")

    def wait_ready(self, device: int, *, with_torch: bool = False) -> None:
        raise AssertionError("nothing asks for it")

    def prepare(self) -> None:
        self.prepared += 1

    def close(self) -> None:
        """There is nothing to close."""

    def worker(self, device: int, *, with_torch: bool = False) -> Worker:
        raise AssertionError("nothing asks for it")

    def has_passed(self, digest: str) -> bool:
        return digest in self.passed

    def launch(
        self, launch: BoundLaunch, look_closer: Any, *, forced: bool = False, timeout_s: float | None = None
    ) -> TrialResult:
        self.events.append("trial")
        self.launches.append((launch, forced))
        if self.error is not None:
            raise self.error
        self.passed.add(launch.handle.hash)
        return self.result


@dataclass
class Session:
    """A kernel bound to a runtime that takes the machine for one with a GPU; ``events`` is what happened, in order."""

    kernel: Any
    trials: FakeTrials
    launches: Runtime
    events: list[str]

    def launch(self, grid: Any = (1,), block: int = 128) -> Any:
        x = torch.zeros(N)
        return self.kernel.run(x, x.clone(), x.clone(), N, grid=grid, warmup=False, BLOCK=block)


@pytest.fixture
def session(lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Session]:
    """A session in which nothing was compiled: what other tests compiled in the shared lab is not known here."""
    events: list[str] = []
    trials = FakeTrials(events)

    def interpret(*launch: Any, **more: Any) -> Any:
        raise AssertionError("nothing runs on the CPU")

    def launched(src: Any, arguments: Mapping[str, Any], grid: tuple[int, int, int]) -> None:
        events.append(f"launch {grid}")

    resolve, launch_compiled = BoundKernel.resolve, BoundKernel.launch_compiled

    def entered(self: Any, args: Any, meta: Any, warmup: bool = False) -> Any:
        if warmup:
            events.append("warmup")
        return resolve(self, args, meta, warmup)

    def run(self: Any, *given: Any) -> Any:
        events.append("run")
        return launch_compiled(self, *given)

    monkeypatch.setattr(BoundKernel, "resolve", entered)
    monkeypatch.setattr(BoundKernel, "launch_compiled", run)
    compiler = Compiler(lab.compiler.pool, tmp_path, lab.compiler.timeout_s)
    launches = Runtime(compiler, interpret, TARGET, trials=trials)
    driver = OfflineDriver(TARGET, launched)
    driver.activate()
    yield Session(bound_copy(samples.add_kernel, launches), trials, launches, events)
    driver.deactivate()


def test_triton_is_entered_once_after_the_trial_of_a_first_launch(session: Session) -> None:
    handle = session.launch()
    assert session.events == ["trial", "run", "launch (1, 1, 1)"]
    ((launch, _),) = session.trials.launches
    assert launch.handle is handle
    assert launch.grid == (1, 1, 1)
    assert set(launch.arguments) == {"x_ptr", "y_ptr", "out_ptr", "n", "BLOCK"}


def test_a_known_launch_is_triton_alone(session: Session) -> None:
    session.launch()
    session.events.clear()
    session.launch()
    assert session.events == ["run", "launch (1, 1, 1)"]


def test_every_launch_is_tried_where_bounds_are_checked(session: Session) -> None:
    session.trials.enabled = False
    session.launch()
    with session.launches.checking(nan=False, bounds=True):
        session.launch()
        session.launch()
        with (
            pytest.warns(UserWarning, match="launched no another through the lab"),
            session.launches.checking(nan=False, bounds=True, kernels=["another"]),
        ):
            session.launch()
    session.launch()
    assert (
        session.events
        == [*["run", "launch (1, 1, 1)"], *["trial", "run", "launch (1, 1, 1)"] * 2]
        + [
            "run",
            "launch (1, 1, 1)",
        ]
        * 2
    )
    assert all(forced for _, forced in session.trials.launches)


def test_every_specialization_is_tried(session: Session) -> None:
    first, second = session.launch(), session.launch(block=64)
    assert session.events == ["trial", "run", "launch (1, 1, 1)"] * 2
    assert first.hash != second.hash


def test_what_was_compiled_before_is_tried_at_its_first_launch(session: Session) -> None:
    x = torch.zeros(N)
    handle = session.kernel.warmup(x, x.clone(), x.clone(), N, BLOCK=128, grid=(1,))
    assert session.events == ["warmup"]
    assert session.launch() is handle
    assert session.events == ["warmup", "trial", "run", "launch (1, 1, 1)"]


def test_a_trial_on_the_original_memory_is_the_launch(session: Session) -> None:
    session.trials.result = TrialResult(has_launched=True)
    handle = session.launch()
    assert session.events == ["trial"]
    assert handle is session.trials.launches[0][0].handle


def test_a_failed_trial_is_no_launch_and_is_tried_again(session: Session) -> None:
    session.trials.error = OutOfBounds("It wrote out of bounds.")
    for _ in range(2):
        with pytest.raises(OutOfBounds):
            session.launch()
    assert session.events == ["trial", "trial"]


def test_an_empty_grid_is_not_tried_and_launches_nothing(session: Session) -> None:
    with pytest.warns(UserWarning, match="is empty; nothing was launched"):
        session.launch(grid=(0,))
    assert session.events == ["run"]
    session.launch()
    assert session.events == ["run", "trial", "run", "launch (1, 1, 1)"]


def test_a_grid_function_is_called_once(session: Session) -> None:
    seen: list[int] = []

    def grid(meta: Mapping[str, Any]) -> tuple[int]:
        seen.append(meta["BLOCK"])
        return (7,)

    session.launch(grid=grid)
    assert seen == [128]
    assert session.events == ["trial", "run", "launch (7, 1, 1)"]


def test_an_error_of_a_grid_function_comes_through_as_itself(session: Session) -> None:
    with pytest.raises(ZeroDivisionError):
        session.launch(grid=lambda meta: (1 // 0,))
    assert session.events == []


def test_wrong_arguments_are_told_before_triton_is_entered(session: Session) -> None:
    with pytest.raises(LaunchError, match="without n"):
        session.kernel.run(torch.zeros(N), torch.zeros(N), torch.zeros(N), grid=(1,), warmup=False, BLOCK=128)
    assert session.events == []


@pytest.mark.slow
def test_what_exceeds_the_device_is_refused_before_the_trial(session: Session) -> None:
    greedy = bound_copy(samples.greedy, session.launches)
    x, out = torch.ones(2**18, dtype=torch.float16), torch.zeros(2**18)
    with pytest.raises(CannotRun, match="shared memory"):
        greedy.run(x, out, N=128, M=1024, num_warps=8, grid=(1,), warmup=False)
    assert session.events == []


def test_nothing_is_tried_where_isolation_is_left_out(session: Session) -> None:
    session.trials.enabled = False
    session.launch()
    assert session.events == ["run", "launch (1, 1, 1)"]


def test_hooks_of_the_kernel_are_called_once_per_launch_and_before_its_trial(session: Session) -> None:
    seen: list[int] = []
    session.kernel.add_pre_run_hook(lambda *args, **meta: seen.append(len(session.events)))
    session.launch()
    assert session.events == ["trial", "run", "launch (1, 1, 1)"]
    assert seen == [0]
    session.launch()
    assert seen == [0, 3]
    assert len(session.kernel.pre_run_hooks) == 1


def test_a_hook_of_triton_that_takes_a_kernel_over_is_asked_once(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def take_over(*, repr: str, **given: Any) -> bool:
        asked.append(repr)
        return True

    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", take_over)
    assert session.launch() is None
    assert len(asked) == 1
    assert session.events == []


def test_a_recorded_launch_is_tried_first_as_well(session: Session) -> None:
    session.trials.result = TrialResult(("a note",), has_launched=True, output="said")
    with session.launches.recording() as recorder:
        session.launch()
    (record,) = recorder.records.values()
    assert session.events == ["trial"]
    assert record.run is not None
    assert (record.run.notes, record.run.output, record.run.grid) == (("a note",), "said", (1, 1, 1))


def test_the_worker_gets_ready_while_a_kernel_compiles_that_is_new(session: Session) -> None:
    session.launch(block=2048)
    assert session.trials.prepared == 1
    session.launch(block=2048)
    assert session.trials.prepared == 1
