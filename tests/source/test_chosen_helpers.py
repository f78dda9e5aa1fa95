"""Helpers of installed packages that choose them as they are imported: by a device, or by the environment.

The package of these tests chooses by a variable that is set while this process imports it, and in no worker.
"""

from __future__ import annotations

import importlib
import linecache
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kernellab import Lab
from kernellab._triton.closure import closure_of, decorated_closure_of
from kernellab._triton.loading import load
from kernellab.errors import SourceError
from kernellab.source import Helper, Import, closure_of_json, closure_to_jsonable
from tests.labs import shared_lab

CHOICES = """\
import os
import triton
import triton.language as tl

FACTOR = tl.constexpr(3 if os.environ.get("CHOOSE") else 5)
OPAQUE = object()

if os.environ.get("CHOOSE"):
    @triton.jit
    def scaled(x):
        return x * 2

    @triton.constexpr_function
    def width():
        return 7
else:
    @triton.jit
    def scaled(x):
        return x * 11

    @triton.constexpr_function
    def width():
        return 13


@triton.jit
def both(x):
    return scaled(x) + FACTOR + width()
"""
CHOSEN = 2 * 1 + 3 + 7
ELSEWHERE = 11 * 1 + 5 + 13
KERNEL = """\
@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, {call}(tl.load(x_ptr + offsets)))
"""
WAYS = {
    "name": ("from choices.maths import both", "both"),
    "alias": ("from choices.maths import both as mine", "mine"),
    "module": ("from choices import maths", "maths.both"),
    "package": ("import choices.maths", "choices.maths.both"),
}


@pytest.fixture
def choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package that is installed as far as anybody can tell."""
    folder = tmp_path / "site-packages"
    (folder / "choices").mkdir(parents=True)
    (folder / "choices" / "__init__.py").touch()
    (folder / "choices" / "maths.py").write_text(CHOICES)
    monkeypatch.syspath_prepend(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHOOSE", "1")
        yield importlib.import_module("choices.maths")
    for name in [name for name in sys.modules if name.partition(".")[0] == "choices"]:
        del sys.modules[name]


def kernel_of(way: str) -> Any:
    """Return a kernel that calls the helper in one way, as a cell would define it."""
    imported, call = WAYS[way]
    text, file = KERNEL.format(call=call), f"In[{way}]"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"triton": triton, "tl": tl}
    exec(imported, namespace)
    exec(compile(text, file, "exec"), namespace)
    return namespace["kernel"]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(target="cuda:90", store=":memory:") as opened:  # whose workers start when the variable is gone
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_function_of_this_process_is_compiled_and_run(
    choices: ModuleType, monkeypatch: pytest.MonkeyPatch, lab: Lab, way: str
) -> None:
    kernel = kernel_of(way)
    monkeypatch.delenv("CHOOSE", raising=False)
    x = torch.ones(16)
    lab.run(kernel, (1,), x, BLOCK=16)
    assert x.tolist() == [CHOSEN] * 16
    ttir = lab.compile(kernel, x, BLOCK=16).ttir
    assert "dense<2.0" in ttir
    assert "dense<1.1" not in ttir


def test_a_helper_comes_along_with_the_values_that_it_names(choices: ModuleType) -> None:
    for way in WAYS:
        closure, _ = closure_of(kernel_of(way))
        assert {function.name for function in closure.functions} == {"kernel", "both", "scaled", "width"}
        assert closure_of_json(closure_to_jsonable(closure)) == closure
        assert load(closure).kernel.fn.__name__ == "kernel"


def test_helpers_of_two_choices_are_two_versions(choices: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    first = closure_of(kernel_of("module"))[0]
    monkeypatch.delenv("CHOOSE", raising=False)
    importlib.reload(choices)
    assert closure_of(kernel_of("module"))[0].digest != first.digest


def test_a_value_of_the_package_that_cannot_be_written_down_is_imported(choices: ModuleType) -> None:
    text = KERNEL.format(call="maths.both").replace("offsets = ", "maths.OPAQUE\n    offsets = ")
    linecache.cache["In[opaque]"] = (len(text), None, text.splitlines(keepends=True), "In[opaque]")
    namespace = {"triton": triton, "tl": tl, "maths": choices}
    exec(compile(text, "In[opaque]", "exec"), namespace)
    closure, _ = closure_of(namespace["kernel"])  # type: ignore[arg-type]
    members = dict(dict(closure.functions[0].bindings)["maths"].members)  # type: ignore[union-attr]
    assert members["OPAQUE"] == Import("choices.maths", "OPAQUE")
    assert isinstance(members["both"], Helper)


@pytest.mark.slow
def test_a_kept_kernel_has_its_helper_in_a_later_session(
    choices: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with shared_lab("cuda:90", tmp_path / "store") as lab:
        lab.kernels.add(kernel_of("module"))
    monkeypatch.delenv("CHOOSE", raising=False)
    importlib.reload(choices)
    x = torch.ones(16)
    with shared_lab("cuda:90", tmp_path / "store") as lab:
        lab.run(lab.kernels["kernel"], (1,), x, BLOCK=16)
    assert x.tolist() == [CHOSEN] * 16


@pytest.mark.slow
@pytest.mark.parametrize("way", ["name", "package"])
def test_an_exported_module_imports_the_helper(
    choices: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    x = torch.ones(16)
    with shared_lab("cuda:90", tmp_path / "store") as lab:
        kernel = kernel_of(way)
        lab.kernels.add(kernel)
        lab.run(kernel, (1,), x, BLOCK=16)
        path = Path(lab.export("kernel", tmp_path / "exported.py").path)
    text = path.read_text()
    assert "from choices.maths import both" in text
    assert "def both" not in text
    assert "def scaled" not in text
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("CHOOSE", "1")
    program = (
        "import exported, torch\nx = torch.ones(16)\nexported.kernel[(1,)](x, BLOCK=16)\n"
        "print(x.tolist() == [12.0] * 16)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr


def test_an_import_that_is_another_function_than_it_was_is_refused(choices: ModuleType) -> None:
    closure = decorated_closure_of(kernel_of("name"))
    helper = dict(closure.functions[0].bindings)["both"]
    assert isinstance(helper, Helper)
    kept = replace(closure.functions[0], bindings=(("both", helper.imported), ("tl", Import("triton.language"))))
    of_earlier_release = replace(closure, functions=(kept,))
    load(of_earlier_release)
    other = replace(kept, bindings=(("both", replace(helper.imported, fingerprint="0")), kept.bindings[1]))
    with pytest.raises(SourceError, match=r"choices\.maths\.both differs from the function .*Define the"):
        load(replace(closure, functions=(other,)))
