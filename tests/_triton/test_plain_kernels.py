"""Plain kernels are seen while somebody watches, and Triton's classes are its own again after that."""

from __future__ import annotations

from typing import Any

import pytest
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner, Heuristics

from kernellab._triton.plain_kernels import LaunchWatcher, outermost, watch_plain_kernels

KINDS = (triton.JITFunction, Autotuner, Heuristics)


def nothing(x_ptr: Any, BLOCK: tl.constexpr) -> None:
    tl.store(x_ptr, BLOCK)


class Launches:
    """Stands for the bound twin of a kernel: it keeps its calls."""

    best_config = None

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **meta: self.calls.append(("launch", grid, args, meta))

    def run(self, *args: Any, **meta: Any) -> None:
        self.calls.append(("run", args, meta))

    def warmup(self, *args: Any, **meta: Any) -> None:
        self.calls.append(("warmup", args, meta))


@pytest.fixture
def made() -> list[Any]:
    return []


def test_a_kernel_is_noted_with_each_of_its_decorators(made: list[Any]) -> None:
    with watch_plain_kernels(LaunchWatcher(lambda kernel: None, made.append)):
        tuned = triton.autotune([triton.Config({"BLOCK": 1})], key=[])(triton.jit(nothing))
        other = triton.jit(nothing)
    triton.jit(nothing)
    assert made == [tuned.fn, tuned, other]
    assert outermost(made) == [tuned, other]


def test_triton_is_its_own_again_where_watchers_end_in_another_order(made: list[Any]) -> None:
    before = [dict(vars(kind)) for kind in KINDS]
    first, second = (watch_plain_kernels(LaunchWatcher(lambda kernel: None, made.append)) for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    triton.jit(nothing)
    assert len(made) == 1
    second.__exit__(None, None, None)
    assert [dict(vars(kind)) for kind in KINDS] == before


def test_each_way_to_launch_goes_to_what_the_watcher_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernellab._triton import plain_kernels

    monkeypatch.setattr(plain_kernels, "_leave_choice", lambda bound, kernel: None)
    kernel, launches = triton.jit(nothing), Launches()
    bind: Any = lambda each: launches  # noqa: E731
    with watch_plain_kernels(LaunchWatcher(bind, lambda each: None)):
        kernel[(1,)](1, BLOCK=2)
        kernel.run(1, BLOCK=2, grid=(3,), warmup=False)
        kernel.warmup(1, BLOCK=2, grid=(4,))
        triton.autotune([triton.Config({"BLOCK": 1})], key=[])(kernel).warmup(5, grid=(1,))
    assert [call[0] for call in launches.calls] == ["launch", "launch", "run", "warmup"]
    assert [call[1] for call in launches.calls[:2]] == [(1,), (3,)]


def test_a_kernel_that_no_watcher_takes_is_launched_by_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(triton.JITFunction, "run", lambda kernel, *args, **meta: calls.append(args))
    with watch_plain_kernels(LaunchWatcher(lambda kernel: None, lambda kernel: None)):
        triton.jit(nothing)[(1,)](7)
    assert calls == [(7,)]
