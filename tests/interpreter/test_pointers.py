"""Kernels that take addresses out of memory or as numbers, launched on the CPU: live tensors behind them go along."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import OutOfBounds
from kernellab.ir.effects import REACHED
from kernellab.views.cards.card import remarks
from kernellab.views.cards.results import compiled_card, effects_card
from kernellab.views.report import KernelReport
from tests.kernels import pointers
from tests.kernels.pointers import Groups
from tests.labs import shared_lab

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kernellab.Lab]:
    with shared_lab("cuda:90", tmp_path_factory.mktemp("store")) as lab:
        yield lab


def table(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([tensor.data_ptr() for tensor in tensors])


def test_a_grouped_product_runs_on_matrices_that_only_its_tables_name(lab: kernellab.Lab) -> None:
    groups = Groups.of([(20, 16, 32), (40, 33, 17), (16, 16, 16)], "cpu")
    run = lab.run(pointers.grouped_matmul, (4,), *groups.arguments, **groups.meta)
    groups.check()
    assert run.findings == ()
    assert run.changed["c_ptrs"] == 0
    assert run.changed[f"{REACHED}a_ptrs[1]"] == 0
    assert run.changed[f"{REACHED}c_ptrs[1]"] == 40 * 33


def test_a_foreach_update_changes_each_tensor_in_place_and_counts_it(lab: kernellab.Lab) -> None:
    tensors = [torch.zeros(n) for n in (5, 70, 200)]
    lengths, addresses = torch.tensor([5, 70, 200]), table(tensors)
    before = addresses.clone()
    for launch in (1, 2):
        run = lab.run(pointers.foreach_add, (3,), addresses, lengths, 2.0, BLOCK=64)
        assert all(tensor.eq(2.0 * launch).all() for tensor in tensors)
    assert [run.changed[f"{REACHED}ptrs[{i}]"] for i in range(3)] == [5, 70, 200]
    assert torch.equal(addresses, before)


def test_tables_that_change_are_followed_anew_by_a_bound_kernel(lab: kernellab.Lab) -> None:
    bound, lengths = lab.bind(pointers.foreach_add), torch.tensor([8])
    for _ in range(2):
        tensor = torch.zeros(8)
        bound[(1,)](table([tensor]), lengths, 3.0, BLOCK=16)
        assert tensor.eq(3).all()


def test_an_address_may_be_a_number(lab: kernellab.Lab) -> None:
    whole = torch.zeros(64)
    run = lab.run(pointers.add_at, (1,), whole[16:].data_ptr(), 32, 1.0, BLOCK=64)
    assert run.changed == {f"{REACHED}address": 32}
    assert whole.nonzero().flatten().tolist() == list(range(16, 48))


def test_tables_of_tables_are_followed_to_the_end(lab: kernellab.Lab) -> None:
    data = [torch.zeros(16), torch.zeros(16)]
    inner = [table([each]) for each in data]
    run = lab.run(pointers.add_through_two_tables, (2,), table(inner), 4.0, BLOCK=16)
    assert all(each.eq(4).all() for each in data)
    assert run.changed[f"{REACHED}outer[1]"] == 0
    assert run.changed[f"{REACHED}outer[1][0]"] == 16


def test_a_list_that_leads_back_to_its_start_is_followed_once(lab: kernellab.Lab) -> None:
    nodes = [torch.tensor([0, value]) for value in range(4)]
    for node, following in zip(nodes, [*nodes[1:], nodes[0]], strict=True):
        node[0] = following.data_ptr()
    out = torch.zeros(1, dtype=torch.int64)
    lab.run(pointers.walk, (1,), nodes[0], out, 9)
    assert out.item() == (0 + 1 + 2 + 3) * 2 + 0


def test_a_block_of_addresses_may_lead_to_many_tensors(lab: kernellab.Lab) -> None:
    tensors = [torch.full((3,), float(i)) for i in range(16)]
    out = torch.zeros(16)
    lab.run(pointers.first_of_each, (1,), table(tensors), out, BLOCK=16)
    assert out.tolist() == list(range(16))


def test_an_address_that_is_computed_leads_to_a_live_tensor_too(lab: kernellab.Lab) -> None:
    tensor = torch.zeros(16)
    run = lab.run(pointers.add_at_shifted, (1,), table([tensor]) >> 4, 5.0, BLOCK=16)
    assert tensor.eq(5).all()
    assert run.changed[f"memory at {tensor.data_ptr():#x}"] == 16


def test_an_access_beyond_a_tensor_behind_a_table_is_an_error(lab: kernellab.Lab) -> None:
    lengths = torch.tensor([64, 65, 64])
    tensors = [torch.zeros(64) for _ in range(3)]
    with pytest.raises(OutOfBounds, match=r"memory reached through ptrs\[1\] out of bounds: element 64 .* 0 to 63"):
        lab.run(pointers.foreach_add, (3,), table(tensors), lengths, 1.0, BLOCK=64)
    assert all(each.eq(0).all() for each in tensors)


def test_an_address_that_no_live_tensor_owns_is_an_error(lab: kernellab.Lab) -> None:
    freed = torch.zeros(1 << 20).data_ptr()
    for _ in range(2):
        with pytest.raises(OutOfBounds, match="lies in no argument of the launch"):
            lab.run(pointers.foreach_add, (1,), torch.tensor([freed]), torch.tensor([4]), 1.0, BLOCK=16)
        with pytest.raises(OutOfBounds, match="lies in no argument of the launch"):
            lab.run(pointers.add_at, (1,), 1 << 40, 4, 1.0, BLOCK=16)


def test_an_argument_that_a_table_names_as_well_is_one_memory(lab: kernellab.Lab) -> None:
    tensor = torch.arange(16.0)
    out = torch.zeros(16)
    run = lab.run(pointers.add_and_copy, (1,), table([tensor]), tensor, out, 1.0, BLOCK=16)
    assert torch.equal(out, torch.arange(16.0) + 1)
    assert torch.equal(out, tensor)
    assert set(run.changed) == {"ptrs", "x", "out"}


def test_a_view_beside_an_argument_of_one_storage_raises_no_alarm(lab: kernellab.Lab) -> None:
    whole = torch.zeros(32)
    out = torch.zeros(16)
    run = lab.run(pointers.add_and_copy, (1,), table([whole[16:]]), whole[:16], out, 1.0, BLOCK=16)
    assert run.findings == ()
    assert whole.tolist() == [0.0] * 16 + [1.0] * 16


def test_addresses_that_a_kernel_stores_are_those_of_the_notebook(lab: kernellab.Lab) -> None:
    x, other, out = torch.zeros(16), torch.zeros(4), torch.zeros(2, dtype=torch.int64)
    lab.run(pointers.pass_addresses_on, (1,), x, table([other]), out)
    assert out.tolist() == [x.data_ptr() + 8, other.data_ptr()]


def test_a_kernel_without_addresses_looks_for_no_tensors(lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    import kernellab.launch.memory

    def refuse(device: str) -> Any:
        raise AssertionError("nobody asked for live tensors")

    monkeypatch.setattr(kernellab.launch.memory, "_owners", refuse)
    x, index, out = torch.arange(16.0), torch.arange(16) % 4, torch.zeros(16)
    lab.run(gather, (1,), x, index, out, BLOCK=16)
    assert torch.equal(out, x[index])


@triton.jit
def gather(x, index, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + tl.load(index + offsets)))


def test_the_card_names_what_is_reached(lab: kernellab.Lab) -> None:
    tensor = torch.zeros(8)
    compiled = lab.compile(pointers.foreach_add, table([tensor]), torch.tensor([8]), 1.0, BLOCK=16)
    words = " ".join(compiled_card(compiled).text().split())
    assert "writes memory through the pointers in ptrs; the launch resolves them" in words
    effects = lab.effects(pointers.foreach_add, table([tensor]), torch.tensor([8]), 1.0, BLOCK=16)
    assert {(site.argument, str(site.kind)) for site in effects.sites if site.is_reached} == {
        (f"{REACHED}ptrs", "read"),
        (f"{REACHED}ptrs", "write"),
    }
    assert f"{REACHED}ptrs  read (line" in effects_card(effects).text()
    assert (effects.reads, effects.mutated) == ({"ptrs", "lengths"}, frozenset())
    assert effects.unknown


def test_the_card_tells_what_changed_behind_addresses(lab: kernellab.Lab) -> None:
    tensors = [torch.zeros(n) for n in (1, 2, 3, 4, 5)]
    bound = lab.bind(pointers.foreach_add)
    with lab.launches.recording() as recorder:
        bound[(5,)](table(tensors), torch.tensor([1, 2, 3, 4, 5]), 1.0, BLOCK=16)
    (record,) = recorder.records.values()
    (note,) = remarks(KernelReport("", "", "", 1, record.compiled, (), 1, record.grid, record.run))
    assert note.startswith(f"changed: {REACHED}ptrs[0] (1 element), {REACHED}ptrs[1] (2 elements), ")
    assert note.endswith(f"{REACHED}ptrs[2] (3 elements), 2 more")


def test_what_a_launch_reaches_is_found_in_every_kind_of_argument(lab: kernellab.Lab) -> None:
    tensors = [torch.zeros(8), torch.nn.Parameter(torch.zeros(8))]
    with torch.no_grad():
        lab.run(pointers.add_at_both, (1,), (tensors[0].data_ptr(), tensors[1].data_ptr()), 1.0, BLOCK=8)
    assert all(tensor.eq(1).all() for tensor in tensors)
