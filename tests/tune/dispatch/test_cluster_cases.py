"""Cases that go to processes of an executor: what travels, what comes back, and what enters the store here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import triton
import triton.language as tl

import kernellab
from kernellab.errors import RunError, WorkerError
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.timing.provenance import key_of
from kernellab.tune.cluster_tuning import ClusterCases, cluster_cases
from kernellab.tune.dispatch.measuring import CaseSpec, LocalCases
from kernellab.tune.dispatch.over import measurer_of
from kernellab.tune.dispatch.result import CaseRequest, Forecast, MeasuredCase
from kernellab.tune.result import Row, row_of
from kernellab.tune.run_tuning import Environment
from kernellab.tune.verbs import environment_of
from tests.labs import shared_lab
from tests.tune.cluster.cpu_device import MODEL, cpu_environment, no_environment


@triton.jit
def fill(out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 1.0, mask=offsets < n)


SMALL = Config((("BLOCK", 64),), 4, 3, 1)


@pytest.fixture
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab("cuda:90", ":memory:") as lab:
        yield lab


@dataclass
class OneByOne:
    """Measures a case as the length of what ``inputs`` makes; where the store knows a row, it is not made again."""

    environment: Environment
    kernel: Any
    inputs: Callable[..., Any]
    requests: list[CaseRequest] = field(default_factory=list)
    lanes: int = 1

    def submit(self, request: CaseRequest, /) -> None:
        self.requests.append(request)

    def take(self) -> MeasuredCase:
        request = self.requests.pop()
        device = self.environment.device
        fields = {"device": device.name, "driver": device.driver, "triton": device.facts["triton"]}
        key = key_of({**fields, "values": dict(request.sizes)})
        history = self.environment.kernels.store.history
        known = [row_of(row.measurement) for row in history.measurements(key=key)]
        made = [] if known else [Row(SMALL, Status.OK, time_ms=float(len(self.inputs(**request.sizes))))]
        rows = tuple(row for row in (*known, *made) if row is not None)
        return MeasuredCase(
            request.number, request.sizes, rows, key=key, provenance={"device": device.name}, known=len(known)
        )

    def close(self) -> None:
        """Hold nothing."""


def opened(lab: kernellab.Lab, executor: Any, inputs: Callable[..., Any]) -> ClusterCases:
    environment = environment_of(lab.session())
    measurer = partial(OneByOne, inputs=inputs)
    return cluster_cases(environment, executor, cpu_environment, lab.bind(fill), measurer)


def asked(cases: ClusterCases, *numbers: int) -> dict[int, MeasuredCase]:
    for number in numbers:
        cases.submit(CaseRequest(number, {"n": 10 * number}, (Forecast(SMALL),)))
    found = [cases.take() for _ in numbers]
    cases.close()
    return {case.number: case for case in found}


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def test_cases_come_back_with_rows_that_are_in_the_store(lab: kernellab.Lab, threads: ThreadPoolExecutor) -> None:
    scale = 3  # of the notebook, as a lambda may hold it
    cases = opened(lab, threads, lambda n: range(scale * n))
    assert cases.lanes == 2
    found = asked(cases, 1, 2, 3)
    assert {number: case.times_ms for number, case in found.items()} == {
        number: {SMALL: 30.0 * number} for number in (1, 2, 3)
    }
    rows = lab.kernels.store.history.measurements(lab.kernels.version("fill").id)
    assert {row.measurement.key for row in rows} == {case.key for case in found.values()}
    assert {row.measurement.device for row in rows} == {MODEL}


def test_what_the_store_knows_goes_along(lab: kernellab.Lab, threads: ThreadPoolExecutor) -> None:
    asked(opened(lab, threads, lambda n: range(7 * n)), 4)
    count = len(lab.kernels.store.history.measurements())

    def changed(n: int) -> range:
        raise AssertionError("nothing is to be made")

    found = asked(opened(lab, threads, changed), 4)
    assert found[4].known == 1
    assert found[4].times_ms == {SMALL: 280.0}
    assert len(lab.kernels.store.history.measurements()) == count


def test_a_case_that_fails_comes_back_with_the_reason(lab: kernellab.Lab, threads: ThreadPoolExecutor) -> None:
    def too_large(n: int) -> range:
        if n > 50:
            raise RunError("no memory for n=60")
        return range(n)

    found = asked(opened(lab, threads, too_large), 5, 6)
    assert not found[5].failure
    assert found[6].failure == "no memory for n=60"


def test_a_lab_with_a_gpu_measures_itself_where_the_executor_has_none_and_says_so(
    lab: kernellab.Lab, threads: ThreadPoolExecutor
) -> None:
    def bench(launches: Launches, timeout_s: float, device: int | None) -> Any:
        raise AssertionError("nothing is measured here")

    environment = replace(environment_of(lab.session()), make_bench=bench)
    spec = CaseSpec((1,), {}, None)
    measurer, remarks = measurer_of(environment, lab.bind(fill), spec, threads, no_environment)
    assert isinstance(measurer, LocalCases)
    assert remarks[0].startswith("measured in this process: No process of the executor owns a GPU")


def test_an_executor_without_gpus_is_told_what_it_lacks(lab: kernellab.Lab, threads: ThreadPoolExecutor) -> None:
    environment = environment_of(lab.session())
    with pytest.raises(WorkerError, match=r"owns a GPU.*Start one worker per GPU.*wait_for_workers"):
        cluster_cases(environment, threads, no_environment, lab.bind(fill), partial(OneByOne, inputs=range))
