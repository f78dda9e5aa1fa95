"""The panel without a front end: every move is worked on before it returns."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import kernellab
from kernellab.errors import UsageError
from kernellab.explore.evaluator import bound_grid
from kernellab.store.columns import OUTCOME_COLUMNS, PREDICTED_COLUMNS
from kernellab.views.panels import Panel
from tests import samples

SIZE = 3000


def grid(meta: Any) -> tuple[int]:
    return (triton.cdiv(SIZE, meta["BLOCK"]),)


@pytest.fixture
def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(SIZE), torch.randn(SIZE), torch.zeros(SIZE)


@pytest.fixture
def opened(lab: kernellab.Lab, tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> Callable[..., Panel]:
    def panel(**given: Any) -> Panel:
        return lab.explore(samples.add_kernel, given.pop("grid", grid), *tensors, **{"n": SIZE, **given})

    return panel


@pytest.mark.slow
def test_the_first_point_is_there_when_the_panel_is(opened: Callable[..., Panel]) -> None:
    panel = opened(BLOCK=256)
    assert panel.values == {"BLOCK": 256, "num_warps": 4}
    assert panel.point is not None
    assert panel.point.compiled is not None
    assert panel.point.grid == (12, 1, 1)
    assert panel.point.row.registers


@pytest.mark.slow
def test_moves_leave_the_tensors_of_the_user_alone(opened: Callable[..., Panel], tensors: Any) -> None:
    panel = opened(BLOCK=[64, 128])
    evaluation = panel.set(BLOCK=128).wait()
    assert evaluation.run is not None
    assert evaluation.run.changed["out_ptr"] == SIZE
    assert torch.equal(tensors[2], torch.zeros(SIZE))


@pytest.mark.slow
def test_outputs_are_compared_with_those_of_the_first_point(opened: Callable[..., Panel]) -> None:
    panel = opened(BLOCK=[64, 128], num_warps=[4])
    first = panel.wait()
    second = panel.set(BLOCK=128).wait()
    assert first.verdict.equal is None
    assert second.verdict.equal is True
    assert second.verdict.text == "agrees with the first point (BLOCK=64, num_warps=4)"


@pytest.mark.parametrize("check", [None, lambda x_ptr, y_ptr: x_ptr + y_ptr])
def test_a_result_of_an_earlier_launch_does_not_pass_for_that_of_a_point(
    opened: Callable[..., Panel], tensors: Any, check: Any
) -> None:
    tensors[2].copy_(tensors[0] + tensors[1])
    panel = opened(grid=(24,), grid_x=[24, 1], BLOCK=[128], check=check)
    assert panel.wait().verdict.equal is (None if check is None else True)
    part = panel.set(grid_x=1).wait()
    assert part.verdict.equal is False
    assert part.row.status == ("differs" if check is None else "wrong")
    assert part.verdict.is_right is (None if check is None else False)
    if check is not None:
        assert f"{SIZE - 128:,} of them never written" in part.verdict.text


def test_outputs_are_compared_with_a_function_of_the_parameters(opened: Callable[..., Panel]) -> None:
    assert opened(BLOCK=[64, 128], check=lambda x_ptr, y_ptr: x_ptr + y_ptr).wait().verdict.equal is True
    wrong = opened(BLOCK=[64, 128], check=lambda x_ptr: x_ptr).wait()
    assert wrong.verdict.equal is False
    assert wrong.row.status == "wrong"
    assert "out_ptr differs from check" in wrong.row.reason


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (lambda x_ptr: (x_ptr, x_ptr), "check gives 2 values and the kernel writes out_ptr"),
        (lambda x_ptr: x_ptr[:5], "check has the shape"),
        (lambda nobody: nobody, "check takes nobody; the kernel has x_ptr"),
        (lambda x_ptr: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_reference_that_does_not_fit_shows_in_place(opened: Callable[..., Panel], check: Any, words: str) -> None:
    assert words in opened(BLOCK=[64, 128], check=check).wait().row.reason


def test_a_reference_cannot_change_what_the_kernel_reads(opened: Callable[..., Panel]) -> None:
    panel = opened(BLOCK=[64, 128], check=lambda x_ptr, y_ptr: x_ptr.add_(y_ptr))
    assert panel.wait().verdict.equal is True
    assert panel.set(BLOCK=128).wait().verdict.equal is True


@pytest.mark.slow
def test_a_large_grid_is_run_in_part_and_not_compared(opened: Callable[..., Panel]) -> None:
    evaluation = opened(BLOCK=[1, 64]).set(BLOCK=1).wait()  # it opens at the latest launch that the lab keeps
    assert evaluation.run is not None
    assert evaluation.run.grid == (512, 1, 1)
    assert evaluation.verdict.equal is None
    assert evaluation.verdict.text == "not compared: 512 of 3,000 programs ran"


def test_no_more_programs_run_than_somebody_waits_for() -> None:
    assert bound_grid((8, 8, 8)) == (8, 8, 8)
    assert bound_grid((100, 100, 100)) == (100, 5, 1)
    assert bound_grid((1, 1, 10**6)) == (1, 1, 512)


@pytest.mark.slow
def test_a_grid_that_leaves_elements_out_differs_from_the_first_point(opened: Callable[..., Panel]) -> None:
    panel = opened(grid=(12,), BLOCK=[256, 128])
    assert panel.set(BLOCK=128).wait().verdict.equal is False


def test_other_sizes_are_not_compared_with_each_other(opened: Callable[..., Panel]) -> None:
    panel = opened(BLOCK=[64, 128], n=(1, SIZE))
    assert panel.values["n"] == SIZE
    assert panel.set(n=1000).wait().verdict.equal is None
    assert panel.set(BLOCK=128).wait().verdict.equal is True


def test_a_point_that_does_not_compile_leaves_the_last_good_figures(opened: Callable[..., Panel]) -> None:
    panel = opened(BLOCK=[64, 96, 128])
    evaluation = panel.set(BLOCK=96).wait()
    assert evaluation.row.status == "compile_error"
    assert "power of 2" in evaluation.row.reason
    html = panel._repr_mimebundle_()["text/html"]
    assert "Figures of the last good point, BLOCK=64" in html
    assert "power of 2" in html
    good = panel.set(BLOCK=128).wait()
    assert good.row.status == "not_timed"
    assert "Figures of the last good point" not in panel._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize(
    ("bad_grid", "words"),
    [(lambda meta: (-1,), "cannot be negative"), (lambda meta: (meta["NAME"],), "KeyError"), ((1, 1, 1, 1), None)],
)
def test_a_bad_grid_shows_in_place(opened: Callable[..., Panel], bad_grid: Any, words: str | None) -> None:
    if words is None:
        with pytest.raises(UsageError, match="expected one to three integers"):
            opened(grid=bad_grid)
        return
    evaluation = opened(grid=bad_grid, BLOCK=[64, 128]).wait()
    assert evaluation.has_failed
    assert words in evaluation.row.reason


@pytest.mark.slow
def test_an_access_out_of_bounds_shows_in_place(opened: Callable[..., Panel]) -> None:
    panel = opened(BLOCK=[64, 128], n=(1, 10**6))
    evaluation = panel.set(n=100_000, BLOCK=128).wait()
    assert evaluation.row.status == "fault"
    assert evaluation.error is not None
    assert evaluation.error.place is not None


@pytest.mark.slow
def test_the_target_can_be_chosen_and_changed(opened: Callable[..., Panel]) -> None:
    assert opened(BLOCK=[64, 128], target="cuda:80").wait().target == "cuda:80"
    panel = opened(BLOCK=[64, 128])
    assert panel.set(target="hip:gfx942").wait().target == "hip:gfx942"
    with pytest.raises(UsageError, match="target is 'cuda:1'"):
        panel.set(target="cuda:1")


@pytest.mark.slow
def test_sliders_moved_one_by_one_are_the_same_as_set(opened: Callable[..., Panel]) -> None:
    panel = opened(BLOCK=[64, 128], num_warps=[1, 2])
    panel._sliders["BLOCK"].value = 128
    assert panel.wait().point.named == {"BLOCK": 128, "num_warps": 1}


def test_an_unknown_control_is_refused(opened: Callable[..., Panel]) -> None:
    with pytest.raises(UsageError, match="no control 'BLOK'; expected one of BLOCK, num_warps, target"):
        opened(BLOCK=256).set(BLOK=3)


def test_the_history_is_a_frame_like_that_of_a_tuning(opened: Callable[..., Panel]) -> None:
    panel = opened(BLOCK=[64, 96, 128])
    for block in (96, 128):
        panel.set(BLOCK=block).wait()
    frame = panel.history
    assert set(OUTCOME_COLUMNS) <= set(frame.columns)
    assert frame["BLOCK"].tolist() == [64, 96, 128]
    assert frame["status"].tolist() == ["not_timed", "compile_error", "not_timed"]
    assert frame["time_ms"].isna().all()
    assert frame["grid"].tolist() == [(47, 1, 1), None, (24, 1, 1)]
    assert frame.attrs["jobs"] == 3


@pytest.mark.slow
def test_a_kept_point_is_found_again(opened: Callable[..., Panel], lab: kernellab.Lab) -> None:
    panel = opened(BLOCK=[64, 96, 128])
    panel.set(BLOCK=128).wait()
    kept = panel.keep()
    assert kept.label.startswith("add_kernel@")
    assert "kept-config" in lab.kernels.store.tags()[lab.kernels.version(kept.label).id]
    assert "Kept earlier: BLOCK=128" in repr(opened(BLOCK=[64, 128]))
    panel.set(BLOCK=96).wait()
    with pytest.raises(UsageError, match="BLOCK=96 is not kept"):
        panel.keep()


@pytest.mark.slow
@pytest.mark.parametrize("given", [(47,), grid])
def test_points_of_other_grids_are_kept_apart(opened: Callable[..., Panel], lab: kernellab.Lab, given: Any) -> None:
    panel = opened(grid=given, n=1200, BLOCK=64, grid_x=[47, 20])
    labels = {panel.set(grid_x=extent).keep().label for extent in (47, 20)}
    history = lab.kernels.store.history.measurements(lab.kernels.version(labels.pop()).id)
    first, second = (row.measurement for row in history[-2:])
    assert first.config == second.config
    assert first.key != second.key


@pytest.mark.slow
def test_in_an_event_loop_fast_moves_end_on_the_last(opened: Callable[..., Panel]) -> None:
    panel = opened(BLOCK=[64, ..., 2048])
    begun = panel.jobs

    async def drag() -> None:
        for block in (128, 256, 512, 1024, 2048):
            panel._sliders["BLOCK"].value = block
            await asyncio.sleep(0)
        panel.wait()

    asyncio.run(drag())
    assert panel.point is not None
    assert panel.point.point.named["BLOCK"] == 2048
    assert panel.jobs - begun <= 2


def test_the_picture_is_static_and_the_text_says_the_same(opened: Callable[..., Panel]) -> None:
    bundle = opened(BLOCK=[64, 128])._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "<script" not in bundle["text/html"]
    assert "<svg" in bundle["text/html"]
    for words in ("Exploring add_kernel", "registers", "the interpreter ran 47 programs", "Controls: BLOCK 64 or 128"):
        assert words in bundle["text/plain"]


@pytest.mark.slow
def test_an_autotuned_kernel_is_explored_over_its_configs(lab: kernellab.Lab) -> None:
    x, out = torch.randn(SIZE), torch.zeros(SIZE)
    panel = lab.explore(samples.tuned_kernel, grid, x, out, SIZE)
    assert panel.values == {"BLOCK": 64, "num_warps": 4}
    evaluation = panel.set(BLOCK=128, num_warps=8).wait()
    assert evaluation.verdict.equal is True


@pytest.mark.slow
def test_an_interrupt_while_the_first_point_is_worked_on_is_one_line(
    lab: kernellab.Lab, opened: Callable[..., Panel]
) -> None:
    opened(BLOCK=[64])  # imports what a panel needs, so that the interrupt finds the launch that never ends
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt, match="Opening the sliders of endless_kernel was interrupted"):
        lab.explore(samples.endless_kernel, (1,), torch.zeros(4))


def set_block(arguments: Any) -> None:
    arguments["a"].block_shape = [arguments["BLOCK"]]


@triton.autotune([triton.Config({"BLOCK": block}, pre_hook=set_block) for block in (32, 64)], key=["n"])
@triton.jit
def copy_by_descriptor(a, out_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    tl.store(out_ptr + first + tl.arange(0, BLOCK), a.load([first]))


@pytest.mark.slow
def test_the_block_of_a_descriptor_follows_by_the_hook_of_the_configs(lab: kernellab.Lab) -> None:
    values, out = torch.randn(128), torch.zeros(128)
    panel = lab.explore(
        copy_by_descriptor,
        lambda meta: (128 // meta["BLOCK"],),
        TensorDescriptor.from_tensor(values, [32]),
        out,
        128,
        check=lambda: values,
    )
    assert panel.wait().verdict.equal is True
    moved = panel.set(BLOCK=64).wait()
    assert moved.verdict.equal is True
    assert moved.compiled is not None
    assert "tensordesc<fp32[64]>" in {parameter.type for parameter in moved.compiled.parameters}


@pytest.mark.slow
def test_without_a_gpu_each_point_has_a_predicted_time_and_the_chart_says_so(
    opened: Callable[..., Panel], lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "settings", replace(lab.settings, predict=True))
    panel = opened(BLOCK=[32, 1024])
    panel.set(BLOCK=32).wait()
    slow = panel.set(BLOCK=1024).wait()
    assert slow.prediction is not None
    times = panel.frame[list(PREDICTED_COLUMNS)]
    assert times.notna().all(axis=None)
    assert (times["predicted_low_ms"] < times["predicted_ms"]).all()
    assert panel.frame["time_ms"].isna().all()
    text = panel._repr_mimebundle_()["text/plain"]
    assert f"on {slow.prediction.device}, limited by {slow.prediction.bound}" in text
    assert "predicted ms with interval" in panel._repr_mimebundle_()["text/html"]


@pytest.mark.slow
def test_a_point_for_another_target_is_predicted_for_its_device_and_for_amd_has_no_time(
    opened: Callable[..., Panel], lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab, "settings", replace(lab.settings, predict=True))
    panel = opened(BLOCK=[64, 128])
    panel.set(target="cuda:89")
    assert panel.point is not None
    assert panel.point.prediction is not None
    assert panel.point.prediction.device == "L40S"
    panel.set(target="hip:gfx942")
    assert panel.point.prediction is None
    assert panel.point.row.predicted_ms is None


@triton.jit
def scaled_rows(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    row = tl.program_id(0) * n + columns
    tl.store(out_ptr + row, scale * tl.load(x_ptr + row, mask=mask), mask=mask)


@pytest.fixture
def rows(lab: kernellab.Lab) -> Callable[..., Panel]:
    """Open a panel over a kernel with a row per program: of 48 elements, so that a block of 32 leaves some out."""

    def panel(blocks: list[int], **given: Any) -> Panel:
        x, out = torch.randn(4, 48), torch.zeros(4, 48)
        return lab.explore(scaled_rows, (4,), x, out, 48, scale=[2.0, 3.0], BLOCK=blocks, **given)

    return panel


def facts(panel: Panel) -> str:
    return str(panel._repr_mimebundle_()["text/plain"])


def test_the_first_point_is_said_not_to_be_checked(rows: Callable[..., Panel]) -> None:
    words = "no check was given; other points are compared with this one"
    assert f"outputs: not checked ({words})" in facts(rows([32, 64]))
    assert "not checked" not in facts(rows([64], check=lambda x_ptr, scale: scale * x_ptr))


@pytest.mark.slow
def test_a_config_that_differs_does_not_become_the_first_point_where_an_argument_moves(
    rows: Callable[..., Panel],
) -> None:
    panel = rows([64, 32])
    assert panel.set(BLOCK=32).wait().row.status == "differs"
    moved = panel.set(scale=3.0).wait()
    assert moved.row.status == "differs"
    assert moved.row.reason.startswith("differs from the config of the first point (scale=3.0, BLOCK=64)")
    assert "not checked: no check" in panel.set(BLOCK=64).wait().verdict.text


@pytest.mark.slow
def test_a_kept_point_that_was_not_checked_says_so_and_says_so_later(rows: Callable[..., Panel]) -> None:
    panel = rows([32, 64])
    assert panel.keep().warning == "Its outputs were not checked."
    panel.set(BLOCK=64)
    with pytest.raises(UsageError, match="Nothing says which of the two is right: explore with check"):
        panel.keep()
    kept = panel.set(BLOCK=32).keep()
    assert kept.text.endswith("Its outputs were not checked, and those of scale=2.0, BLOCK=64 differ.")
    assert kept.text in facts(panel)
    assert "Kept earlier: scale=2.0, BLOCK=32 (not timed, outputs not checked)" in facts(rows([64]))


def test_a_kept_point_that_was_checked_has_no_warning(rows: Callable[..., Panel]) -> None:
    panel = rows([64], check=lambda x_ptr, scale: scale * x_ptr)
    assert panel.keep().warning == ""
    assert "Kept earlier: scale=2.0, BLOCK=64 (not timed)" in facts(rows([64]))
