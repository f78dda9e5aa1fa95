"""How a session ends: with its own status, and with nothing left of the processes that it started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tables import every

ROOT = Path(__file__).parents[2]
SESSION = "import os, sys, torch, kernellab\nfrom tests import samples\n"
LAB = f"{SESSION}lab = kernellab.Lab('cuda:90', store=':memory:')\nx = torch.ones(64)\n"
LAUNCH = "lab.run(samples.add_kernel, (1,), x, x, x, 64, BLOCK=64)\n"
EXTENSION = """\
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().run_line_magic("load_ext", "kernellab")
"""
# The first process of a container that is no init: what loses its parent becomes its child, and it waits for none.
NO_INIT = """\
import ctypes, os, subprocess, sys
from pathlib import Path
ctypes.CDLL(None).prctl(36, 1)
done = subprocess.run([sys.executable, "-c", sys.argv[1]])
states = (path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat"))
print("left", sum(int(parent) == os.getpid() for _, parent, *_ in states))
sys.exit(done.returncode)
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter of its own, which ends as those of users do."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("session", "status"),
    every(
        2,
        [
            (LAB + LAUNCH, 0),
            (f"{LAB}lab.start(wait=True)\n{LAUNCH}raise ValueError\n", 1),
            (f"{LAB}{LAUNCH}del lab, x\nimport gc; gc.collect()\n", 0),
            (f"{LAB}{LAUNCH}lab.close()\nsys.exit(4)\n", 4),
            (f"{SESSION}{EXTENSION}sys.exit(3)\n", 3),
        ],
    ),
    ids=["open", "raised", "dropped", "closed", "extension"],
)
def test_a_session_leaves_no_process_to_whoever_inherits_it(session: str, status: int) -> None:
    done = run(NO_INIT, session)
    assert done.returncode == status, done.stderr
    assert "left 0\n" in done.stdout


@pytest.mark.slow
def test_what_a_killed_worker_had_started_is_waited_for() -> None:
    session = (
        "import os, threading\nfrom kernellab.workers.worker import Job, Pool, WorkerKind\n"
        "from tests.workers import test_children, test_worker\n"
        "pool, ends = Pool(test_worker.KIND, 1), os.pipe()\n"
        "path = f'/proc/{os.getpid()}/fd/{ends[1]}'\n"
        "job = Job(test_children.start_another, path, 'the job')\n"
        "threading.Thread(target=lambda: pool.run(job, 600), daemon=True).start()\n"
        "assert os.read(ends[0], 1) == b'.'\n"
    )
    done = run(NO_INIT, session)
    assert (done.returncode, done.stdout) == (0, "left 0\n"), done.stderr


def start_another(path: str, progress: object) -> None:
    """Start a process that lives long, and tell through a pipe that it has begun."""
    subprocess.run(["sh", "-c", f"printf . > {path}; exec sleep 600"], check=False)


def test_the_end_of_a_session_awaits_the_step_under_way_and_no_other() -> None:
    program = (
        "import threading\nfrom kernellab.workers.forks_and_interrupts import in_background\n"
        "begun = threading.Event()\n"
        "def first():\n    begun.set()\n    threading.main_thread().join()\n    print('first')\n"
        "in_background(first, lambda: print('second'))\nbegun.wait()\nraise SystemExit(3)\n"
    )
    done = run(program)
    assert (done.returncode, done.stdout) == (3, "first\n"), done.stderr


@pytest.mark.slow
def test_the_end_of_a_session_ends_what_waits_for_a_worker_in_the_background() -> None:
    program = (
        "import threading\nfrom kernellab.errors import WorkerDied\n"
        "from kernellab.workers.forks_and_interrupts import in_background\n"
        "from kernellab.workers.worker import Worker\nfrom tests.workers import test_worker\n"
        "worker, begun = Worker(test_worker.KIND), threading.Event()\n"
        "def step():\n"
        "    worker.run(test_worker.job(test_worker.echo, 1), 60)\n    begun.set()\n"
        "    try:\n        worker.run(test_worker.job(test_worker.sleep, 600.0), 600)\n"
        "    except WorkerDied as exc:\n        print(exc)\n"
        "in_background(step)\nbegun.wait()\n"
    )
    done = run(program)
    assert (done.returncode, done.stdout) == (0, "the job ended with the session.\n"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("end", "status"), [("sys.exit(3)", 3), ("raise ValueError", 1), ("os._exit(5)", 5)])
def test_a_session_that_ends_at_once_has_its_own_status(end: str, status: int) -> None:
    done = run(f"import os, sys\n{EXTENSION}{end}\n")
    assert done.returncode == status, done.stderr
    assert "terminate" not in done.stderr
