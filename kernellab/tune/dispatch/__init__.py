"""Tuning over sizes: a few configs of a kernel, and a rule that picks one of them for given sizes.

`Dispatch` is the result, and its `Rule` picks the config. A case is one combination of sizes. A `CaseMeasurer` takes
`CaseRequest`s and returns `MeasuredCase`s, from this process or others.
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
