from __future__ import annotations

import pytest

import kernellab
from tests.kernels.cases import all_cases
from tests.tables import every

CASES = all_cases()
FP16 = [name for name in CASES if name.endswith("float16") and "bfloat16" not in name]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_compiles_for_hopper_with_all_stages_and_resources(lab: kernellab.Lab, name: str) -> None:
    case = CASES[name]
    compiled = lab.compile(case.kernel, target="cuda:90", **case.arguments, **case.meta)
    assert str(compiled.target) == "cuda:90"
    assert list(compiled.stages) == ["ttir", "ttgir", "llir", "ptx"]
    assert f"tt.func public @{case.kernel.__name__}" in compiled.ttir
    assert ".target sm_90a" in compiled.ptx
    assert compiled.binary[:4] == b"\x7fELF"
    assert compiled.resources.registers is not None
    assert 8 <= compiled.resources.registers <= 255
    assert compiled.resources.fits


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda:80", "cuda:100", "hip:gfx942"])
@pytest.mark.parametrize("name", every(3, FP16))
def test_compiles_for_other_targets(lab: kernellab.Lab, name: str, target: str) -> None:
    case = CASES[name]
    compiled = lab.compile(case.kernel, target=target, **case.arguments, **case.meta)
    assert str(compiled.target) == target
    assert compiled.binary[:4] == b"\x7fELF"
    assert ("amdgcn" if target.startswith("hip") else "ptx") in compiled.stages
    assert compiled.resources.fits


@pytest.mark.slow
def test_matmul_uses_shared_memory_and_vector_add_none(lab: kernellab.Lab) -> None:
    matmul, add = CASES["matmul-float16"], CASES["add-float16"]
    assert lab.compile(matmul.kernel, target="cuda:90", **matmul.arguments, **matmul.meta).resources.shared_bytes > 0
    assert lab.compile(add.kernel, target="cuda:90", **add.arguments, **add.meta).resources.shared_bytes == 0
