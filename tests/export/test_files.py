"""Pages, bundles, and the magic that writes them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.errors import UsageError
from kernellab.export import EXPORT_KINDS
from kernellab.export.write import WRITERS
from kernellab.store import Measurement
from kernellab.views.cards.listing import exported_card
from tests.export.test_module import SCALE, cell, tensors
from tests.labs import shared_lab


@pytest.fixture
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab(target="cuda:80", store=":memory:") as opened:
        cell(opened, SCALE, **tensors())
        version = opened.kernels.version("scale")
        rows = [Measurement("k", {"BLOCK": 128}, "H200", "ok", 0.25, {"samples": 5})]
        opened.kernels.store.history.add_measurements(version.id, rows)
        opened.kernels.store.tag(version.id, ["good"])
        opened.kernels.store.note(version.id, "<first> of all")
        yield opened


@pytest.mark.slow
def test_a_bundle_brings_kernel_and_history_to_another_store(lab: kernellab.Lab, tmp_path: Path) -> None:
    lab.export("scale", tmp_path / "scale.zip", kind="bundle")
    namespace: dict[str, Any] = {}
    with shared_lab(target="cuda:80", store=tmp_path / "other") as other:
        loaded = other.load(tmp_path / "scale.zip", namespace)
        assert (loaded.row.label, loaded.row.tags, loaded.row.notes) == ("scale@1", ("good",), ("<first> of all",))
        assert (loaded.row.best_ms, loaded.row.launches) == (0.25, 1)
        x, out = torch.arange(300.0), torch.zeros(300)
        namespace["scale"][lambda meta: (3,)](x, out, 300)
        torch.testing.assert_close(out, 3 * x)
        again = other.load(tmp_path / "scale.zip", namespace)
        assert (again.row.label, again.row.launches) == ("scale@1", 1)
        ours = lab.kernels.store.history.launches()[0].launch
        assert other.kernels.store.history.launches()[0].launch == ours


@pytest.mark.slow
def test_equal_kernels_make_equal_bundles_of_json_and_text(lab: kernellab.Lab, tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        lab.export("scale", tmp_path / name, kind="bundle")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == ["kernel.json", "scale.py"]
        assert json.loads(archive.read("kernel.json"))["schema"] == 1


@pytest.mark.parametrize("content", [b"no zip", None])
def test_a_file_that_is_no_bundle_is_an_error(lab: kernellab.Lab, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(UsageError, match="is not a bundle"):
        lab.load(tmp_path / "x.zip", {})


@pytest.mark.slow
def test_a_page_holds_all_that_is_known_and_needs_no_network(lab: kernellab.Lab, tmp_path: Path) -> None:
    cell(lab, SCALE.replace("3 *", "5 *"), **tensors())
    lab.export("scale@2", tmp_path / "scale.html", kind="report")
    page = (tmp_path / "scale.html").read_text()
    for text in ("scale@2", "<svg", "@triton.autotune", "-    tl.store", "x_ptr float32 (300,)", "Since scale@1"):
        assert text in page
    assert "src=" not in page
    assert "<script" not in page
    lab.export("scale@1", tmp_path / "scale.html", kind="report")
    page = (tmp_path / "scale.html").read_text()
    for text in ("good", "&lt;first&gt; of all", "250 us", "H200"):
        assert text in page


def test_the_file_has_the_name_of_the_kernel_where_none_is_given(
    lab: kernellab.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exported = lab.export("scale@1")
    assert exported_card(exported).text() == "scale@1 was written as scale.py (autotune)."
    assert (tmp_path / "scale.py").exists()
    assert list(tmp_path.iterdir()) == [tmp_path / "scale.py"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXPORT_KINDS)
def test_without_a_path_only_an_earlier_export_is_replaced(
    lab: kernellab.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert not any("is replaced" in note for note in lab.export("scale", kind=kind).notes)
    (path,) = tmp_path.iterdir()
    file = path / "scale.py" if path.is_dir() else path
    file.write_bytes(USERS)
    with pytest.raises(UsageError, match=rf"^'{path.name}' is not an export, so it is not replaced; name the path"):
        lab.export("scale", kind=kind)
    assert file.read_bytes() == USERS
    lab.export("scale", path.name, kind=kind)
    assert file.read_bytes() != USERS


PLAIN = """\
@triton.jit
def plain(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, offsets < n) + 1, offsets < n)

plain[lambda meta: (triton.cdiv(300, meta["BLOCK"]),)](a, c, 300, BLOCK=64)
"""
USERS = b"def arguments():\n    return (1,), (), {}\n"


@pytest.mark.slow
def test_an_operator_does_not_replace_a_module(
    lab: kernellab.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [str(lab.export("scale", kind=kind).path) for kind in ("module", "torch-op")] == ["scale.py", "scale_op.py"]
    (note,) = lab.export("scale", kind="autotune").notes
    assert note == "An earlier export, scale.py, is replaced; name a path to keep both"


@pytest.mark.slow
def test_a_kernel_without_configs_is_written_as_a_module(lab: kernellab.Lab, tmp_path: Path) -> None:
    cell(lab, PLAIN, **tensors())
    assert lab.export("plain", tmp_path / "a.py").kind == "module"
    assert not lab.export("plain", tmp_path / "a.py").notes
    exported = lab.export("plain", tmp_path / "b.py", kind="autotune")
    assert (exported.kind, exported.notes) == (
        "module", ("plain has no @triton.autotune, so this is the file of --as module",)
    )  # fmt: skip
    assert (tmp_path / "a.py").read_bytes() == (tmp_path / "b.py").read_bytes()
    assert lab.export("scale", tmp_path / "c.py", kind="module").kind == "module"


def test_an_export_that_became_a_kernel_file_is_not_replaced(
    lab: kernellab.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lab.export("scale")
    with open("scale.py", "ab") as file:
        file.write(USERS)
    with pytest.raises(UsageError, match="is not an export"):
        lab.export("scale")


def test_each_kind_of_export_has_a_content_and_words() -> None:
    assert list(WRITERS) == list(EXPORT_KINDS)
