"""What a benchmark shows: figures and a table as HTML, the table alone as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any

from kernellab.benchmark.comparison import Comparison
from kernellab.benchmark.result import Benchmark, BenchmarkRow
from kernellab.benchmark.runner import AGREE
from kernellab.benchmark.spec import VARIANTS
from kernellab.checking.comparison import Check
from kernellab.errors import RunError, plural, time_text
from kernellab.store.columns import Status
from kernellab.timing.provenance import Ceilings
from kernellab.views.blocks import (
    WARNING,
    Block,
    Card,
    Drawing,
    Fold,
    Heading,
    Message,
    PlainText,
    Section,
    Table,
    notes,
    table_of,
    text_only,
)
from kernellab.views.cards.diff import diff_html, diff_text
from kernellab.views.compile_facts import resource_facts
from kernellab.views.elements import group_by, interval, number, predicted_words
from kernellab.views.figures.canvas import figure_block, value_text
from kernellab.views.figures.sweep import roofline_figure, sweep_figure, sweep_heat_map

_TEXT_ROWS = 40
_HTML_ROWS = 24
_MEASURED: dict[str, Callable[[BenchmarkRow], str]] = {
    "ms": lambda row: number(row.time_ms, ".4g"),
    "interval": lambda row: interval(row.low_ms, row.high_ms),
    "GB/s": lambda row: number(row.gbps, ",.0f"),
    "TFLOP/s": lambda row: number(row.tflops, ",.1f"),
    "of ceiling": lambda row: "" if row.share is None else f"{row.share:.0%} {row.bound}",
    "speedup": lambda row: number(row.speedup, ".2f"),
}
_COMPILED: dict[str, Callable[[BenchmarkRow], str]] = {
    "registers": lambda row: number(row.registers, "d"),
    "spills": lambda row: number(row.spill_bytes, "d"),
    "shared": lambda row: number(row.shared_bytes, ",d"),
    "occupancy": lambda row: number(row.occupancy, ".0%"),
    "bytes": lambda row: number(row.bytes, ",d"),
    "flops": lambda row: number(row.flops or None, ",d"),  # those of dots: a kernel without any computes all the same
    "flops/byte": lambda row: number(row.intensity or None, ".3g"),
}


def benchmark_card(benchmark: Benchmark, *, rest_is: str = "in .frame") -> Card:
    """Return summary, figures and table; ``rest_is`` says where the rows are that a terminal leaves out.

    The pictures are part of the text, in a light and a dark version.
    """
    count, reasons = len(benchmark.rows), why(benchmark)
    blocks = [
        Message(summary(benchmark)),
        *(Message(reason, in_text=False) for reason in reasons),
        *_figures(benchmark),
        Fold(plural(count, "row"), [_table(benchmark, rest_is)], is_open=count <= _HTML_ROWS),
        *(Message(line, WARNING) for line in _failures(benchmark)),
        *notes(benchmark.notes),
        text_only(reasons),
    ]
    device = benchmark.provenance.get("device") or benchmark.provenance.get("target") or ""
    facts = [f"over {', '.join(benchmark.swept)}", str(device)]
    return Card([Section(Heading(benchmark.kernel, facts, in_text=False), blocks)])


def _figures(benchmark: Benchmark) -> Iterator[Block]:
    """Yield the pictures: the sweep, speedups, the roofline, best times over two swept values."""
    frame = benchmark.frame
    yield figure_block(partial(sweep_figure, frame), "the sweep, by implementation")
    if len(benchmark.implementations) > 1 and benchmark.reference:
        speedup = figure_block(partial(sweep_figure, frame, metric="speedup"), "speedup over the reference")
        yield Fold(f"speedup over {benchmark.reference}", [speedup])
    yield Fold("roofline", [figure_block(partial(roofline_figure, frame), "rows under the roofline")])
    yield figure_block(partial(sweep_heat_map, frame), "best times over two swept values")


def summary(benchmark: Benchmark) -> str:
    """Return one sentence: what was measured, and how it compares."""
    points = len({row.point for row in benchmark.rows if row.implementation == benchmark.implementations[0]})
    peers = [name for name in benchmark.implementations if name != benchmark.kernel]
    versus = f" vs {', '.join(peers)}" if peers else ""
    what = f"{benchmark.kernel}: {plural(points, 'point')} of {', '.join(benchmark.swept)}{versus}"
    timed = [row for row in benchmark.rows if row.time_ms is not None]
    if not timed:
        is_checked = any(row.status is Status.WRONG or row.reason.endswith(AGREE) for row in benchmark.rows)
        done = "compiled and run on the CPU" if is_checked else "compiled"
        no_gpu = "" if benchmark.provenance.get("device") else " (no GPU)"
        return f"{what}; {done} in {benchmark.seconds:.2f} s, not timed{no_gpu}"
    fastest: dict[Any, BenchmarkRow] = {}  # of each case, whatever its config
    for row in sorted(timed, key=lambda row: row.time_ms or 0.0):
        if row.implementation == benchmark.implementations[0]:
            fastest.setdefault(tuple(pair for pair in row.point if pair[0] not in VARIANTS), row)
    shares = [row.share for row in fastest.values() if row.share is not None]
    best = f"; up to {max(shares):.0%} of peak" if shares else ""
    speedups = [row.speedup for row in fastest.values() if row.speedup is not None]
    if speedups and benchmark.reference != benchmark.implementations[0]:
        bounds = dict.fromkeys((f"{min(speedups):.2f}", f"{max(speedups):.2f}"))
        best = f"; speedup {' to '.join(bounds)} vs {benchmark.reference}{best}"
    return f"{what} in {benchmark.seconds:.1f} s{best}"


def why(benchmark: Benchmark) -> list[str]:
    """Return why the fastest implementation of the last point is that: how close each gets to which ceiling."""
    timed = [row for row in benchmark.rows if row.time_ms is not None and row.share is not None]
    rows = sorted((row for row in timed if row.point == timed[-1].point), key=lambda row: row.time_ms or 0.0)
    if len(rows) < 2:
        return []
    shares = [f"{row.implementation} {row.share:.0%}".replace("%", " %") for row in rows]
    limit = "bandwidth" if rows[0].bound == "memory" else "TFLOP/s"
    at = ", ".join(f"{name}={value_text(value)}" for name, value in rows[0].point)
    return [f"At {at}, share of peak {limit}: {', '.join(shares)}."]


def ceilings_text(ceilings: Ceilings) -> str:
    """Return the ceilings of a device, a line each."""
    rates = [f"  {kind.ljust(6)} {rate:9,.1f} TFLOP/s" for kind, rate in ceilings.tflops.items()]
    lines = [f"{ceilings.device}, driver {ceilings.driver}", f"  memory {ceilings.memory_gbps:9,.1f} GB/s", *rates]
    return "\n".join(lines)


def _table(benchmark: Benchmark, rest_is: str) -> Table:
    rows = benchmark.rows
    configs = [row.config for row in rows if row.config is not None and "config" not in dict(row.point)]
    shown = dict.fromkeys(name for config in configs for name, _ in config.parameters)

    def config_words(row: BenchmarkRow) -> str:
        values = {} if row.config is None else dict(row.config.parameters)
        return ", ".join(f"{name}={values[name]}" for name in shown if name in values)

    columns: dict[str, Callable[[BenchmarkRow], str]] = {
        **{name: partial(_swept_value, name) for name in benchmark.swept},
        "implementation": lambda row: row.implementation,
        "config": config_words,
        **(_MEASURED if any(row.time_ms is not None for row in rows) else _COMPILED),
        "status": lambda row: row.status,
    }
    return table_of(columns, rows, tips=[row.reason for row in rows], most_lines=_TEXT_ROWS, rest_is=rest_is)


def _swept_value(name: str, row: BenchmarkRow) -> str:
    return value_text(dict(row.point)[name])


def _failures(benchmark: Benchmark) -> list[str]:
    failed = (row for row in benchmark.rows if row.status not in {Status.OK, Status.NOT_TIMED})
    lines = []
    for (status, name, reason), rows in group_by(failed, attrgetter("status", "implementation", "reason")).items():
        point = ", ".join(f"{key}={value_text(value)}" for key, value in rows[0].point if value is not None)
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        lines.append(f"{status}: {name} at {point}{more}: {reason}")
    return lines


def comparison_card(comparison: Comparison) -> Card:
    """Return the differences of two kernels: effects, outputs, time, resources, source."""
    left, right = comparison.compiled
    blocks: list[Block] = [Message(words, f"kl-note {css}".strip()) for css, words in _facts(comparison)]
    if None in comparison.compiled and any(comparison.failures):  # of two that compiled, they are in the difference
        for name, compiled in zip(comparison.names, comparison.compiled, strict=True):
            facts = () if compiled is None else resource_facts(compiled)
            takes = ", ".join(f"{fact.name} {fact.value}" for fact in facts)
            blocks += notes([f"{name} takes: {takes}."] if takes else [])
    if left is not None and right is not None:
        names, sources = comparison.names, comparison.sources
        blocks.append(Drawing(lambda: diff_html(left, right, names=names, sources=sources)))
        blocks.append(text_only(diff_text(left, right, names=names, sources=sources).split("\n")))
    elif any(comparison.failures):  # a function of torch has no lines in common with a kernel
        blocks.append(PlainText(comparison.source_diff))
    heading = Heading(f"{comparison.names[0]} vs {comparison.names[1]}", in_text=False)
    return Card([Section(heading, blocks)])


def timing_words(comparison: Comparison) -> str:
    """Return the verdict in one sentence, with the interval that it rests on."""
    one, two = comparison.names
    timing = comparison.timing
    if timing is None:
        return f"Not timed: {comparison.why_no_timing}.{_predicted_words(comparison)}"
    times = f"{time_text(timing.left_ms / 1e3)} and {time_text(timing.right_ms / 1e3)}"
    bounds = f"ratio {timing.low:.3f} to {timing.high:.3f}, 99 % interval of {timing.rounds} interleaved rounds"
    note = f" Note: {timing.note}." if timing.note else ""
    if timing.verdict == "no difference":
        return f"{two} and {one} take the same time ({times}; {bounds}).{note}"
    return f"{two} is {timing.verdict} than {one} ({times}; {bounds}).{note}"


def _predicted_words(comparison: Comparison) -> str:
    """Return the predicted ratio of two versions as a sentence, "" where nothing was predicted."""
    predicted, (one, two) = comparison.predicted, comparison.names
    if predicted is None:
        return ""
    left, right = predicted.left, predicted.right
    ratio = f"{predicted.ratio:,.0f}" if predicted.ratio >= 9.95 else f"{predicted.ratio:.2g}"
    factor = f"{two} takes {ratio}x the time of {one}"
    times = " vs ".join(predicted_words(side.time_ms, side.low_ms, side.high_ms) for side in (right, left))
    overlap = "; the intervals overlap" if predicted.may_tie else ""
    return f" Predicted for {left.device}: {factor}, {times}{overlap}."


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    facts = [*_outcomes(comparison), *(("kl-warn", f"{comparison.names[1]} {words}.") for words in comparison.effects)]
    for check in comparison.outputs:
        facts.append(("kl-good" if check.equal else "kl-warn", _output_words(check, comparison.names[1])))
    if not comparison.outputs and comparison.same_inputs and not any(comparison.failures):
        facts.append(("kl-warn", "No outputs are known; nothing was compared."))
    return [*facts, *(("", f"{note}.") for note in comparison.notes), ("", timing_words(comparison))]


def _output_words(check: Check, right: str) -> str:
    """Return how an output of the right side compares with that of the left one, as a sentence."""
    error = f"max error {check.max_error:.3g}"
    if check.equal:
        return f"{check.argument} matches on the same inputs; {error}."
    count = f"{check.mismatched:,} of {check.elements:,} elements"
    alone = f", {check.never_written:,} of them written by one of the two alone" if check.never_written else ""
    errors = "" if check.never_written == check.mismatched else f"; {error}"
    return f"{check.argument} of {right} DIFFERS on the same inputs in {count}{alone}{errors}."


def _outcomes(comparison: Comparison) -> Iterator[tuple[str, str]]:
    if comparison.same_inputs and not any(comparison.failures):
        return
    if any(comparison.failures) and comparison.failures[0] is comparison.failures[1]:
        yield "kl-warn", f"Nothing was run: {comparison.failures[0]}"
        return
    for name, failure in zip(comparison.names, comparison.failures, strict=True):
        if failure is None:
            yield "kl-good", f"{name} finished."
        else:
            has_new_grid = any(note.startswith(f"{name} was not launched on these sizes") for note in comparison.notes)
            is_run = has_new_grid and isinstance(failure, RunError)
            grid = ", on a grid that it was never launched with" if is_run else ""
            yield "kl-warn", f"{name} failed{grid}: {type(failure).__name__}: {failure}"
