from __future__ import annotations

from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import CannotRun, CompileError, LaunchError
from tests import samples
from tests.kernels.cases import all_cases
from tests.labs import lab_fixture

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
CASES = all_cases()
lab = lab_fixture(open_lab=kernellab.Lab, on_disk=True)


@triton.jit
def add_into(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(out_ptr + offsets, mask=mask) + tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def tuned_copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def test_the_target_is_that_of_the_gpu(lab: kernellab.Lab) -> None:
    major, minor = torch.cuda.get_device_capability()
    assert str(lab.target) == f"cuda:{major * 10 + minor}"


def test_an_in_place_launch_happens_exactly_once(lab: kernellab.Lab) -> None:
    x, out = torch.ones(1000, device="cuda"), torch.full((1000,), 0.5, device="cuda")
    run = lab.run(add_into, (8,), x, out, 1000, BLOCK=128)
    torch.testing.assert_close(out, torch.full_like(out, 1.5))
    assert run.where == "gpu"
    assert run.changed == {"x_ptr": 0, "out_ptr": 1000}


def test_a_cpu_tensor_is_named(lab: kernellab.Lab) -> None:
    x, out = torch.ones(1000), torch.ones(1000, device="cuda")
    with pytest.raises(LaunchError, match=r"x_ptr of add_into is on the CPU.*\.to\('cuda'\)"):
        lab.run(add_into, (8,), x, out, 1000, BLOCK=128)


def test_a_compile_error_points_at_the_line(lab: kernellab.Lab) -> None:
    x = torch.ones(1000, device="cuda")
    with pytest.raises(CompileError, match="power of 2") as caught:
        lab.run(add_into, (8,), x, x, 1000, BLOCK=100)
    assert caught.value.place is not None
    assert caught.value.place.file == str(Path(__file__))


def test_too_much_shared_memory_is_refused_before_the_launch(lab: kernellab.Lab) -> None:
    x, out = torch.ones(2**18, device="cuda", dtype=torch.float16), torch.zeros(2**18, device="cuda")
    compiled = lab.compile(samples.greedy, x, out, N=128, M=1024, num_warps=8)
    assert not compiled.resources.fits
    with pytest.raises(CannotRun, match="shared memory"):
        lab.run(samples.greedy, (1,), x, out, N=128, M=1024, num_warps=8)
    assert float(x[:8].sum()) == 8


def test_an_autotuned_kernel_runs(lab: kernellab.Lab) -> None:
    x, out = torch.rand(1000, device="cuda"), torch.zeros(1000, device="cuda")
    bound = lab.bind(tuned_copy)
    bound[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000)
    torch.testing.assert_close(out, x)


def test_a_launch_returns_what_triton_returns(lab: kernellab.Lab) -> None:
    x, out = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    handle = lab.bind(add_into)[(8,)](x, out, 1000, BLOCK=128)
    plain = add_into[(8,)](x, out, 1000, BLOCK=128)
    assert type(handle) is type(plain)
    assert handle.metadata.num_warps == plain.metadata.num_warps


@pytest.mark.parametrize("name", CASES)
def test_resources_are_those_of_the_loaded_kernel(lab: kernellab.Lab, name: str) -> None:
    case = CASES[name]
    arguments = case.fresh_arguments("cuda")
    for num_warps in (2, 8):
        meta = {**case.meta, "num_warps": num_warps}
        handle = lab.bind(case.kernel)[case.grid](**arguments, **meta)
        resources = lab.compile(case.kernel, **arguments, **meta).resources
        assert resources.registers == handle.n_regs
        assert resources.spill_bytes == handle.n_spills * 4
        assert resources.shared_bytes == handle.metadata.shared


@triton.jit
def printing(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.device_print("x", x)
    tl.store(x_ptr + offs, x + 1, mask=offs < n)


def test_what_a_kernel_prints_lies_on_the_stack_and_is_not_spilled(lab: kernellab.Lab) -> None:
    x = torch.zeros(64, device="cuda")
    handle = lab.bind(printing)[(1,)](x, 1, BLOCK=64)
    resources = lab.compile(printing, x, 1, BLOCK=64).resources
    assert resources.spill_bytes == 0
    assert resources.stack_bytes == handle.n_spills * 4 > 0


def test_spills_are_those_of_the_loaded_kernel(lab: kernellab.Lab) -> None:
    case = CASES["matmul-float16"]
    arguments = case.fresh_arguments("cuda")
    meta = {**case.meta, "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 32, "num_stages": 2, "num_warps": 4}
    handle = lab.bind(case.kernel)[case.grid](**arguments, **meta)
    resources = lab.compile(case.kernel, **arguments, **meta).resources
    assert handle.n_spills > 0
    assert resources.spill_bytes == handle.n_spills * 4
