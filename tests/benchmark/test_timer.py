"""What implementations of a case are compared by, and what becomes of their failures."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernellab.benchmark.timer import Contestant, GpuArena, call_hooks, difference, returned, run_function
from kernellab.errors import RunError
from kernellab.measure.comparison import Value


def compared(outputs: list[Any], reference: list[Any], *names: str) -> str:
    return difference(outputs, [Value(each) for each in reference], names, "torch")


def test_outputs_that_agree_differ_in_nothing() -> None:
    assert compared([torch.ones(4)], [torch.ones(2, 2, dtype=torch.float64)], "out") == ""


def test_a_difference_names_the_output() -> None:
    assert compared([torch.ones(4), torch.zeros(4)], [torch.ones(4)] * 2, "a", "b") == "b differs from that of torch"
    assert "(3,), and torch has (4,)" in compared([torch.ones(3)], [torch.ones(4)], "a")


def test_another_number_of_outputs_is_said() -> None:
    found = compared([torch.ones(4)], [torch.ones(4)] * 2, "out")
    assert found == "1 outputs meet 2 of torch; the kernel writes out, in this order"


def test_outputs_without_names_are_counted() -> None:
    assert compared([torch.ones(4)], [torch.zeros(4)]) == "output 0 differs from that of torch"
    assert compared([torch.ones(4)] * 2, [torch.ones(4)] * 2, "only") == ""


def test_what_a_function_returns_are_tensors() -> None:
    written = torch.ones(2)
    assert returned(None, [written]) == [written]
    with pytest.raises(RunError, match="returns float"):
        returned(1.5, [])


def test_a_failing_function_is_told_in_its_own_words() -> None:
    def broken(x: Any) -> Any:
        raise ZeroDivisionError("no more")

    with pytest.raises(RunError, match="peer raised ZeroDivisionError: no more"):
        run_function(Contestant("peer", function=broken), {"x": 1})


def test_what_is_changed_in_place_is_brought_back_at_the_end() -> None:
    x = torch.ones(4)
    watch: Any = None  # nothing is timed
    arena = GpuArena(watch, nullcontext, {"x": x}, {"x": x}, {"x": x}, frozenset({"x"}))
    x.add_(1)
    arena.close()
    assert torch.equal(x, torch.ones(4))


def test_a_failing_hook_is_told_in_its_own_words() -> None:
    def hook(named: dict[str, Any]) -> None:
        raise KeyError("BLOCK")

    launch: Any = SimpleNamespace(before=(hook,), arguments={"x": 1}, options={"num_warps": 4})
    with pytest.raises(RunError, match="pre_hook of a config raised KeyError"):
        call_hooks(launch)
