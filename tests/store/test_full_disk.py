"""What a session does on a disk that fills up, or cannot be written any more, after it has begun."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import kernellab
from kernellab.store import Store
from kernellab.workers.scratch import Scratch
from tests import samples

X = torch.ones(64)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(place)], check=False).returncode:
        pytest.skip("this user can mount no disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> None:
    """Leave no room on a disk."""
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def launch(lab: kernellab.Lab, block: int) -> Path:
    """Compile a kernel anew, launch it, and return where its files are."""
    before = X.clone()
    out = torch.zeros(64)
    lab.run(samples.add_kernel, (1,), X, X, out, 64, BLOCK=block)
    assert torch.equal(out, 2 * before)
    return lab.compile(samples.add_kernel, X, X, out, 64, BLOCK=block).folder


@pytest.mark.slow
@pytest.mark.parametrize("is_temporary", [False, True])
def test_a_session_on_a_disk_that_fills_up_goes_on_in_memory_and_says_so_once(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, is_temporary: bool
) -> None:
    with kernellab.Lab(target="cuda:90", store=small_disk / "store") as lab:
        lab.kernels.add(samples.add_kernel)
        launch(lab, 64)
        if is_temporary:
            monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
        fill(small_disk)
        with pytest.warns(UserWarning, match="cannot be written .No space left on device.*kept in memory") as told:
            folders = {launch(lab, 64 * 2**n) for n in range(1, 4)}
        lab.kernels.add(samples.doubled)
        assert len(told) == 1
        assert len(folders) == 3
        assert not any(folder.is_relative_to(small_disk) for folder in folders)
        assert all((folder / "kernellab.json").exists() for folder in folders)
        assert [version.label for version in lab.kernels] == ["add_kernel@1", "doubled@1"]
        assert sum(lab.frame("launches")["count"]) == 4
    assert not any(folder.exists() for folder in folders)
    (small_disk / "filler").unlink()
    assert [version.label for version in Store(small_disk / "store").versions()] == ["add_kernel@1"]


@pytest.mark.slow
def test_a_session_starts_and_runs_on_a_full_disk(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    fill(small_disk)
    with pytest.warns(UserWarning, match="cannot be written") as told:
        lab = kernellab.Lab(target="cuda:90", store=small_disk / "store")
    with lab:
        assert not launch(lab, 64).is_relative_to(small_disk)
    assert len(told) == 1


@pytest.mark.slow
def test_a_folder_that_takes_no_compiled_kernels_costs_the_store_nothing(tmp_path: Path) -> None:
    with kernellab.Lab(target="cuda:90", store=tmp_path / "store") as lab:
        lab.kernels.add(samples.add_kernel)
        launch(lab, 64)
        artifacts = tmp_path / "store" / "artifacts"
        artifacts.rename(tmp_path / "elsewhere")
        artifacts.touch()
        with pytest.warns(UserWarning, match="Compiled kernels cannot be written to .*artifacts") as told:
            folders = {launch(lab, 64 * 2**n) for n in range(3)}
        assert (len(told), len(folders)) == (1, 3)
        assert lab.kernels.store.path is not None


def test_temporary_folders_go_where_room_is(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    with Scratch() as folder:
        assert folder.is_relative_to(small_disk)
    fill(small_disk)
    with Scratch() as folder:
        assert not folder.is_relative_to(small_disk)
        (folder / "file").write_bytes(bytes(4096))
    assert not folder.exists()
