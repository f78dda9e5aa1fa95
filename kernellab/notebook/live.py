"""Live progress in a notebook or a terminal: one display that updates, and only for what takes long."""

from __future__ import annotations

import contextvars
import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar

from kernellab.views.figures.live import (
    NOTHING,
    LiveView,
    benchmark_shown,
    compiling_shown,
    dispatch_shown,
    programs_shown,
    tuning_shown,
)
from kernellab.workers.forks_and_interrupts import rlock

if TYPE_CHECKING:
    from kernellab.benchmark.result import Watch as BenchmarkWatch
    from kernellab.lab import Lab
    from kernellab.tune.dispatch.result import Watch as DispatchWatch
    from kernellab.tune.progress import Watch

_DELAY_S = 1.0
_SOON_S = 0.3  # for what the user asked to see
_TICK_S = 0.5
_END_S = 5.0  # for a display that takes no more

Report = Callable[[tuple[int, int]], None]
_T = TypeVar("_T")


class DisplayHandle(Protocol):
    """A handle of an open display."""

    def update(self, shown: LiveView, /) -> None:
        """Replace what is displayed."""

    def end(self) -> None:
        """Leave the last view, or nothing."""

    def replace(self, result: object, /) -> bool:
        """Show a result in place of the display; False where that cannot be."""


Show = Callable[[LiveView], DisplayHandle]
Render = Callable[[float], LiveView]
Ticking = Callable[[Callable[[], None]], AbstractContextManager[None]]


@dataclass(slots=True)
class Board:
    """One display: it appears after ``delay_s`` seconds, and is drawn with the elapsed seconds.

    ``release`` takes the display once it shows nothing: it cannot be removed, but another board may use it. Threads may
    draw on it at once, as those of two launches that compile.
    """

    show: Show
    clock: Callable[[], float]
    delay_s: float
    release: Callable[[DisplayHandle], None] = lambda handle: None
    begin_s: float = field(init=False)
    handle: DisplayHandle | None = None
    _lock: threading.RLock = field(default_factory=rlock)

    def __post_init__(self) -> None:
        self.begin_s = self.clock()

    def draw(self, render: Render) -> None:
        """Show the view of ``render`` for the elapsed seconds, once the delay is over."""
        with self._lock:
            seconds = self.clock() - self.begin_s
            if self.handle is not None:
                self.handle.update(render(seconds))
            elif seconds >= self.delay_s:
                self.handle = self.show(render(seconds))

    def finish(self, render: Render) -> None:
        """Leave the last view, if anything was shown."""
        with self._lock:
            if self.handle is not None:
                view = render(self.clock() - self.begin_s)
                self.handle.update(view)
                self.handle.end()
                if view is NOTHING:
                    self._release()

    def clear(self) -> None:
        """Remove the display, because a result replaces it."""
        with self._lock:
            if self.handle is not None:
                self.handle.update(NOTHING)
                self._release()

    def _release(self) -> None:
        if self.handle is not None:
            self.release(self.handle)
            self.handle = None


@dataclass(slots=True)
class _Compiles:
    """The compiles of one cell, begun and done; pauses between them do not count as time."""

    board: Board
    cell: object
    done: int = 0
    total: int = 0
    kernel: str = ""
    idle_s: float | None = None
    stopped: list[str] = field(default_factory=list)

    def begin(self, kernel: str) -> None:
        if self.idle_s is not None:
            self.board.begin_s += self.board.clock() - self.idle_s
        self.total, self.kernel, self.idle_s = self.total + 1, kernel, None

    def end(self) -> None:
        self.done += 1
        self.idle_s = self.board.clock() if self.done == self.total else None

    def view(self, seconds: float) -> LiveView:
        return compiling_shown(self.kernel, self.done, self.total, seconds, tuple(self.stopped))


@contextmanager
def tick_in_background(tick: Callable[[], None]) -> Iterator[None]:
    """Call ``tick`` twice a second in a thread, which sees the context variables of this one (ipykernel's cell)."""
    stop: queue.SimpleQueue[None] = queue.SimpleQueue()  # to put into it is one step, which nothing interrupts

    def run() -> None:
        wait_s = _SOON_S
        while True:
            try:
                return stop.get(timeout=wait_s)
            except queue.Empty:
                wait_s = _TICK_S
                tick()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True)
    try:
        thread.start()
        yield
    finally:
        stop.put(None)
        if thread.ident is not None:
            thread.join(_END_S)


@dataclass(eq=False)
class LiveProgress:
    """Opens the watchers of launches, compiles, tunings and benchmarks.

    ``show`` displays and returns a handle; ``ticking`` calls a function now and then while its context is open;
    ``cell`` gives what is equal for everything that one cell does. ``new_display`` returns a display of results that
    shows none yet; None in a terminal.
    """

    show: Show
    clock: Callable[[], float] = time.monotonic
    ticking: Ticking = tick_in_background
    cell: Callable[[], object] = lambda: None
    new_display: Callable[[], DisplayHandle] | None = None
    _compiles: _Compiles | None = None
    _finished: dict[tuple[type, str], tuple[object, Board]] = field(default_factory=dict)
    _released: tuple[object, DisplayHandle] | None = None
    _open: int = 0
    _lock: threading.RLock = field(default_factory=rlock)

    @contextmanager
    def __call__(self, kernel: str, programs: int) -> Iterator[Report]:
        """Show how many of its programs a launch of ``kernel`` has run, while the context is open.

        The context gives the function that takes the number of programs that are done, and their total. Launches of a
        benchmark show nothing of their own.
        """
        if self._open:
            yield lambda progress: None
            return
        board, latest = self._board(_DELAY_S), (0, programs)

        def report(progress: tuple[int, int]) -> None:
            nonlocal latest
            latest = progress

        try:
            with self.ticking(lambda: board.draw(lambda seconds: programs_shown(kernel, *latest, seconds))):
                yield report
        finally:  # of a fault the last programs are never reported
            board.finish(lambda seconds: NOTHING)

    def tuning(self, kernel: str, *, silent: bool = False) -> AbstractContextManager[Watch]:
        """Show a tuning while the context is open; a ``silent`` one, begun by a launch, only if it takes long."""
        from kernellab.tune.progress import TuningProgress  # most sessions tune later, if at all
        from kernellab.tune.result import Tuning

        delay_s = _DELAY_S if silent else _SOON_S
        return self._watching(Tuning, kernel, TuningProgress(kernel, "start"), tuning_shown, delay_s)

    def benchmark(self, kernel: str) -> AbstractContextManager[BenchmarkWatch]:
        """Show a benchmark while the context is open."""
        from kernellab.benchmark.result import Benchmark, BenchmarkProgress

        return self._watching(Benchmark, kernel, BenchmarkProgress(kernel, "inputs"), benchmark_shown)

    def dispatch(self, kernel: str) -> AbstractContextManager[DispatchWatch]:
        """Show a tuning over sizes while the context is open."""
        from kernellab.tune.dispatch.result import Dispatch, DispatchProgress

        return self._watching(Dispatch, kernel, DispatchProgress(kernel), dispatch_shown)

    @contextmanager
    def compiling(self, kernel: str) -> Iterator[None]:
        """Count a compile of this cell, and show how many are done while the context is open.

        Compiles of a tuning or benchmark show nothing of their own.
        """
        if self._open:
            yield
            return
        with self._lock:
            compiles, cell = self._compiles, self.cell()
            if compiles is None or compiles.cell != cell or cell is None:
                compiles = self._compiles = _Compiles(self._board(_DELAY_S), cell)
            compiles.begin(kernel)
        try:
            with self.ticking(lambda: compiles.board.draw(compiles.view)):
                yield
        except BaseException as exc:
            compiles.stopped.append(f"{kernel} {_ending_words(exc)}")
            raise
        finally:
            with self._lock:
                compiles.end()
            compiles.board.finish(compiles.view)

    def show_result(self, result: object) -> None:
        """Show a result of the cell, in place of a display that shows nothing any more, where there is one."""
        handle = self._take_released()
        if handle is None or not handle.replace(result):
            import IPython.display  # only in a shell

            IPython.display.display(result)

    def result_display(self) -> DisplayHandle | None:
        """Return a display that is to show a result, and later another one; None in a terminal."""
        return None if self.new_display is None else self._take_released() or self.new_display()

    def clear_replaced(self, result: object) -> None:
        """Clear the display of a tuning or benchmark of this cell when its result is shown."""
        if any(kind is type(result) for kind, _ in self._finished):
            kernel = result.kernel  # type: ignore[attr-defined]  # a Tuning, Benchmark or Dispatch
            cell, board = self._finished.pop((type(result), kernel), (None, None))
            if board is not None and cell == self.cell():
                board.clear()

    @contextmanager
    def _watching(
        self, kind: type, kernel: str, latest: _T, shown: Callable[[_T, float, str], LiveView], delay_s: float = _SOON_S
    ) -> Iterator[Callable[[_T], None]]:
        """Draw the latest progress on a new board while the context is open; showing a result of this kind clears it.

        ``shown`` takes the progress, the seconds, and how it ended if not well.
        """
        board = self._board(delay_s)
        self._open += 1
        ended = ""

        def watch(progress: _T) -> None:
            nonlocal latest
            latest = progress

        try:
            with self.ticking(lambda: board.draw(lambda seconds: shown(latest, seconds, ""))):
                yield watch
        except BaseException as exc:
            ended = _ending_words(exc)
            raise
        finally:
            self._open -= 1
            board.finish(lambda seconds: shown(latest, seconds, ended))
            self._finished[kind, kernel] = self.cell(), board

    def _board(self, delay_s: float) -> Board:
        return Board(self._show_in_cell, self.clock, delay_s, self._release)

    def _show_in_cell(self, shown: LiveView) -> DisplayHandle:
        """Show a view on a display of this cell that shows nothing any more, or on a new one."""
        handle = self._take_released()
        if handle is None:
            return self.show(shown)
        handle.update(shown)
        return handle

    def _release(self, handle: DisplayHandle) -> None:
        with self._lock:
            self._released = self.cell(), handle

    def _take_released(self) -> DisplayHandle | None:
        with self._lock:
            (cell, handle), self._released = self._released or (None, None), None
        return handle if cell is not None and cell == self.cell() else None


def _ending_words(exc: BaseException) -> str:
    return "interrupted" if isinstance(exc, KeyboardInterrupt) else "failed"


@dataclass(slots=True)
class TerminalLine:
    """A line of a terminal that is overwritten, and erased at the end; without a terminal, nothing."""

    stream: IO[str]

    def update(self, shown: LiveView, /) -> None:
        """Overwrite the line with the text, cut to the width of the terminal."""
        if self.stream.isatty():
            width = shutil.get_terminal_size().columns - 1
            self.stream.write(f"\r\x1b[K{shown.text[:width]}")
            self.stream.flush()

    def end(self) -> None:
        """Leave an empty line."""
        self.update(NOTHING)

    def replace(self, result: object, /) -> bool:
        """Show no result: a line is too short."""
        return False


@dataclass(slots=True)
class NotebookDisplay:
    """A display in the output of a cell, which may show nothing yet; its end leaves the last view."""

    handle: Any
    is_shown: bool = False

    def update(self, shown: LiveView, /) -> None:
        """Replace the view."""
        self.replace(shown)

    def end(self) -> None:
        """Leave the last view."""

    def replace(self, result: object, /) -> bool:
        """Show a result in place of the view, or first."""
        send, self.is_shown = self.handle.update if self.is_shown else self.handle.display, True
        send(result)  # an interrupt may come here, sent or not
        return True


def notebook_display() -> DisplayHandle:
    """Return a display in the output of the running cell that shows nothing yet."""
    import IPython.display  # only in a shell

    return NotebookDisplay(IPython.display.DisplayHandle())


def show_in_notebook(shown: LiveView) -> DisplayHandle:
    """Show a view in the output of the running cell."""
    display = notebook_display()
    display.update(shown)
    return display


def terminal_display(stream: IO[str]) -> Show:
    """Return the function that shows a view on a line of a terminal."""

    def show(shown: LiveView) -> DisplayHandle:
        line = TerminalLine(stream)
        line.update(shown)
        return line

    return show


def progress_of(shell: Any) -> LiveProgress:
    """Return live progress for a shell: a display in a notebook, a line in a terminal."""
    cell = lambda: getattr(shell, "execution_count", None)  # noqa: E731
    if getattr(shell, "kernel", None) is None:
        return LiveProgress(terminal_display(sys.stdout), cell=cell)
    return LiveProgress(show_in_notebook, cell=cell, new_display=notebook_display)


def show_report(lab: Lab, report: object) -> None:
    """Show the report of a cell, in place of the progress of its compiles where that was shown."""
    import IPython.display  # only in a shell

    live = lab.launches.reporter
    (live.show_result if isinstance(live, LiveProgress) else IPython.display.display)(report)
