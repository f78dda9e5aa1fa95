"""Live displays: when they appear, what they become, and what stays."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from kernellab.benchmark.result import BenchmarkProgress
from kernellab.notebook.live import NOTHING, Board, LiveProgress, terminal_display, tick_in_background
from kernellab.tune.progress import TuningProgress
from kernellab.views.figures.live import LiveView
from tests.benchmark.frames import sweep
from tests.tune.frames import small_tuning


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Display:
    """Keeps what is displayed, and each update."""

    def __init__(self) -> None:
        self.shown: list[LiveView] = []
        self.displays = 0
        self.replaced: object = None

    def __call__(self, shown: LiveView) -> Display:
        self.displays += 1
        self.update(shown)
        return self

    def update(self, shown: LiveView) -> None:
        self.shown.append(shown)

    def end(self) -> None:
        """Nothing is left to do."""

    def replace(self, result: object) -> bool:
        self.replaced = result
        return True


@dataclass
class Bench:
    """Live progress on a clock and a ticker that are moved by hand."""

    clock: Clock = field(default_factory=Clock)
    display: Display = field(default_factory=Display)
    ticks: list[Callable[[], None]] = field(default_factory=list)
    cell: int = 1

    def live(self) -> LiveProgress:
        return LiveProgress(self.display, self.clock, self.ticking, lambda: self.cell)

    @contextmanager
    def ticking(self, tick: Callable[[], None]) -> Iterator[None]:
        self.ticks.append(tick)
        try:
            yield
        finally:
            self.ticks.remove(tick)

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        for tick in self.ticks:
            tick()


PROGRESS = TuningProgress("softmax", "screening", 8, 0, 5, 3, 1, "BLOCK=64", 0.5, (0.9, 0.5, 0.7))


def test_a_short_launch_shows_nothing() -> None:
    bench = Bench()
    with bench.live()("k", 10) as report:
        for done in range(1, 11):
            bench.wait(0.05)
            report((done, 10))
    assert bench.display.shown == []


def test_a_long_launch_updates_one_display_and_leaves_nothing() -> None:
    bench = Bench()
    with bench.live()("k", 100) as report:
        for done in range(1, 11):
            bench.wait(0.5)
            report((done * 10, 100))
    assert bench.display.displays == 1
    assert len(bench.display.shown) == 10
    assert bench.display.shown[-2].text == "running k on the CPU: 90 of 100 programs, 5.0 s"
    assert bench.display.shown[-1] is NOTHING


def test_a_launch_whose_first_programs_do_not_end_shows_that_it_runs_until_it_is_stopped() -> None:
    bench = Bench()
    launch = bench.live()("k", 4)
    launch.__enter__()
    bench.wait(2)
    bench.wait(1)
    assert bench.display.shown[-1].text == "running k on the CPU: 0 of 4 programs, 3.0 s"
    error = KeyboardInterrupt()
    assert not launch.__exit__(type(error), error, None)
    assert (bench.display.displays, bench.display.shown[-1]) == (1, NOTHING)


def test_a_launch_is_text_and_a_labelled_progress_element() -> None:
    bench = Bench()
    with bench.live()("softmax", 2000) as report:
        report((1500, 2000))
        bench.wait(2)
    bundle = bench.display.shown[0]._repr_mimebundle_()
    assert bundle["text/plain"] == "running softmax on the CPU: 1,500 of 2,000 programs, 2.0 s"
    assert 'max="2000" value="1500" aria-label=' in bundle["text/html"]


@pytest.mark.parametrize(("silent", "delay_s"), [(False, 0.4), (True, 1.1)])
def test_a_tuning_appears_after_a_while_and_keeps_its_last_state(silent: bool, delay_s: float) -> None:
    bench = Bench()
    with bench.live().tuning("softmax", silent=silent) as watch:
        watch(PROGRESS)
        bench.wait(delay_s / 2)
        assert bench.display.displays == 0
        bench.wait(delay_s)
        watch(replace(PROGRESS, stage="done", compiled=8, measured=8))
    assert bench.display.displays == 1
    assert "5/8 compiled, 3/8 measured, 1 failed" in bench.display.shown[0].text
    assert "best so far 0.5 ms: BLOCK=64" in bench.display.shown[0].text
    assert bench.display.shown[-1].text.startswith(
        "softmax: 8 configs tuned in 0.6 s, 1 failed; best 0.5 ms"
        if not silent
        else "softmax: 8 configs tuned in 1.7 s"
    )
    assert "<svg" in bench.display.shown[-1].html


def test_a_short_tuning_shows_nothing() -> None:
    bench = Bench()
    with bench.live().tuning("softmax") as watch:
        bench.wait(0.1)
        watch(PROGRESS)
    assert bench.display.displays == 0


def test_a_benchmark_is_one_display_that_its_result_replaces() -> None:
    bench = Bench()
    live = bench.live()
    measuring = BenchmarkProgress("add", "points", 8, 3, 9, 9, "n=64", "n=32: add 0.01 ms, torch 0.02 ms")
    with live.benchmark("add") as watch:
        watch(replace(measuring, stage="compiling", compiled=4, latest=""))
        bench.wait(0.4)
        watch(measuring)
        bench.wait(2)
        watch(replace(measuring, stage="done", done=8))
    assert bench.display.displays == 1
    assert [shown.text for shown in bench.display.shown] == [
        "add: 4/9 kernels compiled, 0.4 s",
        "add: 3 of 8 points done, now n=64, 2.4 s; n=32: add 0.01 ms, torch 0.02 ms",
        "add: 8 points done, 2.4 s",
    ]
    assert '<progress max="8" value="3"' in bench.display.shown[1].html
    live.clear_replaced(replace(small_tuning(), kernel="add"))
    assert bench.display.shown[-1] != NOTHING
    live.clear_replaced(sweep())
    assert bench.display.shown[-1] == NOTHING


def test_launches_of_a_benchmark_have_no_display_of_their_own() -> None:
    bench = Bench()
    live = bench.live()
    with live.benchmark("add"), live("add", 3) as report:
        for done in (1, 2, 3):
            bench.wait(2)
            report((done, 3))
    assert not any("running add" in shown.text for shown in bench.display.shown)
    bench.cell += 1
    with live("add", 3):
        bench.wait(2)
        assert bench.display.shown[-1].text.startswith("running add on the CPU: 0 of 3 programs")


def test_compiles_of_a_tuning_have_no_display_of_their_own() -> None:
    bench = Bench()
    live = bench.live()
    with live.tuning("add"), live.compiling("add"):
        bench.wait(2)
    assert bench.display.displays == 1
    assert not any("compiling add" in shown.text for shown in bench.display.shown)


def test_what_comes_after_a_compile_takes_its_empty_display() -> None:
    bench = Bench()
    live = bench.live()
    with live.compiling("add"):
        bench.wait(2)
    with live("add", 3) as report:
        report((1, 3))
        bench.wait(2)
        assert bench.display.shown[-1].text == "running add on the CPU: 1 of 3 programs, 2.0 s"
    live.show_result("the card")
    assert (bench.display.displays, bench.display.replaced) == (1, "the card")
    with live.compiling("add"):
        bench.wait(2)
    assert bench.display.displays == 2, "a card is there to stay"


def test_a_display_of_an_earlier_cell_is_left_alone() -> None:
    bench = Bench()
    live = bench.live()
    with live.compiling("add"):
        bench.wait(2)
    bench.cell += 1
    with live.compiling("add"):
        bench.wait(2)
    assert bench.display.displays == 2


def test_an_interrupted_tuning_leaves_its_state_and_stops_ticking() -> None:
    bench = Bench()
    context = bench.live().tuning("softmax")
    watch = context.__enter__()
    watch(PROGRESS)
    bench.wait(1)
    assert "<progress" in bench.display.shown[-1].html
    assert not context.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert bench.ticks == []
    assert bench.display.shown[-1].text == (
        "softmax: interrupted after 1.0 s, 8 configs, 5/8 compiled, 3/8 measured, 1 failed; "
        "best so far 0.5 ms: BLOCK=64"
    )
    assert "<progress" not in bench.display.shown[-1].html


@pytest.mark.parametrize(
    ("progress", "error", "text"),
    [
        (BenchmarkProgress("add", "inputs", 8, point="n=64"), KeyboardInterrupt(), "making inputs of n=64"),
        (BenchmarkProgress("add", "compiling", 8, compiled=4, kernels=9), KeyboardInterrupt(), "4/9 kernels compiled"),
        (BenchmarkProgress("add", "points", 8, 3, point="n=64"), ValueError(), "3 of 8 points done, at n=64"),
    ],
)
def test_a_benchmark_that_ends_early_says_how_and_no_longer_looks_at_work(
    progress: BenchmarkProgress, error: BaseException, text: str
) -> None:
    bench = Bench()
    context = bench.live().benchmark("add")
    watch = context.__enter__()
    watch(progress)
    bench.wait(2.5)
    assert not context.__exit__(type(error), error, None)
    how = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
    assert bench.display.shown[-1].text == f"add: {how} after 2.5 s, {text}"
    assert f"{how} after 2.5 s, {text}" in bench.display.shown[-1].html
    assert "<progress" not in bench.display.shown[-1].html


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (TuningProgress("k", "done", 64, compiled=10), "k: 10 of 64 configs compiled in 1.0 s"),
        (TuningProgress("k", "done", 64, 0, 64, 10, 1, "B=4", 0.5, (0.5,) * 9), "k: 10 of 64 configs tuned in 1.0 s"),
        (TuningProgress("k", "done", 4, 0, 4, 3, 1, "B=4", 0.5, (0.5,) * 3), "k: 4 configs tuned in 1.0 s, 1 failed"),
        (TuningProgress("k", "done", 3, 1, 2, 2, 1, "B=4", 0.5, (0.5,) * 2), "k: 3 configs tuned in 1.0 s, 1 known"),
    ],
)
def test_a_tuning_that_got_to_some_configs_says_to_how_many(progress: TuningProgress, text: str) -> None:
    bench = Bench()
    with bench.live().tuning("k") as watch:
        watch(progress)
        bench.wait(1)
    assert bench.display.shown[-1].text.startswith(text)


def test_the_result_replaces_the_display_of_its_cell_alone() -> None:
    bench = Bench()
    live = bench.live()
    tuning = replace(small_tuning(), kernel="softmax")
    for _ in range(2):
        with live.tuning("softmax"):
            bench.wait(1)
        live.clear_replaced(replace(tuning, kernel="another"))
        assert bench.display.shown[-1] != NOTHING
        live.clear_replaced(tuning)
        assert bench.display.shown[-1] == NOTHING
        bench.cell += 1
    with live.tuning("softmax"):
        bench.wait(1)
    bench.cell += 1
    live.clear_replaced(tuning)
    assert bench.display.shown[-1] != NOTHING


def test_compiles_of_a_cell_share_a_display_and_another_cell_has_its_own() -> None:
    bench = Bench()
    live = bench.live()
    with live.compiling("softmax"):
        bench.wait(2)
        assert bench.display.shown[-1].text == "compiling softmax: 0/1 compiled, 2.0 s"
    with live.compiling("matmul"):
        bench.wait(1)
    assert bench.display.displays == 1
    assert bench.display.shown[-1] is NOTHING
    bench.wait(60)
    with live.compiling("add"):
        bench.wait(0.5)
    assert bench.display.shown[-1] is NOTHING
    bench.cell += 1
    with live.compiling("add"):
        bench.wait(0.2)
    assert bench.display.displays == 1


def test_a_compile_that_comes_to_nothing_is_not_counted_as_compiled() -> None:
    bench = Bench()
    live = bench.live()
    for error in (ValueError(), KeyboardInterrupt()):
        context = live.compiling("softmax")
        context.__enter__()
        bench.wait(2)
        assert not context.__exit__(type(error), error, None)
    assert bench.display.shown[-1].text == "0/2 compiled in 4.0 s, softmax failed, softmax interrupted"
    assert "<progress" not in bench.display.shown[-1].html
    with live.compiling("matmul"):
        bench.wait(1)
    assert bench.display.shown[-1].text == "1/3 compiled in 5.0 s, softmax failed, softmax interrupted"


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_two_threads_that_draw_at_once_share_a_display() -> None:
    display, others = Display(), list[threading.Thread]()

    def show(shown: LiveView) -> Display:
        if not others:
            others.append(threading.Thread(target=board.draw, args=(lambda seconds: shown,)))
            others[0].start()
            others[0].join(0.1)  # it waits for this one; if it did not, it would have shown a display of its own by now
        return display(shown)

    board = Board(show, Clock(), 0.0)
    board.draw(lambda seconds: NOTHING)
    others[0].join()
    assert display.displays == 1


def test_a_terminal_has_one_line_that_is_gone_at_the_end() -> None:
    stream = Tty()
    line = terminal_display(stream)(LiveView("12 of 60 configs", ""))
    line.update(LiveView("60 of 60 configs", ""))
    line.end()
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().split("\r\x1b[K") == ["", "12 of 60 configs", "60 of 60 configs", ""]


def test_where_output_is_no_terminal_nothing_is_written() -> None:
    stream = io.StringIO()
    line = terminal_display(stream)(LiveView("12 of 60 configs", ""))
    line.update(LiveView("60 of 60 configs", ""))
    line.end()
    assert stream.getvalue() == ""


def test_the_ticker_has_ended_when_its_context_has() -> None:
    counted: list[int] = []
    with tick_in_background(lambda: counted.append(1)):
        pass
    assert counted == []
