"""Every kernel of the notebooks, exported, runs in an interpreter without the lab and gives what it gave."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import kernellab
from kernellab.errors import CheckFailed
from tests.export.exporting import run_files
from tests.labs import shell_with_extension

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

EXPLAINING = "09_why_is_my_kernel_slow.ipynb"  # takes as long as the others together, and launches nothing
NOTEBOOKS = [
    path for path in sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb")) if path.name != EXPLAINING
]
# What takes long, draws, or writes files, and launches no kernel that another cell does not.
LEFT_OUT = re.compile(
    r"lab\.(tune|bench|compile|effects|graph|capture|compare|load|explore)\(|%triton_|HTML\(|plt\.|subprocess|chdir|Lab\("
    r"|panel\.|--no-run|--tune|--timeout|read_frame|as_page"
)
SETUP = ("%load_ext", "%env", "os.environ")
# Such a kernel cannot be compared: Triton's own interpreter does not compute its types, or it fails where accesses are
# checked, as those do that a notebook on mistakes shows; or it takes addresses, which hold in one process.
NOT_RUN = re.compile(
    "Triton's interpreter cannot compute bfloat16|no expected outputs are recorded|It takes addresses out of"
)


@dataclass(frozen=True, slots=True)
class Exports:
    """What came of a notebook: the kernels that its cells launched by file name, and how the files ended."""

    kernels: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELLAB_STORE", str(tmp_path_factory.mktemp("store")))
        patch.chdir(tmp_path_factory.mktemp("notebooks"))
        with shell_with_extension() as shell:
            yield shell


def cells_of(path: Path) -> Iterator[str]:
    """Yield the cells that launch kernels, without cards, and those that make what they are launched on."""
    import nbformat  # takes a second

    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code" or "raises-exception" in cell.metadata.get("tags", ()):
            continue
        lines = [line for line in cell.source.splitlines() if not line.startswith(SETUP)]
        text = "\n".join(lines)
        if text.strip() and not LEFT_OUT.search(text):
            yield text.replace("%%triton", "%%triton -q", 1) if text.startswith("%%triton") else text


def executed(shell: InteractiveShell, path: Path) -> Exports:
    """Run the cells of a notebook in a namespace of its own, and export what they launched."""
    lab = kernellab.current_lab()
    shell.reset(new_session=False)
    before = {row.id for row in lab.kernels.store.history.launches()}
    exports = Exports()
    with capture_output():
        for text in cells_of(path):
            error = shell.run_cell(text).error_in_exec
            if text.startswith("%%triton") and not isinstance(error, NameError | CheckFailed | None):
                exports.failed.append(f"{text.splitlines()[1]}: {error}")
    rows = [row for row in lab.kernels.store.history.launches() if row.id not in before]
    launched = {row.version_id for row in rows if not row.launch.has_stand_ins}
    for version in sorted(launched):
        label = lab.kernels.version(version).label
        file = f"{path.stem}_{label.replace('@', '_')}.py"
        lab.export(version, file)
        exports.kernels[file] = label
    return exports


@pytest.fixture(scope="module")
def exports(shell: InteractiveShell) -> dict[str, Exports]:
    return {path.stem: executed(shell, path) for path in NOTEBOOKS}


@pytest.fixture(scope="module")
def printed(exports: dict[str, Exports]) -> str:
    """Run all files in one interpreter; return what they printed."""
    texts = {file: Path(file).read_text() for each in exports.values() for file in each.kernels}
    files = [Path(file).absolute() for file, text in texts.items() if not NOT_RUN.search(text)]
    result = run_files(*files)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return result.stdout


def test_the_notebooks_launch_kernels_of_many_kinds(exports: dict[str, Exports]) -> None:
    assert sum(len(each.kernels) for each in exports.values()) >= 8
    assert exports["01_quickstart"].kernels


@pytest.mark.parametrize("notebook", [path.stem for path in NOTEBOOKS])
def test_every_kernel_runs_alone_and_gives_what_it_gave(
    exports: dict[str, Exports], printed: str, notebook: str
) -> None:
    assert exports[notebook].failed == []
    for file, label in exports[notebook].kernels.items():
        if not NOT_RUN.search(Path(file).read_text()):
            name = label.partition("@")[0]
            verdict = rf"^{name} (outputs match those at export|equals its reference)"
            assert re.search(verdict, printed, re.MULTILINE), file
