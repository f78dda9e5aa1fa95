from __future__ import annotations

import pytest
import torch

import kernellab
from kernellab.launch.poison import poison
from tests import samples

N = 300


def effects(lab: kernellab.Lab) -> kernellab.ir.effects.Effects:
    x = torch.zeros(N)
    return lab.effects(samples.add_kernel, x, x.clone(), x.clone(), N, BLOCK=128)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64]
)
def test_only_written_elements_keep_what_was_written(lab: kernellab.Lab, dtype: torch.dtype) -> None:
    x, y, out = torch.ones(N).to(dtype), torch.ones(N).to(dtype), torch.full((N,), 7).to(dtype)
    poisoned = poison({"x_ptr": x, "y_ptr": y, "out_ptr": out, "n": N, "BLOCK": 128}, effects(lab))
    assert not out.eq(7).any()
    assert x.eq(1).all()
    out[:100] = 7
    out[100:200] = 8
    poisoned.lift()
    assert out[:100].eq(7).all()
    assert out[200:].eq(7).all()
    assert torch.equal(poisoned.unwritten["out_ptr"], torch.arange(N) >= 200)
    assert poisoned.changed == {"out_ptr": 100}


def test_memory_that_another_argument_shares_is_left_alone(lab: kernellab.Lab) -> None:
    x = torch.ones(2 * N)
    arguments = {"x_ptr": x[:N], "y_ptr": torch.ones(N), "out_ptr": x[N:], "n": N, "BLOCK": 128}
    assert poison(arguments, effects(lab)).filled == ()
    assert x.eq(1).all()


def test_a_spread_view_and_a_narrow_type_are_left_alone(lab: kernellab.Lab) -> None:
    for out in (torch.ones(1).expand(N), torch.ones(N, dtype=torch.uint8)):
        arguments = {"x_ptr": torch.ones(N), "y_ptr": torch.ones(N), "out_ptr": out, "n": N, "BLOCK": 128}
        assert poison(arguments, effects(lab)).filled == ()


@pytest.mark.parametrize(
    "dtype",
    [torch.int8, torch.uint8, torch.int16, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64],
)
def test_copies_of_any_type_tell_what_was_written(lab: kernellab.Lab, dtype: torch.dtype) -> None:
    out = torch.ones(N).to(dtype)
    arguments = {"x_ptr": torch.ones(N), "y_ptr": torch.ones(N), "out_ptr": out, "n": N, "BLOCK": 128}
    poisoned = poison(arguments, effects(lab), copies=True)
    out[:100] = 0
    poisoned.lift()
    assert torch.equal(poisoned.unwritten["out_ptr"], torch.arange(N) >= 100)
    assert poisoned.fills == {"out_ptr": None if dtype.is_complex else 1.0}
    assert out[100:].to(torch.complex64).eq(1).all()


def test_a_stale_result_does_not_pass_for_a_written_one(lab: kernellab.Lab) -> None:
    x, y = torch.rand(N), torch.rand(N)
    out = x + y
    with lab.launches.recording(poison=True) as recorder:
        lab.bind(samples.add_kernel)[(2,)](x, y, out, N, BLOCK=128)
    (mask,) = recorder.unwritten.values()
    assert int(mask.sum()) == N - 256
    torch.testing.assert_close(out, x + y)


def test_two_launches_that_write_a_half_each_leave_nothing_unwritten(lab: kernellab.Lab) -> None:
    out = torch.zeros(256)
    bound = lab.bind(samples.apply_kernel)
    with lab.launches.recording(poison=True) as recorder:
        bound[(1,)](torch.rand(256), out, samples.doubled, samples.tl.float32, BLOCK=256)
    assert [bool(mask.any()) for mask in recorder.unwritten.values()] == [False]


def test_a_failed_launch_leaves_the_output_as_it_was(lab: kernellab.Lab) -> None:
    x, y, out = torch.rand(N), torch.rand(N), torch.full((N,), 3.0)
    with lab.launches.recording(poison=True), pytest.raises(kernellab.errors.OutOfBounds):
        lab.bind(samples.add_kernel)[(4,)](x, y, out, 512, BLOCK=128)
    assert out.eq(3).all()
