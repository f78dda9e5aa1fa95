"""The memory of a bench, on the CPU."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.checking.comparison import Check, OutputDifference, agree
from kernellab.gpu.driver import DeviceBytes
from kernellab.gpu.ipc import Memory
from kernellab.launch.arguments import TensorSpec
from kernellab.launch.poison import fill
from kernellab.timing.bench_jobs import ExpectedOutput, Setup
from kernellab.timing.bench_memory import BenchMemory, TooLarge, copy_memory

FLOATS = torch.tensor([1.0, -2.0, float("nan"), float("inf")])


def view(storage: int, elements: int = 4) -> TensorSpec:
    return TensorSpec(storage, 0, (elements,), (1,), "float32", 4)


def memory(read: frozenset[int], zeroed: tuple[TensorSpec, ...] = ()) -> BenchMemory:
    """Return a bench on three storages of four floats: the first is only read, the others are written."""
    held = [torch.arange(4.0) + index for index in range(3)]
    memories = tuple(Memory(None, 16, 0, index > 0) for index in range(3))
    setup = Setup("test", 0, memories, read, (view(1), view(2)), zeroed)
    before = {index: held[index].view(torch.uint8).clone() for index in (1, 2)}
    return BenchMemory(setup, [t.view(torch.uint8) for t in held], before, free_bytes=lambda: 1 << 20)


def floats(bench: BenchMemory, index: int) -> list[float]:
    return bench.tensors[index].view(torch.float32).tolist()


def test_what_is_written_and_read_comes_back() -> None:
    bench = memory(read=frozenset({0, 1}))
    for index in (1, 2):
        bench.tensors[index].fill_(7)
    bench.restore()
    assert floats(bench, 1) == [1.0, 2.0, 3.0, 4.0]
    assert floats(bench, 2) != [2.0, 3.0, 4.0, 5.0]


def test_only_what_is_never_read_is_poisoned() -> None:
    bench = memory(read=frozenset({0, 1}))
    bench.poison()
    assert floats(bench, 0) == [0.0, 1.0, 2.0, 3.0]
    assert floats(bench, 1) == [1.0, 2.0, 3.0, 4.0]
    assert all(map(math.isnan, floats(bench, 2)))


def test_room_for_outputs_counts_what_lies_between_their_elements() -> None:
    column = TensorSpec(0, 0, (1000,), (1000,), "float32", 4)
    setup = Setup("test", 0, (Memory(None, 4_000_000, 4096, True),), frozenset(), (column,))
    bench = BenchMemory(setup, [DeviceBytes(4096, 4_000_000)], {}, free_bytes=lambda: 5_000_000)
    assert not bench.keep_outputs()


def test_declared_accumulators_are_zeroed_after_they_are_restored() -> None:
    bench = memory(read=frozenset({1}), zeroed=(view(1),))
    bench.restore()
    assert floats(bench, 1) == [0.0] * 4


def test_equal_outputs_share_a_group() -> None:
    bench = memory(read=frozenset())
    assert bench.group_of_outputs() == 0
    bench.tensors[1].view(torch.float32)[0] += 1e-5
    assert bench.group_of_outputs() == 0
    bench.tensors[1].view(torch.float32)[0] += 1.0
    assert bench.group_of_outputs() == 1


def test_an_element_left_out_is_another_output() -> None:
    bench = memory(read=frozenset())
    assert bench.group_of_outputs() == 0
    bench.tensors[2].view(torch.float32)[3] = float("nan")
    assert bench.group_of_outputs() == 1


def test_differences_name_the_arguments_that_are_compared() -> None:
    bench = memory(read=frozenset())
    bench.setup = replace(bench.setup, names=("dx", "scratch"))
    assert bench.keep_outputs()
    assert bench.differences() == ()
    bench.tensors[1].view(torch.float32)[:2] += torch.tensor([1.0, 2.0])
    bench.tensors[2].view(torch.float32)[3] = math.nan
    assert bench.differences() == (OutputDifference("dx", 2, 4, 2.0), OutputDifference("scratch", 1, 4, None))
    bench.setup = replace(bench.setup, left_out=frozenset({1}))
    assert bench.keep_outputs()
    bench.tensors[2].view(torch.float32)[0] += 5.0
    assert bench.differences() == ()
    assert bench.group_of_outputs() == 0


def test_at_most_four_groups_are_kept_and_one_for_a_comparison() -> None:
    bench = memory(read=frozenset())
    found = []
    for place in range(6):
        bench.tensors[1].view(torch.float32)[0] = 10.0 * place
        found.append(bench.group_of_outputs())
    assert found == [0, 1, 2, 3, None, None]
    assert bench.keep_outputs()
    assert len(bench.groups) == 1


def test_without_room_no_group_is_founded() -> None:
    bench = memory(read=frozenset())
    bench.free_bytes = lambda: 0
    assert bench.group_of_outputs() is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8))
def test_outputs_equal_themselves(values: list[float]) -> None:
    found = torch.tensor([*values, float("nan"), float("inf")])
    assert agree(found, found.clone())


@pytest.mark.parametrize("index", range(4))
def test_a_changed_element_tells_outputs_apart(index: int) -> None:
    other = FLOATS.clone()
    other[index] = 5.0
    assert not agree(other, FLOATS)
    assert not agree(FLOATS, other)


@pytest.mark.parametrize(
    ("dtype", "close", "far"),
    [
        (torch.float32, 1e-4, 1e-2),
        (torch.float16, 5e-3, 5e-2),
        (torch.bfloat16, 2e-2, 0.2),
        (torch.float64, 1e-9, 1e-5),
    ],
)
def test_the_tolerance_is_that_of_the_dtype(dtype: torch.dtype, close: float, far: float) -> None:
    want = torch.linspace(-1, 1, 9, dtype=torch.float64)
    assert agree((want + close).to(dtype), want.to(dtype))
    assert not agree((want + far).to(dtype), want.to(dtype))


def test_of_two_dtypes_the_coarser_one_counts() -> None:
    exact = torch.linspace(1, 2, 1000)
    assert agree(exact, exact.bfloat16())
    assert agree(exact.bfloat16(), exact)
    assert not agree(exact, exact.bfloat16() + 0.2)


def test_integers_agree_exactly_or_not() -> None:
    assert not agree(torch.tensor([1000, 2]), torch.tensor([1001, 2]))


def copies(*, read: frozenset[int], free_bytes: int = 1 << 40, keeps_originals: bool = False) -> BenchMemory:
    """Return copies of two storages of four floats: the second is written."""
    originals = [(torch.arange(4.0) + index).view(torch.uint8) for index in range(2)]
    setup = Setup("test", 0, tuple(Memory(None, 16, 0, index > 0) for index in range(2)), read, (view(1),))
    return copy_memory(setup, originals, keeps_originals=keeps_originals, free_bytes=lambda: free_bytes)


def test_copies_hold_what_the_originals_held() -> None:
    bench = copies(read=frozenset({0, 1}))
    assert floats(bench, 0) == [0.0, 1.0, 2.0, 3.0]
    bench.tensors[1].fill_(7)
    bench.restore()
    assert floats(bench, 1) == [1.0, 2.0, 3.0, 4.0]


def test_a_store_into_a_neighbour_is_damage() -> None:
    bench = copies(read=frozenset({0}))
    assert bench.damages() == ()
    bench.tensors[0][5] += 1
    (damage,) = bench.damages()
    assert (damage.after, damage.before) == (0, 0)


def test_a_store_behind_an_output_is_damage() -> None:
    bench = copies(read=frozenset({0}))
    assert bench.redzones is not None
    bench.redzones.room[bench.redzones.spans[1][1]] ^= 255  # type: ignore[index]
    (damage,) = bench.damages()
    assert (damage.after, damage.past_end_bytes, damage.count) == (1, 0, 1)


def test_what_the_kernel_only_writes_is_not_kept_twice() -> None:
    assert copies(read=frozenset({0})).before == {1: None}


def test_whoever_copies_says_who_is_asked_for_room_later() -> None:
    assert copies(read=frozenset()).free_bytes() == 1 << 40


def test_with_less_room_only_what_is_written_is_copied() -> None:
    zones = 3 * (4 << 20)
    bench = copies(read=frozenset({0}), free_bytes=(zones + 1000) * 4 // 3 - 1000)
    assert bench.redzones is not None
    assert [span is None for span in bench.redzones.spans] == [True, False]


def test_without_room_for_what_is_written_there_is_no_bench() -> None:
    with pytest.raises(TooLarge, match="no room for copies"):
        copies(read=frozenset({0}), free_bytes=1000)


def checked(got: torch.Tensor, want: torch.Tensor, filled: float | None = None, *, read: bool = False) -> Check:
    """Return how an output is compared in a bench with a reference that allows a relative 1e-5."""
    names = [str(tensor.dtype).removeprefix("torch.") for tensor in (got, want)]
    output, value = (TensorSpec(i, 0, tuple(want.shape), (1,), names[i], want.element_size()) for i in range(2))
    output, value = replace(output, storage=0, itemsize=got.element_size()), replace(value, storage=0)
    error = TensorSpec(1, 0, tuple(want.shape), (1,), "float64", 8)
    setup = Setup(
        "test",
        0,
        (),
        frozenset({0} if read else ()),
        (output,),
        (),
        (ExpectedOutput("out", output, value, error, 0.0, filled),),
    )
    held = got.flatten().view(torch.uint8)
    bench = BenchMemory(setup, [held], {0: held.clone()})
    bounds = (want.abs().double() * 1.3e-5 * want.is_floating_point()).nan_to_num(0, 0, 0).view(torch.uint8)
    (check,) = bench.checks([want.flatten().view(torch.uint8), bounds])
    return check


def test_outputs_within_their_bounds_equal_the_reference() -> None:
    want = torch.tensor([1.0, float("nan"), float("inf"), 1e-9]).double()
    assert checked(torch.tensor([1.00001, float("nan"), float("inf"), 1e-9]), want).equal


def test_a_difference_is_told_by_count_and_size() -> None:
    got, want = torch.tensor([1.0, 2.5, float("inf"), 4.0]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    found = checked(got[:2].clone(), want[:2].clone())
    assert found.text == "out differs from the reference in 1 of 2 elements, max error 0.5"
    assert checked(got, want).max_error == float("inf")


def poisoned() -> torch.Tensor:
    values = torch.tensor([1.0, 2.0, 3.0, 4.0])
    fill(values[2:])
    return values


def test_elements_never_written_differ_unless_the_output_was_filled_with_what_they_should_hold() -> None:
    want = torch.tensor([1.0, 2.0, 0.0, 0.0])
    left_out = checked(poisoned(), want)
    assert (left_out.mismatched, left_out.never_written) == (2, 2)
    assert left_out.text == "out differs from the reference in 2 of 4 elements, 2 of them never written"
    assert checked(poisoned(), want, 0.0).mismatched == 0
    assert checked(poisoned(), want, 1.0).mismatched == 2


def test_integers_agree_exactly_and_what_looks_like_the_pattern_is_none_where_the_kernel_reads() -> None:
    want = torch.tensor([-1, 2**60])
    assert checked(want.clone(), want).equal
    assert checked(want + torch.tensor([0, 1]), want).mismatched == 1
    fill(want)
    assert checked(want.clone(), want, read=True).equal
