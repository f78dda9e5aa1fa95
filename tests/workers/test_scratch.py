"""Files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernellab.workers.scratch import write_whole


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", b"old")
    write_whole(tmp_path / "a.json", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.json", b"new")]


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_whole(tmp_path / "folder", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
