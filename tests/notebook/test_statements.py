"""The statements of a cell run as those of any cell: waiting, future features, semicolons, and errors in the middle."""

from __future__ import annotations
import __future__

from pathlib import Path

import pytest
import torch

from kernellab import current_lab
from kernellab.errors import UsageError
from tests.notebook.conftest import DOUBLE, Notebook

LAUNCH = "{name}[(2,)](x, out, 100, BLOCK=64)\n"


@pytest.mark.slow
def test_a_cell_waits_at_its_top(notebook: Notebook) -> None:
    cell = "import asyncio\nawait asyncio.sleep(0)\n" + DOUBLE.format(name="awaited", factor=2)
    cell += f"async def run():\n    {LAUNCH.format(name='awaited')}    return 5\nvalue = await run()"
    ran = notebook.triton(cell)
    assert ran.error is None
    assert notebook.names["value"] == 5
    assert ran.shown[-1]["text/plain"].startswith("awaited@1")
    assert torch.equal(notebook.names["out"], 2 * torch.arange(100.0))


def test_the_value_of_a_last_await_is_shown(notebook: Notebook) -> None:
    ran = notebook.triton("async def seven():\n    return 7\nawait seven()")
    assert ran.shown[0]["text/plain"] == "7"


def test_an_async_with_and_an_async_for_run_at_the_top(notebook: Notebook) -> None:
    cell = """
import contextlib
async def numbers():
    for i in range(3):
        yield i
got = []
async with contextlib.aclosing(numbers()) as some:
    async for i in some:
        got.append(i)
"""
    assert notebook.triton(cell).error is None
    assert notebook.names["got"] == [0, 1, 2]


@pytest.mark.slow
def test_a_launch_of_another_task_is_none_of_the_cell(notebook: Notebook) -> None:
    notebook.double("in_task")
    notebook.run(f"import asyncio\nasync def beside():\n    {LAUNCH.format(name='in_task')}")
    magic = (
        "await get_ipython().magics_manager.registry['TritonMagics'].run_async('--no-run', 'await asyncio.sleep(0.01)')"
    )
    cell = f"before = asyncio.ensure_future(beside())\n{magic}\nawait before"
    assert notebook.run(cell).error is None
    assert notebook.names["out"].any()


@pytest.mark.slow
def test_an_error_after_waiting_is_told_with_its_line(notebook: Notebook) -> None:
    ran = notebook.triton("import asyncio\nawait asyncio.sleep(0)\n1 / 0")
    assert isinstance(ran.error, ZeroDivisionError)
    assert "line 4" in ran.printed


WAITING = "get_ipython().run_cell_magic('triton', '', 'import asyncio\\nawait asyncio.sleep(0.001)\\nwaited = 1')"


def test_a_magic_that_is_called_waits_where_no_loop_runs(notebook: Notebook) -> None:
    assert notebook.run(f"waited = 0\n{WAITING}\nassert waited").error is None


def test_a_magic_that_is_called_where_a_loop_runs_says_what_to_do(notebook: Notebook) -> None:
    ran = notebook.run(f"import asyncio\nawait asyncio.sleep(0)\n{WAITING}")
    assert isinstance(ran.error, UsageError)
    assert "as a cell of its own" in str(ran.error)


@pytest.mark.slow
def test_a_future_feature_holds_in_its_cell_and_the_next(notebook: Notebook) -> None:
    flags = notebook.shell.compile.flags
    try:
        cell = "from __future__ import annotations\ndef later(x: Nowhere): ..." + DOUBLE.format(
            name="postponed", factor=2
        )
        ran = notebook.triton(cell + LAUNCH.format(name="postponed"))
        assert ran.error is None
        assert ran.shown[0]["text/plain"].startswith("postponed@1")
        assert notebook.names["later"].__annotations__ == {"x": "Nowhere"}
        assert notebook.triton("def after(x: Nowhere): ...").error is None
        assert notebook.run("def ordinary(x: Nowhere): ...").error is None
    finally:
        notebook.shell.compile.flags = flags & ~__future__.annotations.compiler_flag


@pytest.mark.parametrize("cell", ["1 + 1;", "1 + 1; # two", "1 + 1 ;\n\n"])
def test_a_semicolon_keeps_a_value_from_being_shown(notebook: Notebook, cell: str) -> None:
    assert all(shown["text/plain"] != "2" for shown in notebook.triton(cell).shown)


def test_a_semicolon_in_a_text_keeps_nothing(notebook: Notebook) -> None:
    assert notebook.triton("'a;'").shown[0]["text/plain"] == "'a;'"


@pytest.mark.slow
@pytest.mark.parametrize("last", ["1 / 0", "raise KeyboardInterrupt", "missing[(1,)](x)"])
def test_a_launch_before_a_line_that_raises_is_kept(notebook: Notebook, last: str, tmp_path: Path) -> None:
    name = f"kept_before_{len(last)}"
    ran = notebook.double(name, launch=f"{LAUNCH.format(name=name)}{last}")
    assert ran.error is not None
    lab = current_lab()
    assert lab.kernels.store.history.launches(lab.kernels.version(name).id)
    lab.export(name, tmp_path / "kept.py")
    assert name in (tmp_path / "kept.py").read_text()


def test_a_launch_before_one_that_fails_is_kept_and_that_one_is_not(notebook: Notebook) -> None:
    name = "kept_alone"
    ran = notebook.double(name, launch=f"{LAUNCH.format(name=name)}{name}[(2,)](torch.zeros(10), out, 100, BLOCK=64)\n")
    assert ran.error is not None
    lab = current_lab()
    (row,) = lab.kernels.store.history.launches(lab.kernels.version(name).id)
    assert row.count == 1
