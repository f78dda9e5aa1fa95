"""Sessions with many versions: what the registry and the runtime keep of each."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch

from kernellab import Lab
from kernellab._triton.bound import bind_in_place
from kernellab._triton.closure import closure_of
from kernellab._triton.loading import load
from kernellab.compile.types import compile_job
from kernellab.registry import Registry, latest_launch, recorded_grid, recorded_version
from kernellab.registry.launches_from_store import GridText
from kernellab.store import Store
from kernellab.store.decoding import launch_row_of
from tests import samples
from tests.labs import lab_fixture
from tests.store.test_store import LAUNCH

ADD = closure_of(samples.add_kernel)[0]


def kernel_of(number: int) -> Any:
    """Return a kernel whose text no other number has."""
    function = ADD.functions[0]
    text = function.text.replace("x + tl.load", f"x + {number} + tl.load")
    return load(replace(ADD, functions=(replace(function, text=text, file=f"<kernel {number}>"),))).decorated


lab = lab_fixture()


def test_a_session_keeps_the_last_kernels_alive_and_no_others() -> None:
    registry, kernels = Registry(Store(None), most_kernels=3), []
    for number in range(10):
        kernel = kernel_of(number)
        registry.add(kernel)
        kernels.append(weakref.ref(kernel))
    del kernel
    gc.collect()
    assert [kernel() is not None for kernel in kernels] == [False] * 7 + [True] * 3
    assert len(registry._entries) == 3


def test_a_kernel_that_the_session_still_has_is_found_however_many_came_after_it() -> None:
    registry, first = Registry(Store(None), most_kernels=3), kernel_of(0)
    label = registry.add(first).label
    for number in range(1, 10):
        registry.add(kernel_of(number))
    gc.collect()
    assert registry[label] is first
    assert registry.version_of(first).label == label


def test_a_version_whose_kernel_is_gone_is_made_from_the_store_again() -> None:
    registry = Registry(Store(None), most_kernels=1)
    labels = [registry.add(kernel_of(number)).label for number in range(3)]
    gc.collect()
    revived = registry[labels[0]]
    assert "x + 0 +" in revived.src
    assert registry.version_of(revived).label == labels[0]


def test_what_was_compiled_for_a_kernel_goes_with_it(lab: Lab) -> None:
    x, out = torch.ones(16), torch.empty(16)
    kernel = bind_in_place(kernel_of(0), lab.launches)  # as a cell binds it
    handle = kernel[(1,)](x, x, out, 16, BLOCK=16)
    compiled = weakref.ref(lab.launches._sources[handle.src])
    lab.compiler._done.clear()
    assert lab.launches.effects_of(handle) is not None
    del kernel, handle
    kernel_of(1)  # Triton keeps the last kernel of each module and name
    gc.collect()
    assert compiled() is None


def test_a_revived_kernel_is_kept_no_longer_than_others(lab: Lab) -> None:
    lab.kernels.most_kernels = 2
    labels = [lab.kernels.add(kernel_of(number), "k").label for number in range(6)]
    gc.collect()
    revived = [weakref.ref(lab.kernels[label]) for label in labels[:4]]
    gc.collect()
    assert [kernel() is not None for kernel in revived] == [False, False, True, True]


def test_launches_of_one_kernel_keep_none_of_their_tensors(lab: Lab) -> None:
    kernel, tensors = lab.bind(kernel_of(1)), []
    lab.kernels.add(kernel)
    for _ in range(20):
        x = torch.ones(16)
        kernel[(1,)](x, x, torch.empty(16), 16, BLOCK=16)
        tensors.append(weakref.ref(x))
    del x
    gc.collect()
    assert not any(tensor() is not None for tensor in tensors)


def test_a_recorded_cell_of_many_launches_keeps_the_tensors_of_the_first_and_the_last(lab: Lab) -> None:
    kernel, tensors = lab.bind(kernel_of(2)), []
    with lab.launches.recording(undoes=True) as recorder:
        for _ in range(20):
            out = torch.empty(16)
            kernel[(1,)](torch.ones(16), torch.ones(16), out, 16, BLOCK=16)
            tensors.append(weakref.ref(out))
        del out
        gc.collect()
        assert [tensor() is not None for tensor in tensors].count(True) <= 2
    assert next(iter(recorder.records.values())).launches == 20


def test_a_compiler_keeps_the_last_graphs_and_no_trace_of_a_compile_that_has_ended(lab: Lab) -> None:
    x, compiler = torch.ones(16), replace(lab.compiler, most_held=2)
    jobs = [compile_job(kernel_of(n), lab.target, (x, x, x, 16), {"BLOCK": 16}) for n in range(20, 24)]
    for job in jobs:
        compiler.graph(job)
    assert len(compiler._graphs) == 2
    compiler.compile(jobs[0])
    assert not compiler._building


def test_of_a_kernel_with_many_launches_the_latest_are_read() -> None:
    store = Store(None)
    version = store.add(ADD, "add", "")
    for extent in range(1, 8):
        store.history.add_launch(version.id, replace(LAUNCH, grid=(extent, 1, 1)))
    recorded = recorded_version(store, version, most=3)
    assert [launch.grid for launch in recorded.launches] == [(5, 1, 1), (6, 1, 1), (7, 1, 1)]
    assert recorded.launch == recorded.launches[-1]


@pytest.mark.parametrize(("trials", "rows_read"), [(0, 16), (15, 16), (20, 16 + 61)])
def test_the_latest_launch_is_that_of_the_user_among_as_few_as_can_be(
    trials: int, rows_read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, decoded = Store(None), []
    version = store.add(ADD, "add", "")
    assert latest_launch(store, version) is None
    for extent in range(1, 42 + trials):
        by = "launch" if extent <= 41 else "run"
        store.history.add_launch(version.id, replace(LAUNCH, grid=(extent, 1, 1), by=by, grid_text="lambda m: (1,)"))
    read = launch_row_of
    monkeypatch.setattr("kernellab.store.store.launch_row_of", lambda *row: decoded.append(row) or read(*row))
    launch, rows_of_launch = latest_launch(store, version), len(decoded)
    assert launch is not None
    assert launch.grid == (41, 1, 1)
    assert recorded_grid(store, version) == GridText("lambda m: (1,)")
    assert (rows_of_launch, len(decoded)) == (rows_read, 2 * rows_read)
