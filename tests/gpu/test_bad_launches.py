"""Bad launches in one process: after each, a good kernel runs and every tensor holds what it held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

import kernellab
from kernellab.errors import CannotRun, CompileError, KernellabError, LaunchError, OutOfBounds, RunError, WorkerTimeout
from kernellab.gpu import driver
from tests import samples
from tests.gpu import bad_kernels as bad

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
N = 1024
FAR = 1 << 40


@dataclass
class Notebook:
    """A session with tensors, and what they hold."""

    lab: kernellab.Lab
    tensors: dict[str, torch.Tensor]
    held: dict[str, torch.Tensor]

    @property
    def x(self) -> torch.Tensor:
        return self.tensors["x"]

    @property
    def out(self) -> torch.Tensor:
        return self.tensors["out"]

    def launch(self, kernel: Any, grid: Any, *args: Any, **meta: Any) -> Any:
        return self.lab.bind(kernel)[grid](*args, **meta)

    def require_intact(self) -> None:
        for name, tensor in self.tensors.items():
            assert torch.equal(tensor.cpu(), self.held[name]), f"{name} has changed"
        x, out = torch.arange(N, device="cuda", dtype=torch.float32), torch.empty(N, device="cuda")
        self.launch(bad.copy_all, (8,), x, out, N, BLOCK=128)
        assert torch.equal(out, x)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    torch.manual_seed(0)
    tensors = {
        "before": torch.rand(N, device="cuda"),
        "x": torch.rand(N, device="cuda"),
        "out": torch.zeros(N, device="cuda"),
        "after": torch.rand(N, device="cuda"),
        "large": torch.rand(1 << 22, device="cuda"),
        "ints": torch.full((N,), 1 << 28, device="cuda", dtype=torch.int64),
        "lock": torch.ones(1, device="cuda", dtype=torch.int32),
        "half": torch.rand(1 << 18, device="cuda").half(),
    }
    with kernellab.Lab(store=tmp_path_factory.mktemp("store")) as lab:
        lab.start()
        yield Notebook(lab, tensors, {name: tensor.cpu() for name, tensor in tensors.items()})


class Address:
    """An argument that is no tensor and has an address."""

    dtype = torch.float32

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


def freed_address() -> int:
    torch.cuda.synchronize()  # its context is the current one
    return driver.allocate(64 << 20).address  # torch would keep a part of a larger block


Case = tuple[Callable[[Notebook], Any], tuple[type[BaseException], ...], str]
WILD: tuple[type[BaseException], ...] = (RunError,)
CASES: dict[str, Case] = {
    "read far beyond": (lambda n: n.launch(bad.read_at, (1,), n.x, n.out, FAR, BLOCK=128), WILD, "x_ptr"),
    "read far ahead": (lambda n: n.launch(bad.read_at, (1,), n.x, n.out, -FAR, BLOCK=128), WILD, "x_ptr"),
    "write just beyond": (
        lambda n: n.launch(bad.write_at, (1,), n.x, n.out, N - 4, BLOCK=128),
        (OutOfBounds,),
        "out_ptr",
    ),
    "write just ahead": (lambda n: n.launch(bad.write_at, (1,), n.x, n.out, -3, BLOCK=128), (OutOfBounds,), "out_ptr"),
    "write megabytes beyond": (
        lambda n: n.launch(bad.write_at, (1,), n.x, n.out, 1 << 20, BLOCK=128),
        (OutOfBounds,),
        "out_ptr",
    ),
    "write megabytes ahead": (
        lambda n: n.launch(bad.write_at, (1,), n.x, n.out, -(1 << 20), BLOCK=128),
        (OutOfBounds,),
        "out_ptr",
    ),
    "write far beyond": (lambda n: n.launch(bad.write_at, (1,), n.x, n.out, FAR, BLOCK=256), WILD, "out_ptr"),
    "atomic just beyond": (
        lambda n: n.launch(bad.add_at, (1,), n.x, n.out, N - 2, BLOCK=128),
        (OutOfBounds,),
        "out_ptr",
    ),
    "atomic far beyond": (lambda n: n.launch(bad.add_at, (1,), n.x, n.out, FAR, BLOCK=128), WILD, "out_ptr"),
    "offset of 32 bits overflows": (
        lambda n: n.launch(bad.write_by_stride, (4,), n.x, n.out, 2**31 - 16, BLOCK=128),
        WILD,
        "out_ptr",
    ),
    "forgotten mask": (lambda n: n.launch(bad.without_mask, (9,), n.x, n.out, BLOCK=128), (OutOfBounds,), "out_ptr"),
    "output too small": (
        lambda n: n.launch(bad.outer_product, (1,), n.x, n.x, n.out, N=64),
        (OutOfBounds,),
        "out_ptr",
    ),
    "wild indices": (
        lambda n: n.launch(bad.raced_scatter, (1,), n.tensors["ints"], n.out, BLOCK=128),
        WILD,
        "out_ptr",
    ),
    "null pointer read": (lambda n: n.launch(bad.read_at, (1,), Address(0), n.out, 0, BLOCK=128), WILD, "read_at"),
    "null pointer written": (lambda n: n.launch(bad.write_at, (1,), n.x, Address(0), 0, BLOCK=128), WILD, "write_at"),
    "tensor without elements": (
        lambda n: n.launch(bad.write_at, (1,), n.x, torch.empty(0, device="cuda"), 16, BLOCK=128),
        WILD,
        "out_ptr",
    ),
    "freed pointer": (
        lambda n: n.launch(bad.write_at, (1,), n.x, Address(freed_address()), 0, BLOCK=128),
        (LaunchError,),
        "or was freed",
    ),
    "integer as address": (lambda n: n.launch(bad.write_at_integer, (1,), 0x123456789000, 7), WILD, "write_at_integer"),
    "misaligned address": (
        lambda n: n.launch(bad.write_at_integer, (1,), n.out.data_ptr() + 1, 7),
        WILD,
        "write_at_integer",
    ),
    "misaligned descriptor": (
        lambda n: n.launch(
            bad.store_tile, (1,), TensorDescriptor.from_tensor(n.out[1:257].view(16, 16), [16, 16]), 1.0, N=16
        ),
        (KernellabError, AssertionError),
        "",
    ),
    "endless loop": (lambda n: n.lab.run(bad.endless, (1,), n.x, timeout_s=3), (WorkerTimeout,), "endless"),
    "lock that nobody gives back": (
        lambda n: n.lab.run(bad.never_unlocked, (1,), n.tensors["lock"], n.out, timeout_s=3),
        (WorkerTimeout,),
        "never_unlocked",
    ),
    "device assert": (lambda n: n.launch(bad.asserting, (1,), n.x, n.out, BLOCK=128, debug=True), WILD, "asserting"),
    "trap": (lambda n: n.launch(bad.trapping, (1,), n.x, BLOCK=128), WILD, "trapping"),
    "too much shared memory": (
        lambda n: n.launch(samples.greedy, (1,), n.tensors["half"], n.out, N=128, M=1024, num_warps=8),
        (CannotRun,),
        "shared memory",
    ),
    "too many warps": (
        lambda n: n.launch(bad.copy_all, (1,), n.x, n.out, N, BLOCK=128, num_warps=64),
        (KernellabError,),
        "copy_all",
    ),
    "negative grid": (lambda n: n.launch(bad.copy_all, (-1,), n.x, n.out, N, BLOCK=256), (LaunchError,), "negative"),
    "grid too tall": (
        lambda n: n.launch(bad.copy_all, (1, 70000), n.x, n.out, N, BLOCK=256),
        (LaunchError,),
        "copy_all",
    ),
    "grid too wide": (lambda n: n.launch(bad.copy_all, (2**31,), n.x, n.out, N, BLOCK=256), (LaunchError,), "copy_all"),
    "tensor on the CPU": (
        lambda n: n.launch(bad.copy_all, (1,), n.x.cpu(), n.out, N, BLOCK=512),
        (LaunchError,),
        "x_ptr",
    ),
    "tensor without data": (
        lambda n: n.launch(bad.copy_all, (1,), n.x.to("meta"), n.out, N, BLOCK=64),
        (LaunchError,),
        "x_ptr",
    ),
    "dtype that no kernel takes": (
        lambda n: n.launch(bad.copy_all, (1,), n.x.to(torch.complex64), n.out, N, BLOCK=64),
        (KernellabError,),
        "copy_all",
    ),
    "text as argument": (
        lambda n: n.launch(bad.copy_all, (1,), n.x, n.out, "N", BLOCK=64),
        (KernellabError,),
        "copy_all",
    ),
    "number as pointer": (lambda n: n.launch(bad.copy_all, (1,), 3, n.out, N, BLOCK=64), (CompileError,), "copy_all"),
    "forgotten argument": (lambda n: n.launch(bad.copy_all, (1,), n.x, n.out, BLOCK=64), (LaunchError,), "without n"),
    "block that is no power of two": (
        lambda n: n.launch(bad.copy_all, (1,), n.x, n.out, N, BLOCK=100),
        (CompileError,),
        "copy_all",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_launch_is_an_error_and_nothing_else(notebook: Notebook, case: str) -> None:
    launch, kinds, words = CASES[case]
    with pytest.raises(kinds, match=words or None) as caught:
        launch(notebook)
    print(f"\n{case}: {type(caught.value).__name__}: {str(caught.value)[:300]}")
    notebook.require_intact()


def test_a_read_just_beyond_is_harmless(notebook: Notebook) -> None:
    notebook.launch(bad.read_at, (1,), notebook.x, torch.empty(N, device="cuda"), N - 4, BLOCK=64)
    notebook.require_intact()


def test_an_empty_grid_launches_nothing(notebook: Notebook) -> None:
    with pytest.warns(UserWarning, match="is empty; nothing was launched"):
        notebook.launch(bad.write_at, (0,), notebook.x, notebook.out, 0, BLOCK=32)
    notebook.require_intact()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_tensor_of_another_gpu_is_refused_or_reached(notebook: Notebook) -> None:
    x = notebook.x.to("cuda:1")
    out = torch.zeros(N, device="cuda")
    try:
        notebook.launch(bad.copy_all, (8,), x, out, N, BLOCK=128)
    except KernellabError:
        pass
    else:
        assert torch.equal(out.cpu(), x.cpu())
    notebook.require_intact()


def test_the_line_at_fault_is_named(notebook: Notebook) -> None:
    with pytest.raises(OutOfBounds) as caught:
        notebook.launch(bad.write_at, (1,), notebook.x, notebook.out, N - 1, BLOCK=512)
    place = caught.value.place
    assert place is not None
    assert place.source_line().strip() == "tl.store(out_ptr + offset + lanes, tl.load(x_ptr + lanes))"
    assert "num_warps=4" in str(caught.value)
    assert "grid (1, 1, 1)" in str(caught.value)
    notebook.require_intact()
