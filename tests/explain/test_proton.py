from __future__ import annotations

from typing import Any

import pytest

import kernellab
from kernellab.explain.profilers import numbered_binary
from kernellab.explain.proton import NoLineTable, instruction_address, number_instructions
from tests.kernels.cases import all_cases


@pytest.fixture(scope="module")
def compiled(lab: kernellab.Lab) -> Any:
    case = next(iter(all_cases().values()))
    return lab.compile(case.kernel, **case.fresh_arguments(), **case.meta, target="cuda:90")


@pytest.mark.slow
def test_every_instruction_becomes_a_line_of_its_own_and_the_code_stays(compiled: Any) -> None:
    with numbered_binary(compiled) as (binary, is_numbered):
        lines, addresses = [], []
        for line in binary.sass.splitlines():
            if "//## File" in line:
                lines.append(int(line.rpartition("line ")[2]))
            elif line.strip().startswith("/*"):
                addresses.append(int(line.strip()[2:6], 16))
        assert is_numbered
        assert [instruction_address(number) for number in lines] == addresses
        assert _code(binary.sass) == _code(compiled.sass)
    assert compiled.folder != binary.folder
    assert not binary.folder.exists()


def test_a_binary_without_a_line_table_is_sampled_as_it_is(compiled: Any) -> None:
    without = bytearray(compiled.binary)
    start = without.index(b".rela.debug_line\0")
    without[start : start + 5] = b".gone"
    with pytest.raises(NoLineTable, match="without line information"):
        number_instructions(bytes(without))


@pytest.mark.parametrize("binary", [b"", b"\x7fELF\x02\x01", b"no binary at all", b"\x7fELF\x02\x01" + bytes(300)])
def test_what_is_no_cubin_has_no_line_table(binary: bytes) -> None:
    with pytest.raises(NoLineTable):
        number_instructions(binary)


def _code(sass: str) -> list[str]:
    return [line.split(";")[0] for line in sass.splitlines() if line.strip().startswith("/*")]
