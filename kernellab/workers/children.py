"""Child processes with their own interpreter, started here and waited for at the latest at exit.

An orphan that has ended stays as a zombie if nothing reaps it, as in a container whose first process is not init. So
every process waits for its children: this one for its workers and fork servers, a server for its forks and their
children (`kernellab.workers.main`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from kernellab.errors import WorkerDied
from kernellab.settings import child_environment
from kernellab.workers.forks_and_interrupts import at_fork, lock, run_uninterrupted

_END_S = 5.0
_LEAVE_S = 2.0
_STARTING = lock(crossing=True)  # a fork amid that would keep the pipe open that tells `Popen` of its success
_START = """\
import sys
own = [p for p in sys.path if p.startswith((sys.base_prefix, sys.base_exec_prefix)) and "-packages" not in p]
sys.path[:] = own + {safe!r}
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("kernellab", {package!r})
sys.modules["kernellab"] = package = module_from_spec(spec)
spec.loader.exec_module(package)
from kernellab.workers.main import main
main(sys.argv[1:], own + {path!r})
"""


@dataclass(slots=True, weakref_slot=True, eq=False)
class SpawnedProcess:
    """A process with its own interpreter. ``pidfd`` stays valid even if other code has waited for the process.

    ``control`` is the socket to a fork server that serves: once it is shut, the server ends its forks, then itself.
    It is not kept alive, so that a server ends with the last object that could ask it.
    """

    popen: subprocess.Popen[bytes]
    pidfd: int | None
    control: weakref.ref[socket.socket] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        at_fork(self, in_child=SpawnedProcess._disown)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.popen.pid

    def exit_code(self, timeout_s: float) -> int | None:
        """Return the exit status, or minus the signal that ended it; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.popen.wait(timeout_s)
        return None

    def leave(self) -> int:
        """End the process, a server after its forks, and return its exit status."""
        if self.control is not None:
            control = self.control()
            with contextlib.suppress(OSError):
                if control is not None:
                    control.shutdown(socket.SHUT_RDWR)
            self.exit_code(_LEAVE_S)
        return self.end()

    def end(self) -> int:
        """Kill the process and what it has started in its group, such as an assembler; return its exit status."""
        with self._lock:
            if self.pidfd is None:
                self.popen.kill()
            else:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)  # while nobody has waited for it,
                    os.killpg(self.pid, signal.SIGKILL)  # its number is still its own
                os.close(self.pidfd)
                self.pidfd = None
        code = self.exit_code(_END_S)
        return -signal.SIGKILL if code is None else code

    def _disown(self) -> None:
        self.popen.returncode = 0  # only its parent can wait for it
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


def spawn_process(
    mode: str, modules: Sequence[str], environment: Mapping[str, str], inherited: socket.socket, log: IO[bytes]
) -> SpawnedProcess:
    """Start ``kernellab.workers.main`` in a new process that inherits a socket and prints into ``log``.

    Raises:
        WorkerDied: the session is ending.
    """
    variables = child_environment(**environment)
    variables.pop("PYTHONPATH", None)  # it would come before the standard library; `sys.path` has it, too
    arguments = mode, str(inherited.fileno()), str(os.getpid()), *modules
    with _STARTING:
        _CHILDREN.reap()
        popen = subprocess.Popen(
            [sys.executable, "-P", "-c", _start_code(), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[inherited.fileno()],
            env=variables,
            start_new_session=True,
        )
        pidfd = None
        with contextlib.suppress(AttributeError, OSError):  # an old kernel, or somebody else has waited for it
            pidfd = os.pidfd_open(popen.pid)
        child = SpawnedProcess(popen, pidfd)
        _CHILDREN.running.add(child)
        return child


class _Children:
    """The started processes that were not waited for yet, also unreferenced ones."""

    def __init__(self) -> None:
        self.running: set[SpawnedProcess] = set()
        self._is_over = False
        at_fork(self, in_child=lambda children: children.running.clear())
        atexit.register(lambda: run_uninterrupted(self._end_all))

    def reap(self) -> None:
        """Wait for the ended processes, before another one starts.

        Raises:
            WorkerDied: none starts any more.
        """
        if self._is_over:
            raise WorkerDied("No worker starts any more: the session is ending.")
        for child in [child for child in self.running if child.exit_code(0) is not None]:
            child.end()
            self.running.discard(child)

    def _end_all(self) -> None:
        with _STARTING:
            self._is_over = True
        for child in self.running:
            child.leave()


_CHILDREN = _Children()


def search_path() -> tuple[list[str], list[str]]:
    """Return the absolute entries of ``sys.path``, and the same in an order in which stray local files hide no module.

    There, the current folder and that of the user's program come last.
    """
    here = ""
    with contextlib.suppress(OSError):  # the current folder may be deleted
        here = os.getcwd()
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    local = {here, os.path.dirname(os.path.join(here, program)) if program else here}
    path = [os.path.normpath(os.path.join(here, entry)) for entry in sys.path if isinstance(entry, str)]
    path = [entry for entry in path if os.path.isabs(entry)]
    return path, sorted(path, key=lambda entry: entry in local and "-packages" not in entry)


def _start_code() -> str:
    """Return the start code of a worker; until its start is over, stray local files hide no module.

    ``kernellab`` is this process's own. See `kernellab.workers.main.settle`.
    """
    path, safe = search_path()
    return _START.format(safe=safe, path=path, package=str(Path(__file__).parents[1] / "__init__.py"))
