"""Programs of the functions that are measured need no more memory than what Inductor makes of these."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.program_models import KERNELS, MODELS
from benchmarks.programs import compared_on_cpu, table
from tests.labs import shared_lab


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_the_module_of_a_program_allocates_what_is_planned_and_no_more_than_inductor(tmp_path: Path) -> None:
    chosen = [model for model in MODELS if model.name in {"chain of launches", "step of Adam"}]
    with shared_lab(store=":memory:") as lab:
        bound = {name: lab.bind(kernel) for name, kernel in KERNELS.items()}
        rows = [compared_on_cpu(lab, model, bound, tmp_path, float("inf")) for model in chosen]
    for row in rows:
        assert row.planned_bytes == row.module.peak_bytes <= row.compiled.peak_bytes
        assert row.donated_bytes <= row.planned_bytes, "what may be written to is not copied"
    assert "0 of 2 need more" in table(rows, on_gpu=False)


def test_each_function_has_a_name_of_its_own_and_there_are_ten() -> None:
    assert len({model.name for model in MODELS}) == len(MODELS) == 10
