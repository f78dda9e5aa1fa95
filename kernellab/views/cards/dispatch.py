"""What a dispatch shows: the configs of its rule, three pictures, what it loses on each case, the rule as Python."""

from __future__ import annotations

from collections import Counter
from html import escape
from statistics import median

from kernellab.errors import plural
from kernellab.tune.dispatch.result import Dispatch, Regret
from kernellab.views import elements
from kernellab.views.elements import Table, number
from kernellab.views.figures.canvas import device_words, picture
from kernellab.views.figures.dispatch import cover_figure, regret_figure, winners_figure

_ROWS = 12
_CONFIGS = ("config", "picked for", "slots")


def dispatch_text(dispatch: Dispatch) -> str:
    """Return the summary, the configs of the rule, and the cases on which it loses most, for a terminal."""
    regrets = sorted(dispatch.regrets, key=lambda each: -(each.regret or each.estimated or 0.0))
    shown = _regrets(dispatch, regrets[:_ROWS])
    rest = len(regrets) - _ROWS
    more = [f"... and {plural(rest, 'more case')} in .regret"] if rest > 0 else []
    return "\n".join([summary(dispatch), *_configs(dispatch).text(), "", *shown.text(), *more, *dispatch.notes])


def dispatch_html(dispatch: Dispatch) -> str:
    """Return a card: summary, configs, pictures, and, folded, what is lost on each case, and the rule."""
    is_timed = any(each.best is not None for each in dispatch.regrets)
    parts = [elements.message("kl-note" if is_timed else "kl-note kl-warn", summary(dispatch))]
    parts.append(_configs(dispatch).html({"config": "left"}))
    parts.append(picture(lambda dark: winners_figure(dispatch, dark=dark), "configs over two sizes"))
    parts.append(picture(lambda dark: regret_figure(dispatch, dark=dark), "what the rule loses over the sizes"))
    parts.append(picture(lambda dark: cover_figure(dispatch, dark=dark), "what each further config buys"))
    cases = _regrets(dispatch, dispatch.regrets).html({"config": "left", "best": "left", "reason": "left"})
    parts.append(elements.details(plural(len(dispatch.regrets), "case"), cases, is_open=len(dispatch.regrets) <= _ROWS))
    if is_timed:
        parts.append(elements.details("the rule as Python", f"<pre>{escape(dispatch.rule.source())}</pre>"))
    parts += [elements.message("kl-note", note) for note in dispatch.notes]
    words = [plural(len(dispatch.cases), "case"), device_words(dispatch.provenance), f"{dispatch.seconds:.2f} s"]
    return elements.framed(elements.section(elements.header(dispatch.kernel, words), *parts))


def summary(dispatch: Dispatch) -> str:
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
    return Table(_CONFIGS, rows)


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
