"""Captured programs on a GPU: recorded at native speed, and allocating what their plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.errors import UsageError
from tests import samples
from tests.capture import kernels
from tests.capture.test_export import exported
from tests.labs import lab_fixture

pytestmark = pytest.mark.gpu
lab = lab_fixture(scope="function", open_lab=kernellab.Lab)


def test_attention_runs_again_becomes_functional_and_runs_alone(lab: kernellab.Lab, tmp_path: Path) -> None:
    attend, given = kernels.attention(lab), kernels.inputs("cuda")
    q, k, v, weight, bias = given.values()
    attend(**given)  # a launch that is known takes another path than one that is new
    with lab.capture() as program:
        out = attend(q, k, v, weight, bias)
    torch.testing.assert_close(out, kernels.reference(*given.values()), rtol=1e-3, atol=1e-3)
    assert len(program.tape.launches) == 5
    fresh = {name: torch.randn_like(tensor) for name, tensor in given.items()}
    wanted = attend(**fresh)
    torch.testing.assert_close(program(*fresh.values()), wanted)
    torch.testing.assert_close(program.functionalise()(*fresh.values()), wanted)
    result = exported(program, tmp_path, interpret=False)
    print(result.stdout)
    assert result.returncode == 0, result.stderr
    assert "bytes in addition to its inputs" in result.stdout
    rows = [line.split()[0] for line in result.stdout.splitlines() if "GB/s" in line]
    names = ["scores_kernel", "row_max_kernel", "exponent_kernel", "values_kernel", "add_bias_kernel"]
    assert rows == [*names, "launches", "program"]
    assert program.plan.peak_bytes < 0.6 * program.plan.unplanned_bytes


def test_the_module_allocates_what_its_plan_says(lab: kernellab.Lab, tmp_path: Path) -> None:
    add = lab.bind(samples.add_kernel)
    x = torch.rand(1 << 20, device="cuda")
    grid = ((1 << 20) // 1024,)
    with lab.capture() as program:
        one = torch.empty_like(x)
        add[grid](x, x, one, x.numel(), BLOCK=1024)
        two = one.exp()
        three = torch.empty_like(x)
        add[grid](two, two, three, x.numel(), BLOCK=1024)
        out = three.sqrt()
        program.returns(out)
    assert (program.plan.peak_bytes, program.plan.unplanned_bytes) == (2 << 22, 4 << 22)
    program.export(tmp_path / "program.py")
    scope: dict[str, object] = {"__name__": "program"}
    exec(compile((tmp_path / "program.py").read_text(), str(tmp_path / "program.py"), "exec"), scope)
    run = scope["run"]
    assert callable(run)
    torch.testing.assert_close(run(x=x)["out"], out)  # compiles
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run(x=x)
    assert torch.cuda.max_memory_allocated() - before == program.plan.peak_bytes


def test_an_autotuned_kernel_is_recorded_with_its_winner_and_once(lab: kernellab.Lab) -> None:
    tuned = lab.bind(samples.tuned_kernel)
    x, out = torch.rand(4096, device="cuda"), torch.zeros(4096, device="cuda")
    with lab.capture() as program:
        tuned[lambda meta: (4096 // meta["BLOCK"],)](x, out, 4096)
    (step,) = program.tape.steps
    assert step.use is not None
    assert lab.kernels.constants(step.use.constants_id)["BLOCK"] == tuned.best_config.kwargs["BLOCK"]
    torch.testing.assert_close(program(2 * x, torch.zeros_like(x)), 2 * x)


def test_the_module_of_an_autotuned_kernel_knows_the_winner_and_tunes_for_no_recorded_key(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    tuned = lab.bind(samples.tuned_kernel)
    x, out = torch.rand(4096, device="cuda"), torch.zeros(4096, device="cuda")
    with lab.capture() as program:
        tuned[lambda meta: (4096 // meta["BLOCK"],)](x, out, 4096)
    program.export(tmp_path / "program.py")
    scope: dict[str, Any] = {"__name__": "program"}
    exec(compile((tmp_path / "program.py").read_text(), str(tmp_path / "program.py"), "exec"), scope)
    tuner = scope["tuned_kernel_tuned"]
    before = dict(tuner.cache)
    assert [config.kwargs for config in before.values()] == [tuned.best_config.kwargs]
    given = torch.zeros_like(x)
    scope["run"](x=x, out=given)
    torch.testing.assert_close(given, x)
    assert tuner.cache == before
    assert not hasattr(tuner, "bench_time"), "nothing was timed"


def test_steps_of_another_stream_are_steps_in_order_and_that_is_noted(lab: kernellab.Lab) -> None:
    scale, x, side = lab.bind(samples.scale_kernel), torch.rand(1 << 20, device="cuda"), torch.cuda.Stream()
    with lab.capture() as program:
        half = torch.empty_like(x)
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.default_stream())
            scale[(1 << 13,)](x, half, 1 << 20, BLOCK=128)
        torch.cuda.current_stream().wait_stream(side)
        out = half + 1
        program.returns(out)
    assert any("works on another stream" in note for note in program.notes)
    fresh = torch.rand(1 << 20, device="cuda")
    torch.testing.assert_close(program.run(x=fresh)["out"], 3 * fresh + 4)


def test_a_kernel_that_is_not_bound_is_an_error_that_says_so(lab: kernellab.Lab) -> None:
    x, out = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda")
    with pytest.raises(UsageError, match=r"scale_kernel was launched .* lab.bind"), lab.capture() as program:
        samples.scale_kernel[(1,)](x, out, 100, BLOCK=128)
    assert not program.is_complete


def test_a_launch_of_a_backward_pass_is_recorded_though_autograd_has_a_thread_of_its_own(lab: kernellab.Lab) -> None:
    scale = lab.bind(samples.scale_kernel)

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            scale[(1,)](x, out, x.numel(), BLOCK=128)
            return out

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            out = torch.empty_like(gradients[0])
            scale[(1,)](gradients[0].contiguous(), out, out.numel(), BLOCK=128)
            return out

    def gradient(x: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        (Doubled.apply(x) * x).sum().backward()
        return x.grad

    x = torch.arange(100.0, device="cuda")
    with lab.capture() as program:
        y = gradient(x)
    assert len(program.tape.launches) == 2
    torch.testing.assert_close(program.only("y")(x + 1), gradient(x + 1))
    assert y.shape == (100,)


def test_an_operator_that_launches_is_recorded_once_on_a_gpu(lab: kernellab.Lab) -> None:
    scale = lab.bind(samples.scale_kernel)

    def scaled(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        scale[(1,)](x, out, x.numel(), BLOCK=128)
        return out

    op = torch.library.custom_op("kernellab_gpu_tests::scaled", mutates_args=())(scaled)
    x = torch.arange(100.0, device="cuda")
    stream = torch.cuda.Stream()
    with lab.capture() as program:
        with torch.cuda.stream(stream):
            y = op(x) + 1
        stream.synchronize()
    assert program.inputs == ("x",)
    assert not program.tape.launches
    torch.testing.assert_close(program.only("y")(x * 2), scaled(x * 2) + 1)
    torch.cuda.synchronize()
    assert y.shape == (100,)


def test_a_dynamic_program_runs_at_other_sizes_and_so_does_its_module(lab: kernellab.Lab, tmp_path: Path) -> None:
    attend = kernels.attention(lab)
    q, k, v, weight, bias = kernels.inputs("cuda").values()
    with lab.capture(dynamic=True) as program:
        out = program.returns(attend(q, k, v, weight, bias))
    assert out.shape == (48, 24)
    program.functionalise().export(tmp_path / "program.py")
    scope: dict[str, Any] = {"__name__": "program"}
    exec(compile((tmp_path / "program.py").read_text(), str(tmp_path / "program.py"), "exec"), scope)
    for rows, columns, width in ((30, 33, 24), (64, 64, 17), (17, 50, 32)):
        given = kernels.inputs("cuda", rows, columns, width)
        wanted = kernels.reference(**given)
        torch.testing.assert_close(program(*given.values()), wanted, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(program.functionalise()(*given.values()), wanted, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(scope["run"](**given)["out"], wanted, rtol=1e-3, atol=1e-3)
    with pytest.raises(UsageError, match=r"shape\[1\] <= 64"):
        program(*kernels.inputs("cuda", 48, 65, 24).values())


def test_a_backward_pass_in_a_thread_of_its_own_runs_at_other_sizes(lab: kernellab.Lab) -> None:
    x = torch.rand(100, device="cuda", requires_grad=True)
    with lab.capture(dynamic=True) as program:
        (grad,) = torch.autograd.grad((x * x / x.shape[0]).sum(), x)
        program.returns(grad)
    fresh = torch.rand(60, device="cuda")
    torch.testing.assert_close(program(fresh), 2 * fresh / 60)
