"""Earlier revisions of a file: of a commit, another file, or a package; and what its imports mean meanwhile."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernellab.errors import UsageError
from kernellab.upgrade.revisions import earlier_file, importing_earlier


def git(folder: Path, *words: str) -> None:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(folder), *words]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository with one commit; the working tree has changed since. Modules of it are imported and forgotten."""
    folder = tmp_path / "repository"
    (folder / "src" / "revised" / "inner").mkdir(parents=True)
    (folder / "src" / "revised" / "__init__.py").write_text("")
    (folder / "src" / "revised" / "inner" / "__init__.py").write_text("from revised.values import VALUE\n")
    (folder / "src" / "revised" / "values.py").write_text("VALUE = 'old'\n")
    (folder / "beside.py").write_text("VALUE = 'old'\n")
    (folder / "gone.py").write_text("VALUE = 'gone'\n")
    (folder / "random.py").write_text("raise AssertionError('that of the standard library is meant')\n")
    (folder / "script.py").write_text("import random, beside, gone, revised.inner\nFROM = 'old script'\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    (folder / "gone.py").unlink()
    (folder / "src" / "revised" / "values.py").write_text("VALUE = 'new'\n")
    (folder / "beside.py").write_text("VALUE = 'new'\n")
    (folder / "script.py").write_text("import beside, revised.inner\nFROM = 'new script'\n")
    monkeypatch.syspath_prepend(folder / "src")
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] in {"beside", "gone", "script", "revised"}]:
        del sys.modules[name]


def imported(path: Path, against: str, name: str) -> Any:
    with earlier_file(path, against) as earlier, importing_earlier(earlier):
        return importlib.import_module(name)


@pytest.mark.slow
def test_a_commit_has_the_modules_that_its_file_imports_and_those_of_now_come_back(repository: Path) -> None:
    now = importlib.import_module("script")
    index = (repository / ".git" / "index").read_bytes()
    earlier = imported(repository / "script.py", "HEAD", "script")
    assert (earlier.FROM, earlier.beside.VALUE, earlier.gone.VALUE) == ("old script", "old", "gone")
    assert earlier.revised.inner.VALUE == "old"  # of another folder of the repository
    assert (now.FROM, now.beside.VALUE, now.revised.inner.VALUE) == ("new script", "new", "new")
    assert sys.modules["script"] is now
    assert sys.modules["revised.values"].VALUE == "new"
    assert "gone" not in sys.modules
    assert (repository / ".git" / "index").read_bytes() == index


@pytest.mark.slow
def test_modules_come_back_after_an_import_that_fails(repository: Path) -> None:
    now, path, finders = importlib.import_module("script"), list(sys.path), list(sys.meta_path)
    with pytest.raises(ModuleNotFoundError):
        imported(repository / "script.py", "HEAD", "script_of_no_revision")
    assert (sys.modules["script"], sys.path, sys.meta_path) == (now, path, finders)


def test_a_file_has_the_modules_next_to_it(repository: Path, tmp_path: Path) -> None:
    now = importlib.import_module("script")
    other = tmp_path / "other"
    other.mkdir()
    (other / "script.py").write_text("import beside\n")
    (other / "beside.py").write_text("VALUE = 'other'\n")
    assert imported(repository / "script.py", str(other / "script.py"), "script").beside.VALUE == "other"
    assert now.beside.VALUE == "new"


def test_what_is_no_revision_is_refused(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("")
    (repository / "later.py").write_text("")
    wrong = {
        (repository / "script.py", "nowhere"): "no such commit or file; expected a commit, such as HEAD~1; a file",
        (repository / "script.py", "--all"): "no such commit or file",
        (repository / "later.py", "HEAD"): "later.py is not in that commit",
        (tmp_path / "alone.py", "HEAD"): "is in no git repository",
        (repository / "script.py", "a b==1"): "expected a commit, such as HEAD~1",
    }
    for (path, against), message in wrong.items():
        with pytest.raises(UsageError) as caught, earlier_file(path, against):
            pass
        assert message in caught.value.message


@pytest.fixture
def pip_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have pip answer with a package of one module, or fail."""

    def install(files: dict[str, str] | None) -> None:
        def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
            assert command[1:4] == ["-m", "pip", "install"]
            if files is None:
                return subprocess.CompletedProcess(command, 1, "", "WARNING: retrying\nERROR: No network.\n")
            for name, text in files.items():
                path = Path(command[command.index("--target") + 1]) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr("kernellab.upgrade.revisions.subprocess.run", run)

    return install


def test_a_file_of_a_package_is_that_of_the_version(repository: Path, pip_of: Any) -> None:
    path = repository / "src" / "revised" / "values.py"
    assert importlib.import_module("revised.values").VALUE == "new"
    pip_of({"revised/__init__.py": "", "revised/values.py": "VALUE = 'installed'\n"})
    assert imported(path, "revised==1.0", "revised.values").VALUE == "installed"
    assert sys.modules["revised.values"].VALUE == "new"
    pip_of({"revised/__init__.py": ""})
    with pytest.raises(UsageError, match=r"revised==1\.0 has no revised/values\.py"):
        imported(path, "revised==1.0", "revised.values")


@pytest.mark.slow
def test_a_file_outside_of_a_package_is_imported_again_with_the_version(repository: Path, pip_of: Any) -> None:
    now = importlib.import_module("script")
    pip_of({"revised/__init__.py": "", "revised/inner/__init__.py": "VALUE = 'installed'\n"})
    earlier = imported(repository / "script.py", "revised==1.0", "script")
    assert (earlier.revised.inner.VALUE, now.revised.inner.VALUE) == ("installed", "new")
    pip_of({"unrelated/__init__.py": ""})
    with pytest.raises(UsageError, match=r"imports nothing of unrelated==1\.0: both sides would be the same"):
        imported(repository / "script.py", "unrelated==1.0", "script")


def test_a_version_that_pip_cannot_fetch_is_a_wrong_call_with_advice(repository: Path, pip_of: Any) -> None:
    pip_of(None)
    with pytest.raises(UsageError, match=r"No network; without a network, .* pass its script\.py"):
        imported(repository / "script.py", "revised==1.0", "script")
