from __future__ import annotations

import re
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
LINKS = re.findall(r"\]\((?!https?:|#)([^)#]+)", PROSE)


@pytest.mark.slow
def test_every_snippet_of_the_readme_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(SNIPPETS) >= 5
    monkeypatch.setenv("KERNELLAB_STORE", str(tmp_path))  # which no other test has put kernels of these names into
    shell = InteractiveShell.instance()
    try:
        for snippet in SNIPPETS:
            shell.run_cell(snippet, store_history=True).raise_error()
        shown = capsys.readouterr().out
    finally:
        shell.run_line_magic("unload_ext", "kernellab")
        InteractiveShell.clear_instance()
    assert "add_kernel@1" in shown
    assert "hip:gfx942 ['ttir', 'ttgir', 'llir', 'amdgcn']" in shown
    assert "careless_kernel" in shown


@pytest.mark.parametrize("link", LINKS)
def test_every_link_of_the_readme_leads_to_a_file(link: str) -> None:
    assert (ROOT / link).exists()
