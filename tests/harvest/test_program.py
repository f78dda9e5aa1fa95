"""Programs run in this process as Python runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernellab.errors import UsageError
from kernellab.harvest.verbs import run_program


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "next_to_program.py").write_text("value = 3\n")
    return tmp_path


def test_a_script_has_its_arguments_its_folder_and_its_status(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = folder / "program.py"
    script.write_text(
        "import sys, next_to_program\nprint(__name__, sys.argv[1:], next_to_program.value)\nsys.exit(4)\n"
    )
    before = list(sys.argv), list(sys.path)
    assert run_program(str(script), ["--size", "3"]) == 4
    assert capsys.readouterr().out == "__main__ ['--size', '3'] 3\n"
    assert before == (sys.argv, sys.path)


def test_a_module_is_run_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "as_module.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    assert run_program("as_module", ["x"], is_module=True) == 0
    assert capsys.readouterr().out == "__main__ ['x']\n"


def test_an_exception_is_printed_and_the_status_is_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = folder / "program.py"
    script.write_text("raise ValueError('of the program')\n")
    assert run_program(str(script), []) == 1
    assert "ValueError: of the program" in capsys.readouterr().err
    script.write_text("import sys\nsys.exit('stopped')\n")
    assert run_program(str(script), []) == 1
    assert "stopped" in capsys.readouterr().err


def test_a_script_that_is_missing_is_a_wrong_call(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"no script 'nothing\.py'"):
        run_program("nothing.py", [])
