"""Whose memory addresses lead to, and addresses in copies of that memory."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import kernellab
from kernellab.gpu.ipc import Memory, Tables, move_tables, moves_of, with_moved_numbers
from kernellab.ir.effects import REACHED, Effects
from kernellab.launch.arguments import ScalarSpec, TensorSpec, TupleSpec
from kernellab.launch.memory import (
    NOTHING,
    Copies,
    _live_tensors,
    apart,
    move_addresses,
    moved_address,
    reached_memory,
    words_of,
)
from kernellab.timing.bench_jobs import Setup
from kernellab.timing.bench_memory import copy_memory
from tests.kernels import pointers
from tests.labs import lab_fixture

BYTES = torch.uint8
lab = lab_fixture("cuda:90")


@pytest.fixture(scope="module")
def foreach(lab: kernellab.Lab) -> Effects:
    return lab.effects(pointers.foreach_add, torch.zeros(4).long(), torch.zeros(4).long(), 1.0, BLOCK=16)


@pytest.fixture(scope="module")
def by_number(lab: kernellab.Lab) -> Effects:
    return lab.effects(pointers.add_at, torch.zeros(16).data_ptr(), 16, 1.0, BLOCK=16)


def table(*tensors: torch.Tensor) -> torch.Tensor:
    return torch.tensor([tensor.data_ptr() for tensor in tensors])


def test_all_of_a_storage_is_reached_under_the_first_address_that_leads_there(foreach: Effects) -> None:
    whole, other = torch.zeros(4, 8, dtype=torch.float16), torch.zeros(3)
    ptrs = table(whole[2], other, whole[1])
    found = reached_memory({"ptrs": ptrs, "lengths": torch.zeros(3).long()}, foreach, "cpu")
    first, second = f"{REACHED}ptrs[0]", f"{REACHED}ptrs[1]"
    assert {name: (tensor.dtype, tensor.numel()) for name, tensor in found.tensors.items()} == {
        first: (torch.float16, 32),
        second: (torch.float32, 3),
    }
    assert (found.tables, found.mutated, found.read) == ({"ptrs"}, {first, second}, {first, second})
    assert [entry[::2] for entry in found.addresses_in("ptrs", ptrs)] == [(0, 32), (1, 0), (2, 16)]


def test_nothing_is_reached_without_addresses_and_none_by_numbers_that_are_none(foreach: Effects) -> None:
    assert reached_memory({"x": torch.zeros(3)}, Effects((), ()), "cpu") is NOTHING
    numbers = torch.tensor([0, 1, -1, 1 << 62, torch.iinfo(torch.int64).max])
    assert reached_memory({"ptrs": numbers, "lengths": numbers}, foreach, "cpu").tensors == {}


def test_tensors_that_others_only_view_or_hide_are_found(foreach: Effects) -> None:
    module = torch.nn.Linear(4, 4)
    held = {"inside": [torch.zeros(5)[2:]]}
    ptrs = table(module.weight, held["inside"][0])
    found = reached_memory({"ptrs": ptrs, "lengths": ptrs}, foreach, "cpu")
    assert [tensor.numel() for tensor in found.tensors.values()] == [16, 5]


def test_what_an_argument_covers_is_no_memory_apart(foreach: Effects) -> None:
    whole, half = torch.zeros(8), torch.zeros(8)
    ptrs = table(whole, half)
    arguments = {"ptrs": ptrs, "lengths": ptrs, "x": whole, "y": half[:4]}
    found = reached_memory(arguments, foreach, "cpu")
    assert list(apart(found.tensors, arguments)) == [f"{REACHED}ptrs[1]"]


@pytest.mark.slow
def test_copies_of_arguments_hold_addresses_of_copies(foreach: Effects, by_number: Effects) -> None:
    x, y = torch.ones(4), torch.ones(6)
    given = {"ptrs": table(x, y[2:]), "lengths": torch.tensor([4, 4])}
    copies = Copies(given, foreach, "cpu")
    first, second = copies.reached.values()
    assert copies.arguments["ptrs"].tolist() == [first.data_ptr(), second.data_ptr() + 8]
    assert not {x.data_ptr(), y.data_ptr()} & {first.data_ptr(), second.data_ptr()}
    copies.take_back_addresses()
    assert torch.equal(copies.arguments["ptrs"], given["ptrs"])
    number = Copies({"address": y.data_ptr() + 4, "n": 2}, by_number, "cpu")
    assert number.arguments["address"] == number.reached[f"{REACHED}address"].data_ptr() + 4
    assert number.arguments["n"] == 2


def test_words_are_what_lies_aligned_between_first_and_last_element() -> None:
    memory = torch.arange(64, dtype=BYTES)
    assert words_of(memory[3:40]).data_ptr() == memory.data_ptr() + 8
    assert words_of(memory[3:40]).numel() == 4
    grid = torch.arange(12).reshape(3, 4)
    assert words_of(grid.t()[1:3]).tolist() == list(range(1, 11))
    assert words_of(torch.empty(0, 3).long()).numel() == 0


def test_only_addresses_inside_a_memory_move() -> None:
    moves = ((1000, 16, 5000), (2000, 8, 100))
    words = torch.tensor([999, 1000, 1015, 1016, 2007, 2008, -5, 0])
    move_addresses(words, moves)
    assert words.tolist() == [999, 5000, 5015, 1016, 107, 2008, -5, 0]
    assert [moved_address(each, moves) for each in (999, 1000, 1015, 1016, 2007, 2008)] == [
        *(999, 5000, 5015, 1016, 107, 2008)
    ]


def in_bytes(*values: torch.Tensor) -> list[torch.Tensor]:
    return [value.view(BYTES) for value in values]


def test_a_word_that_two_views_of_a_table_share_is_moved_once() -> None:
    memories = (Memory(None, 24, 1000, False, True), Memory(None, 16, 2000, True))
    tensors = in_bytes(torch.tensor([2000, 2008, 7]), torch.zeros(4))
    chain = (*moves_of(memories, tensors), (tensors[1].data_ptr(), 16, 1))  # where a second move would lead on
    views = (TensorSpec(0, 0, (2,), (1,), "int64", 8), TensorSpec(0, 8, (2,), (1,), "int64", 8))
    move_tables(Tables(views), tensors, chain)
    at = tensors[1].data_ptr()
    assert tensors[0].view(torch.int64).tolist() == [at, at + 8, 7]


def test_numbers_that_are_addresses_move_and_others_stay() -> None:
    tables, moves = Tables((), frozenset({"address", "pair[1]"})), ((1000, 16, 5000),)
    pair = TupleSpec((ScalarSpec(1004), ScalarSpec(1004)))
    assert with_moved_numbers("address", ScalarSpec(1004), tables, moves) == ScalarSpec(5004)
    assert with_moved_numbers("n", ScalarSpec(1004), tables, moves) == ScalarSpec(1004)
    assert with_moved_numbers("pair", pair, tables, moves) == TupleSpec((ScalarSpec(1004), ScalarSpec(5004)))


@pytest.mark.parametrize("keeps_originals", [False, True])
def test_a_bench_restores_what_is_reached_and_lets_its_tables_point_to_copies(keeps_originals: bool) -> None:
    data, addresses = torch.arange(4.0), torch.tensor([0, 0])
    addresses[0] = data.data_ptr() + 4
    before = addresses.clone()
    originals = in_bytes(addresses, data)
    memories = tuple(
        Memory(None, each.numel(), each.data_ptr(), True, index == 0) for index, each in enumerate(originals)
    )
    view = TensorSpec(0, 0, (2,), (1,), "int64", 8)
    setup = Setup("test", 0, memories, frozenset({0, 1}), (view,), tables=Tables((view,)))
    bench = copy_memory(setup, originals, keeps_originals=keeps_originals, free_bytes=lambda: 1 << 40)
    for _ in range(2):
        assert bench.tensors[0].view(torch.int64).tolist() == [bench.tensors[1].data_ptr() + 4, 0]
        assert bench.tensors[1].view(torch.float32).tolist() == [0.0, 1.0, 2.0, 3.0]
        for tensor in bench.tensors:
            tensor.fill_(7)
        bench.restore()
    assert torch.equal(addresses, before)
    assert bench.damages() == ()


def test_a_table_is_copied_where_only_what_is_written_is() -> None:
    data, addresses = torch.arange(4.0), torch.zeros(2).long()
    addresses[1] = data.data_ptr()
    originals = in_bytes(addresses, data)
    memories = (Memory(None, 16, originals[0].data_ptr(), False, True), Memory(None, 16, data.data_ptr(), False))
    tables = Tables((TensorSpec(0, 0, (2,), (1,), "int64", 8),))
    setup = Setup("test", 0, memories, frozenset({0, 1}), (), tables=tables)
    room = 2 * (4 << 20) + 2000
    bench = copy_memory(setup, originals, keeps_originals=False, free_bytes=lambda: room * 4 // 3)
    assert bench.redzones is not None
    assert [span is None for span in bench.redzones.spans] == [False, True]
    assert bench.tensors[0].view(torch.int64).tolist() == [0, data.data_ptr()]


@pytest.mark.slow
def test_sliders_work_on_copies_of_what_is_reached(lab: kernellab.Lab) -> None:
    tensors = [torch.zeros(8), torch.zeros(8)]
    arguments: dict[str, Any] = {"ptrs": table(*tensors), "lengths": torch.tensor([8, 8]), "step": 1.0}
    panel = lab.explore(pointers.foreach_add, (2,), *arguments.values(), BLOCK=[8, 16])
    try:
        assert all(tensor.eq(0).all() for tensor in tensors)
    finally:
        panel.close()


def test_a_fake_tensor_that_somebody_holds_is_passed_over_without_a_warning() -> None:
    with FakeTensorMode():
        held = torch.zeros(64)
    known = torch.zeros(64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [tensor for _, _, tensor in _live_tensors("cpu")]
    assert any(tensor is known for tensor in found)
    assert not any(tensor is held for tensor in found)
