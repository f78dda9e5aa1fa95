"""The gate in a process of an executor: what travels, the verdict that comes back, and errors of the other side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import GateFailed, RunError, UsageError
from kernellab.launch.calls import UserCall
from kernellab.pytest_plugin import KernelGate
from kernellab.timing.gate import GateVerdict
from kernellab.timing.launches import Implementation
from kernellab.upgrade.cluster_gate import gate_elsewhere
from kernellab.upgrade.gate_result import GateResult
from kernellab.upgrade.gating import Against, GateOptions
from kernellab.views.cards.upgrade import gate_card
from tests.labs import lab_fixture
from tests.tune.cluster.cpu_device import MODEL, cpu_environment, no_environment, session_here
from tests.tune.cluster.dask_client import dask_client, gpu_client
from tests.upgrade.kernels import double, grid, scale

N, BLOCK = 4096, 1024
lab = lab_fixture("cuda:90", "function")


@triton.jit
def far_away(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets + 1000000000000))


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def gate(lab: kernellab.Lab, executor: Any, against: Against, factor: float = 2.0, **options: Any) -> GateResult:
    """Gate ``scale`` as `Lab.gate` does, but for who counts as the owner of a GPU."""
    x = torch.rand(N)
    later = UserCall(lab.bind(scale), grid, (x, torch.zeros(N), N, factor), {"BLOCK": BLOCK})
    opened = (cpu_environment, session_here)
    return gate_elsewhere(lab.session(), later, against, GateOptions(**options), executor, opened)


@dataclass
class FormulaTimer:
    """Stands in for the timer of a GPU: a launch of ``scale`` takes as long as that of ``double``, and ``tax`` more."""

    tax: float
    difference: str = ""
    launched: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    def try_out(self, side: Implementation) -> str:
        """Find the difference in the outputs of ``scale``."""
        return self.difference if side.name == "scale" else ""

    def load_in_worker(self, side: Implementation) -> None:
        """Load nothing."""

    def why_here(self, side: Implementation) -> str:
        """Say nothing."""
        return ""

    def interleave(self, pair: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of both sides, in turns."""
        for _ in range(rounds):
            self.launched += [side.name for side in pair]
        return [(1.0 + (self.tax if side.name == "scale" else 0.0),) * rounds for side in pair]

    def close(self) -> None:
        """Hold nothing."""


def pretend_gpu(monkeypatch: pytest.MonkeyPatch, open_timer: Callable[[Any, Any], FormulaTimer]) -> None:
    """Let gates time with a timer of a test's own."""
    monkeypatch.setattr("kernellab.upgrade.gating.has_gpu", lambda session: True)
    monkeypatch.setattr("kernellab.upgrade.gating.device_name", lambda: MODEL)
    monkeypatch.setattr("kernellab.upgrade.gating.gpu_timers", lambda runtime, timeout_s: open_timer)


@pytest.mark.parametrize(("tax", "verdict", "status"), [(0.0, GateVerdict.WITHIN, 0), (0.1, GateVerdict.SLOWER, 1)])
def test_both_revisions_are_timed_in_turns_by_one_process(
    lab: kernellab.Lab,
    thread: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    tax: float,
    verdict: GateVerdict,
    status: int,
) -> None:
    timers: list[FormulaTimer] = []

    def open_timer(arguments: Any, pair: Any) -> FormulaTimer:
        timers.append(FormulaTimer(tax))
        return timers[-1]

    pretend_gpu(monkeypatch, open_timer)
    result = gate(lab, thread, double, budget_s=3.0)
    (timer,) = timers
    assert (result.verdict, result.status, result.names) == (verdict, status, ("double", "scale"))
    assert timer.launched == ["double", "scale"] * (len(timer.launched) // 2)
    assert result.timing is not None
    assert result.timing.ratio.median == pytest.approx(1.0 + tax)
    assert "measured by 0" in result.notes
    assert not list(lab.kernels)  # the earlier revision does not enter the store


@pytest.mark.parametrize(
    ("check", "verdict", "text"),
    [(True, GateVerdict.DIFFERENT, "Outputs differ: out_ptr differs; 1.0000x"), (False, GateVerdict.WITHIN, "Within")],
)
def test_other_outputs_fail_a_timed_gate_where_it_is_to_check(
    lab: kernellab.Lab,
    thread: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    check: bool,
    verdict: GateVerdict,
    text: str,
) -> None:
    pretend_gpu(monkeypatch, lambda arguments, pair: FormulaTimer(0.0, "out_ptr differs"))
    result = gate(lab, thread, double, budget_s=3.0, check=check)
    assert (result.verdict, result.status, result.difference) == (verdict, int(check), "out_ptr differs")
    assert result.text.startswith(text)
    assert gate_card(result).text().count("Outputs differ: out_ptr differs") == 1


def test_an_earlier_launch_takes_its_own_grid_and_values_along(lab: kernellab.Lab, thread: ThreadPoolExecutor) -> None:
    result = gate(lab, thread, (double, lambda meta: (N // 512,), {"BLOCK": 512}), check=True)
    assert (result.difference, result.names) == ("", ("double", "scale"))
    differs = gate(lab, thread, (scale, None, {"factor": 3.0}), check=True)
    assert differs.difference
    assert any(note.startswith("factor is 3.0 earlier and 2.0 later") for note in differs.notes)


def test_the_fixture_of_pytest_takes_an_executor(
    lab: kernellab.Lab, thread: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr("kernellab.lab.workspace.local_environment", cpu_environment)
    monkeypatch.setattr("kernellab.lab.workspace.local_session", session_here)
    args = (torch.rand(N), torch.zeros(N), N, 2.0)
    result = KernelGate(lab, request.node)(scale, grid, args, against=double, executor=thread, BLOCK=BLOCK)
    assert "measured by 0" in result.notes
    assert request.node.user_properties


def test_errors_of_the_other_side_arrive_as_they_are(lab: kernellab.Lab, thread: ThreadPoolExecutor) -> None:
    with pytest.raises(UsageError, match="against is"):
        gate(lab, thread, (double, None))
    with pytest.raises(kernellab.errors.LaunchError, match="n"):
        gate(lab, thread, (double, None, {"n": "many"}))


def test_an_executor_without_a_gpu_is_refused(lab: kernellab.Lab, thread: ThreadPoolExecutor) -> None:
    x = torch.rand(N)
    with pytest.raises(GateFailed, match="No process of the executor owns a GPU"):
        lab.gate(scale, grid, x, torch.zeros(N), N, 2.0, against=double, executor=thread, BLOCK=BLOCK)
    later = UserCall(lab.bind(scale), grid, (x, x, N, 2.0), {"BLOCK": BLOCK})
    with pytest.raises(GateFailed, match=r"Start one worker per GPU.*wait_for_workers"):
        gate_elsewhere(lab.session(), later, double, GateOptions(), thread, (no_environment, session_here))


@pytest.mark.slow
def test_a_worker_of_dask_gates_a_kernel_of_the_notebook(lab: kernellab.Lab) -> None:
    with dask_client() as client:
        result = gate(lab, client, double, factor=3.0, check=True)
        assert result.verdict is GateVerdict.DIFFERENT
        assert result.difference.startswith("out_ptr differs from that of double in ")
        (by,) = [note for note in result.notes if note.startswith("measured by")]
        assert by.removeprefix("measured by ") in client.nthreads()
        with pytest.raises(GateFailed, match="No process of the executor owns a GPU"):
            lab.gate(scale, grid, torch.rand(N), torch.zeros(N), N, 2.0, against=double, executor=client, BLOCK=BLOCK)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_worker_with_a_gpu_times_both_in_turns_and_reports_a_fault() -> None:
    with kernellab.Lab("cuda:90", ":memory:") as lab, gpu_client(1) as client:
        launch = (scale, grid, torch.rand(N), torch.zeros(N), N, 2.0)
        result = lab.gate(*launch, against=scale, margin=0.2, executor=client, BLOCK=BLOCK)
        assert result.status in {0, 3}
        assert result.timing is not None
        assert result.device == torch.cuda.get_device_name(0)
        with pytest.raises(RunError):
            lab.gate(*launch, against=far_away, executor=client, BLOCK=BLOCK)
        assert lab.gate(*launch, against=scale, margin=0.2, executor=client, BLOCK=BLOCK).status in {0, 3}
