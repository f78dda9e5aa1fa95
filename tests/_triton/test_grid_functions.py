"""Which grid functions only compute, and that remembered extents are those of the function."""

from __future__ import annotations

import math
from collections import UserDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kernellab._triton.grid_functions import GridMemos, values_reader
from tests._triton.conftest import Bind, DirectDriver
from tests._triton.test_guarded import tensor, warm
from tests.launch import kernels

COUNT = 1000
TENSOR = torch.ones(8)
CALLS: list[int] = []
calls = 0


def of_size(size: Any) -> Any:
    """A grid function whose code all sizes share."""
    return lambda meta: (triton.cdiv(size, meta["BLOCK"]),)


def counting(meta: Any) -> tuple[int]:
    global calls  # noqa: PLW0603 - an effect
    calls += 1
    return (calls,)


def several(meta: Any) -> tuple[int, int]:
    rows = triton.next_power_of_2(COUNT)
    return rows // meta["BLOCK"], min(COUNT, 3)


def closing(meta: Any) -> tuple[int]:
    count = 3

    def inner() -> int:
        return count

    return (inner(),)


def by_names_in_variables(meta: Any) -> tuple[int]:
    size, block = "n", "BLOCK"
    return (triton.cdiv(meta[size], meta[block]),)


def by_names_of_the_entries(meta: Any) -> tuple[int]:
    size, block = meta
    return (triton.cdiv(meta[size], meta[block]),)


def in_a_loop(meta: Any) -> tuple[int]:
    total = 1
    for name in ("n",):
        total = total * meta[name]
    return (total,)


def by_members_of_a_set(meta: Any) -> tuple[int]:
    total = 1
    for name in meta:
        if name in {"n"}:
            total = total * meta[name]
    return (total,)


COMPUTING: list[Callable[[Any], Any]] = [
    lambda meta: (triton.cdiv(COUNT, meta["BLOCK"]),),
    lambda meta: (COUNT // meta["BLOCK"], tl.cdiv(COUNT, 3)),
    lambda meta: (max(COUNT, 2), 1, 1),
    lambda meta: (COUNT if meta["BLOCK"] > 3 else 2 * COUNT,),
    several,
]
OTHERS: list[Callable[..., Any]] = [
    lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),),
    lambda meta: (meta.get("BLOCK"),),
    lambda meta: (TENSOR.numel(),),
    lambda meta: (TENSOR.shape[0],),
    lambda meta: (math.ceil(COUNT / meta["BLOCK"]),),
    lambda meta: (CALLS.append(1) or 1,),
    lambda meta: (len(CALLS) + 1,),
    lambda meta, count=COUNT: (count,),
    lambda *meta: (COUNT,),
    lambda meta: (sorted(meta, key=lambda name: COUNT)[0],),
    lambda meta: (meta[max(meta)],),
    lambda meta: meta,
    by_names_in_variables,
    by_names_of_the_entries,
    in_a_loop,
    by_members_of_a_set,
    counting,
    closing,
]


@pytest.mark.parametrize("grid", COMPUTING)
def test_a_grid_function_that_only_computes_has_values(grid: Any) -> None:
    assert values_reader(grid, {"BLOCK"})(grid) == ((COUNT,))


@pytest.mark.parametrize("grid", OTHERS)
def test_a_grid_function_that_may_do_something_else_has_none(grid: Any) -> None:
    assert values_reader(grid, {"BLOCK"})(grid) is None


def test_equal_code_with_other_integers_has_other_extents() -> None:
    memos = GridMemos({"BLOCK"})
    first, second = of_size(100), of_size(200)
    assert (memos.evaluate(first, {"BLOCK": 10}), memos.evaluate(second, {"BLOCK": 10})) == ((10,), (20,))
    (memo,) = memos.by_code.values()
    assert [memo.extents[memo.values(grid)] for grid in (first, second)] == [(10,), (20,)]


@pytest.mark.parametrize("size", [100.0, True, torch.tensor(100), "100"])
def test_a_variable_that_is_no_integer_is_not_looked_up(size: Any) -> None:
    read = values_reader(of_size(100), {"BLOCK"})
    assert read(of_size(100)) == (100,)
    assert read(of_size(size)) is None


def test_a_function_of_the_module_that_was_replaced_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = of_size(100)
    read = values_reader(grid, {"BLOCK"})
    monkeypatch.setattr(triton, "cdiv", lambda *sizes: 7)
    assert read(grid) is None


def test_a_variable_without_a_value_in_a_branch_not_taken_is_not_asked_for() -> None:
    def grid(meta: Any) -> tuple[int]:
        return (2,) if meta["BLOCK"] == 4 else (later,)

    memos = GridMemos({"BLOCK"})
    assert memos.evaluate(grid, {"BLOCK": 4}) == (2,)
    later = 3
    assert memos.evaluate(grid, {"BLOCK": 8}) == (3,)


def test_memos_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernellab._triton.grid_functions._MOST_REMEMBERED", 4)
    memos = GridMemos({"BLOCK"})
    for size in range(1, 30):
        memos.evaluate(of_size(size), {"BLOCK": 1})
        scope: dict[str, Any] = {}
        exec(f"grid = lambda meta: ({size},)", scope)
        assert memos.evaluate(scope["grid"], {"BLOCK": 1}) == (size,)
    assert len(memos.by_code) <= 4
    assert all(len(memo.extents) <= 4 for memo in memos.by_code.values())


def count_call(size: int) -> int:
    CALLS.append(size)
    return size


def test_learnt_launches_call_a_computing_grid_function_once_per_size(
    direct: tuple[Bind, DirectDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernellab._triton.grid_functions.PURE", (count_call,))
    bind, driver = direct
    bound, runtime = bind(kernels.anything)
    warm(bound, tensor(), 1, 2, BLOCK=4)
    grids, slow = [], runtime.slow
    CALLS.clear()
    for size in (3, 3, 5, 3, 5):
        bound[grid_of(size)](tensor(), 1, 2, BLOCK=4)
        grids.append(driver.direct[-1][:3])
    assert [grid[0] for grid in grids] == [3, 3, 5, 3, 5]
    assert CALLS == [3, 5]
    assert runtime.slow == slow


def grid_of(size: int) -> Any:
    return lambda meta: (count_call(size),)


def test_a_misspelt_key_is_a_key_error_with_the_names_of_the_arguments() -> None:
    with pytest.raises(KeyError, match="BLOK") as caught:
        GridMemos(()).evaluate(lambda meta: (meta["BLOK"],), {"n": 5, "BLOCK": 16})
    assert caught.value.__notes__ == ["A grid function gets the arguments of its launch by name; here: n, BLOCK."]


def test_a_key_that_another_mapping_lacks_is_no_argument() -> None:
    sizes: dict[str, int] = {}
    meta = {"n": 5, "BLOCK": 16, "names": {"a": "b"}}

    def grid_by_helper(meta: Any) -> tuple[int]:
        return (entry_of(meta, "BLOK"),)

    of_others: list[Any] = [
        lambda meta: (sizes["BLOK"],),
        lambda meta: (triton.cdiv(meta["n"], sizes["BLOK"]),),
        lambda meta: (meta["names"]["BLOK"],),
        lambda meta: (UserDict(meta)["BLOK"],),
        lambda meta: (entry_of(sizes, "BLOK"),),
    ]
    of_meta: list[Any] = [
        lambda meta: (triton.cdiv(meta["n"], meta["BLOK"]),),
        lambda meta: (sizes.get("x", 1) + meta["BLOK"],),
        lambda meta: (meta["BLO" + "K".upper()],),
        lambda meta: tuple(meta[name] for name in ("BLOK",)),
        grid_by_helper,
    ]
    for grids, has_note in ((of_others, False), (of_meta, True)):
        for grid in grids:
            with pytest.raises(KeyError, match="BLOK") as caught:
                GridMemos(()).evaluate(grid, meta)
            assert hasattr(caught.value, "__notes__") == has_note


def entry_of(entries: Any, name: str) -> Any:
    return entries[name]
