"""An exported dispatch on a GPU: it runs natively, and knows whether this is the device that it was tuned on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.tune.dispatch import Dispatch
from tests.export.exporting import run_files
from tests.tune.dispatch.test_exporting import of_add, of_rows

pytestmark = pytest.mark.gpu


@pytest.fixture
def lab() -> Iterator[kernellab.Lab]:
    with kernellab.Lab(store=":memory:") as opened:
        yield opened


def on_gpu(dispatch: Dispatch, device: str, target: str) -> Dispatch:
    """Return a dispatch as tuned on a device, with arguments on this one."""
    made = dispatch.arguments
    assert made is not None

    def arguments(sizes: Mapping[str, int]) -> dict[str, Any]:
        found = made(sizes)
        return {name: value.cuda() if isinstance(value, torch.Tensor) else value for name, value in found.items()}

    facts = {**dispatch.provenance, "device": device, "target": target}
    return replace(dispatch, arguments=arguments, provenance=facts)


def test_the_module_checks_itself_and_is_timed(lab: kernellab.Lab, tmp_path: Path) -> None:
    own = on_gpu(of_rows(), torch.cuda.get_device_name(), str(lab.target))
    lab.export(own, tmp_path / "rows.py")
    result = run_files(tmp_path / "rows.py", interpret=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("outputs match those at export") == 3
    assert "GB/s" in result.stdout
    assert "not tuned" not in result.stderr


def test_on_another_device_it_says_so_and_runs(lab: kernellab.Lab, tmp_path: Path) -> None:
    lab.export(on_gpu(of_rows(), "NVIDIA Imaginary", "cuda:80"), tmp_path / "rows.py")
    result = run_files(tmp_path / "rows.py", interpret=False)
    assert result.returncode == 0, result.stderr
    assert f"not tuned on {torch.cuda.get_device_name()}; its configs are those for NVIDIA Imaginary" in result.stderr


def test_of_another_vendor_it_refuses(lab: kernellab.Lab, tmp_path: Path) -> None:
    other = "hip:gfx942" if torch.version.hip is None else "cuda:90"
    lab.export(on_gpu(of_rows(), "Another", other), tmp_path / "rows.py")
    result = run_files(tmp_path / "rows.py", interpret=False)
    assert result.returncode == 1
    assert "is of another kind" in result.stderr


USED = """\
import sys, torch
sys.path.insert(0, {folder!r})
import add
add.opcheck("cuda")
compiled = torch.compile(lambda x: torch.ops.kernellab.add_kernel_functional(x, x, x.shape[0]), fullgraph=True)
for n in (300, 1000, 77):
    x = torch.rand(n, device="cuda")
    torch.testing.assert_close(compiled(x), 2 * x)
assert {{sizes for _, sizes in add.CHOSEN}} == {{(300,), (1000,), (77,)}}
print("compiled")
"""


def test_the_operator_chooses_under_the_compiler(lab: kernellab.Lab, tmp_path: Path) -> None:
    lab.export(on_gpu(of_add(), torch.cuda.get_device_name(), str(lab.target)), tmp_path / "add.py", kind="torch-op")
    (tmp_path / "used.py").write_text(USED.format(folder=str(tmp_path)))
    result = run_files(tmp_path / "used.py", interpret=False)
    assert result.returncode == 0, result.stderr
    assert "compiled" in result.stdout
