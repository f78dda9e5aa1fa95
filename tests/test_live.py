from __future__ import annotations

from kernellab.live import Bar, LiveProgress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Display:
    """Keeps what is displayed, and each update."""

    def __init__(self) -> None:
        self.shown: list[Bar] = []

    def __call__(self, bar: Bar) -> Display:
        self.shown.append(bar)
        return self

    update = __call__


def test_a_short_launch_shows_nothing() -> None:
    clock, display = Clock(), Display()
    report = LiveProgress(display, clock)("k")
    for done in range(1, 11):
        clock.now += 0.05
        report((done, 10))
    assert display.shown == []


def test_a_long_launch_updates_one_display_and_ends_at_the_total() -> None:
    clock, display = Clock(), Display()
    report = LiveProgress(display, clock)("k")
    for done in range(1, 101):
        clock.now += 0.05
        report((done, 100))
    done = [bar.done for bar in display.shown]
    assert done == sorted(done)
    assert 15 <= len(done) <= 30
    assert display.shown[-1] == Bar("k", 100, 100)


def test_a_bar_is_text_and_a_labelled_progress_element() -> None:
    bundle = Bar("softmax", 1500, 2000)._repr_mimebundle_()
    assert bundle["text/plain"] == "softmax: 1,500 of 2,000 programs"
    assert 'max="2000" value="1500" aria-label=' in bundle["text/html"]
