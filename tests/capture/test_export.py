"""Programs as modules: they run alone, check themselves, refuse what they do not hold for, and mark their launches."""

from __future__ import annotations

import ast
import contextlib
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch.profiler import ProfilerActivity, profile

import kernellab
from kernellab._triton.launch_key import choice_key
from kernellab.capture.program import Program
from kernellab.capture.writing import MARK, module_text
from kernellab.errors import UsageError
from tests import samples
from tests.capture import kernels
from tests.capture.test_program import accumulate_kernel
from tests.export.exporting import run_files

pytestmark = pytest.mark.slow

COMPARED = """\
import sys, torch
sys.path.insert(0, {folder!r})
import {module} as program
given, wanted = torch.load({tensors!r})
for name, tensor in program.make_inputs().items():
    assert (tensor.shape, tensor.stride(), tensor.dtype) == (given[name].shape, given[name].stride(), given[name].dtype)
found = program.run(**given)
assert list(found) == list(wanted), (list(found), list(wanted))
for name, tensor in wanted.items():
    torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-5)
print("equal")
"""


@triton.autotune([triton.Config({"BLOCK": 128}, num_warps=w) for w in (4, 8)], key=[])
@triton.jit
def in_place(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)


@triton.jit
def counted_kernel(out_ptr, n, BLOCK: "tl.constexpr"):  # noqa: UP037 - as a text
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 123456789000 + offsets.to(tl.int64), mask=offsets < n)


def exported(program: Program, folder: Path, *, interpret: bool = True) -> subprocess.CompletedProcess[str]:
    """Export a program; run the file, and then compare what it gives with what the program gives on fresh inputs."""
    program.export(folder / "exported.py")
    given = program.make_inputs(seed=7)
    kept = {n: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for n, t in given.items()}
    for name, tensor in given.items():
        kept[name].copy_(tensor)
    torch.save((kept, program.run(**given)), folder / "tensors.pt")
    script = COMPARED.format(folder=str(folder), module="exported", tensors=str(folder / "tensors.pt"))
    (folder / "compare.py").write_text(script)
    return run_files(folder / "exported.py", folder / "compare.py", interpret=interpret)


def attention(lab: kernellab.Lab) -> Program:
    attend = kernels.attention(lab)
    q, k, v, weight, bias = kernels.inputs().values()
    with lab.capture() as program:
        out = attend(q, k, v, weight, bias)
    assert out.shape == (kernels.ROWS, 24)
    return program


def test_attention_runs_alone_and_needs_less_memory_than_its_intermediates(lab: kernellab.Lab, tmp_path: Path) -> None:
    program = attention(lab)
    assert len(program.tape.launches) >= 5
    result = exported(program, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "outputs match those at export" in result.stdout
    assert "equal" in result.stdout
    assert program.plan.peak_bytes < 0.6 * program.plan.unplanned_bytes
    assert len(program.plan.allocations) < len(program.plan.buffers)
    text = (tmp_path / "exported.py").read_text()
    assert f"at most {program.plan.peak_bytes:,} bytes" in text
    assert "import kernellab" not in text


def test_a_functional_program_is_exported_too(lab: kernellab.Lab, tmp_path: Path) -> None:
    result = exported(attention(lab).functionalise(), tmp_path)
    assert result.returncode == 0, result.stderr
    assert "equal" in result.stdout


def scale_by(factor: float) -> Any:
    """Return a kernel that is called ``scale_kernel`` whatever it does, with a helper of one name."""
    FACTOR = tl.constexpr(factor)

    @triton.jit
    def scaled(value):
        return value * FACTOR

    @triton.jit
    def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out_ptr + offsets, scaled(tl.load(x_ptr + offsets, mask=mask)), mask=mask)

    return scale_kernel


def test_kernels_of_one_name_do_not_meet(lab: kernellab.Lab, tmp_path: Path) -> None:
    twice, thrice, affine = map(lab.bind, (scale_by(2.0), scale_by(3.0), samples.scale_kernel))
    x = torch.rand(100)
    with lab.capture() as program:
        run = x.clone()
        check = torch.empty(100)
        for kernel in (twice, thrice, affine, twice):
            kernel[(1,)](run, check, 100, BLOCK=128)
            run, check = check, run
        program.returns(run)
    torch.testing.assert_close(run, 2 * (3 * (6 * x) + 3))
    result = exported(program, tmp_path)
    assert result.returncode == 0, result.stderr
    defined = [n.name for n in ast.parse((tmp_path / "exported.py").read_text()).body if isinstance(n, ast.FunctionDef)]
    assert len(defined) == len(set(defined))
    assert sum(name.startswith("scale_kernel") for name in defined) == 3, "equal kernels are written once"


def test_views_strides_tuples_constants_and_functions_are_written(lab: kernellab.Lab, tmp_path: Path) -> None:
    pair, apply = lab.bind(samples.sum_of_pair), lab.bind(samples.apply_kernel)
    wide = torch.rand(64, 4)
    column, flags = wide[:, 1], torch.tensor([True, False] * 32)
    with lab.capture() as program:
        buffer = torch.zeros(2, 64)
        pair[(1,)]((column.contiguous(), column.contiguous()), buffer[0], BLOCK=64)
        apply[(1,)](buffer[0], buffer[1], samples.squared, tl.float32, BLOCK=64)
        buffer[1].mul_(torch.tensor([float("inf"), 2.0])[1])
        top, where = buffer.max(1)
        kept = torch.where(flags, buffer[1], 0.0)
        low = buffer.to(torch.float16).t()
        column.mul_(2)
    assert program.inputs == ("column", "flags")
    assert (top.shape, where.dtype, kept.shape, low.stride()) == ((2,), torch.int64, (64,), (1, 64))
    result = exported(program, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "(torch.float32, (64,), (4,))" in (tmp_path / "exported.py").read_text()


def test_an_autotuned_kernel_is_written_with_its_configs_and_their_grids(lab: kernellab.Lab, tmp_path: Path) -> None:
    tuned, wide = lab.bind(samples.tuned_kernel), lab.bind(in_place)
    x = torch.rand(300)
    with lab.capture() as program:
        out = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(300, meta["BLOCK"]),)](x, out, 300)
        tuned[lambda meta: (triton.cdiv(200, meta["BLOCK"]),)](x, out, 200, num_warps=2)
        wide[(3,)](out, 300)
    result = exported(program, tmp_path)
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "exported.py").read_text()
    assert 'tuned_kernel_tuned[grid_of(({"BLOCK": 64}, (5, 1, 1)), (' in text
    assert text.count("num_warps=2") == 2, "both configs of the second launch have what it was given"
    assert 'restore_value=["x_ptr"]' in text, "timing its configs must not add twice"
    assert ".cache[" not in text, "nothing was timed on the CPU"


def test_string_annotations_whole_numbers_nan_and_empty_outputs_check_rightly(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    counted, x = lab.bind(counted_kernel), torch.full((100,), float("nan"))
    with lab.capture() as program:
        large = torch.empty(100, dtype=torch.int64)
        counted[(1,)](large, 100, BLOCK=128)
        odd, none = x * 2, large[100:] + 1
    assert (odd.shape, none.shape) == ((100,), (0,))
    result = exported(program, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "outputs match those at export" in result.stdout
    path = tmp_path / "exported.py"
    text = path.read_text()
    assert text.count("BLOCK: tl.constexpr") == 1
    path.write_text(text.replace("123456789000 + offsets", "123456789001 + offsets"))
    wrong = run_files(path)
    assert wrong.returncode == 1
    assert "large has the counts" in wrong.stderr


def test_launches_of_a_module_are_marked_and_their_bytes_are_those_of_the_effects(lab: kernellab.Lab) -> None:
    x, out = torch.rand(300), torch.zeros(300)
    with lab.capture() as program:
        lab.bind(samples.scale_kernel)[(3,)](x, out, 300, BLOCK=128)
        lab.bind(in_place)[(3,)](out, 300)
    text = module_text(program.tape, program.plan, dict, "scaled_sum")
    assert text.startswith('"""The program `scaled_sum`: 2 launches')
    assert 'with mark("scale_kernel", (x,), (out,)):' in text
    assert 'with mark("in_place", (out,), (out,)):' in text
    moved = program.frame.set_index("op").loc["launch", "moved_bytes"]
    assert list(moved) == [2400, 2400]


def test_a_module_knows_which_config_was_the_fastest(lab: kernellab.Lab) -> None:
    tuned, x, out = lab.bind(samples.tuned_kernel), torch.rand(300), torch.zeros(300)
    with lab.capture() as program:
        tuned[(5,)](x, out, 300)
    (step,) = program.tape.steps
    assert step.use is not None
    assert step.use.tuning is not None
    timed = replace(step.use, tuning=replace(step.use.tuning, chosen=1))
    tape = replace(program.tape, steps=(replace(step, use=timed),))
    text = module_text(tape, program.plan, dict, "program")
    assert 'tuned_kernel_tuned.cache[(300, "torch.float32", "torch.float32")] = tuned_kernel_tuned.configs[1]' in text
    assert choice_key(tuned, (x, out, 300), {}) == (300, "torch.float32", "torch.float32")


def test_a_random_program_is_run_and_not_compared(lab: kernellab.Lab, tmp_path: Path) -> None:
    x = torch.rand(100)
    with lab.capture() as program:
        y = x + torch.rand(100)
    assert y.shape == (100,)
    program.export(tmp_path / "k.py")
    result = run_files(tmp_path / "k.py")
    assert "no expected outputs are recorded" in result.stdout, result.stderr
    assert "is random" in (tmp_path / "k.py").read_text()


def test_a_module_says_where_generated_inputs_cannot_check_it(lab: kernellab.Lab, tmp_path: Path) -> None:
    x = torch.arange(-3.0, 5.0)
    with lab.capture() as program:
        y = x[x > 0] + 1
    program.export(tmp_path / "k.py")
    result = run_files(tmp_path / "k.py")
    assert "not run, since it refuses generated inputs: aten." in result.stdout, result.stderr
    assert y.shape == (4,)


def test_a_module_computes_no_bfloat16_in_an_interpreter_that_cannot(lab: kernellab.Lab, tmp_path: Path) -> None:
    x = torch.rand(100).bfloat16()
    with lab.capture() as program:
        y = x.clone()
        lab.bind(accumulate_kernel)[(1,)](x, y, 100, BLOCK=128)
    torch.testing.assert_close(program(x), x + x)
    program.export(tmp_path / "k.py")
    (tmp_path / "other.py").write_text(
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport k\nk.run(**k.make_inputs())\n"
    )
    assert "cannot compute bfloat16 and float8: this needs a GPU" in run_files(tmp_path / "other.py").stderr


def test_a_module_refuses_inputs_of_another_layout(lab: kernellab.Lab, tmp_path: Path) -> None:
    attention(lab).export(tmp_path / "k.py")
    (tmp_path / "other.py").write_text(
        f"import sys, torch\nsys.path.insert(0, {str(tmp_path)!r})\nimport k\n"
        "given = k.make_inputs()\ngiven['q'] = given['q'].transpose(0, 1)\nk.run(**given)\n"
    )
    result = run_files(tmp_path / "other.py")
    assert "ValueError: q is (torch.float32, (48, 3, 16)" in result.stderr


def test_a_large_constant_is_refused_with_a_way_out(lab: kernellab.Lab, tmp_path: Path) -> None:
    with lab.capture() as program:
        table = torch.tensor([0.0] * 5000)
        y = table + 1
    assert y.shape == (5000,)
    with pytest.raises(UsageError, match="make it before the block"):
        program.export(tmp_path / "k.py")
    assert not (tmp_path / "k.py").exists()


def test_only_whole_numbers_that_follow_from_floats_are_taken_for_rounded(lab: kernellab.Lab) -> None:
    x, n = torch.rand(100), torch.arange(100)
    with lab.capture() as program:
        places, doubled = x.argsort(), n * 2
        picked = doubled[places]
        program.returns(places, doubled, picked)
    text = module_text(program.tape, program.plan, lambda: program.run(**program.make_inputs()), "program")
    (line,) = [line for line in text.splitlines() if "off = name in" in line]
    assert eval(line.split(" in ")[1].split("  #")[0]) == {"places", "picked"}


NAN = float("nan")


@pytest.fixture
def module() -> dict[str, Any]:
    scope: dict[str, Any] = {"torch": torch, "contextlib": contextlib, "INTERPRETED": True}
    exec(MARK, scope)
    return scope


def launched(module: dict[str, Any], x: torch.Tensor, value: float) -> torch.Tensor:
    """Write a value into an output, as a launch of the kernel ``fill`` that reads ``x``."""
    out = torch.zeros(4)
    with module["mark"]("fill", (x,), (out,)):
        out[1] = value
    return out


def test_nan_is_found_in_the_launches_that_are_checked(module: dict[str, Any]) -> None:
    launched(module, torch.ones(4), NAN)
    module["CHECKED"].add("fill")
    with pytest.raises(FloatingPointError, match="fill made NaN"):
        launched(module, torch.ones(4), NAN)
    launched(module, torch.ones(4), 1.0)
    launched(module, torch.full((4,), NAN), NAN)
    launched(module, torch.ones(4, dtype=torch.int32), 1.0)


@pytest.mark.parametrize("marks", [False, True])
def test_a_profiler_sees_launches_where_marks_are_on(module: dict[str, Any], marks: bool) -> None:
    module["MARKS"] = marks
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as seen:
        launched(module, torch.ones(4), 1.0)
    assert any(event.name == "fill" for event in seen.events()) == marks


EMPTY_SIZES = """\
import sys, torch
sys.path.insert(0, {folder!r})
import p
for n in (0, 1, 4):
    try:
        p.run(torch.ones(12), torch.ones(n))
    except ValueError as exc:
        print(n, "refused:", exc)
"""


def test_an_empty_size_is_refused_by_its_guard_before_anything_is_divided_by_it(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    x, y = torch.arange(12.0), torch.arange(4.0)
    with lab.capture(dynamic=True) as program:
        program.returns(x.reshape(y.shape[0], -1) + y[:, None] if x.shape[0] % y.shape[0] == 0 else x)
    assert any("%" in guard for guard in program.guards)
    with pytest.raises(UsageError, match=r"it requires y.shape\[0\] >= 2"):
        program.run(x=x, y=torch.zeros(0))
    with pytest.raises(UsageError, match=r"it requires y.shape\[0\] >= 2"):
        program.graph(x, torch.zeros(0))
    program.export(tmp_path / "p.py")
    (tmp_path / "sizes.py").write_text(EMPTY_SIZES.format(folder=str(tmp_path)))
    result = run_files(tmp_path / "sizes.py")
    assert result.returncode == 0, result.stderr
    assert [line[:10] for line in result.stdout.splitlines()[:2]] == ["0 refused:", "1 refused:"]
