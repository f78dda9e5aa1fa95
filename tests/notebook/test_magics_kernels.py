"""The magics over what is kept, in a real shell, and in a second one on the same store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from triton.runtime.autotuner import Autotuner

import kernellab
from kernellab.errors import UnknownName, UsageError
from kernellab.registry import Listing, LoadedVersion
from kernellab.store import Measurement, Store
from kernellab.views.cards.kernels import merged_card
from kernellab.views.cards.listing import age_words, exported_card, listing_card, loaded_card
from tests.alone import run_with_lab
from tests.labs import shell_with_extension
from tests.registry.kept import entered, key, measured

CELL = '''\
%%triton -q
FACTOR = tl.constexpr(3)

@triton.jit
def scaled(value):
    """Keeps 'quotes' and "others" \\\\ intact."""
    return value * FACTOR

@triton.autotune([triton.Config({"BLOCK": 2 ** i}, num_warps=2) for i in (7, 8)], key=["n"])
@triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})
@triton.jit
def scale_kernel(x_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, scaled(tl.load(x_ptr + offsets, mask=offsets < n)), mask=offsets < n)

x, out = torch.arange(300.0), torch.zeros(300)
scale_kernel[lambda meta: (triton.cdiv(300, meta["BLOCK"]),)](x, out, 300)
'''

RESTARTED = """\
import torch
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell('%load_ext kernellab').raise_error()
shell.run_cell('%triton_load scale_kernel@1').raise_error()
x, out = torch.arange(300.0), torch.zeros(300)
kernel = shell.user_ns['scale_kernel']
kernel[lambda meta: (-(-300 // meta['BLOCK']),)](x, out, 300)
torch.testing.assert_close(out, 3 * x)
helper = shell.user_ns['scaled'].__name__
print(type(kernel).__mro__[1].__name__, [c.kwargs for c in kernel.configs], kernel.keys, helper)
shell.run_cell('%unload_ext kernellab').raise_error()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def shell(folder: Path) -> Iterator[InteractiveShell]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELLAB_STORE", str(folder))
        with shell_with_extension() as shell:
            shell.run_cell(CELL).raise_error()
            yield shell


@pytest.fixture
def value(shell: InteractiveShell) -> Callable[[str], Any]:
    """Return a function that runs a cell and returns its value."""

    def go(text: str) -> Any:
        result = shell.run_cell(text)
        result.raise_error()
        return result.result

    return go


def current() -> kernellab.Lab:
    return kernellab.current_lab()


@pytest.mark.slow
def test_a_listing_has_version_launch_config_and_tags(value: Callable[[str], Any]) -> None:
    shown = value("%triton_tag scale_kernel@1 good fp32 --note 'the first that works'")
    assert isinstance(shown, Listing)
    (row,) = value("%triton_ls scale_kern").rows
    assert (row.label, row.launches, row.tags) == ("scale_kernel@1", 1, ("fp32", "good"))
    assert row.notes == ("the first that works",)
    assert row.config.startswith("BLOCK=128")
    assert row.last_launch is not None
    assert [r.label for r in value("%triton_ls first that").rows] == ["scale_kernel@1"]
    assert value("%triton_ls nothing of the kind").rows == ()
    (row,) = value("%triton_tag scale_kernel good --remove").rows
    assert row.tags == ("fp32",)


@pytest.mark.slow
def test_a_listing_shows_as_text_and_html(value: Callable[[str], Any]) -> None:
    listing = value("%triton_ls")
    text, html = listing_card(listing).text(), listing_card(listing).html()
    for shown in (text, html):
        assert "scale_kernel@1" in shown
        assert "BLOCK=128" in shown
    assert text.splitlines()[0].split()[:3] == ["kernel", "id", "status"]
    assert "No kernel matches 'zzz'" in listing_card(value("%triton_ls zzz")).text()
    assert [age_words(s) for s in (3, 61, 7300, 90_000)] == ["just now", "1 minute ago", "2 hours ago", "1 day ago"]


def test_measurements_give_the_best_config_and_time(value: Callable[[str], Any]) -> None:
    version = current().kernels.version("scaled")
    rows = [Measurement("k", {"BLOCK": b, "num_warps": 4}, "H200", "ok", ms) for b, ms in ((64, 0.5), (128, 0.25))]
    current().kernels.store.history.add_measurements(version.id, rows)
    (row,) = value("%triton_ls scaled@").rows or value("%triton_tag scaled").rows
    assert (row.config, row.best_ms, row.where) == ("BLOCK=128, num_warps=4", 0.25, "H200")
    assert "250 us (H200)" in listing_card(value("%triton_tag scaled")).text()


def test_a_kernel_is_defined_again_with_its_helpers(shell: InteractiveShell, value: Callable[[str], Any]) -> None:
    del shell.user_ns["scale_kernel"], shell.user_ns["scaled"]
    loaded = value("%triton_load scale_kernel@1")
    assert isinstance(loaded, LoadedVersion)
    assert loaded.names == ("scale_kernel", "scaled")
    assert isinstance(shell.user_ns["scale_kernel"], Autotuner)
    assert "@triton.autotune" in loaded_card(loaded).text()
    assert "def scale_kernel" in loaded_card(loaded).html()
    assert value("%triton_load scale_kernel --as other").names[0] == "other"


@pytest.mark.slow
def test_a_new_session_launches_the_kernel_with_its_decorators(
    shell: InteractiveShell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELLAB_STORE", str(folder))
    monkeypatch.setenv("HOME", str(folder))
    result = run_with_lab(RESTARTED, folder=folder)
    assert result.returncode == 0, result.stderr + result.stdout
    assert "Autotuner [{'BLOCK': 128}, {'BLOCK': 256}] ['n'] scaled" in result.stdout


def test_a_version_is_removed_only_by_its_number(value: Callable[[str], Any]) -> None:
    value("%%triton -q\n@triton.jit\ndef gone(x_ptr):\n    tl.store(x_ptr, 1)\n")
    value("%%triton -q\n@triton.jit\ndef gone(x_ptr):\n    tl.store(x_ptr, 2)\n")
    with pytest.raises(UsageError, match="gone@1, gone@2"):
        value("%triton_rm gone")
    left = value("%triton_rm gone@2")
    assert [row.label for row in left.rows] == ["gone@1"]
    assert listing_card(left).text().startswith("gone@2 is deleted; left are:\n")
    assert "gone@2 is deleted; left are:" in listing_card(left).html()
    with pytest.raises(UnknownName):
        current().kernels["gone@2"]
    assert current().kernels.version("gone").label == "gone@1"
    assert listing_card(value("%triton_rm gone@1")).text() == "gone@1 is deleted; nothing is left under its name."


@pytest.mark.slow
def test_magics_export_and_compare_kept_kernels(value: Callable[[str], Any], tmp_path: Path) -> None:
    exported = value(f"%triton_export scale_kernel@1 --to {tmp_path / 'k.py'}")
    assert exported_card(exported).text().startswith("scale_kernel@1 was written as")
    assert (tmp_path / "k.py").read_text().count("def scale_kernel(") == 1
    value(f"%triton_export scale_kernel@1 --as bundle --to {tmp_path / 'k.zip'}")
    value(f'%triton_export scale_kernel@1 --to "{tmp_path / "in quotes.py"}"')
    assert (tmp_path / "in quotes.py").exists()
    assert value(f"%triton_load {tmp_path / 'k.zip'}").row.label == "scale_kernel@1"
    entered(theirs := Store(tmp_path / "of a colleague"), (measured(key(), 1.0), 0))
    theirs.close()
    merged = value(f'%triton_merge "{tmp_path / "of a colleague"}"')
    assert "add_kernel@1; 1 measurement entered" in merged_card(merged).text()
    comparison = value("%triton_diff scale_kernel@1 scale_kernel")
    assert comparison.equal
    with pytest.raises(UsageError, match="expected one of module, torch-op"):
        value("%triton_export scale_kernel --as wheel")
