"""Tuning over sizes: a few configs of a kernel, and a rule that picks one of them for given sizes.

`Dispatch` is the result, `Rule` what picks. A case is one combination of sizes; `CaseRequest` says what is to be
measured of it, `MeasuredCase` what came of that, and a `CaseMeasurer` measures them, here or elsewhere.
"""

from kernellab.tune.dispatch.config_files import read_folder, read_table
from kernellab.tune.dispatch.result import CaseMeasurer, CaseRequest, Dispatch, Forecast, MeasuredCase
from kernellab.tune.dispatch.rule import Cost, Extent, Rule, Term

__all__ = [
    "CaseMeasurer",
    "CaseRequest",
    "Cost",
    "Dispatch",
    "Extent",
    "Forecast",
    "MeasuredCase",
    "Rule",
    "Term",
    "read_folder",
    "read_table",
]
