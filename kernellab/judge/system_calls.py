"""The system calls that a candidate's process may not make, as a seccomp filter (man 2 seccomp).

Everything that a single process does with its own memory, threads and open files stays allowed. What starts processes,
reaches other ones, opens sockets, changes attributes of files or belongs to an administrator fails with EPERM.
"""

from __future__ import annotations

import errno
import platform
import struct

_NUMBERS = {
    # name: (x86_64, aarch64), None where an architecture lacks it
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "setpriority": (141, 140), "ioprio_set": (251, 30), "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "socket": (41, 198), "socketpair": (53, 199), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "utimensat": (280, 88), "futimesat": (261, None), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "setxattrat": (463, 463), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "removexattrat": (466, 466), "file_setattr": (469, 469),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "open_tree_attr": (467, 467), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "statmount": (457, 457), "listmount": (458, 458), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142),
    "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58),
    "personality": (135, 92), "seccomp": (317, 277), "lsm_set_self_attr": (460, 460), "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
}  # fmt: skip
_OWN_PROCESS_ONLY = {  # the first argument names a process: 0 is the caller, kill takes groups for it
    "kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261), "sched_setaffinity": (203, 122),
}  # fmt: skip
_CLONE, _CLONE3 = (56, 220), (435, 435)
_CLONE_THREAD = 0x10000

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column, AUDIT_ARCH_...
_X32_BIT = 0x40000000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENT_AT = 0, 4, 16  # in struct seccomp_data; the low half of the first argument


def _instruction(code: int, value: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return a ``struct sock_filter``; a comparison skips ``if_true`` or ``if_false`` instructions."""
    return struct.pack("=HBBI", code, if_true, if_false, value)


def filter_program(pid: int, machine: str | None = None) -> bytes | None:
    """Return the filter as an array of ``struct sock_filter``, for the process ``pid`` that sets it on itself.

    It is None where the system calls of the machine are not known: ``machine`` is that of ``platform.machine``.
    """
    architecture = _ARCHITECTURES.get(machine or platform.machine())
    if architecture is None or struct.calcsize("P") != 8:
        return None
    column, audit = architecture
    program = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_IF_EQUAL, audit, if_true=1),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _NUMBER_AT),
    ]
    if column == 0:
        program += [_instruction(_IF_AT_LEAST, _X32_BIT, if_false=1), _instruction(_RETURN, _KILL_PROCESS)]
    program += _failing(_CLONE3[column], errno.ENOSYS)  # its flags lie in memory; the C library then calls clone
    program += [
        _instruction(_IF_EQUAL, _CLONE[column], if_false=4),
        _instruction(_LOAD, _ARGUMENT_AT),
        _instruction(_IF_ANY_BIT, _CLONE_THREAD, if_false=1),
        _instruction(_RETURN, _ALLOW),
        _instruction(_RETURN, _FAIL | errno.EPERM),
    ]
    for name, numbers in _OWN_PROCESS_ONLY.items():
        program += _own_process_only(numbers[column], pid, takes_zero=name not in {"kill", "tgkill"})
    for denied in _NUMBERS.values():
        number = denied[column]
        if number is not None:
            program += _failing(number, errno.EPERM)
    return b"".join([*program, _instruction(_RETURN, _ALLOW)])


def _failing(number: int, error: int) -> list[bytes]:
    return [_instruction(_IF_EQUAL, number, if_false=1), _instruction(_RETURN, _FAIL | error)]


def _own_process_only(number: int, pid: int, *, takes_zero: bool) -> list[bytes]:
    """The check of a call that acts on the process in its first argument."""
    accepted = [pid, 0] if takes_zero else [pid]
    checks = [_instruction(_IF_EQUAL, value, if_true=len(accepted) - index) for index, value in enumerate(accepted)]
    return [
        _instruction(_IF_EQUAL, number, if_false=len(accepted) + 3),
        _instruction(_LOAD, _ARGUMENT_AT),
        *checks,
        _instruction(_RETURN, _FAIL | errno.EPERM),
        _instruction(_RETURN, _ALLOW),
    ]
