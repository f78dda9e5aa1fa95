"""What a tuning shows, of one launch or over sizes: plots and tables as HTML, tables alone as text.

Over sizes, that is a dispatch: the configs of its rule, what it loses on each case, the rule as Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

from kernellab.errors import plural
from kernellab.measure.config import UNMEASURED, Status
from kernellab.tune.agreement import DECIDES
from kernellab.tune.dispatch.result import Dispatch, Regret
from kernellab.tune.result import Row, Tuning
from kernellab.views import elements
from kernellab.views.elements import Table, interval, number
from kernellab.views.figures.canvas import device_words, picture
from kernellab.views.figures.dispatch import cover_figure, regret_figure, winners_figure
from kernellab.views.figures.sweep import roofline_figure
from kernellab.views.figures.tuning import agreement_figure, config_text, parameters_figure, timings_figure, varying

_ROWS = 12
_MOST_ROWS = 200
_MOST_FAILURES = 6
_LEAST_RATIO = 1.03
_LEAST_CHANGE = 1.15
_FINE = {Status.OK, Status.DIFFERS, *UNMEASURED}
_HEAD = ("rank", "config", "ms", "interval", "registers", "spills", "shared", "occupancy", "status")


def tuning_text(tuning: Tuning, *, rest_is: str = "in .frame") -> str:
    """Return the summary and the best configs as a table for a terminal; ``rest_is`` says where the others are."""
    table = _table(tuning, _order(tuning)[:_ROWS])
    rest = len(tuning.rows) - len(table.rows)
    more = [f"... and {rest} more {rest_is}"] if rest > 0 else []
    told = [*_failures(tuning), *_left_out(tuning), *tuning.notes, *why(tuning)]
    return "\n".join([summary(tuning), *table.text(), *more, *told])


def tuning_html(tuning: Tuning) -> str:
    """Return a card: summary, plots and table; the pictures are part of the text, in a light and a dark version."""
    frame, count = tuning.frame, len(tuning.rows)
    parts = [elements.message("kl-note" if tuning.winner is not None else "kl-note kl-warn", summary(tuning))]
    parts += [elements.message("kl-note", told) for told in why(tuning)]
    if frame["registers"].notna().any() or frame["rank"].notna().any():
        parts.append(picture(lambda dark: timings_figure(frame, dark=dark), "times of the configs"))
    else:  # a picture would be empty but for its failures, cut short
        parts += [f"<div>{escape(line)}</div>" for line in _failures(tuning)]
    parts.append(picture(lambda dark: agreement_figure(frame, dark=dark), "configs whose outputs are equal"))
    if parameters_figure(frame) is not None and count > 4:
        parts.append(picture(lambda dark: parameters_figure(frame, dark=dark), "times by parameter"))
    parts.append(picture(lambda dark: roofline_figure(frame, dark=dark), "configs under the roofs of the device"))
    table = _table(tuning, _order(tuning)[:_MOST_ROWS]).html(left=("config", "status"))
    part = f"the first {_MOST_ROWS} by rank; all are in .frame" if count > _MOST_ROWS else ""
    parts.append(elements.details(plural(count, "config"), table, part, is_open=count <= _ROWS))
    parts += [elements.message("kl-note", note) for note in (*_left_out(tuning), *tuning.notes)]
    how = "from the store" if tuning.from_cache else f"{tuning.seconds:.2f} s"
    heading = elements.header(tuning.kernel, [plural(count, "config"), device_words(tuning.provenance), how])
    return elements.framed(elements.section(heading, *parts))


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
        return f"{tuning.kernel}: {part}{many} compiled {how}; the first that fits is {row.config.text}"
    ties = f", tied with {len(tuning.ties)}" if tuning.ties else ""
    best = f"best is {row.config.text} at {row.time_ms:.4g} ms{ties}{_faster(tuning)}"
    return f"{tuning.kernel}: {plural(len(tuning.rows), 'config')} {how}; {best}"


def why(tuning: Tuning) -> list[str]:
    """Return the sentence that says why the winner wins; nothing where there is none, or nothing was timed."""
    timed = {i: row for i, row in enumerate(tuning.rows) if row.time_ms is not None and row.status is Status.OK}
    winner = timed.pop(tuning.winner, None) if tuning.winner is not None else None
    told = "" if winner is None else why_it_wins(winner, list(timed.values()))
    return [told] if told else []


def _faster(tuning: Tuning) -> str:
    """Return that the fastest config did not win, since its outputs differ from most; "" where that is not so."""
    faster = tuning.outvoted
    if faster is None:
        return ""
    return f"; {faster.config.text} is faster, at {faster.time_ms:.4g} ms, but its outputs differ from most: {DECIDES}"


def _order(tuning: Tuning) -> list[int]:
    """Return the rows by rank; of those without one, what could run comes before what went wrong."""
    ranks = tuning.frame["rank"].fillna(len(tuning.rows)).tolist()
    went_wrong = [row.status not in _FINE for row in tuning.rows]
    return sorted(range(len(tuning.rows)), key=lambda index: (ranks[index], went_wrong[index], index))


def _table(tuning: Tuning, order: Sequence[int]) -> Table:
    """Return a row per config without empty columns: without a GPU there are neither ranks nor times."""
    names = varying(tuning.frame)
    shown = tuning.frame[[*names, "rank"]]
    shown.attrs = {}  # pandas copies them for every row that is taken
    values = shown.to_dict("records")
    cells = [_cells(tuning, index, values[index], names) for index in order]
    return Table(_HEAD, cells, [tuning.rows[index].reason for index in order]).filled()


def _cells(tuning: Tuning, index: int, values: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    row = tuning.rows[index]
    mark = " *" if index == tuning.winner and row.time_ms is not None else " =" if index in tuning.ties else ""
    return (
        "" if row.time_ms is None or row.status != "ok" else f"{values['rank']}{mark}",
        config_text(values, names) or row.config.text,
        number(row.time_ms, ".4g"),
        interval(row.low_ms, row.high_ms),
        number(row.registers, "d"),
        number(row.spill_bytes, "d"),
        number(row.shared_bytes, ",d"),
        number(row.occupancy, ".0%"),
        str(row.status),
    )


def _failures(tuning: Tuning) -> list[str]:
    """Return a line per config that went wrong; of many, one per reason."""
    failed = [row for row in tuning.rows if row.status not in _FINE]
    if len(failed) <= _MOST_FAILURES:
        return [f"{row.status}: {row.config.text}: {row.reason}" for row in failed]
    counts = Counter((row.status, row.reason) for row in failed).most_common()
    first = {(row.status, row.reason): row.config.text for row in reversed(failed)}
    lines = [
        f"{status}: {plural(count, 'config')}, the first {first[status, reason]}: {reason}"
        for (status, reason), count in counts[:_MOST_FAILURES]
    ]
    rest = sum(count for _, count in counts[_MOST_FAILURES:])
    return [*lines, f"... and {rest} more that went wrong"] if rest else lines


def _left_out(tuning: Tuning) -> list[str]:
    """Return a line per reason for which configs were not measured; that there is no GPU, a note says."""
    left = [row for row in tuning.rows if row.status in UNMEASURED and row.compile_s is None and row.reason]
    counts = Counter((row.status, row.reason) for row in left).most_common()
    return [f"{status}: {plural(count, 'config')}: {reason}" for (status, reason), count in counts]


def why_it_wins(winner: Row, others: Sequence[Row]) -> str:
    """Return a sentence on why a config is faster than others: what decides, and how these differ; "" if nothing does.

    For each parameter, the best config with another value of it is compared with the winner; the parameter whose best
    other value is slowest decides.
    """
    values, known = winner.config.values, [(each.config.values, each) for each in others]
    rivals = {name: rival for name in values if (rival := _rival(values[name], known, name)) is not None}
    if not rivals:
        return ""
    name = max(rivals, key=lambda each: _timed_ms(rivals[each]))
    rival = rivals[name]
    ratio = _timed_ms(rival) / _timed_ms(winner)
    if ratio < _LEAST_RATIO:
        return "No parameter decides: for each, another value comes within 3 % of the winner."
    value, other = values[name], rival.config.values[name]
    differences = ", ".join(_differences(winner, rival))
    reason = f": it {differences}" if differences else "; registers, spills and occupancy are about the same"
    return f"{name}={value} decides: with {other} it is at best {ratio:.2f} times slower{reason}."


def _timed_ms(row: Row) -> float:
    return row.time_ms or 0.0


def _rival(own: Any, known: Sequence[tuple[Mapping[str, Any], Row]], name: str) -> Row | None:
    """Return the fastest config with another value of a parameter than the winner's ``own``."""
    return min((row for values, row in known if values.get(name, own) != own), key=_timed_ms, default=None)


def _differences(winner: Row, rival: Row) -> list[str]:
    """Return what is worse about a rival, in words."""
    found = []
    if (rival.spill_bytes or 0) > (winner.spill_bytes or 0):
        found.append(f"spills {rival.spill_bytes:,} bytes per thread (the winner {winner.spill_bytes or 0:,})")
    if rival.occupancy and winner.occupancy and winner.occupancy > _LEAST_CHANGE * rival.occupancy:
        found.append(f"keeps {rival.occupancy:.0%} of the warps resident (the winner {winner.occupancy:.0%})")
    if rival.shared_bytes and winner.shared_bytes and winner.shared_bytes > _LEAST_CHANGE * rival.shared_bytes:
        found.append(f"keeps {rival.shared_bytes:,} bytes in shared memory (the winner {winner.shared_bytes:,})")
    if rival.registers and winner.registers and rival.registers > _LEAST_CHANGE * winner.registers:
        found.append(f"takes {rival.registers} registers per thread (the winner {winner.registers})")
    return [each.replace("%", " %") for each in found]


_CASES = 12
_RULE = ("config", "picked for", "slots")


def dispatch_text(dispatch: Dispatch) -> str:
    """Return the dispatch_summary, the configs of the rule, and the cases on which it loses most, for a terminal."""
    regrets = sorted(dispatch.regrets, key=lambda each: -(each.regret or each.estimated or 0.0))
    shown = _regrets(dispatch, regrets[:_CASES])
    rest = len(regrets) - _CASES
    more = [f"... and {plural(rest, 'more case')} in .regret"] if rest > 0 else []
    return "\n".join(
        [dispatch_summary(dispatch), *_configs(dispatch).text(), "", *shown.text(), *more, *dispatch.notes]
    )


def dispatch_html(dispatch: Dispatch) -> str:
    """Return a card: dispatch_summary, configs, pictures, and, folded, what is lost on each case, and the rule."""
    is_timed = any(each.best is not None for each in dispatch.regrets)
    parts = [elements.message("kl-note" if is_timed else "kl-note kl-warn", dispatch_summary(dispatch))]
    parts.append(_configs(dispatch).html(left=("config",)))
    parts.append(picture(lambda dark: winners_figure(dispatch, dark=dark), "configs over two sizes"))
    parts.append(picture(lambda dark: regret_figure(dispatch, dark=dark), "what the rule loses over the sizes"))
    parts.append(picture(lambda dark: cover_figure(dispatch, dark=dark), "what each further config buys"))
    cases = _regrets(dispatch, dispatch.regrets).html(left=("config", "best", "reason"))
    parts.append(
        elements.details(plural(len(dispatch.regrets), "case"), cases, is_open=len(dispatch.regrets) <= _CASES)
    )
    if is_timed:
        parts.append(elements.details("the rule as Python", f"<pre>{escape(dispatch.rule.source())}</pre>"))
    parts += [elements.message("kl-note", note) for note in dispatch.notes]
    words = [plural(len(dispatch.cases), "case"), device_words(dispatch.provenance), f"{dispatch.seconds:.2f} s"]
    return elements.framed(elements.section(elements.header(dispatch.kernel, words), *parts))


def dispatch_summary(dispatch: Dispatch) -> str:
    """Return one sentence or two: what was tuned over, what it took, and what the rule loses."""
    sizes = ", ".join(dispatch.rule.names)
    head = f"{dispatch.kernel} over {sizes}: {plural(len(dispatch.cases), 'case')} in {dispatch.seconds:.2f} s"
    measured = dispatch.provenance.get("measured", 0)
    known = [each.regret for each in dispatch.regrets if each.regret is not None]
    if not known:
        return f"{head}; nothing was timed"
    estimated = [each.estimated for each in dispatch.regrets if each.estimated is not None]
    loss = f"at most {max(known):.3f} x the best of what was measured"
    guess = (
        f"; on sizes that it does not know, about {median(estimated):.3f} x (worst of the cases left out one by one: "
        f"{max(estimated):.3f} x)"
        if estimated
        else ""
    )
    return (
        f"{head}, {plural(measured, 'config')} measured; a rule of {plural(len(dispatch.rule.costs), 'config')}, "
        f"{loss}{guess}"
    )


def _configs(dispatch: Dispatch) -> Table:
    """Return a row per config of the rule: how many of the cases it is picked for, programs at a time."""
    counts = Counter(each.config for each in dispatch.regrets if each.best is not None)
    rows = [
        (cost.config.text, number(counts[cost.config], "d"), number(cost.slots, "d")) for cost in dispatch.rule.costs
    ]
    return Table(_RULE, rows)


def _regrets(dispatch: Dispatch, regrets: list[Regret] | tuple[Regret, ...]) -> Table:
    names = dispatch.rule.names
    head = (*names, "config", "ms", "best", "best ms", "x best", "if unknown", "reason")
    rows = [
        (
            *(str(each.sizes[name]) for name in names),
            "" if each.config is None else each.config.text,
            number(each.time_ms, ".4g"),
            "" if each.best is None or each.best == each.config else each.best.text,
            number(each.best_ms, ".4g"),
            number(each.regret, ".3f"),
            number(each.estimated, ".3f"),
            each.reason,
        )
        for each in regrets
    ]
    return Table(head, rows).filled()
