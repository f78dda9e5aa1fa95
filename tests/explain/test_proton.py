from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

import kernellab
from kernellab.errors import StoreError
from kernellab.explain.profilers import numbered_binary
from kernellab.explain.proton import (
    NoLineTable,
    OpenSession,
    close_session,
    instruction_address,
    number_instructions,
    open_session,
)
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


def test_a_refused_folder_for_samples_is_an_error_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StoreError, match=r"^A temporary folder cannot be made: .* Correct that, then try again\.$"):
        open_session(None, None)


def test_samples_that_the_profiler_did_not_write_are_an_error_and_their_folder_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triton.profiler.finalize", lambda session: None)
    folder = tmp_path / "samples"
    folder.mkdir()
    with pytest.raises(StoreError, match=r"^The samples cannot be read: No such file"):
        close_session(OpenSession(1, str(folder)), None)
    assert not folder.exists()


def test_the_folder_of_samples_is_deleted_where_the_profiler_fails_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(session: int) -> None:
        raise RuntimeError("no session")

    monkeypatch.setattr("triton.profiler.finalize", fail)
    folder = tmp_path / "samples"
    folder.mkdir()
    with pytest.raises(RuntimeError, match="no session"):
        close_session(OpenSession(1, str(folder)), None)
    assert not folder.exists()
