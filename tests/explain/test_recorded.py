"""Files that Proton wrote on an H200: a softmax with a helper and reductions, by line and by numbered instruction.

`benchmarks/record_samples.py` records them; metrics that are zero were left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.explain.profile import SamplingSession, Stall, are_distinct, samples_by_place, samples_of, sum_reasons
from kernellab.explain.proton import instruction_address
from kernellab.ir.lines import stage_lines

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.hatchet").read_text(encoding="utf-8")


def test_the_lines_of_the_kernel_and_of_the_library_are_told() -> None:
    session = samples_of(recorded("softmax"), "softmax")
    lines = {((file or "").rpartition("/")[2], line) for file, line in session}
    assert ("record_samples.py", 48) in lines
    assert ("standard.py", 170) in lines
    assert session_samples(session) == 3_157_323


def test_a_softmax_mostly_waits_for_memory_then_for_barriers() -> None:
    reasons = sum_reasons(samples_of(recorded("softmax"), "softmax").values())
    assert list(reasons)[:2] == [Stall.MEMORY, Stall.SHARED]
    assert reasons[Stall.BARRIER] > reasons[Stall.STORES] > reasons[Stall.ISSUING]


def test_other_kernels_of_the_worker_are_left_out() -> None:
    text = recorded("softmax.numbered")
    assert "@mark_zone" in text
    assert samples_of(text, "softmax").keys().isdisjoint(samples_of(text, "mark_zone"))
    assert session_samples(samples_of(text, "mark_zone")) == 1_537


def test_numbered_lines_are_instructions() -> None:
    session = samples_of(recorded("softmax.numbered"), "softmax")
    addresses = [instruction_address(line) for _, line in session if line is not None]
    assert len(set(addresses)) == len(addresses) > 200
    assert all(address % 16 == 0 for address in addresses)
    (_, line), reasons = max(session.items(), key=lambda item: sum(item[1].values()))
    assert max(reasons, key=lambda stall: reasons[stall]) is Stall.MEMORY
    assert line is not None
    assert hex(instruction_address(line)) == "0x2f0"


def test_two_sessions_of_it_tell_the_leading_instructions_apart() -> None:
    session = samples_of(recorded("softmax.numbered"), "softmax")
    lines, _ = samples_by_place([session, session], (), "softmax", by_instruction=False)
    assert are_distinct([line.share for line in lines])
    assert lines[0].share.value == pytest.approx(0.3546, abs=1e-3)


def test_samples_of_instructions_come_back_to_their_source_lines() -> None:
    sass = stage_lines("sass", (RECORDED / "strided_copy.sass").read_text(encoding="utf-8"))
    session = samples_of(recorded("strided_copy.numbered"), "strided_copy")
    lines, instructions = samples_by_place([session], sass, "strided_copy", by_instruction=True)
    assert [(line.line, line.main) for line in lines[:2]] == [(32, Stall.MEMORY_QUEUE), (33, Stall.MEMORY)]
    assert instructions[0].text == "@!P1 LDG.E R2, desc[UR4][R6.64]"
    assert sum(each.samples for each in instructions) == sum(line.samples for line in lines) == session_samples(session)


def session_samples(session: SamplingSession) -> int:
    return sum(sum(reasons.values()) for reasons in session.values())
