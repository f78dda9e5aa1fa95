"""Values and times of a launch, as the GPU has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import kernellab
from benchmarks import algebra_kernels
from benchmarks.timeline import WAITED_CYCLES, places_by_resources, waiting
from kernellab._triton.compiling import sanitized_floats
from kernellab.errors import UsageError
from kernellab.launch.recorded_values import RecordedValue, ValueKind
from kernellab.target import multiprocessors
from tests.inside import test_sanitized as sanitized
from tests.inside.test_rewriting import branches, types
from tests.inside.transcripts import CASES, Case
from tests.labs import lab_fixture

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]
_CLOSE = {"fp32": 2e-3, "fp16": 2e-2, "bf16": 5e-2, "fp64": 1e-9}  # products may be in TF32


@triton.jit
def spinning(x, out, rounds, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    for _ in range(rounds):
        value = value * 0.999 + 0.001
    tl.store(out + offsets, value)


LOAD, LOOP, STORE = (spinning.starting_line_number + place for place in (3, 4, 6))
lab = lab_fixture(open_lab=kernellab.Lab)


def on_gpu(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with their tensors, also those of descriptors, on the GPU."""

    def moved(value: Any) -> Any:
        if hasattr(value, "block_shape"):
            return TensorDescriptor.from_tensor(value.base.cuda(), value.block_shape)
        return value.cuda() if isinstance(value, torch.Tensor) else value

    return {name: moved(value) for name, value in arguments.items()}


def place(value: RecordedValue) -> tuple[Any, ...]:
    return (value.function, value.name, value.line, value.calls, value.iteration, value.shape)


def require_near(values: Any, expected: Any) -> None:
    """Compare values of the GPU with those of the CPU: bitwise for integers, else within roundings."""
    assert values.where == "gpu"
    assert list(map(place, values.values)) == list(map(place, expected.values))
    for value, other in zip(values.values, expected.values, strict=True):
        if value.is_pointer:
            continue
        lanes = np.ones(value.shape, bool) if other.mask is None else other.mask
        actual, wanted, where = value.data[lanes], other.data[lanes], str(place(value))
        if value.data.dtype.kind == "f":
            close = _CLOSE.get(value.dtype, 0.2)
            largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0))  # a sum rounds as its addends do
            np.testing.assert_allclose(actual, wanted, rtol=close, atol=close * largest, err_msg=where)
        else:
            np.testing.assert_array_equal(actual, wanted, err_msg=where)


@pytest.mark.parametrize("case", [case for case in CASES if case.name != "histogram"], ids=lambda case: case.name)
def test_the_gpu_computes_what_the_cpu_does(lab: kernellab.Lab, case: Case) -> None:
    values = lab.values(case.kernel, case.grid, **on_gpu(case.arguments()))
    require_near(values, lab.values(case.kernel, case.grid, **case.arguments()))


def test_atomics_of_one_program_are_recorded_with_their_operands(lab: kernellab.Lab) -> None:
    case = next(case for case in CASES if case.name == "histogram")
    values = lab.values(case.kernel, case.grid, **on_gpu(case.arguments()))
    atomic = next(value for value in values.values if value.kind is ValueKind.ATOMIC)
    assert atomic.argument == "bins"
    assert set(np.unique(atomic.data)) == {1}


@pytest.mark.parametrize("flag", [True, False])
def test_branches_and_loops_are_followed_on_the_gpu(lab: kernellab.Lab, flag: bool) -> None:
    arguments = {"x": torch.randn(8), "out": torch.zeros(8), "n": 5, "FLAG": flag, "BLOCK": 8}
    values = lab.values(branches, (2,), **on_gpu(arguments))
    require_near(values, lab.values(branches, (2,), **arguments))


def test_types_come_back_from_the_gpu_as_they_were(lab: kernellab.Lab) -> None:
    flags = torch.tensor([1, 0] * 4, dtype=torch.bool)
    arguments = {"x": torch.randn(8, dtype=torch.bfloat16), "flags": flags, "out": torch.zeros(8), "BLOCK": 8}
    values = lab.values(types, (1,), **on_gpu(arguments))
    require_near(values, lab.values(types, (1,), **arguments))
    assert values.find("pointers").data.tolist() == list(range(8))


def test_outputs_are_compared_and_the_tensors_of_the_user_stay(lab: kernellab.Lab) -> None:
    x, out = torch.randn(1024, device="cuda"), torch.zeros(1024, device="cuda")
    values = lab.values(spinning, (8,), x, out, 4, BLOCK=128, programs=[0, 7])
    assert any("same outputs as the plain kernel" in note for note in values.notes)
    assert not out.any()
    assert {value.program for value in values.values} == {(0, 0, 0), (7, 0, 0)}


def long_launch(programs: int) -> tuple[Any, ...]:
    x = torch.randn(programs * 128, device="cuda")
    return (programs,), x, torch.empty_like(x), 20_000


def test_each_program_has_its_sm_and_its_time(lab: kernellab.Lab) -> None:
    timeline = lab.timeline(spinning, *long_launch(multiprocessors()), BLOCK=128)
    frame = timeline.frame
    assert frame.sm.between(0, multiprocessors() - 1).all()
    assert frame.sm.nunique() > multiprocessors() * 0.9
    assert (frame.end_us > frame.start_us).all()
    assert 0 < timeline.resolution_ns <= 1024
    assert timeline.device


def test_the_parts_of_a_timeline_are_the_time_of_the_launch(lab: kernellab.Lab) -> None:
    timelines = [lab.timeline(spinning, *long_launch(multiprocessors()), BLOCK=128) for _ in range(5)]
    # one at least, where other processes use the GPU
    assert any(one.gap_us + one.span_us == pytest.approx(one.plain_us, rel=0.1) for one in timelines)
    assert min(one.overhead for one in timelines) < 0.10


def test_lines_have_their_shares(lab: kernellab.Lab) -> None:
    timeline = lab.timeline(spinning, *long_launch(multiprocessors()), BLOCK=128, lines=[LOAD, LOOP, STORE])
    assert list(timeline.shares) == ["start", f"line {LOAD}", f"line {LOOP}", f"line {STORE}"]
    assert timeline.shares[f"line {LOOP}"] > 0.8
    assert sum(timeline.shares.values()) == pytest.approx(1)


def test_a_grid_of_one_and_a_half_waves_shows_the_second_wave(lab: kernellab.Lab) -> None:
    one = torch.zeros(1, dtype=torch.int64, device="cuda")
    places, _ = places_by_resources(lab.compile(waiting, one, WAITED_CYCLES))
    out = torch.zeros(multiprocessors() * places * 3 // 2, dtype=torch.int64, device="cuda")
    timeline = lab.timeline(waiting, (len(out),), out, WAITED_CYCLES)
    assert timeline.places_per_sm == places
    assert timeline.waves[1].share == pytest.approx(1 / 3, abs=0.05)
    assert len(timeline.waves) == 2


@triton.jit
def sum_of_whole_blocks(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n - BLOCK, BLOCK):
        total += tl.sum(tl.load(x + row * n + start + tl.arange(0, BLOCK)), 0)
    tl.store(out + row, total)


@sanitized.needs_sanitizer
def test_the_gpu_leaves_the_bits_of_the_algebra(lab: kernellab.Lab) -> None:
    cases: list[tuple[Any, Any, tuple[Any, ...], dict[str, Any]]] = [
        (sanitized.scaled_sum, (1,), sanitized.arguments(), {"BLOCK": 64}),
        (algebra_kernels.row_sum, (3,), (torch.randn(3, 100), torch.zeros(3), 100), {"BLOCK": 32}),
        (
            algebra_kernels.product,
            (2, 2),
            (torch.randn(32, 72), torch.randn(72, 32), torch.zeros(32, 32), 32, 32, 72),
            {"BLOCK": 16, "BLOCK_K": 16},
        ),
    ]
    for kernel, grid, given, meta in cases:
        here = [value.clone() if isinstance(value, torch.Tensor) else value for value in given]
        there = [value.cuda() if isinstance(value, torch.Tensor) else value for value in given]
        lab.run(kernel, grid, *here, algebra=True, **meta)
        with sanitized_floats():
            lab.run(kernel, grid, *there, **meta)
        tensors = [(a, b) for a, b in zip(here, there, strict=True) if isinstance(a, torch.Tensor)]
        assert all(torch.equal(a.view(torch.int32), b.cpu().view(torch.int32)) for a, b in tensors)


@sanitized.needs_sanitizer
def test_another_order_is_equal_and_a_lost_term_is_not(lab: kernellab.Lab) -> None:
    x, out = torch.randn(3, 100, device="cuda"), torch.zeros(3, device="cuda")
    assert lab.equivalent(algebra_kernels.row_sum, {"BLOCK": 128}, (3,), x, out, 100, BLOCK=32, on_gpu=True)
    assert not out.any()
    shorter = (sum_of_whole_blocks, (3,), {})
    assert not lab.equivalent(algebra_kernels.row_sum, shorter, (3,), x, out, 100, BLOCK=32, on_gpu=True)


@sanitized.needs_sanitizer
def test_a_function_of_torch_is_refused(lab: kernellab.Lab) -> None:
    x, out = torch.randn(3, 100, device="cuda"), torch.zeros(3, device="cuda")
    with pytest.raises(UsageError, match="pass a kernel with on_gpu=True"):
        lab.equivalent(algebra_kernels.row_sum, lambda x: x.sum(1), (3,), x, out, 100, BLOCK=32, on_gpu=True)
