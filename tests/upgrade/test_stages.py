from __future__ import annotations

from kernellab.upgrade.comparison import Parting, first_parting


def test_the_first_stage_with_other_operations_is_named_with_its_lines() -> None:
    ttir = {"12": {"tt.load : tensor<128xf32>": 1}}
    before = {"ttir": ttir, "ttgir": {"12": {"tt.load : A": 2, "tt.store": 1}}, "ptx": {"12": {"ld.global.v4.b32": 1}}}
    after = {"ttir": ttir, "ttgir": {"12": {"tt.load : B": 2, "tt.store": 1}}, "ptx": {"12": {"ld.global.b32": 4}}}
    parting = first_parting(before, after)
    assert parting.stage == "ttgir"
    assert [str(line) for line in parting.lines] == ["line 12: 2 x tt.load : A -> 2 x tt.load : B"]


def test_what_moved_to_another_line_does_not_part_two_stages() -> None:
    before = {"ttir": {"12": {"tt.load": 1}, "13": {"arith.addf": 1}}}
    after = {"ttir": {"13": {"arith.addf": 1, "tt.load": 1}}}
    assert first_parting(before, after) == Parting("")
    more = {"ttir": {"13": {"arith.addf": 2, "tt.load": 1}}}
    assert [str(line) for line in first_parting(before, more).lines] == ["line 13: nothing -> arith.addf"]


def test_stages_that_one_side_lacks_are_not_compared() -> None:
    assert first_parting({"amdgcn": {"1": {"s_nop": 1}}}, {"ptx": {"1": {"ret": 1}}}) == Parting("")
