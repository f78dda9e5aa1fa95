"""A dispatch as a module, as an operator and as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import kernellab
from kernellab.cli.kernel_file import file_launch, kernel_file
from kernellab.errors import UsageError
from kernellab.store.columns import Status
from kernellab.tune.dispatch import Dispatch
from kernellab.tune.dispatch.config_files import read_folder, read_table
from kernellab.tune.dispatch.exporting import export_source
from tests import samples
from tests.export.exporting import run_files
from tests.labs import shared_lab
from tests.tune.dispatch.tuned import LARGE, SMALL, dispatch_of, scale_rows

ROWS = {(4, 128): 0, (4, 512): 1, (8, 128): 0}
"""What is chosen for M rows of N elements."""


def rows_of(sizes: Mapping[str, int]) -> dict[str, Any]:
    M, N = sizes["M"], sizes["N"]
    torch.manual_seed(0)
    x = torch.rand(M, N)
    return {"x_ptr": x, "out_ptr": torch.zeros_like(x), "factor": 2.0, "rows": M, "COLUMNS": N}


def added(sizes: Mapping[str, int]) -> dict[str, Any]:
    n = sizes["n"]
    torch.manual_seed(0)
    return {"x_ptr": torch.rand(n), "y_ptr": torch.rand(n), "out_ptr": torch.zeros(n), "n": n}


def of_rows(**more: Any) -> Dispatch:
    return dispatch_of(scale_rows, lambda meta: (meta["rows"],), rows_of, ROWS, ("M", "N"), **more)


def of_add(**more: Any) -> Dispatch:
    grid = lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)  # noqa: E731
    return dispatch_of(samples.add_kernel, grid, added, {(300,): 0, (1000,): 1}, ("n",), **more)


@pytest.fixture(scope="module")
def lab() -> Any:
    with shared_lab(target="cuda:90", store=":memory:") as found:
        yield found


USED = """\
import sys, torch
sys.path.insert(0, {folder!r})
import rows
x = torch.rand(8, 512)
torch.testing.assert_close(rows.launch(x, 3.0, 8, 512), 3 * x)
assert rows.CHOSEN == {{(x.device, (8, 512)): {{"BLOCK": 64, "num_warps": 4, "num_stages": 3}}}}
torch.testing.assert_close(rows.launch(x[:4], 3.0, 4, 512), 3 * x[:4])
assert rows.CHOSEN[x.device, (4, 512)]["BLOCK"] == 256
torch.testing.assert_close(rows.launch(x, 3.0, 8, 512, BLOCK=32, num_warps=2, num_stages=1), 3 * x)
print("used")
"""


@pytest.mark.slow
def test_the_module_checks_every_config_and_chooses_by_sizes_without_the_lab(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    exported = of_rows(exporter=lab.export).export(tmp_path / "rows.py")
    assert exported.kind == "dispatch"
    (tmp_path / "used.py").write_text(USED.format(folder=str(tmp_path)))
    result = run_files(tmp_path / "rows.py", tmp_path / "used.py")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("outputs match those at export") == 3  # as chosen, then each config
    assert "used" in result.stdout
    text = (tmp_path / "rows.py").read_text()
    assert "kernellab" not in text.replace("Exported by kernellab", "")
    assert "as measured on NVIDIA H200 (3 cases, Triton 3.6.0, driver 550.1)" in text.replace("\n", " ")


@pytest.mark.slow
def test_the_module_is_a_kernel_file(lab: kernellab.Lab, tmp_path: Path) -> None:
    lab.export(of_rows(), tmp_path / "rows.py")
    file = kernel_file(str(tmp_path / "rows.py"))
    assert file_launch(file, {}, "cpu").named["BLOCK"] == 64


@pytest.mark.slow
def test_a_wrong_kernel_fails_its_own_check(lab: kernellab.Lab, tmp_path: Path) -> None:
    lab.export(of_rows(), tmp_path / "rows.py")
    text = (tmp_path / "rows.py").read_text()
    (tmp_path / "rows.py").write_text(text.replace("x * factor", "x + factor"))
    result = run_files(tmp_path / "rows.py")
    assert result.returncode == 1
    assert "AssertionError" in result.stderr


@pytest.mark.slow
def test_a_reference_over_parameters_is_what_the_module_checks_with(lab: kernellab.Lab, tmp_path: Path) -> None:
    lab.export(of_add(check="x_ptr + y_ptr"), tmp_path / "add.py")
    assert "return x_ptr + y_ptr" in (tmp_path / "add.py").read_text()
    lab.export(of_add(check=lambda x_ptr, y_ptr: y_ptr + x_ptr), tmp_path / "add.py")
    assert "return y_ptr + x_ptr" in (tmp_path / "add.py").read_text()
    lab.export(of_add(check="x + y"), tmp_path / "add.py")
    assert "outputs match those at export" in (tmp_path / "add.py").read_text()


@pytest.mark.slow
def test_what_tuning_over_sizes_returns_is_exported(lab: kernellab.Lab, tmp_path: Path) -> None:
    def inputs(n: int) -> dict[str, Any]:
        return added({"n": n})

    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    grid = lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)  # noqa: E731
    found = lab.tune_over(samples.add_kernel, grid, over={"n": [300, 1000]}, inputs=inputs, configs=configs)
    untimed = tuple(
        replace(case, rows=tuple(replace(row, predicted_ms=None) for row in case.rows)) for case in found.cases
    )
    with pytest.raises(UsageError, match="was timed"):  # as for an AMD target without a GPU
        replace(found, cases=untimed).export(tmp_path / "add.py")
    timed = tuple(
        replace(case, rows=tuple(replace(row, status=Status.OK, time_ms=1.0) for row in case.rows))
        for case in found.cases
    )
    replace(found, cases=timed).export(tmp_path / "add.py")
    assert "config_for((n,), x_ptr.device, meta)" in (tmp_path / "add.py").read_text()


OPERATOR = """\
import sys, torch
sys.path.insert(0, {folder!r})
import add
add.opcheck("cpu")
compiled = torch.compile(lambda x: torch.ops.kernellab.add_kernel_functional(x, x, x.shape[0]), backend="aot_eager")
for n in (300, 1000, 77):
    x = torch.rand(n)
    torch.testing.assert_close(compiled(x), 2 * x)
assert {{key[1] for key in add.CHOSEN}} == {{(300,), (1000,), (77,)}}
print("compiled")
"""


@pytest.mark.slow
def test_the_operator_chooses_at_each_call_also_when_compiled(lab: kernellab.Lab, tmp_path: Path) -> None:
    lab.export(of_add(), tmp_path / "add.py", kind="torch-op")
    (tmp_path / "compiled.py").write_text(OPERATOR.format(folder=str(tmp_path)))
    result = run_files(tmp_path / "compiled.py")
    assert result.returncode == 0, result.stderr
    assert "compiled" in result.stdout


@pytest.mark.slow
def test_decisions_for_other_devices_join_from_dispatches_and_tables(lab: kernellab.Lab, tmp_path: Path) -> None:
    lab.export(of_rows(device="NVIDIA A100", target="cuda:80"), tmp_path / "a100.json")
    others = [tmp_path / "a100.json", of_rows(device="NVIDIA L4", target="cuda:89")]
    lab.export(of_rows(), tmp_path / "rows.py", others=others)
    text = (tmp_path / "rows.py").read_text()
    places = [text.index(f'    "NVIDIA {name}": {{') for name in ("H200", "A100", "L4")]
    assert places == sorted(places)
    assert text.count("def choose_") == 3
    with pytest.raises(UsageError, match="dispatch of add_kernel over n; expected one of scale_rows over M, N"):
        lab.export(of_rows(), tmp_path / "rows.py", others=[of_add()])
    with pytest.raises(UsageError, match="expected dispatches, or the paths of tables"):
        lab.export(of_rows(), tmp_path / "rows.py", others=[3])  # type: ignore[list-item]


def copied(sizes: Mapping[str, int]) -> dict[str, Any]:
    x = torch.rand(sizes["n"])
    return {"x_ptr": x, "out_ptr": torch.zeros_like(x), "n": sizes["n"]}


@pytest.mark.slow
def test_an_autotuned_kernel_with_heuristics_keeps_these_and_loses_its_tuner(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    grid = lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)  # noqa: E731
    tuned = dispatch_of(samples.tuned_kernel, grid, copied, {(300,): 0, (1024,): 1}, ("n",))
    lab.export(tuned, tmp_path / "tuned.py")
    text = (tmp_path / "tuned.py").read_text()
    assert "@triton.heuristics(" in text
    assert "autotune" not in text
    result = run_files(tmp_path / "tuned.py")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("outputs match those at export") == 3


@triton.jit
def doubled_rows(x, out, BLOCK: tl.constexpr):
    row = tl.program_id(0) * 4
    for start in range(0, out.shape[1], 64):
        out.store([row, start], 2 * x.load([row, start]))


def described(sizes: Mapping[str, int]) -> dict[str, Any]:
    x = torch.rand(sizes["M"], sizes["N"])
    made = (TensorDescriptor.from_tensor(each, [4, 64]) for each in (x, torch.zeros_like(x)))
    return dict(zip(("x", "out"), made, strict=True))


@pytest.mark.slow
def test_sizes_and_device_are_read_off_descriptors(lab: kernellab.Lab, tmp_path: Path) -> None:
    grid = lambda meta: (triton.cdiv(meta["x"].shape[0], 4),)  # noqa: E731
    known = {(8, 64): 0, (16, 64): 1, (8, 192): 1}
    dispatch = dispatch_of(doubled_rows, grid, described, known, ("M", "N"))
    lab.export(dispatch, tmp_path / "rows.py")
    assert "config_for((x.shape[0], x.shape[1],), x.base.device, meta)" in (tmp_path / "rows.py").read_text()
    lab.export(dispatch, tmp_path / "op.py", kind="torch-op")
    assert "config_for((x.shape[0], x.shape[1],), x.device, {})" in (tmp_path / "op.py").read_text()


def without_sizes(sizes: Mapping[str, int]) -> dict[str, Any]:
    return added({"n": 300})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"arguments": None}, "it was read from a file"),
        ({"cases": ()}, "No case of the dispatch was timed with a config that works"),
        ({"originals": (triton.Config({"BLOCK": 64}, pre_hook=print),) * 2}, "a pre_hook"),
        ({"originals": (triton.Config({"BLOCK": triton.Config}),) * 2}, "which has no literal"),
    ],
)
def test_what_cannot_be_written_is_refused(
    lab: kernellab.Lab, tmp_path: Path, changed: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        lab.export(replace(of_add(), **changed), tmp_path / "add.py")
    assert not (tmp_path / "add.py").exists()


def test_a_size_that_is_no_argument_is_refused(lab: kernellab.Lab, tmp_path: Path) -> None:
    lost = dispatch_of(samples.add_kernel, (5,), without_sizes, {(4, 4): 0, (4, 8): 1, (8, 4): 1}, ("M", "N"))
    with pytest.raises(UsageError, match="M is not an argument of add_kernel@1"):
        lab.export(lost, tmp_path / "add.py")


def test_kinds_and_others_are_told_apart(lab: kernellab.Lab, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected one of dispatch, torch-op, table, vllm"):
        lab.export(of_add(), tmp_path / "add.py", kind="report")
    with pytest.raises(UsageError, match="others belongs to a dispatch"):
        lab.export("add_kernel", tmp_path / "add.py", others=[of_add()])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dispatch", "vllm", "table"])
def test_without_a_path_a_dispatch_replaces_an_earlier_export_only(
    lab: kernellab.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"dispatch": "scale_rows_dispatch.py", "vllm": "scale_rows", "table": "scale_rows.json"}
    for _ in range(2):
        assert not any("is replaced" in note for note in lab.export(of_rows(), kind=kind).notes)
    (path,) = tmp_path.iterdir()
    assert path.name == names[kind]
    file = next(path.iterdir()) if path.is_dir() else path
    file.write_text('{"mine": 1}')
    with pytest.raises(UsageError, match="is not a"):
        lab.export(of_rows(), kind=kind)
    assert file.read_text() == '{"mine": 1}'


def test_a_table_is_read_as_it_was_written(lab: kernellab.Lab, tmp_path: Path) -> None:
    written = of_rows()
    lab.export(written, tmp_path / "rows.json")
    (read,) = read_table(tmp_path / "rows.json")
    assert (read.kernel, read.rule) == (written.kernel, written.rule)
    assert [case.sizes for case in read.cases] == [case.sizes for case in written.cases]
    assert [(each.config, each.time_ms, each.regret) for each in read.regrets] == [
        (each.config, each.time_ms, each.regret) for each in written.regrets
    ]
    assert {name: read.provenance[name] for name in written.provenance} == written.provenance
    assert read.choose(M=4, N=512).kwargs == {"BLOCK": 256}
    with pytest.raises(UsageError, match="without a kernel"):
        read.export(tmp_path / "rows.py")


def test_a_table_keeps_other_devices_and_versions(lab: kernellab.Lab, tmp_path: Path) -> None:
    for options in ({}, {"device": "NVIDIA A100"}, {"triton": "3.10.0"}, {"triton": "3.9.0"}, {}):
        lab.export(of_rows(**options), tmp_path / "rows.json")
    content = json.loads((tmp_path / "rows.json").read_text())
    assert {name: list(each) for name, each in content["devices"].items()} == {
        "NVIDIA A100": ["3.6.0"], "NVIDIA H200": ["3.6.0", "3.9.0", "3.10.0"]
    }  # fmt: skip
    found = content["devices"]["NVIDIA H200"]["3.6.0"]["sizes"]["M=4,N=512"]
    assert found["config"] == {"BLOCK": 256, "num_warps": 8, "num_stages": 3}
    with pytest.raises(UsageError, match="expected one of add_kernel over n"):
        lab.export(of_add(), tmp_path / "rows.json")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content.update(schema=9), "its schema is 9"),
        (lambda content: content.update(kernel="a b"), "its kernel is 'a b'"),
        (lambda content: content.pop("devices"), "lacks 'devices'"),
        (lambda content: content.update(devices=[]), "malformed"),
        (lambda content: content.update(sizes=["M"]), "the sizes of the rule"),
        (lambda content: content["devices"]["NVIDIA H200"]["3.6.0"].update(sizes={"M=x": {}}), "malformed"),
        (lambda content: content["devices"]["NVIDIA H200"]["3.6.0"].update(rule={}), "not a rule"),
    ],
)
def test_what_is_no_table_is_refused(lab: kernellab.Lab, tmp_path: Path, spoil: Any, message: str) -> None:
    lab.export(of_rows(), tmp_path / "rows.json")
    content = json.loads((tmp_path / "rows.json").read_text())
    spoil(content)
    (tmp_path / "rows.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match=message):
        read_table(tmp_path / "rows.json")
    for path in (tmp_path, tmp_path / "absent.json"):
        with pytest.raises(UsageError, match="is not a table"):
            read_table(path)


def test_a_folder_has_files_as_vllm_keeps_them(lab: kernellab.Lab, tmp_path: Path) -> None:
    lab.export(of_rows(), tmp_path / "configs", kind="vllm")
    files = {path.name: json.loads(path.read_text()) for path in (tmp_path / "configs").iterdir()}
    assert files == {
        "N=128,device_name=NVIDIA_H200.json": {
            "triton_version": "3.6.0",
            "4": {"BLOCK": 64, "num_warps": 4, "num_stages": 3},
            "8": {"BLOCK": 64, "num_warps": 4, "num_stages": 3},
        },
        "N=512,device_name=NVIDIA_H200.json": {
            "triton_version": "3.6.0",
            "4": {"BLOCK": 256, "num_warps": 8, "num_stages": 3},
        },
    }
    read = read_folder(tmp_path / "configs")
    assert [(each.key, dict(each.sizes), each.device, each.config) for each in read] == [
        (4, {"N": 128}, "NVIDIA H200", SMALL),
        (8, {"N": 128}, "NVIDIA H200", SMALL),
        (4, {"N": 512}, "NVIDIA H200", LARGE),
    ]
    with pytest.raises(UsageError, match="no file for NVIDIA B200"):
        read_folder(tmp_path / "configs", "NVIDIA B200")


def test_files_of_vllm_are_read(tmp_path: Path) -> None:
    name = "E=8,N=3584,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,128].json"
    (tmp_path / name).write_text('{"16": {"BLOCK_SIZE_M": 16, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}}')
    (found,) = read_folder(tmp_path, "NVIDIA H100 80GB HBM3")
    assert (found.key, found.sizes, found.triton) == (16, {"E": 8, "N": 3584}, "")
    assert found.more == {"dtype": "fp8_w8a8", "block_shape": "[128,128]"}
    config = found.config.to_triton()
    assert (config.kwargs, config.num_warps) == ({"BLOCK_SIZE_M": 16, "GROUP_SIZE_M": 1}, 4)
    for content in ("[1]", '{"16": 3}', '{"M": {"BLOCK": 1}}', '{"16": {"a b": 1}}'):
        (tmp_path / name).write_text(content)
        with pytest.raises(UsageError, match="has no configs by size"):
            read_folder(tmp_path)


def test_a_dispatch_is_named_by_its_variable_or_its_kernel() -> None:
    dispatch = of_add()
    assert export_source("mine", None, {"mine": dispatch}) is dispatch
    assert export_source("add_kernel", "dispatch", {"mine": dispatch}) is dispatch
    assert export_source("add_kernel", "torch-op", {"mine": dispatch}) == "add_kernel"
    assert export_source("7", "module", {}) == 7
    with pytest.raises(UsageError, match="no variable holds one"):
        export_source("add_kernel", "dispatch", {})


@pytest.mark.parametrize("kind", ["dispatch", "torch-op", "table", "vllm"])
def test_what_was_never_timed_is_no_decision_in_any_form(lab: Any, tmp_path: Path, kind: str) -> None:
    timed = of_add(exporter=lab.export)
    untimed = replace(timed, rule=replace(timed.rule, known={}), cases=())
    with pytest.raises(UsageError, match=r"there is no decision to export\. Tune on a GPU"):
        untimed.export(tmp_path / "add", kind=kind)
    assert not list(tmp_path.iterdir())
