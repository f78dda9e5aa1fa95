"""Kernels that take addresses out of memory or as numbers, on a GPU: tried on copies, tuned, and told of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import kernellab
from kernellab.errors import KernellabError, OutOfBounds
from kernellab.gpu.trial import GpuTrials
from kernellab.ir.effects import REACHED
from tests.kernels import pointers
from tests.kernels.pointers import Groups
from tests.labs import lab_fixture

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
SIZES = [(20, 16, 32), (40, 33, 17), (256, 128, 64)]
CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (64, 256) for warps in (1, 4)]
lab = lab_fixture(open_lab=kernellab.Lab, on_disk=True)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[kernellab.Lab]:
    with kernellab.Lab(store=tmp_path) as lab:
        yield lab


def table(*tensors: torch.Tensor) -> torch.Tensor:
    return torch.tensor([tensor.data_ptr() for tensor in tensors], device="cuda")


def zeros(*sizes: int) -> list[torch.Tensor]:
    return [torch.zeros(size, device="cuda") for size in sizes]


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list that the result of each trial launch is added to."""
    found: list[Any] = []
    launch = GpuTrials.launch

    def noted(self: GpuTrials, *args: Any, **options: Any) -> Any:
        found.append(launch(self, *args, **options))
        return found[-1]

    monkeypatch.setattr(GpuTrials, "launch", noted)
    return found


def test_a_grouped_product_is_tried_on_copies_and_launched_once(lab: kernellab.Lab, results: list[Any]) -> None:
    groups = Groups.of(SIZES, "cuda")
    run = lab.run(pointers.grouped_matmul, (4,), *groups.arguments, **groups.meta)
    groups.check()
    assert [result.notes for result in results] == [()]
    assert run.changed[f"{REACHED}c_ptrs[2]"] > 0
    assert run.changed[f"{REACHED}a_ptrs[2]"] == 0


def test_a_foreach_update_happens_exactly_once_also_with_tables_that_change(
    lab: kernellab.Lab, results: list[Any]
) -> None:
    bound = lab.bind(pointers.foreach_add)
    for _ in range(3):
        tensors = zeros(5, 70, 200)
        lengths = torch.tensor([5, 70, 200], device="cuda")
        addresses = table(*tensors)
        before = addresses.clone()
        for launch in (1, 2):
            bound[(3,)](addresses, lengths, 2.0, BLOCK=64)
            assert all(tensor.eq(2.0 * launch).all() for tensor in tensors)
        assert torch.equal(addresses, before)
    assert len(results) == 1


@pytest.mark.parametrize("offset", [0, 3])
def test_an_address_may_be_a_number(lab: kernellab.Lab, results: list[Any], offset: int) -> None:
    whole = torch.zeros(64, device="cuda")
    lab.bind(pointers.add_at)[(1,)](whole[offset:].data_ptr(), 8, 1.0, BLOCK=16)
    assert whole.nonzero().flatten().tolist() == list(range(offset, offset + 8))
    assert [result.notes for result in results] == [()]


def test_addresses_in_a_tuple_are_numbers_too(lab: kernellab.Lab) -> None:
    one, two = zeros(8, 8)
    lab.run(pointers.add_at_both, (1,), (one.data_ptr(), two.data_ptr()), 1.0, BLOCK=8)
    assert torch.cat([one, two]).eq(1).all()


def test_tables_of_tables_are_followed(lab: kernellab.Lab, results: list[Any]) -> None:
    data = zeros(16, 16)
    inner = [table(each) for each in data]
    lab.bind(pointers.add_through_two_tables)[(2,)](table(*inner), 4.0, BLOCK=16)
    assert all(each.eq(4).all() for each in data)
    assert [result.notes for result in results] == [()]


def test_an_argument_that_a_table_names_as_well_is_one_memory(lab: kernellab.Lab) -> None:
    tensor, out = torch.arange(16.0, device="cuda"), torch.zeros(16, device="cuda")
    lab.bind(pointers.add_and_copy)[(1,)](table(tensor), tensor, out, 1.0, BLOCK=16)
    assert torch.equal(tensor, torch.arange(16.0, device="cuda") + 1)
    assert torch.equal(out, tensor)


def test_memory_that_no_tensor_of_python_holds_is_found_in_the_allocator(
    lab: kernellab.Lab, results: list[Any]
) -> None:
    x = torch.ones(32, device="cuda", requires_grad=True)
    y = (x * 1).exp()  # its result is saved for the backward, in C++ alone
    address, saved = y.data_ptr(), y.sum()
    del y
    lab.bind(pointers.add_at)[(1,)](address, 32, 1.0, BLOCK=32)
    saved.backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.full_like(x, torch.e + 1))
    assert [result.notes for result in results] == [()]


def test_a_store_beyond_what_is_reached_is_an_error_that_names_it(fresh: kernellab.Lab) -> None:
    tensors = zeros(64, 64)
    lengths = torch.tensor([64, 80], device="cuda")
    with pytest.raises(OutOfBounds, match=r"beyond the end of memory reached through ptrs\[1\]") as caught:
        fresh.bind(pointers.foreach_add)[(2,)](table(*tensors), lengths, 1.0, BLOCK=64)
    assert caught.value.place is not None
    assert "tl.store(p + offsets" in caught.value.place.source_line()
    assert all(tensor.eq(0).all() for tensor in tensors)


def test_an_address_that_nobody_owns_costs_an_error_and_nothing_else(fresh: kernellab.Lab) -> None:
    tensor = torch.ones(64, device="cuda")
    lengths = torch.tensor([64], device="cuda")
    wild = torch.tensor([0x123456789000], device="cuda")
    with pytest.raises(KernellabError, match="foreach_add"):
        fresh.bind(pointers.foreach_add)[(1,)](wild, lengths, 1.0, BLOCK=64)
    assert tensor.sum().item() == 64


def test_an_address_that_cannot_be_followed_is_launched_untried_and_that_is_said(
    fresh: kernellab.Lab, results: list[Any]
) -> None:
    tensor = torch.zeros(16, device="cuda")
    run = fresh.run(pointers.add_at_shifted, (1,), table(tensor) >> 4, 5.0, BLOCK=16)
    assert tensor.eq(5).all()
    assert len(results) == 1
    (note,) = [note for note in run.notes if "without a trial launch" in note]
    assert "tt.load in line" in note
    assert "cannot be followed" in note


def test_the_second_session_tries_a_launch_with_addresses_again(tmp_path: Path, results: list[Any]) -> None:
    (tensor,) = zeros(8)
    lengths = torch.tensor([8], device="cuda")
    for session in (1, 2):
        with kernellab.Lab(store=tmp_path) as lab:
            lab.bind(pointers.foreach_add)[(1,)](table(tensor), lengths, 1.0, BLOCK=16)
            assert tensor.eq(session).all()
        assert len(results) == session


def test_a_launch_that_is_known_looks_for_no_tensors(lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    import kernellab.launch.memory

    (tensor,) = zeros(8)
    lengths, bound = torch.tensor([8], device="cuda"), lab.bind(pointers.foreach_add)
    for _ in range(3):
        bound[(1,)](table(tensor), lengths, 1.0, BLOCK=32)

    def refuse(device: str) -> Any:
        raise AssertionError("nobody asked for live tensors")

    monkeypatch.setattr(kernellab.launch.memory, "_owners", refuse)
    bound[(1,)](table(tensor), lengths, 1.0, BLOCK=32)
    assert tensor.eq(4).all()


def test_a_tuning_restores_what_it_reaches_and_leaves_one_launch(fresh: kernellab.Lab) -> None:
    tensors = zeros(1000, 5000)
    lengths = torch.tensor([1000, 5000], device="cuda")
    addresses = table(*tensors)
    before = addresses.clone()
    tuning = fresh.tune(pointers.foreach_add, (2,), addresses, lengths, 1.0, configs=CONFIGS)
    assert set(tuning.frame["status"]) == {"ok"}
    assert not [note for note in tuning.notes if "own process" in note]
    assert all(tensor.eq(1).all() for tensor in tensors)
    assert torch.equal(addresses, before)


def test_a_config_that_computes_something_else_through_a_table_differs(fresh: kernellab.Lab) -> None:
    (tensor,) = zeros(1000)
    lengths = torch.tensor([1000], device="cuda")
    steps = ((64, 1.0), (128, 1.0), (256, 1.0), (512, 9.0))
    configs = [triton.Config({"BLOCK": block, "step": step}) for block, step in steps]
    tuning = fresh.tune(pointers.foreach_add, (1,), table(tensor), lengths, configs=configs)
    assert list(tuning.frame["status"]) == ["ok", "ok", "ok", "differs"]
    assert tensor.eq(1).all()


@pytest.mark.parametrize(("value", "status"), [(1.0, "ok"), (2.0, "wrong")])
def test_a_reference_judges_what_a_table_leads_to(fresh: kernellab.Lab, value: float, status: str) -> None:
    (tensor,) = zeros(1000)
    lengths = torch.tensor([1000], device="cuda")

    def expected(ptrs: torch.Tensor) -> dict[str, Any]:
        return {f"{REACHED}ptrs[0]": value}

    tuning = fresh.tune(pointers.foreach_add, (1,), table(tensor), lengths, 1.0, configs=CONFIGS[:2], check=expected)
    assert set(tuning.frame["status"]) == {status}


def test_an_autotuned_update_happens_once(fresh: kernellab.Lab) -> None:
    tuned = fresh.bind(triton.autotune(configs=CONFIGS, key=[])(pointers.foreach_add))
    (tensor,) = zeros(3000)
    lengths = torch.tensor([3000], device="cuda")
    for launch in (1, 2):
        tuned[(1,)](table(tensor), lengths, 1.0)
        assert tensor.eq(launch).all()


def test_a_tuning_in_the_notebooks_own_process_works_on_copies_too(fresh: kernellab.Lab) -> None:
    (tensor,) = zeros(3000)
    seen: list[int] = []
    configs = [triton.Config({"BLOCK": block}, pre_hook=lambda named: seen.append(len(named))) for block in (64, 256)]
    lengths = torch.tensor([3000], device="cuda")
    assert fresh.launches.trials is not None
    fresh.launches.trials.enabled = False
    fresh.tune(pointers.foreach_add, (1,), table(tensor), lengths, 1.0, configs=configs)
    assert tensor.eq(1).all()


def test_an_address_as_a_number_is_tuned(fresh: kernellab.Lab) -> None:
    (tensor,) = zeros(3000)
    tuning = fresh.tune(
        pointers.add_at, lambda meta: (triton.cdiv(3000, meta["BLOCK"]),), tensor.data_ptr(), 3000, 1.0, configs=CONFIGS
    )
    assert set(tuning.frame["status"]) == {"ok"}
    assert tensor.eq(1).all()


def test_tables_of_tables_are_tuned(fresh: kernellab.Lab) -> None:
    data = zeros(256)
    inner = table(*data)
    configs = [triton.Config({"BLOCK": 256}, num_warps=warps) for warps in (1, 4)]
    tuning = fresh.tune(pointers.add_through_two_tables, (1,), table(inner), 1.0, configs=configs)
    assert set(tuning.frame["status"]) == {"ok"}
    assert data[0].eq(1).all()
    assert inner.item() == data[0].data_ptr()


def test_a_launch_in_the_interpreter_follows_addresses_of_the_gpu(lab: kernellab.Lab) -> None:
    tensors = zeros(5, 70)
    lengths, addresses = torch.tensor([5, 70], device="cuda"), table(*tensors)
    before = addresses.clone()
    run = lab.run(pointers.foreach_add, (2,), addresses, lengths, 3.0, BLOCK=64, interpret=True)
    assert run.where == "interpreter"
    assert all(tensor.eq(3).all() for tensor in tensors)
    assert run.changed[f"{REACHED}ptrs[1]"] == 70
    assert torch.equal(addresses, before)


def test_a_read_beyond_what_is_reached_is_found_on_a_second_look(fresh: kernellab.Lab) -> None:
    (tensor,) = zeros(64)
    lengths = torch.tensor([1 << 40], device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(KernellabError, match=r"memory reached through ptrs\[0\]"):
            fresh.bind(pointers.foreach_add)[(1,)](table(tensor), lengths, 0.0, BLOCK=64)
    assert tensor.eq(0).all()


def test_many_tensors_are_followed(fresh: kernellab.Lab) -> None:
    tensors = zeros(*range(1, 301))
    lengths = torch.tensor([tensor.numel() for tensor in tensors], device="cuda")
    fresh.bind(pointers.foreach_add)[(300,)](table(*tensors), lengths, 1.0, BLOCK=64)
    assert all(tensor.eq(1).all() for tensor in tensors)


def test_a_benchmark_leaves_what_it_reaches_as_it_was(fresh: kernellab.Lab) -> None:
    (tensor,) = zeros(2048)
    lengths, addresses = torch.tensor([2048], device="cuda"), table(tensor)
    result = fresh.bench(
        pointers.foreach_add, (1,), addresses, lengths, 1.0, over={"BLOCK": [64, 256]}, rounds=10, timeout_s=30
    )
    assert set(result.frame["status"]) == {"ok"}
    assert tensor.eq(0).all()
