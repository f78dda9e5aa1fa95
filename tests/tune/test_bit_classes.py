"""`tune(bitwise=True)`: errors of configs in their rows, and classes of bits from a stand-in for a GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import RunError, UsageError, WorkerTimeout
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches, outputs_on_copies
from kernellab.tune.config_runs import BitCheck, outputs_on_cpu
from kernellab.tune.options import Options
from kernellab.tune.run_tuning import tune_launches
from kernellab.tune.verbs import environment_of
from tests.labs import shared_lab
from tests.tune.fakes import Clock, FakeBench, FakeCompiler, FakeLaunches, config, tune


@pytest.fixture(scope="module")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab(store=":memory:") as lab:
        yield lab


@triton.jit
def copy_of_rows(x, out, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + lanes, tl.load(x + lanes * STEP, mask=lanes < n), mask=lanes < n)


@pytest.mark.slow
def test_a_config_that_reads_out_of_bounds_is_a_fault_with_the_reason(lab: kernellab.Lab) -> None:
    configs = [triton.Config({"BLOCK": 16, "STEP": step}) for step in (1, 1000)]
    x, out = torch.randn(64), torch.zeros(64)
    tuning = lab.tune(copy_of_rows, (4,), x, out, 64, configs=configs, bitwise=True)
    assert [(row.status, row.bits) for row in tuning.rows] == [(Status.NOT_TIMED, "A"), (Status.FAULT, None)]
    assert "out of bounds" in tuning.rows[1].reason
    assert tuning.winner == 0


@triton.jit
def through_assembly(x, out, BLOCK: tl.constexpr, ASSEMBLY: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    value = tl.load(x + lanes)
    if ASSEMBLY:
        value = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [value], tl.float32, True, 1)
    tl.store(out + lanes, value)


@pytest.mark.slow
def test_a_config_that_the_cpu_cannot_run_says_that_its_bits_are_unknown(lab: kernellab.Lab) -> None:
    configs = [triton.Config({"BLOCK": 16, "ASSEMBLY": assembly}) for assembly in (False, True)]
    tuning = lab.tune(through_assembly, (1,), torch.randn(16), torch.zeros(16), configs=configs, bitwise=True)
    assert [row.bits for row in tuning.rows] == ["A", None]
    assert "bits unknown: " in tuning.rows[1].reason
    assert tuning.rows[1].status is Status.NOT_TIMED
    assert any("not compared: 1, since" in note for note in tuning.notes)


FASTEST, SECOND, THIRD = config(16), config(32), config(64)
ONE, OTHER = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0000002])


def check_of(outputs: dict[Config, Any]) -> BitCheck:
    """A check of bits on a stand-in for a GPU: a config leaves a tensor, tensors in turn, or raises."""

    def outputs_of(launch: Any, effects: Any, timeout_s: float, zeroed: Collection[str]) -> dict[str, torch.Tensor]:
        left = outputs[launch.job]
        left = next(left) if isinstance(left, Iterator) else left
        if isinstance(left, Exception):
            raise left
        return {"out": left}

    launches = FakeLaunches(list(outputs), FakeCompiler(), "copy", "")
    effects = cast(Callable[..., Any], lambda job: None)
    return BitCheck(launches, effects, 10.0, Clock(), is_on_gpu=True, outputs_of=outputs_of)


def test_on_a_gpu_the_winner_is_the_fastest_of_the_largest_class() -> None:
    bits = check_of({FASTEST: OTHER, SECOND: ONE, THIRD: ONE.clone()})
    outcome = tune([FASTEST, SECOND, THIRD], FakeBench({FASTEST: 1.0, SECOND: 1.2, THIRD: 1.3}), bits=bits)
    assert outcome.winner == SECOND
    assert {launched: row.bits for launched, row in outcome.rows.items()} == {FASTEST: "A", SECOND: "B", THIRD: "B"}
    assert "2 of 3 configs leave the bits of class B, of 2 classes on the GPU" in bits.note
    assert "by measured times" in bits.note


@pytest.mark.parametrize(
    ("error", "status"), [(RunError("it broke"), Status.FAULT), (WorkerTimeout("too long"), Status.TIMEOUT)]
)
def test_on_a_gpu_a_config_that_fails_on_copies_has_its_error_and_does_not_win(error: Any, status: Status) -> None:
    bits = check_of({FASTEST: error, SECOND: ONE})
    outcome = tune([FASTEST, SECOND], FakeBench({FASTEST: 1.0, SECOND: 1.2}), bits=bits)
    assert outcome.winner == SECOND
    assert (outcome.rows[FASTEST].status, outcome.rows[FASTEST].reason) == (status, error.message)


def test_on_a_gpu_a_config_whose_bits_change_from_launch_to_launch_has_no_class() -> None:
    bits = check_of({FASTEST: iter([ONE, OTHER]), SECOND: ONE})
    outcome = tune([FASTEST, SECOND], FakeBench({FASTEST: 1.0, SECOND: 1.2}), bits=bits)
    assert outcome.winner == SECOND
    assert outcome.rows[FASTEST].bits is None
    assert outcome.rows[FASTEST].reason == "bits unknown: two launches leave different bits"
    assert "not compared: 1, since two launches leave different bits" in bits.note


def test_on_a_gpu_options_of_the_compiler_have_bits_of_their_own() -> None:
    few, many = config(16, warps=2), config(16, warps=8)
    outcome = tune([few, many], FakeBench({few: 1.0, many: 1.1}), bits=check_of({few: ONE, many: OTHER}))
    assert [outcome.rows[few].bits, outcome.rows[many].bits] == ["A", "B"]


@triton.jit
def add_into(x, out, n, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + lanes % 8, tl.load(x + lanes, mask=lanes < n), mask=lanes < n)


def test_outputs_of_launches_on_copies_are_those_of_the_cpu_and_leave_the_arguments(lab: kernellab.Lab) -> None:
    x, out = torch.arange(64.0), torch.ones(12)
    launches = Launches(lab.session().bind(add_into), (4,), (x, out, 64), {}, lab.target)
    launch = launches.of(Config((("BLOCK", 16),), 4, 1, 1))
    runtime, effects = lab.session().runtime, lab.compiler.effects(launch.job)

    here = outputs_on_cpu(runtime.interpret, launch, effects, 10.0, ())
    there = outputs_on_copies(runtime, "cpu", launch, effects, 10.0)
    assert torch.equal(here["out"], there["out"])
    assert here.keys() == there.keys() == {"out"}
    assert float(there["out"].sum()) == 12 + 63 * 32
    assert torch.equal(out, torch.ones(12))


def test_where_nothing_launches_configs_equal_bits_are_refused(lab: kernellab.Lab) -> None:
    environment = replace(environment_of(lab.session()), interpret=None)
    launches = Launches(lab.session().bind(add_into), (4,), (torch.ones(64), torch.ones(12), 64), {}, lab.target)
    with pytest.raises(UsageError, match="bitwise=True compares the bits"):
        tune_launches(environment, launches, Options([triton.Config({"BLOCK": 16})], bitwise=True))
