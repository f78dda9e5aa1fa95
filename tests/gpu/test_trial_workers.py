"""Which worker a trial goes to, and what becomes of that worker, without a GPU."""

from __future__ import annotations

import importlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton

import kernellab
from kernellab._triton.device_binaries import request_of
from kernellab.errors import UsageError
from kernellab.gpu.device_view import kernels_for
from kernellab.gpu.driver import IpcHandle
from kernellab.gpu.ipc import BinaryLaunch, Memory, Tables
from kernellab.gpu.trial import GpuTrials
from kernellab.gpu.worker import Ending, Placing, TrialJob, TrialOutcome, WarmUp, require_same_device
from kernellab.target import has_cuda_context, parse_target
from kernellab.workers.forks_and_interrupts import Interrupted, Stop, in_background
from kernellab.workers.worker import Job, Pool
from tests.gpu.test_ipc import launch_on
from tests.labs import shared_lab

OWN, OF_TORCH = (Memory(handle, 16, 4096, False) for handle in (IpcHandle(b"\0" * 64, 0), (torch.empty, ())))


@dataclass(slots=True)
class FakeWorker:
    """A GPU worker in which trials end as told."""

    ending: Ending
    asked: list[str] = field(default_factory=list)

    def run(self, job: Job[Any, Any], timeout_s: float) -> TrialOutcome:
        self.asked.append(job.handler.__name__)
        return TrialOutcome(self.ending, Placing.COPIES)

    def prepare(self, job: Job[Any, None], timeout_s: float) -> None:
        self.asked.append(job.handler.__name__)

    def close(self) -> None:
        self.asked.append("close")


@dataclass(slots=True)
class FakeServer:
    """A server of forks that notes when it is closed."""

    told: list[str]

    def close(self) -> None:
        self.told.append("closed")


@pytest.mark.parametrize(("memory", "with_torch"), [(OWN, False), (OF_TORCH, True)], ids=["driver", "torch"])
@pytest.mark.parametrize("ending", [Ending.CLEAN, Ending.FAULT])
def test_what_only_torch_can_map_is_tried_where_torch_is_imported_already(
    lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch, memory: Memory, with_torch: bool, ending: Ending
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr("kernellab.gpu.trial.uuid_of", lambda device: b"")
    started: list[bool] = []
    monkeypatch.setattr(GpuTrials, "start", lambda self, device, *, with_torch=False: started.append(with_torch))
    workers: dict[bool, Any] = {each: FakeWorker(ending) for each in (False, True)}
    trials = GpuTrials(10.0, _servers=dict(workers), _workers={(0, each): found for each, found in workers.items()})
    job = TrialJob("add_kernel", BinaryLaunch((), "abc", (), (), (3, 1, 1), ()), 0, (memory,), Tables())
    trials._run_trial(launch_on(lab), job, None)
    is_lost = ending is Ending.FAULT
    assert workers.pop(with_torch).asked == ["warm_up", "load_basic_kernels", "try_launch", *["close"] * is_lost]
    assert [each.asked for each in workers.values()] == [[]]
    assert started == [with_torch] * is_lost


@pytest.mark.parametrize("is_kept", [False, True])
def test_kernels_of_the_worker_are_compiled_once_by_compile_workers_before_it_loads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr("kernellab.gpu.trial.uuid_of", lambda device: b"")
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    for variant in kernels_for(["float16"]) if is_kept else ():
        file = request_of(variant, (9, 0)).file
        file.parent.mkdir(exist_ok=True)
        file.touch()
    steps: list[str] = []

    def run(job: Job[Any, Any], timeout_s: float, stop: Stop) -> None:
        steps.append(job.payload.variant.name)

    pool: Any = SimpleNamespace(run=run, run_in_background=lambda step, stop: in_background(step))
    worker: Any = SimpleNamespace(prepare=lambda job, timeout_s: steps.append(job.handler.__name__))
    trials = GpuTrials(10.0, compilers=pool, _workers={(0, False): worker})
    monkeypatch.setattr(GpuTrials, "worker", lambda self, device, *, with_torch: worker)
    for _ in range(2):
        trials.wait_ready(0, dtypes=["float16"])
    compiled = {variant.name for variant in kernels_for(["float16"])}
    assert compiled > {"sum_of_bytes", "differing_floats"}
    before_loading = steps[: steps.index("load_basic_kernels")]
    assert {*before_loading} == {"warm_up", *(() if is_kept else compiled)}
    assert steps[len(before_loading) :] == ["load_basic_kernels", "warm_up", "load_basic_kernels"]


GPU_WORKER = """
from pathlib import Path

def begin(payload, progress):
    Path(__file__).with_name("begun").touch()

def load(payload, progress):
    pass
"""


@pytest.fixture
def trials_of_begun_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuTrials]:
    """Trials whose worker makes a file, ``begun``, in the place of its context, and needs no GPU."""
    (tmp_path / "fake_gpu_worker.py").write_text(GPU_WORKER)
    monkeypatch.syspath_prepend(str(tmp_path))
    worker = importlib.import_module("fake_gpu_worker")
    monkeypatch.setattr("kernellab.gpu.trial.warm_up", worker.begin)
    monkeypatch.setattr("kernellab.gpu.trial.load_basic_kernels", worker.load)
    monkeypatch.setattr("kernellab.gpu.trial.kernels_for", lambda dtypes: ())
    monkeypatch.setattr("kernellab.gpu.trial.uuid_of", lambda device: b"")
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    trials = GpuTrials(10.0, preload="fake_gpu_worker")
    yield trials
    trials.close()


@pytest.mark.slow
def test_the_worker_of_a_new_kernel_starts_at_once_but_not_by_a_server_that_imports(
    trials_of_begun_worker: GpuTrials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernellab.gpu.trial.has_cuda_context", lambda: True)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    trials = trials_of_begun_worker
    trials.start_process()
    assert trials.worker(0).pid is not None
    trials.worker(0).close()
    trials._server(with_torch=False).start()
    trials.start_process()
    assert trials.worker(0).pid is None


@pytest.mark.slow
def test_trials_that_are_closed_while_a_worker_starts_leave_no_process(
    trials_of_begun_worker: GpuTrials, tmp_path: Path
) -> None:
    trials, has_loaded = trials_of_begun_worker, threading.Event()
    trials._driver = in_background(lambda: has_loaded.wait(30))
    trials.start()
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    starting = [thread for thread in trials._background._jobs if thread.is_alive()]
    trials.close()
    has_loaded.set()
    for thread in starting:
        thread.join()
    assert len(starting) == 1
    assert trials.worker(0).pid is None
    assert not trials._servers[False].is_started


def test_a_lab_that_is_closed_while_its_gpu_worker_starts_compiles_no_kernel_of_it_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_ask, has_asked = threading.Event(), threading.Event()

    def capability(device: int) -> tuple[int, int]:
        has_asked.set()
        assert may_ask.wait(30)
        return 9, 0

    def close_pool(pool: Pool) -> None:
        close(pool)
        may_ask.set()
        for thread in starting:
            thread.join()

    close = Pool.close
    monkeypatch.setattr("torch.cuda.get_device_capability", capability)
    monkeypatch.setattr("kernellab.gpu.trial.uuid_of", lambda device: b"")
    with kernellab.Lab(store=":memory:") as lab:
        lab._trials.start()
        assert has_asked.wait(30)
        starting = list(lab._trials._background._jobs)
        monkeypatch.setattr(Pool, "close", close_pool)
    assert len(starting) == 1
    assert lab._trials._builds == {}
    assert not lab._pool.server.is_started


@pytest.mark.parametrize(("hip", "uses_cuda"), [(None, True), ("6.3", False)])
def test_a_process_that_uses_the_gpu_of_another_vendor_starts_no_worker(
    monkeypatch: pytest.MonkeyPatch, hip: str | None, uses_cuda: bool
) -> None:
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.version.hip", hip)
    assert has_cuda_context() is uses_cuda


def test_an_interrupt_of_the_wait_for_a_worker_waits_for_no_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr("kernellab.gpu.trial.uuid_of", lambda device: b"")
    may_end, has_ended = threading.Event(), threading.Event()

    def join() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        may_end.wait(10)
        has_ended.set()

    worker: Any = FakeWorker(Ending.CLEAN)
    trials = GpuTrials(10.0, _workers={(0, False): worker})
    monkeypatch.setattr(trials, "_driver", SimpleNamespace(is_alive=lambda: True, join=join))
    try:
        with pytest.raises(Interrupted, match="Starting the GPU worker was interrupted"):
            trials.wait_ready(0)
        assert not has_ended.is_set()
    finally:
        may_end.set()


@pytest.mark.parametrize("open_lab", [kernellab.Lab, shared_lab])
def test_kernels_of_the_worker_are_compiled_where_those_of_the_lab_are(open_lab: Any) -> None:
    with open_lab(store=":memory:") as lab:
        assert lab._trials.compilers is lab.compiler.pool


def test_trials_apart_take_other_workers_of_the_same_servers_and_leave_these_open() -> None:
    trials = GpuTrials(10.0, preload="json")
    apart = trials.apart(60.0)
    worker, other = trials.worker(0), apart.worker(0)
    assert worker is trials.worker(0) is not other
    assert worker.kind == other.kind
    assert trials._servers is apart._servers
    assert list(trials._servers[False].modules) == ["json"]
    closed: list[str] = []
    trials._servers[False] = FakeServer(closed)  # type: ignore[assignment]
    apart.close()
    assert closed == []
    trials.close()
    assert closed == ["closed"]


def test_all_servers_are_closed_though_another_thread_asks_for_one_meanwhile() -> None:
    trials, closed = GpuTrials(10.0, preload="json"), list[str]()

    def close_first() -> None:
        closed.append("first")
        trials.worker(0, with_torch=True)

    first, second = SimpleNamespace(close=close_first), SimpleNamespace(close=lambda: closed.append("second"))
    trials._servers.update({False: first, 2: second})  # type: ignore[dict-item]
    trials.close()
    assert closed == ["first", "second"]


def test_a_worker_that_numbers_devices_in_another_way_is_refused() -> None:
    require_same_device(WarmUp(0, b"one"), b"one")
    with pytest.raises(UsageError, match="cuda:0 of this process is another GPU for its worker: CUDA_VISIBLE_DEVICES"):
        require_same_device(WarmUp(0, b"one"), b"two")


@pytest.mark.parametrize(("target", "is_tried"), [("cuda:90", True), ("hip:gfx942", False)])
def test_launches_on_a_gpu_that_the_worker_does_not_know_go_ahead_without_trials(
    monkeypatch: pytest.MonkeyPatch, target: str, is_tried: bool
) -> None:
    monkeypatch.setattr("kernellab.lab.workspace.gpu_target_of_machine", lambda: parse_target(target))
    with kernellab.Lab(store=":memory:") as lab:
        trials = lab.launches.trials
        assert trials is not None
        assert trials.enabled is is_tried
