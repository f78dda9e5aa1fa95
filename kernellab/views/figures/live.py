"""How far a launch, a compile, a tuning or a benchmark has come: a line of text, and a small figure of it in HTML.

``ended`` says how one ended if not well: ``interrupted``, ``failed``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import inf, log10
from typing import TYPE_CHECKING

from kernellab.errors import plural
from kernellab.views.elements import number, title
from kernellab.views.palette import BLUE, GOOD

if TYPE_CHECKING:
    from kernellab.benchmark.result import BenchmarkProgress
    from kernellab.tune.dispatch.result import DispatchProgress
    from kernellab.tune.progress import TuningProgress
    from kernellab.tune.result import Row


@dataclass(frozen=True, slots=True)
class LiveView:
    """A live display at one moment, as text and as HTML."""

    text: str
    html: str

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self.html}


NOTHING = LiveView("", "")


def programs_shown(kernel: str, done: int, total: int, seconds: float) -> LiveView:
    """Show the number of finished programs of a launch on the CPU; nothing once all are."""
    if done == total:
        return NOTHING
    text = f"running {kernel} on the CPU: {done:,} of {plural(total, 'program')}, {seconds:.1f} s"
    return LiveView(text, _box(_bar(done, total, "programs done"), escape(text)))


def compiling_shown(kernel: str, done: int, total: int, seconds: float, stopped: Sequence[str] = ()) -> LiveView:
    """Show the number of compiled kernels; ``kernel`` is the current one. Once all are compiled, nothing shows.

    ``stopped`` are the kernels that did not compile, each with the reason: ``softmax interrupted``.
    """
    if done == total and not stopped:
        return NOTHING
    count = f"{done - len(stopped)}/{total} compiled"
    if done < total:
        text = f"compiling {kernel}: {count}, {seconds:.1f} s"
        return LiveView(text, _box(_bar(done, total, "kernels compiled"), escape(text)))
    more = [f"{len(stopped) - 3} more"] if len(stopped) > 3 else []
    text = ", ".join([f"{count} in {seconds:.1f} s", *stopped[:3], *more])
    return LiveView(text, _box("", escape(text)))


def tuning_shown(progress: TuningProgress, seconds: float, ended: str = "") -> LiveView:
    """Show the progress of a tuning: count, best so far, failures, seconds, estimate of the rest.

    In HTML with the times as they came, and a table of the fastest configs and of those that ended last: as many rows
    for ten thousand configs as for twenty.
    """
    is_over = progress.stage == "done" or bool(ended)
    done = progress.known + max(progress.compiled, progress.measured)
    bar = "" if is_over else _bar(done, progress.total, "configs done")
    more = times_svg(progress.times_ms) + _table(progress, is_over=is_over)
    best = ""
    if progress.best and progress.best_ms is not None:
        best = f"best{'' if progress.stage == 'done' else ' so far'} {progress.best_ms:.4g} ms: {progress.best}"
    return _live_view(progress.kernel, ", ".join(_counts(progress, seconds, ended)), best, bar, more)


def _live_view(kernel: str, doing: str, latest: str, bar: str, more: str = "") -> LiveView:
    text = f"{kernel}: {doing}" + (f"; {latest}" if latest else "")
    below = f"<div>{escape(latest)}</div>" if latest else ""
    return LiveView(text, _box(bar, f"<b>{escape(kernel)}</b> {escape(doing)}{below}{more}"))


def benchmark_shown(progress: BenchmarkProgress, seconds: float, ended: str = "") -> LiveView:
    """Show the current point, the number of finished ones, the last result, the seconds."""
    done = {"inputs": 0, "compiling": progress.compiled, "points": progress.done}.get(progress.stage)
    total = progress.kernels if progress.stage == "compiling" else progress.total
    bar = "" if done is None or ended else _bar(done, total, "of the benchmark done")
    doing = f"{_stage(progress, 'now')}, {seconds:.1f} s"
    if ended:
        doing = f"{ended} after {seconds:.1f} s, {_stage(progress, 'at')}"
    return _live_view(progress.kernel, doing, "" if progress.stage == "done" else progress.latest, bar)


def dispatch_shown(progress: DispatchProgress, seconds: float, ended: str = "") -> LiveView:
    """Show the number of measured cases, the last result, an estimate of the rest."""
    failed = [f"{progress.failed} failed"] if progress.failed else []
    cases = f"{progress.done} of {plural(progress.total, 'case')}"
    how = f"configs {'predicted' if progress.is_predicted else 'measured'}"
    counts = [cases, f"{progress.measured} of at most {progress.budget} {how}", *failed]
    now = [f"now {', '.join(progress.under_way)}"] if progress.under_way and not ended else []
    left = [] if progress.left_s is None or ended else [f"about {_rough_seconds(progress.left_s)} left"]
    doing = ", ".join([*([f"{ended} after"] if ended else []), *counts, *now, f"{seconds:.1f} s", *left])
    is_over = bool(ended) or progress.done == progress.total > 0
    bar = "" if is_over else _bar(progress.measured, progress.budget, how)
    return _live_view(progress.kernel, doing, progress.latest, bar)


def _stage(progress: BenchmarkProgress, now: str) -> str:
    if progress.stage == "inputs":
        return f"making inputs{f' of {progress.point}' if progress.point else ''}"
    if progress.stage == "compiling":
        return f"{progress.compiled}/{progress.kernels} kernels compiled"
    points = plural(progress.total, "point")
    if progress.stage == "done":
        return f"{progress.done} of {points} done" if progress.done < progress.total else f"{points} done"
    point = f", {now} {progress.point}" if progress.point else ""
    return f"{progress.done} of {points} done{point}"


def _counts(progress: TuningProgress, seconds: float, ended: str) -> list[str]:
    """Return the parts of the line; a machine without a GPU compiles and measures nothing."""
    if progress.stage == "done":
        known = [f"{progress.known} known"] if progress.known else []
        failed = [f"{progress.failed} failed"] if progress.failed else []
        verb, done = "compiled", progress.known + progress.compiled
        if progress.times_ms:
            verb, done = "tuned", max(progress.known + progress.measured, len(progress.times_ms) + progress.failed)
        part = f"{done} of " if done < progress.total else ""  # after an interrupt, or a spent budget
        return [f"{part}{progress.total} configs {verb} in {seconds:.1f} s", *known, *failed]
    fresh = progress.total - progress.known
    parts = [
        f"{progress.total} configs" if progress.total else "choosing configs",
        f"{progress.known} known" if progress.known else "",
        f"{progress.compiled}/{fresh} compiled" if fresh else "",
        f"{progress.measured}/{fresh} measured" if progress.measured or progress.times_ms else "",
        f"{progress.failed} failed" if progress.failed else "",
        "final of the fastest" if progress.stage == "final" else "",
    ]
    if ended:
        return [f"{ended} after {seconds:.1f} s", *filter(None, parts)]
    left = "" if progress.left_s is None else f"about {_rough_seconds(progress.left_s)} left"
    return [*filter(None, (*parts, f"{seconds:.1f} s", left))]


def _rough_seconds(seconds: float) -> str:
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


_CELL = "padding:1px 14px 1px 0;line-height:1.4;border:none;background:none;white-space:nowrap"
_CONFIG = "max-width:46em;overflow:hidden;text-overflow:ellipsis"


def _table(progress: TuningProgress, *, is_over: bool) -> str:
    latest = [] if is_over else [row for row in progress.latest if row not in progress.fastest]
    shown = [*progress.fastest, *latest]
    if not shown:
        return ""
    rows = [_row(row, ";font-weight:bold" if row is progress.fastest[0] else "") for row in progress.fastest]
    rows += [_row(row, ";opacity:.75") for row in latest]
    head = "".join(
        f'<th scope="col" style="{_CELL};font-weight:normal;opacity:.7;text-align:{align}">{name}</th>'
        for name, align in (("config", "left"), ("status", "left"), ("ms", "right"))
    )
    rest = progress.known + progress.ended - len(shown)
    more = f'<div style="opacity:.7">and {plural(rest, "more config")} through</div>' if rest > 0 else ""
    style = "border-collapse:collapse;border:none;margin:2px 0;table-layout:auto;font-size:12px"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>{more}'


def _row(row: Row, style: str) -> str:
    head = f'<tr style="background:none{style}"{title(row.reason)}>'
    return (
        f'{head}<td style="{_CELL};{_CONFIG};text-align:left">{escape(row.config.text)}</td>'
        f'<td style="{_CELL};text-align:left">{escape(row.status)}</td>'
        f'<td style="{_CELL};text-align:right">{number(row.time_ms, ".4g")}</td></tr>'
    )


def _box(bar: str, body: str) -> str:
    style = "font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);font-variant-numeric:tabular-nums"
    return f'<div class="kl-live" style="{style}">{bar}<div>{body}</div></div>'


def _bar(done: int, total: int, label: str) -> str:
    return f'<progress max="{max(total, 1)}" value="{done}" aria-label="{label}" style="width:260px"></progress>'


_WIDTH, _HEIGHT, _LABEL, _MARGIN = 420, 72, 64, 8
_MOST_POINTS = 240


def times_svg(times_ms: Sequence[float]) -> str:
    """Return the times as an SVG over their order, on a logarithmic scale; nothing for less than two."""
    if len(times_ms) < 2:
        return ""
    least, most = min(times_ms), max(times_ms)
    width, height = _WIDTH - _LABEL - 6, _HEIGHT - 2 * _MARGIN
    low, span = log10(least), (log10(most) - log10(least)) or 1.0

    def place(index: int, time_ms: float) -> tuple[float, float]:
        x = _LABEL + width * index / (len(times_ms) - 1)
        return round(x, 1), round(_HEIGHT - _MARGIN - (log10(time_ms) - low) / span * height, 1)

    dots = [place(index, times_ms[index]) for index in _thinned_times(times_ms)]
    circles = "".join(f'<circle cx="{x}" cy="{y}" r="1.8"/>' for x, y in dots)
    x, y = place(times_ms.index(least), least)
    label = f"times of the configs as they came, best {least:.4g} ms"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" style="max-width:100%" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        f'<g fill="{BLUE}" fill-opacity=".85">{circles}</g>{_steps(times_ms, place)}'
        f'<circle cx="{x}" cy="{y}" r="4" fill="{GOOD}"/>'
        f'<g fill="currentColor" fill-opacity=".75" font-size="10" text-anchor="end">'
        f'<text x="{_LABEL - 8}" y="11">{most:.3g} ms</text>'
        f'<text x="{_LABEL - 8}" y="{_HEIGHT - 5}">{least:.3g} ms</text>'
        "</g></svg>"
    )


def _steps(times_ms: Sequence[float], place: Callable[[int, float], tuple[float, float]]) -> str:
    points: list[tuple[float, float]] = []
    best = inf
    for index, time_ms in enumerate(times_ms):
        if time_ms < best:
            if points:
                points.append((place(index, time_ms)[0], points[-1][1]))
            points.append(place(index, time_ms))
            best = time_ms
    points.append((float(_WIDTH - 6), points[-1][1]))
    text = " ".join(f"{x},{y}" for x, y in points)
    return f'<polyline points="{text}" fill="none" stroke="{GOOD}" stroke-width="1.5" stroke-opacity=".8"/>'


def _thinned_times(times_ms: Sequence[float]) -> list[int]:
    """Thin out times for drawing: the best and the worst of each stretch."""
    count = len(times_ms)
    if count <= _MOST_POINTS:
        return list(range(count))
    size = -(-2 * count // _MOST_POINTS)
    stretches = [range(start, min(start + size, count)) for start in range(0, count, size)]
    ends = [(min(s, key=times_ms.__getitem__), max(s, key=times_ms.__getitem__)) for s in stretches]
    return sorted({index for pair in ends for index in pair})
