from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kernellab
from tests.alone import run_with_lab

HEAVY = ("torch", "triton", "numpy", "pandas", "matplotlib", "IPython", "ipywidgets", "anywidget")

KERNEL = """
import torch, triton, triton.language as tl

@triton.jit
def copy_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))
"""

# Called by IPython and by the extension, not by users.
HOOKS = {"load_ipython_extension", "unload_ipython_extension"}


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, kernellab; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.slow
def test_tables_figures_and_widgets_are_loaded_when_they_are_used(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(KERNEL)
    code = f"""
import sys
import kernellab, sample
with kernellab.Lab(target="cuda:90", store=":memory:") as lab:
    lab.compile(sample.copy_kernel, sample.torch.ones(64), sample.torch.ones(64), BLOCK=64)
print(*[name for name in {HEAVY[3:]!r} if name in sys.modules])
"""
    done = run_with_lab(code, folder=tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_all_names_the_public_surface_and_nothing_else() -> None:
    assert all(getattr(kernellab, name) is not None for name in kernellab.__all__)
    own = {name for name, value in vars(kernellab).items() if getattr(value, "__module__", "").startswith("kernellab")}
    assert {name for name in own if not name.startswith("_")} - HOOKS <= set(kernellab.__all__)
    assert {"Lab", "KernellabError", "current_lab"} <= set(kernellab.__all__)


def test_completion_offers_the_public_names_and_nothing_else() -> None:
    assert dir(kernellab) == sorted(kernellab.__all__)
    assert "Lab" in dir(kernellab)


def test_without_a_lab_the_error_says_how_to_make_one() -> None:
    with pytest.raises(kernellab.errors.UsageError, match=r"lab = kernellab\.Lab\(\) in a script"):
        kernellab.current_lab()


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(kernellab, "no_such_name")


def test_every_error_derives_from_the_one_base_and_is_drawn_in_the_tree() -> None:
    from kernellab import errors

    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(classes) > 10
    for cls in classes:
        assert issubclass(cls, errors.KernellabError)
        assert f"{cls.__name__} " in f"{errors.__doc__} ".replace("\n", " ")
