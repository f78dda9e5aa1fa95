from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import triton.language as tl

from kernellab.errors import UsageError
from kernellab.explore.controls import Subject, plan_controls

ADD = Subject(
    parameters=("x_ptr", "out_ptr", "n", "BLOCK"),
    constexprs=frozenset({"BLOCK"}),
    defaults={},
    given={"x_ptr": "tensor", "out_ptr": "tensor", "n": 1000, "BLOCK": 256},
    numel=1000,
    dtypes=(tl.float16, tl.bfloat16, tl.float32),
)


def names(subject: Subject, **ranges: Any) -> dict[str, tuple[tuple[Any, ...], Any]]:
    return {c.name: (c.choices, c.start) for c in plan_controls(subject, ranges).controls}


def test_blocks_and_warps_are_proposed_and_sizes_are_not() -> None:
    found = names(ADD)
    assert list(found) == ["BLOCK", "num_warps"]
    assert found["BLOCK"] == ((32, 64, 128, 256, 512, 1024, 2048), 256)
    assert found["num_warps"] == ((1, 2, 4, 8, 16), 4)


def test_stages_are_proposed_for_a_loop() -> None:
    assert names(dataclasses.replace(ADD, has_loop=True))["num_stages"] == ((1, 2, 3, 4, 5), 3)


def test_switches_and_types_are_proposed_and_odd_numbers_are_not() -> None:
    subject = dataclasses.replace(
        ADD,
        parameters=("x_ptr", "CAUSAL", "DTYPE", "WIDTH", "ACT"),
        constexprs=frozenset({"CAUSAL", "DTYPE", "WIDTH", "ACT"}),
        given={"x_ptr": "tensor", "CAUSAL": True, "DTYPE": tl.float32, "WIDTH": 80, "ACT": "relu"},
    )
    found = names(subject)
    assert list(found) == ["CAUSAL", "DTYPE", "num_warps"]
    assert found["CAUSAL"] == ((False, True), True)
    assert found["DTYPE"] == ((tl.float32, tl.float16, tl.bfloat16), tl.float32)


def test_what_the_user_gives_replaces_the_proposals() -> None:
    plan = plan_controls(ADD, {"BLOCK": [64, ..., 256], "num_stages": 2})
    assert [control.name for control in plan.controls] == ["BLOCK"]
    assert plan.fixed == {"x_ptr": "tensor", "out_ptr": "tensor", "n": 1000, "num_stages": 2}


def test_options_of_the_call_are_where_proposals_start() -> None:
    assert names(ADD, num_warps=8)["num_warps"] == ((1, 2, 4, 8, 16), 8)


def test_a_range_of_sizes_starts_where_the_memory_ends() -> None:
    assert names(ADD, n=(1, 10**7))["n"][1] == 1000


def test_a_constexpr_that_nobody_gave_gets_powers_of_two() -> None:
    subject = dataclasses.replace(ADD, given={"x_ptr": "tensor", "out_ptr": "tensor", "n": 1000})
    assert names(subject)["BLOCK"][1] == 256


def test_values_of_configs_are_proposed() -> None:
    configs = ({"BLOCK": 64, "num_warps": 4}, {"BLOCK": 512, "num_warps": 8}, {"BLOCK": 128, "num_warps": 8})
    subject = dataclasses.replace(ADD, given={"x_ptr": "tensor", "out_ptr": "tensor", "n": 1000}, configs=configs)
    assert names(subject) == {"BLOCK": ((64, 128, 512), 64), "num_warps": ((4, 8), 4)}


def test_a_grid_of_numbers_gets_a_slider_and_a_remark() -> None:
    plan = plan_controls(dataclasses.replace(ADD, grid=(4, 1, 1)), {})
    assert [control.name for control in plan.controls] == ["BLOCK", "num_warps", "grid_x"]
    assert "The grid is 4 whatever BLOCK is" in plan.notes[0]


def test_a_grid_of_numbers_under_two_blocks_is_said_to_follow_neither_of_them() -> None:
    given = {"x_ptr": "tensor", "out_ptr": "tensor", "n": 1000, "BLOCK_T": 16, "BLOCK_D": 32}
    blocks = ("BLOCK_T", "BLOCK_D")
    parameters = (*ADD.parameters[:3], *blocks)
    subject = dataclasses.replace(ADD, grid=(4, 1, 1), given=given, parameters=parameters, constexprs=frozenset(blocks))
    note = plan_controls(subject, {}).notes[0]
    assert note.startswith("The grid is 4 whatever BLOCK_T and BLOCK_D are; pass a function of those")


def test_a_flag_is_no_block_that_a_grid_of_numbers_could_follow() -> None:
    given = {**ADD.given, "HAS_BIAS": True}
    parameters, constexprs = (*ADD.parameters, "HAS_BIAS"), ADD.constexprs | {"HAS_BIAS"}
    subject = dataclasses.replace(ADD, grid=(4, 1, 1), given=given, parameters=parameters, constexprs=constexprs)
    note = plan_controls(subject, {}).notes[0]
    assert note == (
        "The grid is 4 whatever BLOCK is; if its programs split n among them, pass lambda meta: "
        '(triton.cdiv(n, meta["BLOCK"]),) to let it follow.'
    )


@pytest.mark.parametrize("grid", [(16, 1, 1), (4, 2, 1)])
def test_a_grid_of_numbers_that_is_no_size_by_block_gets_no_function_of_it(grid: tuple[int, int, int]) -> None:
    assert plan_controls(dataclasses.replace(ADD, grid=grid), {}).notes == ()


@pytest.mark.parametrize("n", [[1000, 2000], 1000])
def test_a_size_of_the_sliders_is_one_that_the_grid_may_split(n: Any) -> None:
    subject = dataclasses.replace(ADD, grid=(4, 1, 1), given={"x_ptr": "tensor", "out_ptr": "tensor"})
    (note,) = plan_controls(subject, {"n": n, "BLOCK": [256, 512]}).notes
    assert "triton.cdiv(n," in note


def test_a_range_of_the_grid_starts_at_the_grid() -> None:
    found = names(dataclasses.replace(ADD, grid=(4, 1, 1)), grid_x=(1, 64), BLOCK=[64])
    assert found["grid_x"] == (tuple(range(1, 65)), 4)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UsageError, match="BLOK is neither a parameter"):
        plan_controls(ADD, {"BLOK": [64, 128]})


def test_controls_start_at_the_values_of_the_last_launch() -> None:
    launched = dataclasses.replace(ADD, given={"n": 1000}, launched={"BLOCK": 512, "num_warps": 8})
    assert {name: start for name, (_, start) in names(launched).items()} == {"BLOCK": 512, "num_warps": 8}
    listed = names(launched, BLOCK=[128, 256, 512], num_warps=[1, 2])
    assert {name: start for name, (_, start) in listed.items()} == {"BLOCK": 512, "num_warps": 1}


def test_a_range_starts_at_the_value_of_the_call() -> None:
    assert names(dataclasses.replace(ADD, numel=None), n=(1, 5000))["n"][1] == 1000


def test_an_autotuned_kernel_starts_at_the_config_of_its_launch() -> None:
    configs = ({"BLOCK": 128, "num_warps": 4}, {"BLOCK": 1024, "num_warps": 8})
    tuned = dataclasses.replace(ADD, given={"n": 1000}, configs=configs, launched={"BLOCK": 1024, "num_warps": 8})
    assert {name: start for name, (_, start) in names(tuned).items()} == {"BLOCK": 1024, "num_warps": 8}


def test_a_descriptor_whose_block_does_not_follow_is_named() -> None:
    subject = dataclasses.replace(ADD, given={"BLOCK": 32}, blocks={"a": (32, 64)})
    (note,) = plan_controls(subject, {"BLOCK": [32, 64]}).notes
    assert note.startswith("The block of the descriptor a is [32, 64] whatever BLOCK is")
    assert plan_controls(dataclasses.replace(subject, given={"BLOCK": 128}), {"BLOCK": [128]}).notes == ()
