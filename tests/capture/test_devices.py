"""Programs whose tensors lie on several GPUs; without GPUs, what their modules say, and that these run on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.capture.build import with_devices
from kernellab.capture.program import moved_to
from kernellab.capture.statements import device_of_launch
from kernellab.capture.tape import Step, Tape, require_inputs
from kernellab.capture.writing import module_text
from kernellab.errors import UsageError
from tests import samples
from tests.export.exporting import run_files

ON_SECOND = {"moved", "out", "other"}


def recorded(lab: kernellab.Lab) -> Any:
    scale, x, other = lab.bind(samples.scale_kernel), torch.rand(100), torch.linspace(0.01, 1, 100)
    with lab.capture() as program:
        half = torch.empty_like(x)
        scale[(1,)](x, half, 100, BLOCK=128)
        moved = half.to(torch.float64).to(torch.float32)
        out = torch.empty(100, device="cpu")
        scale[(1,)](moved, out, 100, BLOCK=128)
        out += other
        program.returns(out)
    return program


def over_two(tape: Tape) -> Tape:
    """Return a program of the CPU as two GPUs would have recorded it."""
    values = tuple(
        replace(v, layout=replace(v.layout, device="cuda:1" if v.name in ON_SECOND else "cuda:0")) for v in tape.values
    )

    def there(step: Step) -> Step:
        given = dict(step.kwargs)
        is_move = any(values[index].name == "moved" for index in step.results)
        if "device" in given or is_move:
            given["device"] = torch.device("cuda:1" if is_move else "cuda")
        return replace(step, kwargs=tuple(given.items()))

    return replace(tape, values=values, steps=tuple(map(there, tape.steps)))


@pytest.mark.slow
def test_factories_of_a_program_of_several_gpus_name_theirs(lab: kernellab.Lab) -> None:
    tape = over_two(recorded(lab).tape)
    found = [dict(step.kwargs)["device"] for step in with_devices(tape).steps if "device" in dict(step.kwargs)]
    assert [str(device) for device in found] == ["cuda:1", "cuda:1"], "cuda alone is the GPU that was current"
    assert with_devices(recorded(lab).tape).gpus == ()


def test_a_launch_is_on_the_gpu_of_its_tensors(lab: kernellab.Lab) -> None:
    tape = over_two(recorded(lab).tape)
    on = [device_of_launch(tape, step) for step in tape.launches]
    assert [tape.values[index or 0].layout.device for index in on] == ["cuda:0", "cuda:1"]


def test_inputs_have_to_lie_on_their_gpus(lab: kernellab.Lab) -> None:
    tape = over_two(recorded(lab).tape)
    with pytest.raises(UsageError, match="has the device cpu; the program was recorded with cuda:0"):
        require_inputs(tape, {"x": torch.rand(100), "other": torch.rand(100)})


def test_a_tensor_keeps_its_strides_on_another_device() -> None:
    spread = torch.rand(3).expand(4, 3)
    for tensor in (spread, torch.rand(4, 6)[:, ::2], torch.empty(0, 3)):
        moved = moved_to(tensor, "cpu")
        assert (moved.shape, moved.stride()) == (tensor.shape, tensor.stride())
        torch.testing.assert_close(moved, tensor)


@pytest.mark.slow
def test_a_module_guards_the_device_of_each_launch_and_runs_on_the_cpu(lab: kernellab.Lab, tmp_path: Path) -> None:
    program = recorded(lab)
    tape = with_devices(over_two(program.tape))
    text = module_text(tape, program.plan, lambda: program.run(**program.make_inputs()), "program")
    assert "torch.cuda.device_of(x):" in text
    assert "torch.cuda.device_of(moved):" in text
    assert "other = random_tensor((100,), (1,), torch.float32, 0.0" in text
    assert 'generator, placed("cuda:1"))' in text
    (tmp_path / "program.py").write_text(text)
    result = run_files(tmp_path / "program.py")
    assert result.returncode == 0, result.stderr
    assert "outputs match those at export" in result.stdout


def scaled(x: torch.Tensor) -> torch.Tensor:
    """Return what the kernel gives."""
    return 3 * x + 3


on_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@pytest.mark.gpu
@on_two_gpus
def test_a_program_over_two_gpus_runs_from_either_and_on_other_streams(tmp_path: Path) -> None:
    with kernellab.Lab(store=":memory:") as lab:
        scale, x = lab.bind(samples.scale_kernel), torch.rand(1 << 16, device="cuda:0")
        other = torch.rand(1 << 16, device="cuda:1")
        with lab.capture() as program:
            half = torch.empty_like(x)
            scale[(512,)](x, half, 1 << 16, BLOCK=128)
            moved = half.to("cuda:1")
            with torch.cuda.device(1):
                out = torch.empty(1 << 16, device="cuda")
                scale[(512,)](moved, out, 1 << 16, BLOCK=128)
            out += other
            back = out.to("cuda:0")
            total = torch.empty_like(back)
            scale[(512,)](back, total, 1 << 16, BLOCK=128)
            program.returns(total)
        program.export(tmp_path / "program.py")
        scope: dict[str, Any] = {"__name__": "program"}
        exec(compile((tmp_path / "program.py").read_text(), str(tmp_path / "program.py"), "exec"), scope)
        runs = (program.run, program.functionalise().run, scope["run"])
        for current in (0, 1):
            for run in runs:
                given = program.make_inputs(seed=current)
                assert [str(given[name].device) for name in program.inputs] == ["cuda:0", "cuda:1"]
                streams = [torch.cuda.Stream(device) for device in (0, 1)]
                with torch.cuda.stream(streams[1 - current]), torch.cuda.stream(streams[current]):
                    for stream in streams:
                        stream.wait_stream(torch.cuda.default_stream(stream.device))
                    found = run(**given)["total"]
                torch.cuda.synchronize(0)
                torch.cuda.synchronize(1)
                out = scaled(scaled(given["x"])).to("cuda:1") + given["other"]
                torch.testing.assert_close(found, scaled(out.to("cuda:0")))
