"""What is installed: an sdist, the wheel that is built from it, and a bare environment with that wheel alone.

Its dependencies are those of this interpreter, behind what is installed there.
"""

from __future__ import annotations

import email
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.cli.conftest import ADD

pytest.importorskip("hatchling")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
USER = """\
import kernellab
lab = kernellab.Lab(target="cuda:90", store=":memory:")
registers: int | None = lab.compile(lab.kernels["add_kernel"]).resources.registers
"""
# What others ship is not at issue here, and takes mypy half a minute to read.
MYPY = """\
[mypy]
strict = True
[mypy-torch.*,numpy.*,triton.*,pandas.*,matplotlib.*,IPython.*]
follow_imports = skip
follow_imports_for_stubs = True
ignore_missing_imports = True
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("package")


@pytest.fixture(scope="module")
def sdist(folder: Path) -> Path:
    return built("sdist", ROOT, folder)


@pytest.fixture(scope="module")
def wheel(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return built("wheel", folder / sdist.name.removesuffix(".tar.gz"), folder)


@pytest.fixture(scope="module")
def binaries(wheel: Path, folder: Path) -> Path:
    """The folder of programs of an environment in which the wheel is installed."""
    venv = folder / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)}))
    behind = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (own / "behind.pth").write_text(behind)
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        venv / "bin" / "python",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        wheel,
    )
    return venv / "bin"


def built(kind: str, source: Path, folder: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder, folder=source)
    (found,) = folder.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return found


def run(*words: object, folder: Path | None = None) -> str:
    variables = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    jupyter = [variables.get("JUPYTER_PATH", ""), str(Path(sys.prefix, "share", "jupyter"))]
    variables |= {"JUPYTER_PATH": os.pathsep.join(filter(None, jupyter)), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    done = subprocess.run([*map(str, words)], cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_all_files_of_the_package_and_no_others(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = [archive.read(name) for name in archive.namelist() if name.endswith("/METADATA")]
    package = (path for path in (ROOT / "kernellab").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    first_notebook = "kernellab/notebook/quickstart.ipynb"  # `kernellab lab` opens it; notebooks/ has the original
    assert names == {first_notebook, *(path.relative_to(ROOT).as_posix() for path in package)}
    assert "kernellab/py.typed" in names
    described = email.message_from_bytes(metadata)
    assert {"Source", "Changelog", "Issues"} <= {each.split(",")[0] for each in described.get_all("Project-URL", [])}
    assert described["License-Expression"] == "Apache-2.0"


@pytest.mark.exhaustive
def test_the_sdist_has_what_its_own_checks_need(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "Makefile", "conftest.py"} <= names
    assert {"tests/test_package.py", "docs/architecture.md", "notebooks/01_quickstart.ipynb"} <= names


def test_the_wheel_alone_runs_a_kernel_from_the_command_line(binaries: Path, tmp_path: Path) -> None:
    place = run(binaries / "python", "-c", "import kernellab; print(kernellab.__file__)", folder=tmp_path)
    assert Path(place).is_relative_to(binaries.parent)
    assert run(binaries / "kernellab", "--version", folder=tmp_path).startswith("kernellab 0.1.0, with triton ")
    (tmp_path / "add.py").write_text(ADD)
    words = ("run", "add.py::add_kernel", "--store", tmp_path / "store", "--json")
    assert json.loads(run(binaries / "kernellab", *words, folder=tmp_path))["equals"] == "reference"


@pytest.mark.exhaustive
def test_the_wheel_alone_runs_the_demo(binaries: Path, tmp_path: Path) -> None:
    from tests.cli.test_cli import KERNEL, notebook

    words = ("demo", notebook(tmp_path, KERNEL), "--page", tmp_path / "page.html")
    assert "double_kernel@1" in run(binaries / "kernellab", *words, folder=tmp_path)
    assert (tmp_path / "page.html").is_file()


def test_the_wheel_brings_the_pytest_plugin(binaries: Path, tmp_path: Path) -> None:
    assert "--kernellab-update" in run(binaries / "python", "-m", "pytest", "--help", folder=tmp_path)


@pytest.mark.exhaustive
def test_the_file_of_a_user_is_checked_against_the_types_of_the_wheel(binaries: Path, tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text(MYPY)
    (tmp_path / "user.py").write_text(USER)
    words = (sys.executable, "-m", "mypy", "--python-executable", binaries / "python", "user.py")
    assert run(*words, folder=tmp_path).startswith("Success")
    (tmp_path / "user.py").write_text(USER.replace("int | None", "str"))
    with pytest.raises(AssertionError, match="Incompatible types in assignment"):
        run(*words, folder=tmp_path)
