"""The processes of a sandbox: one that starts them, a supervisor, the first process of a namespace, the confined one.

The starter imports the module, which is the judge's own, and forks a supervisor for each candidate: an import of torch
and Triton takes seconds, a fork milliseconds. Nothing of a candidate runs in it. The supervisor enters namespaces and
ends everything below it when the judge asks for it or is gone. The first process forks; the fork has one thread,
confines itself, and runs the module's ``main``, which loads the candidate. It keeps three descriptors of the judge's,
all of no harm: its input, which is empty by then, a file for what it prints, and the result pipe.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from kernellab.judge.confinement import (
    ALL_LAYERS,
    Access,
    Bounds,
    Layer,
    adopt_orphans,
    close_to_others,
    confine,
    end_with_parent,
    enter_namespaces,
    open_to_others,
)
from kernellab.settings import child_environment, set_variables

MOST_BYTES = 64 << 20
LENGTH = struct.Struct("!Q")
START = b"S"
SCRATCH_VARIABLES = ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME")
_DESCRIPTORS = 6  # of a request: input, output, control, status, result, lifeline
_IDLE_S = 60.0
_TICK_MS = 20
_PAUSE_S = 0.001
_SYSTEM_FILES = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/nsswitch.conf"),
    *("/etc/passwd", "/etc/group", "/etc/os-release"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/version", "/sys/devices/system/cpu", "/sys/devices/system/node"),
)


@dataclass(frozen=True, slots=True)
class Setup:
    """The task of the processes: ``module`` with ``main``, the scratch folder, bounds, and the layers to apply."""

    module: str
    scratch: str
    bounds: Bounds
    layers: frozenset[Layer] = ALL_LAYERS

    def as_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps({**asdict(self), "layers": sorted(self.layers)})


def _setup_of(text: bytes) -> Setup:
    fields = json.loads(text)
    layers = frozenset(Layer(name) for name in fields["layers"])
    return Setup(fields["module"], fields["scratch"], Bounds(**fields["bounds"]), layers)


@dataclass(frozen=True, slots=True)
class _Pipes:
    """Descriptors: the judge's word to end is read from ``control``; lines of JSON go to ``status``.

    The supervisor alone keeps ``lifeline``, to which it writes its pid: the judge sees there when it has ended.
    """

    control: int
    status: int
    result: int
    lifeline: int

    def tell(self, **line: Any) -> None:
        """Write a line to the judge."""
        os.write(self.status, json.dumps(line).encode() + b"\n")


def main(path: list[str], module: str, descriptor: str) -> NoReturn:
    """Be the starter: import the module, then fork a supervisor for each request that comes over a socket.

    When the judge ends or takes another starter, or after a minute without anything to do, it ends with its children.
    """
    close_to_others()
    requests = socket.socket(fileno=int(descriptor))
    sys.path[:] = path
    failure = _failure_of_import(module)
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    last_s, is_open = time.monotonic(), True
    while True:
        has_children = _reap_children()
        if is_open and poll.poll(1e3):
            message, descriptors, _, _ = socket.recv_fds(requests, len(START), _DESCRIPTORS)
            if not message:
                is_open = False
                continue
            if os.fork() == 0:
                requests.close()
                _be_supervisor(descriptors, failure)
            for received in descriptors:
                os.close(received)
            last_s = time.monotonic()
        elif has_children:
            last_s = time.monotonic()
            if not is_open:
                time.sleep(_TICK_MS * 1e-3)
        elif not is_open:
            os._exit(0)
        elif time.monotonic() - last_s > _IDLE_S:
            requests.shutdown(socket.SHUT_RD)  # from now on the judge cannot send; what it sent before is served


def _failure_of_import(module: str) -> str:
    """Import a module; return the traceback of an error of it, or ""."""
    try:
        importlib.import_module(module)
    except BaseException:  # noqa: BLE001 - becomes an error of the judge
        return traceback.format_exc()
    return ""


def _reap_children() -> bool:
    """Take note of children that have ended; return whether some have not."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _be_supervisor(descriptors: list[int], failure: str) -> NoReturn:
    """Be the supervisor: read a line with a `Setup`, then the request; or report that an import failed."""
    os.setsid()
    request_file, output, *rest = descriptors
    for source, target in ((request_file, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(request_file)
    os.close(output)
    pipes = _Pipes(*rest)
    os.write(pipes.lifeline, str(os.getpid()).encode())
    if failure:
        print(failure, file=sys.stderr, flush=True)
        pipes.tell(failed=failure.strip().splitlines()[-1])
        os._exit(1)
    with open(0, "rb", closefd=False) as file:
        setup = _setup_of(file.readline())
        request = file.read()
    _empty_standard_input()
    os.chdir(setup.scratch)
    set_variables(dict.fromkeys(SCRATCH_VARIABLES, setup.scratch))
    tempfile.tempdir = None
    starter = os.getppid()
    adopt_orphans()
    open_to_others()  # else its user and group cannot be mapped
    if Layer.NAMESPACES in setup.layers:
        pipes.tell(isolation=enter_namespaces())
    close_to_others()
    supervisor = os.getpid()
    first = os.fork()
    if first == 0:
        _run_first_process(setup, request, pipes, supervisor)
    os.close(pipes.status)
    os.close(pipes.result)
    _supervise(first, pipes.control, starter)
    os._exit(0)


def _empty_standard_input() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _supervise(first: int, control: int, starter: int) -> None:
    """Wait until the first process ends, the judge asks for the end, or is gone; then end what is left."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while os.getppid() == starter and not poll.poll(_TICK_MS):
        if os.waitpid(first, os.WNOHANG)[0] == first:
            break
    else:
        os.kill(first, signal.SIGKILL)
    while _reap_children():
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def _descendants(root: int) -> set[int]:
    """The processes below one, by /proc; of a PID namespace below, its first process is enough."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    below: set[int] = set()
    added = {root}
    while added:
        added = {pid for pid, parent in parents.items() if parent in added} - below
        below |= added
    return below


def _run_first_process(setup: Setup, request: bytes, pipes: _Pipes, supervisor: int) -> NoReturn:
    """Fork the confined process and wait for it; all others in the namespace end with this process."""
    end_with_parent(supervisor)
    os.close(pipes.control)
    os.close(pipes.lifeline)
    this = os.getpid()
    confined = os.fork()
    if confined == 0:
        _run_confined_process(sys.modules[setup.module].main, setup, request, pipes, this)
    os.close(pipes.result)
    while True:
        pid, status = os.wait()
        if pid == confined:
            pipes.tell(status=status)
            os._exit(0)


def _run_confined_process(
    run: Callable[[bytes, Callable[[bytes], None]], None], setup: Setup, request: bytes, pipes: _Pipes, parent: int
) -> NoReturn:
    status = 1
    try:
        _close_others({0, 1, 2, pipes.status, pipes.result})
        readable = readable_paths()
        sys.dont_write_bytecode = True
        sys.path[:] = [*(entry for entry in sys.path if _is_beneath(entry, readable)), setup.scratch]
        phrases = confine(Access(readable, setup.scratch), setup.bounds, setup.layers)
        end_with_parent(parent)
        pipes.tell(isolation=phrases, ready=True)
    except BaseException as exc:  # noqa: BLE001 - as above
        traceback.print_exc()
        pipes.tell(failed=f"{type(exc).__name__}: {exc}")
        os._exit(1)
    os.close(pipes.status)
    try:
        run(request, lambda data: _send(pipes.result, data))
        status = 0
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:  # noqa: BLE001 - the candidate's, seen by its status
        with contextlib.suppress(BaseException):
            sys.stdout.flush()  # comes before the traceback
            traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 0xFF)


def _send(descriptor: int, data: bytes) -> None:
    """Write the message of this process: its length in eight bytes, then the data.

    Raises:
        ValueError: it has more than `MOST_BYTES`.
    """
    if len(data) > MOST_BYTES:
        raise ValueError(f"The message has {len(data):,} bytes; the most is {MOST_BYTES:,}.")
    rest = memoryview(LENGTH.pack(len(data)) + data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _close_others(kept: set[int]) -> None:
    ordered = sorted(kept)
    for first, second in zip(ordered, [*ordered[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(first + 1, second)


def readable_paths() -> tuple[str, ...]:
    """The files that Python, its installed packages and the system's libraries lie in, and the packages loaded here.

    Other entries of ``sys.path`` are left out: a folder there may hold the judge's own files.
    """
    installed = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    installed |= {entry for entry in sys.path if entry.endswith(("-packages", ".zip"))}
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix} - {"/"}
    installed |= {os.path.join(prefix, name) for prefix in prefixes for name in ("lib", "lib64")}
    paths = [*sorted(installed, key=len), *_SYSTEM_FILES, *child_environment().get("LD_LIBRARY_PATH", "").split(":")]
    for name, module in list(sys.modules.items()):
        if "." not in name and name != "__main__":
            own = getattr(module, "__file__", None)
            paths += list(getattr(module, "__path__", ())) or ([own] if isinstance(own, str) else [])
    readable: list[str] = []
    for path in paths:
        if os.path.isabs(path) and os.path.exists(path) and not _is_beneath(path, readable):
            readable.append(path)
    return tuple(readable)


def _is_beneath(path: str, folders: tuple[str, ...] | list[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
