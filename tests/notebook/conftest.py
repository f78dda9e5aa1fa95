"""A real IPython shell with the extension loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from tests.labs import shell_with_extension

DOUBLE = """
@triton.jit
def {name}(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, {factor} * tl.load(x_ptr + offsets, mask=mask), mask=mask)
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one cell did: its error if it raised, what it displayed by MIME type, and what it printed.

    ``display_ids`` has the id of each display, None without one, and ``is_update`` whether it replaced an earlier one.
    """

    error: BaseException | None
    shown: list[dict[str, Any]] = field(default_factory=list)
    printed: str = ""
    display_ids: list[str | None] = field(default_factory=list)
    is_update: list[bool] = field(default_factory=list)

    @property
    def error_lines(self) -> list[str]:
        assert self.error is not None
        return [line.replace("\n", " ") for line in self.error._render_traceback_()]  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Notebook:
    """Runs cells; ``names`` is the user's namespace."""

    shell: InteractiveShell

    @property
    def names(self) -> dict[str, Any]:
        return self.shell.user_ns

    @property
    def cell_number(self) -> int:
        """The number of the cell that ran last."""
        return len(self.shell.user_ns["In"]) - 1

    def run(self, cell: str) -> Ran:
        with capture_output() as captured:
            result = self.shell.run_cell(cell, store_history=True)
        outputs = captured.outputs
        return Ran(
            result.error_in_exec,
            [output.data for output in outputs],
            captured.stdout,
            [(output.transient or {}).get("display_id") for output in outputs],
            [output.update for output in outputs],
        )

    def triton(self, body: str, options: str = "") -> Ran:
        return self.run(f"%%triton {options}\n{body.strip()}\n")

    def double(self, name: str, *, factor: float = 2, launch: str = "", options: str = "") -> Ran:
        """Run a cell that defines a kernel which doubles, and launches it as ``launch`` says."""
        return self.triton(DOUBLE.format(name=name, factor=factor) + launch, options)


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    with shell_with_extension() as shell:
        yield shell


@pytest.fixture
def notebook(shell: InteractiveShell) -> Notebook:
    """Return a notebook whose tensors ``x`` (0 to 99) and ``out`` (zeros) are fresh."""
    shell.user_ns.update(torch=torch, x=torch.arange(100.0), out=torch.zeros(100))
    return Notebook(shell)
