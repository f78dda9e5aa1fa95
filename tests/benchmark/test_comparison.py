"""Two kernels on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import kernellab
from kernellab.benchmark.comparison import Timing
from kernellab.errors import UnknownName, UsageError
from kernellab.notebook.cell import CellOptions, run_cell
from kernellab.views.cards.benchmark import comparison_card, timing_words
from kernellab.views.data import comparison_data, comparison_rows
from tests.labs import shared_lab

SCALE = """
@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 3 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

scale[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, BLOCK=128)
"""
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab(store=":memory:") as opened:
        launch(opened, SCALE)
        yield opened


def launch(lab: kernellab.Lab, text: str) -> None:
    x = torch.linspace(-1, 1, 300, device=DEVICE)
    names: dict[str, Any] = {"x": x, "out": torch.zeros_like(x), "n": 300}
    run_cell(lab, text, names, "In[1]", CellOptions(), lambda value: None)


@pytest.mark.slow
def test_versions_that_compute_the_same_are_equal(lab: kernellab.Lab) -> None:
    launch(lab, SCALE.replace("3 * tl.load", "2.0 * tl.load").replace("tl.store(out_ptr", "tl.store(out_ptr"))
    launch(lab, SCALE.replace("BLOCK=128", "BLOCK=256").replace("3 *", "1 * 3 *"))
    comparison = lab.compare("scale@1", "scale@3")
    assert comparison.equal
    assert [check.argument for check in comparison.outputs] == ["out_ptr"]
    assert comparison.names == ("scale@1", "scale@3")
    assert "+    tl.store(out_ptr + offsets, 1 * 3 *" in comparison.source_diff
    assert "out_ptr matches" in comparison_card(comparison).text()
    assert "scale@3" in comparison_card(comparison).html()


PAIR = """
@triton.jit
def paired(pair, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(pair[1] + offsets, 3 * tl.load(pair[0] + offsets))

paired[(1,)]((x, out), BLOCK=128)
"""


@pytest.mark.slow
def test_tuples_are_not_shared_by_the_two_that_are_compared(lab: kernellab.Lab) -> None:
    launch(lab, PAIR)
    launch(lab, PAIR.replace("3 *", "2 *"))
    comparison = lab.compare("paired@1", "paired@2")
    assert [check.argument for check in comparison.outputs] == ["pair[1]"]
    assert not comparison.equal


@pytest.mark.slow
def test_versions_that_differ_say_where_and_by_how_much(lab: kernellab.Lab) -> None:
    launch(lab, SCALE.replace("3 *", "2 *"))
    comparison = lab.compare("scale@1", "scale@2")
    assert not comparison.equal
    assert comparison.outputs[0].max_error == pytest.approx(1, abs=0.1)
    assert "out_ptr of scale@2 DIFFERS" in comparison_card(comparison).text()


@pytest.mark.slow
def test_elements_that_only_one_of_them_writes_are_told(lab: kernellab.Lab) -> None:
    launch(lab, SCALE.replace("tl.store(out_ptr + offsets", "tl.store(out_ptr + offsets % 150"))
    (check,) = lab.compare("scale@1", "scale@2").outputs
    assert (check.mismatched >= 150, check.never_written) == (True, 150)
    reverse = lab.compare("scale@2", "scale@1")
    (check,) = reverse.outputs
    assert (check.mismatched >= 150, check.never_written) == (True, 150)
    assert math.isfinite(check.max_error), "an element that one of them never writes has no error"
    assert f"{check.mismatched} of 300 elements, 150 of them written by one of the two alone" in str(reverse)
    (check,) = lab.compare("scale@2", "scale@2").outputs
    assert check.equal
    (check,) = lab.compare("scale@2", lambda x_ptr: 3 * x_ptr).outputs
    assert not check.equal


@pytest.mark.slow
def test_different_grids_on_the_same_inputs_are_named(lab: kernellab.Lab) -> None:
    launch(lab, SCALE.replace("3 *", "4 *").replace("BLOCK=128", "BLOCK=256"))
    assert lab.compare("scale@1", "scale@2").notes == ("scale@1 ran with the grid (3, 1, 1), scale@2 with (2, 1, 1)",)


@pytest.mark.slow
def test_a_changed_helper_is_a_difference_of_the_source(lab: kernellab.Lab) -> None:
    helper = "@triton.jit\ndef times(x):\n    return {} * x\n\n"
    body = SCALE.replace(
        "3 * tl.load(x_ptr + offsets, mask=offsets < n)", "times(tl.load(x_ptr + offsets, mask=offsets < n))"
    )
    for factor in ("3", "1 * 3"):
        launch(lab, helper.format(factor) + body)
    comparison = lab.compare("scale@2", "scale@3")
    assert "-    return 3 * x" in comparison.source_diff
    assert "+    return 1 * 3 * x" in comparison.source_diff


@pytest.mark.slow
def test_effects_that_differ_are_named(lab: kernellab.Lab) -> None:
    launch(lab, SCALE.replace("3 *", "tl.load(out_ptr + offsets, mask=offsets < n) +"))
    assert lab.compare("scale@1", "scale@2").effects == ("now reads: out_ptr",)
    assert lab.compare("scale@2", "scale@1").effects == ("no longer reads: out_ptr",)


@pytest.mark.slow
def test_a_kernel_is_compared_with_an_expression_of_torch(lab: kernellab.Lab) -> None:
    assert lab.compare("scale", lambda x_ptr: 3 * x_ptr).equal
    comparison = lab.compare("scale", lambda x_ptr: 4 * x_ptr)
    assert not comparison.equal
    assert "DIFFERS" in comparison_card(comparison).html()
    assert "tl.store" not in comparison_card(comparison).text()  # a kernel and an expression have no lines in common
    with pytest.raises(UsageError, match="takes y; scale@1 has x_ptr, out_ptr, n"):
        lab.compare("scale", lambda y: y)


@pytest.mark.slow
def test_a_function_gives_outputs_by_name_or_is_refused_in_a_sentence(lab: kernellab.Lab) -> None:
    assert lab.compare("scale", lambda x_ptr: {"out_ptr": 3 * x_ptr}).equal
    assert not lab.compare("scale", lambda x_ptr: {"out_ptr": 2 * x_ptr}).equal
    for function, said in (
        (lambda x_ptr: {"x_ptr": x_ptr}, "The function gives x_ptr, and the kernel writes out_ptr"),
        (lambda x_ptr: None, "The function gives 1 value and the kernel writes out_ptr"),
        (lambda x_ptr: "text", "The function gives a str; expected tensors"),
        (lambda x_ptr: x_ptr[:3], r"The function has the shape \(3,\) and out_ptr has \(300,\)"),
        (lambda x_ptr: 1 / 0, "The function raised ZeroDivisionError: division by zero"),
    ):
        with pytest.raises(UsageError, match=said):
            lab.compare("scale", function)


TWO_BLOCKS = """
@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    tl.store(out_ptr + offsets, 3 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

scale[GRID](x[:SIZE], out[:SIZE], SIZE, BLOCK=64)
"""


@pytest.mark.slow
def test_a_version_runs_on_a_grid_that_it_was_launched_on_with_such_sizes(lab: kernellab.Lab) -> None:
    launch(lab, TWO_BLOCKS.replace("GRID", "(1,)").replace("SIZE", "100"))
    comparison = lab.compare("scale@1", "scale@2")
    assert (comparison.outputs, comparison.failures, comparison.same_inputs) == ((), (None, None), False)
    assert "on its own inputs" in comparison.why_no_timing
    launch(lab, TWO_BLOCKS.replace("GRID", "(3,)").replace("SIZE", "300"))
    assert lab.compare("scale@1", "scale@2").equal
    assert lab.compare("scale@2", "scale@1").equal
    launch(lab, TWO_BLOCKS.replace("GRID", "(2,)").replace("SIZE", "200"))
    assert lab.compare("scale@2", "scale@1").equal


@pytest.mark.slow
def test_a_grid_function_of_the_user_holds_for_other_sizes(lab: kernellab.Lab) -> None:
    grid = 'lambda meta: (triton.cdiv(meta["n"], 2 * meta["BLOCK"]),)'
    launch(lab, TWO_BLOCKS.replace("GRID", grid).replace("SIZE", "100"))
    comparison = lab.compare("scale@1", "scale@2")
    assert comparison.equal
    assert len(comparison.notes) == 1
    said = "scale@2 was not launched on these sizes: its grid comes from its grid function, lambda meta: "
    assert said in comparison_card(comparison).text()
    assert "it was last launched with (1, 1, 1)." in comparison_card(comparison).text()


@pytest.mark.slow
def test_a_failure_on_a_made_grid_says_that_the_version_never_had_it(lab: kernellab.Lab) -> None:
    unmasked = SCALE.replace(", mask=offsets < n", "").replace("triton.cdiv(n,", 'triton.cdiv(meta["n"],')
    launch(lab, unmasked.replace("x, out, n", "x[:256], out[:256], 256"))
    words = comparison_card(lab.compare("scale@1", "scale@2")).text()
    assert "scale@2 failed, on a grid that it was never launched with: OutOfBounds: " in words
    assert "scale@2 was not launched on these sizes" in words


@pytest.mark.slow
def test_a_version_that_was_never_launched_takes_the_grid_of_the_other(lab: kernellab.Lab) -> None:
    launch(lab, SCALE.replace("3 *", "4 *").partition("\nscale[")[0])
    comparison = lab.compare("scale@1", "scale@2")
    assert comparison.notes == ("scale@2 was never launched, and runs on the grid (3, 1, 1) of the other side",)
    assert lab.compare("scale@1", "scale@1").notes == ()


@pytest.mark.slow
def test_a_comparison_prints_as_a_page(lab: kernellab.Lab) -> None:
    added = "".join(f"    tl.static_assert(BLOCK > {size})\n" for size in range(60))
    launch(lab, SCALE.replace("    tl.store", f"{added}    tl.store"))
    comparison = lab.compare("scale@1", "scale@2")
    lines = str(comparison).splitlines()
    assert len(lines) == 40
    assert lines[0].startswith("out_ptr matches")
    assert lines[-1].endswith("more lines; .source_diff has the source")
    assert len(str(lab.compare("scale@1", "scale@1")).splitlines()) < 20


@pytest.mark.slow
def test_another_kernel_without_a_grid_for_the_sizes_is_refused(lab: kernellab.Lab) -> None:
    text = TWO_BLOCKS.replace("scale", "halve").replace("GRID", "(1,)").replace("SIZE", "100")
    launch(lab, text)
    with pytest.raises(UsageError, match=r"halve@1 was launched on other sizes, and its grid \(1, 1, 1\)"):
        lab.compare("scale", "halve")


@pytest.mark.slow
def test_a_comparison_records_no_launch(lab: kernellab.Lab) -> None:
    before = lab.kernels.store.history.launches()
    lab.compare("scale", "scale")
    assert lab.kernels.store.history.launches() == before


def test_what_cannot_be_compared_is_an_error(lab: kernellab.Lab) -> None:
    with pytest.raises(UnknownName):
        lab.compare("scale", "nothing")
    launch(lab, "@triton.jit\ndef other(a_ptr):\n    tl.store(a_ptr, 1)\n")
    with pytest.raises(UsageError, match="other@1 takes a_ptr, which the other kernel does not"):
        lab.compare("scale", "other")
    with pytest.raises(UsageError, match="No launch of other@1 and other@1 is kept"):
        lab.compare("other", "other")


@pytest.mark.slow
def test_without_a_gpu_nothing_is_timed_and_that_is_said(lab: kernellab.Lab) -> None:
    comparison = lab.compare("scale", "scale")
    if DEVICE == "cpu":
        assert comparison.timing is None
        assert timing_words(comparison).startswith("Not timed: there is no GPU. Predicted for H100: scale@1 takes 1x")
    else:
        assert comparison.timing is not None
        assert comparison.timing.verdict == "no difference"


def test_a_verdict_comes_with_its_interval(lab: kernellab.Lab) -> None:
    from dataclasses import replace

    timing = Timing(0.2, 0.1, 0.5, 0.48, 0.52, "faster", 60)
    words = timing_words(replace(lab.compare("scale", "scale"), timing=timing))
    assert words == (
        "scale@1 is faster than scale@1 (200 us and 100 us; "
        "ratio 0.480 to 0.520, 99 % interval of 60 interleaved rounds)."
    )


COPY = """
@triton.jit
def copy(x_ptr, out_ptr, n, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets * STRIDE, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

copy[(16,)](torch.zeros(1 << 20), torch.zeros(1 << 20), 16384, STRIDE=1, BLOCK=1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU times both")
def test_without_a_gpu_the_ratio_of_two_versions_is_predicted_and_said_to_be(lab: kernellab.Lab) -> None:
    lab.use_target("l4")
    launch(lab, COPY)
    launch(lab, COPY.replace("offsets * STRIDE", "offsets * STRIDE * 16"))
    comparison = lab.compare("copy@1", "copy@2")
    assert comparison.timing is None
    predicted = comparison.predicted
    assert predicted is not None
    assert predicted.ratio == predicted.right.time_ms / predicted.left.time_ms > 1
    words = timing_words(comparison)
    assert words.startswith("Not timed: there is no GPU. Predicted for L4: copy@2 takes ")
    assert words in comparison_card(comparison).text().replace("\n", " ")
    right = replace(predicted.right, time_ms=predicted.left.time_ms * 1.2345)
    nearly = replace(comparison, predicted=replace(predicted, right=right))
    assert "copy@2 takes 1.2x the time of copy@1" in timing_words(nearly)
    assert comparison_data(comparison)["predicted"]["left"]["device"] == "L4"
    assert [row["predicted_ms"] for row in comparison_rows(comparison)] == [
        predicted.left.time_ms,
        predicted.right.time_ms,
    ]


@pytest.mark.slow
@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU times both")
def test_neither_amd_nor_a_function_has_a_predicted_ratio(lab: kernellab.Lab) -> None:
    launch(lab, SCALE.replace("3 *", "1 * 3 *"))
    assert lab.compare("scale@1", lambda x_ptr: 3 * x_ptr).predicted is None
    lab.use_target("hip:gfx942")
    comparison = lab.compare("scale@1", "scale@2")
    assert comparison.predicted is None
    assert timing_words(comparison) == "Not timed: there is no GPU."
