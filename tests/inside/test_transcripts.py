"""What is recorded of each line equals a transcript of the kernel in NumPy, in every program."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from kernellab.inside.values import Values
from tests.inside.transcripts import CASES, Case
from tests.labs import shared_lab


def as_numpy(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with copies of their tensors as arrays."""
    bases = {name: getattr(value, "base", value) for name, value in arguments.items()}
    return {name: v.clone().numpy() if isinstance(v, torch.Tensor) else v for name, v in bases.items()}


def require_equal(values: Values, case: Case, given: dict[str, Any]) -> int:
    """Compare each recorded value with the transcript, and return their number."""
    expected = list(case.transcript(given, values.programs[0]))
    recorded = [(value.name or value.argument, value.iteration) for value in values.values]
    assert recorded == [(name, iteration) for name, iteration, _ in expected]
    for value, (name, iteration, transcribed) in zip(values.values, expected, strict=True):
        tile = np.asarray(transcribed)
        place = f"{name} in line {value.line}, iteration {iteration}"
        assert value.shape == tile.shape, place
        lanes = np.ones(value.shape, bool) if value.mask is None else value.mask
        if tile.dtype.kind == "f":
            np.testing.assert_allclose(value.data[lanes], tile[lanes], rtol=2e-5, atol=1e-6, err_msg=place)
        else:
            np.testing.assert_array_equal(value.data[lanes], tile[lanes], err_msg=place)
    return len(expected)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_line_of_every_program_holds_what_the_transcript_says(case: Case) -> None:
    with shared_lab(store=":memory:") as lab:
        grid = (*case.grid, 1, 1)[:3]
        for program in product(*map(range, grid)):
            arguments = case.arguments()
            given = as_numpy(arguments)
            values = lab.values(case.kernel, case.grid, **arguments, program=program)
            assert require_equal(values, case, given) > 3
            after = as_numpy(arguments)
            for name, before in given.items():
                np.testing.assert_array_equal(after[name], before, err_msg=f"{name} changed")


def test_there_are_twelve_transcripts() -> None:
    assert len({case.name for case in CASES}) == 12
