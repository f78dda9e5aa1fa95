from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kernellab import cli
from kernellab.errors import UsageError
from kernellab.notebook import demo


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were started in place of this process."""
    commands: list[list[str]] = []
    monkeypatch.setattr(demo, "replace_process", lambda command: commands.append(list(command)))
    return commands


def test_the_first_notebook_comes_without_outputs(tmp_path: Path) -> None:
    path, is_new = demo.write_first_notebook(tmp_path)
    assert (path, is_new) == (tmp_path / "quickstart.ipynb", True)
    code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert code[0]["source"] == ["%load_ext kernellab"]
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []


def test_a_notebook_that_is_there_is_opened_as_it_is(
    tmp_path: Path, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.ipynb"
    own.write_text("{}")
    assert cli.main(["lab", str(own), "--no-browser"]) == 0
    assert own.read_text() == "{}"
    assert started[0][:4] == [sys.executable, "-m", "jupyterlab", str(own)]
    assert started[0][-1] == "--no-browser"
    assert capsys.readouterr().out.startswith(f"Found {own};")


def test_a_new_folder_is_made_for_the_notebook(
    tmp_path: Path, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["lab", str(tmp_path / "new")]) == 0
    assert (tmp_path / "new" / "quickstart.ipynb").is_file()
    assert "--no-browser" not in started[0]
    assert capsys.readouterr().out.startswith("Wrote ")


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a notebook; expected a folder"):
        demo.write_first_notebook(tmp_path / "kernel.py")


def test_without_jupyterlab_the_error_has_the_command_that_installs_it(
    tmp_path: Path,
    started: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None)
    assert cli.main(["lab", str(tmp_path)]) == cli.WRONG_CALL
    assert capsys.readouterr().err.strip().endswith('-m pip install "kernellab[lab]"')
    assert (started, list(tmp_path.iterdir())) == ([], [])
