"""No false alarm: the project's own correct kernels run without a finding."""

from __future__ import annotations

import pytest

from kernellab.interpreter.runner import Interpreter
from tests.kernels.cases import all_cases

CASES = all_cases()


@pytest.mark.parametrize("name", CASES)
def test_a_correct_kernel_has_no_finding(interpreter: Interpreter, name: str) -> None:
    case = CASES[name]
    arguments = case.fresh_arguments()
    everything = {**arguments, **case.meta}
    named = {parameter: everything[parameter] for parameter in case.kernel.arg_names}
    run = interpreter.run(case.kernel, named, (*case.grid, 1, 1)[:3])
    case.assert_as_expected(arguments)
    assert run.findings == ()
