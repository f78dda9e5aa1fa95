from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import kernellab
from kernellab._triton.bound import is_bound
from kernellab.errors import KernellabError, OutOfBounds, UnknownName, UsageError
from kernellab.registry import Registry
from kernellab.registry.listing import VersionStatus, listing, tag
from kernellab.store import Store
from tests import samples
from tests.labs import shared_lab


def registry() -> Registry:
    return Registry(Store(None), revive=lambda closure: pytest.fail("nothing is to be revived"))


def test_ids_names_and_versions_lead_to_the_kernel_and_back() -> None:
    table = registry()
    version = table.add(samples.add_kernel)
    assert table[version.id] is table["add_kernel"] is table["add_kernel@1"] is samples.add_kernel
    assert table.version_of(samples.add_kernel) == version
    assert table.label_of(samples.add_kernel) == "add_kernel@1"
    assert (repr(registry()), repr(table)) == ("<Registry of no kernel yet>", "<Registry of add_kernel@1>")


def test_the_jit_function_of_an_autotuned_kernel_finds_its_entry() -> None:
    table = registry()
    version = table.add(samples.tuned_kernel)
    inner = samples.tuned_kernel.fn.fn
    assert table.version_of(inner) == version
    assert table.owner_of(inner) is samples.tuned_kernel


def test_a_redefined_name_is_a_new_version_and_the_old_one_stays() -> None:
    table = registry()
    first, second = samples.kernel_of(samples.doubled), samples.kernel_of(samples.squared)
    labels = [table.add(kernel).label for kernel in (first, second)]
    assert labels == ["made_kernel@1", "made_kernel@2"]
    assert (table["made_kernel"], table["made_kernel@1"]) == (second, first)


def test_going_back_to_an_earlier_text_is_the_earlier_version() -> None:
    table = registry()
    table.add(samples.kernel_of(samples.doubled))
    table.add(samples.kernel_of(samples.squared))
    again = samples.kernel_of(samples.doubled)
    assert table.add(again).label == "made_kernel@1"
    assert table["made_kernel"] is again


def test_a_name_of_its_own_is_used() -> None:
    table = registry()
    assert table.add(samples.add_kernel, name="plus").label == "plus@1"
    assert table["plus"] is samples.add_kernel


def test_a_misspelt_name_is_answered_with_those_like_it() -> None:
    table = registry()
    table.add(samples.add_kernel, name="softmax_kernel")
    table.add(samples.add_kernel, name="matmul")
    with pytest.raises(UnknownName, match=r"'sofmax_kernel@1'; known are softmax_kernel\."):
        table["sofmax_kernel@1"]


def test_of_many_kernels_an_error_names_some() -> None:
    table = registry()
    for number in range(20):
        table.add(samples.add_kernel, name=f"k{number:02}")
    with pytest.raises(UnknownName, match=r"k11 and 8 more, which %triton_ls lists\."):
        table["nothing"]


@pytest.mark.parametrize("key", ["nothing", "add_kernel@7", "add_kernel@x", 99])
def test_an_unknown_name_is_a_key_error_that_lists_what_there_is(key: Any) -> None:
    table = registry()
    table.add(samples.add_kernel)
    assert key not in table
    with pytest.raises(UnknownName, match="99" if key == 99 else "add_kernel") as caught:
        table[key]
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, KernellabError)
    assert not str(caught.value).startswith("'")


def test_a_kernel_that_was_never_entered_is_an_error_with_the_remedy() -> None:
    with pytest.raises(UnknownName, match=r"enter it with lab\.kernels\.add\(add_kernel\)"):
        registry().version_of(samples.add_kernel)


@pytest.mark.parametrize("kernel", [samples.tuned_kernel, samples.tuned_kernel.fn])
def test_an_unknown_autotuned_kernel_goes_by_the_name_of_its_function(kernel: Any) -> None:
    with pytest.raises(UnknownName, match=r"lab\.kernels\.add\(tuned_kernel\)"):
        registry().version_of(kernel)
    assert registry().label_of(kernel) == "tuned_kernel"


def test_constant_arguments_are_kept_by_id() -> None:
    table = registry()
    first, second = table.add_constants({"BLOCK": 64}), table.add_constants({"BLOCK": 128})
    assert (table.constants(first), table.constants(second)) == ({"BLOCK": 64}, {"BLOCK": 128})
    with pytest.raises(UnknownName, match="No constant arguments have the id 2"):
        table.constants(2)


def test_many_threads_enter_kernels_without_losing_one() -> None:
    table = registry()
    kernels = [samples.kernel_of(samples.doubled) for _ in range(20)]
    threads = [threading.Thread(target=table.add, args=(k, f"k{i}")) for i, k in enumerate(kernels)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [table[f"k{i}"] for i in range(20)] == kernels
    assert len({table.version_of(k).id for k in kernels}) == 20


@pytest.mark.slow
def test_a_kernel_is_back_in_a_new_session_with_its_helpers(tmp_path: Path) -> None:
    with shared_lab(store=tmp_path) as lab:
        lab.kernels.add(samples.scale_kernel)
    x, out = torch.arange(100.0), torch.zeros(100)
    with shared_lab(store=tmp_path) as lab:
        kernel = lab.kernels["scale_kernel"]
        assert kernel is not samples.scale_kernel
        kernel[(1,)](x, out, 100, BLOCK=128)
    torch.testing.assert_close(out, x * 3 + 3)


@pytest.mark.parametrize("kernel", [samples.scale_kernel, samples.tuned_kernel], ids=["plain", "tuned"])
def test_a_label_gives_one_kernel_however_often_it_is_asked_for(tmp_path: Path, kernel: Any) -> None:
    with shared_lab(store=tmp_path) as lab:
        label = lab.kernels.add(kernel).label
    with shared_lab(store=tmp_path) as lab:
        names: dict[str, Any] = {}
        lab.load(label, names)
        assert lab.kernels[label] is lab.kernels[label] is names[label.partition("@")[0]]


def test_a_version_is_what_it_was_when_a_helper_is_defined_anew(lab: kernellab.Lab) -> None:
    kernel = samples.kernel_of(samples.doubled)
    version = lab.kernels.add(kernel)
    (cell,) = kernel.fn.__closure__
    cell.cell_contents = samples.squared
    x, out = torch.arange(16.0), torch.zeros(16)
    lab.kernels[version.label][(1,)](x, out, BLOCK=16)
    torch.testing.assert_close(out, 2 * x)


def test_a_kernel_of_a_module_that_was_entered_launches_through_the_lab(lab: kernellab.Lab) -> None:
    lab.kernels.add(samples.add_kernel)
    assert is_bound(lab.kernels["add_kernel"])
    x, out = torch.ones(64), torch.zeros(64)
    lab.run(samples.add_kernel, (1,), x, x, out, 64, BLOCK=64)
    assert [check.equal for check in lab.compare("add_kernel", "add_kernel").outputs] == [True]


@pytest.mark.slow
def test_a_frame_without_rows_has_the_columns_of_one_with_rows() -> None:
    with kernellab.Lab(target="cuda:90", store=":memory:") as lab:
        empty = {table: list(lab.frame(table).columns) for table in ("kernels", "launches")}
        lab.run(samples.add_kernel, (1,), torch.ones(8), torch.ones(8), torch.zeros(8), 8, BLOCK=8)
        assert {table: list(lab.frame(table).columns) for table in empty} == empty


def test_a_run_that_fails_is_a_failure_of_its_version_and_a_wrong_call_is_not(tmp_path: Path) -> None:
    x = torch.ones(64)
    with shared_lab(store=tmp_path) as lab:
        lab.kernels.add(samples.add_kernel)
        with pytest.raises(UsageError):
            lab.run(samples.add_kernel, (1,), x, x, "out", 64, BLOCK=64)
        (row,) = listing(lab.kernels.store, 0.0).rows
        assert (row.status, row.error) == (VersionStatus.NEVER, "")
        with pytest.raises(OutOfBounds):
            lab.run(samples.add_kernel, (1,), x, x, torch.zeros(8), 64, BLOCK=64)
        (row,) = listing(lab.kernels.store, 0.0).rows
        assert row.status is VersionStatus.FAILED
        assert "out of bounds" in row.error
        lab.run(samples.add_kernel, (1,), x, x, torch.zeros(64), 64, BLOCK=64)
        (row,) = listing(lab.kernels.store, 0.0).rows
        assert row.status is VersionStatus.RUN


@pytest.mark.slow
def test_the_last_config_is_that_of_the_run_and_not_of_a_later_compile(tmp_path: Path) -> None:
    x, out = torch.ones(64), torch.zeros(64)
    with shared_lab(target="cuda:90", store=tmp_path) as lab:
        lab.kernels.add(samples.add_kernel)
        lab.run(samples.add_kernel, (1,), x, x, out, 64, BLOCK=64, num_warps=2)
        lab.tune(samples.add_kernel, (1,), x, x, out, 64, configs=[triton.Config({"BLOCK": b}) for b in (128, 256)])
        (row,) = listing(lab.kernels.store, 0.0).rows
    assert row.last_config.startswith("BLOCK=64, num_warps=2")


def test_a_note_that_is_given_again_stands_once(tmp_path: Path) -> None:
    with shared_lab(store=tmp_path) as lab:
        version = lab.kernels.add(samples.add_kernel)
        for note in ("first", "second", "first"):
            tag(lab.kernels, version.label, (), note)
        assert lab.kernels.store.notes(version.id) == ["first", "second"]
