"""The quickstart notebook: run and written as a page (``kernellab demo``), opened in JupyterLab (``kernellab lab``)."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, TextIO

from kernellab.errors import KernellabError, UsageError, first_line
from kernellab.export.write import replace_file
from kernellab.views.elements import html_page
from kernellab.views.palette import fill_in

_CELL_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Demonstration:
    """The result of the demonstration: the facts of each kernel in order, the page, the seconds it took."""

    kernels: tuple[dict[str, Any], ...]
    page: Path
    seconds: float


def demonstrate(notebook: Path, page: Path, out: TextIO) -> Demonstration:
    """Execute ``notebook``, write ``page``, and report progress on ``out``.

    Raises:
        UsageError: there is no such notebook, or it cannot be read.
        KernellabError: a cell failed that is not meant to.
    """
    if not notebook.is_file():
        raise UsageError(f"There is no notebook {str(notebook)!r}; run the demo from a clone, or name one.")
    import nbformat  # only here

    from kernellab.views.bundles import SUMMARY_MIME  # loads cards

    try:
        document = nbformat.read(notebook, as_version=4)
    except (ValueError, AttributeError, KeyError, OSError, nbformat.ValidationError) as exc:
        raise UsageError(f"{str(notebook)!r} cannot be read as a notebook: {first_line(exc)}.") from exc
    begin = time.perf_counter()
    _execute_notebook(document, notebook.parent, out)
    replace_file(page, notebook_page(document, title=notebook.stem).encode())
    outputs = (output.get("data", {}) for cell in document.cells for output in cell.get("outputs", ()))
    kernels = tuple(kernel for data in outputs for kernel in data.get(SUMMARY_MIME, ()))
    return Demonstration(kernels, page, time.perf_counter() - begin)


def summary_text(result: Demonstration) -> str:
    """Return the summary for the terminal: a few lines per kernel, then the path of the page."""
    targets = ", ".join(sorted({kernel["target"] for kernel in result.kernels}))
    place = f"No GPU found: the kernels ran on the interpreter, and were compiled for {targets}."
    if any(kernel["where"] == "gpu" for kernel in result.kernels):
        place = f"The kernels ran on the GPU, compiled for {targets}."
    lines = [place, ""]
    for kernel in result.kernels:
        lines += [f"{kernel['label']:28} {kernel['target']}", *_kernel_lines(kernel)]
    lines += ["", f"{result.page.resolve()}  ({result.seconds:.0f} s)"]
    return "\n".join(lines)


def _execute_notebook(document: Any, folder: Path, out: TextIO) -> None:
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    total = sum(cell.cell_type == "code" for cell in document.cells)
    done: list[int] = []

    def report_start(cell: Any, cell_index: int) -> None:
        if cell.cell_type != "code":
            return
        done.append(cell_index)
        lines = cell.source.splitlines()
        names = [line.split("(")[0].removeprefix("def ") for line in lines if line.startswith("def ")]
        what = names[-1] if names else next((line for line in lines if line.strip()), "")
        text = f"[{'#' * round(20 * len(done) / total):20}] {len(done)}/{total} {what[:50]}"
        out.write(f"\r{text:80}" if out.isatty() else f"{text}\n")
        out.flush()

    client = NotebookClient(
        document,
        timeout=_CELL_TIMEOUT_S,
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=report_start,
        extra_arguments=["--log-level=40"],  # warnings about how the kernel is reached do not concern the user
    )
    try:
        client.execute()
    except CellExecutionError as exc:
        raise KernellabError(f"The cell number {len(done)} of the notebook failed.", detail=str(exc)) from exc
    finally:
        out.write("\n")


def _kernel_lines(kernel: dict[str, Any]) -> Iterator[str]:
    effects = [f"{kind} {', '.join(kernel[key])}" for key, kind in _EFFECTS.items() if kernel[key]]
    yield f"    {'; '.join(effects) or 'touches no argument'}{'' if kernel['complete'] else '; and memory not known'}"
    registers = "registers not known"
    if kernel["registers"] is not None:
        registers = f"{kernel['registers']} registers, {kernel['spill_bytes']:,} bytes spilled"
    yield f"    {registers}, {kernel['shared_bytes']:,} bytes of shared memory"
    if kernel["equal"] is not None:
        verdict = "matches torch" if kernel["equal"] else "DIFFERS from torch"
        largest = "infinite" if kernel["max_error"] is None else f"{kernel['max_error']:.2g}"
        yield f"    {verdict}, max error {largest}"


_EFFECTS = {"reads": "reads", "writes": "writes", "atomics": "atomically updates"}


_STYLE = """
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; background: Canvas; color: CanvasText; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem 1.25rem 4rem; }
pre, code { font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 0.82rem; }
h1, h2, h3 { line-height: 1.25; }
a.anchor-link, .prompt, .jp-InputPrompt, .jp-OutputPrompt, .jp-Collapser { display: none; }
.highlight, .jp-InputArea-editor { border-radius: 6px; }
.highlight { background: color-mix(in srgb, CanvasText 5%, Canvas); padding: 0.1rem 0.8rem; overflow-x: auto; }
.output_area pre, .jp-OutputArea-output pre { overflow-x: auto; white-space: pre-wrap; margin: 0.5rem 0; }
.output_error pre, .jp-RenderedText[data-mime-type="application/vnd.jupyter.stderr"] pre {
  background: color-mix(in srgb, $bad 14%, Canvas); padding: 0.5rem 0.8rem; border-radius: 6px; }
table.dataframe { border-collapse: collapse; font-size: 0.85rem; }
table.dataframe th, table.dataframe td { padding: 0.2rem 0.6rem; text-align: right; border: 0; }
table.dataframe tbody tr { border-top: 1px solid color-mix(in srgb, CanvasText 15%, Canvas); }
"""


def notebook_page(notebook: Any, title: str) -> str:
    """Return an executed notebook as one HTML page.

    Raises:
        ModuleNotFoundError: nbconvert, which the extra ``demo`` brings, is not installed.
    """
    from nbconvert import HTMLExporter  # only here
    from pygments.formatters import HtmlFormatter

    exporter = HTMLExporter(template_name="basic", filters={"highlight_code": _highlight_code})
    body, _ = exporter.from_notebook_node(notebook)
    light = HtmlFormatter(style="default", nobackground=True).get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark", nobackground=True).get_style_defs(".highlight")
    style = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{fill_in(_STYLE)}"
    return html_page(title, style, f"<main>\n{body}\n</main>")


def _highlight_code(source: str, language: str = "python", metadata: object = None) -> str:
    """Return a code cell as HTML; IPython's own lexer does not highlight the body of a ``%%triton`` cell."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import Python3Lexer

    first, newline, rest = source.partition("\n") if source.startswith("%") else ("", "", source)
    code = highlight(rest, Python3Lexer(), HtmlFormatter(nowrap=True))
    return f'<div class="highlight"><pre><span class="nb">{escape(first)}</span>{newline}{code}</pre></div>'


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
