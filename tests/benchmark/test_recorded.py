"""Recorded launches at other sizes: what follows a number, and what is asked of the user instead of guessed."""

from __future__ import annotations

from typing import Any

import pytest

from kernellab.benchmark.setup import scale_launch
from kernellab.errors import UsageError
from kernellab.store import Argument, RecordedLaunch


def tensor(name: str, *shape: int, stride: tuple[int, ...] | None = None, dtype: str = "float32") -> Argument:
    dense = tuple(_product(shape[axis + 1 :]) for axis in range(len(shape)))
    return Argument(name, "tensor", dtype=dtype, shape=shape, stride=stride or dense, low=0.0, high=1.0)


def _product(values: tuple[int, ...]) -> int:
    found = 1
    for value in values:
        found *= value
    return found


def launch(*arguments: Argument, **numbers: int) -> RecordedLaunch:
    scalars = tuple(Argument(name, "scalar", value=value, constexpr=name.isupper()) for name, value in numbers.items())
    return RecordedLaunch((), (*arguments, *scalars), {}, (1, 1, 1), "cuda:90", "gpu", "")


def shapes(found: RecordedLaunch) -> dict[str, tuple[int, ...]]:
    return {each.name: each.shape for each in found.arguments if each.kind == "tensor"}


def values(found: RecordedLaunch) -> dict[str, Any]:
    return {each.name: each.value for each in found.arguments if each.kind == "scalar"}


def test_extents_that_equal_a_number_follow_it() -> None:
    found = scale_launch(
        launch(tensor("x", 1000), tensor("out", 1000), tensor("bias", 7), n=1000, BLOCK=256), {"n": 4096}
    )
    assert shapes(found) == {"x": (4096,), "out": (4096,), "bias": (7,)}
    assert values(found) == {"n": 4096, "BLOCK": 256}


def test_strides_follow_in_tensors_and_in_parameters_that_are_called_so() -> None:
    before = launch(tensor("x", 128, 500), tensor("t", 500, 128, stride=(1, 500)), rows=128, columns=500, x_stride=500)
    found = scale_launch(before, {"columns": 640})
    assert shapes(found) == {"x": (128, 640), "t": (640, 128)}
    assert found.argument("t").stride == (1, 640)
    assert values(found) == {"rows": 128, "columns": 640, "x_stride": 640}


def test_flat_tensors_follow_products_and_multiples() -> None:
    found = scale_launch(launch(tensor("x", 60), tensor("twice", 20), m=6, n=10), {"n": 100})
    assert shapes(found) == {"x": (600,), "twice": (200,)}


def test_several_numbers_may_be_swept_at_once() -> None:
    found = scale_launch(launch(tensor("a", 30, 50), tensor("b", 50, 70), m=30, n=70, k=50), {"m": 3, "n": 7, "k": 5})
    assert shapes(found) == {"a": (3, 5), "b": (5, 7)}


def test_numbers_that_are_no_sizes_only_change_their_value() -> None:
    before = launch(tensor("x", 64), n=64, BLOCK=16)
    assert values(scale_launch(before, {"BLOCK": 32})) == {"n": 64, "BLOCK": 32}
    assert shapes(scale_launch(before, {"BLOCK": 32})) == {"x": (64,)}
    assert scale_launch(before, {"n": 64}) == before


@pytest.mark.parametrize(
    ("before", "wanted", "message"),
    [
        (launch(tensor("a", 64, 64), m=64, n=64), {"m": 128}, "n was 64 too, so it is not clear"),
        (launch(tensor("a", 64, 64), m=64, n=64), {"m": 128, "n": 256}, "n was 64, which does not determine"),
        (launch(tensor("x", 1), n=1), {"n": 5}, "n was 1, which does not determine the extents"),
        (launch(tensor("x", 1024), n=1000), {"n": 5}, "No tensor of the recorded launch has an extent of n=1000"),
        (launch(tensor("x", 10, 500, stride=(512, 1)), n=500), {"n": 5}, r"x has gaps \(strides \(512, 1\)\)"),
        (launch(tensor("x", 60), a=4, b=6), {"a": 8, "b": 18}, r"x has the shape \(60,\)"),
    ],
)
def test_what_is_ambiguous_asks_for_inputs(before: RecordedLaunch, wanted: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        scale_launch(before, wanted)
    assert f"pass inputs=lambda {', '.join(wanted)}: dict(...)" in caught.value.message
