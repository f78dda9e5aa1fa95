"""Launches of autotuned kernels in a program: a grid for each config, and a choice for each key."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import KernellabError
from tests import samples


def by_block(meta: Any) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def copied(lab: kernellab.Lab, **options: int) -> Any:
    kernel, x, out = lab.bind(samples.tuned_kernel), torch.arange(300.0), torch.zeros(300)
    with lab.capture() as program:
        kernel[by_block](x, out, 300, **options)
    return kernel, program


def test_a_program_keeps_a_grid_for_each_config(lab: kernellab.Lab) -> None:
    _, program = copied(lab)
    (step,) = program.tape.launches
    assert step.use is not None
    assert step.use.tuning is not None
    assert [(dict(each.supplied), each.grid) for each in step.use.tuning.configs] == [
        ({"BLOCK": 64}, (5, 1, 1)),
        ({"BLOCK": 128}, (3, 1, 1)),
    ]
    (node,) = [node for node in program.graph.graph.nodes if node.op == "call_function"]
    assert [grid for _, grid in node.args[3]] == [(5, 1, 1), (3, 1, 1)]


@pytest.mark.slow
def test_a_run_launches_what_is_chosen_then(lab: kernellab.Lab) -> None:
    kernel, program = copied(lab)
    for config, grid in zip(kernel.configs, ((5, 1, 1), (3, 1, 1)), strict=True):
        kernel.cache = dict.fromkeys(kernel.cache, config)
        out, x = torch.zeros(300), torch.rand(300)
        with lab.launches.recording() as recorder:
            program.run(x=x, out=out)
        (record,) = recorder.records.values()
        assert (record.grid, record.arguments["BLOCK"]) == (grid, config.kwargs["BLOCK"])
        torch.testing.assert_close(out, x)
    functional = program.functionalise()
    torch.testing.assert_close(functional.run(x=x, out=torch.zeros(300))["out"], x)


def test_a_config_with_a_hook_is_kept_as_it_ran_and_that_is_said(lab: kernellab.Lab) -> None:
    config = triton.Config({"BLOCK": 64}, pre_hook=lambda given: given["out_ptr"].zero_())
    kernel = lab.bind(triton.autotune([config], key=[])(samples.tuned_kernel.fn))
    with lab.capture() as program:
        kernel[by_block](torch.rand(300), torch.zeros(300), 300)
    assert "keeps the config that it ran with: its configs have hooks" in "".join(program.notes)
    (step,) = program.tape.launches
    assert step.use is not None
    assert step.use.tuning is None


@pytest.mark.slow
def test_a_dynamic_program_chooses_for_the_sizes_of_the_run(lab: kernellab.Lab) -> None:
    kernel, x = lab.bind(samples.tuned_kernel), torch.rand(256)
    with lab.capture(dynamic=True) as program:
        out = torch.zeros_like(x)
        kernel[by_block](x, out, x.numel())
        program.returns(out)
    for n, block in ((192, 128), (192, 64), (512, 128)):
        fresh = torch.rand(n)
        program.run(x=fresh)
        chosen = next(config for config in kernel.configs if config.kwargs["BLOCK"] == block)
        kernel.cache = dict.fromkeys(kernel.cache, chosen)
        with lab.launches.recording() as recorder:
            torch.testing.assert_close(program.run(x=fresh)["out"], fresh)
        (record,) = recorder.records.values()
        assert record.grid == (triton.cdiv(n, block), 1, 1)
        assert record.arguments["EVEN"] == (n % block == 0), "what heuristics give follows from the sizes, too"


@pytest.mark.slow
def test_configs_that_differ_by_a_heuristic_alone_are_told_apart(lab: kernellab.Lab) -> None:
    decorated = triton.heuristics({"BLOCK": lambda given: 16 * given["num_warps"]})(samples.tuned_kernel.fn)
    kernel = lab.bind(triton.autotune([triton.Config({}, num_warps=w) for w in (4, 8)], key=["n"])(decorated))
    x, out = torch.rand(300), torch.zeros(300)
    with lab.capture() as program:
        kernel[by_block](x, out, 300)
    (step,) = program.tape.launches
    assert step.use is not None
    assert step.use.tuning is not None
    assert [each.grid for each in step.use.tuning.configs] == [(5, 1, 1), (3, 1, 1)]
    fresh = torch.rand(300)
    program.run(x=fresh, out=out)
    torch.testing.assert_close(out, fresh)


@triton.autotune([triton.Config({"BOTH": False}), triton.Config({"BOTH": True})], key=["n"])
@triton.jit
def one_or_both(x_ptr, out_ptr, extra_ptr, n, BOTH: tl.constexpr):
    offsets = tl.arange(0, 128)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x, mask=offsets < n)
    if BOTH:
        tl.store(extra_ptr + offsets, x, mask=offsets < n)


@pytest.mark.slow
def test_a_config_that_changes_other_arguments_than_the_recorded_one_is_refused(lab: kernellab.Lab) -> None:
    kernel, x, out, extra = lab.bind(one_or_both), torch.rand(100), torch.zeros(100), torch.zeros(100)
    with lab.capture() as program:
        kernel[(1,)](x, out, extra, 100)
    pure = program.functionalise()
    pure.run(x=x, out=out, extra=extra)
    kernel.cache = dict.fromkeys(kernel.cache, kernel.configs[1])
    for each in (program, pure):
        with pytest.raises(KernellabError, match="one_or_both was launched with a config that changes extra_ptr"):
            each.run(x=x, out=out, extra=extra)
