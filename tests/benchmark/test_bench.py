"""``lab.bench`` on a machine without a GPU: compiled, counted, checked on request, and never timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import kernellab
from kernellab.benchmark.spec import BenchmarkSpec, CaseArguments, cast_floats
from kernellab.errors import LaunchError, UnknownName, UsageError
from kernellab.views.cards.benchmark import benchmark_card
from tests.labs import lab_fixture
from tests.samples import add_kernel, scale_kernel, tuned_kernel

lab = lab_fixture("cuda:75")


def grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def inputs(n: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    x = torch.randn(n).to(dtype)
    return {"x_ptr": x, "y_ptr": x * 2, "out_ptr": torch.zeros_like(x), "n": n}


def torch_add(x_ptr: torch.Tensor, y_ptr: torch.Tensor) -> torch.Tensor:
    return x_ptr + y_ptr


@pytest.mark.slow
def test_rows_have_what_is_known_without_a_gpu_and_no_times(lab: kernellab.Lab) -> None:
    over = {"n": [100, 200], "dtype": [torch.float32, torch.float16]}
    found = lab.bench(add_kernel, grid, over=over, inputs=inputs, BLOCK=64, versus={"torch": torch_add})
    frame = found.frame
    assert set(frame.status) == {"not_timed"}
    assert set(frame.reason) == {"not measured: there is no GPU"}
    assert frame.time_ms.isna().all()
    assert frame.bytes.tolist() == [1200] * 2 + [600] * 2 + [2400] * 2 + [1200] * 2
    assert (frame.registers[frame.implementation == "add_kernel"] > 0).all()
    assert frame.dtype.tolist() == ["float32"] * 2 + ["float16"] * 2 + ["float32"] * 2 + ["float16"] * 2
    assert lab.frame("measurements").empty


@pytest.mark.slow
def test_outputs_are_compared_on_the_cpu_where_that_is_asked(lab: kernellab.Lab) -> None:
    versus = {"torch": torch_add, "first": lambda x_ptr: x_ptr, "none": lambda: 5}
    found = lab.bench(add_kernel, grid, over={"n": [100]}, inputs=inputs, BLOCK=64, versus=versus, check=True)
    assert found.frame.status.tolist() == ["not_timed", "not_timed", "wrong", "wrong"]
    assert "outputs agree" in found.frame.reason[0]
    assert found.frame.reason[2].startswith("out_ptr differs from that of torch in ")
    assert "expected a tensor" in found.frame.reason[3]


@pytest.mark.slow
def test_that_all_outputs_agree_is_said(lab: kernellab.Lab) -> None:
    asked: dict[str, Any] = {"over": {"n": [100, 200]}, "inputs": inputs, "BLOCK": 64, "versus": {"torch": torch_add}}
    found = lab.bench(add_kernel, grid, **asked, check=True)
    assert "agree with those of torch" in " ".join(found.notes)
    text = " ".join(benchmark_card(found).html().split())
    assert "; compiled and run on the CPU in " in text
    assert text.count("not timed") == text.count("not timed (no GPU)") == 1
    assert "othing was timed" not in text
    assert "agree" not in " ".join(lab.bench(add_kernel, grid, **asked).notes)
    wrong = {"torch": lambda x_ptr: x_ptr}
    assert "agree" not in " ".join(lab.bench(add_kernel, grid, **{**asked, "versus": wrong}, check=True).notes)


def test_a_peer_that_takes_other_names_is_a_row_that_lists_them(lab: kernellab.Lab) -> None:
    versus = {"torch": lambda a, b: a + b}
    frame = lab.bench(add_kernel, grid, over={"n": [100]}, inputs=inputs, BLOCK=64, versus=versus).frame
    assert frame.status.tolist() == ["not_timed", "cannot_run"]
    assert frame.reason[1].startswith("torch takes a, b; there are ")


@triton.jit
def count_kernel(x_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts_ptr + tl.load(x_ptr + offsets, mask=offsets < n, other=0), 1, mask=offsets < n)


@pytest.mark.slow
def test_a_kernel_that_goes_on_from_its_output_is_told_so(lab: kernellab.Lab) -> None:
    def ones(n: int) -> dict[str, Any]:
        return {"x_ptr": torch.zeros(n, dtype=torch.int32), "counts_ptr": torch.ones(4, dtype=torch.int32), "n": n}

    versus = {"torch": lambda x_ptr: torch.bincount(x_ptr, minlength=4).int()}
    frame = lab.bench(count_kernel, grid, over={"n": [64]}, inputs=ones, BLOCK=64, versus=versus, check=True).frame
    assert frame.reason[0].startswith("counts_ptr differs from that of torch in ")
    assert "; the kernel updates counts_ptr in place" in frame.reason[0]


@pytest.mark.slow
def test_without_inputs_swept_names_replace_the_given_arguments(lab: kernellab.Lab) -> None:
    given = inputs(256)
    over = {"n": [128, 256], "BLOCK": [64, 128], "num_warps": [2, 4]}
    found = lab.bench(add_kernel, grid, **given, over=over, where="BLOCK >= 32 * num_warps")
    assert list(zip(found.frame.n, found.frame.BLOCK, found.frame.num_warps, strict=True)) == [
        (128, 64, 2),
        (128, 128, 2),
        (128, 128, 4),
        (256, 64, 2),
        (256, 128, 2),
        (256, 128, 4),
    ]
    assert given["out_ptr"].eq(0).all()


@pytest.mark.slow
def test_sizes_that_the_given_tensors_do_not_follow_are_pointed_at(lab: kernellab.Lab) -> None:
    given = {name: value for name, value in inputs(200).items() if name != "n"}
    found = lab.bench(add_kernel, grid, over={"n": [100, 200]}, **given, BLOCK=64)
    assert found.frame.bytes.tolist() == [2400, 2400]
    assert any("the same for every n; inputs= makes tensors" in note for note in found.notes)
    blocks = lab.bench(add_kernel, grid, over={"BLOCK": [32, 64]}, **given, n=200)
    scaled = lab.bench(add_kernel, grid, over={"n": [100, 200]}, inputs=inputs, BLOCK=64)
    assert not any("inputs=" in note for note in (*blocks.notes, *scaled.notes))


@pytest.mark.slow
def test_dtypes_convert_the_given_tensors(lab: kernellab.Lab) -> None:
    frame = lab.bench(add_kernel, grid, **inputs(64), BLOCK=64, over={"dtype": ["float16", torch.float64]}).frame
    assert frame.bytes.tolist() == [3 * 64 * 2, 3 * 64 * 8]
    with pytest.raises(UsageError, match="expected a torch"):
        lab.bench(add_kernel, grid, **inputs(64), BLOCK=64, over={"dtype": ["float17"]})


def test_dtypes_convert_the_tensors_of_tuples_and_descriptors() -> None:
    base = torch.zeros(16, 16)
    found = cast_floats({"pair": (base, 2), "desc": TensorDescriptor.from_tensor(base, [8, 8]), "n": 3}, "float16")
    assert found["pair"][0].dtype == found["desc"].base.dtype == torch.float16
    assert base.dtype == torch.float32
    assert (found["pair"][1], found["n"]) == (2, 3)


def test_a_parameter_called_dtype_is_swept_like_any_other() -> None:
    spec = BenchmarkSpec(None, None, {"x": torch.zeros(2), "dtype": "fp32"}, {"dtype": ("fp16", "bf16")})
    made = [CaseArguments(spec, ("x", "dtype")).of(i, case) for i, case in enumerate(spec.cases)]
    assert [each["dtype"] for each in made] == ["fp16", "bf16"]
    assert made[0]["x"].dtype == torch.float32


def test_given_tensors_are_copied_also_where_inputs_makes_others() -> None:
    out = torch.zeros(8)
    spec = BenchmarkSpec(None, None, {"out": out}, {"n": (8,)}, inputs=lambda n: {"x": torch.ones(n)})
    CaseArguments(spec, ("x", "out", "n")).of(0, {"n": 8})["out"].fill_(1.0)
    assert out.eq(0).all()


@pytest.mark.slow
def test_versions_and_other_kernels_are_compared(lab: kernellab.Lab) -> None:
    lab.kernels.add(lab.bind(add_kernel))
    versus = {"kept": "add_kernel@1", "tuple": (add_kernel, (1,), {"BLOCK": 128})}
    frame = lab.bench(
        "add_kernel", grid, over={"n": [100], "version": [1]}, inputs=inputs, BLOCK=64, versus=versus, check=True
    ).frame
    assert frame.implementation.tolist() == ["add_kernel@1", "kept", "tuple"]
    assert frame.status.tolist() == ["not_timed"] * 3
    with pytest.raises(UnknownName, match="add_kernel@9"):
        lab.bench("add_kernel", grid, over={"version": [9]}, **inputs(8), BLOCK=64)


@pytest.mark.slow
def test_an_autotuned_kernel_has_its_config_in_the_row(lab: kernellab.Lab) -> None:
    frame = lab.bench(tuned_kernel, grid, torch.zeros(64), torch.zeros(64), over={"n": [64]}).frame
    assert frame.BLOCK.tolist() == [64]


@pytest.mark.slow
def test_a_recorded_launch_is_scaled(lab: kernellab.Lab) -> None:
    bound = lab.bind(scale_kernel)
    lab.kernels.add(bound)
    lab.run(bound, lambda meta: (triton.cdiv(300, meta["BLOCK"]),), torch.ones(300), torch.zeros(300), 300, BLOCK=64)
    found = lab.bench(
        scale_kernel, over={"n": [100, 1000], "dtype": ["float32", "float16"]}, versus=lambda x_ptr: x_ptr * 3 + 3,
        check=True,
    )  # fmt: skip
    assert found.frame.bytes.tolist() == [800] * 2 + [400] * 2 + [8000] * 2 + [4000] * 2
    assert set(found.frame.status) == {"not_timed"}


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"inputs": lambda n: 5}, UsageError, "inputs returns a int"),
        ({"inputs": lambda n: {"x_ptr": torch.zeros(n)}}, LaunchError, "launched without y_ptr, out_ptr"),
        ({"inputs": inputs, "flops": -1}, UsageError, "flops gives -1"),
        ({"inputs": inputs, "versus": {"a": "absent@3"}}, UnknownName, "absent@3"),
    ],
)
def test_a_question_that_fits_nothing_is_an_error(
    lab: kernellab.Lab, asked: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lab.bench(add_kernel, grid, over={"n": [64]}, BLOCK=64, **asked)


def test_what_was_never_launched_needs_a_grid(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match="The grid is missing"):
        lab.bench(add_kernel, over={"n": [64]}, inputs=inputs)
    lab.kernels.add(lab.bind(tuned_kernel))
    with pytest.raises(UsageError, match=r"No launch of tuned_kernel@1 is kept"):
        lab.bench(tuned_kernel, over={"n": [64]})
