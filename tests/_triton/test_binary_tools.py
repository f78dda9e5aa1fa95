"""The processes of the tools that read a binary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernellab._triton import binary_tools


def test_resources_that_are_not_asked_for_in_the_end_leave_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools: list[Any] = []
    start = binary_tools._start_tool
    monkeypatch.setattr(binary_tools, "_start_tool", lambda *command: tools.append(start(*command)) or tools[-1])
    with pytest.raises(OSError, match="full"), binary_tools.reading_resources(tmp_path / "absent.cubin"):
        raise OSError("full")
    assert tools[0].returncode is not None
    assert tools[0].stdout.closed
