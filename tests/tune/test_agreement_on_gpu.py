"""Which configs count without a reference, with real kernels: tuned on a GPU, and compiled and run without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import kernellab
from kernellab.checking.comparison import agree
from tests.labs import shared_lab
from tests.tables import every
from tests.tune.agreement_kernels import RIGHT, ROWS, UNREPEATED, WRONG, Case, matrix

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
CASES = [*RIGHT, *WRONG]
BY_CHANCE = {"an uninitialised tail", "an order of arrival"}  # two launches may leave the same there, or not


@pytest.fixture(scope="module")
def gpu_lab() -> Iterator[kernellab.Lab]:
    with kernellab.Lab(store=":memory:") as lab:
        yield lab


@pytest.fixture(scope="module")
def cpu_lab() -> Iterator[kernellab.Lab]:
    with shared_lab(target="cuda:90", store=":memory:") as lab:
        yield lab


def tune(lab: kernellab.Lab, case: Case, device: str = "cuda", **more: Any) -> kernellab.tune.result.Tuning:
    return lab.tune(case.kernel, case.grid, *case.arguments(device), configs=case.configs, **more)


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_no_config_of_a_right_kernel_is_kept_from_winning(gpu_lab: kernellab.Lab, case: Case) -> None:
    tuning = tune(gpu_lab, case)
    assert set(tuning.frame.status) == {"ok"}
    assert tuning.agreement is not None
    if case.name not in BY_CHANCE:
        assert tuning.agreement.disagrees == (len(set(case.groups)) > 1)


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_every_wrong_config_of_a_few_is_told_and_timed(gpu_lab: kernellab.Lab, case: Case) -> None:
    tuning = tune(gpu_lab, case)
    assert list(tuning.frame.status) == ["differs" if group else "ok" for group in case.groups]
    assert tuning.frame.time_ms.notna().all()
    assert all("out_ptr differs in" in reason for reason in tuning.frame.reason[list(map(bool, case.groups))])


@pytest.mark.gpu
@on_gpu
def test_outputs_that_count_leave_scratch_alone_and_a_reference_tells_what_is_wrong(gpu_lab: kernellab.Lab) -> None:
    by_last = next(case for case in RIGHT if case.name == "a sum by the last program")
    alike = tune(gpu_lab, by_last, outputs=("out_ptr",)).agreement
    assert alike is not None
    assert not alike.disagrees
    checked = tune(gpu_lab, by_last, check=lambda x_ptr: {"out_ptr": x_ptr.sum().view(1)})
    assert set(checked.frame.status) == {"ok"}
    few = next(case for case in WRONG if case.name == "just more than half")
    judged = tune(gpu_lab, few, check="x_ptr")
    assert list(judged.frame.status) == ["wrong" if group else "ok" for group in few.groups]


def test_there_are_twenty_of_each() -> None:
    assert len(RIGHT) >= 20
    assert len(WRONG) == 20
    assert all(2 * max(map(case.groups.count, set(case.groups) - {UNREPEATED}), default=0) <= len(case.groups)
               for case in RIGHT if len(set(case.groups)) > 1)  # fmt: skip
    assert all(2 * case.groups.count(0) > len(case.groups) for case in WRONG)


@pytest.mark.slow
@pytest.mark.parametrize("case", every(5, CASES), ids=lambda case: case.name)
def test_each_config_compiles(cpu_lab: kernellab.Lab, case: Case) -> None:
    for config in case.configs:  # a tuning would predict each as well
        compiled = cpu_lab.compile(case.kernel, *case.arguments("cpu"), **config.all_kwargs())
        assert compiled.resources.fits, config


@pytest.mark.slow
@pytest.mark.parametrize("case", every(5, CASES), ids=lambda case: case.name)
def test_on_the_cpu_each_config_leaves_the_outputs_of_its_group(cpu_lab: kernellab.Lab, case: Case) -> None:
    if UNREPEATED in case.groups:
        pytest.skip("on the CPU, programs arrive in their order")
    left: list[list[torch.Tensor]] = []
    for config in case.configs:
        arguments = case.arguments("cpu")
        meta = {**config.kwargs, "num_warps": config.num_warps}
        cpu_lab.run(case.kernel, case.grid(meta), *arguments, **meta)
        left.append([each for each in arguments if isinstance(each, torch.Tensor)])
    for first, group in zip(left, case.groups, strict=True):
        for second, other in zip(left, case.groups, strict=True):
            assert all(map(agree, first, second)) == (group == other)


def test_matrices_have_as_many_rows_as_the_grids_take() -> None:
    assert matrix("cpu").shape[0] == ROWS
