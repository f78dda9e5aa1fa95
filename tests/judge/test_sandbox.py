"""The process in which a candidate's Python runs: how it ends, and what it cannot reach."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernellab.errors import JudgeFailed
from kernellab.judge import sandbox
from kernellab.judge.confinement import ALL_LAYERS, Layer, landlock_version
from kernellab.judge.sandbox import MOST_BYTES, Limits, SandboxResult, run_confined
from kernellab.judge.system_calls import filter_program

MODULE = "tests.judge.sandbox_programs"
# Kinds of systems: all layers; what files and processes rest on where one is missing.
NEITHER_FILTER = ALL_LAYERS - {Layer.SYSTEM_CALLS}
NO_NAMESPACES = NEITHER_FILTER - {Layer.NAMESPACES}

needs_landlock = pytest.mark.skipif(landlock_version() == 0, reason="this system has no Landlock")
needs_filter = pytest.mark.skipif(filter_program(1) is None, reason="system calls are not filtered on this machine")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes its user")

ATTEMPT = """
def attempt(call):
    try:
        call()
        return "done"
    except OSError as exc:
        return type(exc).__name__
"""

WRITE = """
import os, struct
for descriptor in range(3, 256):
    try:
        os.write(descriptor, {data})
    except OSError:
        pass
"""
OPEN_FILES = """
import os
for descriptor in range(100):
    try:
        print(descriptor, os.fstat(descriptor).st_ino)
    except OSError:
        pass
"""


def ran(program: str, *, layers: frozenset[Layer] = ALL_LAYERS, timeout_s: float = 20.0, **more: int) -> SandboxResult:
    return run_confined(MODULE, program.encode(), [], Limits(timeout_s, **more), layers)


def attempted(call: str, *, layers: frozenset[Layer] = ALL_LAYERS, before: str = "") -> str:
    """The error of a call in the process, or "done"."""
    result = ran(f"import os, ctypes, socket\n{ATTEMPT}\n{before}\nanswer(attempt(lambda: {call}))", layers=layers)
    assert result.data is not None, result
    return result.data.decode()


# ---- how it ends ---------------------------------------------------------------------------------------------------


def test_a_message_comes_back_with_the_layers_in_effect() -> None:
    result = run_confined(MODULE, b"answer('whole')", [], Limits())
    assert (result.data, result.problem) == (b"whole", "")
    assert len(set(result.isolation)) == len(result.isolation) >= 1


def test_files_lie_in_the_working_directory_and_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "candidate_file.py").write_text("value = 7\n")
    program = b"import candidate_file; answer((candidate_file.value, open('candidate_file.py').read()))"
    result = run_confined(MODULE, program, [tmp_path / "candidate_file.py"], Limits())
    assert result.data == b"(7, 'value = 7\\n')"


def test_what_follows_the_first_message_is_not_read() -> None:
    assert ran("send(b'first'); send(b'second')").data == b"first"


def test_a_message_larger_than_a_pipe_comes_whole() -> None:
    assert ran("send(bytes(range(256)) * 40000)").data == bytes(range(256)) * 40000


def test_a_message_with_a_length_beyond_the_limit_is_not_read() -> None:
    result = ran(WRITE.format(data="struct.pack('!Q', 1 << 60)") + "\nimport time; time.sleep(60)")
    assert (result.data, result.problem) == (None, f"It handed over more than {MOST_BYTES >> 20} MiB.")


def test_a_message_that_is_not_whole_is_none() -> None:
    result = ran(WRITE.format(data="struct.pack('!Q', 9) + b'part'"))
    assert result.data is None
    assert result.problem == "It ended with exit status 0 without handing over a program."


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("import os; os._exit(0)", "It ended with exit status 0 without handing over a program."),
        ("raise SystemExit(0)", "It ended with exit status 0 without handing over a program."),
        ("raise SystemExit(3)", "It ended with exit status 3 without handing over a program."),
        ("raise ValueError('none')", "It ended with exit status 1 without handing over a program."),
        ("import ctypes; ctypes.string_at(0)", "It was ended by SIGSEGV."),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "It was ended by SIGKILL."),
        ("x = bytearray(7 << 30)", "It used more than 6 GiB of memory."),
    ],
)
def test_an_end_without_a_message_is_named(program: str, problem: str) -> None:
    result = ran(program)
    assert (result.data, result.problem) == (None, problem)


def test_the_end_of_what_it_printed_is_kept() -> None:
    result = ran("import sys\nfor n in range(3000): print('line', n)\nraise ValueError('last words')")
    assert result.printed.endswith("ValueError: last words\n")
    assert "line 2999" in result.printed
    assert len(result.printed) <= 4096


@pytest.mark.parametrize(
    "program",
    [
        "while True: pass",
        "import os; os.closerange(0, 100)\nwhile True: pass",
        "import signal, time\nfor n in set(signal.Signals) - {9, 19}: signal.signal(n, signal.SIG_IGN)\ntime.sleep(60)",
        "import ctypes; ctypes.PyDLL(None).sleep(60)",
        "import threading as t, time\nfor n in range(4): t.Thread(target=time.sleep, args=(9,)).start()\ntime.sleep(9)",
    ],
)
def test_a_process_that_does_not_end_is_stopped_in_time(program: str) -> None:
    result = ran(program, timeout_s=1.5)
    assert (result.data, result.problem) == (None, "It did not finish within 1.5 s and was stopped.")
    assert result.seconds < 3


def test_output_without_end_is_stopped_and_takes_little_disk() -> None:
    program = (
        "import os\nwhile True:\n try: os.write(1, bytes(1 << 20))\n except OSError: answer(os.fstat(1).st_size >> 20)"
    )
    assert ran(program).data == b"32"


def test_files_without_end_are_stopped_and_deleted() -> None:
    program = "import itertools\nfor n in itertools.count(): open(f'{n}', 'wb').write(bytes(1 << 24))"
    result = ran(program)
    assert result.problem == "It wrote more than 1 GiB, or 20,000 files."


def test_the_scratch_folder_is_deleted_however_deep_it_is() -> None:
    program = (
        "import os\nanswer_to = os.getcwd()\nfor n in range(1500): os.mkdir('d'); os.chdir('d')\nanswer(answer_to)"
    )
    result = ran(program)
    assert result.data is not None
    assert not os.path.exists(result.data)


def test_a_module_that_cannot_be_imported_is_the_failure_of_the_judge() -> None:
    with pytest.raises(JudgeFailed, match=r"No module named 'tests\.judge\.no_such_module'"):
        run_confined("tests.judge.no_such_module", b"", [], Limits())


# ---- processes -----------------------------------------------------------------------------------------------------

DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open('alive', 'w').close()
        while True:
            time.sleep(0.01)
    os._exit(0)
while not os.path.exists('alive'):
    time.sleep(0.01)
answer(os.getcwd())
"""
BOMB = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"


@needs_filter
def test_no_process_is_started() -> None:
    assert attempted("os.fork()") == "PermissionError"
    assert attempted("os.execv('/bin/true', ['true'])", layers=frozenset({Layer.SYSTEM_CALLS})) == "PermissionError"


@pytest.mark.parametrize("layers", [NEITHER_FILTER, NO_NAMESPACES], ids=["namespaces", "neither"])
def test_a_daemon_is_gone_after_the_run(layers: frozenset[Layer]) -> None:
    result = ran(DAEMON, layers=layers)
    assert result.data is not None, result
    assert processes_in(result.data.decode()) == []


@pytest.mark.slow
@pytest.mark.parametrize("layers", [ALL_LAYERS, NEITHER_FILTER], ids=["all", "namespaces"])
def test_a_process_that_forks_without_end_is_stopped_in_time(layers: frozenset[Layer]) -> None:
    program = BOMB if layers == ALL_LAYERS else BOMB.replace("while True", "for n in range(7)") + "\nwhile True: pass"
    result = ran(program, layers=layers, timeout_s=1.5)
    assert result.problem == "It did not finish within 1.5 s and was stopped."
    assert result.seconds < 4


def processes_in(folder: str) -> list[int]:
    """The processes whose working directory is a folder, also a deleted one."""
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd").startswith(folder):
                pids.append(int(name))
        except OSError:
            continue
    return pids


@pytest.mark.parametrize("call", ["os.kill({pid}, 0)", "os.kill(-1, 0)", "os.kill(0, 0)"])
@needs_filter
def test_no_other_process_is_signalled(call: str) -> None:
    only = frozenset({Layer.SYSTEM_CALLS})
    assert attempted(call.format(pid=os.getpid()), layers=only) == "PermissionError"


@needs_landlock
@pytest.mark.skipif(landlock_version() < 6, reason="Landlock bounds signals from version 6 on")
def test_landlock_alone_keeps_signals_from_the_judge() -> None:
    assert attempted(f"os.kill({os.getpid()}, 0)", layers=frozenset({Layer.LANDLOCK})) == "PermissionError"


def test_the_judge_is_no_process_of_its_namespace() -> None:
    result = ran("import os; answer(os.getpid())", layers=frozenset({Layer.NAMESPACES}))
    if "no network" not in result.isolation:
        pytest.skip("this user may make no namespaces")
    assert result.data == b"2"


READ_MEMORY = """
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
library = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(8)
here, there = Part(ctypes.addressof(buffer), 8), Part({address}, 8)
def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
"""


@pytest.mark.parametrize(
    "layers",
    [ALL_LAYERS, frozenset({Layer.SYSTEM_CALLS}), frozenset({Layer.LANDLOCK})],
    ids=["all", "filter", "landlock"],
)
@needs_landlock
@needs_filter
def test_the_memory_of_the_judge_cannot_be_read(layers: frozenset[Layer]) -> None:
    secret = ctypes.create_string_buffer(b"a secret")
    before = READ_MEMORY.format(address=ctypes.addressof(secret))
    vectors = "ctypes.byref(here), 1, ctypes.byref(there), 1, 0"
    for call in (
        f"checked(library.process_vm_readv({os.getpid()}, {vectors}))",
        f"checked(library.ptrace(16, {os.getpid()}, 0, 0))",
    ):
        assert attempted(call, layers=layers, before=before) in {"PermissionError", "ProcessLookupError"}


# ---- files, network, environment -----------------------------------------------------------------------------------


def test_the_process_that_starts_candidates_ends_with_the_session() -> None:
    program = f"""
from kernellab.judge import sandbox
sandbox.run_confined({MODULE!r}, b"pass", [], sandbox.Limits(20.0))
print(sandbox._STARTER.popen.pid)
"""
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", program], capture_output=True, text=True, check=True
    )
    assert not done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


@needs_landlock
def test_files_of_the_judge_are_unreadable(tmp_path: Path) -> None:
    secret = tmp_path / "specification.py"
    secret.write_text("secret")
    secret.chmod(0o644)
    for call in (
        f"open({str(secret)!r}).read()",
        f"os.listdir({str(tmp_path)!r})",
        f"open('/proc/{os.getpid()}/mem', 'rb')",
        f"open('/proc/{os.getpid()}/environ', 'rb')",
        "open('/etc/shadow')",
        "os.listdir('/tmp')",
    ):
        assert attempted(call) == "PermissionError", call
    assert attempted(f"os.link({str(secret)!r}, 'mine')") == "OSError"  # as if on another device
    assert attempted("open('mine').read()", before=f"os.symlink({str(secret)!r}, 'mine')") == "PermissionError"


@needs_landlock
def test_a_folder_on_the_search_path_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reference_of_judge.py").write_text("secret = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = ran(
        "try:\n import reference_of_judge\nexcept ImportError as exc: answer(type(exc).__name__)\nelse: answer('read')"
    )
    assert result.data == b"ModuleNotFoundError"


@needs_landlock
def test_files_are_written_in_the_scratch_folder_only(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("own")
    for call in (
        f"open({str(own)!r}, 'w')",
        f"open({str(tmp_path / 'new')!r}, 'w')",
        f"os.remove({str(own)!r})",
        f"os.truncate({str(own)!r}, 0)",
        "open('/dev/shm/kernellab-test', 'w')",
        f"open({json.__file__!r}, 'a')",
    ):
        assert attempted(call) == "PermissionError", call
    assert attempted("open('new', 'w').write('x')") == "done"
    assert attempted("open('/dev/null', 'w').write('x')") == "done"
    assert own.read_text() == "own"


@needs_filter
def test_rights_of_files_cannot_be_changed(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("own")
    mode = own.stat().st_mode
    for call in ("os.chmod({path!r}, 0)", "os.utime({path!r})", "os.chown({path!r}, 1, 1)"):
        assert attempted(call.format(path=str(own))) == "PermissionError"
    assert own.stat().st_mode == mode


@needs_root
def test_without_landlock_root_becomes_a_user_without_files(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("own")
    own.chmod(0o600)
    before = """
from kernellab.judge.confinement import Access, become_nobody
open('copied', 'w').close()
assert become_nobody(Access(('/usr/lib',), os.getcwd())) == ('a user of its own',)
assert os.getuid() > 0 and os.getgid() > 0 and os.getgroups() == []
os.chmod('copied', 0o600)
"""
    assert attempted(f"open({str(own)!r})", layers=frozenset(), before=before) == "PermissionError"


@needs_root
def test_root_stays_root_where_no_other_user_can_read_the_library(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    program = f"""
import os
from kernellab.judge.confinement import Access, become_nobody
answer((become_nobody(Access(({str(tmp_path)!r},), os.getcwd())), os.getuid()))
"""
    assert ran(program, layers=frozenset()).data == b"((), 0)"


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"])
@needs_filter
def test_there_are_no_sockets(family: str) -> None:
    assert attempted(f"socket.socket(socket.{family}, socket.SOCK_DGRAM)") == "PermissionError"


def test_a_namespace_alone_has_no_network() -> None:
    layers = frozenset({Layer.NAMESPACES})
    if "no network" not in ran("pass", layers=layers).isolation:
        pytest.skip("this user may make no namespaces")
    with_server = "socket.create_connection(('127.0.0.1', {port}), timeout=2).close()"
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        call = with_server.format(port=server.getsockname()[1])
        assert attempted(call, layers=frozenset()) == "done"
        assert attempted(call, layers=layers) == "OSError"
        if landlock_version() >= 4:
            assert attempted(call, layers=frozenset({Layer.LANDLOCK})) == "PermissionError"


def test_variables_of_the_judge_are_invisible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_JUDGE", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    result = ran("import os, json; answer(json.dumps(dict(os.environ)))")
    assert result.data is not None
    variables = json.loads(result.data)
    assert "SECRET_OF_THE_JUDGE" not in variables
    assert variables["CUDA_VISIBLE_DEVICES"] == ""
    assert variables["HOME"] == variables["TMPDIR"] != os.environ.get("HOME")


def test_no_descriptor_of_the_judge_is_open(tmp_path: Path) -> None:
    with open(tmp_path / "secret", "w+") as secret:
        os.set_inheritable(secret.fileno(), True)
        result = ran(OPEN_FILES)
        lines = [line.split() for line in result.printed.splitlines()]
        assert len(lines) == 4  # input, output twice, the result pipe
        assert str(os.fstat(secret.fileno()).st_ino) not in {inode for _, inode in lines}


def test_capabilities_are_gone() -> None:
    result = ran("import ctypes\nanswer([ctypes.CDLL(None).prctl(23, n, 0, 0, 0) for n in range(41)])")
    assert result.data is not None
    if os.geteuid() == 0:
        assert "1" not in result.data.decode()
        assert attempted("os.setuid(1)", layers=frozenset({Layer.CAPABILITIES})) == "PermissionError"


@pytest.mark.slow
def test_torch_and_triton_work_in_it() -> None:
    program = (
        "import torch, triton, triton.language as tl, numpy\n"
        "x = torch.arange(4.0)\n"
        "answer(((x @ x).item(), torch.cuda.is_available(), triton.next_power_of_2(5), tl.constexpr(3).value))"
    )
    result = ran(program, timeout_s=120.0)
    assert result.data == b"(14.0, False, 8, 3)", result


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_filter_has_no_more_instructions_than_the_system_takes_and_jumps_inside(machine: str) -> None:
    program = filter_program(7, machine)
    assert program is not None
    count = len(program) // 8
    assert count <= 4096
    for index in range(count):
        code, if_true, if_false = (
            int.from_bytes(program[8 * index : 8 * index + 2], sys.byteorder),
            *program[8 * index + 2 : 8 * index + 4],
        )
        if code & 7 == 5:
            assert index + 1 + max(if_true, if_false) < count


def test_an_unknown_machine_has_no_filter() -> None:
    assert filter_program(7, "mips") is None


def test_a_start_that_takes_too_long_is_ended() -> None:
    start_s = time.monotonic()
    with pytest.raises(JudgeFailed, match=r"it was not ready within 0 s"):
        run_confined(MODULE, b"", [], Limits(start_s=0.0))
    assert time.monotonic() - start_s < 3


def test_the_time_of_a_candidate_begins_when_its_process_is_ready() -> None:
    result = ran("answer('early')", timeout_s=0.1)  # to start takes longer
    assert (result.data, result.problem) == (b"early", "")


# ---- one process starts all of them --------------------------------------------------------------------------------


def starter() -> int:
    """The pid of the process whose forks run programs."""
    popen = sandbox._STARTER.popen
    assert popen is not None
    return popen.pid


def test_processes_are_forks_of_one_that_is_kept() -> None:
    ran("answer(1)")
    first = starter()
    assert ran("answer(2)").data == b"2"
    assert starter() == first


@pytest.mark.slow
def test_a_starter_that_was_ended_from_outside_is_replaced() -> None:
    ran("answer(1)")
    first = starter()
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert ran("answer(2)").data == b"2"
    assert starter() != first


@pytest.mark.slow
def test_a_failed_start_leaves_the_processes_of_other_threads() -> None:
    wait = "import time\ntime.sleep(1.5)\nanswer('whole')"
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(ran, wait)
        while not (sandbox._STARTER.popen and sandbox._STARTER.running.get(sandbox._STARTER.popen)):
            assert not other.done()
        first = starter()
        with pytest.raises(JudgeFailed):
            run_confined(MODULE, b"", [], Limits(start_s=0.0))
        assert ran("answer(2)").data == b"2"
        assert starter() != first
        assert other.result().data == b"whole"
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


@pytest.mark.parametrize("layers", [ALL_LAYERS, NO_NAMESPACES], ids=["all", "neither namespaces nor filter"])
def test_nothing_of_a_process_is_left_for_the_next(layers: frozenset[Layer]) -> None:
    leave = "import os, sys, builtins; builtins.left = sys.left = os.left = 1; os.environ['LEFT'] = '1'; sys.path = []"
    ran(f"{leave}\nopen('left', 'w').write('1')\nanswer(1)", layers=layers)
    look = "any(hasattr(module, 'left') for module in (builtins, sys, os)), 'LEFT' in os.environ, sys.path != []"
    result = ran(f"import os, sys, builtins\nanswer(({look}, os.listdir('.')))", layers=layers)
    assert result.data == b"(False, False, True, [])"


@pytest.mark.parametrize("name", ["HOME", "TMPDIR", "TRITON_CACHE_DIR"])
def test_folders_for_files_are_the_scratch_folder(name: str) -> None:
    result = ran(f"import os; answer(os.path.samefile(os.environ['{name}'], '.'))")
    assert result.data == b"True"
