"""The accesses that are counted are those of the machine code: as many of each kind, where no loop is unrolled."""

from __future__ import annotations

import re
from collections import Counter

import pytest

import kernellab
from benchmarks.traffic_launches import traffic_launches
from kernellab.explain.traffic.assembler import assembled_kernel
from kernellab.explain.traffic.relevance import is_access, is_shared, registers_in, relevance_of, sources_of, written_by
from kernellab.ir.ptx import PtxInstruction, PtxKernel, ptx_kernel
from tests.tables import every

LAUNCHES = {launch.name: launch for launch in traffic_launches()}
NAMES = (
    *("one address", "gather in a tile", "scan, 2 warps", "sum of all, 4 warps", "argmax", "histogram", "tickets"),
    *("transpose fp16", "one dot fp32", "descriptor copy", "compare and swap", "atomic add fp16", "interleave"),
)
SASS = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\w*)")
KINDS = {
    **{name: name for name in ("LDG", "STG", "LDS", "STS", "LDSM", "STSM", "LDGSTS", "ATOMS")},
    "ATOMG": "ATOMG",
    "ATOM": "ATOMG",
    "RED": "RED",
    "REDG": "RED",
    "UTMALDG": "TMA",
    "UTMASTG": "TMA",
}


def without_result(kernel: PtxKernel) -> set[int]:
    """The atomics whose old value nothing reads, which some versions of Triton ask for: ptxas makes them reductions.

    There is none for compare and swap, and shared memory has none at all.
    """
    read = {name for each in kernel.instructions for source in sources_of(each) for name in registers_in(source)}
    return {
        at
        for at, each in enumerate(kernel.instructions)
        if each.name == "atom" and "cas" not in each.parts and not is_shared(each) and not read & set(written_by(each))
    }


def kind_of(instruction: PtxInstruction, *, is_reduction: bool) -> str:
    if is_reduction:
        return "RED"
    special = {"cp": "TMA" if "bulk" in instruction.parts else "LDGSTS", "ldmatrix": "LDSM", "stmatrix": "STSM"}
    shared, others = ("LDS", "STS", "ATOMS", "ATOMS"), ("LDG", "STG", "ATOMG", "RED")
    plain = dict(zip(("ld", "st", "atom", "red"), shared if is_shared(instruction) else others, strict=True))
    return special.get(instruction.name) or plain[instruction.name]


@pytest.mark.slow
@pytest.mark.parametrize("name", every(4, NAMES))
def test_the_machine_code_has_the_same_accesses(lab: kernellab.Lab, name: str) -> None:
    launch = LAUNCHES[name]
    compiled = lab.compile(launch.kernel, *launch.arguments, target="cuda:90", **launch.meta)
    kernel = assembled_kernel(ptx_kernel(compiled.ptx))
    dead, reductions = relevance_of(kernel).dead, without_result(kernel)
    live = [(at, each) for at, each in enumerate(kernel.instructions) if is_access(each) and at not in dead]
    counted = Counter(kind_of(each, is_reduction=at in reductions) for at, each in live)
    found = (match[1] for match in map(SASS.match, compiled.sass.splitlines()) if match)
    assert counted == Counter(KINDS[each] for each in found if each in KINDS)
