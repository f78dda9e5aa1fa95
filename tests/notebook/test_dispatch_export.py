from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.errors import UsageError
from tests.notebook.conftest import Notebook
from tests.tune.dispatch.test_exporting import of_add


@pytest.mark.slow
def test_a_dispatch_is_exported_by_its_variable_or_its_kernel(notebook: Notebook, tmp_path: Path) -> None:
    notebook.names["mine"] = of_add()
    ran = notebook.run(f"%triton_export mine --to {tmp_path / 'add.json'}")
    assert ran.error is None
    assert "(table)" in ran.printed
    assert notebook.run(f"%triton_export add_kernel --as dispatch --to {tmp_path / 'add.py'}").error is None
    assert "def choose_1(n):" in (tmp_path / "add.py").read_text()
    assert isinstance(notebook.run("%triton_export absent --as dispatch").error, UsageError)
