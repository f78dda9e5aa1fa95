"""The main program of a worker process, started with ``worker FD PARENT MODULE...``.

It takes jobs from the inherited socket FD, one at a time, and answers each with a result or a failure. It ends with
the process that started it. Called with ``forkserver`` instead of ``worker``, it imports the modules and forks a
worker for each request on FD; the first message to the fork says which kind of worker it becomes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import NoReturn

from kernellab.settings import set_variables
from kernellab.workers.process import FORK, READY, Channel, ChannelClosedError, pack_message
from kernellab.workers.worker import WorkerCall, WorkerKind, failure_of

_PARENT_POLL_S = 1.0
_LAST_WAIT_S, _LAST_POLL_S = 1.0, 0.002
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PINNED_LIBRARIES = ("triton", "torch", "numpy")


def serve(channel: Channel) -> None:
    """Answer jobs until the other end is closed."""
    with contextlib.suppress(ChannelClosedError):
        while True:
            call: WorkerCall = channel.receive()
            _send(channel, _answer(call, channel))


def _send(channel: Channel, answer: tuple[str, object]) -> None:
    try:
        message = pack_message(answer)
    except (pickle.PicklingError, AttributeError, TypeError) as exc:
        message = pack_message(("failure", failure_of(exc, detail=traceback.format_exc())))
    channel.send(message)


def _answer(call: WorkerCall, channel: Channel) -> tuple[str, object]:
    try:
        handler = getattr(importlib.import_module(call.module), call.function)
        return "result", handler(call.payload, lambda value: channel.send(pack_message(("progress", value))))
    except Exception as exc:  # noqa: BLE001 - the one place where any failure becomes data
        return "failure", failure_of(exc, detail=traceback.format_exc())


class ServerLoop:
    """Forks a worker for each request, with a lifeline that reports its exit status.

    A worker whose lifeline is shut at the other end is killed. Only processes forked here and not waited for yet are
    signalled, with their process groups: nothing else waits for them, and there is one thread.
    """

    def __init__(self, control: socket.socket, parent: int) -> None:
        self._control = control
        self._parent = parent
        self._lifelines: dict[int, Channel] = {}
        self._killed: set[int] = set()
        self._woken, self._waker = socket.socketpair()

    def run(self) -> None:
        """Serve until the other end is closed or the parent process is gone; then end all workers."""
        for wakeable in (self._woken, self._waker):
            wakeable.setblocking(False)
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what a worker leaves behind is waited for here
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        gc.freeze()  # else a collection in a fork would write to every page that it shares with this process
        self._control.sendall(READY)
        while os.getppid() == self._parent and self._step():
            pass
        for pid in self._lifelines:
            _kill(pid)
        _await_all()

    def _step(self) -> bool:
        held = {line.socket.fileno(): pid for pid, line in self._lifelines.items() if pid not in self._killed}
        poll = select.poll()
        for descriptor in (self._control.fileno(), self._woken.fileno(), *held):
            poll.register(descriptor, select.POLLIN)
        awake = [descriptor for descriptor, _ in poll.poll(1e3 * _PARENT_POLL_S)]
        for descriptor in awake:
            if descriptor in held:
                self._killed.add(held[descriptor])
                _kill(held[descriptor])
        if self._woken.fileno() in awake:
            self._woken.recv(4096)
        self._reap()
        return self._control.fileno() not in awake or self._take_request()

    def _take_request(self) -> bool:
        request, descriptors, _, _ = socket.recv_fds(self._control, 1, 3)
        if request == FORK and len(descriptors) == 3:
            self._fork(*descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return bool(request)

    def _fork(self, connection: int, log: int, lifeline: int) -> None:
        held, server = Channel(socket.socket(fileno=os.dup(lifeline))), os.getpid()
        try:
            pid = os.fork()
        except OSError as exc:
            _send_number(held, -(exc.errno or 0))
            held.close()
            return
        if pid == 0:
            held.close()
            os.close(lifeline)
            self._become_worker(connection, log, server)
        _lead_a_group(pid)
        self._lifelines[pid] = held
        _send_number(held, pid)

    def _become_worker(self, connection: int, log: int, server: int) -> NoReturn:
        _lead_a_group(0)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _end_with(server)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for inherited in (self._control, self._woken, self._waker):
            inherited.close()
        for lifeline in self._lifelines.values():
            lifeline.close()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        try:
            channel = Channel(socket.socket(fileno=connection))
            with contextlib.suppress(ChannelClosedError):
                kind: WorkerKind = channel.receive()
                set_variables(kind.environment)
                _preload(kind.preload)
                serve(channel)
        except Exception:  # noqa: BLE001 - a fork must not go on in the server's loop
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_pid in self._lifelines:
                    _kill(ended.si_pid)  # what it had started goes on without it
                _, status = os.waitpid(ended.si_pid, 0)
                self._killed.discard(ended.si_pid)
                lifeline = self._lifelines.pop(ended.si_pid, None)
                if lifeline is not None:
                    _send_number(lifeline, os.waitstatus_to_exitcode(status))
                    lifeline.close()


def _preload(entries: Iterable[str]) -> None:
    """Import modules; of ``module:function:argument...``, call the function as well."""
    for entry in entries:
        module, *call = entry.split(":")
        imported = importlib.import_module(module)
        if call:
            getattr(imported, call[0])(*call[1:])


def _lead_a_group(pid: int) -> None:
    """Put a worker and its children (such as the assembler) into a process group of their own."""
    with contextlib.suppress(OSError):  # server and worker both do it, so that it is done when either goes on
        os.setpgid(pid, 0)


def _kill(pid: int) -> None:
    """Kill a worker that was not waited for yet, so that its pid is still its own, with its process group."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _await_all() -> None:
    """Wait for all ended children, and briefly for the killed ones: an orphan may stay as a zombie."""
    end_s = time.monotonic() + _LAST_WAIT_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end_s:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(_LAST_POLL_S)


def _send_number(lifeline: Channel, number: int) -> None:
    with contextlib.suppress(ChannelClosedError):  # the other end is gone
        lifeline.send(pack_message(number))


def _end_with(parent: int) -> None:

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_S)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


class _InstalledFinder(importlib.abc.MetaPathFinder):
    """Finds modules at the specs found at its creation."""

    def __init__(self, names: Sequence[str]) -> None:
        self._specs = {name: importlib.util.find_spec(name) for name in names}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return self._specs.get(name)


def settle(path: Sequence[str]) -> None:
    """Use the parent's search path from now on: jobs may name the user's modules, such as hooks.

    Libraries that workers import later are pinned to their installed location, whatever lies in the user's folder.
    """
    sys.meta_path.insert(0, _InstalledFinder(_PINNED_LIBRARIES))
    sys.path[:] = path


def main(arguments: Sequence[str], path: Sequence[str]) -> None:
    """Run as a worker or a fork server; ``path`` is the search path of the parent."""
    mode, descriptor, parent, *modules = arguments
    if mode == "worker":
        _end_with(int(parent))
    _preload(modules)
    settle(path)
    connected = socket.socket(fileno=int(descriptor))
    if mode == "worker":
        serve(Channel(connected))
    else:
        ServerLoop(connected, int(parent)).run()
