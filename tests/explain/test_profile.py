from __future__ import annotations

import json
import math
from typing import Any

import pytest

from kernellab.errors import RunError
from kernellab.explain.profile import (
    Profile,
    SamplingSession,
    Share,
    Stall,
    are_distinct,
    instructions_of,
    samples_by_place,
    samples_of,
    share_of,
    sum_reasons,
)
from kernellab.ir.lines import stage_lines


def frame(name: str, *children: Any, **stalls: int) -> dict[str, Any]:
    """Return a node as Proton writes it: the samples that issued nothing are counted in num_samples once more."""
    metrics = {f"stalled_{stall}": count for stall, count in stalls.items()}
    total = sum(stalls.values())
    more = {"num_samples": 2 * total, "num_stalled_samples": total} if stalls else {}
    return {"frame": {"name": name, "type": "function"}, "metrics": {**metrics, **more}, "children": list(children)}


def hatchet(*children: Any) -> str:
    return json.dumps([frame("ROOT", *children), {"CUDA": {"0": {"arch": "90"}}}])


def test_samples_are_counted_by_line_and_reason() -> None:
    text = hatchet(frame("k", frame("/a/b.py:12@k", long_scoreboard=7, wait=1), frame("/a/b.py:9@k", selected=2)))
    samples = samples_of(text, "k")
    assert samples["/a/b.py", 12] == {Stall.MEMORY: 7, Stall.RESULT: 1}
    assert samples["/a/b.py", 9] == {Stall.ISSUING: 2}


def test_the_same_line_in_two_places_of_the_tree_is_one() -> None:
    text = hatchet(frame("outer", frame("k", frame("b.py:12@k", wait=1))), frame("k", frame("b.py:12@k", wait=2)))
    assert samples_of(text, "k") == {("b.py", 12): {Stall.RESULT: 3}}


def test_samples_of_other_kernels_are_left_out() -> None:
    text = hatchet(frame("fill", frame("x.cu:3@fill", wait=5), barrier=4), frame("k", frame("b.py:1@k", wait=2)))
    assert list(samples_of(text, "k").values()) == [{Stall.RESULT: 2}]


def test_samples_without_a_line_are_kept_without_one() -> None:
    assert samples_of(hatchet(frame("k", drain=5)), "k") == {(None, None): {Stall.STORES: 5}}


def test_a_reason_that_nobody_knows_is_other() -> None:
    assert samples_of(hatchet(frame("k", brand_new=5)), "k")[None, None] == {Stall.OTHER: 5}


def test_both_spellings_of_a_reason_are_one() -> None:
    text = hatchet(frame("k", not_Selected=5, not_selected=1))
    assert samples_of(text, "k")[None, None] == {Stall.TURN: 6}


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '[{"frame": 3}]', '[{"frame": {"name": "k"}}]'])
def test_what_is_no_file_of_samples_is_an_error(text: str) -> None:
    with pytest.raises(RunError, match="cannot be read"):
        samples_of(text, "k")


def test_every_reason_has_a_sentence() -> None:
    assert all(stall.about for stall in Stall)


def test_merged_reasons_come_most_first() -> None:
    assert list(sum_reasons([{Stall.PIPE: 1}, {Stall.MEMORY: 4}, {Stall.PIPE: 2}])) == [Stall.MEMORY, Stall.PIPE]


def test_bounds_narrow_with_samples_and_widen_where_sessions_differ() -> None:
    few, many = share_of([5, 5], [10, 10]), share_of([5000, 5000], [10_000, 10_000])
    unlike = share_of([4000, 6000], [10_000, 10_000])
    assert many.high - many.low < few.high - few.low
    assert unlike.high - unlike.low > 5 * (many.high - many.low)
    assert many.low < 0.5 < many.high


def test_nothing_is_known_without_samples() -> None:
    assert share_of([0], [0]) == Share(0.0, 0.0, 1.0)


def test_leading_lines_are_apart_once_their_bounds_are_or_once_they_are_level() -> None:
    assert are_distinct([Share(0.6, 0.55, 0.65), Share(0.3, 0.25, 0.35)])
    assert not are_distinct([Share(0.5, 0.4, 0.6), Share(0.45, 0.3, 0.55)])
    assert are_distinct([Share(0.5, 0.495, 0.505), Share(0.499, 0.494, 0.504)])
    assert are_distinct([])


SASS = """\
//--------------------- .text.k --------------------------
	.section	.text.k,"ax",@progbits
	//## File "/n/book.py", line 7
        /*0000*/                   LDC R1, c[0x0][0x28] ;
	//## File "/n/help.py", line 3 inlined at "/n/book.py", line 8
	//## File "/n/book.py", line 8
        /*0010*/                   FADD R1, R2, R3 ;
	//## File "/n/help.py", line 3 inlined at "/n/book.py", line 9
	//## File "/n/book.py", line 9
        /*0020*/                   FADD R2, R2, R3 ;
//--------------------- .text.other --------------------------
        /*0000*/                   EXIT ;
"""
CODE = stage_lines("sass", SASS)


def sampled(**by_line: int) -> SamplingSession:
    """Return a session with samples of numbered instructions: ``n1=5`` for the first one."""
    return {("f", int(n[1:])): {Stall.MEMORY: c} for n, c in by_line.items()}


def test_the_machine_code_of_other_functions_is_not_the_kernels() -> None:
    assert [text for text, _ in instructions_of(CODE, "k").values()] == [
        "LDC R1, c[0x0][0x28]",
        "FADD R1, R2, R3",
        "FADD R2, R2, R3",
    ]


def test_inlined_samples_stand_under_their_caller() -> None:
    lines, instructions = samples_by_place([sampled(n1=1, n2=10, n3=5)], CODE, "k", by_instruction=True)
    assert [(line.file, line.line, line.calls, line.samples) for line in lines] == [
        ("/n/help.py", 3, (("/n/book.py", 8),), 10),
        ("/n/help.py", 3, (("/n/book.py", 9),), 5),
        ("/n/book.py", 7, (), 1),
    ]
    assert (instructions[0].address, instructions[0].text) == (0x10, "FADD R1, R2, R3")


def test_sessions_add_up_and_give_bounds() -> None:
    lines, _ = samples_by_place([sampled(n1=40, n2=60), sampled(n1=60, n2=40)], CODE, "k", by_instruction=True)
    assert [line.samples for line in lines] == [100, 100]
    assert lines[0].share.value == pytest.approx(0.5)
    assert lines[0].share.low < 0.4


def test_without_numbers_the_lines_are_those_of_the_binary() -> None:
    session: SamplingSession = {("/n/book.py", 7): {Stall.PIPE: 3}, (None, None): {}}
    lines, instructions = samples_by_place([session], CODE, "k", by_instruction=False)
    assert (lines[0].line, lines[0].main, instructions) == (7, Stall.PIPE, ())


def test_the_main_reason_is_not_that_another_warp_had_its_turn() -> None:
    session: SamplingSession = {("f", 7): {Stall.TURN: 9, Stall.ISSUING: 4}}
    assert samples_by_place([session], CODE, "k", by_instruction=False)[0][0].main is Stall.ISSUING


def test_the_frame_has_a_row_per_line_and_one_per_instruction() -> None:
    lines, instructions = samples_by_place([sampled(n1=1, n2=3)], CODE, "k", by_instruction=True)
    frame = Profile("k", "cuda:90", "GPU", (1, 1, 1), lines, instructions).frame
    assert list(frame.samples) == [3, 1, 3, 1]
    assert list(frame.instruction) == ["", "", "FADD R1, R2, R3", "LDC R1, c[0x0][0x28]"]
    assert list(frame["waits for memory"]) == [3, 1, 3, 1]
    assert frame.called_from[0] == "/n/book.py:8"
    assert math.isclose(frame.share[0], 0.75)


def test_a_refused_profile_has_an_empty_frame_that_says_why() -> None:
    frame = Profile("k", "cuda:90", "", (1, 1, 1), refused="There is no GPU.").frame
    assert len(frame) == 0
    assert frame.attrs["refused"] == "There is no GPU."
