"""`%triton_ls`: what was kept, from which notebook and cell, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

import kernellab
from kernellab.registry.listing import search
from kernellab.views.cards.listing import listing_card
from tests.labs import shell_with_extension
from tests.notebook.conftest import DOUBLE, Notebook

HELPED = """
@triton.jit
def helper(x):
    return x + x
""" + DOUBLE.replace("{factor} * tl.load(x_ptr + offsets, mask=mask)", "helper(tl.load(x_ptr + offsets, mask=mask))")
LAUNCH = "\n{name}[(1,)](x, out, 100, BLOCK=128)"


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JPY_SESSION_NAME", "work/tuning.ipynb")
        with shell_with_extension() as shell:
            shell.user_ns.update(x=torch.arange(100.0), out=torch.zeros(100))
            notebook = Notebook(shell)
            assert notebook.triton(HELPED.format(name="helped") + LAUNCH.format(name="helped")).error is None
            assert notebook.double("lonely").error is None
            assert notebook.double("prepared", launch=LAUNCH.format(name="prepared"), options="--no-run").error is None
            broken = notebook.double("broken", factor="tl.arrange(0, 3)", launch=LAUNCH.format(name="broken"))  # type: ignore[arg-type]
            assert "did you mean tl.arange" in str(broken.error)
            yield shell


def listed(line: str, shell: InteractiveShell) -> list[str]:
    return [row.label.partition("@")[0] for row in shell.run_line_magic("triton_ls", line).rows]


@pytest.mark.slow
def test_the_latest_comes_first_with_status_notebook_cell_and_last_config(shell: InteractiveShell) -> None:
    listing = shell.run_line_magic("triton_ls", "")
    assert [(row.label, str(row.status)) for row in listing.rows] == [
        ("broken@1", "failed"),
        ("prepared@1", "compiled"),
        ("lonely@1", "never launched"),
        ("helped@1", "launched"),
        ("helper@1", "helper"),
    ]
    assert {row.notebook for row in listing.rows} == {"tuning.ipynb"}
    assert listing.rows[0].cell.startswith("In[")
    assert listing.rows[3].last_config.startswith("BLOCK=128, num_warps=")
    assert "did you mean tl.arange?" in listing.rows[0].error
    head, *rows = listing_card(listing).text().splitlines()
    assert head.split() == ["kernel", "id", "status", "launches", "last", "last", "config", "notebook", "cell"]
    assert "did you mean tl.arange?" in rows[1]


def test_filters_by_name_status_notebook_and_time(shell: InteractiveShell) -> None:
    assert listed("--name help*", shell) == ["helped", "helper"]
    assert listed("--status never", shell) == ["lonely"]
    assert listed("--status failed", shell) == ["broken"]
    assert listed("--notebook other", shell) == []
    assert listed("--since 1h --notebook tuning --name l*", shell) == ["lonely"]
    assert listed("--since 2100-01-01", shell) == []
    with pytest.raises(kernellab.KernellabError, match=r"status is 'lost'; expected one of launched, run, compiled"):
        listed("--status lost", shell)
    with pytest.raises(kernellab.KernellabError, match="since is 'soon'; expected a date"):
        listed("--since soon", shell)


def test_older_versions_are_counted_and_shown_by_all(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernellab.registry.listing._MOST_ROWS", 2)
    store = kernellab.current_lab().kernels.store
    assert listing_card(search(store)).text().splitlines()[-1] == "3 older versions not shown; --all shows them."
    assert len(shell.run_line_magic("triton_ls", "--all").rows) == 5


def test_a_kernel_that_compiles_at_last_is_launched(shell: InteractiveShell) -> None:
    shell.user_ns["ok"] = 0
    cell = "%%triton -q\n@triton.jit\ndef later(x_ptr, N: tl.constexpr):\n    tl.store(x_ptr + tl.arange(0, N), 1.0)\n"
    shell.run_cell(cell + "later[(1,)](out, N=3)")
    assert listed("--status failed --name later", shell) == ["later"]
    shell.run_cell("later[(1,)](out, N=4)")
    assert listed("--status launched --name later", shell) == ["later"]


def test_a_kernel_whose_only_launch_failed_is_listed_with_the_error(shell: InteractiveShell) -> None:
    body = DOUBLE.format(name="careless", factor=2).replace("mask = offsets < n", "mask = offsets >= 0")
    result = shell.run_cell(f"%%triton -q\n{body}\ncareless[(1,)](x, out, 100, BLOCK=128)")
    assert isinstance(result.error_in_exec, kernellab.errors.OutOfBounds)
    (row,) = shell.run_line_magic("triton_ls", "--name careless").rows
    assert (str(row.status), row.launches) == ("failed", 0)
    assert "out of bounds: element 100" in row.error


def test_a_kernel_that_was_called_with_missing_arguments_was_never_launched(shell: InteractiveShell) -> None:
    shell.run_cell(f"%%triton -q\n{DOUBLE.format(name='uncalled', factor=2)}\nuncalled[(1,)](x, out, 100)")
    assert listed("--status never --name uncalled", shell) == ["uncalled"]
