"""Starts the processes for candidates as forks of one that has imported torch, Triton and the judge's module."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernellab.judge.confined_process import SCRATCH_VARIABLES, START
from kernellab.settings import child_environment
from kernellab.workers.children import search_path
from kernellab.workers.forks_and_interrupts import at_fork, socketpair

_START = """\
import sys
own = [p for p in sys.path if p.startswith((sys.base_prefix, sys.base_exec_prefix)) and "-packages" not in p]
path = own + {path!r}
sys.path[:] = own
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("kernellab", {package!r})
sys.modules["kernellab"] = package = module_from_spec(spec)
spec.loader.exec_module(package)
from kernellab.judge.confined_process import main
main(path, *sys.argv[1:])
"""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Starter:
    """A process that has imported a module, and forks supervisors. A new one replaces it for another search path.

    One that was replaced lives on while supervisors of it run: ``running`` counts those of each.
    """

    started_for: tuple[str, list[str]] | None = None
    requests: socket.socket | None = None
    popen: subprocess.Popen[bytes] | None = None
    running: dict[subprocess.Popen[bytes], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        at_fork(self, in_child=Starter._disown)

    def request(self, module: str, scratch: str, descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
        """Ask for a supervisor with these descriptors; return the process that forks it, for `release`.

        What an import writes goes to ``scratch``.

        Raises:
            OSError: the system starts no process.
        """
        _, path = search_path()
        needed = module, [entry for entry in dict.fromkeys(path) if os.path.exists(entry)]
        is_sent = False
        if self.started_for == needed and self.requests is not None:
            with contextlib.suppress(OSError):  # it has ended, perhaps since it had nothing to do
                socket.send_fds(self.requests, [START], descriptors)
                is_sent = True
        if not is_sent:
            self.replace()
            socket.send_fds(self._begin(*needed, scratch), [START], descriptors)
        assert self.popen is not None
        self.running[self.popen] = self.running.get(self.popen, 0) + 1
        return self.popen

    def release(self, popen: subprocess.Popen[bytes]) -> None:
        """Take note that a supervisor has ended; the last one of a replaced process ends that as well."""
        if popen in self.running:
            self.running[popen] -= 1
            self._end_idle()

    def replace(self) -> None:
        """Have the next request begin a new process."""
        if self.requests is not None:
            self.requests.close()
        self.started_for = self.requests = self.popen = None
        self._end_idle()

    def _end_idle(self) -> None:
        for popen in [popen for popen, count in self.running.items() if count <= 0 and popen is not self.popen]:
            popen.kill()
            popen.wait()
            del self.running[popen]

    def _begin(self, module: str, path: list[str], scratch: str) -> socket.socket:
        package = str(Path(__file__).parents[1] / "__init__.py")
        ours, theirs = socketpair()
        with theirs:
            self.popen = subprocess.Popen(
                [sys.executable, "-P", "-c", _START.format(path=path, package=package), module, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                env=_child_variables(scratch),
                start_new_session=True,
            )
        self.running[self.popen] = 0
        self.started_for, self.requests = (module, path), ours
        return ours

    def _disown(self) -> None:
        for popen in self.running:
            popen.returncode = popen.returncode or 0  # only its parent can wait for it
        self.running.clear()
        self.started_for = self.requests = self.popen = None


def _child_variables(scratch: str) -> dict[str, str]:
    """The variables of the process: none of the user's, but where libraries lie; no GPU is visible."""
    own = child_environment()
    libraries = {name: own[name] for name in ("LD_LIBRARY_PATH", "PYTHONHOME") if name in own}
    return {
        **libraries,
        **dict.fromkeys(SCRATCH_VARIABLES, scratch),
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), ""),
        **dict.fromkeys(("USER", "LOGNAME"), "candidate"),
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
    }
