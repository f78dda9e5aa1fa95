"""Wrong calls, broken files and interrupts: a sentence, as text or JSON, and an exit status; never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages.json_schema import ERROR
from kernellab import cli
from tests.cli.conftest import Call
from tests.launch.wrong_calls import outcomes_of_commands
from tests.tables import every

HEAD = """\
import torch, triton, triton.language as tl

@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)

"""
ARGUMENTS = "def arguments():\n    return (1,), (torch.ones(8),), {'BLOCK': 8}\n"
ENDLESS = """\
import torch, triton, triton.language as tl

@triton.jit
def endless(x_ptr):
    value = tl.load(x_ptr)
    while value < 2:
        value = tl.load(x_ptr)
    tl.store(x_ptr, value)

def arguments():
    print("ready", flush=True)
    return (1,), (torch.zeros(8),), {}
"""
FILES = {
    "syntax.py": "def broken(:\n    pass\n",
    "raises.py": "import no_such_module_anywhere\n",
    "leaves.py": "import sys\nsys.exit(3)\n",
    "silent.py": HEAD,
    "raising.py": HEAD + "def arguments():\n    return torch.ones(2) @ torch.ones(3)\n",
    "shape.py": HEAD + "def arguments():\n    return (1,), (torch.ones(8),)\n",
    "meta.py": HEAD + "def arguments():\n    return (1,), (torch.ones(8),), 8\n",
    "uneven.py": HEAD + "def arguments():\n    return (1,), (torch.ones(8),), {'BLOCK': 48}\n",
    "outside.py": HEAD + "def arguments(n=8):\n    return (1,), (torch.ones(n),), {'BLOCK': 16}\n",
    "grid.py": HEAD + "def arguments():\n    return 'abc', (torch.ones(8),), {'BLOCK': 8}\n",
    "lambda.py": HEAD + "def arguments():\n    return lambda meta: (meta['N'],), (torch.ones(8),), {'BLOCK': 8}\n",
    "hidden.py": HEAD
    + "def grid(meta):\n    __tracebackhide__ = True\n    return (1 // 0,)\n"
    + "def arguments():\n    return grid, (torch.ones(8),), {'BLOCK': 8}\n",
    "takes.py": HEAD + ARGUMENTS + "def reference(y_ptr):\n    return y_ptr\n",
    "refers.py": HEAD + ARGUMENTS + "def reference(x_ptr):\n    return x_ptr @ torch.ones(3)\n",
    "missing.py": HEAD + "def arguments():\n    return (1,), (), {'BLOCK': 16}\n",
}
FAULTS = {
    "syntax.py": ("SourceError", 1),
    "raises.py": ("SourceError", 1),
    "leaves.py": ("SourceError", 2),
    "raising.py": ("LaunchError", 8),
    "shape.py": ("LaunchError", None),
    "meta.py": ("LaunchError", None),
    "uneven.py": ("CompileError", 5),
    "outside.py": ("OutOfBounds", 5),
    "grid.py": ("LaunchError", None),
    "lambda.py": ("LaunchError", 8),
    "hidden.py": ("LaunchError", 9),
    "takes.py": ("LaunchError", None),
    "refers.py": ("LaunchError", 10),
    "missing.py": ("LaunchError", None),
}
WRONG = {
    "no command": (),
    "an unknown command": ("frobnicate",),
    "no kernel": ("run",),
    "an unknown option": ("run", "add.py", "--frobnicate"),
    "no such file": ("run", "nothing.py::kernel"),
    "a folder": ("run", "."),
    "no such kernel": ("run", "add.py::mul_kernel"),
    "a function": ("run", "add.py::arguments"),
    "no arguments()": ("run", "silent.py"),
    "an unknown size": ("run", "add.py", "--size", "m=3"),
    "no size": ("run", "add.py", "--size", "n"),
    "an unknown target": ("compile", "add.py", "--target", "cuda:12"),
    "an unknown stage": ("compile", "add.py", "--stage", "wasm"),
    "no stage of the target": ("compile", "add.py", "--stage", "amdgcn"),
    "a reference that cannot be": ("run", "add.py", "--check", "z_ptr"),
    "no kept kernel": ("export", "mul_kernel"),
    "an unknown peer": ("bench", "add.py", "--versus", "nobody"),
    "nothing to sweep": ("bench", "add.py", "--over", "m=1,2"),
    "no seconds": ("run", "add.py", "--timeout", "-1"),
    "no constexpr or option": ("run", "add.py", "--meta", "FOO=1"),
    "no constexpr": ("run", "add.py", "--meta", "n=8"),
    "no constexpr or option in a benchmark": ("bench", "add.py", "--meta", "FOO=1"),
    "no constexpr or option in a space": ("tune", "add.py", "--space", "FOO=1,2"),
    "a condition on no space": ("tune", "add.py", "--where", "BLOCK > 64"),
    "what is swept and given": ("bench", "add.py", "--over", "BLOCK=64", "--meta", "BLOCK=32"),
    "a size that is swept and given": ("bench", "add.py", "--over", "n=64", "--size", "n=32"),
    "sizes of a kept kernel": ("export", "add_kernel", "--size", "n=3"),
    "a folder to write": ("export", "add.py", "-o", "."),
    "an empty file name": ("run", ""),
    "an empty target": ("run", "add.py", "--target", ""),
}
WORDS = {
    ("run", "add.py", "--timeout", "nan"): "--timeout: it is 'nan', and expected is a positive number",
    ("bench", "add.py", "--rounds", "1.5"): "--rounds: it is '1.5', and expected is a positive integer",
    ("tune", "add.py", "--space", "BLOCK=32,,64"): "--space BLOCK=32,,64: a value is missing",
    ("tune", "add.py", "--space", "BLOCK=32", "--space", "BLOCK=64"): "--space names BLOCK twice",
    ("run", "add.py", "--size", "n=1", "--size", "n=2"): "--size names n twice",
    (
        "run",
        "add.py",
        "--meta",
        "FOO=1",
    ): "--meta FOO: add_kernel has no such constexpr or option; expected one of BLOCK,",
    ("tune", "add.py", "--space", "BLOCK=32,64", "num_warps=2", "num_stages=3"): (
        "unrecognized arguments: num_warps=2 num_stages=3; give --space once for each: --space BLOCK=32,64 "
        "--space num_warps=2 --space num_stages=3; see"
    ),
    ("run", "add.py", "--size=n=64", "m=3"): "give --size once for each: --size n=64 --size m=3; see",
    ("run", "add.py", "--json", "m=3"): "unrecognized arguments: m=3; see kernellab --help.",
    ("run", ""): "'' is not a file",
}


@pytest.fixture(autouse=True)
def _files(kernellab: Call) -> None:
    for name, text in FILES.items():
        Path(name).write_text(text)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_kernel_or_its_file_is_an_error_with_its_line(kernellab: Call, name: str) -> None:
    kind, line = FAULTS[name]
    called = kernellab("run", name, "--json")
    assert called.status == 1
    assert called.error["type"] == kind
    assert list(called.error) == [field.name for field in ERROR]
    assert called.error["advice"]
    assert (called.error["place"] or {"line": None})["line"] == line
    if line is not None:
        assert called.error["place"]["file"] == str(Path(name).resolve())
    text = kernellab("run", name)
    assert text.status == 1
    assert text.out == ""
    assert text.err.splitlines()[-1].startswith((f"{kind}:", " ")) or f"\n{kind}:" in text.err
    assert "Traceback" not in called.out + called.err + text.err


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG)
def test_a_wrong_call_is_a_sentence_and_status_2(kernellab: Call, words: tuple[str, ...]) -> None:
    called = kernellab(*words, "--json")
    assert called.status == 2
    assert called.error["message"]
    assert called.error["advice"]
    text = kernellab(*words)
    assert text.status == 2
    assert "Traceback" not in text.out + text.err


@pytest.mark.parametrize(("words", "message"), WORDS.items())
def test_a_wrong_value_is_told_in_words_of_the_command_line(
    kernellab: Call, words: tuple[str, ...], message: str
) -> None:
    called = kernellab(*words, "--json")
    assert called.status == 2
    assert message in called.error["message"]


def test_the_whole_message_behind_an_error_shows_on_request(kernellab: Call) -> None:
    assert "raising.py, line 8, in arguments" in kernellab("run", "raising.py", "--verbose").err


def test_an_interrupt_ends_with_130(kernellab: Call) -> None:
    Path("slow.py").write_text("raise KeyboardInterrupt\n")
    assert kernellab("run", "slow.py").status == cli.INTERRUPTED
    assert kernellab("run", "slow.py", "--json").error["type"] == "Interrupted"


@pytest.mark.slow
def test_ctrl_c_ends_a_command_and_its_workers_without_a_traceback(kernellab: Call) -> None:
    Path("endless.py").write_text(ENDLESS)
    words = [sys.executable, "-m", "kernellab", "run", "endless.py", "--store", ":memory:"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (cli.INTERRUPTED, "", "Interrupted.\n")


@pytest.mark.slow
def test_an_interrupt_inside_an_exec_of_text_ends_a_command_with_its_own_status(kernellab: Call) -> None:
    Path("hit.py").write_text("exec('raise KeyboardInterrupt')\n")
    words = [sys.executable, "-m", "kernellab", "compile", "hit.py", "--store", ":memory:"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (cli.INTERRUPTED, "", "Interrupted.\n")


def test_a_fault_of_the_lab_itself_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(**given: object) -> None:
        raise ZeroDivisionError("division by zero")

    assert cli.main(["effects", "add.py", "--verbose"], open_lab=broken) == 1
    said = capsys.readouterr().err
    assert "kernellab itself failed: ZeroDivisionError" in said
    assert "in broken" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_the_module_is_the_command(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "kernellab", "run", str(tmp_path / "nothing.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a file" in done.stderr


@pytest.mark.slow
def test_meta_replaces_what_the_file_gives_by_position(kernellab: Call) -> None:
    text = Path("add.py").read_text().replace('out, n), {"BLOCK": block}', "out, n, block), {}")
    Path("by_position.py").write_text(text)
    assert kernellab("run", "by_position.py", "--meta", "BLOCK=64", "--json").json["grid"] == [16, 1, 1]


@pytest.mark.slow
def test_a_notebook_that_is_none_is_a_wrong_call(kernellab: Call) -> None:
    called = kernellab("demo", "add.py")
    assert called.status == 2
    assert "'add.py' cannot be read as a notebook" in called.err


@pytest.mark.filterwarnings("default")
def test_a_warning_is_a_line_without_code_of_the_lab(kernellab: Call) -> None:
    called = kernellab("ls", "--store", "add.py")
    assert called.status == 0
    assert called.err.startswith("warning: The kernel store add.py/kernellab.sqlite cannot be written")
    assert called.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", every(2, [40, 150]))
def test_random_words_are_told_what_is_wrong(kernellab: Call, count: int) -> None:
    def main(words: list[str]) -> tuple[int, str]:
        called = kernellab(*words)
        return called.status, called.out + called.err

    found = list(outcomes_of_commands(main, count, seed=11))
    assert not [f"{each.call}\n{each.error}" for each in found if each.kind == "raw"]
    assert sum(each.kind == "told" for each in found) > len(found) // 2
