"""The option --check: what passes, what is caught, and how it is shown."""

from __future__ import annotations

import re

import pytest
import torch

from kernellab.errors import CheckFailed
from tests.notebook.conftest import Notebook

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TILE = """
@triton.jit
def {name}(x_ptr, out_ptr, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, COLUMNS)[None, :]
    at = rows * COLUMNS + columns
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at), mask=columns < n)
{name}[(1,)](x, out, {n}, ROWS=16, COLUMNS=32)
"""


@pytest.fixture
def tiles(notebook: Notebook) -> Notebook:
    notebook.names.update(x=torch.rand(16, 32, device=DEVICE), out=torch.zeros(16, 32, device=DEVICE))
    return notebook


@pytest.mark.slow
def test_a_right_result_passes_in_double_precision(tiles: Notebook) -> None:
    ran = tiles.triton(TILE.format(name="passing", n=32), '--check "x + x"')
    assert ran.error is None
    assert "out_ptr matches x + x; " in ran.shown[0]["text/plain"]


@pytest.mark.slow
def test_a_stale_result_is_caught_and_the_output_keeps_its_values(tiles: Notebook) -> None:
    tiles.names["out"] = out = 2 * tiles.names["x"]
    held = out.clone()
    ran = tiles.triton(TILE.format(name="stale", n=20), '--check "2 * x"')
    assert isinstance(ran.error, CheckFailed)
    assert str(ran.error).endswith("192 of 512 elements wrong, all of them never written.")
    assert torch.equal(out, held)


@pytest.mark.slow
def test_a_difference_is_told_and_drawn(tiles: Notebook) -> None:
    ran = tiles.triton(
        TILE.format(name="differing", n=32), '--check "2 * x + (torch.arange(32, device=x.device) == 5)"'
    )
    assert isinstance(ran.error, CheckFailed)
    assert ", 5] has an error of 1, tolerance" in str(ran.error)
    (card,) = ran.shown
    assert "all in [0 to 15, 5]" in card["text/plain"]
    assert "Where out_ptr differs from 2 * x" in card["text/html"]


@pytest.mark.slow
def test_a_check_that_names_an_output_is_told_that_it_sees_the_values_before(tiles: Notebook) -> None:
    ran = tiles.triton(TILE.format(name="circular", n=32), '--check "torch.where(out != 0, 2 * x, 0)"')
    assert isinstance(ran.error, CheckFailed)
    assert "hint: out has its values from before the launch" in " ".join(ran.shown[0]["text/plain"].split())
    right = tiles.triton(TILE.format(name="circular", n=32), '--check "2 * x + 0 * out"')
    assert right.error is None
    assert "before the launch" not in right.shown[0]["text/plain"]


@pytest.mark.slow
def test_what_changed_is_counted_against_the_values_before_the_poison(tiles: Notebook) -> None:
    tiles.names["out"][:8] = 2 * tiles.names["x"][:8]
    ran = tiles.triton(TILE.format(name="half_changed", n=32), '--check "2 * x"')
    assert ran.error is None
    assert "256 elements changed, 256 same as before" in " ".join(ran.shown[0]["text/plain"].split())


@pytest.mark.slow
def test_an_expression_that_has_no_double_precision_is_evaluated_as_it_is(tiles: Notebook) -> None:
    ran = tiles.triton(
        TILE.format(name="single_only", n=32), '--check "2 * x if x.dtype == torch.float32 else undefined"'
    )
    assert ran.error is None


SUMS = """
@triton.jit
def {name}(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, {end}, BLOCK):
        total += tl.sum(tl.load(x_ptr + row * n + start + tl.arange(0, BLOCK)))
    tl.store(out_ptr + row, total)
{name}[(8,)](x, out, 4096, BLOCK=128)
"""


@pytest.mark.slow
def test_long_sums_pass_and_a_missing_block_of_them_does_not(notebook: Notebook) -> None:
    notebook.names.update(x=torch.rand(8, 4096, device=DEVICE), out=torch.zeros(8, device=DEVICE))
    assert notebook.triton(SUMS.format(name="whole", end="n"), '--check "x.sum(1)"').error is None
    ran = notebook.triton(SUMS.format(name="shortened", end="n - 128"), '--check "x.sum(1)"')
    assert isinstance(ran.error, CheckFailed)


PRODUCT = """
@triton.jit
def {name}(a_ptr, b_ptr, out_ptr, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    one, inner = tl.arange(0, BLOCK), tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, {end}, BLOCK_K):
        a = tl.load(a_ptr + one[:, None] * K + k + inner)
        total = tl.dot(a, tl.load(b_ptr + (k + inner)[:, None] * BLOCK + one), total)
    tl.store(out_ptr + one[:, None] * BLOCK + one, total)
{name}[(1,)](a, b, out, 4096, BLOCK=32, BLOCK_K=64)
"""


@pytest.mark.slow
def test_long_products_pass_and_the_bound_told_is_that_of_the_element(notebook: Notebook) -> None:
    notebook.names.update(
        a=torch.randn(32, 4096, device=DEVICE),
        b=torch.randn(4096, 32, device=DEVICE),
        out=torch.zeros(32, 32, device=DEVICE),
    )
    assert notebook.triton(PRODUCT.format(name="dotted", end="K"), '--check "a @ b"').error is None
    ran = notebook.triton(PRODUCT.format(name="cut_short", end="K - 64"), '--check "a @ b"')
    assert isinstance(ran.error, CheckFailed)
    told = re.search(r"elements\. \[\d+, \d+\] has an error of (\S+), tolerance (\S+)\.", str(ran.error))
    assert told is not None
    assert float(told[1]) > float(told[2])


UPDATE = """
@triton.jit
def {name}(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, {value}, mask=offsets < n)
"""


@pytest.fixture
def signed(notebook: Notebook) -> Notebook:
    """Return a notebook whose ``x`` has numbers of both signs."""
    notebook.names["x"] = torch.linspace(-2, 2, 100, device=DEVICE)
    return notebook


def updated(name: str, value: str, launch: str = "{name}[(2,)](x, 100, BLOCK=64)") -> str:
    return UPDATE.format(name=name, value=value) + launch.format(name=name)


@pytest.mark.slow
def test_a_reference_sees_what_there_was_before_an_update_in_place(signed: Notebook) -> None:
    before = signed.names["x"].clone()
    ran = signed.triton(updated("adds", "x + 8"), '--check "x + 8"')
    assert ran.error is None
    assert "x_ptr matches x + 8; " in ran.shown[0]["text/plain"]
    assert torch.equal(signed.names["x"], before + 8)


@pytest.mark.slow
def test_an_update_in_place_that_stores_zeros_is_wrong(signed: Notebook) -> None:
    ran = signed.triton(updated("zeroes", "x * 0"), '--check "x.relu()"')
    assert isinstance(ran.error, CheckFailed)
    assert not signed.names["x"].any()


@pytest.mark.parametrize(
    "reference",
    ["holder.value + 8", "views[0] + 8", "(lambda: x)() + 8", "x.numpy() + 8" if DEVICE == "cpu" else "x + 8"],
)
def test_what_was_before_is_seen_by_any_way_to_the_memory(signed: Notebook, reference: str) -> None:
    signed.run("from types import SimpleNamespace\nholder = SimpleNamespace(value=x)\nviews = [x.view(100)]")
    options = f'--check "torch.as_tensor({reference})"'
    assert signed.triton(updated("adds_by_any_way", "x + 8"), options).error is None


@pytest.mark.slow
def test_a_reference_that_is_the_argument_itself_is_what_it_was(signed: Notebook) -> None:
    assert signed.triton(updated("keeps", "x + 0"), '--check "x"').error is None
    assert isinstance(signed.triton(updated("changes", "x + 1"), '--check "x"').error, CheckFailed)


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["x + 8", "x + 24"])
def test_several_updates_are_compared_with_the_last_or_with_all_together(signed: Notebook, reference: str) -> None:
    cell = updated("repeats", "x + 8", "for _ in range(3):\n    {name}[(2,)](x, 100, BLOCK=64)")
    assert signed.triton(cell, f'--check "{reference}"').error is None
    assert isinstance(signed.triton(cell, '--check "x + 16"').error, CheckFailed)


@pytest.mark.slow
def test_parts_of_an_update_are_compared_as_a_whole(signed: Notebook) -> None:
    cell = updated("in_parts", "x + 8", "for start in (0, 50):\n    {name}[(1,)](x[start:], 50, BLOCK=64)")
    assert signed.triton(cell, '--check "x[50:] + 8"').error is None


@pytest.mark.slow
def test_an_input_that_a_later_kernel_overwrites_is_what_it_was_for_the_first(signed: Notebook) -> None:
    signed.names["out"] = torch.zeros(100, device=DEVICE)
    first = (
        updated("first_of_two", "2 * x", "")
        .replace("(x_ptr, n", "(x_ptr, out_ptr, n")
        .replace("store(x_", "store(out_")
    )
    launch = "first_of_two[(2,)](x, out, 100, BLOCK=64)\nsecond_of_two[(2,)](x, 100, BLOCK=64)\n"
    last = "second_of_two[(2,)](out, 100, BLOCK=64)"
    cell = first + updated("second_of_two", "x - 1", "") + launch + last
    assert signed.triton(cell, '--check "first_of_two: 2 * x"').error is None
    assert signed.triton(cell, '--check "second_of_two: out - 1"').error is None


@pytest.mark.slow
def test_memory_holds_what_the_cell_left_after_a_reference_that_raises(signed: Notebook) -> None:
    before = signed.names["x"].clone()
    ran = signed.triton(updated("outlives", "x + 8"), '--check "x + nowhere"')
    assert ran.error is not None
    assert torch.equal(signed.names["x"], before + 8)


@pytest.mark.slow
def test_the_lab_and_the_option_judge_an_update_in_place_alike(signed: Notebook) -> None:
    assert signed.triton(updated("alike", "x.to(tl.float32) + 8"), '--check "x + 8"').error is None
    lab = "get_ipython().magics_manager.registry['TritonMagics'].lab"
    assert signed.run(f"{lab}.run(alike, (2,), x, 100, BLOCK=64, check=lambda x_ptr: x_ptr + 8)").error is None


TWO = updated("one", "x + 1", "") + updated("other", "x - 1", "") + "one[(2,)](x, 100, BLOCK=64)\n"


@pytest.mark.slow
def test_a_check_that_cannot_be_made_leaves_both_cards(signed: Notebook) -> None:
    ran = signed.triton(f"{TWO}other[(2,)](x, 100, BLOCK=64)", '--check "nowhere"')
    assert "'nowhere' is not defined" in str(ran.error)
    assert [shown["text/plain"][:5] for shown in ran.shown] == ["one@1"]
    assert "other@1" in ran.shown[0]["text/plain"]


@pytest.mark.slow
def test_of_several_launches_the_last_that_the_expression_fits_is_judged(signed: Notebook) -> None:
    signed.names["large"] = torch.zeros(128, device=DEVICE)
    ran = signed.triton(f"{TWO}other[(2,)](large, 128, BLOCK=64)", '--check "x + 1"')
    assert ran.error is None
    assert "x_ptr matches x + 1; " in ran.shown[0]["text/plain"]


@pytest.mark.slow
def test_each_kernel_has_a_check_of_its_own(signed: Notebook) -> None:
    cell = f"{TWO}other[(2,)](x, 100, BLOCK=64)"
    ran = signed.triton(cell, '--check "one: x + 1" --check "other: x - 1"')
    assert ran.error is None
    assert ran.shown[0]["text/plain"].count(" matches ") == 2
    assert isinstance(signed.triton(cell, '--check "one: x + 2" --check "other: x - 1"').error, CheckFailed)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ('--check "neither: x"', "launches no neither; it launches one"),
        ('--check "x" --check "one: x"', "name the kernel of each"),
        ('--check "one: x" --check "one: 2 * x"', "two for one"),
    ],
)
def test_a_check_for_no_kernel_of_the_cell_is_refused(signed: Notebook, options: str, words: str) -> None:
    assert words in str(signed.triton(TWO, options).error)


def test_an_expression_with_colons_is_no_name_of_a_kernel(signed: Notebook) -> None:
    ran = signed.triton(TWO, '--check "(lambda y: y[:100] + 1)(x)"')
    assert ran.error is None


@pytest.mark.slow
def test_a_kernel_is_named_as_the_notebook_calls_it(signed: Notebook) -> None:
    cell = (
        UPDATE.format(name="inner", value="x + 1")
        + "class Kernels:\n    add = inner\nKernels.add[(2,)](x, 100, BLOCK=64)"
    )
    assert signed.triton(cell, '--check "Kernels.add: x + 1"').error is None


@pytest.mark.slow
def test_sliders_over_an_update_in_place_keep_its_check(signed: Notebook) -> None:
    ran = signed.triton(updated("slid", "x + 8"), '--explore --check "x + 8"')
    assert ran.error is None
    panel = next(shown["text/plain"] for shown in ran.shown if "Exploring" in shown["text/plain"])
    assert "differs" not in panel


@pytest.mark.slow
def test_a_kernel_that_overwrites_without_reading_is_compared_with_what_there_was(signed: Notebook) -> None:
    ran = signed.triton(updated("overwrites", "tl.zeros((BLOCK,), tl.float32)"), '--check "x.relu()"')
    assert isinstance(ran.error, CheckFailed)


@pytest.mark.slow
def test_a_launch_in_inference_mode_is_compared(signed: Notebook) -> None:
    launch = "with torch.inference_mode():\n    y = x.clone()\n    {name}[(2,)](y, 100, BLOCK=64)"
    assert signed.triton(updated("inferred", "x + 8", launch), '--check "x + 8"').error is None
    assert signed.triton(updated("inferred_itself", "x + 8", launch), '--check "y + 8"').error is None
