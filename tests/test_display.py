"""Results show themselves where nobody has registered anything: in a plain shell, in marimo, in what asks for HTML."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from kernellab.display import Bundle, Displayable, DisplayHook
from kernellab.ir.effects import NO_EFFECTS
from kernellab.launch.run import Finding, FindingKind, Run, Severity
from kernellab.timing.provenance import Ceilings
from kernellab.views.bundles import bundle_of
from kernellab.views.card_table import BUNDLES
from kernellab.views.report import CellReport

RUN = Run(
    kernel="add_kernel",
    grid=(4, 1, 1),
    seconds=0.25,
    changed={"out": 1024, "x<y>": 0},
    findings=(Finding(FindingKind.RACE, Severity.WARNING, "out", "In[1]", 3, (0, 0, 0), "two programs write it"),),
    where="interpreter",
    output="hello <world>\n",
    notes=("bf16 arithmetic is rounded after each operation",),
)


def test_every_type_that_is_drawn_shows_itself() -> None:
    assert [kind.__name__ for kind in (CellReport, *BUNDLES) if not issubclass(kind, Displayable)] == []


def test_a_plain_shell_shows_html_beside_text() -> None:
    data, _ = InteractiveShell().display_formatter.format(NO_EFFECTS)
    assert "kl-card" in data["text/html"]
    assert data["text/plain"] == bundle_of(NO_EFFECTS)["text/plain"]


def test_what_asks_for_html_alone_gets_it() -> None:
    assert RUN._repr_html_() == bundle_of(RUN)["text/html"]
    assert Ceilings("NVIDIA H200", "580", 4000.0)._repr_html_() is None  # of which there is text alone


def test_marimo_gets_a_mime_type_and_its_text() -> None:
    assert RUN._mime_() == ("text/html", bundle_of(RUN)["text/html"])


def test_a_run_shows_what_it_did_with_markup_escaped() -> None:
    html, text = bundle_of(RUN)["text/html"], bundle_of(RUN)["text/plain"]
    for words in ("add_kernel", "1,024", "two programs write it", "bf16 arithmetic"):
        assert words in html
    assert "x&lt;y&gt;" in html
    assert "hello &lt;world&gt;" in html
    assert "hello <world>" in text


def test_views_are_looked_for_when_the_first_result_shows() -> None:
    asked: list[Any] = []

    def find() -> Any:
        asked.append("find")
        return SimpleNamespace(bundle_of=lambda result: {"text/plain": f"drawn {result}"})

    hook = DisplayHook()
    assert hook.bundle(1) == {"text/plain": "1"}
    hook.install(find, find)
    assert asked == []
    assert hook.bundle(2) == {"text/plain": "drawn 2"}


def test_a_type_that_nobody_draws_shows_its_repr() -> None:
    @dataclass(frozen=True, slots=True)
    class Unknown(Displayable):
        size: int

    bundle: Bundle = Unknown(3)._repr_mimebundle_()
    assert bundle == {"text/plain": repr(Unknown(3))}
    assert Unknown(3)._mime_() == ("text/plain", repr(Unknown(3)))


@pytest.mark.slow
def test_a_result_shows_where_the_extension_was_never_loaded() -> None:
    code = """
import sys
from kernellab.ir.effects import NO_EFFECTS
loaded = set(sys.modules)
print(NO_EFFECTS._mime_()[0], 'kernellab.views.bundles' in loaded, 'IPython' in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["text/html", "False", "False"]
