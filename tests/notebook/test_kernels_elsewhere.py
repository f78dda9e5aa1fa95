"""Kernels that are not bound at the top of a cell: in functions, classes, containers, loops, or other modules."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import triton

from kernellab import current_lab
from kernellab.errors import CompileError, UsageError
from tests.notebook.conftest import DOUBLE, Notebook

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LAUNCH = "{name}[(2,)](x, out, 100, BLOCK=64)\n"


def nested(name: str, factor: float = 2) -> str:
    """Return the definition of a kernel, indented."""
    return textwrap.indent(DOUBLE.format(name=name, factor=factor), "    ")


@pytest.fixture
def places(notebook: Notebook) -> Notebook:
    notebook.names.update(x=torch.arange(100.0, device=DEVICE), out=torch.zeros(100, device=DEVICE))
    return notebook


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the name of a module with a kernel, a function that launches it, and an autotuned kernel."""
    config = "@triton.autotune([triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128})], key=[])"
    text = f"import triton, triton.language as tl\n{DOUBLE.format(name='imported', factor=2)}"
    text += "def launch(x, out):\n    imported[(2,)](x, out, 100, BLOCK=64)\n"
    text += f"{config}{DOUBLE.format(name='imported_tuned', factor=2)}"
    (tmp_path / "module_of_kernels.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "module_of_kernels"
    sys.modules.pop("module_of_kernels", None)


def is_launched(places: Notebook) -> bool:
    return torch.equal(places.names["out"].cpu(), 2 * torch.arange(100.0))


@pytest.mark.slow
def test_a_kernel_in_a_function_is_reported_entered_and_bound(places: Notebook) -> None:
    cell = (
        f"def run():{nested('in_function')}    {LAUNCH.format(name='in_function')}    return in_function\nkept = run()"
    )
    ran = places.triton(cell)
    assert ran.error is None
    assert ran.shown[0]["text/plain"].startswith("in_function@1")
    assert is_launched(places)
    lab = current_lab()
    assert lab.kernels["in_function"] is places.names["kept"]


@pytest.mark.parametrize("launch", ["Kernels.in_class", "kernels['inner'][0]"])
def test_no_run_compiles_and_launches_nothing(places: Notebook, launch: str) -> None:
    cell = (
        f"class Kernels:{nested('in_class')}\nkernels = {{'inner': [Kernels.in_class]}}\n{LAUNCH.format(name=launch)}"
    )
    ran = places.triton(cell, "--no-run")
    assert ran.error is None
    assert "in_class@1" in ran.shown[0]["text/plain"]
    assert not places.names["out"].any()


@pytest.mark.slow
def test_a_kernel_that_a_loop_defines_and_launches_has_one_card_and_no_hint(places: Notebook) -> None:
    ran = places.triton(f"for _ in range(3):{nested('in_loop')}    {LAUNCH.format(name='in_loop')}")
    (card,) = ran.shown
    assert "3 launches" in card["text/plain"]
    assert "not launched" not in card["text/plain"]


def test_a_kernel_that_a_class_defines_and_nobody_launches_is_named_by_where_it_is(places: Notebook) -> None:
    ran = places.triton(f"class Kernels:{nested('unlaunched')}")
    assert "launch it with Kernels.unlaunched[grid](" in ran.shown[0]["text/plain"]


def test_a_helper_that_is_defined_again_and_called_by_a_kernel_of_another_cell_has_no_hint(places: Notebook) -> None:
    helper = "@triton.jit\ndef shifted(x):\n    return x + {}\n"
    kernel = (
        "@triton.jit\ndef shift(x_ptr, BLOCK: tl.constexpr):\n    i = tl.arange(0, BLOCK)\n"
        "    tl.store(x_ptr + i, shifted(tl.load(x_ptr + i)))\n"
    )
    places.triton(helper.format(1) + kernel)
    ran = places.triton(helper.format(2) + "shift[(1,)](x, BLOCK=64)")
    assert "shift@" in ran.shown[0]["text/plain"]
    assert "not launched" not in ran.shown[0]["text/plain"]


def test_a_kernel_that_an_earlier_cell_compiled_is_not_said_to_be_compiled_again(places: Notebook) -> None:
    launch = "at_once[(2,)](x, out, 100, BLOCK=64)\n"
    first = places.double("at_once", factor=2.8125, launch=launch + launch)
    assert "compiled in" in first.shown[0]["text/plain"]
    second = places.triton(launch).shown[0]["text/plain"]
    assert "compiled earlier" in second
    assert "compiled in" not in second


def test_two_kernels_of_one_function_that_nobody_launches_are_both_named(places: Notebook) -> None:
    cell = f"def make(factor):{nested('made', factor=2)}    return made\nkernels = [make(1), make(2)]"
    assert places.triton(cell).shown[0]["text/plain"].count("is defined and not launched") == 2


@pytest.mark.slow
def test_args_compile_a_kernel_of_a_class(places: Notebook) -> None:
    ran = places.triton(f"class Kernels:{nested('with_args')}", '--args "x, out, 100, BLOCK=64"')
    assert ran.error is None
    assert ran.shown[0]["text/plain"].startswith("with_args@1")


@pytest.mark.slow
def test_args_compile_an_imported_kernel(places: Notebook, module: str) -> None:
    ran = places.triton(f"from {module} import imported", '--args "x, out, 100, BLOCK=64"')
    assert ran.error is None
    assert ran.shown[0]["text/plain"].startswith("imported@1")


def test_an_imported_kernel_is_reported_and_stays_as_it_is(places: Notebook, module: str) -> None:
    before = dict(vars(triton.JITFunction))
    ran = places.triton(f"from {module} import imported\n{LAUNCH.format(name='imported')}", '--check "2 * x"')
    assert ran.error is None
    assert "out_ptr matches 2 * x; " in ran.shown[0]["text/plain"]
    assert type(places.names["imported"]) is triton.JITFunction
    after = dict(vars(triton.JITFunction))
    after.pop("__slotnames__", None)  # copyreg keeps it in a class when an instance is copied for the first time
    assert after == {name: value for name, value in before.items() if name != "__slotnames__"}


@pytest.mark.slow
def test_a_kernel_that_a_function_of_a_module_launches_is_recorded_and_not_run_where_nothing_is(
    places: Notebook, module: str
) -> None:
    ran = places.triton(f"import {module}\n{module}.launch(x, out)", "--no-run")
    assert "imported@" in ran.shown[0]["text/plain"]
    assert not places.names["out"].any()
    assert places.triton(f"{module}.launch(x, out)").error is None
    assert is_launched(places)
    lab = current_lab()
    assert lab.kernels.store.history.launches(lab.kernels.version("imported").id)


@pytest.mark.slow
def test_an_imported_autotuned_kernel_tells_which_config_it_took(places: Notebook, module: str) -> None:
    places.names.pop("chosen", None)
    cell = (
        f"from {module} import imported_tuned\nimported_tuned[(2,)](x, out, 100)\nchosen = imported_tuned.best_config"
    )
    ran = places.triton(cell)
    assert ran.error is None
    assert "imported_tuned@1" in ran.shown[0]["text/plain"]
    assert isinstance(places.names["chosen"], triton.Config)


@pytest.mark.slow
def test_hooks_that_an_imported_kernel_gets_later_are_called(places: Notebook, module: str) -> None:
    places.triton(f"from {module} import imported\n{LAUNCH.format(name='imported')}")
    cell = "called = []\nimported.add_pre_run_hook(lambda *args, **meta: called.append(1))\n"
    assert places.triton(cell + LAUNCH.format(name="imported")).error is None
    assert places.names["called"] == [1]


@pytest.mark.slow
def test_a_kernel_of_an_ordinary_cell_is_reported(places: Notebook) -> None:
    places.run(f"import triton, triton.language as tl\n{DOUBLE.format(name='ordinary', factor=2)}")
    assert places.triton(LAUNCH.format(name="ordinary")).shown[0]["text/plain"].startswith("ordinary@1")
    assert type(places.names["ordinary"]) is triton.JITFunction


@pytest.mark.slow
def test_a_launch_of_a_thread_of_the_cell_is_one_of_the_cell(places: Notebook) -> None:
    thread = "import threading\nthread = threading.Thread(target=lambda: {launch})\nthread.start()\nthread.join()\n"
    cell = DOUBLE.format(name="in_thread", factor=2) + thread.format(launch=LAUNCH.format(name="in_thread").strip())
    ran = places.triton(cell, "--no-run")
    assert "in_thread@1" in ran.shown[0]["text/plain"]
    assert not places.names["out"].any()
    assert places.triton(cell, '--check "2 * x"').error is None


@pytest.mark.slow
def test_a_name_is_given_to_a_kernel_of_elsewhere(places: Notebook, module: str) -> None:
    assert places.triton(f"import {module}\n{module}.launch(x, out)", "--name own_name").error is None
    lab = current_lab()
    assert lab.kernels.version("own_name").name == "own_name"


@pytest.mark.slow
def test_a_cell_with_sliders_takes_the_launch_of_a_function(places: Notebook) -> None:
    cell = f"def run():{nested('explored_inside')}    {LAUNCH.format(name='explored_inside')}run()"
    ran = places.triton(cell, "--explore")
    assert ran.error is None
    assert any("Exploring explored_inside" in shown["text/plain"] for shown in ran.shown)


@pytest.mark.slow
def test_configs_of_a_kernel_in_a_function_are_compared(places: Notebook) -> None:
    config = "    @triton.autotune([triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128})], key=[])"
    cell = f"def run():\n{config}{nested('tuned_inside')}    tuned_inside[(2,)](x, out, 100)\nrun()"
    ran = places.triton(cell, "--tune")
    assert ran.error is None
    assert any("tuned_inside" in shown["text/plain"] for shown in ran.shown)


@pytest.mark.slow
def test_a_launch_in_the_expression_of_a_check_is_none_of_the_cell(places: Notebook) -> None:
    places.triton(
        f"def doubled(x):\n    out = torch.zeros_like(x)\n    {LAUNCH.format(name='by_reference')}    return out\n"
    )
    places.triton(DOUBLE.format(name="by_reference", factor=2))
    cell = DOUBLE.format(name="judged", factor=2) + LAUNCH.format(name="judged")
    ran = places.triton(cell, '--check "doubled(x)"')
    assert ran.error is None
    assert len(ran.shown) == 1
    assert "by_reference" not in ran.shown[0]["text/plain"]


@pytest.mark.slow
def test_args_compile_a_kernel_of_an_earlier_cell_that_gets_another_name(places: Notebook) -> None:
    places.triton(DOUBLE.format(name="renamed", factor=2))
    ran = places.triton("other_name = renamed", '--args "x, out, 100, BLOCK=64"')
    assert ran.error is None
    assert ran.shown[0]["text/plain"].startswith("renamed@1")


def test_an_imported_kernel_that_does_not_compile_is_not_entered(places: Notebook, tmp_path: Path) -> None:
    text = f"import triton, triton.language as tl\n{DOUBLE.format(name='broken_import', factor='nowhere')}"
    (tmp_path / "broken_kernels.py").write_text(text)
    sys.path.insert(0, str(tmp_path))
    try:
        ran = places.triton(f"from broken_kernels import broken_import\n{LAUNCH.format(name='broken_import')}")
    finally:
        sys.path.remove(str(tmp_path))
    assert isinstance(ran.error, CompileError)
    lab = current_lab()
    assert "broken_import" not in lab.kernels


def test_two_autotuners_of_an_imported_kernel_are_refused(places: Notebook, tmp_path: Path) -> None:
    config = "@triton.autotune([triton.Config({'BLOCK': 64})], key=[])"
    twice = f"import triton, triton.language as tl\n{config}\n{config}{DOUBLE.format(name='twice', factor=2)}"
    (tmp_path / "twice_tuned.py").write_text(twice)
    sys.path.insert(0, str(tmp_path))
    try:
        ran = places.triton("from twice_tuned import twice\ntwice[(2,)](x, out, 100)")
    finally:
        sys.path.remove(str(tmp_path))
    assert isinstance(ran.error, UsageError)
    assert "2 times" in str(ran.error)


@pytest.mark.slow
def test_a_kernel_that_a_function_of_an_earlier_cell_makes_is_bound(places: Notebook) -> None:
    places.triton(f"def make():{nested('made_later')}    return made_later")
    assert (
        places.triton(f"made = make()\n{LAUNCH.format(name='made')}").shown[0]["text/plain"].startswith("made_later@1")
    )
    assert type(places.names["made"]) is not triton.JITFunction


@pytest.mark.slow
def test_kernels_that_are_made_anew_for_each_launch_have_one_card_and_do_not_stay(
    places: Notebook, module: str
) -> None:
    cell = f"def make():{nested('made_anew')}    return made_anew\n"
    cell += "for _ in range(5):\n    make()[(2,)](x, out, 100, BLOCK=64)"
    (card,) = places.triton(cell).shown
    assert card["text/plain"].count("made_anew@1") == 1
    assert "5 launches" in card["text/plain"]


@pytest.mark.slow
def test_a_traced_launch_of_an_imported_kernel_is_a_node(places: Notebook, module: str) -> None:
    cell = f"""
import {module}
from torch.fx.experimental.proxy_tensor import make_fx
graph = make_fx(lambda x, out: ({module}.launch(x, out), out + 1)[1])(x, out)
"""
    assert places.triton(cell).error is None
    assert "triton_kernel_wrapper" in places.names["graph"].code


@pytest.mark.slow
def test_a_capture_holds_the_launch_of_an_imported_kernel(places: Notebook, module: str) -> None:
    assert places.triton(f"import {module}\n{module}.launch(x, out)", "--capture captured").error is None
    assert "1 step from 2 inputs" in str(places.names["captured"])


@pytest.mark.gpu
def test_the_first_launch_of_a_kernel_in_a_function_is_tried_on_a_gpu(places: Notebook) -> None:
    stray = (
        nested("stray")
        .replace("mask=mask)\n", "mask=mask)\n", 1)
        .replace("out_ptr + offsets", "out_ptr + offsets + 4096")
    )
    ran = places.triton(f"def run():{stray}    {LAUNCH.format(name='stray')}run()")
    assert ran.error is not None
    assert "stray" in str(ran.error)
    assert bool((places.names["x"] == torch.arange(100.0, device=DEVICE)).all())
