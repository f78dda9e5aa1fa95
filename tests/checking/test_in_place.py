"""A kernel that updates its argument in place: at each door, a reference sees what the argument held before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import CheckFailed
from kernellab.registry import recorded_launch_of
from tests.labs import lab_fixture
from tests.tables import every

COUNT = 100
FORMATS = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bfloat16)


@triton.jit
def add_eight(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 8, mask=at < n)


@triton.jit
def clear(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 0, mask=at < n)


lab = lab_fixture("cuda:90", "function")


def made(dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(COUNT) - 50).to(dtype)


def ran(lab: kernellab.Lab, kernel: Any, x: torch.Tensor, check: Any) -> bool:
    try:
        lab.run(kernel, (1,), x, COUNT, BLOCK=128, check=check)
    except CheckFailed:
        return False
    return True


def tuned(lab: kernellab.Lab, kernel: Any, x: torch.Tensor, check: Any) -> bool:
    configs = [triton.Config({"BLOCK": 128})]
    return lab.tune(kernel, (1,), x, COUNT, configs=configs, check=check).rows[0].status != "wrong"


def explored(lab: kernellab.Lab, kernel: Any, x: torch.Tensor, check: Any) -> bool:
    return bool(lab.explore(kernel, (1,), x, COUNT, BLOCK=[128, 256], check=check).wait().verdict.equal)


DOORS: tuple[Callable[..., bool], ...] = (ran, tuned, explored)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", every(2, FORMATS), ids=str)
@pytest.mark.parametrize("door", DOORS)
def test_a_check_compares_with_what_an_argument_held_before(
    lab: kernellab.Lab, door: Callable[..., bool], dtype: torch.dtype
) -> None:
    x = made(dtype)
    right = (lambda x_ptr: x_ptr + 8, lambda x_ptr: x_ptr.add_(8), lambda: x + 8)
    wrong = (lambda x_ptr: x_ptr, lambda: x, lambda: x[:], lambda: {"x_ptr": x})
    for check in right:
        assert door(lab, add_eight, x.copy_(made(dtype)), check)
    for check in wrong:
        assert not door(lab, add_eight, x.copy_(made(dtype)), check)
    assert not door(lab, clear, x.copy_(made(dtype)), lambda x_ptr: x_ptr.clamp(min=0))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_benchmarks_start_each_implementation_from_the_same_values(lab: kernellab.Lab, dtype: torch.dtype) -> None:
    def statuses(function: Callable[[torch.Tensor], torch.Tensor]) -> list[str]:
        x = made(dtype)
        found = lab.bench(
            add_eight, (1,), over={"BLOCK": [128, 256]}, inputs=lambda BLOCK: {"x_ptr": x, "n": COUNT},
            versus={"reference": function}, check=True,
        )  # fmt: skip
        assert torch.equal(x, made(dtype))
        return [row.status for row in found.rows if row.implementation == "add_eight"]

    assert statuses(lambda x_ptr: x_ptr + 8) == ["not_timed"] * 2
    assert statuses(lambda x_ptr: x_ptr.add_(8)) == ["not_timed"] * 2
    assert statuses(lambda x_ptr: x_ptr) == ["wrong"] * 2


@pytest.mark.slow
def test_comparisons_start_both_sides_from_the_same_values(lab: kernellab.Lab) -> None:
    for kernel in (add_eight, clear):
        bound = lab.bind(kernel)
        lab.kernels.add(bound)
        lab.run(bound, (1,), made(torch.float32), COUNT, BLOCK=128)
    assert lab.compare("add_eight", lambda x_ptr: x_ptr + 8).outputs[0].equal
    assert lab.compare("add_eight", lambda x_ptr: x_ptr.add_(8)).outputs[0].equal
    assert not lab.compare("add_eight", lambda x_ptr: x_ptr).outputs[0].equal
    assert not lab.compare("add_eight", "clear").outputs[0].equal


@pytest.mark.slow
def test_hooks_of_configs_are_called_before_launches_on_the_cpu(lab: kernellab.Lab) -> None:
    def to_one(arguments: dict[str, Any]) -> None:
        arguments["x_ptr"].fill_(1)

    x = made(torch.float32)
    configs = [triton.Config({"BLOCK": 128}, pre_hook=to_one)]
    tuning = lab.tune(add_eight, (1,), x, COUNT, configs=configs, check=lambda x_ptr: torch.full_like(x_ptr, 9))
    assert tuning.rows[0].status == "not_timed"
    assert "agrees with the reference" in tuning.rows[0].reason
    kernel = triton.autotune(configs, key=["n"])(add_eight)
    found = lab.bench(
        kernel, (1,), over={"n": [COUNT]}, inputs=lambda n: {"x_ptr": x}, check=True,
        versus={"reference": lambda x_ptr: torch.full_like(x_ptr, 9)},
    )  # fmt: skip
    assert [row.status for row in found.rows] == ["not_timed"] * 2, found.frame["reason"].tolist()
    assert torch.equal(x, made(torch.float32))


@triton.jit
def count_up(c_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(c_ptr + at, tl.load(c_ptr + at) + 1000)


@triton.jit
def count_into(x_ptr, c_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(c_ptr + tl.load(x_ptr + tl.arange(0, BLOCK)), 1)


@triton.jit
def gather_and_scatter(x_ptr, index_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place = tl.load(index_ptr + at)
    tl.store(out_ptr + at, tl.load(x_ptr + place))
    tl.store(index_ptr + at, place * 32 % BLOCK + place // (BLOCK // 32))


@triton.jit
def copy(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at))


def launched(lab: kernellab.Lab, kernel: Any, *args: Any, **meta: Any) -> None:
    lab.bind(kernel)[(1,)](*args, **meta)


def called_by_run(lab: kernellab.Lab, kernel: Any, *args: Any, **meta: Any) -> None:
    lab.run(kernel, (1,), *args, **meta)


def captured(lab: kernellab.Lab, kernel: Any, *args: Any, **meta: Any) -> None:
    bound = lab.bind(kernel)
    with lab.capture():
        bound[(1,)](*args, **meta)


LAUNCHING: tuple[Callable[..., None], ...] = (launched, called_by_run, captured)


def recorded(lab: kernellab.Lab, name: str, argument: str) -> Any:
    return lab.kernels.store.history.launches(lab.kernels.version(name).id)[-1].launch.argument(argument)


@pytest.mark.slow
@pytest.mark.parametrize("launching", LAUNCHING)
def test_recorded_values_are_those_from_before_the_launch(lab: kernellab.Lab, launching: Callable[..., None]) -> None:
    lab.kernels.add(lab.bind(count_up))
    launching(lab, count_up, counter := torch.arange(16), BLOCK=16)
    assert counter.tolist() == list(range(1000, 1016))
    held = recorded(lab, "count_up", "c_ptr")
    assert (held.low, held.high, held.values) == (0, 15, tuple(range(16)))
    launching(lab, count_up, large := torch.arange(1 << 15), BLOCK=1 << 15)
    held = recorded(lab, "count_up", "c_ptr")
    assert (held.low, held.high, held.values) == (0, (1 << 15) - 1, None)
    assert large[0] == 1000


@pytest.mark.parametrize("launching", LAUNCHING)
def test_recorded_values_of_atomics_and_floats_are_those_from_before(
    lab: kernellab.Lab, launching: Callable[..., None]
) -> None:
    for kernel in (count_into, add_eight):
        lab.kernels.add(lab.bind(kernel))
    launching(lab, count_into, torch.arange(16) % 4, counter := torch.zeros(4, dtype=torch.int32), BLOCK=16)
    assert counter.tolist() == [4] * 4
    assert recorded(lab, "count_into", "c_ptr").values == (0,) * 4
    launching(lab, add_eight, torch.ones(COUNT), COUNT, BLOCK=128)
    held = recorded(lab, "add_eight", "x_ptr")
    assert (held.low, held.high) == (1, 1)


def test_recorded_values_of_an_alias_are_those_from_before(lab: kernellab.Lab) -> None:
    @triton.jit
    def add_to(x_ptr, out_ptr, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.load(x_ptr + at) + 1000)

    bound = lab.bind(add_to)
    lab.kernels.add(bound)
    x = torch.arange(16)
    bound[(1,)](x, x, BLOCK=16)
    assert recorded(lab, "add_to", "x_ptr").values == tuple(range(16))
    assert recorded(lab, "add_to", "out_ptr").alias == "x_ptr"


@pytest.mark.slow
def test_recorded_values_are_those_from_before_later_launches_of_a_cell(lab: kernellab.Lab) -> None:
    kernels = [lab.bind(copy), lab.bind(count_up)]
    x, out = torch.arange(16), torch.zeros(16, dtype=torch.int64)
    with lab.launches.recording() as recorder:
        kernels[0][(1,)](x, out, BLOCK=16)
        kernels[1][(1,)](x, BLOCK=16)
    read, counted = (recorded_launch_of(record) for record in recorder.records.values())
    assert read.argument("x_ptr").values == tuple(range(16))
    assert counted.argument("c_ptr").values == tuple(range(16))


def test_nothing_is_sampled_of_a_kernel_that_changes_nothing_that_it_reads(lab: kernellab.Lab) -> None:
    bound = lab.bind(copy)
    with lab.launches.recording() as recorder:
        bound[(1,)](torch.arange(16), torch.zeros(16, dtype=torch.int64), BLOCK=16)
    (record,) = recorder.records.values()
    assert not record.before


@pytest.mark.slow
def test_inputs_made_like_a_recorded_launch_lead_where_it_went(lab: kernellab.Lab) -> None:
    bound = lab.bind(gather_and_scatter)
    lab.kernels.add(bound)
    x, index, out = torch.arange(256.0), torch.arange(256), torch.zeros(256)
    lab.run(bound, (1,), x, index, out, BLOCK=256)
    assert recorded(lab, "gather_and_scatter", "index_ptr").values == tuple(range(256))
