"""Interrupts of launches and tunings on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers.interrupted import session


@pytest.mark.gpu
def test_interrupts_on_a_gpu_leave_the_process_the_next_results_and_no_trace(tmp_path: Path) -> None:
    found = session(40, 2, tmp_path)
    assert found["faults"] == []
    assert found["moments"] == 40
    assert found["run interrupted"] + found.get("run went through", 0) == 10
