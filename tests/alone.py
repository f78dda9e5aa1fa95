"""Programs in processes of their own that start at once: each is a fork of a process that has imported what it needs.

Such a process knows nothing of the tests, and nothing of the lab unless it is asked to import it.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

_TIMEOUT_S = 300
_LIBRARIES = ("torch", "torch._dynamo", "torch.testing._internal.optests", "triton", "triton.language")
_LAB = ("torch", "kernellab.lab")
_SERVER = """\
import atexit, gc, importlib, json, os, sys, threading, traceback

for name in sys.argv[1:]:
    importlib.import_module(name)
gc.freeze()


def next_program():
    for line in sys.stdin:
        child = os.fork()
        if not child:
            return json.loads(line)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)


def run(program):
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


given = next_program()
flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
for number, file in enumerate((os.devnull, given["stdout"], given["stderr"])):
    opened = os.open(file, flags if number else os.O_RDONLY)
    os.dup2(opened, number)
    os.close(opened)
os.chdir(given["folder"])
sys.path.insert(0, "")
os.environ.clear()
os.environ.update(given["environment"])
sys.argv = ["-c", *given["arguments"]]
code = run(given["program"])
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # without taking down what was imported, module by module
"""


def run_alone(program: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the text of a program in a folder, without the lab; Triton's own interpreter runs the kernels."""
    return _run(_LIBRARIES, program, arguments, folder, interpret=True)


def run_with_lab(program: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the text of a program as in a new session of the lab: its process has imported the lab, and made none."""
    return _run(_LAB, program, arguments, folder, interpret=False)


def _run(
    modules: tuple[str, ...], program: str, arguments: tuple[str, ...], folder: Path, *, interpret: bool
) -> subprocess.CompletedProcess[str]:
    variables = _variables(modules, interpret)
    with tempfile.TemporaryDirectory() as own:
        printed = {stream: Path(own, stream) for stream in ("stdout", "stderr")}
        given = {
            **{stream: str(path) for stream, path in printed.items()},
            "program": program,
            "arguments": arguments,
            "folder": str(folder),
            "environment": variables,
        }
        code = _ask(_server(modules, interpret), json.dumps(given))
        texts = {stream: path.read_text(encoding="utf-8") for stream, path in printed.items()}
    return subprocess.CompletedProcess(["-c", *arguments], code, texts["stdout"], texts["stderr"])


def _variables(modules: tuple[str, ...], interpret: bool) -> dict[str, str]:
    dropped = {"TRITON_INTERPRET"} if modules == _LAB else {"TRITON_INTERPRET", "PYTHONPATH"}  # the lab may lie there
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "TRITON_INTERPRET": "1"} if interpret else kept


def _ask(server: subprocess.Popen[str], line: str) -> int:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(line + "\n")
    server.stdin.flush()
    if not select.select([server.stdout], [], [], _TIMEOUT_S)[0]:
        _server.cache_clear()
        raise TimeoutError(f"The program did not end within {_TIMEOUT_S} s.")
    return int(server.stdout.readline())


@cache
def _server(modules: tuple[str, ...], interpret: bool) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-P", "-c", _SERVER, *modules],
        env=_variables(modules, interpret),
        cwd=tempfile.gettempdir(),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[str]) -> None:
    os.killpg(server.pid, 9)
    server.communicate()
