"""What a fork of the user's process shares with it, and what it must not."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.multiprocessing
import triton
import triton.language as tl

from kernellab import Lab
from kernellab._triton import binary_tools, drivers
from kernellab._triton.bound import bound_copy
from kernellab.errors import LaunchError
from kernellab.gpu.trial import GpuTrials
from kernellab.launch.runtime import Runtime
from kernellab.store.database import Database
from kernellab.target import parse_target
from kernellab.workers import forks_and_interrupts as forks
from kernellab.workers.scratch import Scratch
from kernellab.workers.worker import Pool, Worker, WorkerKind
from tests.workers.test_worker import count, echo, job

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")]
FORK = multiprocessing.get_context("fork")
KIND = WorkerKind("test", preload=())
FACTORS = range(2, 8)


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * factor, mask=mask)


BOUND: dict[str, Any] = {}  # what children inherit, since it cannot be sent to them


@pytest.fixture(scope="module")
def bound() -> Iterator[None]:
    with Lab(store=":memory:") as lab:
        BOUND["kernel"] = lab.bind(scale_kernel)
        assert is_right(1)
        yield


def is_right(factor: int) -> bool:
    """Launch the inherited kernel, and tell whether it did what it should."""
    x, y = torch.arange(1000, dtype=torch.float32) + factor, torch.zeros(1000)
    BOUND["kernel"][(8,)](x, y, 1000, float(factor), BLOCK=128)
    return bool((y == x * factor).all())


def in_pool() -> list[bool]:
    with FORK.Pool(2) as pool:
        return pool.map(is_right, FACTORS)


def in_pool_with_new_processes() -> list[bool]:
    with FORK.Pool(2, maxtasksperchild=3) as pool:
        return pool.map(is_right, FACTORS, chunksize=3)


def in_executor() -> list[bool]:
    with ProcessPoolExecutor(2, mp_context=FORK) as executor:
        return list(executor.map(is_right, FACTORS))


def in_pool_of_torch() -> list[bool]:
    with torch.multiprocessing.get_context("fork").Pool(2) as pool:
        return list(pool.map(is_right, FACTORS))


class Launching(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return len(FACTORS)

    def __getitem__(self, index: int) -> bool:
        return is_right(FACTORS[index])


def in_data_loader() -> list[bool]:
    loader = torch.utils.data.DataLoader(Launching(), batch_size=None, num_workers=2, multiprocessing_context="fork")
    return list(loader)


def by_hand() -> list[bool]:
    return [in_fork(lambda: all(map(is_right, FACTORS))) == 0 for _ in range(2)]


def in_fork_of_fork() -> list[bool]:
    return [in_fork(lambda: is_right(2) and in_fork(lambda: is_right(3)) == 0 and is_right(4)) == 0]


def in_fork(work: Callable[[], bool]) -> int:
    """Return the exit status of a fork: 0 where ``work`` returned True."""
    return ended(forked(work))


def forked(work: Callable[[], bool]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os._exit(0 if work() else 1)
    except BaseException as exc:  # noqa: BLE001 - pytest goes on in the parent alone
        sys.__stderr__.write(f"{exc!r}\n")  # type: ignore[union-attr]
    finally:
        os._exit(2)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


POOLS = (
    in_pool,
    in_pool_with_new_processes,
    in_executor,
    in_pool_of_torch,
    in_data_loader,
    by_hand,
    in_fork_of_fork,
)


@pytest.mark.parametrize("pool", POOLS)
def test_parent_and_forks_launch_side_by_side_and_all_tensors_are_right(
    bound: None, pool: Callable[[], list[bool]]
) -> None:
    found: list[bool] = []
    over = threading.Event()

    def launch_on() -> None:
        while not over.is_set():
            found.append(is_right(len(found) + 1))

    thread = threading.Thread(target=launch_on)
    thread.start()
    try:
        children = pool()
    finally:
        over.set()
        thread.join()
    assert set(children) == {True}
    assert set(found) == {True}
    assert is_right(5)


def test_a_fork_compiles_with_workers_of_its_own() -> None:
    with Lab(store=":memory:") as lab:
        assert compiles(lab, 64)
        pids = {worker.pid for worker in lab.compiler.pool.workers} - {None}
        assert in_fork(lambda: compiles(lab, 128)) == 0
        assert compiles(lab, 256)
        assert pids <= {worker.pid for worker in lab.compiler.pool.workers}


def test_a_fork_compiles_what_other_threads_of_the_parent_are_compiling() -> None:
    with Lab(store=":memory:") as lab:
        threads = [threading.Thread(target=compiles, args=(lab, block)) for block in (32, 64)]
        for thread in threads:
            thread.start()
        pids = [forked(lambda: compiles(lab, 32)) for _ in range(2)]
        assert [ended(pid) for pid in pids] == [0, 0]
        for thread in threads:
            thread.join()


def compiles(lab: Lab, block: int) -> bool:
    return lab.compile(scale_kernel, torch.zeros(8), torch.zeros(8), 8, 2.0, BLOCK=block).resources.fits


@pytest.mark.gpu
def test_a_fork_of_a_process_that_uses_cuda_compiles_and_runs_on_the_cpu() -> None:
    with Lab(store=":memory:") as lab:
        kernel = lab.bind(scale_kernel)
        on_gpu = torch.ones(8, device="cuda")
        kernel[(1,)](on_gpu, on_gpu, 8, 2.0, BLOCK=8)

        def launch() -> bool:
            on_cpu = torch.ones(8)
            kernel[(1,)](on_cpu, on_cpu, 8, 3.0, BLOCK=8)
            with pytest.raises(LaunchError, match="cannot be used in a fork"):
                kernel[(1,)](on_gpu, on_gpu, 8, 2.0, BLOCK=8)
            return on_cpu.tolist() == [3.0] * 8 and compiles(lab, 64)

        assert in_fork(launch) == 0
        kernel[(1,)](on_gpu, on_gpu, 8, 2.0, BLOCK=8)
        assert on_gpu.tolist() == [4.0] * 8


def test_a_lab_that_leaves_its_gpu_runs_on_the_cpu() -> None:
    with Lab(store=":memory:") as lab:
        launches = Runtime(lab.compiler, lab._interpreter.run, lab.target, trials=GpuTrials(10.0))
        kernel = bound_copy(scale_kernel, launches)
        launches.go_offline()
        x = torch.ones(8)
        kernel[(1,)](x, x, 8, 3.0, BLOCK=8)
        assert x.tolist() == [3.0] * 8
        launches.close()


def test_a_fork_that_closes_the_lab_leaves_workers_folder_and_store_to_the_parent() -> None:
    with Lab(store=":memory:") as lab:
        kernel = lab.bind(scale_kernel)
        x = torch.ones(8)
        kernel[(1,)](x, x, 8, 2.0, BLOCK=8)
        lab.kernels.add(scale_kernel)
        worker = lab._interpreter.worker
        pid = worker.pid

        def close() -> bool:
            lab.close()
            return True

        assert in_fork(close) == 0
        assert worker.pid == pid
        assert lab.compiler.folder.is_dir()
        kernel[(1,)](x, x, 8, 2.0, BLOCK=8)
        assert x[0] == 4
        assert lab.kernels["scale_kernel"] is not None


def test_a_fork_has_a_worker_of_its_own_and_its_end_leaves_the_parents_alone() -> None:
    worker = Worker(KIND)
    worker.run(job(echo, 1), 30)
    pid = worker.pid
    assert in_fork(lambda: worker.pid is None and worker.run(job(echo, 2), 30) == 2 and worker.pid != pid) == 0
    assert (worker.run(job(echo, 3), 30), worker.pid) == (3, pid)
    worker.close()


def test_workers_that_other_threads_use_are_free_in_a_fork() -> None:
    pool = Pool(KIND, 1)
    is_taken, may_go = threading.Event(), threading.Event()

    def hold(progress: Any) -> None:
        is_taken.set()
        may_go.wait(30)

    thread = threading.Thread(target=pool.run, args=(job(count, 1), 60, hold))
    thread.start()
    is_taken.wait(30)
    assert in_fork(lambda: pool.run(job(echo, 2), 30) == 2) == 0
    may_go.set()
    thread.join()
    assert pool.run(job(echo, 3), 30) == 3
    pool.close()


def test_the_death_of_a_worker_is_seen_though_a_fork_lives_on() -> None:
    worker = Worker(KIND)
    is_starting = threading.Event()
    may_end, parent = os.pipe()

    def start() -> None:
        is_starting.set()
        worker.run(job(echo, 1), 30)

    def live_on() -> bool:
        os.close(parent)
        return os.read(may_end, 1) == b""

    thread = threading.Thread(target=start)
    thread.start()
    is_starting.wait(30)
    pid = forked(live_on)
    thread.join()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.run(job(echo, 2), 30) == 2
    os.close(parent)
    assert ended(pid) == 0
    worker.close()


def test_a_database_keeps_what_parent_and_forks_write_at_once(tmp_path: Path) -> None:
    database = Database(tmp_path)
    over = threading.Event()
    written = [0]

    def write(who: str) -> None:
        query, row = "INSERT INTO kernels (name, last_version, created) VALUES (?, 1, 0)", (f"{who} {uuid.uuid4()}",)
        database.write(lambda cursor: cursor.execute(query, row))

    def write_on() -> None:
        while not over.is_set():
            write("parent")
            written[0] += 1

    def ten_times() -> bool:
        for _ in range(10):
            write("child")
        return True

    thread = threading.Thread(target=write_on)
    thread.start()
    pids = [forked(ten_times) for _ in range(8)]
    assert [ended(pid) for pid in pids] == [0] * 8
    over.set()
    thread.join()
    by = [str(name).split()[0] for (name,) in database.rows("SELECT name FROM kernels")]
    assert (by.count("parent"), by.count("child")) == (written[0], 80)
    assert database.rows("PRAGMA integrity_check") == [("ok",)]
    database.close()


def test_a_database_in_memory_becomes_one_of_each(tmp_path: Path) -> None:
    database = Database(None)
    database.write(lambda cursor: cursor.execute("CREATE TABLE seen (by TEXT)"))
    database.write(lambda cursor: cursor.execute("INSERT INTO seen VALUES ('parent')"))

    def add() -> bool:
        database.write(lambda cursor: cursor.execute("INSERT INTO seen VALUES ('child')"))
        return database.rows("SELECT by FROM seen") == [("parent",), ("child",)]

    assert in_fork(add) == 0
    assert database.rows("SELECT by FROM seen") == [("parent",)]


def test_a_database_that_is_closed_stays_closed_after_a_fork(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.close()
    assert in_fork(lambda: True) == 0
    with pytest.raises(Exception, match="closed"):
        database.rows("SELECT 1")


def test_a_lock_that_a_thread_holds_is_free_in_a_fork() -> None:
    held = forks.lock()
    reentrant = forks.rlock()
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with held, reentrant:
            is_held.set()
            may_go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait(30)
    assert in_fork(lambda: held.acquire(blocking=False) and reentrant.acquire(blocking=False)) == 0
    assert held.locked()
    may_go.set()
    thread.join()


def test_a_fork_waits_for_what_must_be_whole_in_it() -> None:
    is_held, is_forking = threading.Event(), threading.Event()
    forks.at_fork(is_forking, before=lambda event: bool(event.set()), in_child=lambda event: None)
    crossing, steps = forks.lock(crossing=True), [1]

    def step_twice() -> None:
        with crossing:
            steps.append(2)
            is_held.set()
            is_forking.wait(30)
            steps.append(3)

    thread = threading.Thread(target=step_twice)
    thread.start()
    is_held.wait(30)
    assert in_fork(lambda: steps == [1, 2, 3] and crossing.acquire(blocking=False)) == 0
    thread.join()
    assert not crossing.locked()


class SlowStart:
    """Starts a program, which lasts until the process forks: as a call, or as the default of Triton's drivers."""

    def __init__(self) -> None:
        self.has_begun, self.is_forking, self.has_ended = threading.Event(), threading.Event(), threading.Event()
        forks.at_fork(self, before=lambda start: bool(start.is_forking.set()), in_child=lambda start: None)

    def __call__(self, *command: Any, **options: Any) -> Any:
        self.has_begun.set()
        assert self.is_forking.wait(30)
        self.has_ended.set()
        raise OSError("enough")

    default = property(__call__)


def disassemble() -> None:
    with contextlib.suppress(OSError):
        binary_tools.disassemble(Path("kernel.cubin"))


def build_launcher() -> None:
    with Lab(store=":memory:") as lab:
        compiler = lab.compiler
        compiler.launches_on = target = parse_target("cuda:90")
        job: Any = SimpleNamespace(target=target, signature=(), constants=())
        thread = compiler._launcher_of(job)
        assert thread is not None
        thread.join()


@pytest.mark.parametrize(
    ("replaced", "start"),
    [
        ("kernellab._triton.binary_tools.subprocess.Popen", disassemble),
        ("kernellab._triton.drivers.driver", drivers.load_driver),
        ("kernellab._triton.drivers.driver", drivers.gpu_target_of_machine),
        ("kernellab.compile.cache.build_launcher", build_launcher),
    ],
)
def test_a_fork_waits_until_a_program_has_started_whose_pipes_it_would_keep_open(
    monkeypatch: pytest.MonkeyPatch, replaced: str, start: Callable[[], object]
) -> None:
    assert binary_tools.knobs.nvidia.nvdisasm.path  # which starts the tool, the first time
    slow = SlowStart()
    monkeypatch.setattr(replaced, slow)
    thread = threading.Thread(target=start)
    thread.start()
    assert slow.has_begun.wait(30)
    assert in_fork(slow.has_ended.is_set) == 0
    thread.join()


def test_a_temporary_folder_is_deleted_by_its_maker_alone() -> None:
    scratch = Scratch()

    def leave() -> bool:
        scratch.close()
        return scratch.path.is_dir()

    assert in_fork(leave) == 0
    assert scratch.path.is_dir()
    scratch.close()
    assert not scratch.path.exists()
