"""The card of a harvest: what tells cases of equal sizes apart, and why one has no roofline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernellab import Harvest
from kernellab.errors import UsageError
from kernellab.harvest.record import CasePrediction, HarvestedCase, HarvestRecord, merged_record
from kernellab.harvest.result import harvest_card
from kernellab.store import Argument, RecordedLaunch


def case(dtype: str = "fp32", stride: int = 1, **fields: str | CasePrediction) -> HarvestedCase:
    tensor = Argument(
        "x_ptr", "tensor", dtype=dtype.replace("fp", "float"), shape=(64,), stride=(stride,), device="cuda"
    )
    signature = (("x_ptr", f"*{dtype}"), ("n", "i32"))
    arguments = (tensor, Argument("n", "scalar", value=64))
    launch = RecordedLaunch(signature, arguments, {"num_warps": 4}, (1, 1, 1), "hip:gfx942", "gpu", f"digest {fields}")
    plain = HarvestedCase("add_kernel", "program", "program.py", 1, "triton", launch, launches=2)
    return replace(plain, **fields)  # type: ignore[arg-type]


def card_text(*cases: HarvestedCase) -> str:
    return harvest_card(HarvestRecord(cases)).text()


def test_cases_of_other_dtypes_and_strides_at_equal_sizes_are_told_apart() -> None:
    text = card_text(case("fp32"), case("fp16"), case("fp16", stride=2))
    assert "x_ptr=*fp32, x_ptr.stride=(1,)" in text
    assert "x_ptr=*fp16, x_ptr.stride=(1,)" in text
    assert "x_ptr=*fp16, x_ptr.stride=(2,)" in text


def test_cases_of_other_sizes_have_no_column_of_differences() -> None:
    assert "differs in" not in card_text(case("fp32"), replace(case("fp16"), kernel="scale_kernel"))


def test_cases_that_differ_in_alignment_alone_show_their_binaries() -> None:
    first, second = case(), case()
    second = replace(second, launch=replace(second.launch, result="0123456789abc"))
    assert "binary=01234567" in card_text(first, second)


def test_the_card_says_why_cases_have_no_roofline() -> None:
    cases = case("fp32", no_roofline="hip:gfx942 has no model"), case("fp16", no_roofline="hip:gfx942 has no model")
    assert "No roofline of 2 cases: hip:gfx942 has no model." in card_text(*cases)
    known = replace(cases[0], prediction=CasePrediction(1.0, 0.5, "HBM", "H100"))
    (merged,) = merged_record([HarvestRecord(cases[:1]), HarvestRecord((known,))]).cases
    assert "No roofline" not in card_text(merged)


def test_a_saved_harvest_is_read_as_it_was(tmp_path: Path) -> None:
    cases = case(no_roofline="its grid is empty"), case("fp16", prediction=CasePrediction(1.0, 0.5, "HBM", "H100"))
    record = HarvestRecord(cases, rest={"add_kernel": 3}, seconds=1.5)
    path = Harvest(lambda: record).save(tmp_path / "seen.json")
    assert Harvest.load(path).record == record
    path.write_text(path.read_text().replace('"launches": 2', '"launches": "many"', 1))
    with pytest.raises(UsageError, match=r"not a saved harvest .*'many'"):
        Harvest.load(path)
