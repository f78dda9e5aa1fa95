"""Objects with ``data_ptr()`` and ``dtype`` that are no tensors, as arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from kernellab import Lab
from kernellab.errors import LaunchError, OutOfBounds
from kernellab.registry import remember

N = 100


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


class Pointer:
    """An address and a dtype, and what else is given."""

    def __init__(self, owner: Any, address: int, dtype: Any, **told: Any) -> None:
        self._owner, self._address, self.dtype = owner, address, dtype
        for name, value in told.items():
            setattr(self, name, value)

    def data_ptr(self) -> int:
        return self._address


def of_tensor() -> tuple[Pointer, Any]:
    tensor = torch.arange(float(N))
    return Pointer(tensor, tensor.data_ptr(), tensor.dtype), tensor


def into_tensor() -> tuple[Pointer, Any]:
    tensor = torch.arange(float(N + 28))
    return Pointer(tensor, tensor[28:].data_ptr(), "fp32"), tensor[28:]


def of_array(**told: Any) -> tuple[Pointer, Any]:
    array = np.arange(N, dtype=np.float32)
    return Pointer(array, array.ctypes.data, "float32", **told), array


KINDS: tuple[Callable[[], tuple[Pointer, Any]], ...] = (
    of_tensor,
    into_tensor,
    lambda: of_array(shape=(N // 2, 2)),
    lambda: of_array(nbytes=4 * N),
    lambda: of_array(numel=lambda: N),
    lambda: of_array(shape=(N // 2, 2), stride=lambda: (2, 1)),
)


@pytest.mark.slow
@pytest.mark.parametrize("make", KINDS)
def test_a_pointer_stands_for_its_memory_in_a_launch(lab: Lab, make: Callable[[], tuple[Pointer, Any]]) -> None:
    (x, from_x), (y, from_y) = make(), make()
    lab.bind(double_kernel)[(1,)](x, y, N, BLOCK=128)
    assert (from_y == 2 * from_x).all()


@pytest.mark.slow
def test_a_pointer_among_tensors_is_checked_to_its_last_element(lab: Lab) -> None:
    pointer, array = of_array(nbytes=4 * N)
    with pytest.raises(OutOfBounds, match="y_ptr"):
        lab.bind(double_kernel)[(1,)](torch.ones(128), pointer, 128, BLOCK=128)
    assert array.tolist() == list(range(N))


@pytest.mark.slow
@pytest.mark.parametrize(
    "use",
    [
        lambda lab, args: lab.run(double_kernel, (1,), *args, BLOCK=128),
        lambda lab, args: lab.compile(double_kernel, *args, BLOCK=128),
        lambda lab, args: lab.effects(double_kernel, *args, BLOCK=128),
        lambda lab, args: lab.graph(double_kernel, *args, BLOCK=128),
        lambda lab, args: lab.tune(double_kernel, (1,), *args, configs=[triton.Config({"BLOCK": 128})]),
        lambda lab, args: lab.bench(double_kernel, (1,), *args, over={"BLOCK": [128]}),
        lambda lab, args: lab.explore(double_kernel, (1,), *args, BLOCK=[64, 128]).close(),
    ],
)
@pytest.mark.parametrize("make", [of_tensor, lambda: of_array(nbytes=4 * N)])
def test_each_verb_takes_pointers(lab: Lab, make: Callable[[], tuple[Pointer, Any]], use: Any) -> None:
    use(lab, (make()[0], make()[0], N))


@pytest.mark.slow
@pytest.mark.parametrize("make", [of_tensor, lambda: of_array(nbytes=4 * N)])
def test_launches_on_pointers_are_captured_recorded_and_poisoned(lab: Lab, make: Any) -> None:
    kernel, (x, from_x), (y, from_y) = lab.bind(double_kernel), make(), make()
    with lab.capture():
        kernel[(1,)](x, y, N, BLOCK=128)
    with lab.launches.recording(poison=True) as recorder:
        kernel[(1,)](x, y, N, BLOCK=128)
    for record in recorder.records.values():
        remember(lab.kernels, double_kernel, record)
    assert (from_y == 2 * from_x).all()


def test_a_pointer_to_memory_of_unknown_size_is_refused_with_what_would_help(lab: Lab) -> None:
    with pytest.raises(LaunchError, match=r"x_ptr is a Pointer .* shape, numel nor nbytes"):
        lab.bind(double_kernel)[(1,)](of_array()[0], torch.ones(N), N, BLOCK=128)
