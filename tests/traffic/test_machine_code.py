"""The accesses that are counted are those of the machine code: as many of each kind, where no loop is unrolled."""

from __future__ import annotations

import re
from collections import Counter

import pytest

import kernellab
from benchmarks.traffic_launches import traffic_launches
from kernellab.ir.ptx import PtxInstruction, ptx_kernel
from kernellab.traffic.assembler import assembled
from kernellab.traffic.relevance import is_access, is_shared, relevance_of

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


def kind_of(instruction: PtxInstruction) -> str:
    special = {"cp": "TMA" if "bulk" in instruction.parts else "LDGSTS", "ldmatrix": "LDSM", "stmatrix": "STSM"}
    shared, others = ("LDS", "STS", "ATOMS", "ATOMS"), ("LDG", "STG", "ATOMG", "RED")
    plain = dict(zip(("ld", "st", "atom", "red"), shared if is_shared(instruction) else others, strict=True))
    return special.get(instruction.name) or plain[instruction.name]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_machine_code_has_the_same_accesses(lab: kernellab.Lab, name: str) -> None:
    launch = LAUNCHES[name]
    compiled = lab.compile(launch.kernel, *launch.arguments, target="cuda:90", **launch.meta)
    kernel = assembled(ptx_kernel(compiled.ptx))
    dead = relevance_of(kernel).dead
    counted = Counter(kind_of(each) for i, each in enumerate(kernel.instructions) if is_access(each) and i not in dead)
    found = (match[1] for match in map(SASS.match, compiled.sass.splitlines()) if match)
    assert counted == Counter(KINDS[each] for each in found if each in KINDS)
