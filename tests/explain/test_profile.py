from __future__ import annotations

import math

import pytest

from kernellab.explain.profile import FrameSamples, Profile, SamplingSession, Stall, instructions_of, joined
from kernellab.ir.lines import stage_lines

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
    return tuple(FrameSamples("k", "f", int(n[1:]), {Stall.MEMORY: c}) for n, c in by_line.items())


def test_the_machine_code_of_other_functions_is_not_the_kernels() -> None:
    assert [text for text, _ in instructions_of(CODE, "k").values()] == [
        "LDC R1, c[0x0][0x28]",
        "FADD R1, R2, R3",
        "FADD R2, R2, R3",
    ]


def test_inlined_samples_stand_under_their_caller() -> None:
    lines, instructions = joined([sampled(n1=1, n2=10, n3=5)], CODE, "k", by_instruction=True)
    assert [(line.file, line.line, line.calls, line.samples) for line in lines] == [
        ("/n/help.py", 3, (("/n/book.py", 8),), 10),
        ("/n/help.py", 3, (("/n/book.py", 9),), 5),
        ("/n/book.py", 7, (), 1),
    ]
    assert (instructions[0].address, instructions[0].text) == (0x10, "FADD R1, R2, R3")


def test_sessions_add_up_and_give_bounds() -> None:
    lines, _ = joined([sampled(n1=40, n2=60), sampled(n1=60, n2=40)], CODE, "k", by_instruction=True)
    assert [line.samples for line in lines] == [100, 100]
    assert lines[0].share.value == pytest.approx(0.5)
    assert lines[0].share.low < 0.4


def test_without_numbers_the_lines_are_those_of_the_binary() -> None:
    session = (FrameSamples("k", "/n/book.py", 7, {Stall.PIPE: 3}), FrameSamples("k", None, None, {}))
    lines, instructions = joined([session], CODE, "k", by_instruction=False)
    assert (lines[0].line, lines[0].main, instructions) == (7, Stall.PIPE, ())


def test_the_main_reason_is_not_that_another_warp_had_its_turn() -> None:
    session = (FrameSamples("k", "f", 7, {Stall.TURN: 9, Stall.ISSUING: 4}),)
    assert joined([session], CODE, "k", by_instruction=False)[0][0].main is Stall.ISSUING


def test_the_frame_has_a_row_per_line_and_one_per_instruction() -> None:
    lines, instructions = joined([sampled(n1=1, n2=3)], CODE, "k", by_instruction=True)
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
