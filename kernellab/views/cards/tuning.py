"""What a tuning shows, of one launch or over sizes: plots and tables as HTML, tables alone as text.

Over sizes, that is a dispatch: the configs of its rule, what it loses on each case, the rule as Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from statistics import median
from typing import TYPE_CHECKING, Any

from kernellab.errors import plural
from kernellab.store.columns import UNMEASURED, Status
from kernellab.tune.agreement import DECIDES
from kernellab.tune.dispatch.result import Dispatch, Regret
from kernellab.tune.result import WITHOUT_GPU, Row, Tuning
from kernellab.views.blocks import (
    WARNING,
    Block,
    Card,
    Drawing,
    Fold,
    Heading,
    Message,
    Section,
    Table,
    notes,
    table_of,
    text_only,
)
from kernellab.views.elements import interval, number, rough_interval, rough_number
from kernellab.views.figures.canvas import figure_block
from kernellab.views.figures.dispatch import cover_figure, plane_figure, regret_figure
from kernellab.views.figures.sweep import roofline_figure
from kernellab.views.figures.tuning import (
    agreement_figure,
    config_text,
    overlap_words,
    parameters_figure,
    timings_figure,
    varying,
)

if TYPE_CHECKING:
    import pandas

_ROWS = 12
_MOST_ROWS = 200
_MOST_FAILURES = 6
_LEAST_RATIO = 1.03
_LEAST_CHANGE = 1.15
_FINE = {Status.OK, Status.DIFFERS, *UNMEASURED}
_COLUMNS: dict[str, Callable[[Row], str]] = {  # behind rank and config
    "ms": lambda row: number(row.time_ms, ".4g"),
    "interval": lambda row: interval(row.low_ms, row.high_ms),
    "predicted ms": lambda row: rough_number(row.predicted_ms),
    "predicted interval": lambda row: rough_interval(row.predicted_low_ms, row.predicted_high_ms),
    "registers": lambda row: number(row.registers, "d"),
    "spills": lambda row: number(row.spill_bytes, "d"),
    "shared": lambda row: number(row.shared_bytes, ",d"),
    "occupancy": lambda row: number(row.occupancy, ".0%"),
    "bits": lambda row: row.bits or "",
    "status": lambda row: str(row.status),
}


def tuning_card(tuning: Tuning, *, rest_is: str = "in .frame") -> Card:
    """Return summary, plots and table; ``rest_is`` says where the rows are that a terminal leaves out.

    The pictures are part of the text, in a light and a dark version.
    """
    count, failures = len(tuning.rows), _failures(tuning)
    draws_times = tuning.frame["registers"].notna().any() or tuning.frame["rank"].notna().any()
    ranks = tuning.frame["rank"].fillna(count).tolist()
    went_wrong = [row.status not in _FINE for row in tuning.rows]  # what could run comes before it
    order = sorted(range(count), key=lambda index: (ranks[index], went_wrong[index], index))
    table = _table(tuning, order[:_MOST_ROWS], count, rest_is)
    part = f"the first {_MOST_ROWS} by rank; all are in .frame" if count > _MOST_ROWS else ""
    reasons = why(tuning)
    blocks: list[Block] = [
        Message(summary(tuning), "kl-note" if tuning.winner is not None else WARNING),
        *(Message(reason, in_text=False) for reason in reasons),
        # a picture would be empty but for its failures, cut short
        *([] if draws_times else [Drawing(lambda: "".join(f"<div>{escape(line)}</div>" for line in failures))]),
        *_figures(tuning.frame, draws_times=draws_times),
        Fold(plural(count, "config"), [table], part, is_open=count <= _ROWS),
        text_only(failures),
        *notes([*_left_out(tuning), *(note for note in tuning.notes if note != WITHOUT_GPU)]),  # the summary says it
        text_only(reasons),
    ]
    return Card([Section(Heading(tuning.kernel, [_device(tuning.provenance)], in_text=False), blocks)])


def _device(provenance: Mapping[str, Any]) -> str:
    predicted_for = provenance.get("predicted_for")
    predicted = f", predicted for {predicted_for}" if predicted_for else ""
    return str(provenance.get("device") or f"{provenance.get('target') or ''}{predicted}")


def _figures(frame: pandas.DataFrame, *, draws_times: bool) -> Iterator[Block]:
    if draws_times:
        yield figure_block(partial(timings_figure, frame), "times of the configs")
    yield figure_block(partial(agreement_figure, frame), "configs by equal outputs")
    if len(frame) > 4:
        yield figure_block(partial(parameters_figure, frame), "times by parameter")
    yield figure_block(partial(roofline_figure, frame), "configs under the roofline of the device")


def summary(tuning: Tuning) -> str:
    """Return one sentence: what was tuned, how long it took, and what won."""
    if tuning.winner is None:
        is_wrong = any(row.status is Status.WRONG and row.checked for row in tuning.rows)
        what = "agrees with the reference" if is_wrong else "works"
        return f"{tuning.kernel}: none of {plural(len(tuning.rows), 'config')} {what}"
    row = tuning.rows[tuning.winner]
    how = "from the store" if tuning.from_cache else f"in {tuning.seconds:.2f} s"
    if row.time_ms is None:
        compiled = sum(row.status not in _FINE or row.compile_s is not None for row in tuning.rows)
        part = f"{compiled} of " if compiled < len(tuning.rows) else ""
        many = plural(len(tuning.rows), "config")
        no_gpu = "" if tuning.provenance.get("device") else " (no GPU)"
        if tuning.is_predicted:
            return _predicted_summary(tuning, row, f"{part}{many} compiled {how}")
        first = "first that fits and agrees with the reference" if row.checked else "first that fits"
        return f"{tuning.kernel}: {part}{many} compiled {how}, not timed{no_gpu}; {first}: {row.config.text}"
    ties = f", tied with {len(tuning.ties)}" if tuning.ties else ""
    best = f"best is {row.config.text} at {row.time_ms:.4g} ms{ties}"
    faster = tuning.outvoted
    if faster is not None:
        best += (
            f"; {faster.config.text} is faster, at {faster.time_ms:.4g} ms, but its outputs differ from most: {DECIDES}"
        )
    return f"{tuning.kernel}: {plural(len(tuning.rows), 'config')} {how}; {best}"


def _predicted_summary(tuning: Tuning, row: Row, compiled: str) -> str:
    """Summarise a tuning without a GPU: the best config by prediction, its time, how many may be as fast."""
    device = tuning.provenance.get("predicted_for") or tuning.provenance.get("target")
    time = f"{rough_number(row.predicted_ms)} ms ({rough_interval(row.predicted_low_ms, row.predicted_high_ms)})"
    ties = f"; {overlap_words(len(tuning.ties))}" if tuning.ties else ""
    checked = "best that agrees with the reference" if row.checked else "best"
    best = f"{checked} is {row.config.text} at {time}"
    return f"{tuning.kernel}: {compiled}, predicted for {device} (no GPU); {best}{ties}"


def why(tuning: Tuning) -> list[str]:
    """Return the sentence that says why the winner wins; nothing where there is none, or nothing was timed."""
    timed = {i: row for i, row in enumerate(tuning.rows) if row.time_ms is not None and row.status is Status.OK}
    winner = timed.pop(tuning.winner, None) if tuning.winner is not None else None
    sentence = "" if winner is None else why_it_wins(winner, list(timed.values()))
    return [sentence] if sentence else []


def _table(tuning: Tuning, order: Sequence[int], count: int, rest_is: str) -> Table:
    """Return a row per config without empty columns: without a GPU there are neither ranks nor times."""
    names = varying(tuning.frame)
    shown = tuning.frame[[*names, "rank"]]
    shown.attrs = {}  # pandas copies them for every row that is taken
    values = shown.to_dict("records")
    head = ("rank", "config", *_COLUMNS)
    cells = [_cells(tuning, index, values[index], names) for index in order]
    reasons, left = [tuning.rows[index].reason for index in order], ("config", "status")
    return Table(head, cells, reasons, left, _ROWS, rest_is=rest_is, count=count).without_empty_columns()


def _cells(tuning: Tuning, index: int, values: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    row = tuning.rows[index]
    ranks = (row.status is Status.OK and row.time_ms is not None) or (
        tuning.is_predicted and row.predicted_ms is not None
    )
    mark = " *" if index == tuning.winner else " =" if index in tuning.ties else ""
    return (
        f"{values['rank']}{mark}" if ranks else "",
        config_text(values, names) or row.config.text,
        *(write(row) for write in _COLUMNS.values()),
    )


def _failures(tuning: Tuning) -> list[str]:
    failed = [row for row in tuning.rows if row.status not in _FINE]
    if len(failed) <= _MOST_FAILURES:
        return [f"{row.status}: {row.config.text}: {row.reason}" for row in failed]
    counts = Counter((row.status, row.reason) for row in failed).most_common(_MOST_FAILURES)
    first = {(row.status, row.reason): row.config.text for row in reversed(failed)}
    lines = [
        f"{status}: {plural(count, 'config')}, the first {first[status, reason]}: {reason}"
        for (status, reason), count in counts
    ]
    rest = len(failed) - sum(count for _, count in counts)
    return [*lines, f"... and {rest} more that failed"] if rest else lines


def _left_out(tuning: Tuning) -> list[str]:
    """Return a line per reason for which configs were not measured; that there is no GPU, a note says."""
    left = [row for row in tuning.rows if row.status in UNMEASURED and row.compile_s is None and row.reason]
    reasons = [row.reason if row.reason.startswith("not measured") else f"{row.status}: {row.reason}" for row in left]
    return [f"{plural(count, 'config')} {reason}." for reason, count in Counter(reasons).most_common()]


def why_it_wins(winner: Row, others: Sequence[Row]) -> str:
    """Return a sentence on why a config is faster than others: what decides, and how these differ; "" if nothing does.

    For each parameter, the best config with another value of it is compared with the winner; the parameter whose best
    other value is slowest decides.
    """

    def time_ms(row: Row) -> float:
        return row.time_ms or 0.0

    values, known, rivals = winner.config.values, [(row.config.values, row) for row in others], dict[str, Row]()
    for name, own in values.items():
        slower = [row for other, row in known if other.get(name, own) != own]
        if slower:
            rivals[name] = min(slower, key=time_ms)
    if not rivals:
        return ""
    name = max(rivals, key=lambda name: time_ms(rivals[name]))
    rival = rivals[name]
    ratio = time_ms(rival) / time_ms(winner)
    if ratio < _LEAST_RATIO:
        return "No parameter decides: another value of each comes within 3 % of the winner."
    value, other = values[name], rival.config.values[name]
    differences = ", ".join(_differences(winner, rival))
    reason = f": it {differences}" if differences else "; registers, spills and occupancy are about the same"
    return f"{name}={value} decides: with {other}, at best {ratio:.2f}x slower{reason}."


def _differences(winner: Row, rival: Row) -> list[str]:
    drawbacks = []
    if (rival.spill_bytes or 0) > (winner.spill_bytes or 0):
        drawbacks.append(f"spills {rival.spill_bytes:,} bytes per thread (the winner {winner.spill_bytes or 0:,})")
    if rival.occupancy and winner.occupancy and winner.occupancy > _LEAST_CHANGE * rival.occupancy:
        drawbacks.append(f"has {rival.occupancy:.0%} occupancy (the winner {winner.occupancy:.0%})")
    if rival.shared_bytes and winner.shared_bytes and winner.shared_bytes > _LEAST_CHANGE * rival.shared_bytes:
        drawbacks.append(f"uses {rival.shared_bytes:,} bytes of shared memory (the winner {winner.shared_bytes:,})")
    if rival.registers and winner.registers and rival.registers > _LEAST_CHANGE * winner.registers:
        drawbacks.append(f"uses {rival.registers} registers per thread (the winner {winner.registers})")
    return [words.replace("%", " %") for words in drawbacks]


_CASES = 12


def dispatch_card(dispatch: Dispatch) -> Card:
    """Return summary, configs, pictures, and, folded, what is lost on each case, and the rule.

    A terminal shows the cases on which the rule loses most; with weights, those that take most of the program's time.
    """
    is_timed = any(regret.best is not None for regret in dispatch.regrets)
    worst_first = sorted(dispatch.regrets, key=lambda r: -(r.share or r.regret or r.estimated or 0.0))
    shown = _regrets(dispatch, worst_first[:_CASES])
    rest = len(worst_first) - _CASES
    more = [f"... and {plural(rest, 'more case')} in .regret"] if rest > 0 else []
    all_cases = _regrets(dispatch, dispatch.regrets)
    rule = [Drawing(lambda: f"<pre>{escape(dispatch.rule.source())}</pre>")] if is_timed else []
    cases = Counter(regret.config for regret in dispatch.regrets)
    configs = [(c.config.text, number(cases[c.config], "d"), number(c.slots, "d")) for c in dispatch.rule.costs]
    blocks: list[Block] = [
        Message(dispatch_summary(dispatch), "kl-note" if is_timed else WARNING),
        *([] if dispatch.speedup is None else [Message(_speedup_words(dispatch))]),
        Table(("config", "cases", "programs at once"), configs, left=("config",)),
        figure_block(partial(plane_figure, dispatch), "configs over two sizes"),
        figure_block(partial(regret_figure, dispatch), "loss of the rule over the sizes"),
        figure_block(partial(cover_figure, dispatch), "loss by number of configs"),
        text_only(["", *shown.lines(), *more]),
        Fold(plural(len(dispatch.regrets), "case"), [Drawing(all_cases.html)], is_open=len(dispatch.regrets) <= _CASES),
        Fold("the rule as Python", rule),
        *notes(dispatch.notes),
    ]
    return Card([Section(Heading(dispatch.kernel, [_device(dispatch.provenance)], in_text=False), blocks)])


def dispatch_summary(dispatch: Dispatch) -> str:
    """Return one sentence or two: what was tuned over, what it took, and what the rule loses."""
    sizes = ", ".join(dispatch.rule.names)
    head = f"{dispatch.kernel} over {sizes}: {plural(len(dispatch.cases), 'case')} in {dispatch.seconds:.2f} s"
    measured = dispatch.provenance.get("measured", 0)
    known = [regret.regret for regret in dispatch.regrets if regret.regret is not None]
    if not known:
        no_gpu = "" if dispatch.provenance.get("device") else " (no GPU)"
        return f"{head}, not timed{no_gpu}"
    estimated = [regret.estimated for regret in dispatch.regrets if regret.estimated is not None]
    predicted = dispatch.provenance.get("predicted_for")
    kind, how = ("predicted", f"predicted for {predicted} (no GPU)") if predicted else ("measured", "measured")
    loss = f"at most {max(known):.3f}x the best {kind} time"
    guess = ""
    if estimated:
        guess = f"; on other sizes, about {median(estimated):.3f}x"
        guess += f" (worst, leaving one case out: {max(estimated):.3f}x)"
    configs, rule = plural(measured, "config"), plural(len(dispatch.rule.costs), "config")
    return f"{head}, {configs} {how}; a rule of {rule}, {loss}{guess}"


def _speedup_words(dispatch: Dispatch) -> str:
    speedup = str(dispatch.speedup)
    predicted = ", by predicted times" if dispatch.is_predicted else ""
    return f"{speedup[0].upper()}{speedup[1:]}{predicted}"


def _regrets(dispatch: Dispatch, regrets: Sequence[Regret]) -> Table:
    predicted = "predicted " * dispatch.is_predicted
    time_words = rough_number if dispatch.is_predicted else partial(number, pattern=".4g")
    columns: dict[str, Callable[[Regret], str]] = {
        **{name: partial(_size_words, name) for name in dispatch.rule.names},
        "config": lambda regret: "" if regret.config is None else regret.config.text,
        f"{predicted}ms": lambda regret: time_words(regret.time_ms),
        "best": lambda regret: "" if regret.best in (None, regret.config) else regret.best.text,
        f"best {predicted}ms": lambda regret: time_words(regret.best_ms),
        "x best": lambda regret: number(regret.regret, ".3f"),
        "if unknown": lambda regret: number(regret.estimated, ".3f"),
        **({} if dispatch.speedup is None else _WEIGHTS),
        "reason": lambda regret: regret.reason,
    }
    return table_of(columns, regrets, left=("config", "best", "reason"))


_WEIGHTS: dict[str, Callable[[Regret], str]] = {
    "launches": lambda regret: number(regret.weight, "g"),
    "share": lambda regret: number(regret.share, ".1%"),
}


def _size_words(name: str, regret: Regret) -> str:
    return str(regret.sizes[name])
