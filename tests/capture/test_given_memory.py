"""Programs in memory of the caller: offsets that never collide, and modules that allocate their outputs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kernellab
from kernellab.capture.plan import ALIGNMENT, Buffer, make_plan, with_workspace
from kernellab.errors import UsageError
from tests import samples

STEPS = 8
made = st.builds(
    lambda number, size, first, length, fixed, device: Buffer(
        f"b{number}", size, f"float32 {device}", first, min(first + length, STEPS), fixed
    ),
    st.integers(0, 10**9),
    st.integers(0, 3000),
    st.integers(0, STEPS - 1),
    st.integers(0, STEPS),
    st.booleans(),
    st.sampled_from(["cpu", "cuda:0"]),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(made, max_size=12, unique_by=lambda buffer: buffer.name))
def test_what_is_alive_at_one_time_does_not_overlap(buffers: list[Buffer]) -> None:
    plan = with_workspace(make_plan(buffers, STEPS), "cpu")
    offsets, held = dict(plan.offsets), {a.buffers[0]: a for a in plan.allocations}
    for name, offset in offsets.items():
        one = held[name]
        assert offset % ALIGNMENT == 0
        assert offset + one.size_bytes <= plan.workspace_bytes
        assert one.last < STEPS, "what is returned outlives the run"
        for other_name, start in offsets.items():
            other = held[other_name]
            is_apart = one.last < other.first or other.last < one.first
            is_beside = offset + one.size_bytes <= start or start + other.size_bytes <= offset
            assert name == other_name or is_apart or is_beside


def module_of(program: Any, path: Path) -> dict[str, Any]:
    program.export(path, workspace=True)
    scope: dict[str, Any] = {"__name__": "program"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope


def test_a_run_in_a_workspace_gives_the_same_and_leaves_its_outputs_outside(lab: kernellab.Lab, tmp_path: Path) -> None:
    x = torch.rand(40, 30)
    with lab.capture() as program:
        product = x @ x.T
        sums = torch.cat([product.exp(), product.sin()]).sum(0)
        out = torch.zeros(40) + sums
        program.returns(out)
    module = module_of(program, tmp_path / "program.py")
    size = module["WORKSPACE_BYTES"]
    assert size >= 2 * 40 * 40 * 4
    workspace = torch.full((size + 512,), 0xFF, dtype=torch.uint8)
    fresh = torch.rand(40, 30)
    wanted = module["run"](fresh)["out"]
    torch.testing.assert_close(wanted, program.run(x=fresh)["out"])
    found = module["run"](fresh, workspace=workspace)["out"]
    workspace[:size] = 0
    torch.testing.assert_close(found, wanted, msg="an output lies in the workspace")
    assert workspace[size:].eq(0xFF).all()


@pytest.mark.parametrize(
    "workspace",
    [torch.empty(16, dtype=torch.uint8), torch.empty(1 << 16), torch.empty(1 << 16, dtype=torch.uint8)[1:], "a"],
)
def test_a_workspace_that_does_not_do_is_refused(lab: kernellab.Lab, tmp_path: Path, workspace: Any) -> None:
    x = torch.rand(40)
    with lab.capture() as program:
        out = x.exp().sin().sum()
        program.returns(out)
    module = module_of(program, tmp_path / "program.py")
    with pytest.raises(ValueError, match=r"The workspace is .*expected"):
        module["run"](x, workspace=workspace)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_run_in_a_workspace_allocates_its_outputs_alone(tmp_path: Path) -> None:
    with kernellab.Lab(store=":memory:") as lab:
        add, x = lab.bind(samples.add_kernel), torch.rand(1 << 20, device="cuda")
        with lab.capture() as program:
            one, two = torch.empty_like(x), torch.empty_like(x)
            add[(1024,)](x, x, one, 1 << 20, BLOCK=1024)
            add[(1024,)](one, x, two, 1 << 20, BLOCK=1024)
            out = two.exp()
            program.returns(out)
        module = module_of(program, tmp_path / "program.py")
    workspace = torch.empty(module["WORKSPACE_BYTES"], dtype=torch.uint8, device="cuda")
    torch.testing.assert_close(module["run"](x, workspace=workspace)["out"], out)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    module["run"](x, workspace=workspace)
    assert torch.cuda.max_memory_allocated() - before == 4 << 20


@pytest.mark.slow
def test_a_dynamic_program_has_no_workspace(lab: kernellab.Lab, tmp_path: Path) -> None:
    x = torch.rand(40)
    with lab.capture(dynamic=True) as program:
        out = x.exp().sin()
    assert out.shape == (40,)
    with pytest.raises(UsageError, match="size of a workspace has to be known"):
        program.export(tmp_path / "program.py", workspace=True)
