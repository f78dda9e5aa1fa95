from __future__ import annotations

import inspect

import pytest

import kernellab
from kernellab.ir.operations import Access
from tests.kernels.cases import all_cases

CASES = all_cases()


@pytest.mark.parametrize("name", CASES)
def test_effects_are_exactly_what_the_kernel_does(lab: kernellab.Lab, name: str) -> None:
    case = CASES[name]
    effects = lab.effects(case.kernel, **case.arguments, **case.meta)
    assert not effects.unknown
    assert effects.reads == case.reads
    assert effects.writes == case.writes
    assert effects.atomics == case.atomics


@pytest.mark.parametrize("name", CASES)
def test_each_site_points_at_a_source_line_that_does_what_it_says(lab: kernellab.Lab, name: str) -> None:
    case = CASES[name]
    words = {Access.READ: "tl.load", Access.WRITE: "tl.store", Access.ATOMIC: "tl.atomic_add"}
    file = inspect.getsourcefile(case.kernel.fn)
    assert file is not None
    with open(file, encoding="utf-8") as stream:
        source = stream.read().splitlines()
    for site in lab.effects(case.kernel, **case.arguments, **case.meta).sites:
        assert site.location.file == file
        assert site.line is not None
        assert words[site.kind] in source[site.line - 1]
