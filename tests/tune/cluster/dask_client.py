"""Workers of dask on this machine, each a process of its own."""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

HOST = "127.0.0.1"


@contextmanager
def dask_client(workers: int = 2) -> Iterator[Any]:
    """Yield a client of so many workers; skip the test without dask."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    with _quiet(), distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        client.wait_for_workers(workers)
        yield client


@contextmanager
def gpu_client(workers: int) -> Iterator[Any]:
    """Yield a client of so many workers, each of which sees one GPU of this machine."""
    distributed = pytest.importorskip("distributed")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = visible.split(",") if visible else [str(number) for number in range(workers)]
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False, "dashboard_address": None, "host": HOST}}
    options = {"nthreads": 1, "host": HOST, "silence_logs": logging.WARNING}
    specs = {
        number: {"cls": distributed.Nanny, "options": {**options, "env": {"CUDA_VISIBLE_DEVICES": devices[number]}}}
        for number in range(workers)
    }
    with (
        _quiet(),
        distributed.SpecCluster(workers=specs, scheduler=scheduler, silence_logs=logging.WARNING) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        yield client


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sockets and loops of dask, as they are closed
        yield
        gc.collect()
