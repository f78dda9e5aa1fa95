"""Text for a terminal: broken to its width, in colour; as it is everywhere else."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from kernellab.cli.terminal import style_for, wrap_lines
from kernellab.settings import wants_colour

TEXT = "add_kernel  cuda:90\n  warning: " + "word " * 30 + "\n  out_ptr matches x + y; max error 0"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_are_broken_between_words_and_keep_their_indent() -> None:
    lines = wrap_lines(TEXT, 60).splitlines()
    assert lines[0] == "add_kernel  cuda:90"
    assert all(len(line) <= 60 for line in lines)
    assert all(line.startswith("      word") for line in lines[2:-1])
    assert " ".join(wrap_lines(TEXT, 60).split()) == " ".join(TEXT.split())


def test_colours_and_breaks_are_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert style_for(TEXT, io.StringIO()) == TEXT
    on_terminal = style_for(TEXT, Terminal())
    assert on_terminal.startswith("\x1b[1madd_kernel")
    assert "\x1b[33m  warning:" in on_terminal
    assert "\x1b[32m  out_ptr matches" in on_terminal
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in style_for(TEXT, Terminal())


@pytest.mark.parametrize(
    ("environ", "wanted"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)]
)
def test_a_terminal_takes_colour_unless_it_says_not(environ: dict[str, str], wanted: bool) -> None:
    assert wants_colour(environ) is wanted


@pytest.mark.slow
def test_what_is_printed_past_python_leaves_the_answer_alone() -> None:
    code = (
        "import os\nfrom kernellab.cli.terminal import answers_alone\n"
        "with answers_alone():\n    print('python', flush=True)\n    os.write(1, b'native\\n')\nprint('answer')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "answer\n"
    assert set(done.stderr.split()) == {"python", "native"}


def test_a_reader_that_has_enough_is_no_error() -> None:
    code = "import sys\nfrom kernellab.cli import main\nsys.exit(main(['--help']))"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert "Traceback" not in done.stderr
