"""Layers of Linux that keep a process apart; each needs no daemon, and is left out where it is missing.

Namespaces (man 7 namespaces) are entered by a parent; a process then confines itself by Landlock
(https://docs.kernel.org/userspace-api/landlock.html), a filter of system calls, resource limits, and the loss of all
capabilities. Nothing here can be undone by the process, nor by what it starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kernellab.judge.system_calls import filter_program

_LIBRARY = ctypes.CDLL(None, use_errno=True)


class Layer(StrEnum):
    """The layers; a test takes single ones away."""

    NAMESPACES = "namespaces"
    CAPABILITIES = "capabilities"
    LANDLOCK = "landlock"
    USER = "user"
    SYSTEM_CALLS = "system calls"
    LIMITS = "limits"


ALL_LAYERS = frozenset(Layer)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The resources of a process: address space beyond what it has, CPU time, size of a file, open files."""

    memory_bytes: int
    cpu_s: int
    file_bytes: int
    open_files: int = 128


@dataclass(frozen=True, slots=True)
class Access:
    """The files of a process: what it may read, with all that lies in it, and the one folder that it may change."""

    readable: tuple[str, ...]
    scratch: str


# ---- processes -----------------------------------------------------------------------------------------------------

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 36, 38, 22, 2
_SIGKILL = 9


def _prctl(option: int, first: int = 0, second: int = 0) -> int:
    """Call prctl with all of its arguments; raises OSError where it fails."""
    arguments = (ctypes.c_ulong(argument) for argument in (first, second, 0, 0))
    return _require_success(_LIBRARY.prctl(ctypes.c_int(option), *arguments))


def _require_success(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def end_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends; it exits at once if ``parent`` has ended already."""
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() not in {parent, 0}:  # 0: the parent is outside of the PID namespace
        os._exit(1)


def adopt_orphans() -> None:
    """Make this process the parent of descendants that lose theirs."""
    with contextlib.suppress(OSError):
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def close_to_others() -> None:
    """Close this process's memory to others of its user, and to its children."""
    _prctl(_PR_SET_DUMPABLE, 0)


def open_to_others() -> None:
    """Undo `close_to_others`, which a fork inherits."""
    _prctl(_PR_SET_DUMPABLE, 1)


# ---- namespaces ----------------------------------------------------------------------------------------------------

_NEW_USER, _NEW_PID, _NEW_NET, _NEW_IPC = 0x10000000, 0x20000000, 0x40000000, 0x08000000
NO_NETWORK = "no network"
OWN_PROCESSES = "no process of others visible, none left behind"


def enter_namespaces() -> tuple[str, ...]:
    """Give the coming children of this process, which has one thread, a PID namespace, and itself one without network.

    Root does it as such, another user in a user namespace of its own. Returns phrases of what holds.
    """
    user, group = os.geteuid(), os.getegid()
    for flags in (_NEW_PID | _NEW_NET | _NEW_IPC, _NEW_USER | _NEW_PID | _NEW_NET | _NEW_IPC):
        if _LIBRARY.unshare(flags) == 0:
            if flags & _NEW_USER:
                _map_own_user(user, group)
            return NO_NETWORK, OWN_PROCESSES
    return ()


def _map_own_user(user: int, group: int) -> None:
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with contextlib.suppress(OSError), open(f"/proc/self/{file}", "w", encoding="ascii") as opened:
            opened.write(text)


# ---- capabilities and user ---------------------------------------------------------------------------------------

_CAPABILITIES_VERSION = 0x20080522
_READ_ANY_FILE = 2  # CAP_DAC_READ_SEARCH
_LAST_CAPABILITY = 63


def drop_capabilities(readable: Sequence[str]) -> tuple[str, ...]:
    """Give up all capabilities, for good.

    Reading files of others is kept where ``readable`` cannot be read without, as when root judges in the folder of
    another user; Landlock bounds what is read.
    """
    kept = 0
    for number in range(_LAST_CAPABILITY + 1):
        with contextlib.suppress(OSError):  # beyond the last one, or no privilege to drop it
            _prctl(_PR_CAPBSET_DROP, number)
    if os.geteuid() == 0:
        before = {path for path in readable if _can_read(path)}
        _set_capabilities(effective=0, permitted=1 << _READ_ANY_FILE)
        if not all(_can_read(path) for path in before):
            kept = 1 << _READ_ANY_FILE
    _set_capabilities(effective=kept, permitted=kept)
    return ("no privileges but to read files",) if kept else ("no privileges",)


def _set_capabilities(*, effective: int, permitted: int) -> None:
    header = struct.pack("=Ii", _CAPABILITIES_VERSION, 0)
    low, high = 0xFFFFFFFF, 32
    data = struct.pack("=6I", effective & low, permitted & low, 0, effective >> high, permitted >> high, 0)
    _require_success(_LIBRARY.capset(ctypes.c_char_p(header), ctypes.c_char_p(data)))


def _can_read(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def become_nobody(access: Access) -> tuple[str, ...]:
    """Change root to a user that owns nothing but the scratch folder, where it still reads what it may read.

    This is for systems without Landlock: only the rights of files then keep the judge's own apart.
    """
    user = 0x40000000 | os.getpid() << 8 | os.urandom(1)[0]
    if os.geteuid() != 0:
        return ()
    needed = [path for path in access.readable if _can_read(path)]
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            _change_user(user)
            os._exit(0 if all(_can_read(path) for path in needed) else 1)
        os._exit(1)
    if os.waitpid(child, 0)[1] != 0:
        return ()
    for folder, _, files in os.walk(access.scratch):
        for path in (folder, *(os.path.join(folder, file) for file in files)):
            os.chown(path, user, user, follow_symlinks=False)
    _change_user(user)
    return ("a user of its own",)


def _change_user(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


# ---- files, by Landlock ------------------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # of every architecture
_VERSION_FLAG, _BENEATH = 1, 1
_EXECUTE, _WRITE, _READ, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE, _MAKE_DIR, _MAKE_FILE, _MAKE_LINK = 0b11 << 4, 1 << 7, 1 << 8, 1 << 12
_REFER, _TRUNCATE, _DEVICE_IOCTL = 1 << 13, 1 << 14, 1 << 15
_FOR_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICE_IOCTL
_FILES_BY_VERSION = ((5, (1 << 16) - 1), (3, (1 << 15) - 1), (2, (1 << 14) - 1), (1, (1 << 13) - 1))
_TCP, _ABSTRACT_SOCKETS_AND_SIGNALS = 0b11, 0b11
_FILE_WRITES = _WRITE | _TRUNCATE
_SCRATCH = _READ | _READ_DIR | _WRITE | _TRUNCATE | _REMOVE | _MAKE_DIR | _MAKE_FILE | _MAKE_LINK | _REFER
FILES_UNREADABLE = "files of the judge unreadable"


def landlock_version() -> int:
    """The version of Landlock's interface, 0 where the system has none."""
    return max(0, int(_LIBRARY.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG))))


def restrict_files(access: Access) -> tuple[str, ...]:
    """Leave this process's only thread the files of ``access``; a path that does not exist is left out.

    Version 4 of the interface takes TCP away, too, and version 6 signals and abstract sockets to others.
    """
    version = landlock_version()
    if version == 0:
        return ()
    handled = next(rights for least, rights in _FILES_BY_VERSION if version >= least)
    fields = [handled]
    fields += [_TCP] * (version >= 4) + [_ABSTRACT_SOCKETS_AND_SIGNALS] * (version >= 6)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _require_success(
        _LIBRARY.syscall(_CREATE_RULESET, ctypes.c_char_p(attributes), ctypes.c_size_t(len(attributes)), 0)
    )
    try:
        for path in access.readable:
            _allow(ruleset, path, (_READ | _READ_DIR) & handled)
        _allow(ruleset, access.scratch, _SCRATCH & handled)
        for device in ("/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"):
            _allow(ruleset, device, _READ)
        _allow(ruleset, "/dev/null", (_READ | _FILE_WRITES) & handled)
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _require_success(_LIBRARY.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), 0))
    finally:
        os.close(ruleset)
    phrases = [FILES_UNREADABLE, "writes in its own folder only"]
    phrases += ["no TCP"] * (version >= 4) + ["no signals to others"] * (version >= 6)
    return tuple(phrases)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _FOR_FILES
        rule = struct.pack("=Qi", rights, descriptor)
        _require_success(_LIBRARY.syscall(_ADD_RULE, ctypes.c_int(ruleset), _BENEATH, ctypes.c_char_p(rule), 0))
    finally:
        os.close(descriptor)


# ---- system calls and limits --------------------------------------------------------------------------------------


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def filter_system_calls() -> tuple[str, ...]:
    """Take away the calls of `kernellab.judge.system_calls` from this process's only thread."""
    text = filter_program(os.getpid())
    if text is None:
        return ()
    program = _FilterProgram(len(text) // 8, text)
    try:
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))
    except OSError:
        return ()
    return ("no new processes", "no sockets", "no access to other processes")


def limit_resources(bounds: Bounds) -> tuple[str, ...]:
    """Bound memory, CPU time, the size of files and their number; no core dumps."""
    with open("/proc/self/statm", encoding="ascii") as file:
        mapped_bytes = int(file.read().split()[0]) * resource.getpagesize()
    limits = {
        resource.RLIMIT_AS: mapped_bytes + bounds.memory_bytes,
        resource.RLIMIT_CPU: bounds.cpu_s,
        resource.RLIMIT_FSIZE: bounds.file_bytes,
        resource.RLIMIT_NOFILE: bounds.open_files,
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in limits.items():
        hard = resource.getrlimit(kind)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)  # noqa: PLW2901
        resource.setrlimit(kind, (limit, limit))
    return ("memory, time and files bounded",)


def confine(access: Access, bounds: Bounds, layers: frozenset[Layer] = ALL_LAYERS) -> tuple[str, ...]:
    """Confine this process, which has one thread, for good; return phrases of what holds.

    Raises:
        OSError: a layer that the system has failed.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    phrases: tuple[str, ...] = ()
    if Layer.LIMITS in layers:
        phrases += limit_resources(bounds)  # reads /proc
    if Layer.LANDLOCK in layers:
        phrases += restrict_files(access)
    if Layer.USER in layers and FILES_UNREADABLE not in phrases:
        phrases += become_nobody(access)
    if Layer.CAPABILITIES in layers:
        phrases += drop_capabilities(access.readable)
    if Layer.SYSTEM_CALLS in layers:
        phrases += filter_system_calls()
    return phrases
