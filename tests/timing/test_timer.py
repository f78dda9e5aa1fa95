"""What implementations of a case are compared by, and what becomes of their failures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernellab.checking.comparison import ExpectedValue
from kernellab.errors import RunError
from kernellab.launch.arguments import CannotExport
from kernellab.timing.bench_jobs import LaunchTimes
from kernellab.timing.launches import Implementation, call_hooks
from kernellab.timing.stopwatch import DeviceState, Turn
from kernellab.timing.timer import TRIALS_OFF, GpuTimer, difference, returned_outputs, run_function
from tests.timing.test_stopwatch import Device


def compared(outputs: list[Any], reference: list[Any], *names: str) -> str:
    return difference(outputs, [ExpectedValue(each) for each in reference], names, "torch")


def test_outputs_that_agree_differ_in_nothing() -> None:
    assert compared([torch.ones(4)], [torch.ones(2, 2, dtype=torch.float64)], "out") == ""


def test_a_difference_names_the_output() -> None:
    other = torch.tensor([1.0, 3.0, 1.0, 0.5])
    found = compared([torch.ones(4), other], [torch.ones(4)] * 2, "a", "b")
    assert found == "b differs from that of torch in 2 of 4 elements, by up to 2"
    assert "(3,), and torch has (4,)" in compared([torch.ones(3)], [torch.ones(4)], "a")


def test_another_number_of_outputs_is_said() -> None:
    found = compared([torch.ones(4)], [torch.ones(4)] * 2, "out")
    assert found == "1 output against 2 of torch; the kernel writes out, in this order"


def test_outputs_without_names_are_counted() -> None:
    found = compared([torch.ones(4)], [torch.zeros(4)])
    assert found == "output 0 differs from that of torch in 4 of 4 elements, by up to 1"
    assert compared([torch.ones(4)] * 2, [torch.ones(4)] * 2, "only") == ""


def test_what_a_function_returns_are_tensors() -> None:
    written = torch.ones(2)
    assert returned_outputs(None, [written]) == [written]
    with pytest.raises(RunError, match="returns float"):
        returned_outputs(1.5, [])


def test_a_failing_function_is_told_in_its_own_words() -> None:
    def broken(x: Any) -> Any:
        raise ZeroDivisionError("no more")

    with pytest.raises(RunError, match="peer raised ZeroDivisionError: no more"):
        run_function(Implementation("peer", function=broken), {"x": 1})


def test_what_is_changed_in_place_is_brought_back_at_the_end() -> None:
    x = torch.ones(4)
    watch: Any = None  # nothing is timed
    timer = GpuTimer(watch, nullcontext, {"x": x}, {"x": x}, {"x": x}, frozenset({"x"}))
    x.add_(1)
    timer.close()
    assert torch.equal(x, torch.ones(4))


def test_a_failing_hook_is_told_in_its_own_words() -> None:
    def hook(named: dict[str, Any]) -> None:
        raise KeyError("BLOCK")

    launch: Any = SimpleNamespace(before=(hook,), arguments={"x": 1}, options={"num_warps": 4})
    with pytest.raises(RunError, match="pre_hook of a config raised KeyError"):
        call_hooks(launch, launch.arguments)


@dataclass(slots=True)
class TwoProcesses:
    """A device that two processes time: in the worker, kernels take ``there_ms``, here a launch takes 0.04 ms."""

    there_ms: float = 0.04
    unreachable: tuple[str, ...] = ()
    log: list[str] = field(default_factory=list)
    device: Device = field(default_factory=Device)

    def measure(self, implementation: Implementation, runs: int, stop_above_ms: float | None) -> LaunchTimes:
        if implementation.name in self.unreachable:
            raise CannotExport(f"{implementation.name} cannot be shared")
        return LaunchTimes((self.there_ms,) * runs)

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        self.log.append(" ".join(each.name for each in implementations))
        return [tuple(self.there_ms + i / 1e6 for i in range(rounds)) for _ in implementations]

    def close(self) -> None:
        self.log.append("close")

    def timer(self, *implementations: Implementation) -> GpuTimer:
        bench: Any = self
        timer = GpuTimer(
            self.device.watch(), nullcontext, {}, {}, {}, frozenset(), bench, read_state=lambda: DeviceState(1980, 41)
        )
        for each in implementations:
            timer._turns[id(each)] = Turn(self.device.launch(each.name))
            if each.launch is not None:
                timer.load_in_worker(each)
        return timer


LAUNCH: Any = SimpleNamespace(before=())
ADD, MUL, TORCH = Implementation("add", LAUNCH), Implementation("mul", LAUNCH), Implementation("torch", function=min)


def test_kernels_are_timed_by_the_worker_and_functions_here_with_one_kernel_that_both_time() -> None:
    both = TwoProcesses(there_ms=0.05)
    timer = both.timer(ADD, MUL, TORCH)
    torch_ms, add_ms, mul_ms = timer.interleave([TORCH, ADD, MUL], 4)
    assert both.log == ["add mul"]
    assert sorted({each for each in both.device.log if each != "flush"}) == ["add", "torch"]
    assert torch_ms == pytest.approx((0.04,) * 4)
    assert add_ms == mul_ms == pytest.approx((0.05,) * 4, rel=1e-3)
    entry = timer.clocks()
    assert entry is not None
    assert (entry.entry, entry.rounds) == ("add", 4)
    assert entry.ratio == pytest.approx(0.8, rel=1e-3)
    assert timer.state == DeviceState(1980, 41)


@pytest.mark.parametrize("implementations", [(ADD, MUL), (TORCH,)])
def test_one_clock_needs_no_reference_entry(implementations: tuple[Implementation, ...]) -> None:
    both = TwoProcesses()
    timer = both.timer(*implementations)
    timer.interleave(implementations, 2)
    assert timer.clocks() is None
    assert timer.state == DeviceState(1980, 41)
    assert "add" not in both.device.log


def test_a_kernel_that_the_worker_cannot_reach_is_timed_here_and_says_why() -> None:
    both = TwoProcesses(unreachable=("add",))
    timer = both.timer(ADD, MUL)
    timer.interleave([ADD, MUL], 2)
    assert both.log == ["mul"]
    assert sorted({each for each in both.device.log if each != "flush"}) == ["add", "mul"]
    assert [timer.why_here(each) for each in (ADD, MUL)] == ["add cannot be shared", ""]
    assert timer.clocks() is not None


def test_without_trial_launches_all_is_timed_here() -> None:
    both = TwoProcesses()
    timer = both.timer()
    timer.bench = None
    timer.load_in_worker(ADD)
    timer._turns[id(ADD)] = Turn(both.device.launch("add"))
    assert timer.interleave([ADD], 2)[0] == pytest.approx((0.04,) * 2)
    assert timer.why_here(ADD) == TRIALS_OFF
