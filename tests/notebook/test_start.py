"""What ``%load_ext`` leaves to the background, and what becomes of that."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernellab
from kernellab.errors import KernellabError, StoreError, UnknownTarget, UsageError, WorkerDied
from kernellab.notebook.lab_opening import LabOpening
from kernellab.workers import forks_and_interrupts
from kernellab.workers.forks_and_interrupts import Interrupted, _BackgroundJob

_CARD = """%%triton
import torch, triton, triton.language as tl
@triton.jit
def add(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)
x, out = torch.ones(100), torch.empty(100)
add[(1,)](x, out, 100, BLOCK=128)
"""
_SHELL = """
import os, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.colors = "nocolor"
"""


class _Lab:
    """A lab as far as an opening knows it."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def run_shell(program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program with an IPython shell in a new process."""
    environment = {**os.environ, "KERNELLAB_STORE": str(folder / "store"), "IPYTHONDIR": str(folder), **variables}
    return subprocess.run(
        [sys.executable, "-c", _SHELL + program],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_loading_the_extension_imports_neither_triton_nor_torch_nor_tables(tmp_path: Path) -> None:
    program = """
from kernellab.notebook.lab_opening import LabOpening
LabOpening.begin = lambda opening: None  # what is left is done before %load_ext returns
shell.run_cell("%load_ext kernellab").raise_error()
heavy = ("torch", "triton", "numpy", "pandas", "kernellab.lab", "kernellab.store")
print(*[name for name in heavy if name in sys.modules])
print("triton" in shell.magics_manager.magics["cell"])
"""
    done = run_shell(program, tmp_path)
    assert done.stdout.splitlines() == ["", "True"], done.stderr


def test_a_cell_that_brings_kernels_waits_for_the_lab_and_another_one_does_not(tmp_path: Path) -> None:
    program = """
import kernellab.notebook.extension as extension
class Lab:
    def close(self): pass
extension._open_lab = lambda shell, lab_of: Lab()
extension.LabOpening.begin = lambda opening: None
shell.run_cell("%load_ext kernellab").raise_error()
opening = shell.magics_manager.registry["TritonMagics"].opening
shell.run_cell("one = 1").raise_error()
print(opening._lab is None)
shell.run_cell("import json").raise_error()
print(opening._lab is None)
"""
    done = run_shell(program, tmp_path)
    assert done.stdout.splitlines() == ["True", "False"], done.stderr


@pytest.mark.parametrize(
    "call", ['shell.run_cell_magic("triton", "", "x = 1")', 'shell.run_line_magic("triton_help", "tune")']
)
def test_a_magic_imports_nothing_of_triton_while_the_lab_opens(tmp_path: Path, call: str) -> None:
    program = f"""
import kernellab.notebook.extension as extension
steps = []
def open_lab(shell, lab_of):
    steps.append("opens")
    raise OSError(28, "No space left on device", "/full")  # nothing is imported in place of the lab
class Finder:
    def find_spec(self, name, path, target=None):
        if "triton" in name:
            steps.append(name)
extension._open_lab = open_lab
extension.LabOpening.begin = lambda opening: None
shell.run_cell("%load_ext kernellab").raise_error()
sys.meta_path.insert(0, Finder())
try:
    {call}
except Exception as error:
    steps.append(type(error).__name__)
print(steps[0])
"""
    done = run_shell(program, tmp_path)
    assert done.stdout.splitlines()[-1] == "opens", done.stdout + done.stderr


@pytest.mark.slow
def test_the_first_card_loads_neither_the_interpreter_nor_the_cards_of_other_results(tmp_path: Path) -> None:
    program = f"""
shell.run_cell("%load_ext kernellab").raise_error()
shell.run_cell({_CARD!r}).raise_error()
views = ("kernellab.views.card_table", "kernellab.views.rendering", "kernellab.views.explorers")
other = ("kernellab.interpreter.worker", "kernellab.tune.verbs", "kernellab.benchmark.result", "pandas", "matplotlib")
print([name for name in (*views, *other) if name in sys.modules])
"""
    done = run_shell(program, tmp_path)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_compile_workers_start_before_the_driver_is_asked_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []

    def ask_driver() -> None:
        steps.append("driver")
        raise UsageError("asked")

    monkeypatch.setattr("kernellab.workers.worker.Pool.start", lambda pool: steps.append("compile workers"))
    monkeypatch.setattr("kernellab.lab.workspace.gpu_target_of_machine", ask_driver)
    with kernellab.Lab(store=":memory:") as lab, pytest.raises(UsageError, match="asked"):
        lab.start()
    assert steps == ["compile workers", "driver"]


@pytest.mark.slow
def test_what_opening_the_lab_raises_comes_with_the_first_cell(tmp_path: Path) -> None:
    program = """
shell.run_cell("%load_ext kernellab").raise_error()
for _ in range(2):
    print(type(shell.run_cell("%%triton\\nx = 1").error_in_exec).__name__)
shell.run_cell("import json").raise_error()
"""
    done = run_shell(program, tmp_path, KERNELLAB_TARGET="cuda:9000000")
    assert [line for line in done.stdout.splitlines() if line in {"UnknownTarget", "NoneType"}] == ["UnknownTarget"] * 2
    assert "There is no lab for this cell" in done.stderr


def test_a_variable_with_a_wrong_value_is_refused_before_anything_loads(tmp_path: Path) -> None:
    program = """
print(type(shell.run_cell("%load_ext kernellab").error_in_exec).__name__)
print("triton" in sys.modules)
"""
    done = run_shell(program, tmp_path, KERNELLAB_TIMEOUT="soon")
    assert done.stdout.splitlines()[-2:] == ["UsageError", "False"]


@pytest.mark.slow
@pytest.mark.parametrize("then", ["", "shell.run_line_magic('unload_ext', 'kernellab')", "os.fork() or os._exit(0)"])
def test_a_session_ends_well_while_the_lab_opens(tmp_path: Path, then: str) -> None:
    done = run_shell(f'shell.run_cell("%load_ext kernellab").raise_error()\n{then}\n', tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_session_that_ends_while_the_interpreter_starts_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Any] = []

    def start(interpreter: Any) -> None:
        steps.append("start")
        raise WorkerDied("The interpreter worker ended with the session.")

    monkeypatch.setattr("kernellab.workers.worker.Pool.run_in_background", lambda pool, step, stop: steps.append(step))
    monkeypatch.setattr("kernellab.interpreter.runner.Interpreter.start", start)
    monkeypatch.setattr("kernellab.lab.workspace.gpu_target_of_machine", lambda: None)
    with kernellab.Lab(store=":memory:") as lab:
        lab.start_interpreter()
        steps[0]()  # a thread would print what it raised
    assert steps[1:] == ["start"]


def test_an_opening_opens_one_lab_for_all_threads() -> None:
    labs: list[Any] = []
    opening = LabOpening(lambda: labs.append(_Lab()) or labs[-1])  # type: ignore[func-returns-value]
    threads = [threading.Thread(target=opening.lab) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opening.lab() is labs[0]
    assert len(labs) == 1


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    """Thresholds of garbage collection that are the test's own, after work in the background that pauses it."""
    for thread in threading.enumerate():
        if isinstance(thread, _BackgroundJob):
            thread.join()
    before, own = gc.get_threshold(), (700, 10, 10)
    gc.set_threshold(*own)
    yield own
    gc.set_threshold(*before)
    gc.enable()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_no_garbage_is_collected_while_the_lab_opens_and_the_setting_stays(
    is_enabled: bool, thresholds: tuple[int, int, int]
) -> None:
    collections: list[Any] = []
    frozen = gc.get_freeze_count()

    def note_collection(phase: str, info: dict[str, int]) -> None:
        collections.append(phase)

    def open_lab() -> Any:
        gc.callbacks.append(note_collection)
        _ = [[] for _ in range(100 * thresholds[0])]  # type: ignore[var-annotated]
        gc.callbacks.remove(note_collection)
        return _Lab()

    (gc.enable if is_enabled else gc.disable)()
    LabOpening(open_lab).lab()
    assert (collections, gc.isenabled()) == ([], is_enabled)
    assert (gc.get_freeze_count(), gc.get_threshold()) == (frozen, thresholds)


@pytest.mark.parametrize(("frozen", "young"), [(0, 0), (375, 0), (100_000, 70_000)], ids=["none", "3.12", "a user's"])
def test_what_the_opening_allocates_is_old_but_where_the_user_froze_objects(
    frozen: int, young: int, monkeypatch: pytest.MonkeyPatch, thresholds: tuple[int, int, int]
) -> None:
    def open_lab() -> Any:
        kept.extend([] for _ in range(100 * thresholds[0]))
        return _Lab()

    kept: list[list[int]] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)  # that of Python 3.12 at its start is 375
    gc.disable()
    LabOpening(open_lab).lab()
    assert young <= len(gc.get_objects(generation=0)) <= young + 10_000


def test_collection_goes_on_after_labs_that_open_at_the_same_time(thresholds: tuple[int, int, int]) -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    seen = []

    def open_slowly() -> Any:
        has_begun.set()
        may_end.wait(60)
        return _Lab()

    first = threading.Thread(target=LabOpening(open_slowly).lab)
    first.start()
    assert has_begun.wait(60)

    def open_meanwhile() -> Any:
        may_end.set()
        first.join()
        seen.append(gc.get_threshold())
        return _Lab()

    LabOpening(open_meanwhile).lab()
    assert seen != [thresholds]
    assert gc.get_threshold() == thresholds


def test_a_fork_collects_garbage_while_the_lab_opens_and_settings_of_the_user_meanwhile_stay(
    thresholds: tuple[int, int, int],
) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def open_lab() -> Any:
        has_begun.set()
        may_end.wait(60)
        return _Lab()

    thread = LabOpening(open_lab).begin()
    assert has_begun.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if gc.isenabled() and gc.get_threshold() == thresholds else 1)
    gc.disable()
    gc.set_threshold(0)
    may_end.set()
    thread.join()
    assert (gc.isenabled(), gc.get_threshold()) == (False, (0, *thresholds[1:]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def await_waiting_main_thread() -> None:
    """Wait until the main thread waits in the system for work, and does not move although others may run."""
    main, seen = threading.main_thread().ident or 0, 0
    while seen < 100:
        os.sched_yield()  # lets the main thread run, where it can
        seen = seen + 1 if sys._current_frames()[main].f_code.co_filename == forks_and_interrupts.__file__ else 0


@pytest.mark.parametrize("wakes_the_wait", [True, False])
def test_an_interrupt_ends_the_wait_at_once_and_the_lab_goes_on_opening(wakes_the_wait: bool) -> None:
    may_end, lab, labs = threading.Event(), _Lab(), []

    def open_lab() -> Any:
        if wakes_the_wait:
            os.kill(os.getpid(), signal.SIGINT)
        else:  # the state after a signal right before the system's call that waits, which it does not end
            await_waiting_main_thread()
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        labs.append(lab if may_end.wait(60) else None)
        return lab

    opening = LabOpening(open_lab)
    with pytest.raises(
        KeyboardInterrupt, match=r"^The wait for the lab, which goes on opening, was interrupted\.$"
    ) as of:
        opening.lab()
    assert (of.type, labs) == (Interrupted, [])
    may_end.set()
    assert opening.lab() is lab
    assert labs == [lab]


def test_a_cell_that_is_interrupted_while_it_waits_does_not_run_and_says_so_in_one_line(tmp_path: Path) -> None:
    program = """
import signal, threading
import kernellab.notebook.extension as extension
may_end = threading.Event()
class Lab:
    def close(self): pass
def open_lab(shell, lab_of):
    os.kill(os.getpid(), signal.SIGINT)
    may_end.wait(60)
    return Lab()
extension._open_lab = open_lab
extension.LabOpening.begin = lambda opening: None
shell.run_cell("%load_ext kernellab").raise_error()
shell.run_cell("import json; print('ran')")
may_end.set()
shell.run_cell("import json; print('ran after')")
"""
    done = run_shell(program, tmp_path)
    expected = ["KeyboardInterrupt: The wait for the lab, which goes on opening, was interrupted.", "ran after"]
    assert (done.stdout.splitlines(), done.stderr) == (expected, "")


def test_an_error_of_the_system_is_said_in_a_sentence_at_each_use_of_the_lab(tmp_path: Path) -> None:
    program = """
import kernellab.notebook.extension as extension
def open_lab(shell, lab_of):
    raise OSError(28, "No space left on device", "/full")
extension._open_lab = open_lab
shell.run_cell("%load_ext kernellab").raise_error()
shell.run_cell("import json; print('ran')").raise_error()
for cell in ("%%triton\\nx = 1", "%triton_ls"):
    shell.run_cell(cell)
"""
    done = run_shell(program, tmp_path)
    sentence = "The lab cannot be opened: No space left on device (/full). Free space on that disk, then try again."
    assert "Traceback" not in done.stdout + done.stderr
    assert " ".join(done.stdout.split()) == " ".join(["ran", *[f"StoreError: {sentence}"] * 2])
    assert done.stderr.count(sentence) == 1


def test_an_error_of_the_system_is_raised_as_one_of_the_lab() -> None:
    def open_lab() -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    with pytest.raises(StoreError, match=r"^The lab cannot be opened: Too many open files\. .* try again\.$"):
        LabOpening(open_lab).lab()


def test_an_error_of_the_background_is_raised_at_each_use() -> None:
    def open_lab() -> Any:
        raise UnknownTarget("There is no such target.")

    opening = LabOpening(open_lab)
    opening.begin().join()
    for _ in range(2):
        with pytest.raises(UnknownTarget):
            opening.lab()


def test_unloading_while_the_lab_opens_waits_and_closes_it() -> None:
    has_begun, may_end, lab = threading.Event(), threading.Event(), _Lab()

    def open_lab() -> Any:
        has_begun.set()
        may_end.wait(60)
        return lab

    opening = LabOpening(open_lab)
    thread = opening.begin()
    assert has_begun.wait(60)
    closing = threading.Thread(target=opening.close)
    closing.start()
    assert not lab.closed
    may_end.set()
    closing.join()
    thread.join()
    assert lab.closed == 1
    with pytest.raises(UsageError, match="%load_ext kernellab"):
        opening.lab()


def test_unloading_waits_for_the_step_that_runs_and_no_other_begins() -> None:
    labs: list[Any] = []
    opening = LabOpening(lambda: labs.append(_Lab()) or labs[-1])  # type: ignore[func-returns-value]
    closing = threading.Thread(target=opening.close)
    with opening._lock:  # as a step that imports Triton
        closing.start()
        while closing.is_alive() and not opening._is_closed:
            pass
        thread = opening.begin()
        assert closing.is_alive()
    closing.join()
    thread.join()
    assert labs == []


def test_an_interrupt_ends_the_wait_for_the_end_at_once_and_the_lab_goes_on_closing() -> None:
    may_end, has_ended = threading.Event(), threading.Event()

    class SlowLab(_Lab):
        def close(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            may_end.wait(60)
            has_ended.set()

    opening = LabOpening(SlowLab)  # type: ignore[arg-type]
    opening.lab()
    with pytest.raises(Interrupted, match=r"^The wait for the lab, which goes on closing, was interrupted\.$"):
        opening.close()
    assert not has_ended.is_set()
    may_end.set()
    assert has_ended.wait(60)


def test_unloading_before_the_lab_opens_keeps_it_from_opening() -> None:
    labs: list[Any] = []
    opening = LabOpening(lambda: labs.append(_Lab()) or labs[-1])  # type: ignore[func-returns-value]
    opening.close()
    opening.begin().join()
    assert labs == []
    with pytest.raises(KernellabError):
        opening.lab()


def test_a_fork_that_comes_before_the_lab_opens_its_own() -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    parent = os.getpid()

    def open_lab() -> Any:
        has_begun.set()
        if os.getpid() == parent:
            may_end.wait(60)
        return _Lab()

    opening = LabOpening(open_lab)
    thread = opening.begin()
    assert has_begun.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if isinstance(opening.lab(), _Lab) else 1)
    may_end.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
