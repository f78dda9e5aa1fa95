"""Execute notebooks without a GPU and save them as the repository keeps them.

python notebooks/execute.py [PATH ...]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

CELL_TIMEOUT_S = 300


def main(paths: list[Path]) -> None:
    for path in paths:
        begin = time.perf_counter()
        notebook = nbformat.read(path, as_version=4)
        executed(notebook, path.parent)
        nbformat.write(notebook, path)
        print(f"{path.name}: {time.perf_counter() - begin:.0f} s, {path.stat().st_size / 1e6:.2f} MB")


def executed(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Execute a notebook in place, with a store of its own, and drop what tells of this run alone."""
    with tempfile.TemporaryDirectory(prefix="kernellab-notebook-") as store:
        hidden = {"CUDA_VISIBLE_DEVICES": "", "KERNELLAB_PROGRESS": "0"}
        environment = {**os.environ, "KERNELLAB_STORE": store, **hidden}
        client = NotebookClient(notebook, timeout=CELL_TIMEOUT_S, resources={"metadata": {"path": str(folder)}})
        client.execute(env=environment)
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = _joined([output for output in cell.outputs if not _is_blank(output)])


def _is_blank(output: nbformat.NotebookNode) -> bool:
    """Tell whether an output is a display that was emptied, as progress is once it is over."""
    return "data" in output and not any(output.data.values())


def _joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Join what a cell printed piece by piece; where a kernel flushes its output depends on the machine."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        before = joined[-1] if joined else None
        if output.output_type == "stream" and before is not None and before.get("name") == output.name:
            before.text += output.text
        else:
            joined.append(output)
    return joined


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    main(given or sorted(Path(__file__).parent.glob("*.ipynb")))
