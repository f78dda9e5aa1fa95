from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from kernellab.checking.comparison import Check
from kernellab.views.report import KernelReport, summary
from tests.views.reports import cell_of

Reports = Callable[..., KernelReport]


def test_the_summary_states_effects_resources_and_the_check(report: Reports) -> None:
    check = Check("x + y", "out_ptr", True, 0.0, 1e-6, 0, 100)
    (facts,) = summary(cell_of(report("add", checks=(check,))))
    assert (facts["reads"], facts["writes"], facts["atomics"]) == (["x_ptr", "y_ptr"], ["out_ptr"], [])
    assert (facts["registers"], facts["shared_bytes"], facts["where"]) == (40, 4096, "interpreter")
    assert facts["equal"] is True
    assert facts["complete"]


def test_unknown_effects_make_the_summary_incomplete(report: Reports) -> None:
    (facts,) = summary(cell_of(report("unknown")))
    assert not facts["complete"]


def test_json_has_an_object_per_kernel_and_null_for_what_is_not_known(report: Reports) -> None:
    kernel = report("add")
    unlaunched = replace(kernel, run=None, grid=None, launches=0)
    first, second = json.loads(json.dumps(summary(cell_of(kernel, unlaunched))))
    assert first["label"] == kernel.label
    assert first["grid"] == [98, 1, 1]
    assert (second["where"], second["grid"], second["equal"]) == (None, None, None)


def test_json_has_null_for_an_infinite_error(report: Reports) -> None:
    check = Check("x + y", "out_ptr", False, float("inf"), 1e-6, 1, 100)
    (facts,) = json.loads(json.dumps(summary(cell_of(report("add", checks=(check,))))), parse_constant=_refuse)
    assert (facts["equal"], facts["max_error"]) == (False, None)


def _refuse(word: str) -> float:
    raise AssertionError(f"{word} is no JSON")
