from __future__ import annotations

import subprocess
import sys

import kernellab

HEAVY = ("torch", "triton", "numpy", "pandas", "matplotlib", "IPython", "ipywidgets", "anywidget")

# Called by IPython and by the extension, not by users.
HOOKS = {"load_ipython_extension", "unload_ipython_extension"}


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, kernellab; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_all_names_the_public_surface_and_nothing_else() -> None:
    assert all(getattr(kernellab, name) is not None for name in kernellab.__all__)
    own = {name for name, value in vars(kernellab).items() if getattr(value, "__module__", "").startswith("kernellab")}
    assert {name for name in own if not name.startswith("_")} - HOOKS <= set(kernellab.__all__)
    assert {"Lab", "KernellabError", "current_lab"} <= set(kernellab.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(kernellab, "no_such_name")


def test_every_error_derives_from_the_one_base_and_is_drawn_in_the_tree() -> None:
    from kernellab import errors

    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(classes) > 10
    for cls in classes:
        assert issubclass(cls, errors.KernellabError)
        assert f"{cls.__name__} " in f"{errors.__doc__} ".replace("\n", " ")
