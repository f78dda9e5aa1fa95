"""JupyterLab with a first notebook: what ``kernellab lab`` opens."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kernellab.errors import UsageError
from kernellab.export.write import replace_file

FIRST_NOTEBOOK = "quickstart.ipynb"
_IN_WHEEL = Path(__file__).with_name(FIRST_NOTEBOOK)
_IN_CLONE = Path(__file__).parents[2] / "notebooks" / "01_quickstart.ipynb"


def write_first_notebook(path: Path) -> tuple[Path, bool]:
    """Write the quickstart notebook, without outputs, to a path or into a folder; an existing one is left as it is.

    Returns the path of the notebook, and whether it was written.

    Raises:
        UsageError: the path is another kind of file, or cannot be written.
    """
    notebook = path / FIRST_NOTEBOOK if path.is_dir() or not path.suffix else path
    if notebook.suffix != ".ipynb":
        raise UsageError(f"{str(path)!r} is not a notebook; expected a folder, or a path that ends with .ipynb.")
    if notebook.exists():
        return notebook, False
    content = json.loads((_IN_WHEEL if _IN_WHEEL.is_file() else _IN_CLONE).read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    replace_file(notebook, json.dumps(content, indent=1, ensure_ascii=False).encode())
    return notebook, True


def jupyterlab_command(notebook: Path, options: Sequence[str]) -> list[str]:
    """Return the command that opens a notebook in JupyterLab, with this Python."""
    as_root = ["--allow-root"] if os.geteuid() == 0 else []
    return [sys.executable, "-m", "jupyterlab", str(notebook), *as_root, *options]


def require_jupyterlab() -> None:
    """Raise `UsageError` with the command that installs JupyterLab, unless it is installed."""
    if importlib.util.find_spec("jupyterlab") is None:
        remedy = f'Install it: {sys.executable} -m pip install "kernellab[lab]"'
        raise UsageError(f"JupyterLab is not installed for {sys.executable}. {remedy}")


def replace_process(command: Sequence[str]) -> None:
    """Run a command in place of this process, so that Ctrl-C and the exit status are its own."""
    sys.stdout.flush()
    os.execv(command[0], [*command])
