"""A dispatch as DataFrames: a row per case and config, and what the rule loses on each case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.measure.outcomes import OPTION_COLUMNS, OUTCOME_COLUMNS, record_of, with_types

if TYPE_CHECKING:
    import pandas

    from kernellab.dispatch.result import Dispatch

_OUTCOMES = tuple(name for name in OUTCOME_COLUMNS if name not in {"status", "rank"})


def frame_of(dispatch: Dispatch) -> pandas.DataFrame:
    """Return the rows of all cases; a case that failed as a whole has one row, with its reason and no config."""
    import pandas as pd  # keeps this module light

    names = dispatch.rule.names
    rows = [(place, case, row) for place, case in enumerate(dispatch.cases) for row in case.rows]
    own = list(dict.fromkeys(name for _, _, row in rows for name, _ in row.config.parameters if name not in names))
    options = [name for name in OPTION_COLUMNS if name not in own]
    chosen = [each.config for each in dispatch.regrets]
    records = [
        {**case.sizes, **record_of(row, row.config, own), "chosen": row.config == chosen[place]}
        for place, case, row in rows
    ]
    records += [
        {**case.sizes, "status": "fault", "reason": case.failure, "chosen": False}
        for case in dispatch.cases
        if case.failure and not case.rows
    ]
    columns = [*names, *own, *options, "status", *_OUTCOMES, "chosen"]
    return _with_facts(with_types(pd.DataFrame(records, columns=columns), own), dispatch)


def regret_frame(dispatch: Dispatch) -> pandas.DataFrame:
    """Return what the rule picks for each case, and what that loses."""
    import pandas as pd

    names = dispatch.rule.names
    columns = [*names, "config", "best", "time_ms", "best_ms", "regret", "estimated", "reason"]
    records = [
        {
            **each.sizes,
            "config": "" if each.config is None else each.config.text,
            "best": "" if each.best is None else each.best.text,
            **{name: getattr(each, name) for name in ("time_ms", "best_ms", "regret", "estimated", "reason")},
        }
        for each in dispatch.regrets
    ]
    numbers = dict.fromkeys(("time_ms", "best_ms", "regret", "estimated"), "float64")
    return _with_facts(pd.DataFrame(records, columns=columns).astype(numbers), dispatch)


def _with_facts(frame: pandas.DataFrame, dispatch: Dispatch) -> pandas.DataFrame:
    frame.attrs.update(
        {
            "kernel": dispatch.kernel,
            "sizes": list(dispatch.rule.names),
            "configs": [config.text for config in dispatch.rule.configs],
            "seconds": dispatch.seconds,
            "interrupted": dispatch.is_interrupted,
            "notes": list(dispatch.notes),
            **dispatch.provenance,
        }
    )
    return frame
