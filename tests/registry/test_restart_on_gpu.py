"""A tuned kernel in a new session: it comes back with its config and time, and launches without tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from tests.export.test_module import SCALE, cell

pytestmark = pytest.mark.gpu


def test_a_kernel_is_loaded_with_its_best_config_and_time(tmp_path: Path) -> None:
    size = 2**22
    text = SCALE.replace("300", str(size))
    names = {"a": torch.rand(size, device="cuda"), "c": torch.zeros(size, device="cuda")}
    with kernellab.Lab(store=tmp_path) as lab:
        cell(lab, text, **names)
        measured = lab.kernels.store.history.measurements()
        (row,) = [r for r in lab.frame("kernels").itertuples() if r.name == "scale"]
    assert measured
    with kernellab.Lab(store=tmp_path) as lab:
        namespace: dict[str, Any] = {}
        loaded = lab.load("scale@1", namespace)
        assert (loaded.row.config, loaded.row.best_ms) == (row.config, row.best_ms)
        out = torch.zeros(size, device="cuda")
        namespace["scale"][lambda meta: (-(-size // meta["BLOCK"]),)](names["a"], out, size)
        torch.testing.assert_close(out, 3 * names["a"])
        assert len(lab.kernels.store.history.measurements()) == len(measured)
        best = dict(part.split("=") for part in row.config.split(", "))
        assert str(namespace["scale"].best_config.kwargs["BLOCK"]) == best["BLOCK"]
