"""Starts the processes for candidates as forks of one that has imported torch, Triton and the judge's module."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernellab.judge.confined_process import SCRATCH_VARIABLES, START
from kernellab.settings import child_environment
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
    """A process that has imported a module, and forks supervisors. A new one replaces it for another search path."""

    started_for: tuple[str, list[str]] | None = None
    requests: socket.socket | None = None
    popen: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        at_fork(self, in_child=Starter._disown)

    def request(self, module: str, scratch: str, descriptors: Sequence[int]) -> None:
        """Ask for a supervisor with these descriptors. What an import writes goes to ``scratch``.

        Raises:
            OSError: the system starts no process.
        """
        needed = (module, _search_path())
        if self.started_for == needed and self.requests is not None:
            with contextlib.suppress(OSError):  # it has ended, perhaps since it had nothing to do
                socket.send_fds(self.requests, [START], descriptors)
                return
        self.end()
        socket.send_fds(self._begin(*needed, scratch), [START], descriptors)

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
        self.started_for, self.requests = (module, path), ours
        return ours

    def end(self) -> None:
        """End the process; supervisors that it has forked see that it is gone, and end as well."""
        if self.requests is not None and self.popen is not None:
            self.requests.close()
            self.popen.kill()
            self.popen.wait()
        self._disown()

    def _disown(self) -> None:
        if self.popen is not None:
            self.popen.returncode = self.popen.returncode or 0  # only its parent can wait for it
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


def _search_path() -> list[str]:
    """The judge's ``sys.path``; the current folder and that of its program come last, so that they hide nothing."""
    here = ""
    with contextlib.suppress(OSError):  # the current folder may be deleted
        here = os.getcwd()
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    local = {here, os.path.dirname(os.path.abspath(program)) if program and here else here}
    path = [os.path.normpath(os.path.join(here, entry)) for entry in sys.path if isinstance(entry, str)]
    existing = [entry for entry in dict.fromkeys(path) if os.path.isabs(entry) and os.path.exists(entry)]
    return sorted(existing, key=lambda entry: entry in local and "-packages" not in entry)
