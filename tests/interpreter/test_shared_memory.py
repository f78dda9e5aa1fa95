"""The arguments of a launch in memory that another process maps."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl

from kernellab.errors import OutOfBounds
from kernellab.interpreter.runner import Interpreter, in_shared_memory
from tests.labs import shared_interpreter

GRID = (1, 1, 1)
LARGE = 1 << 22


@pytest.fixture(scope="module")
def interpreter() -> Interpreter:
    return shared_interpreter()


@triton.jit
def add_one(x, n, stride, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    pointers = x + offs * stride
    tl.store(pointers, tl.load(pointers, mask=offs < n) + 1, mask=offs < n)


@triton.jit
def copy_from(x, out, begin, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out + offs, tl.load(x + begin + offs, mask=offs < n), mask=offs < n)


@triton.jit
def add_one_to_bytes(x, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    pointers = x.to(tl.pointer_type(tl.uint8)) + offs
    tl.store(pointers, tl.load(pointers, mask=offs < n) + 1, mask=offs < n)


@triton.jit
def follow(table, out, n):
    tl.store(out, tl.load(tl.load(table).to(tl.pointer_type(tl.float32))))


def test_memory_that_a_profiler_still_looks_at_is_given_back_without_an_error() -> None:
    held = []
    with in_shared_memory({"x_ptr": torch.ones(4)}, GRID) as shared:
        held.append(shared._worker_bytes(0))  # as a profiler holds it that keeps the frame of another thread
    assert held[0].size >= 16


@pytest.mark.parametrize(
    ("view", "elements"),
    [
        (lambda whole: whole[1000:1064], 64),
        (lambda whole: whole[:: LARGE // 64], 64),
        (lambda whole: whole[5:6].expand(LARGE), 1),
        (lambda whole: whole.reshape(64, -1)[:, :10], 640),
    ],
)
def test_of_a_large_storage_the_elements_of_views_alone_are_copied(
    view: Callable[[torch.Tensor], torch.Tensor], elements: int
) -> None:
    whole = torch.zeros(LARGE)
    with in_shared_memory({"x": view(whole), "n": 3}, GRID) as shared:
        assert shared.copied_bytes == 4 * elements
        assert os.stat(shared.launch.block.path).st_blocks * 512 <= 64 * 3 * 4096
        assert shared.launch.block.size_bytes > 4 * LARGE


@pytest.mark.parametrize("view", [lambda whole: whole, lambda whole: whole[: LARGE // 2], lambda whole: whole[1::2]])
def test_a_storage_that_is_mostly_elements_is_copied_whole(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with in_shared_memory({"x": view(torch.zeros(LARGE))}, GRID) as shared:
        assert shared.copied_bytes == 4 * LARGE


@pytest.mark.parametrize(("begin", "stride"), [(1000, 1), (7, LARGE // 64), (3, 16)])
def test_a_view_of_a_large_storage_changes_alone(interpreter: Interpreter, begin: int, stride: int) -> None:
    whole = torch.arange(LARGE, dtype=torch.float32)
    expected = whole.clone()
    expected[begin::stride][:60] += 1
    run = interpreter.run(add_one, {"x": whole[begin::stride][:64], "n": 60, "stride": stride, "BLOCK": 64}, GRID)
    assert torch.equal(whole, expected)
    assert run.changed == {"x": 60}
    assert run.findings == run.notes == ()


def test_a_launch_that_leaves_its_view_finds_what_lies_there(interpreter: Interpreter) -> None:
    whole, out = torch.arange(LARGE, dtype=torch.float32), torch.zeros(64)
    arguments = {"x": whole[1000:1064], "out": out, "begin": 32, "n": 64, "BLOCK": 64}
    run = interpreter.run(copy_from, arguments, GRID)
    assert torch.equal(out, whole[1032:1096])
    assert [(f.kind, f.argument) for f in run.findings] == [("outside_view", "x")]
    (note,) = run.notes
    assert "made again on all 16 MiB" in note


def test_a_store_outside_of_the_view_changes_the_large_storage(interpreter: Interpreter) -> None:
    whole = torch.zeros(LARGE)
    run = interpreter.run(add_one, {"x": whole[:32], "n": 64, "stride": 1, "BLOCK": 64}, GRID)
    assert whole.sum() == 64
    assert {f.kind for f in run.findings} == {"outside_view"}
    assert run.changed == {"x": 32}


def test_an_access_between_the_elements_of_a_large_view_is_found(interpreter: Interpreter) -> None:
    whole = torch.zeros(LARGE)
    run = interpreter.run(add_one, {"x": whole.reshape(-1, 1024)[:, :10], "n": 16, "stride": 1, "BLOCK": 16}, GRID)
    assert whole.sum() == 16
    assert {f.kind for f in run.findings} == {"outside_view"}


def test_views_of_one_large_storage_stay_so(interpreter: Interpreter) -> None:
    whole = torch.arange(LARGE, dtype=torch.float32)
    arguments = {"x": whole[1000:1064], "out": whole[1032:1096], "begin": 0, "n": 32, "BLOCK": 64}
    run = interpreter.run(copy_from, arguments, GRID)
    assert {f.kind for f in run.findings} == {"overlap"}
    assert run.changed == {"x": 32, "out": 32}
    assert torch.equal(whole[1032:1064], whole[1000:1032])
    with pytest.raises(OutOfBounds, match="inside out"):
        interpreter.run(copy_from, {**arguments, "out": whole[2000:2064], "begin": 1000}, GRID)


def test_an_address_in_a_large_storage_outside_of_its_views_is_followed(interpreter: Interpreter) -> None:
    whole, out = torch.arange(LARGE, dtype=torch.float32), torch.zeros(1)
    table = torch.tensor([whole.data_ptr() + 4 * 123456])
    run = interpreter.run(follow, {"table": table, "out": out, "n": whole[:4]}, GRID, follows=True)
    assert out.item() == 123456
    assert {f.kind for f in run.findings} == {"outside_view"}


def test_bytes_of_wider_elements_are_kept_apart_in_a_large_storage(interpreter: Interpreter) -> None:
    whole = torch.zeros(LARGE, dtype=torch.int32)
    run = interpreter.run(add_one_to_bytes, {"x": whole[100:108], "n": 32, "BLOCK": 32}, GRID)
    assert whole[100:108].tolist() == [0x01010101] * 8
    assert run.findings == ()


@pytest.mark.slow
def test_a_launch_of_much_memory_says_what_it_copies(interpreter: Interpreter) -> None:
    run = interpreter.run(add_one, {"x": torch.zeros(1 << 26), "n": 4, "stride": 1, "BLOCK": 4}, GRID)
    assert any("256 MiB of arguments were copied" in note for note in run.notes)
