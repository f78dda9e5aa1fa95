"""A function called in all processes of an executor: one harvest of their launches, errors that name a process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from kernellab import Harvest, Lab
from kernellab.errors import UsageError, WorkerDied, WorkerError
from tests.harvest.kernels import add, scale
from tests.labs import lab_fixture
from tests.tune.cluster.dask_client import dask_client, gpu_client

lab = lab_fixture("cuda:90")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with dask_client() as client:
        yield client


def work(folder: Path, times: int, n: int = 128) -> None:
    """Launch one kernel ``times`` times and, in the process that comes first, another one once."""
    for _ in range(times):
        add(n)
    try:
        (folder / "first").mkdir()
    except FileExistsError:
        return
    scale(n)


def fail_in_one(folder: Path) -> None:
    """Fail in the process that comes first."""
    (folder / str(os.getpid())).touch()
    try:
        (folder / "first").mkdir()
    except FileExistsError:
        return
    raise ValueError("no such checkpoint")


def end_one(folder: Path) -> None:
    """End the process that comes first, in place of returning."""
    try:
        (folder / "first").mkdir()
    except FileExistsError:
        return
    os._exit(1)


def work_on_gpu() -> None:
    """Launch a kernel on the GPU of this process."""
    for _ in range(20):
        add(1 << 20, device="cuda")
    torch.cuda.synchronize()


def counts(seen: Harvest) -> dict[str, int]:
    return {case.kernel: case.count for case in seen.record.cases}


@pytest.mark.slow
def test_the_launches_of_all_workers_add_up(lab: Lab, client: Any, tmp_path: Path) -> None:
    seen = lab.harvest_on(client, work, tmp_path, times=3)
    assert counts(seen) == {"add_kernel": 2 * 3, "scale_kernel": 1}
    assert seen.record.programs == 2
    assert seen.cases("add_kernel").weights == [6]
    assert all(row["times_bound"] is not None for row in seen.rows())  # predicted where the kernels are


@pytest.mark.slow
def test_a_function_that_fails_names_its_worker(lab: Lab, client: Any, tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"The harvest of fail_in_one failed on (\S+): ValueError: no such ch") as exc:
        lab.harvest_on(client, fail_in_one, tmp_path)
    assert any(f" failed on {name}: " in exc.value.message for name in client.nthreads())
    assert 'raise ValueError("no such checkpoint")' in exc.value.detail


@pytest.mark.slow
def test_a_worker_that_ends_does_not_make_the_harvest_wait_forever(lab: Lab, client: Any, tmp_path: Path) -> None:
    names, begin_s = set(client.nthreads()), time.monotonic()
    with pytest.raises((WorkerDied, WorkerError), match="The harvest of end_one") as exc:
        lab.harvest_on(client, end_one, tmp_path)
    assert any(name in exc.value.message for name in names)
    assert time.monotonic() - begin_s < 60


def test_calls_that_cannot_be_sent_are_refused(lab: Lab, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        with (tmp_path / "open").open("w") as file, pytest.raises(UsageError, match=r"cannot be sent.*from modules"):
            lab.harvest_on(executor, print, file)
        with pytest.raises(UsageError, match="expected"):
            lab.harvest_on(executor, "work")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected"):
        lab.harvest_on(5, work)  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_workers_with_a_gpu_each_sample_their_own_times(lab: Lab) -> None:
    with gpu_client(2) as client:
        seen = lab.harvest_on(client, work_on_gpu)
    (case,) = seen.record.cases
    assert case.count == 40
    assert case.samples >= 2
    assert seen.record.programs == 2
