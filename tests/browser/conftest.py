"""A JupyterLab of its own, and a Chromium that opens notebooks in it.

The notebooks start without outputs, so that whatever shows was made by this run. Nothing sleeps: a page is ready when
Lab's own model of the notebook says that every cell ran and the kernel is idle.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.compile.types import Compiled
from tests.browser.bridge import Bridge
from tests.chromium import running_chromium
from tests.kernels.matmul import matmul_kernel

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Cells outside of the window stay in the document, so that all of them can be looked at.
    "notebook-extension/tracker": {"windowingMode": "none"},
}
START_TIMEOUT_S = 60
RUN_TIMEOUT_MS = 180_000

RUN_ALL = """async () => {
  const panel = jupyterapp.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await jupyterapp.commands.execute('notebook:run-all-cells');
}"""
ALL_RAN = """() => {
  const panel = jupyterapp.shell.currentWidget;
  const ran = cell => cell.type !== 'code' || !cell.sharedModel.source.trim() || cell.executionCount;
  return panel.sessionContext.session.kernel.status === 'idle' && [...panel.content.model.cells].every(ran);
}"""


@pytest.fixture(scope="module")
def matmul(lab: kernellab.Lab) -> Compiled:
    """A matrix product that is compiled for an H100."""
    tile = torch.zeros(64 * 64, dtype=torch.float16)
    sizes = {"m": 64, "n": 64, "k": 64, "a_stride": 64, "b_stride": 64, "c_stride": 64}
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 2}
    return lab.compile(matmul_kernel, a_ptr=tile, b_ptr=tile, c_ptr=tile, target="cuda:90", **sizes, **blocks)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    with running_chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def jupyterlab(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a running JupyterLab whose root holds the notebooks."""
    pytest.importorskip("jupyterlab")
    root = tmp_path_factory.mktemp("lab")
    _write_notebooks(root)
    with jupyterlab_server(root) as address:
        yield address


@contextmanager
def jupyterlab_server(root: Path) -> Iterator[str]:
    """Run a JupyterLab of its own in a folder; bind its address."""
    _write_settings(root / ".settings")
    port = _free_port()
    with open(root / "server.log", "wb") as log:
        server = subprocess.Popen(
            _command(root, port), cwd=root, env=_environment(root), stdout=log, stderr=log, start_new_session=True
        )
    try:
        _wait_until_up(server, f"http://127.0.0.1:{port}/api", root / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture
def open_widget(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Bridge]]:
    """Open widgets, each in a page; none may have raised, and every page leaves a screenshot in tmp_path."""
    bridges: list[Bridge] = []

    def opened(widget: Any, scheme: str = "light", width: int = 1100) -> Bridge:
        page = chromium.new_page(viewport={"width": width, "height": 1000}, color_scheme=scheme)
        page.set_default_timeout(5000)
        bridges.append(Bridge(widget, page))
        return bridges[-1]

    yield opened
    for number, bridge in enumerate(bridges):
        bridge.page.screenshot(path=str(tmp_path / f"{number}.png"))
        assert bridge.errors == []
        bridge.page.close()
        bridge.widget.close()


@pytest.fixture
def run_notebook(jupyterlab: str, chromium: Any, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Open a notebook in a page, run all of it, and return the page; every page leaves a screenshot in tmp_path."""
    with notebooks_run(jupyterlab, chromium, tmp_path) as run:
        yield run


@contextmanager
def notebooks_run(jupyterlab: str, chromium: Any, folder: Path) -> Iterator[Callable[[str], Any]]:
    pages = []

    def run(name: str) -> Any:
        page = chromium.new_page(viewport={"width": 1100, "height": 900})
        page.set_default_timeout(RUN_TIMEOUT_MS)
        pages.append(page)
        page.goto(f"{jupyterlab}/doc/tree/{name}?reset")
        page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.context?.isReady")
        page.evaluate(RUN_ALL)
        page.wait_for_function(ALL_RAN)
        return page

    yield run
    for number, page in enumerate(pages):
        page.screenshot(path=str(folder / f"page-{number}.png"))
        page.close()


def put(address: str, name: str, notebook: Any) -> None:
    """Write a notebook into the folder of a server."""
    body = json.dumps({"type": "notebook", "content": notebook}).encode()
    request = urllib.request.Request(f"{address}/api/contents/{name}", body, {"Content-Type": "application/json"})
    request.method = "PUT"
    urllib.request.urlopen(request, timeout=30).close()


def trust(address: str, name: str) -> None:
    """Trust a notebook in the folder of a server: JupyterLab drops the pictures of those that somebody else ran."""
    urllib.request.urlopen(urllib.request.Request(f"{address}/api/contents/{name}/trust", b""), timeout=30).close()


def _write_notebooks(root: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    for path in NOTEBOOKS.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat.write(notebook, root / path.name)


def _write_settings(folder: Path) -> None:
    for name, values in SETTINGS.items():
        path = folder / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _command(root: Path, port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyter", "lab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"),
        *("--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.password="),
        *("--ServerApp.allow_root=True", "--ServerApp.disable_check_xsrf=True", f"--ServerApp.root_dir={root}"),
        "--LabApp.expose_app_in_browser=True",
    ]


def _environment(root: Path) -> dict[str, str]:
    folders = {
        "JUPYTER_CONFIG_DIR": ".config",
        "JUPYTER_DATA_DIR": ".data",
        "JUPYTER_RUNTIME_DIR": ".runtime",
        "JUPYTERLAB_SETTINGS_DIR": ".settings",
        "JUPYTERLAB_WORKSPACES_DIR": ".workspaces",
        "IPYTHONDIR": ".ipython",
        "KERNELLAB_STORE": ".store",
    }
    return {**os.environ, **{name: str(root / folder) for name, folder in folders.items()}}


def _wait_until_up(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(address, timeout=2).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')}")
