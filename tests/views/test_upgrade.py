from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.errors import UsageError
from kernellab.registry.regressions import TimeChange
from kernellab.store import Snapshot
from kernellab.timing.stopwatch import Interval
from kernellab.upgrade.comparison import Parting, PartingLine
from kernellab.upgrade.result import RepeatedTiming, Upgrade, UpgradeRow, compared_row, in_order
from kernellab.views.cards.upgrade import upgrade_card, upgrade_markdown, upgrade_page, write_summary
from tests.upgrade.stores import snapshot

AFTER = "3.9.0"
PARTING = Parting("ttgir", (PartingLine(12, (("tt.load<|>", 1),), (("tt.load", 2),)),))


def row(
    kernel: str,
    parting: Parting | None = None,
    *,
    is_winner: bool = True,
    retimed: RepeatedTiming | None = None,
    **facts: int,
) -> UpgradeRow:
    before: Snapshot = snapshot()
    after = snapshot(triton=AFTER, **facts)
    made = compared_row(kernel, "n=4096", "BLOCK=64", before, after, parting, is_winner=is_winner)
    return UpgradeRow(kernel, made.launch, made.config, is_winner, before, after, made.reasons, parting, retimed)


def upgrade(*rows: UpgradeRow) -> Upgrade:
    return Upgrade(in_order(list(rows)), ("3.0.0",), AFTER, "store", ("A note.",))


def test_the_card_lists_what_is_suspect_with_both_figures_and_where_the_stages_part() -> None:
    lines = upgrade_card(upgrade(row("same@1"), row("worse@2", PARTING, spill_bytes=48))).text().splitlines()
    assert lines[0] == "Triton 3.0.0 to 3.9.0: 1 suspect, 1 same"
    assert lines[1].split() == [
        "kernel", "launch", "config", "outcome", "predicted", "registers", "spills", "shared", "occupancy", "parts",
        "at", "why",
    ]  # fmt: skip
    assert "0 -> 48" in lines[2]
    assert "spills 0 -> 48 bytes per thread" in lines[2]
    assert "  line 12: tt.load<|> -> 2 x tt.load" in lines
    assert not any("same@1" in line for line in lines)
    assert lines[-1].endswith("A note.")


def test_a_store_without_winners_of_another_version_says_so() -> None:
    nothing = Upgrade((), (), AFTER, "store", ())
    assert nothing.text == "Triton 3.9.0: no winner of another version is stored"
    unknown = compared_row("k@1", "n=4096", "BLOCK=64", None, snapshot(triton=AFTER))
    assert Upgrade((unknown,), (), AFTER, "store", ()).text == "Triton other versions to 3.9.0: 1 unknown"


def test_a_neighbour_that_is_predicted_faster_is_named() -> None:
    better = snapshot(triton=AFTER, predicted_ms=0.05)
    near = compared_row("worse@2", "n=4096", "BLOCK=128", snapshot(), better, is_winner=False)
    text = upgrade_card(upgrade(row("worse@2", spill_bytes=48), near)).text()
    assert "worse@2 (n=4096): BLOCK=128 is predicted to be 2.00x as fast." in text


def test_times_decide_and_show() -> None:
    slower = RepeatedTiming(TimeChange.SLOWER, Interval(1.2, 1.19, 1.21), best="BLOCK=128")
    cleared = RepeatedTiming(TimeChange.SAME, Interval(1.0, 0.99, 1.01))
    found = upgrade(row("worse@2", retimed=slower, spill_bytes=8), row("fine@1", retimed=cleared, spill_bytes=8))
    assert found.text == "Triton 3.0.0 to 3.9.0: 1 slower, 1 cleared"
    assert [suspect.kernel for suspect in found.suspects] == ["worse@2"]
    assert "slower 1.200x; now fastest: BLOCK=128" in upgrade_card(found).text()


def test_pages_escape_what_names_and_operations_hold() -> None:
    found = upgrade(row("a<b>|c@1", PARTING, spill_bytes=48), row("same@1"))
    markdown, page = upgrade_markdown(found), upgrade_page(found)
    assert "| a&lt;b&gt;\\|c@1 |" in markdown
    assert "| same@1 |" in markdown
    assert "a&lt;b&gt;|c@1" in page
    assert "a<b>" not in markdown + page


def test_a_summary_is_written_by_its_suffix(tmp_path: Path) -> None:
    found = upgrade(row("same@1"))
    assert "No stored winner is suspect." in write_summary(found, tmp_path / "u.md").read_text()
    assert write_summary(found, tmp_path / "u.html").read_text().startswith("<!")
    with pytest.raises(UsageError, match=r"\.md or \.html"):
        write_summary(found, tmp_path / "u.pdf")
    with pytest.raises(UsageError, match="cannot be written"):
        write_summary(found, tmp_path / "absent" / "u.md")


def test_the_frame_has_a_row_for_each_config() -> None:
    frame = upgrade(row("worse@2", PARTING, spill_bytes=48), row("near@1", is_winner=False)).frame
    assert list(frame["outcome"]) == ["suspect", "same"]
    assert list(frame["after_spill_bytes"]) == [48, 0]
    assert list(frame["stage"].fillna("")) == ["ttgir", ""]
