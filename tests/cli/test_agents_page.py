"""The page for scripts and agents: its kernel file and its commands work as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from docs.pages import commands
from docs.pages.json_schema import ANSWERS, ROWS
from kernellab.cli import kept
from kernellab.cli.verbs import COMMANDS
from tests.cli.conftest import Call

PAGE = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_commands_of_the_page_run_in_its_order(kernellab: Call) -> None:
    file = re.search(r"^```python\n(# (\w+\.py)\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert file
    Path(file[2]).write_text(file[1])
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]
    assert len(lines) > 6
    for line in lines:
        program, *words = shlex.split(line)
        called = kernellab(*words)
        assert (program, called.status, called.out != "") == ("kernellab", 0, True), called.err
    assert Path("softmax_op.py").is_file()


def test_the_page_of_the_command_line_has_every_command_option_and_field() -> None:
    page = commands.page()
    names = [name for name, _, _ in commands.commands()]
    assert set(names) == {*kept.COMMANDS, *COMMANDS, "demo", "judge", "lab"}
    for name, _, parser in commands.commands():
        section = page.partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]
        for action in parser._actions:
            assert all(option in section for option in action.option_strings if action.dest != "help")
        fields = (*ANSWERS.get(name, ()), *ROWS.get(name, ()))
        assert all(f"| `{field.name}` |" in section for field in fields)
